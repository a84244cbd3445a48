from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fixtures.builder import TraceBuilder
from nsysacct.errors import (
    NoCudaTraceError,
    NotAnExportError,
    NsysacctError,
    TraceError,
    UnsupportedSchemaError,
)
from nsysacct.timeline import accounts_of
from nsysacct.trace import NONE, ApiKind, MemKind, NvtxKind, Trace, classify, columns, read_trace
from nsysacct.trace.database import damage

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
SCHEMAS = ("none", "2.9.1", "3.1.7", "3.7.2", "3.20.3", "3.25.0")


def small(schema: str = "3.20.3", **options: str) -> TraceBuilder:
    """Two kernels, a copy, a set, a timed graph, a range."""
    builder = TraceBuilder(schema, **options)
    builder.kernel("k_a<(int)4>(int)", 10_000, 12_000, stream=7, grid=(2, 3, 4), block=(32, 2, 1))
    builder.kernel("k_b(float *)", 13_000, 13_500, stream=9)
    builder.memcpy(14_000, 15_000, kind=2, size=64)
    builder.memset(15_000, 15_100, size=32)
    builder.graph_launch(5, 20_000, 30_000, graph=4)
    builder.sync(30_000, 31_000)
    builder.nvtx("draft", 1_000, 9_000)
    return builder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return small().write(tmp_path / "trace.sqlite")


def listing(directory: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in directory.iterdir()}


def everything(trace: Trace) -> None:
    """Read all there is."""
    for name in ("kernels", "memops", "graph_runs", "api", "syncs", "nvtx", "nvtx_marks"):
        assert len(getattr(trace, name).start) == len(getattr(trace, name).row)
    _ = (trace.kernels.grid, trace.graph_events, trace.graph_node_events, trace.gpu_metrics)
    _ = (trace.memory_usage, trace.diagnostics, trace.info, trace.processes, trace.gpus)


# Content


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_version_gives_the_same_columns(tmp_path: Path, schema: str) -> None:
    trace = read_trace(small(schema).write(tmp_path / "t.sqlite"))
    everything(trace)
    k = trace.kernels
    assert [trace.kernel_names[i] for i in k.name] == ["k_a<(int)4>(int)", "k_b(float *)"]
    assert k.start.tolist() == [10_000, 13_000]
    assert k.end.tolist() == [12_000, 13_500]
    assert k.stream.tolist() == [7, 9]
    assert k.grid.tolist() == [[2, 3, 4], [1, 1, 1]]
    assert k.block.tolist() == [[32, 2, 1], [128, 1, 1]]
    assert k.graph.tolist() == k.graph_node.tolist() == [NONE, NONE]
    assert trace.memops.kind.tolist() == [MemKind.MEMCPY, MemKind.MEMSET]
    assert trace.memops.bytes.tolist() == [64, 32]
    assert trace.memops.copy_kind.tolist() == [2, NONE]
    assert trace.syncs.sync_type.tolist() == [3]
    assert trace.nvtx_names == ["draft"]
    assert [p.pid for p in trace.processes] == [1000]
    assert trace.rejected == []


@pytest.mark.parametrize(
    ("schema", "mode"),
    [("none", None), ("3.1.7", None), ("3.7.2", "node"), ("3.20.3", "node"), ("3.25.0", "node")],
)
def test_versions_and_granularity_are_found_where_they_are_recorded(
    tmp_path: Path, schema: str, mode: str | None
) -> None:
    builder = small(schema, graph_trace="Node:host-only")
    info = read_trace(builder.write(tmp_path / "t.sqlite")).info
    assert info.export_schema == (None if schema == "none" else schema)
    assert info.graph_trace == mode
    assert (info.kernels, info.gpu, info.gpu_sm_count) == (2, "NVIDIA H200", 132)


def test_whole_graphs_are_rows_of_their_own(path: Path) -> None:
    trace = read_trace(path)
    runs = trace.graph_runs
    assert (runs.graph.tolist(), runs.graph_exec.tolist()) == ([4], [5])
    assert runs.timed.tolist() == [True]
    launch = trace.api.correlation[trace.api.kind == ApiKind.GRAPH_LAUNCH]
    assert runs.correlation.tolist() == launch.tolist()


def test_a_graph_without_a_time_is_kept_and_marked(tmp_path: Path) -> None:
    builder = small()
    builder.graph_launch(5, 0, 0, launch=40_000)
    trace = read_trace(builder.write(tmp_path / "t.sqlite"))
    assert trace.graph_runs.timed.tolist() == [True, False]
    assert trace.rejected == []


