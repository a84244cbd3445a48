"""Tables and columns that accounting reads, and what must be there (schemas 2020 to 3.28)."""

from __future__ import annotations

import numpy as np

from nsysacct.errors import NoCudaTraceError, UnsupportedSchemaError
from nsysacct.trace.calls import ApiKind, classify
from nsysacct.trace.column import Column
from nsysacct.trace.database import Database, quoted, text_of
from nsysacct.trace.identity import Versions

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
NVTX = "NVTX_EVENTS"
GRAPH_EVENTS = "CUDA_GRAPH_EVENTS"
GRAPH_NODE_EVENTS = "CUDA_GRAPH_NODE_EVENTS"
GPU_METRICS = "GPU_METRICS"
MEMORY_USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"

GPU_TABLES = (KERNEL, MEMCPY, MEMSET, GRAPH_TRACE)
NAME_COLUMNS = ("demangledName", "shortName", "mangledName")
"""Columns that can name a kernel, best first."""

I32, I64 = np.int32, np.int64

PLACE = (
    Column("start", required=True),
    Column("end", required=True),
    Column("deviceId", I32, required=True),
    Column("contextId", I32),
    Column("streamId", I32, required=True),
    Column("correlationId", is_id=True),
    Column("globalPid"),
)
"""Columns of all GPU activity: when, where, launched by which call of which process."""

MEMORY_COLUMNS = (
    *PLACE,
    Column("graphNodeId"),
    Column("bytes", required=True),
    Column("copyKind", I32),
)
GRAPH_TRACE_COLUMNS = (*PLACE, Column("graphId"), Column("graphExecId"))
RUNTIME_COLUMNS = (
    Column("start", required=True),
    Column("end", required=True),
    Column("globalTid"),
    Column("correlationId", is_id=True),
    Column("nameId", I32, required=True),
    Column("returnValue", I32),
)
SYNC_COLUMNS = (
    Column("start", required=True),
    Column("end", required=True),
    Column("contextId", I32),
    Column("streamId", I32),
    Column("correlationId", is_id=True),
    Column("globalPid"),
    Column("syncType", I32),
)
NVTX_COLUMNS = (
    Column("start", required=True),
    Column("end"),
    Column("eventType", I32, required=True),
    Column("globalTid"),
    Column("endGlobalTid"),
    Column("textId", I32),
    Column("domainId", I32),
)
EVENT_COLUMNS = (
    Column("start", required=True),
    Column("eventClass", I32),
    Column("globalTid"),
)
MEMORY_USAGE_COLUMNS = (
    Column("start", required=True),
    Column("globalPid"),
    Column("deviceId", I32, required=True),
    Column("bytes", required=True),
    Column("memKind", I32, required=True),
    Column("memoryOperationType", I32, required=True),
)
METRIC_COLUMNS = (
    Column("timestamp", required=True),
    Column("typeId"),
    Column("metricId", I32, required=True),
    Column("value", required=True),
)
NODE_COLUMNS = (Column("graphNodeId"),)
GEOMETRY_COLUMNS = tuple(
    Column(axis, I32) for axis in ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
)

_REQUIRED: dict[str, tuple[str, ...]] = {
    KERNEL: ("start", "end", "deviceId", "streamId", "correlationId"),
    MEMCPY: ("start", "end", "deviceId", "streamId", "bytes"),
    MEMSET: ("start", "end", "deviceId", "streamId", "bytes"),
    GRAPH_TRACE: ("start", "end", "deviceId", "streamId", "correlationId"),
    RUNTIME: ("start", "end", "globalTid", "correlationId", "nameId"),
}


def kernel_name_column(columns: tuple[str, ...]) -> str:
    """Choose the column of the kernel table that names kernels best."""
    return next((name for name in NAME_COLUMNS if name in columns), NAME_COLUMNS[0])


def kernel_columns(names_from: str) -> tuple[Column, ...]:
    """List the columns of the kernel table to read, launch geometry aside."""
    return (*PLACE, Column(names_from, I32, True), Column("graphNodeId"), Column("graphId"))


def check_schema(database: Database, versions: Versions) -> None:
    """Make sure that every table present has the columns that accounting needs.

    Raises
    ------
    UnsupportedSchemaError
        Names the table and the first column missing.
    """
    version = f"schema {versions.schema}" if versions.schema else "no schema version"
    remedy = "export the report with an nsys between 2020.3 and 2026.4"
    for table, needed in _REQUIRED.items():
        there = database.columns.get(table)
        if there is None:
            continue
        for column in needed:
            if column not in there:
                raise UnsupportedSchemaError(
                    database.name, f"table {table} lacks column {column} ({version})", remedy
                )
        if table == KERNEL and not set(NAME_COLUMNS) & set(there):
            raise UnsupportedSchemaError(
                database.name, f"table {table} has no column that names kernels ({version})", remedy
            )


def check_cuda(database: Database) -> None:
    """Make sure that the GPU side of a CUDA run is in the export.

    Graph launches alone pass: up to 2023.4 an export shows nothing of what a graph runs, and that
    is a blind spot of the account, not a broken file.

    Raises
    ------
    NoCudaTraceError
        No CUDA table at all, or API calls without any GPU row.
    """
    if any(database.has(table) and _any_row(database, table) for table in GPU_TABLES):
        return
    calls = _calls_by_kind(database) if database.has(RUNTIME) else {}
    if not calls:
        raise NoCudaTraceError(
            database.name,
            "no CUDA trace in this export",
            "record with: nsys profile --trace=cuda,nvtx, and export all tables",
        )
    launches, graphs = calls.get(ApiKind.KERNEL_LAUNCH, 0), calls.get(ApiKind.GRAPH_LAUNCH, 0)
    if graphs and not launches:
        return
    what = f"{launches} kernel launches" if launches else f"{sum(calls.values())} CUDA API calls"
    raise NoCudaTraceError(
        database.name,
        f"the GPU side was not captured: {what} but no kernel, copy or graph row",
        "check driver support, permissions and other profilers, then record again"
        " (WSL2 and another CUPTI client are known causes)",
    )


def _any_row(database: Database, table: str) -> bool:
    return bool(database.rows(table, f"SELECT 1 FROM {quoted(table)} LIMIT 1"))


def _calls_by_kind(database: Database) -> dict[ApiKind, int]:
    counts: dict[ApiKind, int] = {}
    if not {"id", "value"} <= set(database.columns.get("StringIds", ())):
        total = database.rows(RUNTIME, f"SELECT count(*) FROM {RUNTIME}")[0][0]
        return {ApiKind.OTHER: total} if isinstance(total, int) and total else {}
    sql = (
        "SELECT s.value, c.n FROM (SELECT nameId, count(*) AS n FROM"
        f" {RUNTIME} GROUP BY nameId) AS c LEFT JOIN StringIds AS s ON s.id = c.nameId"
    )
    for name, count in database.rows(RUNTIME, sql):
        kind = classify(text_of(name))
        counts[kind] = counts.get(kind, 0) + (count if isinstance(count, int) else 0)
    return counts
