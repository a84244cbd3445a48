"""Cutting a timeline into model passes: what the host launched between two synchronisations.

A pass is the work of one stream inside one epoch (between two host synchronisations); a graph launch
is a pass of its own. Passes are the words that rounds are spelled in: draft draft draft verify replay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsysacct.evidence import Code, NameEvidence
from nsysacct.timeline import Kind, Timeline
from nsysacct.trace import NONE

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
    unit, epoch, stream = timeline.unit[work], timeline.epoch[work], timeline.stream[work]
    graph = in_graph[work]
    # one graph launch may run on several streams: keep it together under its first event's stream
    first_of_unit = np.searchsorted(unit, unit)
    lane = np.where(graph, stream[first_of_unit], stream)
    by_lane = np.lexsort((np.arange(len(work)), lane, epoch))
    e, s, g, u = epoch[by_lane], lane[by_lane], graph[by_lane], unit[by_lane]
    opens = np.ones(len(work), bool)
    if len(work) > 1:
        same_unit = u[1:] == u[:-1]
        opens[1:] = (e[1:] != e[:-1]) | (s[1:] != s[:-1]) | ((g[1:] | g[:-1]) & ~same_unit)
    opens |= _after_ends(work[by_lane], s, g, names)
    opens |= _split_mixed(work[by_lane], opens, timeline, names)
    rough = np.cumsum(opens) - 1
    count = int(rough[-1]) + 1 if len(rough) else 0
    ordered = work[by_lane]
    first_launch = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first_launch, rough, ordered)  # event order is launch order
    rank = np.empty(count, np.int64)
    rank[np.argsort(first_launch, kind="stable")] = np.arange(count)
    pass_of = np.full(len(timeline), NONE, np.int32)
    pass_of[ordered] = rank[rough]
    _adopt_memory(timeline, pass_of, is_memory & ~in_graph)
    return features(timeline, names, pass_of)


def _after_ends(ordered: I64, lane: I32, in_graph: Bool, names: NameEvidence) -> Bool:
    """Cuts behind kernels that end every pass of the engine (marker ``pass-end``).

    A lane without such kernels of its own (half of a pass split over two streams) is cut where the
    others are. One graph launch stays one pass.
    """
    ends = np.append([s.marker == "pass-end" for s in names.signatures], False)
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
    work = np.flatnonzero((pass_of != NONE) & ~timeline.is_memory)
    ids = pass_of[work]
    gpu = timeline.is_gpu_time[work]
    kernel = timeline.kind[work] == Kind.KERNEL
    duration = timeline.duration[work]
    big = np.iinfo(np.int64).max
    launch, start, end = np.full(count, big), np.full(count, big), np.full(count, -big)
    anchors = np.zeros((count, len(Code)), np.int64)
    np.add.at(anchors, (ids[kernel], names.code[work][kernel]), 1)
    everything = np.flatnonzero(pass_of != NONE)
    np.minimum.at(launch, pass_of[everything], timeline.launch[everything])
    np.minimum.at(start, pass_of[everything], timeline.start[everything])
    np.maximum.at(end, pass_of[everything], timeline.end[everything])
    units = np.full(count, -1)
    np.maximum.at(units, ids, timeline.unit[work])
    lowest = np.full(count, big)
    np.minimum.at(lowest, ids, timeline.unit[work])
    first_work = np.full(count, len(timeline) - 1)
    np.minimum.at(first_work, ids, work)
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
        kernels=np.bincount(ids[kernel], minlength=count).astype(np.int64),
        gpu_ns=_sum_by(ids[gpu], duration[gpu], count),
        anchors=anchors,
        width=_widths(ids, names.width[work], count),
        waits=_waits(timeline, pass_of, count),
        returned=_returned(timeline, pass_of, count),
    )


def _waits(timeline: Timeline, pass_of: I32, count: int) -> I64:
    """Waits of the host, and copies back to it, before the first launch of each pass."""
    out = timeline.copies_out.astype(np.int64)
    total = timeline.epoch + np.cumsum(out) - out
    events = np.flatnonzero(pass_of != NONE)
    first = np.full(count, len(timeline) - 1)
    np.minimum.at(first, pass_of[events], events)
    return np.asarray(total[first], np.int64)


def _sum_by(ids: I32, values: I64, count: int) -> I64:
    """Exact integer sums of `values` by id."""
    total = np.zeros(count, np.int64)
    np.add.at(total, ids, values)
    return total


def _returned(timeline: Timeline, pass_of: I32, count: int) -> I64:
    """Bytes copied back to the host by pass."""
    ids = pass_of[timeline.copies_out]
    return _sum_by(ids[ids != NONE], timeline.returned_bytes[ids != NONE], count)


def _widths(ids: I32, width: I32, count: int) -> I32:
    """The width that most kernels of a pass show; the larger one in a tie.

    A pass of M rows may run its head, or a reduction, on fewer rows: the majority is the pass.
    """
    result = np.full(count, NONE, np.int32)
    shown = np.flatnonzero(width != NONE)
    if not len(shown):
        return result
    pairs, votes = np.unique(
        np.stack([ids[shown].astype(np.int64), width[shown].astype(np.int64)]),
        axis=1,
        return_counts=True,
    )
    order = np.lexsort((pairs[1], votes, pairs[0]))
    result[pairs[0][order]] = pairs[1][order]  # the last one written has most votes
    return result