@pytest.mark.parametrize("schema", ["3.20.3", "3.25.0"])
def test_graph_of_a_node_comes_from_its_column_or_its_id(tmp_path: Path, schema: str) -> None:
    builder = small(schema)
    builder.graph_launch(77, 40_000, nodes=[("k_n", 40_000, 41_000)])
    kernels = read_trace(builder.write(tmp_path / "t.sqlite")).kernels
    assert kernels.graph.tolist() == [NONE, NONE, 77]
    assert kernels.graph_node.tolist() == [NONE, NONE, 77 << 32]


def test_graph_events_are_told_apart_by_their_columns(tmp_path: Path) -> None:
    old = small("3.7.2")
    old.row("CUDA_GRAPH_EVENTS", start=1, end=1, eventClass=77, globalTid=old.thread(),
            graphNodeId=3, originalGraphNodeId=2)  # fmt: skip
    trace = read_trace(old.write(tmp_path / "old.sqlite"))
    assert trace.graph_events is None
    assert trace.graph_node_events is not None
    assert trace.graph_node_events.original_graph_node.tolist() == [2]
    new = small("3.20.3")
    new.row("CUDA_GRAPH_EVENTS", start=1, end=1, eventClass=94, globalTid=new.thread(),
            graphId=4, graphExecId=5)  # fmt: skip
    new.row("CUDA_GRAPH_NODE_EVENTS", start=1, end=1, eventClass=77, graphNodeId=9)
    trace = read_trace(new.write(tmp_path / "new.sqlite"))
    assert trace.graph_events is not None
    assert trace.graph_events.graph_exec.tolist() == [5]
    assert trace.graph_events.original_graph.tolist() == [NONE]
    assert trace.graph_node_events is not None
    assert trace.graph_node_events.graph_node.tolist() == [9]
    assert trace.graph_node_events.process.tolist() == [0]  # NULL: the only process


