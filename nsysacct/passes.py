"""Cutting a timeline into model passes: what the host launched between two synchronisations.

A pass is the work of one stream inside one epoch (between two host synchronisations); a graph launch
is a pass of its own. Passes are the words that rounds are spelled in: draft draft draft verify replay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsysacct.evidence import Code, NameEvidence
from nsysacct.groups import Groups
from nsysacct.timeline import Kind, Timeline
from nsysacct.trace import NONE
from nsysacct.trace.encoding import distinct

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes of one timeline in launch order, structure of arrays.

    Attributes
    ----------
    pass_of : int32, one per event
        Pass of the event; NONE for events that no pass takes (a copy in a trace without kernels).
    launch : int64, ns
        Host time of the first launch.
    end : int64, ns
        Last GPU end.
    start : int64, ns
        First GPU start.
    stream, epoch, thread : int32
    graph : int64
        Executable graph when the pass is one graph launch; NONE for eager work and blind launches.
    is_graph, is_blind : bool
        Whether the pass is a graph launch, and whether it left no GPU row.
    kernels : int64
        Kernel rows.
    gpu_ns : int64
        Sum of kernel durations and timed graphs.
    anchors : int64, shape (passes, len(Code))
        Kernels by what their names say (`evidence.Code`).
    width : int32
        Rows that the pass runs, from names or geometry; NONE when unknown.
    returned : int64
        Bytes copied back to the host after the pass: results of so many rows.
    waits : int64
        Waits of the host, and copies back to it, before the pass.
    """

    pass_of: I32
    launch: I64
    start: I64
    end: I64
    stream: I32
    epoch: I32
    graph: I64
    is_graph: Bool
    is_blind: Bool
    kernels: I64
    gpu_ns: I64
    anchors: I64
    width: I32
    waits: I64
    returned: I64

    def __len__(self) -> int:
        return len(self.launch)


def cut(timeline: Timeline, names: NameEvidence) -> Passes:
    """Cut `timeline` into passes.

    Work of different streams in one epoch makes different passes even when their launches
    interleave, so that a side stream never breaks a model pass in two. A host that does not wait
    between passes is no obstacle: a kernel that the registry knows to end every pass cuts
    (`_after_ends`), and so do anchors of different phases (`_split_mixed`).
    """
    is_memory = timeline.is_memory
    in_graph = (timeline.graph != NONE) | (timeline.kind == Kind.BLIND)
    work = np.flatnonzero(~is_memory | in_graph)
    unit, epoch, lane = timeline.unit[work], timeline.epoch[work], timeline.stream[work]
    graph = in_graph[work]
    if graph.any():
        # one graph launch may run on several streams: keep it together under its first event's stream
        first = np.flatnonzero(np.concatenate([[True], unit[1:] != unit[:-1]]))
        of_unit = np.repeat(lane[first], np.diff(np.append(first, len(unit))))
        lane = np.where(graph, of_unit, lane)
        del first, of_unit
    ordered = work
    if len(work) and not (lane == lane[0]).all():  # epochs ascend already
        by_lane = np.lexsort((lane, epoch))
        ordered = work[by_lane]
        epoch, lane, graph, unit = epoch[by_lane], lane[by_lane], graph[by_lane], unit[by_lane]
        del by_lane
    opens = np.ones(len(work), bool)
    if len(work) > 1:
        opens[1:] = (epoch[1:] != epoch[:-1]) | (lane[1:] != lane[:-1])
        opens[1:] |= (graph[1:] | graph[:-1]) & (unit[1:] != unit[:-1])
    del work, epoch, unit  # a column of 10 million rows each
    opens |= _after_ends(ordered, lane, graph, names)
    del lane, graph
    opens |= _split_mixed(ordered, opens, timeline, names)
    rough = np.cumsum(opens, dtype=np.int32)
    rough -= 1
    first_event = np.minimum.reduceat(ordered, np.flatnonzero(opens)) if len(ordered) else ordered
    rank = np.empty(len(first_event), np.int32)
    rank[np.argsort(first_event, kind="stable")] = np.arange(len(first_event), dtype=np.int32)
    pass_of = np.full(len(timeline), NONE, np.int32)
    pass_of[ordered] = rank[rough]  # event order is launch order
    _adopt_memory(timeline, pass_of, is_memory & ~in_graph)
    return features(timeline, names, pass_of)


