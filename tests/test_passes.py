"""Cutting into passes on timelines made by hand, and sums by group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysacct.evidence import Code, NameEvidence
from nsysacct.groups import Groups
from nsysacct.passes import cut
from nsysacct.timeline import Kind, Timeline
from nsysacct.trace import NONE


def eager(streams: list[int]) -> Timeline:
    """Kernels launched one by one, 10 ns apart, without any synchronisation between them."""
    count = len(streams)
    at = np.arange(count, dtype=np.int64) * 10
    index = np.arange(count, dtype=np.int32)
    none, no = np.full(count, NONE, np.int32), np.zeros(count, bool)
    return Timeline(
        process=0,
        gpu=0,
        start=at,
        duration=np.full(count, 5, np.int16),
        launch=at,
        kind=np.full(count, Kind.KERNEL, np.uint8),
        stream=np.array(streams, np.int32),
        name=np.zeros(count, np.int32),
        graph=none.astype(np.int64),
        epoch=np.zeros(count, np.int32),
        unit=index,
        thread=np.zeros(count, np.int32),
        source=index.astype(np.int64),
        copies_in=no,
        copies_out=no,
        returned_bytes=np.empty(0, np.int64),
        by_start=None,
    )


def named(signature: list[int]) -> NameEvidence:
    """Evidence where signature 1 ends every pass and none tells a phase."""
    signatures: Any = (SimpleNamespace(marker=""), SimpleNamespace(marker="pass-end"))
    count = len(signature)
    none = np.full(count, NONE, np.int32)
    return NameEvidence(
        signatures=signatures,
        signature=np.array(signature, np.int32),
        code=np.full(count, Code.SHARED, np.uint8),
        width=none,
        requests=none,
        phase=none,
    )


@pytest.mark.parametrize(
    ("streams", "signature", "passes"),
    [
        ([7] * 6, [0, 0, 1, 0, 0, 1], [0, 0, 0, 1, 1, 1]),
        ([7] * 6, [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]),
        # a lane without such kernels of its own is cut where the others are
        ([7, 8, 7, 7, 8, 7], [0, 0, 1, 0, 0, 1], [0, 1, 0, 2, 3, 2]),
    ],
)
def test_kernels_that_end_a_pass_cut_where_the_host_does_not_wait(
    streams: list[int], signature: list[int], passes: list[int]
) -> None:
    found = cut(eager(streams), named(signature))
    assert found.pass_of.tolist() == passes
    assert found.kernels.sum() == len(streams)
    assert found.gpu_ns.tolist() == [5 * passes.count(i) for i in range(len(found))]


numbers = st.integers(-(2**53) - 1, 2**53 + 1)


@given(st.lists(st.tuples(st.integers(0, 4), numbers), max_size=30))
def test_groups_reduce_like_plain_python(rows: list[tuple[int, int]]) -> None:
    ids = np.array([i for i, _ in rows], np.int64)
    values = np.array([v for _, v in rows], np.int64)
    groups = Groups.of(ids, 6)
    held = [[v for i, v in rows if i == g] for g in range(6)]
    assert groups.sum(values).tolist() == [sum(h) for h in held]
    assert groups.least(values, 0).tolist() == [min(h, default=0) for h in held]
    assert groups.most(values, 0).tolist() == [max(h, default=0) for h in held]
    members = groups.members()
    assert [values[m].tolist() for m in members] == held
    filled = [m for m in members if len(m)]
    assert groups.first().tolist() == [m[0] for m in filled]
    assert groups.last().tolist() == [m[-1] for m in filled]
