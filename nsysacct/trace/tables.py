"""Reading an nsys SQLite export: the only room with SQL and nsys table names."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]

NONE = -1
"""Stands for NULL in id columns."""


@dataclass(frozen=True, slots=True)
class Process:
    """One traced process. ``global_pid`` is the 64-bit id of the export (TID bits 0)."""

    global_pid: int
    pid: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU. Source: TARGET_INFO_GPU."""

    index: int
    name: str | None = None
    memory_bandwidth: int | None = None  # bytes/s
    memory: int | None = None  # bytes
    sm_count: int | None = None


@dataclass(frozen=True, slots=True)
class Kernels:
    """CUPTI_ACTIVITY_KIND_KERNEL, valid rows only; one array element a row."""

    start: I64  # ns
    end: I64
    process: I32  # index into Trace.processes
    gpu: I32  # index into Trace.gpus (physical)
    context: I32
    stream: I32
    correlation: I64
    name: I32  # index into Trace.kernel_names
    graph_node: I64  # NONE for eager kernels; upper 32 bits are the executable graph's id
    graph: I64  # graphId column, or graph_node >> 32, or NONE
    grid: npt.NDArray[np.int32]  # (n, 3)
    block: npt.NDArray[np.int32]  # (n, 3)
    row: I64  # rowid in the table