def _after_ends(ordered: I64, lane: I32, in_graph: Bool, names: NameEvidence) -> Bool:
    """Cuts behind kernels that end every pass of the engine (marker ``pass-end``).

    A lane without such kernels of its own (half of a pass split over two streams) is cut where the
    others are. One graph launch stays one pass.
    """
    ends = np.append([s.marker == "pass-end" for s in names.signatures], False)
    if not ends.any():
        return np.zeros(len(ordered), bool)
    ending = ends[names.signature[ordered]].astype(bool) & ~in_graph
    if not ending.any():
        return np.zeros(len(ordered), bool)
    turn = np.searchsorted(np.sort(ordered[ending]), ordered)
    cuts = np.zeros(len(ordered), bool)
    own = np.isin(lane, lane[ending])
    cuts[1:] = np.where(own[1:], ending[:-1], turn[1:] != turn[:-1]) & ~in_graph[1:]
    return cuts


def _split_mixed(ordered: I64, opens: Bool, timeline: Timeline, names: NameEvidence) -> Bool:
    """Extra cuts where exclusive anchors of different phases stand in one pass.

    Between two such anchors the cut goes before the largest pause of the host: launching a pass is
    a tight loop, and the engine decides something between two passes. A verify pass of one row runs
    single-row kernels of the target beside its own: where the two alternate they are one pass.
    """
    extra = np.zeros(len(ordered), bool)
    phase = names.phase[ordered]
    anchored = np.flatnonzero(phase != NONE)
    if len(anchored) < 2:
        return extra
    group = np.cumsum(opens, dtype=np.int64)
    left, right = anchored[:-1], anchored[1:]
    differ = (phase[left] != phase[right]) & (group[left] == group[right])
    differ &= ~_one_pass(phase[left], phase[right], group[left], differ)
    launch = timeline.launch[ordered]
    for a, b in zip(left[differ], right[differ], strict=True):
        pauses = launch[a + 1 : b + 1] - launch[a:b]
        extra[a + 1 + int(np.argmax(pauses))] = True
    return extra


def _one_pass(left: I32, right: I32, group: I64, differ: Bool) -> Bool:
    """Changes between target and verify anchors that alternate inside one group."""
    both = (Code.TARGET, Code.VERIFY)
    change = differ & np.isin(left, both) & np.isin(right, both)
    times = np.bincount(group[change], minlength=int(group.max(initial=0)) + 1)
    alternate: Bool = change & (times[group] >= ALTERNATE)
    return alternate


ALTERNATE = 2
"""Changes between target and verify anchors from which on they are taken as one pass."""


def _adopt_memory(timeline: Timeline, pass_of: I32, memory: Bool) -> None:
    """Give each copy and set to a neighbouring pass: inputs to the next, the rest to the previous."""
    events = np.flatnonzero(memory)
    work = np.flatnonzero(pass_of != NONE)
    if not len(events) or not len(work):
        return
    at = np.searchsorted(work, events)
    before = work[np.maximum(at - 1, 0)]
    after = work[np.minimum(at, len(work) - 1)]
    forward = timeline.copies_in[events] | (timeline.kind[events] == Kind.MEMSET)
    forward = np.where(at == 0, True, np.where(at == len(work), False, forward))
    pass_of[events] = pass_of[np.where(forward, after, before)]


