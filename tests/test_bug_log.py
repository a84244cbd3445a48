"""Mistakes that other analysers of such traces were reported for: one test a report.

The number is the row of the log of reports; where one is not a reader's business, docs/limits.md
says why, and the last test here holds that all rows are in one of the two places.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Run

from fixtures.builder import TraceBuilder
from nsysacct.account import Options, account
from nsysacct.errors import (
    NoCudaTraceError,
    NotAnExportError,
    TraceError,
    UnsupportedSchemaError,
)
from nsysacct.model import Account
from nsysacct.names import parse
from nsysacct.signatures import Pattern
from nsysacct.trace import Trace, read_trace

TraceFile = Callable[[str], Path]
Write = Callable[..., Path]
MS = 1_000_000
K, ROUNDS = 3, 6
ROWS = {
    *range(1, 15), 16, 17, *range(18, 29), 35, *range(37, 45), *range(46, 57), *range(58, 62), 63, 64
}  # fmt: skip
"""Rows of the log."""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(builder: TraceBuilder, name: str = "t.sqlite", **options: object) -> Path:
        return builder.write(tmp_path / name, **options)  # type: ignore[arg-type]

    return to_file


def read(path: Path) -> Trace:
    return read_trace(path)


def told(path: Path, options: Options | None = None) -> Account:
    return account(read_trace(path), options)


def kinds(result: Account) -> set[str]:
    return {spot.kind for spot in result.blind_spots}


def eager(builder: TraceBuilder, count: int = 4, at: int = 10_000, name: str = "k_any") -> int:
    """Kernels one after the other, 4 us each, 10 us apart."""
    for i in range(count):
        builder.kernel(name, at + 10_000 * i, at + 10_000 * i + 4_000)
    return at + 10_000 * count


# A. Graphs that hide what runs in them


def test_01_one_graph_launch_is_many_kernels(write: Write) -> None:
    trace = TraceBuilder()
    nodes = [("k_node", 10_000 + 1_000 * i, 10_900 + 1_000 * i) for i in range(50)]
    trace.graph_launch(7, 10_000, nodes=nodes)
    (graph,) = told(write(trace)).graphs
    assert (graph.graph_exec_id, graph.state, graph.launches, graph.gpu_ns) == (
        7,
        "expanded",
        1,
        45_000,
    )
    old = TraceBuilder("2.9.1")  # knows no graphs: a launch is counted, what it ran is not guessed
    old.graph_launch(7, eager(old))
    result = told(write(old, "old.sqlite"))
    assert [(g.state, g.launches, g.gpu_ns) for g in result.graphs] == [("blind", 1, None)]
    (spot,) = [s for s in result.blind_spots if s.kind == "graph-blind"]
    assert "a newer nsys" in spot.remedy and result.total_gpu_ns == 16_000


@pytest.mark.parametrize(
    "name",
    [
        "cudaGraphLaunch_v10000",
        "cudaGraphLaunch_ptsz_v10000",
        "cuGraphLaunch",
        "cuGraphLaunch_ptsz",
    ],
)
def test_02_every_spelling_of_a_graph_launch_counts(name: str, write: Write) -> None:
    trace = TraceBuilder()
    end = eager(trace)
    trace.graph_launch(7, end, name=name)
    result = told(write(trace))
    assert [(g.state, g.launches) for g in result.graphs] == [("blind", 1)]
    assert "graph-blind" in kinds(result)


def test_03_opaque_and_blind_launches_come_with_the_option_to_capture_again(write: Write) -> None:
    trace = TraceBuilder()
    end = eager(trace)
    trace.graph_launch(7, end, end + 50_000)
    trace.graph_launch(8, end + 100_000)
    spots = {s.kind: s.remedy for s in told(write(trace)).blind_spots}
    assert "--cuda-graph-trace=node" in spots["graph-names"]
    assert "--cuda-graph-trace" in spots["graph-blind"]


@pytest.mark.parametrize("row", [4, 5, 6])
def test_04_05_06_whole_graphs_are_gpu_time(row: int, write: Write) -> None:
    """Kernel rows alone called such a device 82 %, 91 % and 99 % idle."""
    trace = TraceBuilder()
    at = 1 * MS
    trace.kernel("ncclDevKernel_AllReduce", at, at + 100_000)
    for _ in range(89):
        trace.graph_launch(3, at + 200_000, at + 13_600_000)
        at += 13_600_000
    result = told(write(trace))
    assert result.window.busy_ns / result.window.wall_ns > 0.98
    assert result.total_gpu_ns == 100_000 + 89 * 13_400_000
    (kernel,) = [k for k in result.kernels if k.family != "graph"]
    assert kernel.gpu_ns / result.total_gpu_ns < 0.001  # the eager kernel is no 38 % of the time


def test_07_a_phase_whose_launches_are_blind_says_so(write: Write) -> None:
    trace = TraceBuilder(graph_trace=None)
    at = 1 * MS
    for _ in range(5):
        trace.nvtx("draft", at, at + 50_000)
        trace.graph_launch(3, at + 10_000, launch=at + 10_000)
        trace.nvtx("verify", at + 60_000, at + 200_000)
        trace.kernel("k_v", at + 80_000, at + 150_000, launch=at + 70_000)
        trace.sync(at + 160_000, at + 190_000)
        at += 300_000
    (spot,) = [s for s in told(write(trace)).blind_spots if s.kind == "graph-blind"]
    assert spot.count == 5 and "draft" in spot.detail
    assert spot.hidden_ns is None or spot.hidden_ns > 0  # open or priced, never zero


def test_08_kernels_need_no_api_row(write: Write) -> None:
    trace = TraceBuilder()
    eager(trace)
    trace.rows("CUPTI_ACTIVITY_KIND_RUNTIME").clear()
    assert told(write(trace)).total_gpu_ns == 16_000


def test_10_nodes_are_not_kernels_and_ids_hold_the_graph(write: Write) -> None:
    trace = TraceBuilder()
    for i in range(9):
        trace.row("CUDA_GRAPH_NODE_EVENTS", start=i, end=i, graphNodeId=(7 << 32) | i)
    trace.graph_launch(7, 10_000, nodes=[("k", 10_000, 11_000)])
    for row in trace.rows("CUPTI_ACTIVITY_KIND_KERNEL"):
        row["graphId"] = None
    result = told(write(trace))
    assert result.total_gpu_ns == 1_000
    assert [g.graph_exec_id for g in result.graphs] == [7]


def test_11_check_gives_the_command_to_capture_again(write: Write, run_cli: Run) -> None:
    trace = TraceBuilder(graph_trace=None)
    trace.graph_launch(7, eager(trace))
    done = run_cli("check", write(trace))
    assert done.returncode == 1
    assert "nsys profile" in done.stdout and "--cuda-graph-trace" in done.stdout


def test_12_idle_time_is_not_derived_from_blind_launches(write: Write) -> None:
    trace = TraceBuilder(graph_trace=None)
    at = eager(trace)
    for i in range(20):
        trace.graph_launch(7, at + 100_000 * i)
    eager(trace, at=at + 2_000_000)
    result = told(write(trace))
    (spot,) = [s for s in result.blind_spots if s.kind == "graph-blind"]
    assert (spot.count, spot.severity) == (20, "fatal")


def test_13_graphs_without_any_kernel_are_judged_and_fail(write: Write, run_cli: Run) -> None:
    trace = TraceBuilder(graph_trace=None)
    at = 10_000
    for i in range(5):
        trace.graph_launch(7, at + 100_000 * i)
        trace.sync(at + 100_000 * i, at + 100_000 * i + 90_000)
    done = run_cli("check", write(trace))
    assert done.returncode in (1, 3) and "graph" in done.stdout + done.stderr


def test_14_a_near_zero_sum_beside_graph_launches_is_called_blind(write: Write) -> None:
    trace = TraceBuilder(graph_trace=None)
    trace.kernel("k", 10_000, 10_001)
    for i in range(50):
        trace.graph_launch(7, 100_000 * (i + 1))
        trace.sync(100_000 * (i + 1), 100_000 * (i + 1) + 90_000)
    result = told(write(trace))
    (spot,) = [s for s in result.blind_spots if s.kind == "graph-blind"]
    assert spot.count == 50
    assert (spot.hidden_ns or spot.hidden_max_ns or 0) > 40 * 90_000


def test_16_geometry_may_be_missing(write: Write) -> None:
    trace = TraceBuilder()
    eager(trace)
    for row in trace.rows("CUPTI_ACTIVITY_KIND_KERNEL"):
        row.update(dict.fromkeys(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")))
    assert told(write(trace, strict=False)).total_gpu_ns == 16_000


def test_17_graphs_built_before_the_capture_are_told_by_node_ids(write: Write) -> None:
    trace = TraceBuilder("3.20.3")  # no graphId column, no graph events
    for exec_id in (7, 9):
        trace.graph_launch(
            exec_id, 10_000 * exec_id, nodes=[("k", 10_000 * exec_id, 10_000 * exec_id + 900)]
        )
    result = told(write(trace))
    assert sorted((g.graph_exec_id, g.gpu_ns) for g in result.graphs) == [(7, 900), (9, 900)]


# B. A GPU side that is missing


@pytest.mark.parametrize("row", [18, 23, 26])
def test_18_23_26_launches_without_kernels_are_an_error(row: int, write: Write) -> None:
    trace = TraceBuilder("3.4.0")
    for i in range(16_842 if row == 26 else 40):
        trace.launch(10 * i)
    with pytest.raises(NoCudaTraceError, match="the GPU side was not captured"):
        told(write(trace))


@pytest.mark.parametrize("row", [19, 20, 21])
def test_19_20_21_ranks_without_kernels_are_named(row: int, write: Write) -> None:
    trace = TraceBuilder()
    eager(trace)
    for pid in (2001, 2002, 2003):
        trace.process(pid)
        for i in range(7):
            trace.launch(10_000 * i)
    spots = [s for s in told(write(trace)).blind_spots if s.kind == "process-not-traced"]
    assert [s.count for s in spots] == [7, 7, 7]
    assert all(str(pid) in s.detail for pid, s in zip((2001, 2002, 2003), spots, strict=True))
    assert all("VLLM_WORKER_MULTIPROC_METHOD=spawn" in s.remedy for s in spots)


def test_22_a_signature_without_a_match_is_seen(write: Write, tmp_path: Path) -> None:
    """Rounds that a given engine's kernels do not show are none, with a reason; not left out."""
    trace = TraceBuilder()
    eager(trace, 20, name="at::native::vectorized_elementwise_kernel<4>")
    result = told(write(trace), Options(engine="kestrel"))
    assert not result.rounds.value
    assert result.rounds.reasons


