"""Cutting a timeline into model passes: what the host launched between two synchronisations.

A pass is the work of one stream inside one epoch (between two host synchronisations); a graph launch
is a pass of its own. Passes are the words that rounds are spelled in: draft draft draft verify replay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsysacct.evidence import Code, NameEvidence
from nsysacct.groups import Groups, blocks, counts
from nsysacct.timeline import Kind, Timeline, moves_memory
from nsysacct.trace import NONE
from nsysacct.trace.encoding import distinct
from nsysacct.trace.tables import Ids

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
    work = ~is_memory | in_graph
    events = np.flatnonzero(work).astype(np.int32)
    unit, epoch, lane = timeline.unit[work], timeline.epoch[work], timeline.stream[work]
    graph = in_graph[work]
    if graph.any():
        # one graph launch may run on several streams: keep it together under its first event's stream
        first = np.flatnonzero(np.concatenate([[True], unit[1:] != unit[:-1]]))
        of_unit = np.repeat(lane[first], np.diff(np.append(first, len(unit))))
        lane = np.where(graph, of_unit, lane)
        del first, of_unit
    if len(events) and not (lane == lane[0]).all():  # epochs ascend already
        by_lane = np.lexsort((lane, epoch))
        events = events[by_lane]  # one after the other: each is a column of 10 million rows
        epoch = epoch[by_lane]
        lane = lane[by_lane]
        graph = graph[by_lane]
        unit = unit[by_lane]
        del by_lane
    opens = np.ones(len(events), bool)
    opens[1:] = (epoch[1:] != epoch[:-1]) | (lane[1:] != lane[:-1])
    opens[1:] |= (graph[1:] | graph[:-1]) & (unit[1:] != unit[:-1])
    del epoch, unit
    opens |= _after_ends(events, lane, graph, names)
    del lane, graph
    opens[_mixed(events, opens, timeline, names)] = True
    rough = np.cumsum(opens, dtype=np.int32)
    rough -= 1
    first_event = np.minimum.reduceat(events, np.flatnonzero(opens)) if len(events) else events
    rank = np.empty(len(first_event), np.int32)
    rank[np.argsort(first_event, kind="stable")] = np.arange(len(first_event), dtype=np.int32)
    pass_of = np.full(len(timeline), NONE, np.int32)
    pass_of[events] = rank[rough]  # event order is launch order
    _adopt_memory(timeline, pass_of, is_memory & ~in_graph)
    return features(timeline, names, pass_of)


def _after_ends(ordered: I32, lane: Ids, in_graph: Bool, names: NameEvidence) -> Bool:
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
    cuts = np.zeros(len(ordered), bool)
    cuts[1:] = ending[:-1]
    lanes, lane_of = distinct(lane)
    ends_itself = counts(lane_of[ending], len(lanes)) > 0
    if not ends_itself.all():
        before = np.zeros(int(ordered.max()) + 2, np.int32)
        before[ordered[ending] + 1] = 1
        turn = np.cumsum(before, dtype=np.int32)[ordered]  # ends of all lanes before each event
        foreign = ~ends_itself[lane_of[1:]]
        cuts[1:][foreign] = (turn[1:] != turn[:-1])[foreign]
    cuts &= ~in_graph
    return cuts


def _mixed(ordered: I32, opens: Bool, timeline: Timeline, names: NameEvidence) -> list[int]:
    """Extra cuts where exclusive anchors of different phases stand in one pass.

    Between two such anchors the cut goes before the largest pause of the host: launching a pass is
    a tight loop, and the engine decides something between two passes. A verify pass of one row runs
    single-row kernels of the target beside its own: where the two alternate they are one pass.
    """
    phase = names.phase[ordered]
    anchored = np.flatnonzero(phase != NONE).astype(np.int32)
    phase = phase[anchored]
    changes = np.flatnonzero(phase[1:] != phase[:-1])
    if not len(changes):
        return []
    left, right = anchored[changes], anchored[changes + 1]
    group = np.cumsum(opens, dtype=np.int32)
    inside = group[left] == group[right]
    left, right, changes, group = left[inside], right[inside], changes[inside], group[left[inside]]
    apart = ~_one_pass(phase[changes], phase[changes + 1], group)
    cuts = []
    for a, b in zip(left[apart].tolist(), right[apart].tolist(), strict=True):
        launch = timeline.launch[ordered[a : b + 1]]
        cuts.append(a + 1 + int(np.argmax(launch[1:] - launch[:-1])))
    return cuts


def _one_pass(left: Ids, right: Ids, group: I32) -> Bool:
    """Changes between target and verify anchors that alternate inside one group."""
    both = (Code.TARGET, Code.VERIFY)
    change = np.isin(left, both) & np.isin(right, both)
    times = np.bincount(group[change], minlength=int(group.max(initial=0)) + 1)
    alternate: Bool = change & (times[group] >= ALTERNATE)
    return alternate


ALTERNATE = 2
"""Changes between target and verify anchors from which on they are taken as one pass."""


def _adopt_memory(timeline: Timeline, pass_of: I32, memory: Bool) -> None:
    """Give each copy and set to a neighbouring pass: inputs to the next, the rest to the previous."""
    events = np.flatnonzero(memory)
    work = np.flatnonzero(pass_of != NONE).astype(np.int32)
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
    big = np.iinfo(np.int64).max
    nothing = len(timeline) - 1
    first_work, last_work = np.full(count, nothing), np.full(count, -1)
    start, end = np.full(count, big), np.full(count, -big)
    gpu_ns = np.zeros(count, np.int64)
    anchors = np.zeros((count, len(Code)), np.int64)
    for block in blocks(len(timeline)):
        work = ~moves_memory(timeline.kind[block]) & (pass_of[block] != NONE)
        events = np.flatnonzero(work) + block.start
        if not len(events):
            continue
        low, near = _near(pass_of[events])  # launches ascend, so a block holds a few passes of all
        span = slice(low, low + near.count)
        here = near.present + low
        first_work[here] = np.minimum(first_work[here], events[near.first()])
        last_work[here] = events[near.last()]
        np.minimum(start[span], near.least(timeline.start[events], big), out=start[span])
        np.maximum(end[span], near.most(timeline.end_of(events), -big), out=end[span])
        gpu_ns[span] += near.sum(timeline.duration[events])
        anchors[span] += _anchors(
            pass_of[events] - low,
            names.code[events],
            timeline.kind[events] == Kind.KERNEL,
            near.count,
        )
    first = first_work.copy()
    memory = np.flatnonzero(timeline.is_memory & (pass_of != NONE))
    np.minimum.at(first, pass_of[memory], memory)
    np.minimum.at(start, pass_of[memory], timeline.start[memory])
    np.maximum.at(end, pass_of[memory], timeline.end_of(memory))
    some = last_work >= 0
    single = some & (timeline.unit[first_work] == timeline.unit[last_work])
    # one launch: a graph launch is a pass of its own
    is_blind = single & (timeline.kind[first_work] == Kind.BLIND)
    graph = np.where(single, timeline.graph[first_work].astype(np.int64), NONE)
    return Passes(
        pass_of=pass_of,
        launch=timeline.launch[first],
        start=start,
        end=end,
        stream=timeline.stream[first_work].astype(np.int32),
        epoch=timeline.epoch[first_work],
        graph=graph,
        is_graph=(graph != NONE) | is_blind,
        is_blind=is_blind,
        kernels=anchors.sum(axis=1),
        gpu_ns=gpu_ns,
        anchors=anchors,
        width=_widths(names.width, pass_of, count),
        waits=_waits(timeline, first),
        returned=_returned(timeline, pass_of, count),
    )


def _near(ids: I32) -> tuple[int, Groups]:
    """Smallest id, and the groups of ids above it."""
    low = int(ids.min())
    return low, Groups.of(ids - low, int(ids.max()) - low + 1)


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


def _widths(width: Ids, pass_of: I32, count: int) -> I32:
    """The width that most kernels of a pass show; the larger one in a tie.

    A pass of M rows may run its head, or a reduction, on fewer rows: the majority is the pass.
    """
    result = np.full(count, NONE, np.int32)
    widths, code = distinct(width)
    if count * len(widths) > _TABLE:
        return _sorted_widths(width, pass_of, result)
    table = np.zeros((count, len(widths)), np.int64)
    for block in blocks(len(width)):
        shown = np.flatnonzero((width[block] != NONE) & (pass_of[block] != NONE))
        if not len(shown):
            continue
        ids = pass_of[block][shown]
        low, high = int(ids.min()), int(ids.max())
        ballot = (ids - low) * np.int64(len(widths)) + code[block][shown]
        votes = np.bincount(ballot, minlength=(high - low + 1) * len(widths))
        table[low : high + 1] += votes.reshape(-1, len(widths))
    if table.size:
        chosen = len(widths) - 1 - np.argmax(table[:, ::-1], axis=1)
        some = table.any(axis=1)
        result[some] = widths[chosen[some]]
    return result


def _sorted_widths(width: Ids, pass_of: I32, result: I32) -> I32:
    """Do as `_widths` without a table, into `result`."""
    shown = np.flatnonzero((width != NONE) & (pass_of != NONE))
    widths, code = distinct(width[shown])
    ballot = pass_of[shown].astype(np.int64) * len(widths) + code
    pairs, votes = np.unique(ballot, return_counts=True)
    passes, candidate = np.divmod(pairs, len(widths))
    order = np.lexsort((candidate, votes, passes))
    result[passes[order]] = widths[candidate[order]]  # the last one written has most votes
    return result
