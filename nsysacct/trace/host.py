"""The host side: API calls, synchronisations, graph creation, sampled counters."""

from __future__ import annotations

import numpy as np

from nsysacct.trace import schema
from nsysacct.trace.assembly import Table
from nsysacct.trace.calls import ApiKind, classify
from nsysacct.trace.column import Column
from nsysacct.trace.database import text_of
from nsysacct.trace.encoding import distinct, narrowed
from nsysacct.trace.loading import Loader
from nsysacct.trace.tables import (
    I32,
    ApiCalls,
    GpuMetrics,
    GraphEvents,
    GraphNodeEvents,
    Syncs,
)


def load_api(loader: Loader) -> tuple[ApiCalls, list[str]]:
    """Read API calls and their distinct names. Source: CUPTI_ACTIVITY_KIND_RUNTIME."""
    table = loader.read(schema.RUNTIME, schema.RUNTIME_COLUMNS)
    loader.drop_bad_times(schema.RUNTIME, table, zero_is_damage=False)
    a = table.arrays
    process, thread = loader.threads(a.pop("globalTid"), add=True)
    name, names = loader.named(a.pop("nameId"))
    kinds = np.array([classify(text) for text in names] or [ApiKind.OTHER], np.uint8)
    return_value = a.pop("returnValue")
    if "returnValue" not in loader.columns(schema.RUNTIME):
        return_value = np.zeros(table.size, np.int32)  # an export that records no failures
    start = a.pop("start")
    calls = ApiCalls(
        start=start,
        duration=narrowed(a.pop("end") - start),
        process=process,
        thread=thread,
        correlation=a.pop("correlationId"),
        kind=kinds[name],
        name=name,
        return_value=return_value,
        rowids=table.rowids,
    )
    return calls, names


def load_syncs(loader: Loader) -> Syncs:
    """Read waits of the host. Source: CUPTI_ACTIVITY_KIND_SYNCHRONIZATION."""
    table = loader.read(schema.SYNCHRONIZATION, schema.SYNC_COLUMNS)
    loader.drop_bad_times(schema.SYNCHRONIZATION, table, zero_is_damage=False)
    a = table.arrays
    return Syncs(
        start=a["start"],
        end=a["end"],
        process=loader.process_codes(a["globalPid"], add=False),
        context=a["contextId"],
        stream=a["streamId"],
        correlation=a["correlationId"],
        sync_type=a["syncType"],
        rowids=table.rowids,
    )


def load_graph_events(loader: Loader) -> GraphEvents | None:
    """Read graphs created, cloned, instantiated. Source: CUDA_GRAPH_EVENTS of 2024 and later.

    Up to 2023.4 a table of that name holds node events; its columns tell the two apart.
    """
    if "graphId" not in loader.columns(schema.GRAPH_EVENTS):
        return None
    ids = ("graphId", "originalGraphId", "graphExecId")
    table, process, thread = _events(loader, schema.GRAPH_EVENTS, ids)
    a = table.arrays
    return GraphEvents(
        start=a["start"],
        process=process,
        thread=thread,
        event_class=a["eventClass"],
        graph=a["graphId"],
        original_graph=a["originalGraphId"],
        graph_exec=a["graphExecId"],
        rowids=table.rowids,
    )


def load_graph_node_events(loader: Loader) -> GraphNodeEvents | None:
    """Read graph nodes created. Source: CUDA_GRAPH_NODE_EVENTS, up to 2023.4 CUDA_GRAPH_EVENTS."""
    for name in (schema.GRAPH_NODE_EVENTS, schema.GRAPH_EVENTS):
        if "graphNodeId" in loader.columns(name):
            table, process, thread = _events(loader, name, ("graphNodeId", "originalGraphNodeId"))
            a = table.arrays
            return GraphNodeEvents(
                start=a["start"],
                process=process,
                thread=thread,
                graph_node=a["graphNodeId"],
                original_graph_node=a["originalGraphNodeId"],
                rowids=table.rowids,
            )
    return None


def _events(loader: Loader, name: str, ids: tuple[str, ...]) -> tuple[Table, I32, I32]:
    columns = (*schema.EVENT_COLUMNS, *(Column(column) for column in ids))
    table = loader.read(name, columns)
    process, thread = loader.threads(table.arrays["globalTid"])
    return table, process, thread


def load_gpu_metrics(loader: Loader) -> GpuMetrics | None:
    """Read hardware counters over time. Sources: GPU_METRICS, TARGET_INFO_GPU_METRICS."""
    names = [column.name for column in schema.METRIC_COLUMNS if column.required]
    if not set(names) <= set(loader.columns(schema.GPU_METRICS)):
        return None
    table = loader.read(schema.GPU_METRICS, schema.METRIC_COLUMNS)
    ids, codes = distinct(table.arrays["metricId"])
    texts = {
        row["metricId"]: text_of(row["metricName"])
        for row in loader.database.records("TARGET_INFO_GPU_METRICS", "metricId", "metricName")
    }
    return GpuMetrics(
        timestamp=table.arrays["timestamp"],
        source=table.arrays["typeId"],
        metric=codes,
        value=table.arrays["value"],
        names=[texts.get(int(i)) or f"metric {i}" for i in ids],
    )
