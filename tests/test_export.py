"""Perfetto and Parquet hold the account, exactly; `demo` runs it on the shipped trace."""

from __future__ import annotations

import gzip
import itertools
import json
import lzma
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from conftest import TRACES

import nsysacct as na
from fixtures.builder import TraceBuilder
from nsysacct.account import events
from nsysacct.export import events_table, record_table, tables_of
from nsysacct.model import Account, BlindSpot
from nsysacct.perfetto import _lanes, write_perfetto

TraceFile = Callable[[str], Path]
Run = Callable[..., subprocess.CompletedProcess[str]]
NAMES = ["small_graph", "llama_B_spec_graph", "small_node_nvtx"]


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest, trace_file: TraceFile) -> tuple[Account, Any, list[str]]:
    trace = na.read_trace(trace_file(request.param))
    return na.split(trace), events(trace), list(trace.kernel_names)


def perfetto(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    found: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return found


def test_slices_add_up_to_the_buckets(case: tuple[Account, Any, list[str]], tmp_path: Path) -> None:
    account, placed, names = case
    path = tmp_path / "t.json.gz"
    assert write_perfetto(path, account, placed, names) == len(perfetto(path))
    sums: dict[str, int] = defaultdict(int)
    for e in perfetto(path):
        assert e.get("ts", 0) >= 0 and e.get("dur", 0) >= 0
        if e["ph"] == "X" and e["cat"] != "round":
            sums[e["cat"]] += round(e["dur"] * 1000)
    for b in account.buckets:
        assert sums[b.bucket] == b.gpu_ns + b.mem_ns


def tracks_of(found: list[dict[str, Any]]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """(start, end) in ns of the slices of each track, in order."""
    tracks = defaultdict(list)
    for e in found:
        if e["ph"] == "X":
            start = round(e["ts"] * 1000)
            tracks[e["pid"], e["tid"]].append((start, start + round(e["dur"] * 1000)))
    return {track: sorted(slices) for track, slices in tracks.items()}


def test_slices_of_a_track_never_cross(
    case: tuple[Account, Any, list[str]], tmp_path: Path
) -> None:
    """Readers drop a slice that begins in another one and ends after it."""
    path = tmp_path / "t.json"
    write_perfetto(path, *case)
    for slices in tracks_of(perfetto(path)).values():
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(slices))


def test_work_that_overlaps_gets_tracks_beside_each_other(
    trace_file: TraceFile, tmp_path: Path
) -> None:
    """llama.cpp starts kernels before the one in front ends: those would be dropped."""
    trace = na.read_trace(trace_file("llama_B_spec_graph"))
    account, placed = na.split(trace), events(trace)
    path = tmp_path / "t.json"
    write_perfetto(path, account, placed, list(trace.kernel_names))
    found = perfetto(path)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in found if e["name"] == "thread_name"}
    for track, slices in tracks_of(found).items():
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(slices)), names[track]
    assert {"draft, stream 17", "draft, stream 17 (2)"} <= set(names.values())
    assert len(set(names.values())) == len(names)
    shown = sum(e["ph"] == "X" and e["cat"] != "round" for e in found)
    assert shown == sum(len(e.line) for e in placed)


def test_the_format_is_kept_to_the_letter(
    case: tuple[Account, Any, list[str]], tmp_path: Path
) -> None:
    """Trace Event Format: metadata first, numbers, scopes of instants, every track named once."""
    path = tmp_path / "t.json"
    write_perfetto(path, *case)
    whole = json.loads(path.read_text("ascii"))
    assert whole["displayTimeUnit"] == "ns"
    assert whole["otherData"] == {"tool": case[0].tool, "trace": case[0].trace.name}
    named: list[tuple[int, int]] = []
    used = set()
    for e in whole["traceEvents"]:
        assert type(e["pid"]) is int and type(e["tid"]) is int and e["pid"] != e["tid"]
        assert e["name"] and type(e["name"]) is str
        if e["ph"] == "M":
            assert e["name"] in ("process_name", "thread_name", "thread_sort_index")
            named += [(e["pid"], e["tid"])] if e["name"] == "thread_name" else []
            continue
        used.add((e["pid"], e["tid"]))
        assert type(e["ts"]) in (int, float) and e["ts"] >= 0
        assert abs(e["ts"] * 1000 - round(e["ts"] * 1000)) < 1e-3
        assert (e["dur"] >= 0) if e["ph"] == "X" else (e["ph"], e["s"]) == ("i", "t")
        assert set(map(type, e["args"].values())) <= {int, float, str, type(None)}
    assert used == set(named) and len(named) == len(used)


