"""Reading an nsys SQLite export: the only room with SQL and nsys table names."""

from nsysacct.trace.assembly import Rejection
from nsysacct.trace.calls import ApiKind, classify
from nsysacct.trace.column import NONE
from nsysacct.trace.columns import Progress
from nsysacct.trace.files import FileFacts
from nsysacct.trace.reader import Trace, read_trace
from nsysacct.trace.tables import (
    ApiCalls,
    CudaDevice,
    Diagnostic,
    Gpu,
    GpuMetrics,
    GraphEvents,
    GraphNodeEvents,
    GraphRuns,
    Kernels,
    MemKind,
    MemOps,
    MemoryUsage,
    NvtxKind,
    NvtxRanges,
    Process,
    Syncs,
)

__all__ = [
    "NONE",
    "ApiCalls",
    "ApiKind",
    "CudaDevice",
    "Diagnostic",
    "FileFacts",
    "Gpu",
    "GpuMetrics",
    "GraphEvents",
    "GraphNodeEvents",
    "GraphRuns",
    "Kernels",
    "MemKind",
    "MemOps",
    "MemoryUsage",
    "NvtxKind",
    "NvtxRanges",
    "Process",
    "Progress",
    "Rejection",
    "Syncs",
    "Trace",
    "classify",
    "read_trace",
]
