"""Ids joined by a table, and in narrow types, as a search in wide ones would join them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysacct import groups
from nsysacct.trace.column import NONE
from nsysacct.trace.encoding import distinct, narrowed
from nsysacct.trace.join import ById, occur

near = st.lists(st.integers(-1, 40), max_size=30)
far = st.lists(st.integers(-1, 1 << 40), max_size=10)
damaged = st.lists(st.sampled_from([-32768, -7, -1, 5, -(1 << 63), (1 << 63) - 1]), max_size=4)
ids = near | far | damaged


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "BLOCK", 7)


@given(ids, ids)
def test_rows_by_id(have: list[int], want: list[int]) -> None:
    found = ById.of(narrowed(np.array(have, np.int64))).rows(narrowed(np.array(want, np.int64)))
    assert found.tolist() == [have.index(i) if i in have and i >= 0 else NONE for i in want]


@given(ids, ids)
def test_ids_that_occur(have: list[int], want: list[int]) -> None:
    found = occur(narrowed(np.array(want, np.int64)), narrowed(np.array(have, np.int64)))
    assert found.tolist() == [i in have and i >= 0 for i in want]


@given(
    st.lists(st.sampled_from([-32768, -129, -1, 0, 127, 128, 32767, 40_000, 1 << 31, -(1 << 40)]))
)
def test_narrow_values_are_the_same_values(values: list[int]) -> None:
    wide = np.array(values, np.int64)
    narrow = narrowed(wide)
    assert narrow.tolist() == values
    found, codes = distinct(narrow)
    assert found.tolist() == sorted(set(values))
    assert found[codes].tolist() == values


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(-(1 << 62) // 40, (1 << 62) // 40)), max_size=40
    )
)
def test_sums_and_counts_by_group_are_exact(pairs: list[tuple[int, int]]) -> None:
    keys = np.array([k for k, _ in pairs], np.int16)
    values = np.array([v for _, v in pairs], np.int64)
    assert groups.sums(keys, values, 6).tolist() == [
        sum(v for k, v in pairs if k == i) for i in range(6)
    ]
    assert groups.counts(keys, 6).tolist() == [sum(k == i for k, _ in pairs) for i in range(6)]
