"""GPU work of one process on one GPU, in the order in which the host launched it.

The launch order is what tells phases apart: the host thread proposes, verifies and replays one after
the other, and synchronises where it needs a result. GPU start times order work only within a stream.
Sources: *_KERNEL, *_MEMCPY, *_MEMSET and *_GRAPH_TRACE rows joined with RUNTIME rows on
(correlationId, process), since correlation ids repeat between processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from nsysacct.groups import Groups, blocks
from nsysacct.intervals import Cover
from nsysacct.trace import NONE, ApiKind, Trace
from nsysacct.trace.encoding import distinct, fitting, is_constant, narrowed
from nsysacct.trace.join import ById, occur
from nsysacct.trace.tables import Ids, Timed

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


def takes_gpu_time(kind: U8) -> Bool:
    """Kinds that count in gpu_ns: kernels and timed graphs."""
    flags: Bool = (kind == Kind.KERNEL) | (kind == Kind.GRAPH)
    return flags


def moves_memory(kind: U8) -> Bool:
    """Kinds that count in mem_ns: copies and sets."""
    flags: Bool = (kind == Kind.MEMCPY) | (kind == Kind.MEMSET)
    return flags


@dataclass(frozen=True, slots=True)
class Timeline(Timed):
    """Events of one (process, GPU), structure of arrays, sorted by launch then GPU start.

    Ids and indices are in the narrowest signed type that holds them.

    Attributes
    ----------
    start : int64, ns
        GPU start; the host launch time for `Kind.BLIND`.
    duration : signed integers, ns
        End minus start; 0 for `Kind.BLIND`.
    launch : int64, ns
        Host start of the launching API call; the GPU start where no call is known.
    kind : uint8
        `Kind`.
    stream : ids
        Stream; NONE for `Kind.BLIND`.
    name : ids
        Index into ``Trace.kernel_names``; NONE for anything but kernels.
    graph : ids
        Executable graph that the event is, or belongs to; NONE for eager work and blind launches.
    epoch : int32
        Host synchronisations of the process before the launch.
    unit : int32
        Launch that the event belongs to: all kernels of one expanded graph launch share one.
    source : int32
        Row in the table that `kind` names (index into ``Trace.kernels`` etc.).
    copies_in : bool
        Copies from the host, which bring the inputs of what follows.
    copies_out : bool
        Copies to the host, which it waits for before it goes on.
    returned_bytes : int64, one per copy to the host
        Their sizes, in timeline order.
    by_start : int32 or None
        Events in order of GPU start; None when they stand so already.
    """

    process: int
    gpu: int
    start: I64
    duration: Ids
    launch: I64
    kind: U8
    stream: Ids
    name: Ids
    graph: Ids
    epoch: I32
    unit: I32
    thread: Ids
    source: I32
    copies_in: Bool
    copies_out: Bool
    returned_bytes: I64
    by_start: I32 | None

    def __len__(self) -> int:
        return len(self.start)

    @property
    def is_gpu_time(self) -> Bool:
        """Events that count in gpu_ns: kernels and timed graphs."""
        return takes_gpu_time(self.kind)

    @property
    def is_memory(self) -> Bool:
        """Events that count in mem_ns: copies and sets."""
        return moves_memory(self.kind)

    @property
    def has_opaque_graphs(self) -> bool:
        """Whether some graph launches show no kernels: timed as a whole, or not at all."""
        return bool(((self.kind == Kind.GRAPH) | (self.kind == Kind.BLIND)).any())

    def spent_ns(self, events: npt.NDArray[Any]) -> int:
        """Sum of the durations of some events (indices or a mask), ns."""
        return int(self.duration[events].sum(dtype=np.int64))

    def last_end(self) -> int | None:
        """End of the last GPU event, ns; None without any."""
        ends: list[int] = []
        for block in blocks(len(self)):
            seen = self.kind[block] != Kind.BLIND
            ends.append(int(self.end_of(block)[seen].max(initial=np.iinfo(np.int64).min)))
        return max(ends) if (self.kind != Kind.BLIND).any() else None

    def covered(self) -> Iterator[tuple[I64, I64]]:
        """Times in which some event runs, a part at a time: ascending, disjoint intervals, ns."""
        cover = Cover()
        for part in self._in_order():
            yield cover.add(self.start[part], self.end_of(part))

    def busy_ns(self, labels: Ids | U8, count: int) -> I64:
        """Union of the GPU intervals of the events with each label, ns, shape (count,).

        Parameters
        ----------
        labels : integers, one per event
            Below `count`; negative for none.
        """
        covers = [Cover() for _ in range(count)]
        small = np.int16 if count < np.iinfo(np.int16).max else np.int32  # the quicker to sort
        for part in self._in_order():
            groups = Groups.of(np.add(labels[part], 1, dtype=small), count + 1)
            start, end = self.start[part], self.end_of(part)
            if groups.order is not None:
                start, end = start[groups.order], end[groups.order]
            bounds = np.append(groups.starts, groups.size).tolist()
            for label, (low, high) in zip(groups.present.tolist(), pairwise(bounds), strict=True):
                if label:
                    covers[label - 1].add(start[low:high], end[low:high])
        return np.array([cover.total for cover in covers], np.int64)

    def _in_order(self) -> Iterator[I32 | slice]:
        """Events in order of their GPU starts, a block at a time."""
        for block in blocks(len(self)):
            yield block if self.by_start is None else self.by_start[block]


def _rows_of(process: int, processes: Ids, gpus: Ids, gpu: int) -> I64 | slice:
    """Rows of one process on one GPU; all of them as a slice, which costs no copy of a column."""
    if not len(processes) or (is_constant(processes) and is_constant(gpus)):
        mine = bool(len(processes)) and (processes[0], gpus[0]) == (process, gpu)
        return slice(None) if mine else np.empty(0, np.int64)
    return np.flatnonzero((processes == process) & (gpus == gpu))


def _launching_calls(trace: Trace, process: int, correlation: Ids) -> Ids:
    """Row in ``trace.api`` of the call that launched each event, the first one; NONE for none."""
    api = trace.api
    if is_constant(api.process) and api.process[0] == process:
        return ById.of(api.correlation).rows(correlation)
    mine = np.flatnonzero(api.process == process)
    return np.append(mine, NONE)[ById.of(api.correlation[mine]).rows(correlation)]


def _sync_times(trace: Trace, process: int) -> I64:
    """Sorted host start times of the synchronisation calls of one process."""
    api = trace.api
    syncs = np.flatnonzero(api.kind == ApiKind.SYNC)
    return np.sort(api.start[syncs[api.process[syncs] == process]])


def accounts_of(trace: Trace) -> list[tuple[int, int]]:
    """All (process, gpu) pairs with GPU work or graph launches, in index order."""
    pairs: set[tuple[int, int]] = set()
    for table in (trace.kernels, trace.memops, trace.graph_runs):
        if len(table.start):
            process, gpu = distinct(table.process)[0], distinct(table.gpu)[0]
            if len(process) == 1 or len(gpu) == 1:
                pairs.update((p, g) for p in process.tolist() for g in gpu.tolist())
                continue
            gpus = int(gpu[-1]) + 1
            codes = np.unique(table.process.astype(np.int64) * gpus + table.gpu)
            pairs.update(divmod(c, gpus) for c in codes.tolist())
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
    kernels, memops, runs, api = trace.kernels, trace.memops, trace.graph_runs, trace.api
    k = _rows_of(process, kernels.process, kernels.gpu, gpu)
    m = np.flatnonzero((memops.process == process) & (memops.gpu == gpu))
    g = np.flatnonzero((runs.process == process) & (runs.gpu == gpu) & runs.timed)
    b = _blind_calls(trace, process) if with_blind else np.empty(0, np.int64)
    sizes = (len(m), len(g), len(b))

    def others(*parts: npt.NDArray[Any] | int) -> npt.NDArray[Any]:
        """Values of memory operations, graphs and blind launches; a number stands for all of a part."""
        arrays = [
            np.full(size, part, fitting(part, part)) if isinstance(part, int) else part
            for part, size in zip(parts, sizes, strict=True)
            if size
        ]
        return np.concatenate(arrays or [np.empty(0, np.int16)])

    def joined(kernel: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.concatenate([kernel, other]) if len(other) else kernel

    start = joined(kernels.start[k], others(memops.start[m], runs.start[g], api.start[b]))
    ids = others(memops.correlation[m], runs.correlation[g], api.correlation[b])
    correlation = joined(kernels.correlation[k], ids)
    call = _launching_calls(trace, process, correlation)
    launch = _of_calls(api.start, call, start)
    # columns are a good part of what the largest table may take: none is kept longer than needed
    place = _Placing.of(len(start) - len(ids), start, correlation, launch)
    start = place.sorted(start)
    launch = place.sorted(launch)
    call = place.sorted(call)
    unit = _units(place.sorted(correlation), call)
    thread = _of_calls(api.thread, call, np.int32(NONE))
    del correlation, call
    node = memops.graph_node[m]
    node_graph = narrowed(np.where(node == NONE, NONE, node >> 32))
    in_memory, in_graphs = memops.end[m] - memops.start[m], runs.end[g] - runs.start[g]
    copy = memops.copy_kind[m]
    copies_out = place.column(False, others(copy == _TO_HOST, False, False))
    rows = np.arange(len(kernels), dtype=np.int32)[k]
    source = place.column(rows, others(*(r.astype(np.int32) for r in (m, g, b))))
    return Timeline(
        process=process,
        gpu=gpu,
        start=start,
        duration=place.column(
            kernels.duration[k], others(narrowed(in_memory), narrowed(in_graphs), 0)
        ),
        launch=launch,
        kind=place.column(
            np.uint8(Kind.KERNEL),
            others(memops.kind[m] + np.uint8(Kind.MEMCPY), Kind.GRAPH, Kind.BLIND),
        ),
        stream=place.column(kernels.stream[k], others(memops.stream[m], runs.stream[g], NONE)),
        name=place.column(kernels.name[k], others(NONE, NONE, NONE)),
        graph=place.column(
            kernels.graph[k], others(node_graph, narrowed(runs.graph_exec[g]), NONE)
        ),
        epoch=_epochs(_sync_times(trace, process), launch),
        unit=unit,
        thread=thread,
        source=source,
        copies_in=place.column(False, others(copy == _FROM_HOST, False, False)),
        copies_out=copies_out,
        returned_bytes=memops.bytes[source[copies_out]],
        by_start=_by_start(start),
    )


@dataclass(frozen=True, slots=True)
class _Placing:
    """Where rows go in launch order: kernels first, then the rest, as they come from their tables.

    Attributes
    ----------
    order : int64 or None
        Rows in launch order; None when they stand in it, without any but kernels.
    kernels : int
        Rows that are kernels.
    at, which : int64
        Places of the rest in launch order, and which of the rest stands there.
    """

    order: I64 | None
    kernels: int
    at: I64
    which: I64

    @classmethod
    def of(cls, kernels: int, start: I64, correlation: Ids, launch: I64) -> _Placing:
        """Sort by launch, then by call, then by GPU start."""
        order = np.argsort(launch, kind="stable")
        if not _settled(order, start, correlation, launch):
            order = np.lexsort((start, correlation, launch))
        at = np.flatnonzero(order >= kernels)
        in_place = not len(at) and bool((order[1:] > order[:-1]).all())
        return cls(None if in_place else order, kernels, at, order[at] - kernels)

    def sorted(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values of all rows, in launch order."""
        return values if self.order is None else values[self.order]

    def column(
        self, kernels: npt.NDArray[Any] | np.generic | bool, rest: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        """Values of kernels (one for all, or each one's) and of the rest, in launch order."""
        if not isinstance(kernels, np.ndarray):
            whole = np.full(self.kernels + len(rest), kernels)
        elif self.order is None:
            return kernels
        else:
            whole = np.empty(len(self.order), np.result_type(kernels, rest))
            for block in blocks(len(self.order) if self.kernels else 0):
                whole[block] = kernels.take(self.order[block], mode="clip")
        whole[self.at] = rest[self.which]
        return whole


def _settled(order: I64, start: I64, correlation: Ids, launch: I64) -> bool:
    """Whether rows of equal launch stand in order of their calls and GPU starts already."""
    for block in blocks(len(order) - 1):
        one, next_ = order[block], order[block.start + 1 : block.stop + 1]
        tied = np.flatnonzero(launch[one] == launch[next_])
        one, next_ = one[tied], next_[tied]
        later = correlation[one] > correlation[next_]
        later |= (correlation[one] == correlation[next_]) & (start[one] > start[next_])
        if later.any():
            return False
    return True


_FROM_HOST, _TO_HOST = 1, 2
"""``copyKind`` of copies from the host and to it."""


def _by_start(start: I64) -> I32 | None:
    """Order of GPU starts, or None when events stand in it."""
    if bool((start[1:] >= start[:-1]).all()):
        return None
    return np.argsort(start, kind="stable").astype(np.int32)


def _of_calls(
    values: npt.NDArray[Any], call: Ids, otherwise: npt.NDArray[Any] | np.generic
) -> npt.NDArray[Any]:
    """``values[call]``, and `otherwise` where no call is known."""
    known = call != NONE
    if not len(values) or not known.any():
        return np.array(np.broadcast_to(otherwise, call.shape))
    if known.all():
        everywhere = is_constant(values)
        return np.broadcast_to(values[0], call.shape) if everywhere else values[call]
    return np.where(known, values[call], otherwise)


def _units(correlation: Ids, call: Ids) -> I32:
    """Number the launches: consecutive events of one call are one."""
    opens = np.ones(len(call), bool)
    known = call != NONE
    opens[1:] = (correlation[1:] != correlation[:-1]) | ~known[1:] | ~known[:-1]
    unit: I32 = np.cumsum(opens, dtype=np.int32)
    unit -= 1
    return unit


def _epochs(syncs: I64, launch: I64) -> I32:
    """Synchronisations before each of the (ascending) launches."""
    first = np.searchsorted(launch, syncs, side="right")
    bounds = np.concatenate([[0], first, [len(launch)]])
    return np.repeat(np.arange(len(syncs) + 1, dtype=np.int32), np.diff(bounds))


def _blind_calls(trace: Trace, process: int) -> I64:
    """API rows of successful graph launches that left no timed GPU row (indices into trace.api)."""
    api = trace.api
    calls: I64 = np.flatnonzero(api.kind == ApiKind.GRAPH_LAUNCH)
    calls = calls[(api.process[calls] == process) & (api.return_value[calls] == 0)]
    if not len(calls):
        return calls
    wanted = api.correlation[calls]
    shown = np.zeros(len(calls), bool)
    runs = trace.graph_runs
    for table, mine in (
        (trace.kernels, trace.kernels.process == process),
        (trace.memops, trace.memops.process == process),
        (runs, (runs.process == process) & runs.timed),
    ):
        shown |= occur(wanted, table.correlation if mine.all() else table.correlation[mine])
    return calls[~shown]
