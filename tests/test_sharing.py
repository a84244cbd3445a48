"""Processes that share a GPU (time slicing, MPS), and MIG slices, built as the schema has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_engines import US

from fixtures.builder import TraceBuilder
from nsysacct.account import account
from nsysacct.model import Account, Finding
from nsysacct.options import Options
from nsysacct.trace import read_trace

WHOLE = ["11" * 16, "22" * 16]
SLICES = ["aa" * 16, "bb" * 16]
NEW, OLD = "3.25.0", "3.20.3"  # with and without uuid and multiprocessors of a device


def machine(schema: str = NEW) -> TraceBuilder:
    """Two GPUs; the builder's first one gets a uuid too."""
    trace = TraceBuilder(schema)
    trace.rows("TARGET_INFO_GPU")[0]["uuid"] = WHOLE[0]
    trace.gpu(1, "NVIDIA H200", WHOLE[1])
    trace.rows("PROCESSES").clear()
    return trace


def work(trace: TraceBuilder, start: int, kernels: int = 5) -> None:
    """Kernels of 10 us, 10 us apart."""
    for i in range(kernels):
        at = (1_000 + start + 20 * i) * US
        trace.kernel("void k(int)", at, at + 10 * US)


def read(trace: TraceBuilder, folder: Path, **options: object) -> Account:
    path = trace.write(folder / "t.sqlite")
    return account(read_trace(path), Options(**options))  # type: ignore[arg-type]


def told(found: Account, kind: str) -> list[list[Finding]]:
    """Findings of a kind, by process."""
    return [[f for f in p.findings if f.kind == kind] for p in found.processes]


def test_processes_that_take_turns_need_no_warning(tmp_path: Path) -> None:
    trace = machine()
    for pid, start in ((100, 0), (200, 10)):
        trace.process(pid, gpu=0, uuid=WHOLE[0], sm_count=132)
        work(trace, start)
    found = read(trace, tmp_path)
    assert found.gpu_busy_ns == {"0": 100 * US}
    assert told(found, "gpu-shared") == [[], []]
    assert told(found, "mig") == [[], []]
    assert found.trace.gpu_sm_count == 132
    assert found.trace.gpu_memory_bandwidth_bytes_per_s is not None


def test_processes_that_overlap_on_one_gpu_are_warned_of(tmp_path: Path) -> None:
    trace = machine()
    for pid, start in ((100, 0), (200, 5), (300, 1_000)):
        trace.process(pid, gpu=0, uuid=WHOLE[0])
        work(trace, start)
    trace.process(400, gpu=1, uuid=WHOLE[1])
    work(trace, 0)
    found = read(trace, tmp_path)
    assert found.gpu_busy_ns == {"0": 125 * US, "1": 50 * US}
    warnings = told(found, "gpu-shared")
    assert [len(w) for w in warnings] == [1, 1, 1, 0]
    assert warnings[0][0].severity == "warning"
    assert "3 processes overlaps on GPU 0, 0.025 ms beside 0.125 ms busy" in warnings[0][0].detail
    assert [p.total_gpu_ns for p in found.processes] == [50 * US] * 4


@pytest.mark.parametrize("named", [True, False])
def test_mig_slices_of_one_gpu_are_devices_of_their_own(tmp_path: Path, named: bool) -> None:
    """Each process calls its slice device 0; the physical GPU may be NULL."""
    trace = machine()
    for pid, uuid in zip((100, 200), SLICES, strict=True):
        trace.process(pid, gpu=0 if named else None, uuid=f"MIG-{uuid}", sm_count=60)
        work(trace, 0)
    found = read(trace, tmp_path)
    assert [(p.pid, p.total_gpu_ns) for p in found.processes] == [(100, 50 * US), (200, 50 * US)]
    assert told(found, "gpu-shared") == [[], []]
    for (note,) in told(found, "mig"):
        where = "GPU 0, 60 of 132" if named else "a GPU that the export does not name, 60"
        assert f"a MIG slice of {where} multiprocessors" in note.detail
    assert found.trace.gpu == "NVIDIA H200 (MIG slice)"
    assert found.trace.gpu_sm_count == 60
    assert found.trace.gpu_memory_bandwidth_bytes_per_s is None
    assert found.trace.gpu_memory_bytes is None


def test_two_processes_in_one_slice_share_it(tmp_path: Path) -> None:
    trace = machine()
    for pid in (100, 200):
        trace.process(pid, gpu=0, uuid=SLICES[0], sm_count=60)
        work(trace, 0)
    found = read(trace, tmp_path)
    assert [len(w) for w in told(found, "gpu-shared")] == [1, 1]


def test_a_uuid_names_the_gpu_where_its_id_is_missing(tmp_path: Path) -> None:
    """CUDA_VISIBLE_DEVICES: both processes call their GPU device 0."""
    trace = machine()
    for pid, uuid in zip((100, 200), WHOLE, strict=True):
        trace.process(pid, uuid=f"GPU-{uuid[:8]}-{uuid[8:]}", sm_count=132)
        work(trace, 0)
    found = read(trace, tmp_path)
    assert [(p.pid, p.gpu) for p in found.processes] == [(100, 0), (200, 1)]
    assert found.gpu_busy_ns == {"0": 50 * US, "1": 50 * US}
    assert told(found, "gpu-shared") == [[], []]


def test_an_export_without_uuids_says_that_it_cannot_tell(tmp_path: Path) -> None:
    trace = machine(OLD)
    for pid in (100, 200):
        trace.process(pid)
        work(trace, 0)
    found = read(trace, tmp_path)
    for (warning,) in told(found, "gpu-shared"):
        assert "the export does not say which it is" in warning.detail
        assert "if it is one GPU (MPS)" in warning.detail


def test_fewer_multiprocessors_alone_are_a_slice(tmp_path: Path) -> None:
    trace = machine()
    trace.process(100, gpu=1, sm_count=16, uuid=WHOLE[1])
    work(trace, 0)
    found = read(trace, tmp_path)
    assert [len(n) for n in told(found, "mig")] == [1]
    assert found.gpu == 1 and found.trace.gpu_sm_count == 16
