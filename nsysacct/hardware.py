"""The GPU of an account, and what counters and allocations add to it where the capture recorded them.

Neither is on by default: counters need ``--gpu-metrics-devices``, allocations
``--cuda-memory-usage=true``. Without them what they tell is None, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from nsysacct.evidence import Code
from nsysacct.model import ProcessAccount, StepCost, TraceInfo
from nsysacct.structure import Structure
from nsysacct.trace import Gpu, Trace
from nsysacct.trace.tables import GpuMetrics

I64 = npt.NDArray[np.int64]

READ = re.compile(r"dram read\b.*%|dram__read_throughput\b.*pct_of_peak", re.IGNORECASE)
WRITE = re.compile(r"dram write\b.*%|dram__write_throughput\b.*pct_of_peak", re.IGNORECASE)
"""Counters in percent of the peak; nsys writes ``DRAM Read Bandwidth [Throughput %]``."""
FEWEST_SAMPLES = 5
"""Samples inside steps of one kind below which their mean says nothing."""
ON_THE_CARD = (2, 3, 5)
"""Kinds of memory that surely lie on the card: device, array, device static."""
_GPU_OF_SOURCE = 0xFF  # low byte of typeId


def described(trace: Trace, part: ProcessAccount) -> TraceInfo:
    """Facts of the file, with the GPU that an account ran on; a MIG slice has none of its whole GPU."""
    gpu = next((g for g in trace.gpus if g.index == part.gpu), None)
    if gpu is None:
        return trace.info
    device = None if part.pid is None else trace.cuda_device(part.pid, gpu.index)
    if device is not None and device.is_slice:
        gpu = Gpu(gpu.index, gpu.name and f"{gpu.name} (MIG slice)", sm_count=device.sm_count)
    return msgspec.structs.replace(
        trace.info,
        gpu=gpu.name,
        gpu_memory_bandwidth_bytes_per_s=gpu.memory_bandwidth,
        gpu_memory_bytes=gpu.memory,
        gpu_sm_count=gpu.sm_count,
        peak_memory_bytes=peak_memory(trace, gpu.index),
    )


def peak_memory(trace: Trace, gpu: int | None) -> int | None:
    """Bytes that all processes together surely had allocated on a GPU at one moment.

    A lower bound: the driver's own memory and what was allocated before the capture do not show.
    What is freed without having been allocated in the capture was there at its start.

    Source: CUDA_GPU_MEMORY_USAGE_EVENTS.
    """
    usage = trace.memory_usage
    if usage is None or gpu is None:
        return None
    mine = (usage.gpu == gpu) & np.isin(usage.kind, ON_THE_CARD)
    if not mine.any():
        return None
    order = np.argsort(usage.start[mine], kind="stable")
    level = np.cumsum(usage.change[mine][order])
    return int(max(0, level.max()) - min(0, level.min()))


def with_dram(
    steps: Sequence[StepCost], trace: Trace, gpu: int, found: Structure
) -> list[StepCost]:
    """Return the steps with the share of the peak DRAM throughput that counters show during them.

    A counter's sample covers the time since the one before it; those that lie wholly inside a run
    of steps of one kind are averaged.

    Source: GPU_METRICS.
    """
    metrics = trace.gpu_metrics
    if metrics is None:
        return list(steps)
    read, write = (_samples(metrics, which, gpu) for which in (READ, WRITE))
    result = []
    for step in steps:
        runs = _runs(found, Code[step.role.upper()])
        result.append(
            msgspec.structs.replace(
                step, dram_read_share=_mean(read, runs), dram_write_share=_mean(write, runs)
            )
        )
    return result


def _samples(metrics: GpuMetrics, which: re.Pattern[str], gpu: int) -> tuple[I64, I64]:
    """Times and values of one counter of one GPU, in time order."""
    wanted = [i for i, name in enumerate(metrics.names) if which.match(name)]
    mine = np.isin(metrics.metric, wanted)
    if len(np.unique(metrics.source[mine])) > 1:
        mine &= (metrics.source & _GPU_OF_SOURCE) == gpu
    order = np.argsort(metrics.timestamp[mine], kind="stable")
    return metrics.timestamp[mine][order], metrics.value[mine][order]


def _runs(found: Structure, code: Code) -> tuple[I64, I64]:
    """Start and end of each unbroken run of passes of one kind, ns."""
    mine = np.flatnonzero(found.layout.code == code)
    if not len(mine):
        return mine, mine
    breaks = np.flatnonzero(np.diff(mine) != 1)
    first = mine[np.concatenate([[0], breaks + 1])]
    last = mine[np.concatenate([breaks, [len(mine) - 1]])]
    order = np.argsort(found.passes.start[first], kind="stable")
    return found.passes.start[first][order], found.passes.end[last][order]


def _mean(samples: tuple[I64, I64], runs: tuple[I64, I64]) -> float | None:
    (at, value), (start, end) = samples, runs
    if len(at) < FEWEST_SAMPLES or not len(start):
        return None
    since = at - int(np.median(np.diff(at)))
    run = np.searchsorted(start, since, side="right") - 1
    inside = (run >= 0) & (at <= end[run])
    if inside.sum() < FEWEST_SAMPLES:
        return None
    return float(value[inside].mean() / 100)
