"""Sums are taken block by block: where blocks end, and what is let go in between, changes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fixtures.builder import TraceBuilder
from nsysacct import groups
from nsysacct.account import account, events
from nsysacct.attribution import BASES
from nsysacct.model import BUCKETS
from nsysacct.timeline import Kind
from nsysacct.trace import read_trace
from nsysacct.trace.schema import KERNEL
from nsysacct.wire import dump_account

TraceFile = Callable[[str], Path]
SOME = ["small_node_nvtx", "overlap", "llama_B_mtp_graph", "vllm_eagle_graph", "twoproc"]


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("size", [101, 4096])
def test_the_account_does_not_depend_on_the_blocks(
    trace_file: TraceFile, monkeypatch: pytest.MonkeyPatch, name: str, size: int
) -> None:
    whole = dump_account(account(read_trace(trace_file(name))))
    monkeypatch.setattr(groups, "BLOCK", size)
    assert dump_account(account(read_trace(trace_file(name)))) == whole


@pytest.mark.parametrize("name", SOME)
def test_sums_of_the_account_are_sums_of_its_events(trace_file: TraceFile, name: str) -> None:
    trace = read_trace(trace_file(name))
    result = account(trace)
    for part, placed in zip(result.processes, events(trace), strict=True):
        line = placed.line
        spent: dict[tuple[str, str | None], int] = defaultdict(int)
        for i in range(len(line)):
            bucket = BUCKETS[placed.bucket[i]]
            if line.kind[i] in (Kind.KERNEL, Kind.GRAPH):
                basis = BASES[placed.basis[i]] if placed.basis[i] < len(BASES) else None
                spent[bucket, basis] += int(line.duration[i])
        for one in part.buckets:
            mine = {basis: ns for (b, basis), ns in spent.items() if b == one.bucket}
            assert one.gpu_ns == sum(mine.values())
            seen = {basis: ns for basis, ns in one.by_basis.items() if basis in mine}
            assert seen == {basis: ns for basis, ns in mine.items() if basis is not None}
            of_bucket = np.flatnonzero(placed.bucket == BUCKETS.index(one.bucket))
            assert one.busy_ns == covered(line.start[of_bucket], line.end[of_bucket])
        rows = [row for row in part.kernels if row.family != "graph"]
        assert sum(row.instances for row in rows) == int((line.kind == Kind.KERNEL).sum())
        assert sum(row.gpu_ns for row in part.kernels) == part.total_gpu_ns


def covered(start: np.ndarray, end: np.ndarray) -> int:
    """Union of intervals, one after the other."""
    total, reach = 0, -1
    for s, e in sorted(zip(start.tolist(), end.tolist(), strict=True)):
        total += max(0, e - max(s, reach))
        reach = max(reach, e)
    return total


def test_tables_let_go_are_read_again_the_same(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for i in range(50):
        builder.kernel(f"k_{i % 3}", 1_000 * i, 1_000 * i + 300, stream=i % 2)
    builder.rows(KERNEL)[7]["end"] = None
    trace = read_trace(builder.write(tmp_path / "t.sqlite", strict=False))
    before = trace.kernels
    first = dump_account(account(trace))
    assert trace.kernels is not before
    for column in ("start", "duration", "stream", "name", "correlation", "row"):
        assert np.array_equal(getattr(trace.kernels, column), getattr(before, column))
    assert dump_account(account(trace)) == first
    assert [r.count for r in trace.rejected] == [1]
