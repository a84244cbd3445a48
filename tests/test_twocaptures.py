"""Whole-graph times from one capture, proportions inside graphs from another of the same run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from conftest import Run

Traces = Callable[[str], Path]


def kernels(document: dict, bucket: str) -> dict[tuple[str, str], dict]:
    rows = [k for k in document["kernels"] if k["bucket"] == bucket]
    return {(k["family"], k["signature"]): k for k in rows}


def test_times_stay_and_proportions_come_from_the_other(run_cli: Run, trace_file: Traces) -> None:
    graph, node = trace_file("small_nvtx"), trace_file("small_node_nvtx")
    plain = json.loads(run_cli("split", graph, "--format", "json").stdout)
    done = run_cli("split", graph, "--detail-from", node, "--format", "json")
    assert done.returncode == 0, done.stderr
    detailed = json.loads(done.stdout)
    assert detailed["buckets"] == plain["buckets"]
    before, after = kernels(plain, "replay"), kernels(detailed, "replay")
    assert list(before) == [("graph", "(whole graph)")]
    assert ("graph", "(whole graph)") not in after
    assert sum(k["gpu_ns"] for k in after.values()) == sum(k["gpu_ns"] for k in before.values())
    assert all(set(k["by_basis"]) == {"apportioned"} for k in after.values())
    # proportions are those of the node capture
    shown = kernels(json.loads(run_cli("split", node, "--format", "json").stdout), "replay")
    whole = sum(k["gpu_ns"] for k in shown.values())
    for key, row in after.items():
        share = row["gpu_ns"] / sum(k["gpu_ns"] for k in after.values())
        assert abs(share - shown[key]["gpu_ns"] / whole) < 1e-4
    assert kernels(detailed, "verify") == kernels(plain, "verify")  # no graph in it


def test_captures_that_do_not_correspond_are_refused(run_cli: Run, trace_file: Traces) -> None:
    done = run_cli(
        "split", trace_file("small_nvtx"), "--detail-from", trace_file("llama_B_spec_graph")
    )
    assert done.returncode == 3
    assert "engine: kestrel" in done.stderr and "llama.cpp" in done.stderr
    done = run_cli("split", trace_file("small_nvtx"), "--detail-from", trace_file("small_nvtx"))
    assert done.returncode == 3
    assert "has no expanded graphs" in done.stderr