def test_24_no_cuda_tables_is_not_no_matches(write: Write) -> None:
    trace = TraceBuilder()
    trace.nvtx("step", 0, 100)
    with pytest.raises(NoCudaTraceError, match="no CUDA trace"):
        told(write(trace))
    trace = TraceBuilder()
    eager(trace)
    assert told(write(trace, "u.sqlite")).rounds.verdict == "none"


def test_25_the_length_of_the_capture_is_no_denominator(write: Write) -> None:
    trace = TraceBuilder()
    eager(trace)
    path = write(trace)
    before = told(path)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE ANALYSIS_DETAILS SET duration = 20200000000, stopTime = 0")
    connection.close()
    after = told(path)
    assert after.trace.duration_ns == 20_200_000_000
    assert (after.window, after.buckets) == (before.window, before.buckets)


def test_27_28_texts_of_the_collector_are_shown(write: Write) -> None:
    for text in (
        "Couldn't allocate CUPTI bufer 3 times. Some CUPTI events may be missing.",
        "Couldn't allocate CUPTI buffers 3 times.Some CUPTI events might be missing.",
        "CUPTI dropped 12 records. Some CUPTI events might be missing.",
        "Not all CUDA events might have been collected.",
    ):
        trace = TraceBuilder()
        eager(trace)
        trace.diagnostic(text, severity=1)
        result = told(write(trace))
        shown = [s.detail for s in result.blind_spots] + [f.detail for f in result.findings]
        assert any(text[:20] in detail for detail in shown), text