def test_chosen_rounds_bring_their_work_alone(
    case: tuple[Account, Any, list[str]], tmp_path: Path
) -> None:
    account, placed, names = case
    path = tmp_path / "t.json"
    write_perfetto(path, account, placed, names, rounds=(2, 3))
    low, high = account.per_round[2].start_ns, account.per_round[3].end_ns
    (mine,) = placed
    inside = (mine.line.start >= low) & (mine.line.start < high)
    work = [e for e in perfetto(path) if e["ph"] == "X" and e["cat"] != "round"]
    assert len(work) == int(inside.sum()) > 10
    whole = sum(round(e["dur"] * 1000) for e in work)
    assert whole == int((mine.line.end - mine.line.start)[inside].sum())
    for wrong in ((99, 100), (3, 2), (-1, 2)):
        with pytest.raises(na.NsysacctError, match="there are 0 to"):
            write_perfetto(path, account, placed, names, rounds=wrong)


@pytest.mark.parametrize(
    ("intervals", "lanes"),
    [
        ([(0, 5), (5, 9), (9, 9), (9, 12)], [0, 0, 0, 0]),
        ([(0, 5), (4, 9), (8, 12), (8, 12), (20, 21)], [0, 1, 0, 2, 0]),
        ([(0, 100), (10, 20), (20, 30), (25, 40)], [0, 1, 1, 2]),
        ([], []),
    ],
)
def test_lanes_hold_what_does_not_overlap(
    intervals: list[tuple[int, int]], lanes: list[int]
) -> None:
    start, end = np.array(intervals, np.int64).reshape(-1, 2).T
    assert _lanes(start, end).tolist() == lanes


