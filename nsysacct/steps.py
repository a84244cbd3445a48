"""Cutting a timeline into phases by marker kernels that run once a step.

Serving engines run the same library kernels in draft and target, so no name tells the phases apart.
But a verify step ends in a rejection sampler, and what follows it, up to the host's next step, is the
draft. Registries mark those kernels (`marker`):

``accept``       part of accepting drafts; the last one ends the verify pass
``draft-start``  the step's sampling is done, drafting starts (also after a prompt)
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
    draft_start = _marked(names, "draft-start")
    drafting = draft_step | (names.code == Code.DRAFT)
    step = _step_numbers(timeline, accept | draft_start, drafting)
    opens = np.zeros(count, bool)
    if count:
        opens[0] = True
        opens[1:] = step[1:] != step[:-1]
    step_first = np.flatnonzero(opens)
    step_last = np.append(step_first[1:], count) - 1
    has_model_draft = bool(drafting.any())
    for first, last in zip(step_first, step_last, strict=True):
        turn = _draft_from(first, last, accept, draft_start, drafting, has_model_draft)
        if turn is not None and turn <= last:
            opens[turn] = True
    segment_of = (np.cumsum(opens) - 1).astype(np.int32)
    segments = int(segment_of[-1]) + 1 if count else 0
    code = np.full(segments, Code.TARGET, np.uint8)
    starts = np.flatnonzero(opens)
    ends = np.append(starts[1:], count)
    turned = np.isin(starts, step_first, invert=True)
    code[turned] = Code.DRAFT
    for i, (a, b) in enumerate(zip(starts, ends, strict=True)):
        if not turned[i] and accept[a:b].any():
            code[i] = Code.VERIFY
    return Steps(segment_of=segment_of, code=code)


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
    if len(accepted):
        return first + int(accepted[-1]) + 1 if has_model_draft else None
    started = np.flatnonzero(draft_start[inside])
    if len(started) and drafting[first + started[-1] : last + 1].any():
        return first + int(started[-1])
    return None
