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
from nsysacct.timeline import Kind, Timeline
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


def has_markers(names: NameEvidence) -> bool:
    """Whether the registry marks acceptance and the timeline shows such kernels."""
    return bool(_marked(names, "accept").any())


def _marked(names: NameEvidence, marker: str) -> Bool:
    """Events whose signature carries `marker`."""
    flags = np.array([s.marker == marker for s in names.signatures] + [False], bool)
    return flags[names.signature]


def cut_steps(timeline: Timeline, names: NameEvidence) -> Steps:
    """Cut `timeline` at markers and at the synchronisations that end a step.

    A step ends where the host waits for what it copied back (the sampled tokens). A wait between an
    acceptance and a later draft pass of the same round is not the end of the step.
    """
    count = len(timeline)
    accept, draft_step = _marked(names, "accept"), _marked(names, "draft-step")
    sampled = _marked(names, "sampled")
    # drafting starts at its first kernel, or with the launch after the last of sampling
    draft_start = _marked(names, "draft-start") | np.concatenate([[False], sampled[:-1]])
    drafting = draft_step | (names.code == Code.DRAFT)
    step = _step_numbers(timeline, accept | draft_start, drafting)
    opens = np.zeros(count, bool)
    if count:
        opens[0] = True
        opens[1:] = step[1:] != step[:-1]
    step_first = np.flatnonzero(opens)
    step_last = np.append(step_first[1:], count) - 1
    has_model_draft = bool(drafting.any())
    turns: list[int] = []
    for i, (first, last) in enumerate(zip(step_first, step_last, strict=True)):
        turn = _draft_from(first, last, accept, draft_start, drafting, has_model_draft)
        if turn is None or turn > last:
            continue
        turns.append(turn)
        tail = _bookkeeping(timeline, turn, last)
        if tail <= last and i + 1 < len(step_first):
            step_first[i + 1] = tail  # it prepares the step that follows
    starts = np.unique(np.concatenate([step_first, np.array(turns, np.int64)]))
    segment_of = (np.searchsorted(starts, np.arange(count), side="right") - 1).astype(np.int32)
    code = np.full(len(starts), Code.TARGET, np.uint8)
    code[segment_of[accept]] = Code.VERIFY
    code[np.isin(starts, turns)] = Code.DRAFT
    return Steps(segment_of=segment_of, code=code)


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
    own = timeline.duration[inside[timeline.unit[inside] == timeline.unit[end]]].sum()
    rest = inside[inside > end]
    return end + 1 if timeline.duration[rest[timeline.is_gpu_time[rest]]].sum() < TAIL * own else last + 1


def _step_numbers(timeline: Timeline, markers: Bool, drafting: Bool) -> I64:
    """Step of each event."""
    count = len(timeline)
    if not count:
        return np.zeros(0, np.int64)
    epoch = timeline.epoch
    changes = np.flatnonzero(epoch[1:] != epoch[:-1]) + 1
    copied_back = (timeline.kind == Kind.MEMCPY) & timeline.copies_out
    back_before = np.concatenate([[0], np.cumsum(copied_back)])
    if not copied_back.any():
        back_before = np.arange(count + 1)  # no copies recorded: every wait may end a step
    # the last marker before each event, and the next drafting event after it
    marker_at = np.flatnonzero(markers)
    drafting_at = np.flatnonzero(drafting)
    cuts = np.zeros(count, bool)
    previous = 0
    for c in changes:
        if back_before[c] == back_before[previous]:
            continue
        nth = int(np.searchsorted(marker_at, c))
        if nth and marker_at[nth - 1] >= previous:
            following = int(np.searchsorted(drafting_at, c))
            next_marker = marker_at[nth] if nth < len(marker_at) else count
            if following < len(drafting_at) and drafting_at[following] < next_marker:
                continue  # still the draft of this round
        cuts[c] = True
        previous = int(c)
    return np.cumsum(cuts)


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
