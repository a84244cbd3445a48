"""GPU activity: kernels, memory operations, whole graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nsysacct.trace import schema
from nsysacct.trace.assembly import Table
from nsysacct.trace.column import NONE
from nsysacct.trace.encoding import is_constant, narrowed
from nsysacct.trace.loading import Loader
from nsysacct.trace.tables import I32, I64, GraphRuns, Ids, Kernels, MemKind, MemOps, MemoryUsage

_ALLOCATED, _FREED = 0, 1


def load_kernels(loader: Loader) -> tuple[Kernels, list[str]]:
    """Read kernels and their distinct names. Source: CUPTI_ACTIVITY_KIND_KERNEL."""
    names_from = schema.kernel_name_column(loader.columns(schema.KERNEL))
    table = loader.read(schema.KERNEL, schema.kernel_columns(names_from))
    loader.drop_bad_times(schema.KERNEL, table, zero_is_damage=True)
    loader.drop_repeated(schema.KERNEL, table, "graphNodeId", names_from)
    a = table.arrays
    process, gpu = loader.place(a)
    name, names = loader.named(a.pop(names_from))
    start = a.pop("start")
    kernels = Kernels(
        start=start,
        duration=narrowed(a.pop("end") - start),
        process=process,
        gpu=gpu,
        context=a.pop("contextId"),
        stream=a.pop("streamId"),
        correlation=a.pop("correlationId"),
        name=name,
        graph=_graph_ids(a.pop("graphId"), a.pop("graphNodeId")),
        nodes=lambda: _nodes(loader, table),
        geometry=lambda: _geometry(loader, table),
        rowids=table.rowids,
    )
    return kernels, names


def _graph_ids(graph: I64, node: I64) -> Ids:
    """Take the graphId column where it has a value, else the upper half of the node id."""
    if is_constant(node) and node[0] == NONE:
        return narrowed(graph)
    of_node = node >> 32  # NONE stays NONE: the shift keeps the sign
    if is_constant(graph) and graph[0] == NONE:
        return narrowed(of_node)
    return narrowed(np.where(graph == NONE, of_node, graph))


def _nodes(loader: Loader, kernels: Table) -> I64:
    """Read the graph nodes of the kernels kept."""
    table = loader.read(schema.KERNEL, schema.NODE_COLUMNS, lenient=True)
    return table.arrays["graphNodeId"][_places(table, kernels)]


def _places(table: Table, kernels: Table) -> I64 | slice:
    """Where the kernels kept stand in a table of all of them."""
    if kernels.kept is None and kernels.size == table.size:
        return slice(None)
    return np.searchsorted(table.rowids(), kernels.rowids())


def _geometry(loader: Loader, kernels: Table) -> tuple[I32, I32]:
    """Read grid and block of the kernels kept; NONE where a value is no integer."""
    table = loader.read(schema.KERNEL, schema.GEOMETRY_COLUMNS, lenient=True)
    shape = (kernels.size, 3)
    grid, block = np.empty(shape, np.int32), np.empty(shape, np.int32)
    at = _places(table, kernels)
    for i in range(3):
        grid[:, i] = table.arrays[schema.GEOMETRY_COLUMNS[i].name][at]
        block[:, i] = table.arrays[schema.GEOMETRY_COLUMNS[i + 3].name][at]
    return grid, block


def load_memops(loader: Loader) -> MemOps:
    """Read copies and memory sets. Sources: CUPTI_ACTIVITY_KIND_MEMCPY and _MEMSET."""
    tables = []
    for name in (schema.MEMCPY, schema.MEMSET):
        table = loader.read(name, schema.MEMORY_COLUMNS)
        loader.drop_bad_times(name, table, zero_is_damage=True)
        loader.drop_repeated(name, table, "graphNodeId", "streamId", "bytes", "copyKind")
        table.arrays["process"], table.arrays["gpu"] = loader.place(table.arrays)
        tables.append(table)

    def joined(column: str) -> npt.NDArray[Any]:
        parts = [table.arrays.pop(column) for table in tables]
        return np.concatenate(parts)

    kinds = np.array([MemKind.MEMCPY, MemKind.MEMSET], np.uint8)
    return MemOps(
        start=joined("start"),
        end=joined("end"),
        process=joined("process"),
        gpu=joined("gpu"),
        context=joined("contextId"),
        stream=joined("streamId"),
        correlation=joined("correlationId"),
        graph_node=joined("graphNodeId"),
        kind=np.repeat(kinds, [table.size for table in tables]),
        copy_kind=joined("copyKind"),
        bytes=joined("bytes"),
        rowids=lambda: np.concatenate([table.rowids() for table in tables]),
    )


def load_graph_runs(loader: Loader) -> GraphRuns:
    """Read graphs timed as a whole. Source: CUPTI_ACTIVITY_KIND_GRAPH_TRACE (since 2024)."""
    table = loader.read(schema.GRAPH_TRACE, schema.GRAPH_TRACE_COLUMNS)
    loader.drop_bad_times(schema.GRAPH_TRACE, table, zero_is_damage=False)
    loader.drop_repeated(schema.GRAPH_TRACE, table, "graphId", "graphExecId")
    a = table.arrays
    process, gpu = loader.place(a)
    return GraphRuns(
        start=a["start"],
        end=a["end"],
        process=process,
        gpu=gpu,
        context=a["contextId"],
        stream=a["streamId"],
        correlation=a["correlationId"],
        graph=a["graphId"],
        graph_exec=a["graphExecId"],
        timed=(a["start"] != 0) | (a["end"] != 0),
        rowids=table.rowids,
    )


def load_memory_usage(loader: Loader) -> MemoryUsage | None:
    """Read allocations. Source: CUDA_GPU_MEMORY_USAGE_EVENTS (``--cuda-memory-usage=true``)."""
    names = {column.name for column in schema.MEMORY_USAGE_COLUMNS}
    if not names <= set(loader.columns(schema.MEMORY_USAGE)):
        return None
    known = f"memoryOperationType IN ({_ALLOCATED}, {_FREED})"
    table = loader.read(schema.MEMORY_USAGE, schema.MEMORY_USAGE_COLUMNS, where=known)
    a = table.arrays
    process, gpu = loader.place(a)
    freed = a.pop("memoryOperationType") == _FREED
    return MemoryUsage(
        start=a["start"],
        process=process,
        gpu=gpu,
        kind=a["memKind"],
        change=np.where(freed, -a["bytes"], a["bytes"]),
        rowids=table.rowids,
    )