def test_processes_with_equal_correlation_ids_stay_apart(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for pid, start in ((20, 10_000), (10, 11_000)):
        builder.process(pid, name=f"rank {pid}")
        assert builder.kernel(f"k_{pid}", start, start + 500) == 1
    trace = read_trace(builder.write(tmp_path / "t.sqlite"))
    k = trace.kernels
    assert [trace.processes[p].pid for p in k.process] == [20, 10]
    assert [trace.processes[p].name for p in k.process] == ["rank 20", "rank 10"]
    assert k.correlation.tolist() == [1, 1]
    assert [trace.processes[p].pid for p in trace.api.process] == [20, 10]


def test_device_numbers_of_processes_become_physical_gpus(tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.gpu(1, "NVIDIA other")
    builder.process(20, device=0, gpu=1)
    builder.kernel("k", 10_000, 11_000)
    builder.process(21, device=0, gpu=0)
    builder.kernel("k", 10_000, 11_000)
    builder.process(22, device=1)
    builder.kernel("k", 10_000, 11_000)
    trace = read_trace(builder.write(tmp_path / "t.sqlite"))
    assert [trace.gpus[g].index for g in trace.kernels.gpu] == [1, 0, 1]
    assert [gpu.name for gpu in trace.gpus] == ["NVIDIA H200", "NVIDIA other"]


def test_a_graph_that_starts_on_the_host_is_on_the_gpu_of_its_process(tmp_path: Path) -> None:
    builder = small()
    builder.rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE")[0]["deviceId"] = 2**31 - 1
    trace = read_trace(builder.write(tmp_path / "t.sqlite"))
    assert trace.graph_runs.gpu.tolist() == [0]
    assert len(trace.gpus) == 1


def test_nvtx_ranges_marks_and_domains(tmp_path: Path) -> None:
    builder = small()
    builder.nvtx_domain(3, "lib")
    builder.nvtx("inline \N{GREEK SMALL LETTER MU}s", 100, None, 17, domain=3, inline=True)
    builder.nvtx("draft", 200, 300, 17, event_type=60, end_thread=18)
    builder.nvtx("here", 250, None, event_type=34)
    builder.row("NVTX_EVENTS", start=5, end=6, eventType=59, globalTid=(1 << 48) | (77 << 24))
    trace = read_trace(builder.write(tmp_path / "t.sqlite"))
    r = trace.nvtx
    assert [trace.nvtx_names[t] for t in r.text] == ["draft", "inline μs", "draft", ""]
    assert r.end.tolist() == [9_000, NONE, 300, 6]
    assert r.kind.tolist() == [0, NvtxKind.PUSH_POP, NvtxKind.START_END, 0]
    assert r.thread.tolist() == [1000, 17, 17, 0]
    assert r.end_thread.tolist() == [NONE, NONE, 18, NONE]
    assert [trace.nvtx_domains[d] for d in r.domain] == ["", "lib", "", ""]
    assert r.process.tolist() == [0, 0, 0, NONE]  # the last one is of a process without CUDA
    assert [trace.nvtx_names[t] for t in trace.nvtx_marks.text] == ["here"]
    assert trace.nvtx_marks.end.tolist() == [250]


def test_diagnostics_in_time_order(tmp_path: Path) -> None:
    builder = small()
    builder.diagnostic("later", 20, severity=3, source=3)
    builder.diagnostic("Not all CUDA events might have been collected.", -5)
    found = read_trace(builder.write(tmp_path / "t.sqlite")).diagnostics
    assert [(d.timestamp, d.severity, d.source, d.pid) for d in found] == [
        (-5, "warning", "injection", 1000),
        (20, "error", "analysis", 1000),
    ]
    assert found[0].text.startswith("Not all CUDA events")


def test_gpu_metrics_have_names(tmp_path: Path) -> None:
    builder = small()
    builder.row("TARGET_INFO_GPU_METRICS", metricId=4, metricName="DRAM Read Throughput")
    builder.row("GPU_METRICS", timestamp=10, metricId=4, value=88)
    metrics = read_trace(builder.write(tmp_path / "t.sqlite")).gpu_metrics
    assert metrics is not None
    assert [metrics.names[m] for m in metrics.metric] == ["DRAM Read Throughput"]
    assert metrics.value.tolist() == [88]
    assert read_trace(small().write(tmp_path / "u.sqlite")).gpu_metrics is None


def test_allocations_grow_and_shrink(tmp_path: Path) -> None:
    builder = small()
    place = {"globalPid": builder.process(1000), "deviceId": 0, "memKind": 2}
    for at, operation, size in ((5, 0, 100), (6, 1, 40), (7, 9, 1)):
        builder.row("CUDA_GPU_MEMORY_USAGE_EVENTS", start=at, bytes=size,
                    memoryOperationType=operation, **place)  # fmt: skip
    usage = read_trace(builder.write(tmp_path / "t.sqlite")).memory_usage
    assert usage is not None
    assert usage.change.tolist() == [100, -40]
    assert (usage.kind.tolist(), usage.gpu.tolist(), usage.process.tolist()) == (
        [2, 2],
        [0, 0],
        [0, 0],
    )
    assert read_trace(small().write(tmp_path / "u.sqlite")).memory_usage is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaLaunchKernel_v7000", ApiKind.KERNEL_LAUNCH),
        ("cudaLaunchKernel_ptsz_v7000", ApiKind.KERNEL_LAUNCH),
        ("cudaLaunchKernelExC_v11060", ApiKind.KERNEL_LAUNCH),
        ("cuLaunchKernelEx_ptsz", ApiKind.KERNEL_LAUNCH),
        ("cudaLaunchHostFunc_v10000", ApiKind.OTHER),
        ("cudaGraphLaunch_v10000", ApiKind.GRAPH_LAUNCH),
        ("cudaGraphLaunch_ptsz_v10000", ApiKind.GRAPH_LAUNCH),
        ("cuGraphLaunch_ptsz", ApiKind.GRAPH_LAUNCH),
        ("cudaGraphLaunch", ApiKind.GRAPH_LAUNCH),
        ("cudaGraphInstantiate_v12000", ApiKind.GRAPH_INSTANTIATE),
        ("cudaGraphInstantiateWithFlags_v11040", ApiKind.GRAPH_INSTANTIATE),
        ("cudaStreamBeginCapture_v10000", ApiKind.GRAPH_BUILD),
        ("cudaGraphicsMapResources_v3020", ApiKind.OTHER),
        ("cuMemcpyDtoH_v2", ApiKind.MEMCPY),
        ("cudaMemcpyAsync_v3020", ApiKind.MEMCPY),
        ("cuMemsetD32_v2", ApiKind.MEMSET),
        ("cudaStreamSynchronize_v3020", ApiKind.SYNC),
        ("cuCtxSynchronize", ApiKind.SYNC),
        ("cuEventSynchronize", ApiKind.SYNC),
        ("cudaStreamWaitEvent_v3020", ApiKind.EVENT),
        ("cudaEventRecord_v3020", ApiKind.EVENT),
        ("cudaMalloc_v3020", ApiKind.OTHER),
    ],
)
def test_api_calls_by_kind(name: str, kind: ApiKind) -> None:
    assert classify(name) is kind


def test_failed_calls_stay_and_are_marked(tmp_path: Path) -> None:
    builder = small()
    builder.launch(50_000, return_value=701)
    api = read_trace(builder.write(tmp_path / "t.sqlite")).api
    assert api.return_value[-1] == 701
    assert (api.return_value[:-1] == 0).all()