# D. Arithmetic


@pytest.mark.parametrize("row", [35, 37])
def test_35_37_busy_is_a_union_and_never_above_the_wall(row: int, write: Write) -> None:
    trace = TraceBuilder()
    for i in range(10):
        trace.kernel("k", 10_000 * i, 10_000 * i + 10_000, stream=7)
        trace.kernel("k", 10_000 * i + 2_000, 10_000 * i + 9_000, stream=13)
    result = told(write(trace))
    assert result.total_gpu_ns == 170_000
    w = result.window
    assert (w.wall_ns, w.busy_ns, w.residual_ns) == (100_000, 100_000, 0)


def test_38_no_older_file_is_used_in_silence(
    tmp_path: Path, trace_file: TraceFile, run_cli: Run
) -> None:
    shutil.copyfile(trace_file("small_graph"), tmp_path / "run.sqlite")
    (tmp_path / "run.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report 2025@5@1")
    done = run_cli("split", "run.nsys-rep", env={"PATH": str(tmp_path)})
    assert done.returncode == 3 and "no nsys is on PATH" in done.stderr


@pytest.mark.parametrize("row", [39, 40])
def test_39_40_equal_correlation_ids_of_ranks_stay_apart(row: int, write: Write) -> None:
    trace = TraceBuilder()
    for rank in range(8):
        trace.gpu(rank, "NVIDIA H200") if rank else None
        trace.process(100 + rank, device=0, gpu=rank)
        for i in range(400):
            at = 20_000 * i + rank
            trace.graph_launch(
                3, at, nodes=[("k", at + 100 * n, at + 100 * n + 90) for n in range(5)]
            )
    began = time.monotonic()
    result = told(write(trace))
    assert time.monotonic() - began < 30
    assert [(p.pid, p.gpu, p.total_gpu_ns) for p in result.processes] == [
        (100 + rank, rank, 400 * 5 * 90) for rank in range(8)
    ]
    assert all(g.launches == 400 for p in result.processes for g in p.graphs)


