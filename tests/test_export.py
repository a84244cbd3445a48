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
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from conftest import TRACES

import nsysacct as na
from nsysacct.account import events
from nsysacct.export import events_table, record_table, tables_of
from nsysacct.model import Account, BlindSpot
from nsysacct.perfetto import write_perfetto

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


def test_slices_of_a_track_never_cross(
    case: tuple[Account, Any, list[str]], tmp_path: Path
) -> None:
    path = tmp_path / "t.json"
    write_perfetto(path, *case)
    tracks = defaultdict(list)
    named = set()
    for e in perfetto(path):
        if e["ph"] == "X":
            start = round(e["ts"] * 1000)
            tracks[e["pid"], e["tid"]].append((start, start + round(e["dur"] * 1000)))
        elif e["name"] == "thread_name":
            named.add((e["pid"], e["tid"]))
    assert set(tracks) <= named
    for slices in tracks.values():
        slices.sort()
        # on one stream kernels follow each other, except where a launch starts early (llama.cpp)
        if not case[0].trace.name.startswith("llama"):
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(slices))


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
    assert record_table([], BlindSpot).schema == tables["blind_spots"].schema


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