def test_progress_reaches_the_end_of_each_table(path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    trace = read_trace(path, progress=lambda *args: seen.append(args))
    _ = trace.api
    assert (f"reading {KERNEL}", 2, 2) in seen
    assert (f"reading {RUNTIME}", 6, 6) in seen


def test_only_what_is_asked_for_is_read(path: Path) -> None:
    seen: list[str] = []
    trace = read_trace(path, progress=lambda work, done, total: seen.append(work))
    assert seen == []
    assert trace.kernel_names
    assert seen == [f"reading {KERNEL}"]
    _ = trace.kernels
    assert seen == [f"reading {KERNEL}"]
    _ = trace.kernels.grid
    assert seen == [f"reading {KERNEL}"] * 2


# Order, duplicates, damage


def test_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for i in range(500):
        builder.kernel(f"k_{i % 7}", 1_000 * i, 1_000 * i + 300, stream=i % 3)
    straight = read_trace(builder.write(tmp_path / "a.sqlite"))
    shuffled = read_trace(builder.write(tmp_path / "b.sqlite", shuffle=1))

    def rows(trace: Trace) -> list[tuple[object, ...]]:
        k = trace.kernels
        names = [trace.kernel_names[i] for i in k.name]
        return sorted(zip(k.start.tolist(), k.end.tolist(), k.stream.tolist(), names, strict=True))

    assert rows(straight) == rows(shuffled)
    assert straight.kernels.start.tolist() != shuffled.kernels.start.tolist()


@pytest.mark.parametrize("lost", [0, 63, 64, 700, 999])
def test_many_ranges_on_several_threads_give_what_one_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    builder = TraceBuilder()
    for i in range(1_000):
        node = (3 << 32) | i if i % 5 == 0 else None
        builder.kernel(f"k_{i % 7}", 1_000 * i, 1_000 * i + 300, stream=i % 3, graph_node=node)
    builder.rows(KERNEL)[lost]["end"] = None
    file = builder.write(tmp_path / "t.sqlite", strict=False)
    whole = read_trace(file)
    monkeypatch.setattr(columns, "RANGE_ROWS", 64)
    monkeypatch.setattr(columns, "_THREADS", 3)
    parts = read_trace(file)
    for name in ("start", "end", "stream", "name", "graph_node", "graph", "correlation", "row"):
        one, many = getattr(whole.kernels, name), getattr(parts.kernels, name)
        assert np.array_equal(one, many), name
    assert np.array_equal(whole.kernels.grid, parts.kernels.grid)
    assert len(parts.kernels) == 999
    assert sorted({*range(1, 1_001)} - {*parts.kernels.row.tolist()}) == [lost + 1]


@pytest.mark.parametrize("gap", [2, 10**15])
def test_rowids_with_gaps(tmp_path: Path, gap: int) -> None:
    file = small().write(tmp_path / "t.sqlite")
    with sqlite3.connect(file) as connection:
        connection.execute(f"UPDATE {KERNEL} SET rowid = {gap} + 1 WHERE rowid = 2")
    connection.close()
    trace = read_trace(file)
    assert trace.kernels.row.tolist() == [1, gap + 1]
    assert trace.kernels.grid.tolist() == [[2, 3, 4], [1, 1, 1]]


def test_nulls_first_are_no_surprise(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for i in range(3_000):
        node = (3 << 32) | i if i >= 2_500 else None
        builder.kernel("k", 1_000 * i, 1_000 * i + 300, correlation=i, graph_node=node)
    builder.rows(KERNEL)[0]["correlationId"] = None
    kernels = read_trace(builder.write(tmp_path / "t.sqlite")).kernels
    assert (kernels.graph_node[:2_500] == NONE).all()
    assert kernels.graph_node[2_500:].tolist() == [(3 << 32) | i for i in range(2_500, 3_000)]
    assert kernels.correlation[:2].tolist() == [NONE, 1]


@pytest.mark.parametrize("row", [0, 1_500, 2_999])
@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("end", "late", "a value is not an integer"),
        ("start", b"\x00\xff", "a value is not an integer"),
        ("graphNodeId", "x", "a value is not an integer"),
        ("correlationId", 2.5, "a value is not an integer"),
        ("start", None, "a value is missing or out of range"),
        ("streamId", 2**40, "a value is missing or out of range"),
        ("end", 2**63 - 1, "time out of range"),
        ("start", -(2**63), "time out of range"),
        ("end", 1, "ends before it starts"),
    ],
)
def test_damaged_rows_are_left_out_and_counted(
    tmp_path: Path, row: int, column: str, value: object, reason: str
) -> None:
    builder = TraceBuilder()
    for i in range(3_000):
        builder.kernel("k", 10_000 + 1_000 * i, 10_300 + 1_000 * i)
    builder.rows(KERNEL)[row][column] = value
    trace = read_trace(builder.write(tmp_path / "t.sqlite", strict=False))
    k = trace.kernels
    assert [(r.table, r.reason, r.count) for r in trace.rejected] == [(KERNEL, reason, 1)]
    assert int((k.end - k.start).sum()) == 2_999 * 300
    assert row + 1 not in k.row
    assert len(k.grid) == 2_999


