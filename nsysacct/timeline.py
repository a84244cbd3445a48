"""GPU work of one process on one GPU, in the order in which the host launched it.

The launch order is what tells phases apart: the host thread proposes, verifies and replays one after
the other, and synchronises where it needs a result. GPU start times order work only within a stream.
Sources: *_KERNEL, *_MEMCPY, *_MEMSET and *_GRAPH_TRACE rows joined with RUNTIME rows on
(correlationId, process), since correlation ids repeat between processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from nsysacct.intervals import union_ns
from nsysacct.trace import NONE, ApiKind, Trace

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
U8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]


class Kind(IntEnum):
    """What an event is."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    GRAPH = 3  # a graph launch timed as a whole
    BLIND = 4  # a graph launch that left no GPU row: no time, but a place in the order


@dataclass(frozen=True, slots=True)
class Timeline:
    """Events of one (process, GPU), structure of arrays, sorted by launch then GPU start.

    Attributes
    ----------
    start, end : int64, ns
        GPU interval; both are the host launch time for `Kind.BLIND`.
    launch : int64, ns
        Host start of the launching API call; the GPU start where no call is known.
    kind : uint8
        `Kind`.
    stream : int32
        Stream; NONE for `Kind.BLIND`.
    name : int32
        Index into ``Trace.kernel_names``; NONE for anything but kernels.
    graph : int64
        Executable graph that the event is, or belongs to; NONE for eager work and blind launches.
    epoch : int32
        Host synchronisations of the process before the launch.
    unit : int32
        Launch that the event belongs to: all kernels of one expanded graph launch share one.
    source : int64
        Row in the table that `kind` names (index into ``Trace.kernels`` etc.).
    copies_in : bool
        Copies from the host, which bring the inputs of what follows.
    copies_out : bool
        Copies to the host, which it waits for before it goes on.
    returned_bytes : int64, one per copy to the host
        Their sizes, in timeline order.
    """

    process: int
    gpu: int
    start: I64
    end: I64
    launch: I64
    kind: U8
    stream: I32
    name: I32
    graph: I64
    epoch: I32
    unit: I32
    thread: I32
    source: I64
    copies_in: Bool
    copies_out: Bool
    returned_bytes: I64

    def __len__(self) -> int:
        return len(self.start)

    @property
    def is_gpu_time(self) -> Bool:
        """Events that count in gpu_ns: kernels and timed graphs."""
        flags: Bool = (self.kind == Kind.KERNEL) | (self.kind == Kind.GRAPH)
        return flags

    @property
    def is_memory(self) -> Bool:
        """Events that count in mem_ns: copies and sets."""
        flags: Bool = (self.kind == Kind.MEMCPY) | (self.kind == Kind.MEMSET)
        return flags

    @property
    def has_opaque_graphs(self) -> bool:
        """Whether some graph launches show no kernels: timed as a whole, or not at all."""
        return bool(((self.kind == Kind.GRAPH) | (self.kind == Kind.BLIND)).any())

    @property
    def duration(self) -> I64:
        """End minus start, ns; 0 for blind launches."""
        return self.end - self.start

    def busy_ns(self, mask: Bool | None = None) -> int:
        """Union of the GPU intervals (of those in `mask`), ns."""
        shown = self.kind != Kind.BLIND
        if mask is not None:
            shown = shown & mask
        return union_ns(self.start[shown], self.end[shown])


def _api_times(trace: Trace, process: int) -> tuple[I64, I64, I32]:
    """Correlation ids (sorted), host start and thread of the calls of one process."""
    api = trace.api
    mine = np.flatnonzero(api.process == process)
    order = mine[np.argsort(api.correlation[mine], kind="stable")]
    return api.correlation[order], api.start[order], api.thread[order]


def _sync_times(trace: Trace, process: int) -> I64:
    """Sorted host start times of the synchronisation calls of one process."""
    api = trace.api
    mine = (api.process == process) & (api.kind == ApiKind.SYNC)
    return np.sort(api.start[mine])


