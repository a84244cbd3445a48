"""Several processes on one GPU: how far their work overlaps, and what a slice of a GPU is.

Each (process, GPU) has an account of its own. Where processes take turns their times stand beside each
other; where their kernels overlap (MPS), each runs while the others do, and its times are not those of a
run alone. MIG slices are devices of their own: work on two of them does not disturb each other, but what
the export says of the whole GPU (bandwidth, memory, multiprocessors) does not hold for a slice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsysacct.intervals import union_ns
from nsysacct.model import Finding
from nsysacct.timeline import Timeline
from nsysacct.trace import CudaDevice, Trace

APART = 0.001
"""Overlap of the processes of one device, as a share of its busy time, up to which they take turns."""


def busy_by_gpu(lines: Sequence[Timeline]) -> dict[str, int]:
    """Union of the work of all processes on each GPU, ns: processes that share one overlap."""
    return {
        str(gpu): _union([line for line in lines if line.gpu == gpu])
        for gpu in sorted({line.gpu for line in lines})
    }


def _union(lines: Sequence[Timeline]) -> int:
    """Time in which any of the timelines has work, ns; blind launches are empty intervals."""
    return union_ns(
        np.concatenate([line.start for line in lines]), np.concatenate([line.end for line in lines])
    )


def device_of(trace: Trace, line: Timeline) -> CudaDevice | None:
    """What the export says of the device that a timeline ran on."""
    pid = trace.processes[line.process].pid
    return None if pid is None else trace.cuda_device(pid, line.gpu)


def findings(trace: Trace, lines: Sequence[Timeline]) -> list[list[Finding]]:
    """What a reader must know about the device of each timeline, in their order."""
    devices = [device_of(trace, line) for line in lines]
    groups: dict[tuple[int, str | None], list[int]] = {}
    for i, (line, device) in enumerate(zip(lines, devices, strict=True)):
        own = device.uuid if device is not None and device.is_slice else None
        groups.setdefault((line.gpu, own), []).append(i)
    told: list[list[Finding]] = [
        [_slice(trace, line.gpu, device)] if device is not None and device.is_slice else []
        for line, device in zip(lines, devices, strict=True)
    ]
    for (gpu, _), members in groups.items():
        if len(members) < 2:
            continue
        mine = [lines[i] for i in members]
        busy = _union(mine)
        overlap = sum(_union([line]) for line in mine) - busy
        if overlap <= APART * busy:
            continue
        unsure = any((d := devices[i]) is None or not d.gpu_known for i in members)
        found = _overlap(gpu, len(mine), overlap, busy, unsure=unsure)
        for i in members:
            told[i].append(found)
    return told


def _overlap(gpu: int, processes: int, overlap: int, busy: int, *, unsure: bool) -> Finding:
    where = (
        f"GPU {gpu}"
        if not unsure
        else f"what they call GPU {gpu} (the export does not say which it is)"
    )
    return Finding(
        kind="gpu-shared",
        severity="warning",
        detail=f"work of {processes} processes overlaps on {where}, {overlap / 1e6:.3f} ms beside "
        f"{busy / 1e6:.3f} ms busy: if it is one GPU (MPS), times are not those of a run alone",
        remedy="capture one process at a time, for what a run alone costs",
    )


def _slice(trace: Trace, gpu: int, device: CudaDevice) -> Finding:
    whole = next((g for g in trace.gpus if g.index == gpu), None)
    known = device.gpu_known and whole is not None
    part = f"GPU {gpu}" if known else "a GPU that the export does not name"
    if device.sm_count is not None:
        of = f" of {whole.sm_count}" if known and whole is not None and whole.sm_count else ""
        part += f", {device.sm_count}{of} multiprocessors"
    return Finding(
        kind="mig",
        severity="info",
        detail=f"the device is a MIG slice of {part}: bandwidth and memory of the whole GPU do not hold for it",
        remedy="",
    )