def test_a_launch_that_left_no_time_is_an_instant(tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.kernel("k", 10_000, 11_000)
    builder.graph_launch(5, 20_000)
    trace = na.read_trace(builder.write(tmp_path / "t.sqlite"))
    write_perfetto(tmp_path / "t.json", na.split(trace), events(trace), list(trace.kernel_names))
    (blind,) = [e for e in perfetto(tmp_path / "t.json") if e.get("cat") == "blind launch"]
    assert (blind["ph"], blind["s"], blind["args"]["graph"]) == ("i", "t", None)


def test_rounds_and_blind_spots_are_there(small: Account, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    write_perfetto(path, small)
    found = perfetto(path)
    rounds = [e for e in found if e.get("cat") == "round"]
    assert [e["args"]["n_ok"] for e in rounds] == [r.n_ok for r in small.per_round]
    assert [round(e["dur"] * 1000) for e in rounds] == [r.wall_ns for r in small.per_round]
    spots = [e for e in found if e.get("cat") == "blind spot"]
    assert [e["args"]["remedy"] for e in spots] == [s.remedy for s in small.blind_spots]


@pytest.fixture(scope="module")
def small(trace_file: TraceFile) -> Account:
    return na.split(trace_file("small_graph"), layers=8, closing=2)


def test_perfetto_has_the_same_bytes_every_time(small: Account, tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        write_perfetto(tmp_path / name, small)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_event_table_adds_up(case: tuple[Account, Any, list[str]]) -> None:
    account, placed, names = case
    table = events_table(placed, names)
    timed = table.filter(pc.field("kind").isin(["kernel", "graph"]))
    length = pc.subtract(timed["end_ns"], timed["start_ns"])
    sums = timed.append_column("ns", length).group_by("bucket").aggregate([("ns", "sum")])
    found = dict(zip(sums["bucket"].to_pylist(), sums["ns_sum"].to_pylist(), strict=True))
    assert {b.bucket: b.gpu_ns for b in account.buckets if b.gpu_ns} == found
    kernels = table.filter(pc.field("kind") == "kernel")
    assert set(kernels["name"].to_pylist()) <= set(names)


def test_record_tables_keep_values_and_types(small: Account) -> None:
    tables = tables_of(small)
    rounds = tables["rounds"].to_pylist()
    assert [r["verify_ns"] for r in rounds] == [r.verify_ns for r in small.per_round]
    assert [r["n_ok"] for r in rounds] == [r.n_ok for r in small.per_round]
    buckets = {r["bucket"]: r for r in tables["buckets"].to_pylist()}
    verify = small.bucket("verify")
    assert buckets["verify"]["basis_exclusive_ns"] == verify.by_basis["exclusive"]
    assert dict(tables["graphs"].to_pylist()[0]["buckets"]) == small.graphs[0].buckets
    bare = record_table([], BlindSpot).schema
    assert list(tables["blind_spots"].schema)[2:] == list(bare)


def test_record_tables_hold_every_process(trace_file: TraceFile) -> None:
    account = na.split(trace_file("twoproc"))
    rounds = tables_of(account)["rounds"].to_pylist()
    assert [(r["pid"], r["gpu"], r["verify_ns"]) for r in rounds] == [
        (p.pid, p.gpu, r.verify_ns) for p in account.processes for r in p.per_round
    ]
    assert len({r["pid"] for r in rounds}) == 2


def test_the_command_writes_both(run_cli: Run, trace_file: TraceFile, tmp_path: Path) -> None:
    words = ["export", trace_file("small_graph"), "--perfetto", "p.json.gz", "--parquet", "q"]
    done = run_cli(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert perfetto(tmp_path / "p.json.gz")
    table = pq.read_table(tmp_path / "q" / "events.parquet")
    about = msgspec.json.decode(table.schema.metadata[b"nsysacct"])
    assert about["trace"] == "small_graph.sqlite" and table.num_rows > 1000
    assert run_cli(*words).returncode == 2
    assert run_cli(*words, "--force").returncode == 0
    done = run_cli("export", trace_file("small_graph"), "--perfetto", "r.json", "--rounds", "2-3")
    assert done.returncode == 0 and len(perfetto(tmp_path / "r.json")) < 400
    alone = run_cli("export", trace_file("small_graph"), "--parquet", "s", "--rounds", "2-3")
    assert alone.returncode == 2 and "--perfetto" in alone.stderr
    nothing = run_cli("export", trace_file("small_graph"))
    assert nothing.returncode == 2 and "--perfetto" in nothing.stderr


def test_account_json_has_no_single_events(run_cli: Run, small: Account, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(na.dump_account(small), "utf-8")
    done = run_cli("export", "a.json", "--parquet", "q")
    assert done.returncode == 0
    assert not (tmp_path / "q" / "events.parquet").exists()
    assert pq.read_table(tmp_path / "q" / "rounds.parquet").num_rows == 10


def test_demo_splits_the_shipped_trace(run_cli: Run, tmp_path: Path) -> None:
    done = run_cli("demo", "--save", "demo.sqlite")
    assert (done.returncode, done.stderr) == (0, "")
    assert "10 rounds, proven by counting" in done.stdout
    command = done.stdout.splitlines()[0].removeprefix("$ nsysacct ").split()
    again = run_cli(*command)
    head = again.stdout.split("\n\n", 1)[1]  # the source's name differs
    assert head in done.stdout
    packed = TRACES / "small_graph.sqlite.xz"
    assert (tmp_path / "demo.sqlite").read_bytes() == lzma.decompress(packed.read_bytes())