def test_41_patterns_match_the_base_name_not_template_arguments() -> None:
    pattern = Pattern.compile("*dispatch*")
    assert pattern.match(parse("void combineKernel<(ns::dispatchLayout)1>(int)")) is None
    assert pattern.match(parse("void my_dispatch_rows<(int)1>(int)")) is not None


def test_42_unknown_stays_null(write: Write, run_cli: Run) -> None:
    trace = TraceBuilder()
    eager(trace)
    document = json.loads(run_cli("split", write(trace), "--format", "json").stdout)
    assert document["rounds"]["k"] is None and document["acceptance"] is None
    draft = next(b for b in document["buckets"] if b["bucket"] == "draft")
    assert draft["ns_per_round"] is None


def test_43_a_table_that_cannot_be_read_fails_the_whole(write: Write, tmp_path: Path) -> None:
    trace = TraceBuilder()
    eager(trace, 3_000)
    path = write(trace)
    data = bytearray(path.read_bytes())
    connection = sqlite3.connect(path)
    (root,) = connection.execute(
        "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_RUNTIME'"
    ).fetchone()
    connection.close()
    data[(root - 1) * 4096 : root * 4096] = bytes(4096)
    path.write_bytes(data)
    with pytest.raises(TraceError, match="damaged"):
        told(path)


def test_44_time_does_not_start_at_zero(write: Write) -> None:
    sums = set()
    for shift in (0, -4_504_839_249, 1_700_000_000_000_000_000):
        trace = TraceBuilder()
        end = eager(trace, at=10_000 + shift)
        assert end > shift
        w = told(write(trace)).window
        sums.add((w.wall_ns, w.busy_ns))
    assert sums == {(34_000, 16_000)}


# E. Versions, names, files


def test_46_the_version_is_read_and_a_newer_one_still_works(write: Write) -> None:
    trace = TraceBuilder("3.25.0")
    eager(trace)
    path = write(trace)
    assert not [f for f in told(path).findings if f.kind == "newer-schema"]
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(
            "UPDATE META_DATA_EXPORT SET value = '9.1.0' WHERE name = 'EXPORT_SCHEMA_VERSION'"
        )
        connection.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN fromTheFuture")
    connection.close()
    result = told(path)
    assert result.trace.export_schema == "9.1.0"
    assert any("9.1.0 is newer than those known" in f.detail for f in result.findings)
    assert result.total_gpu_ns == 16_000


@pytest.mark.parametrize("column", ["start", "end", "deviceId", "streamId", "correlationId"])
def test_47_a_missing_column_is_named(column: str, write: Write) -> None:
    trace = TraceBuilder("3.25.0")
    eager(trace)
    path = write(trace)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(f'ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME "{column}" TO renamed')
    connection.close()
    with pytest.raises(
        UnsupportedSchemaError, match=rf"KERNEL lacks column {column} \(schema 3.25.0\)"
    ):
        told(path)


