"""Exports of many nsys versions: real ones where they are at hand, built ones everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, TRACES
from public_exports import NO_CUDA, NO_GPU, check, main

from fixtures import ddl
from fixtures.builder import PRODUCT, TraceBuilder
from nsysacct.account import account
from nsysacct.trace import read_trace

PUBLIC = ROOT.parent / "shared" / "public_traces"

SCHEMAS = (
    "none", "2.9.1", "3.0.0", "3.1.2", "3.1.7", "3.4.0", "3.6.0", "3.7.2", "3.7.4", "3.11.2",
    "3.13.2", "3.16.1", "3.17.2", "3.20.3", "3.23.3", "3.24.0", "3.24.7", "3.24.14", "3.24.18",
    "3.25.0",
)  # fmt: skip
"""Schema versions that were seen in the wild, 2020 to 2026."""


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="no ../shared/public_traces beside this checkout")
def test_public_exports(capsys: pytest.CaptureFixture[str]) -> None:
    bad = main(PUBLIC)
    assert bad == 0, capsys.readouterr().out


def test_shipped_traces(trace_file: Callable[[str], Path]) -> None:
    for path in TRACES.glob("*.sqlite.xz"):
        found, wrong = check(trace_file(path.name.removesuffix(".sqlite.xz")), {})
        assert found.startswith("schema 3.") and wrong == []


def two_ranks(schema: str) -> TraceBuilder:
    """Two processes on GPUs of their own, with the same correlation ids and device numbers."""
    trace = TraceBuilder(schema)
    trace.gpu(1, "NVIDIA H200")
    for rank in range(2):
        trace.process(
            500 + rank, device=0 if trace.has("TARGET_INFO_CUDA_DEVICE") else rank, gpu=rank
        )
        for i in range(6):
            start = 20_000 * (i + 1) + rank
            trace.kernel("ncclDevKernel_AllReduce_Sum_f32", start, start + 5_000)
            trace.kernel("ampere_sgemm_128x64_nn", start + 2_000, start + 9_000, stream=13)
        trace.memcpy(200_000, 201_000)
        trace.sync(201_000, 202_000)
        trace.nvtx("step", 10_000, 202_000)
    return trace


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_version_is_accounted_for(schema: str, tmp_path: Path) -> None:
    path = two_ranks(schema).write(tmp_path / "t.sqlite")
    found, wrong = check(path, {})
    assert wrong == []
    assert found.endswith(": pid 500 on GPU 0, pid 501 on GPU 1")
    result = account(read_trace(path))
    assert result.trace.export_schema == (None if schema == "none" else schema)
    assert result.trace.nsys_version == (None if schema == "none" else PRODUCT.get(schema, "0"))
    for part in result.processes:
        assert (part.total_gpu_ns, part.total_mem_ns) == (6 * 12_000, 1_000)
        assert part.window.busy_ns == 6 * 9_000 + 1_000  # the streams overlap by 3 us


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        (["cudaLaunchKernel_v7000"] * 9, NO_GPU),
        (["cudaGetDeviceCount_v3020"], NO_GPU),
        ([], NO_CUDA),
    ],
    ids=["launches", "calls", "nothing"],
)
def test_nothing_of_the_gpu_is_never_zero(
    schema: str, calls: list[str], reason: str, tmp_path: Path
) -> None:
    trace = TraceBuilder(schema)
    for i, name in enumerate(calls):
        trace.launch(1_000 * i, name)
    trace.nvtx("step", 0, 1_000)
    assert check(trace.write(tmp_path / "t.sqlite"), {}) == (f"refused: {reason}", [])


def test_the_check_sees_what_it_should(tmp_path: Path) -> None:
    path = two_ranks("3.20.3").write(tmp_path / "t.sqlite")
    row = {"schema": "3.20.4", "nsys": PRODUCT["3.20.3"], "kernels": "24", "runtime": "28"}
    (wrong,) = check(path, {"t": row})[1]
    assert "truly" in wrong
    assert len(check(path, {"t": row | {"kernels": "absent"}})[1]) == 2


def test_versions_are_in_order() -> None:
    assert sorted(SCHEMAS, key=ddl.version) == list(SCHEMAS)