def test_damaged_geometry_leaves_the_time_in_the_sums(tmp_path: Path) -> None:
    builder = small()
    builder.rows(KERNEL)[0].update(gridY="many", blockX=2**40, blockZ=None)
    trace = read_trace(builder.write(tmp_path / "t.sqlite", strict=False))
    assert trace.kernels.grid.tolist() == [[2, NONE, 4], [1, 1, 1]]
    assert trace.kernels.block.tolist() == [[NONE, 2, NONE], [128, 1, 1]]
    assert trace.rejected == []


def test_damage_in_the_schema_text_is_one_line(path: Path) -> None:
    data = path.read_bytes()
    at = data.index(b"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL")
    path.write_bytes(data[:at] + b"CR\xff\xfe" + data[at + 4 :])
    assert "the file is damaged" in reason(path)


def test_a_column_of_another_type_rejects_its_rows(tmp_path: Path) -> None:
    file = small().write(tmp_path / "t.sqlite")
    with sqlite3.connect(file) as connection:
        script = f"""CREATE TABLE x AS SELECT * FROM {KERNEL}; DROP TABLE {KERNEL};
            CREATE TABLE {KERNEL} AS SELECT *, 'n' || streamId AS s FROM x;
            ALTER TABLE {KERNEL} DROP COLUMN streamId;
            ALTER TABLE {KERNEL} RENAME COLUMN s TO streamId; DROP TABLE x;"""
        connection.executescript(script)
    connection.close()
    trace = read_trace(file)
    assert len(trace.kernels) == 0
    assert trace.rejected[0].count == 2


def test_times_that_were_not_collected_are_no_zero_length_kernels(tmp_path: Path) -> None:
    builder = small()
    builder.kernel("k_zero", 0, 0, launch=40_000)
    builder.kernel("k_short", 50_000, 50_000)
    builder.kernel("k_early", -9_000, -8_000)
    trace = read_trace(builder.write(tmp_path / "t.sqlite"))
    assert [(r.reason, r.count) for r in trace.rejected] == []  # nothing read yet
    assert trace.kernels.start.tolist() == [10_000, 13_000, 50_000, -9_000]
    assert [(r.reason, r.count) for r in trace.rejected] == [
        ("time not collected (start = end = 0)", 1)
    ]


def test_repeated_rows_count_once(tmp_path: Path) -> None:
    builder = small()
    rows = builder.rows(KERNEL)
    rows += [dict(rows[0]), dict(rows[0]), {**rows[1], "graphNodeId": 8}]
    other = {**rows[0], "globalPid": (1 << 48) | (5 << 24)}  # same numbers, another process
    rows.append(other)
    trace = read_trace(builder.write(tmp_path / "t.sqlite", shuffle=3))
    assert len(trace.kernels) == 4
    assert [(r.reason, r.count) for r in trace.rejected] == [("repeats another row", 2)]


def test_names_that_are_not_utf8_or_not_there(tmp_path: Path) -> None:
    builder = small()
    builder.kernel(b"k_\xff\xfe(int)", 40_000, 41_000)
    builder.kernel("gone", 42_000, 43_000)
    builder.kernel("n" * 1_000_000, 44_000, 45_000)
    missing = builder.string("gone")
    file = builder.write(tmp_path / "t.sqlite")
    with sqlite3.connect(file) as connection:
        connection.execute("DELETE FROM StringIds WHERE id = ?", (missing,))
    connection.close()
    trace = read_trace(file)
    names = [trace.kernel_names[i] for i in trace.kernels.name]
    assert names[2:4] == ["k_\ufffd\ufffd(int)", f"<string id {missing}>"]
    assert len(names[4]) == 1_000_000


def test_an_export_without_strings_still_counts(tmp_path: Path) -> None:
    file = small().write(tmp_path / "t.sqlite")
    with sqlite3.connect(file) as connection:
        connection.execute("DROP TABLE StringIds")
    connection.close()
    trace = read_trace(file)
    assert len(trace.kernels) == 2
    assert all(name.startswith("<string id ") for name in trace.kernel_names)


def test_rows_without_a_process_belong_to_the_only_one(tmp_path: Path) -> None:
    builder = small()
    builder.rows(KERNEL)[1]["globalPid"] = None
    trace = read_trace(builder.write(tmp_path / "t.sqlite"))
    assert len({trace.processes[p].pid for p in trace.kernels.process}) == 1


# Files


