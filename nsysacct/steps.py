"""Cutting a timeline into phases by marker kernels that run once a step.

Serving engines run the same library kernels in draft and target, so no name tells the phases apart.
But a verify step ends in a rejection sampler, and what follows it, up to the host's next step, is the
draft. Registries mark those kernels (`marker`):

``accept``       part of accepting drafts; the last one ends the verify pass
``sampled``      the last of a step's sampling: what follows is the draft, if there is one
``draft-start``  the first of a step's drafting (also after a prompt)
``draft-step``   once a draft pass after the first
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsysacct.evidence import Code, NameEvidence
from nsysacct.timeline import Timeline
from nsysacct.trace import NONE

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Steps:
    """Segments of a timeline, in launch order.

    Attributes
    ----------
    segment_of : int32, one per event
        Segment of the event.
    code : uint8, one per segment
        `Code.VERIFY`, `Code.DRAFT`, or `Code.TARGET` for a step without acceptance.
    """

    segment_of: I32
    code: npt.NDArray[np.uint8]


def marked_engine(names: NameEvidence) -> bool:
    """Whether the registry marks steps: such an engine runs in steps, speculation on or off."""
    return any(s.marker == "accept" for s in names.signatures)


def marked(names: NameEvidence, marker: str) -> Bool:
    """Events whose signature carries `marker`."""
    flags = np.array([s.marker == marker for s in names.signatures] + [False], bool)
    return flags[names.signature]


def cut_steps(timeline: Timeline, names: NameEvidence) -> Steps:
    """Cut `timeline` at markers and at the synchronisations that end a step.

    A step ends where the host waits for what it copied back (the sampled tokens). A wait between an
    acceptance and a later draft pass of the same round is not the end of the step.
    """
    count = len(timeline)
    accept, draft_step = marked(names, "accept"), marked(names, "draft-step")
    sampled = marked(names, "sampled")
    # drafting starts at its first kernel, or with the launch after the last of sampling
    draft_start = marked(names, "draft-start") | np.concatenate([[False], sampled[:-1]])
    drafting = draft_step | (names.code == Code.DRAFT)
    starts = (
        [0, *_boundaries(timeline, names, accept, draft_start, sampled, drafting)] if count else []
    )
    step_first = np.array(starts, np.int64)
    step_last = np.append(step_first[1:], count) - 1
    has_model_draft = bool(drafting.any()) or _works_on(
        timeline, step_first, step_last, accept, draft_start
    )
    turns: list[int] = []
    for i, (first, last) in enumerate(zip(step_first, step_last, strict=True)):
        turn = _draft_from(first, last, accept, draft_start, drafting, has_model_draft)
        if turn is None or turn > last:
            continue
        turns.append(turn)
        tail = _bookkeeping(timeline, turn, last)
        if tail <= last and i + 1 < len(step_first):
            step_first[i + 1] = tail  # it prepares the step that follows
    first_of = np.unique(np.concatenate([step_first, np.array(turns, np.int64)]))
    segment_of = (np.searchsorted(first_of, np.arange(count), side="right") - 1).astype(np.int32)
    code = np.full(len(first_of), Code.TARGET, np.uint8)
    code[segment_of[accept]] = Code.VERIFY
    code[np.isin(first_of, turns)] = Code.DRAFT
    return Steps(segment_of=segment_of, code=code)


FEW = 4
"""Launches after sampling up to which they are bookkeeping, not a draft pass."""


def _works_on(
    timeline: Timeline, step_first: I64, step_last: I64, accept: Bool, draft_start: Bool
) -> bool:
    """Whether steps usually go on with model work after sampling, though no kernel of theirs says so.

    One draft a round needs none of the kernels that prepare the second.
    """
    going = [
        bool(timeline.unit[last] - timeline.unit[turn] >= FEW)
        and bool((timeline.graph[turn : last + 1] != NONE).any())
        for first, last in zip(step_first.tolist(), step_last.tolist(), strict=True)
        if accept[first : last + 1].any()
        and (turn := _draft_from(first, last, accept, draft_start, accept, True)) is not None
        and turn <= last
    ]
    return bool(going) and sum(going) > len(going) / 2


TAIL = 0.1
"""Eager work after the last graph of a draft, as a share of that graph, up to which it is bookkeeping."""


def _bookkeeping(timeline: Timeline, turn: int, last: int) -> int:
    """First event after a draft that ends in a whole graph; ``last + 1`` when work goes on after it.

    A drafter that replays whole graphs stores its tokens in a few tiny kernels; one whose head runs
    outside its graphs still has a matrix product to do.
    """
    inside = np.arange(turn, last + 1)
    graphs = inside[timeline.graph[inside] != NONE]
    if not len(graphs):
        return last + 1
    end = int(graphs[-1])
    own = timeline.spent_ns(inside[timeline.unit[inside] == timeline.unit[end]])
    rest = inside[inside > end]
    return end + 1 if timeline.spent_ns(rest[timeline.is_gpu_time[rest]]) < TAIL * own else last + 1


def _boundaries(
    timeline: Timeline,
    names: NameEvidence,
    accept: Bool,
    draft_start: Bool,
    sampled: Bool,
    drafting: Bool,
) -> list[int]:
    """First event of each step but the first.

    Between the last marker of one step and the first of the next, one step ends. It ends after the
    step's last drafting kernel, where the host waits for what it copied back; a rank that never
    waits (tensor parallel) starts the next step with the longest pause before copying inputs in.
    """
    count = len(timeline)
    changes = np.flatnonzero(timeline.epoch[1:] != timeline.epoch[:-1]) + 1
    copied_back = np.concatenate([[0], np.cumsum(timeline.copies_out)])
    drafting_at = np.flatnonzero(drafting)
    every_step_marked = bool(sampled.any())
    cuts: list[int] = []
    previous = 0
    groups = _marker_groups(accept, draft_start, names)
    limits = [(0, groups[0][0])] if groups else [(0, count)]
    limits += [
        (last, groups[i + 1][0] if i + 1 < len(groups) else count)
        for i, (_, last) in enumerate(groups)
    ]
    for i, (after, before) in enumerate(limits):
        inside = drafting_at[(drafting_at > after) & (drafting_at < before)]
        low = int(inside[-1]) if len(inside) else after
        waits = changes[(changes > low) & (changes < before)]
        returned = [int(c) for c in waits if copied_back[c] > copied_back[previous]]
        forced = i > 0 and before < count
        if returned:
            found = returned[:1] if every_step_marked and i else returned
        elif forced:
            found = [int(waits[0])] if len(waits) else [_longest_pause(timeline, low + 1, before)]
        else:
            found = []
        for nth, c in enumerate(found):
            if (forced and not nth) or copied_back[c] > copied_back[previous]:
                cuts.append(c)
                previous = c
    return cuts


def _marker_groups(accept: Bool, draft_start: Bool, names: NameEvidence) -> list[tuple[int, int]]:
    """First and last marker of each step.

    A marker seen again, or an acceptance after a draft start, is the next step's.
    """
    groups: list[tuple[int, int]] = []
    seen: set[int] = set()
    started = False
    for event in np.flatnonzero(accept | draft_start):
        key = int(names.signature[event]) if accept[event] else NONE
        if not groups or key in seen or (started and accept[event]):
            groups.append((int(event), int(event)))
            seen, started = set(), False
        else:
            groups[-1] = (groups[-1][0], int(event))
        seen.add(key)
        started |= bool(draft_start[event])
    return groups


def _longest_pause(timeline: Timeline, low: int, high: int) -> int:
    """Event in [low, high) before which the host paused longest, inputs being copied in if any are."""
    inside = np.arange(min(low, high - 1), high)
    inputs = inside[timeline.copies_in[inside]]
    candidates = inputs if len(inputs) else inside
    pauses = timeline.launch[candidates] - timeline.launch[np.maximum(candidates - 1, 0)]
    return int(candidates[int(np.argmax(pauses))])


def _draft_from(
    first: int, last: int, accept: Bool, draft_start: Bool, drafting: Bool, has_model_draft: bool
) -> int | None:
    """First event of the draft in one step; None when the step drafts nothing."""
    inside = slice(first, last + 1)
    accepted = np.flatnonzero(accept[inside])
    started = np.flatnonzero(draft_start[inside])
    if len(accepted):
        if not has_model_draft:
            return None
        later = started[started > accepted[-1]]
        return first + int(later[0] if len(later) else accepted[-1] + 1)
    if len(started) and drafting[first + started[-1] : last + 1].any():
        return first + int(started[-1])
    return None
