from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysacct import groups
from nsysacct.intervals import Cover, clip, covered_ns, union_ns

pairs = st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 20)), max_size=30)


def arrays(items: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    start = np.array([s for s, _ in items], np.int64)
    return start, start + np.array([d for _, d in items], np.int64)


def instants(items: list[tuple[int, int]]) -> set[int]:
    return {t for s, d in items for t in range(s, s + d)}


@given(pairs)
def test_union_is_the_set_of_covered_instants(items: list[tuple[int, int]]) -> None:
    assert union_ns(*arrays(items)) == len(instants(items))


@given(pairs, st.integers(1, 9))
def test_what_a_cover_adds_is_new_ascending_and_disjoint(
    items: list[tuple[int, int]], size: int
) -> None:
    items = sorted(items)
    cover = Cover()
    added: list[tuple[int, int]] = []
    for low in range(0, len(items), size):
        start, end = cover.add(*arrays(items[low : low + size]))
        added += zip(start.tolist(), end.tolist(), strict=True)
    assert all(b >= a for (_, a), (b, _) in pairwise(added))
    assert {t for s, e in added for t in range(s, e)} == instants(items)
    assert cover.total == len(instants(items))


@given(pairs, st.lists(st.tuples(st.integers(-60, 60), st.integers(0, 40)), max_size=8))
def test_covered_time_in_windows(
    items: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> None:
    low, high = arrays(windows)
    got = covered_ns(Cover().add(*arrays(sorted(items))), low, high)
    covered = instants(items)
    assert got.tolist() == [len(covered & set(range(a, b))) for a, b in zip(low, high, strict=True)]


@given(pairs)
def test_blocks_change_nothing(items: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "BLOCK", 3)
        assert union_ns(*arrays(items)) == len(instants(items))


def test_clip_empties_what_is_outside() -> None:
    start, end = clip(np.array([0, 10, 30]), np.array([5, 20, 40]), 3, 15)
    assert (end - start).tolist() == [2, 5, 0]


def test_times_beyond_double_precision_stay_exact() -> None:
    base = 1_700_000_000_000_000_001
    assert union_ns(np.array([base, base + 1]), np.array([base + 2, base + 3])) == 3
