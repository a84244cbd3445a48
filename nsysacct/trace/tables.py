"""What a trace holds, as structures of arrays: one array element a row, NULL ids as NONE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
U8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.signedinteger[Any]]
"""Ids and indices, in the narrowest signed type that holds them: to compare and to look up with."""


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
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """What a process calls a device: a GPU, or a MIG slice of one. Source: TARGET_INFO_CUDA_DEVICE."""

    uuid: str | None = None
    sm_count: int | None = None
    is_slice: bool = False
    gpu_known: bool = True  # whether the export says which GPU it is, or is of


class Timed:
    """Rows with a start and a duration; their ends are computed when asked for."""

    __slots__ = ()
    start: I64
    duration: Ids

    @property
    def end(self) -> I64:
        """End of each row, ns."""
        return self.start + self.duration

    def end_of(self, rows: npt.NDArray[Any] | slice) -> I64:
        """End of some rows (indices, a mask, a slice), ns."""
        ends: I64 = self.start[rows] + self.duration[rows]
        return ends


@dataclass(frozen=True)
class _Rows:
    """Base of the tables: where a row lies in the export."""

    rowids: Callable[[], I64] = field(repr=False, kw_only=True)

    @cached_property
    def row(self) -> I64:
        """Rowid of each row in its table."""
        return self.rowids()


@dataclass(frozen=True)
class Kernels(_Rows, Timed):
    """CUPTI_ACTIVITY_KIND_KERNEL, valid rows only; one array element a row.

    Columns with one value throughout are read-only views of a single element. `graph_node`, `grid`
    and `block` are read from the file on first use.
    """

    start: I64  # ns
    duration: Ids  # ns
    process: Ids  # index into Trace.processes
    gpu: Ids  # index into Trace.gpus (physical)
    context: Ids
    stream: Ids
    correlation: Ids
    name: Ids  # index into Trace.kernel_names
    graph: Ids  # graphId column, or graph_node >> 32, or NONE
    nodes: Callable[[], I64] = field(repr=False, kw_only=True)
    geometry: Callable[[], tuple[I32, I32]] = field(repr=False, kw_only=True)

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def graph_node(self) -> I64:
        """Graph node; NONE for eager kernels. The upper 32 bits are the executable graph's id."""
        return self.nodes()

    @cached_property
    def _geometry(self) -> tuple[I32, I32]:
        return self.geometry()

    @property
    def grid(self) -> I32:
        """Blocks in x, y, z; shape (n, 3)."""
        return self._geometry[0]

    @property
    def block(self) -> I32:
        """Threads of a block in x, y, z; shape (n, 3)."""
        return self._geometry[1]


class MemKind(IntEnum):
    """Kind of a memory operation."""

    MEMCPY = 0
    MEMSET = 1


@dataclass(frozen=True)
class MemOps(_Rows):
    """CUPTI_ACTIVITY_KIND_MEMCPY, then CUPTI_ACTIVITY_KIND_MEMSET; valid rows only."""

    start: I64  # ns
    end: I64
    process: Ids
    gpu: Ids
    context: Ids
    stream: Ids
    correlation: Ids
    graph_node: I64
    kind: U8  # MemKind
    copy_kind: Ids  # 1 host to device, 2 device to host, 8 on the device, ...; NONE for memset
    bytes: I64

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class GraphRuns(_Rows):
    """CUPTI_ACTIVITY_KIND_GRAPH_TRACE: graph launches timed as a whole, inner gaps included.

    Rows with start = end = 0 (the time could not be collected) are here with `timed` False.
    """

    start: I64  # ns
    end: I64
    process: Ids
    gpu: Ids  # GPU of the first node; of the process where that is a host node
    context: Ids
    stream: Ids
    correlation: Ids
    graph: I64  # template id
    graph_exec: I64  # executable id
    timed: Bool

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class ApiCalls(_Rows, Timed):
    """CUPTI_ACTIVITY_KIND_RUNTIME: runtime and driver API calls, failed ones included."""

    start: I64  # host ns
    duration: Ids  # ns
    process: Ids
    thread: Ids  # thread id as the OS has it
    correlation: Ids
    kind: U8  # ApiKind
    name: Ids  # index into Trace.api_names
    return_value: Ids  # 0: success

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Syncs(_Rows):
    """CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: waits of the host, not GPU time."""

    start: I64  # ns
    end: I64
    process: Ids
    context: Ids
    stream: Ids  # NONE: not a single stream
    correlation: Ids
    sync_type: Ids  # 1 event, 2 stream waits for event, 3 stream, 4 context

    def __len__(self) -> int:
        return len(self.start)


class NvtxKind(IntEnum):
    """How an NVTX range was made, or that it is a mark."""

    PUSH_POP = 0
    START_END = 1
    MARK = 2


@dataclass(frozen=True)
class NvtxRanges(_Rows):
    """NVTX_EVENTS: ranges, or marks. NONE as `end`: still open when the capture ended."""

    start: I64  # host ns
    end: I64
    process: Ids  # NONE: a process without CUDA work
    thread: Ids
    end_thread: Ids  # NONE: the same
    domain: Ids  # index into Trace.nvtx_domains; 0 is the default domain
    text: Ids  # index into Trace.nvtx_names
    kind: U8  # NvtxKind

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class GraphEvents(_Rows):
    """CUDA_GRAPH_EVENTS (2024 and later): graphs created, cloned, instantiated."""

    start: I64  # ns
    process: Ids
    thread: Ids
    event_class: Ids  # 94 instantiated, 95 created, 96 cloned
    graph: I64
    original_graph: I64
    graph_exec: I64

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class GraphNodeEvents(_Rows):
    """Creation of graph nodes: CUDA_GRAPH_NODE_EVENTS, CUDA_GRAPH_EVENTS up to 2023.4."""

    start: I64  # ns
    process: Ids
    thread: Ids
    graph_node: I64
    original_graph_node: I64  # node that it was cloned from, or NONE

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message of the collector. Source: DIAGNOSTIC_EVENT (2024 and later)."""

    timestamp: int  # ns
    severity: str  # "info", "warning", "error", "verbose"
    source: str  # "injection", "daemon", "analysis"
    text: str
    pid: int | None


@dataclass(frozen=True)
class MemoryUsage(_Rows):
    """CUDA_GPU_MEMORY_USAGE_EVENTS: memory that the program allocated and freed.

    The driver's own memory and what was allocated before the capture are not in it.
    """

    start: I64  # ns
    process: Ids
    gpu: Ids
    kind: Ids  # 1 pinned, 2 device, 4 managed, 5 device static, ...
    change: I64  # bytes; negative when freed

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class GpuMetrics:
    """GPU_METRICS: hardware counters sampled over time."""

    timestamp: I64  # ns
    source: I64  # which GPU counted: its id is the low byte; NONE where not said
    metric: I32  # index into `names`
    value: I64
    names: list[str]

    def __len__(self) -> int:
        return len(self.timestamp)