def test_48_tables_are_optional(write: Write) -> None:
    trace = TraceBuilder()
    eager(trace)
    path = write(trace)
    connection = sqlite3.connect(path)
    tables = [
        n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    with connection:
        for table in tables:
            if table not in ("CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"):
                connection.execute(f"DROP TABLE {table}")
    connection.close()
    result = told(path)
    assert (result.total_gpu_ns, result.trace.nsys_version) == (16_000, None)


def test_49_versions_in_ci() -> None:
    """Exports of every schema version are built and accounted for in test_public_exports.py."""
    from test_public_exports import SCHEMAS

    assert len(SCHEMAS) >= 20 and "3.13.2" in SCHEMAS  # the one that broke a tool: 2024.5


def test_50_order_of_rows_is_no_matter(write: Write) -> None:
    trace = TraceBuilder()
    for i in range(300):
        trace.kernel(f"k_{i % 5}", 1_000 * i, 1_000 * i + 700, stream=i % 3)
    straight = told(write(trace))
    for seed in (1, 2):
        assert told(write(trace, shuffle=seed)) == straight


def test_51_a_missing_file_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        read_trace(tmp_path / "typo.sqlite")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("row", [52, 53, 54, 55])
def test_52_to_55_other_files_are_told_by_their_bytes(
    row: int, tmp_path: Path, write: Write
) -> None:
    trace = TraceBuilder()
    eager(trace, 3_000)
    good = write(trace, "good.sqlite").read_bytes()
    data, problem = {
        52: (good[: len(good) // 2], "is cut off"),
        53: (bytes(4096) + good[4096:], "killed before it finished"),
        54: (b"NVIDIA Tegra Profiler Report 2025@5@1-121", "is an nsys report"),
        55: (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    }[row]
    path = tmp_path / "x.sqlite"
    path.write_bytes(data)
    with pytest.raises((TraceError, NotAnExportError), match=problem):
        told(path)


def test_56_a_write_ahead_log_is_not_overlooked(write: Write) -> None:
    trace = TraceBuilder()
    eager(trace)
    path = write(trace)
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        with connection:
            connection.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = 1")
        assert os.path.getsize(f"{path}-wal") > 0
        assert told(path).total_gpu_ns == 12_000
    finally:
        connection.close()


def test_58_a_name_of_half_a_megabyte(write: Write, run_cli: Run) -> None:
    name = "void alpaka::run<" + ", ".join(f"ns::T{i}<(int){i}>" for i in range(30_000)) + ">(int)"
    assert len(name) > 512 * 1024
    trace = TraceBuilder()
    eager(trace, name=name)
    began = time.monotonic()
    done = run_cli("split", write(trace), "--detail")
    assert done.returncode == 0 and time.monotonic() - began < 20
    assert max(map(len, done.stdout.splitlines())) <= 200


def test_59_rows_are_labelled_by_short_names(write: Write) -> None:
    trace = TraceBuilder()
    eager(trace, name="void ns::very::long_kernel<ns::Layout<(int)3, ns::Tile<(int)128>>>(float *)")
    (row,) = told(write(trace)).kernels
    assert row.signature == "ns::very::long_kernel"


def test_60_what_nothing_matches_is_shown(write: Write, run_cli: Run) -> None:
    trace = TraceBuilder()
    eager(trace, name="nobody_knows_me")
    path = write(trace)
    assert told(path).bucket("unattributed").gpu_ns == 16_000
    assert "unattributed" in run_cli("split", path).stdout


def test_61_ranges_without_end_in_number_fit_in_memory(write: Write, run_cli: Run) -> None:
    trace = TraceBuilder()
    eager(trace, 100)
    for i in range(60_000):
        trace.nvtx(f"op {i % 40}", 10 * i, 10 * i + 9)
    done = run_cli("split", write(trace))
    assert done.returncode == 0


def test_64_start_times_of_the_analysis_and_names_of_enums_are_not_used() -> None:
    code = "\n".join(p.read_text("utf-8") for p in (ROOT / "nsysacct" / "trace").glob("*.py"))
    assert "ENUM_" not in code
    assert "startTime" not in code


def test_every_row_is_tested_or_said_not_to_be_ours() -> None:
    tested = set()
    for name in globals():
        if name.startswith("test_") and name[5:7].isdecimal():
            numbers = re.match(r"test_((?:\d\d_)+)(?:to_(\d\d)_)?", name)
            assert numbers
            found = [int(n) for n in numbers[1].strip("_").split("_")]
            tested.update(range(found[0], int(numbers[2]) + 1) if numbers[2] else found)
    limits = (ROOT / "docs" / "limits.md").read_text("utf-8")
    excused = {int(n) for n in re.findall(r"^\| (\d+) \|", limits, re.M)}
    assert tested & excused == set()
    assert tested | excused == ROWS