def accounts_of(trace: Trace) -> list[tuple[int, int]]:
    """All (process, gpu) pairs with GPU work or graph launches, in index order."""
    pairs: set[tuple[int, int]] = set()
    for table in (trace.kernels, trace.memops, trace.graph_runs):
        if len(table.start):
            codes = np.unique(table.process.astype(np.int64) * 4096 + table.gpu)
            pairs.update((int(c) // 4096, int(c) % 4096) for c in codes)
    api = trace.api
    graph_calls = api.process[api.kind == ApiKind.GRAPH_LAUNCH]
    for process in np.unique(graph_calls):
        if not any(p == int(process) for p, _ in pairs):
            pairs.add((int(process), 0))
    return sorted(pairs)


def build(trace: Trace, process: int, gpu: int, *, with_blind: bool = True) -> Timeline:
    """The timeline of one process on one GPU.

    Parameters
    ----------
    trace : Trace
    process, gpu : int
        Indices into ``trace.processes`` and ``trace.gpus``.
    with_blind : bool
        Whether graph launches without any GPU row of this process belong here (they name no GPU).
    """
    kernels, memops, runs = trace.kernels, trace.memops, trace.graph_runs
    k = np.flatnonzero((kernels.process == process) & (kernels.gpu == gpu))
    m = np.flatnonzero((memops.process == process) & (memops.gpu == gpu))
    g = np.flatnonzero((runs.process == process) & (runs.gpu == gpu) & runs.timed)
    b = _blind_calls(trace, process) if with_blind else np.empty(0, np.int64)
    api = trace.api

    def column(*parts: npt.NDArray[Any], dtype: type = np.int64) -> npt.NDArray[Any]:
        return np.concatenate([p.astype(dtype, copy=False) for p in parts])

    none = [np.full(len(x), NONE, np.int64) for x in (k, m, g, b)]
    start = column(kernels.start[k], memops.start[m], runs.start[g], api.start[b])
    end = column(kernels.end[k], memops.end[m], runs.end[g], api.start[b])
    correlation = column(
        kernels.correlation[k], memops.correlation[m], runs.correlation[g], api.correlation[b]
    )
    kind = np.concatenate(
        [
            np.full(len(k), Kind.KERNEL, np.uint8),
            memops.kind[m].astype(np.uint8) + np.uint8(Kind.MEMCPY),
            np.full(len(g), Kind.GRAPH, np.uint8),
            np.full(len(b), Kind.BLIND, np.uint8),
        ]
    )
    stream = column(kernels.stream[k], memops.stream[m], runs.stream[g], none[3], dtype=np.int32)
    name = column(kernels.name[k], none[1], none[2], none[3], dtype=np.int32)
    memory_graph = np.where(memops.graph_node[m] == NONE, NONE, memops.graph_node[m] >> 32)
    graph = column(kernels.graph[k], memory_graph, runs.graph_exec[g], none[3])

    calls, call_start, call_thread = _api_times(trace, process)
    at = np.searchsorted(calls, correlation)
    at = np.minimum(at, max(len(calls) - 1, 0))
    known = (
        (calls[at] == correlation) & (correlation != NONE)
        if len(calls)
        else np.zeros(len(start), bool)
    )
    launch = np.where(known, call_start[at] if len(calls) else 0, start)
    thread = np.where(known, call_thread[at] if len(calls) else NONE, NONE).astype(np.int32)
    epoch = np.searchsorted(_sync_times(trace, process), launch).astype(np.int32)

    order = np.lexsort((start, correlation, launch))
    launch, correlation, known = launch[order], correlation[order], known[order]
    new_unit = np.ones(len(order), bool)
    new_unit[1:] = (correlation[1:] != correlation[:-1]) | ~known[1:] | ~known[:-1]
    source = column(k, m, g, b)[order]
    copies_out = _flags(memops.copy_kind[m] == 2, len(k), len(start))[order]
    return Timeline(
        process=process,
        gpu=gpu,
        start=start[order],
        end=end[order],
        launch=launch,
        kind=kind[order],
        stream=stream[order],
        name=name[order],
        graph=graph[order],
        epoch=epoch[order],
        unit=(np.cumsum(new_unit) - 1).astype(np.int32),
        thread=thread[order],
        source=source,
        copies_in=_flags(memops.copy_kind[m] == 1, len(k), len(start))[order],
        copies_out=copies_out,
        returned_bytes=memops.bytes[source[copies_out]],
    )


def _flags(values: Bool, first: int, total: int) -> Bool:
    """`values` at their place among all events, False elsewhere."""
    flags = np.zeros(total, bool)
    flags[first : first + len(values)] = values
    return flags


def _blind_calls(trace: Trace, process: int) -> I64:
    """API rows of successful graph launches that left no timed GPU row (indices into trace.api)."""
    api = trace.api
    calls = np.flatnonzero(
        (api.process == process) & (api.kind == ApiKind.GRAPH_LAUNCH) & (api.return_value == 0)
    )
    if not len(calls):
        return calls
    shown = [t.correlation[t.process == process] for t in (trace.kernels, trace.memops)]
    runs = trace.graph_runs
    shown.append(runs.correlation[(runs.process == process) & runs.timed])
    return calls[~np.isin(api.correlation[calls], np.concatenate(shown))]
