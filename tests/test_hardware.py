"""DRAM counters over steps and memory in use, on a recorded trace with counters put in."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fixtures.builder import TraceBuilder
from nsysacct.account import account
from nsysacct.bottleneck import bottleneck
from nsysacct.explain import explain
from nsysacct.model import Account
from nsysacct.trace import read_trace

PERIOD_NS = 20_000
READ, WRITE, CLOCK = 3, 4, 9


def plain_windows(path: Path) -> list[tuple[int, int]]:
    """First start and last end of the graph launches before the first round, from the file."""
    with closing(sqlite3.connect(path)) as file:
        rows = file.execute("SELECT start, end FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE").fetchall()
    return sorted(rows)


@pytest.fixture
def counted(trace_file, tmp_path):
    """Write small_graph with counters: 80 % read and 5 % write inside graph launches, else 1 %."""

    def write(gpus: tuple[int, ...] = (0,), every: int = PERIOD_NS) -> Path:
        path = tmp_path / "counted.sqlite"
        shutil.copy(trace_file("small_graph"), path)
        windows = plain_windows(path)
        start, end = windows[0][0] - 10 * every, windows[-1][1] + 10 * every
        inside = [
            any(a <= at and at - every <= b for a, b in windows) for at in range(start, end, every)
        ]
        with closing(sqlite3.connect(path)) as file, file:
            file.execute(
                "CREATE TABLE GPU_METRICS (timestamp INT, typeId INT, metricId INT, value)"
            )
            file.execute(
                "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INT, sourceId INT, typeName TEXT, "
                "metricId INT, metricName TEXT)"
            )
            for gpu in gpus:
                source = 0x7000 | gpu
                for number, name in (
                    (READ, "DRAM Read Bandwidth [Throughput %]"),
                    (WRITE, "DRAM Write Bandwidth [Throughput %]"),
                    (CLOCK, "SYS Clock Frequency [MHz]"),
                ):
                    file.execute(
                        "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, 0, '', ?, ?)",
                        (source, number, name),
                    )
                for at, busy in zip(range(start, end, every), inside, strict=True):
                    values = {READ: 80 if busy else 1, WRITE: 5 if busy else 1, CLOCK: 1980}
                    for number, value in values.items():
                        row = (at, source, number, value if gpu == 0 else 50)
                        file.execute("INSERT INTO GPU_METRICS VALUES (?, ?, ?, ?)", row)
        return path

    return write


def plain_step_of(found: Account):
    return next(step for step in found.steps if step.role in ("plain", "decode"))


def test_nothing_recorded_is_none_not_zero(trace_file):
    found = account(read_trace(trace_file("small_graph")))
    assert found.trace.peak_memory_bytes is None
    assert {(s.dram_read_share, s.dram_write_share) for s in found.steps} == {(None, None)}


def test_counters_are_averaged_over_plain_steps(counted):
    found = account(read_trace(counted()))
    step = plain_step_of(found)
    # gaps between steps are part of a run of them: a little below what runs inside the graphs
    assert 0.70 < step.dram_read_share <= 0.80
    assert 0.04 < step.dram_write_share <= 0.05


def test_counters_of_another_gpu_are_left_out(counted):
    alone = account(read_trace(counted()))
    both = account(read_trace(counted(gpus=(0, 1))))
    assert plain_step_of(both).dram_read_share == plain_step_of(alone).dram_read_share


def test_a_few_samples_say_nothing(counted):
    found = account(read_trace(counted(every=50_000_000)))
    assert plain_step_of(found).dram_read_share is None


def test_the_bottleneck_takes_the_counters_and_holds_the_bytes_against_them(counted):
    run = account(read_trace(counted()))
    step = plain_step_of(run)
    found = bottleneck(run, weight_bytes=10_000_000)
    assert found.bandwidth_share == step.dram_read_share + step.dram_write_share
    assert "measured by GPU metrics" in found.bandwidth_how
    assert any("counters saw" in reason for reason in found.reasons)
    assert not any("not measured" in reason for reason in found.reasons)
    assert bottleneck(run, dram_share=0.3).bandwidth_share == 0.3
    first = explain(run).steps[0]
    assert first.state == "measured"


def allocations(*changes: tuple[int, int, int, int]) -> TraceBuilder:
    """One kernel and allocations: (time, +bytes or -bytes, kind, GPU)."""
    builder = TraceBuilder()
    builder.kernel("k_rmsnorm(const float *, float *, int)", 1_000_000, 1_002_000)
    for at, change, kind, gpu in changes:
        builder.row(
            "CUDA_GPU_MEMORY_USAGE_EVENTS", start=at, bytes=abs(change), deviceId=gpu, memKind=kind,
            memoryOperationType=0 if change > 0 else 1, globalPid=builder.process(1000),
        )  # fmt: skip
    return builder


DEVICE, PINNED = 2, 1


@pytest.mark.parametrize(
    ("changes", "peak"),
    [
        (((5, 100, DEVICE, 0), (6, -100, DEVICE, 0), (7, 60, DEVICE, 0)), 100),
        (((7, 60, DEVICE, 0), (5, 100, DEVICE, 0)), 160),  # rows out of order
        (((5, 100, DEVICE, 0), (6, 900, PINNED, 0)), 100),  # not on the card
        (((5, 100, DEVICE, 0), (6, 900, DEVICE, 1)), 100),  # another card
        (((5, -70, DEVICE, 0), (6, 100, DEVICE, 0)), 100),  # 70 were there, 30 more after
        (((5, -70, DEVICE, 0), (6, 50, DEVICE, 0)), 70),
        (((5, 900, PINNED, 0),), None),
    ],
)
def test_peak_memory(tmp_path, changes, peak):
    path = allocations(*changes).write(tmp_path / "t.sqlite")
    assert account(read_trace(path)).trace.peak_memory_bytes == peak