def reason(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        everything(read_trace(path))
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(path.name)
    assert caught.value.remedy
    return text


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"", NotAnExportError, "is empty"),
        (b"\x00" * 8192, NotAnExportError, "killed before it finished"),
        (b"hello, world\n" * 99, NotAnExportError, "is not an SQLite file"),
        (b"NVIDIA Tegra Profiler Report 1.0" + b"\x01" * 999, NotAnExportError, "nsys report"),
        (b"U3w[END]NVIDIA Nsight Systems Stream", NotAnExportError, "raw nsys stream"),
        (b"version https://git-lfs.github.com/spec/v1\n", NotAnExportError, "git lfs pull"),
        (b"SQLite format 3\x00" + b"\x10", TraceError, "cut off"),
        (b"SQLite format 3\x00" + b"\x07" * 4096, TraceError, "damaged"),
    ],
)
def test_other_files_are_named_for_what_they_are(
    tmp_path: Path, data: bytes, kind: type[NsysacctError], words: str
) -> None:
    file = write(tmp_path / "odd.sqlite", data)
    assert words in reason(file)
    with pytest.raises(kind):
        read_trace(file)


def test_missing_file_directory_pipe_and_broken_link(tmp_path: Path) -> None:
    assert "no such file" in reason(tmp_path / "none.sqlite")
    assert "is a directory" in reason(tmp_path)
    link = tmp_path / "link.sqlite"
    link.symlink_to(tmp_path / "nowhere")
    assert "no such file" in reason(link)
    loop = tmp_path / "loop.sqlite"
    loop.symlink_to(loop)
    assert "cannot be opened" in reason(loop)
    assert list(tmp_path.glob("none*")) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system")
def test_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.sqlite"
    os.mkfifo(pipe)
    assert "is a pipe" in reason(pipe)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all")
def test_no_permission(path: Path) -> None:
    path.chmod(0)
    assert "permission denied" in reason(path)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.99])