def features(timeline: Timeline, names: NameEvidence, pass_of: I32) -> Passes:
    """Count what each pass holds.

    Parameters
    ----------
    pass_of : int32, one per event
        Pass of each event, numbered in launch order; NONE for none.
    """
    count = int(pass_of.max(initial=NONE)) + 1
    placed = pass_of != NONE
    events = np.flatnonzero(placed)
    groups = Groups.of(pass_of[events], count)
    big = np.iinfo(np.int64).max
    launch = np.full(count, big)
    first = np.full(count, len(timeline) - 1)
    first[groups.present] = events[groups.first()]
    launch[groups.present] = timeline.launch[first[groups.present]]  # events are in launch order
    start = groups.least(timeline.start[events], big)
    end = groups.most(timeline.end_of(events), -big)
    if timeline.is_memory.any():
        events = np.flatnonzero(placed & ~timeline.is_memory)
        groups = Groups.of(pass_of[events], count)
    ids = pass_of[events]
    first_work = np.full(count, len(timeline) - 1)
    first_work[groups.present] = events[groups.first()]
    units, lowest = np.full(count, -1), np.full(count, big)
    units[groups.present] = timeline.unit[events[groups.last()]]
    lowest[groups.present] = timeline.unit[first_work[groups.present]]
    anchors = _anchors(ids, names.code[events], timeline.kind[events] == Kind.KERNEL, count)
    single = units == lowest  # one launch: a graph launch is a pass of its own
    is_blind = single & (timeline.kind[first_work] == Kind.BLIND)
    graph = np.where(single, timeline.graph[first_work], NONE)
    return Passes(
        pass_of=pass_of,
        launch=launch,
        start=start,
        end=end,
        stream=timeline.stream[first_work],
        epoch=timeline.epoch[first_work],
        graph=graph,
        is_graph=(graph != NONE) | is_blind,
        is_blind=is_blind,
        kernels=anchors.sum(axis=1),
        gpu_ns=groups.sum(timeline.duration[events]),
        anchors=anchors,
        width=_widths(ids, names.width[events], count),
        waits=_waits(timeline, first),
        returned=_returned(timeline, pass_of, count),
    )


def _waits(timeline: Timeline, first: I64) -> I64:
    """Waits of the host, and copies back to it, before the first launch of each pass."""
    copied = np.searchsorted(np.flatnonzero(timeline.copies_out), first)
    return np.asarray(timeline.epoch[first] + copied, np.int64)


def _returned(timeline: Timeline, pass_of: I32, count: int) -> I64:
    """Bytes copied back to the host by pass."""
    ids = pass_of[timeline.copies_out]
    return Groups.of(ids[ids != NONE], count).sum(timeline.returned_bytes[ids != NONE])


def _anchors(ids: I32, code: npt.NDArray[np.uint8], kernel: Bool, count: int) -> I64:
    """Kernels of each pass by `Code`, shape (passes, len(Code))."""
    if not kernel.all():
        ids, code = ids[kernel], code[kernel]
    cell = ids.astype(np.int64)
    cell *= len(Code)
    cell += code
    return np.bincount(cell, minlength=count * len(Code)).reshape(count, len(Code))


_TABLE = 1 << 24
"""Cells of a table of votes; where there would be more, votes are sorted instead."""


def _widths(ids: I32, width: I32, count: int) -> I32:
    """The width that most kernels of a pass show; the larger one in a tie.

    A pass of M rows may run its head, or a reduction, on fewer rows: the majority is the pass.
    """
    result = np.full(count, NONE, np.int32)
    shown = np.flatnonzero(width != NONE)
    if not len(shown):
        return result
    widths, code = distinct(width[shown])
    ballot = ids[shown].astype(np.int64) * len(widths) + code
    if count * len(widths) <= _TABLE:
        table = np.bincount(ballot, minlength=count * len(widths)).reshape(count, len(widths))
        chosen = len(widths) - 1 - np.argmax(table[:, ::-1], axis=1)
        some = table.any(axis=1)
        result[some] = widths[chosen[some]]
        return result
    pairs, votes = np.unique(ballot, return_counts=True)
    passes, candidate = np.divmod(pairs, len(widths))
    order = np.lexsort((candidate, votes, passes))
    result[passes[order]] = widths[candidate[order]]  # the last one written has most votes
    return result