def test_truncated_file(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    assert "truncated" in reason(path)


def leaf_pages(file: Path) -> list[int]:
    """Numbers of the pages that hold kernel rows, in order of the rows."""
    connection = sqlite3.connect(file)
    try:
        sql = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path"
        return [row[0] for row in connection.execute(sql, (KERNEL,))]
    except sqlite3.OperationalError:
        pytest.skip("this SQLite has no dbstat")
    finally:
        connection.close()


def test_damage_inside_a_table_is_one_line(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for i in range(5_000):
        builder.kernel("k", 1_000 * i, 1_000 * i + 300)
    file = builder.write(tmp_path / "t.sqlite")
    pages = leaf_pages(file)
    data = bytearray(file.read_bytes())
    middle = (pages[len(pages) // 2] - 1) * 4096
    data[middle : middle + 4096] = b"\xa5" * 4096
    file.write_bytes(data)
    assert f"table {KERNEL} cannot be read" in reason(file)


def test_a_page_in_the_wrong_place_is_damage_not_a_wrong_sum(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for i in range(5_000):
        builder.kernel("k", 100_000_000 + 1_000 * i, 100_000_000 + 1_000 * i + 300)
    file = builder.write(tmp_path / "t.sqlite")
    pages = leaf_pages(file)
    data = bytearray(file.read_bytes())
    first, second = ((page - 1) * 4096 for page in pages[10:12])
    data[first : first + 4096] = data[second : second + 4096]
    file.write_bytes(data)
    assert f"table {KERNEL} cannot be read" in reason(file)


def test_sqlite_that_is_no_export(tmp_path: Path) -> None:
    def database(name: str, *tables: str) -> Path:
        file = tmp_path / name
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA user_version = 1")  # makes the file exist
            for table in tables:
                connection.execute(f"CREATE TABLE {table} (a)")
        connection.close()
        return file

    assert "not an nsys export" in reason(database("a.sqlite", "users"))
    assert "without any table" in reason(database("b.sqlite"))
    nvprof = database("c.sqlite", "StringTable", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL")
    assert "nvprof" in reason(nvprof)


def test_no_cuda_at_all(tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.nvtx("only", 1, 2)
    file = builder.write(tmp_path / "t.sqlite")
    assert "no CUDA trace in this export" in reason(file)
    with pytest.raises(NoCudaTraceError):
        read_trace(file)


@pytest.mark.parametrize("schema", ["3.7.2", "3.20.3"])
def test_launches_without_any_gpu_row(tmp_path: Path, schema: str) -> None:
    builder = TraceBuilder(schema)
    for i in range(3):
        builder.launch(1_000 * i)
    file = builder.write(tmp_path / "t.sqlite")
    assert "the GPU side was not captured: 3 kernel launches" in reason(file)
    with pytest.raises(NoCudaTraceError):
        read_trace(file)


def test_graph_launches_alone_are_a_blind_spot_not_an_error(tmp_path: Path) -> None:
    builder = TraceBuilder("3.7.2")
    builder.graph_launch(2, 1_000, 2_000)
    trace = read_trace(builder.write(tmp_path / "t.sqlite"))
    assert trace.api.kind.tolist() == [ApiKind.GRAPH_LAUNCH]
    assert not trace.has_graph_trace_table
    assert len(trace.kernels) == 0


@pytest.mark.parametrize("column", ["start", "deviceId", "correlationId"])
def test_a_missing_column_is_named(path: Path, column: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"ALTER TABLE {KERNEL} RENAME COLUMN {column} TO renamed")
    connection.close()
    assert f"table {KERNEL} lacks column {column} (schema 3.20.3)" in reason(path)
    with pytest.raises(UnsupportedSchemaError):
        read_trace(path)


def test_kernels_without_demangled_names_use_short_ones(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"ALTER TABLE {KERNEL} DROP COLUMN demangledName")
    connection.close()
    assert read_trace(path).kernel_names == ["k_a", "k_b"]


@pytest.mark.parametrize("lock", ["EXCLUSIVE"])
def test_a_file_being_written_is_locked(path: Path, lock: str) -> None:
    writer = sqlite3.connect(path, isolation_level=None)
    try:
        writer.execute(f"BEGIN {lock}")
        assert "is locked by another program" in reason(path)
    finally:
        writer.close()


def test_a_file_left_half_written(path: Path) -> None:
    write(
        path.with_name(path.name + "-journal"), b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + b"\x00" * 99
    )
    assert "half-written" in reason(path)


# Nothing is left behind


@pytest.mark.parametrize("name", ["a b.sqlite", "a#b?c%20d.sqlite", "spur-μ-轨迹.sqlite", "-x"])
def test_odd_paths(tmp_path: Path, name: str) -> None:
    directory = tmp_path / f"dir {name}"
    directory.mkdir()
    file = small().write(directory / name)
    trace = read_trace(file)
    everything(trace)
    assert trace.name == name
    assert len(trace.kernels) == 2


def test_no_side_files_and_no_change(path: Path) -> None:
    before, stamp = listing(path.parent), path.stat().st_mtime_ns
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        everything(read_trace(path))
    finally:
        path.parent.chmod(0o755)
    assert listing(path.parent) == before
    assert path.stat().st_mtime_ns == stamp


def test_a_closed_wal_file_is_read_without_side_files(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    before = listing(path.parent)
    everything(read_trace(path))
    assert listing(path.parent) == before


def test_a_wal_beside_the_file_is_read_and_left_alone(path: Path, tmp_path: Path) -> None:
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute(f'UPDATE {KERNEL} SET "end" = 12345 WHERE start = 10000')
    killed = tmp_path / "killed"
    killed.mkdir()
    for suffix in ("", "-wal"):  # as a writer that was killed leaves them
        shutil.copy(f"{path}{suffix}", killed / f"t.sqlite{suffix}")
    writer.close()
    before = listing(killed)
    trace = read_trace(killed / "t.sqlite")
    everything(trace)
    assert trace.kernels.end.tolist() == [12_345, 13_500]
    assert listing(killed) == before


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def with_a_log(path: Path) -> sqlite3.Connection:
    """Leave one kernel of two out of `path` in a write-ahead log, which stays while this is open."""
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute(f"DELETE FROM {KERNEL} WHERE start = 13000")
    return writer


def test_the_copy_made_for_a_wal_is_removed(
    path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = with_a_log(path)
    trace = read_trace(path)
    assert len(trace.kernels) == 1
    # the log is part of the copy by then: threads do not lock each other out
    assert [p.name for p in scratch.glob("*/*")] == ["export.sqlite"]
    del trace
    assert list(scratch.iterdir()) == []

    failures: list[BaseException] = [KeyboardInterrupt(), OSError(errno.ENOSPC, "no space")]

    def failing(*_: object) -> None:
        raise failures[0]

    monkeypatch.setattr("shutil.copyfile", failing)
    with pytest.raises(KeyboardInterrupt):
        read_trace(path)
    failures.pop(0)
    with pytest.raises(TraceError, match=r"\(no space\); free some space for temporary files"):
        read_trace(path)
    assert list(scratch.iterdir()) == []
    writer.close()


def test_a_damaged_log_is_an_error_of_one_line(path: Path, tmp_path: Path, scratch: Path) -> None:
    writer = with_a_log(path)
    killed = tmp_path / "t.sqlite"
    shutil.copy(f"{path}-wal", f"{killed}-wal")
    killed.write_bytes(path.read_bytes()[:512] + bytes(1_000))
    writer.close()
    log = bytearray(Path(f"{killed}-wal").read_bytes())
    log[4:8] = b"\xff" * 4  # a version that SQLite refuses
    Path(f"{killed}-wal").write_bytes(log)
    with pytest.raises(TraceError, match=r"^t\.sqlite: ") as raised:
        _ = read_trace(killed).kernels
    assert "\n" not in str(raised.value)
    assert list(scratch.iterdir()) == []


def test_no_process_is_the_same_process_whenever_asked(tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.kernel("k", 0, 500)
    builder.kernel("k", 1_000, 1_500)
    builder.rows(KERNEL)[1]["globalPid"] = None
    builder.process(2_000)
    builder.launch(3_000)
    trace = read_trace(builder.write(tmp_path / "d.sqlite", strict=False))
    before = trace.kernels.process.tolist()
    assert [p.pid for p in trace.processes] == [1_000, 2_000]
    trace.release()
    assert trace.kernels.process.tolist() == before == [0, 0]


def test_a_table_without_a_column_that_it_needs(tmp_path: Path) -> None:
    builder = small()
    builder.nvtx("draft", 0, 100)
    path = builder.write(tmp_path / "d.sqlite")
    connection = sqlite3.connect(path)
    with connection:  # SQL finds it still
        connection.execute("ALTER TABLE NVTX_EVENTS RENAME COLUMN eventType TO EVENTTYPE")
    connection.close()
    with pytest.raises(UnsupportedSchemaError, match="no such column: eventType"):
        _ = read_trace(path).nvtx


def test_limits_of_the_machine_are_no_damage() -> None:
    error = damage("t.sqlite", OSError(24, "Too many open files", "/somewhere"), "T")
    assert str(error) == (
        "t.sqlite: table T cannot be read (Too many open files); check the disk and the limits"
    )
    full = damage("t.sqlite", sqlite3.OperationalError("database or disk is full"))
    assert str(full).endswith("; free some space for temporary files")
    gone = damage("t.sqlite", sqlite3.OperationalError("unable to open database file"))
    assert "damaged" not in str(gone)


def test_machines_with_thousands_of_gpus(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for index in range(1, 4_200):
        builder.gpu(index, "NVIDIA H200")
    for i, device in enumerate((0, 4_100, 4_199)):
        builder.process(10 + i, device=device)
        builder.kernel("k", 1_000 * i, 1_000 * i + 500)
    trace = read_trace(builder.write(tmp_path / "d.sqlite"))
    assert accounts_of(trace) == [(0, 0), (1, 4_100), (2, 4_199)]


def test_a_process_calls_a_device_the_same_whenever_asked(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for i, device in enumerate((-5, 3, 1)):  # no device has a negative number: that is damage
        builder.kernel("k", 1_000 * i, 1_000 * i + 500)
        builder.rows(KERNEL)[-1]["deviceId"] = device
    trace = read_trace(builder.write(tmp_path / "d.sqlite"))
    before = trace.kernels.gpu.tolist()
    trace.release()
    assert trace.kernels.gpu.tolist() == before


def test_environment_and_command_line_are_not_kept(tmp_path: Path) -> None:
    builder = small()
    secret = "TOKEN=hunter2"
    builder.string(secret)
    file = builder.write(tmp_path / "t.sqlite")
    with sqlite3.connect(file) as connection:
        connection.execute(
            "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', ?)", (secret,)
        )
    connection.close()
    trace = read_trace(file)
    everything(trace)
    held = [trace.versions, trace.info, trace.kernel_names, trace.api_names, trace.nvtx_names]
    assert secret not in repr(held)


def test_import_does_not_load_the_reader_s_libraries() -> None:
    code = "import json, sys, nsysacct.trace; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert not {"pyarrow", "adbc_driver_sqlite", "adbc_driver_manager", "pandas"} & loaded


def _twice(call: Callable[[], object]) -> bool:
    return call() is call()


def test_tables_are_read_once(path: Path) -> None:
    trace = read_trace(path)
    assert _twice(lambda: trace.kernels)
    assert _twice(lambda: trace.api)
    assert _twice(lambda: trace.nvtx)
    assert _twice(lambda: trace.kernels.grid)


@pytest.mark.parametrize("how", ["replaced", "cut", "written to", "removed"])
def test_a_file_that_changes_while_it_is_read_is_no_account_of_two(
    path: Path, tmp_path: Path, how: str
) -> None:
    trace = read_trace(path)
    assert len(trace.kernels) == 2
    if how == "replaced":
        builder = small()
        builder.kernel("another", 90_000, 91_000)
        new = builder.write(tmp_path / "new.sqlite")
        new.replace(path)
    elif how == "cut":
        os.truncate(path, 4096)
    elif how == "removed":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes())
    for read in (lambda: trace.memops, lambda: trace.info):
        with pytest.raises(TraceError, match="was changed while it was read; wait"):
            read()
