"""NVTX ranges projected on GPU work: the launching API call lies in a range that names a phase.

A kernel belongs to the range that launched it, however much later it ran. Source: NVTX_EVENTS
(push/pop and start/end ranges), joined by the thread and host time of the launching call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from nsysacct.evidence import Code
from nsysacct.timeline import Timeline
from nsysacct.trace import NONE, NvtxKind, Trace

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

_WORDS = {
    "draft": Code.DRAFT, "drafting": Code.DRAFT, "propose": Code.DRAFT, "proposal": Code.DRAFT,
    "speculate": Code.DRAFT, "verify": Code.VERIFY, "verification": Code.VERIFY,
    "target_verify": Code.VERIFY, "replay": Code.REPLAY, "prefill": Code.PREFILL,
    "prompt": Code.PREFILL, "decode": Code.DECODE, "autoregressive": Code.DECODE,
    "warmup": Code.OTHER, "warm_up": Code.OTHER,
}  # fmt: skip
"""Words that name a phase when they are the whole text of a range, but for a prefix and a number."""

_TEXT = re.compile(r"^(?:[\w.]+\s*[:/]\s*)?([a-z]+(?:[_-][a-z]+)*?)(?:[_ -]?(?:[a-z]|#?\d+))?$")


@dataclass(frozen=True, slots=True)
class Rule:
    """Range text (glob, case-sensitive) -> phase."""

    pattern: str
    code: Code


def default_code(text: str) -> Code | None:
    """Phase that a range text names by itself, or None.

    Examples
    --------
    >>> default_code("T:draft #12").name, default_code("prefill_b").name
    ('DRAFT', 'PREFILL')
    >>> default_code("decode L16 ctx0 n=5") is None
    True
    """
    found = _TEXT.match(text.strip().lower())
    return _WORDS.get(found.group(1).replace("-", "_")) if found else None


@dataclass(frozen=True, slots=True)
class Projection:
    """What NVTX says of each event.

    Attributes
    ----------
    code : uint8, one per event
        `Code`; UNKNOWN outside mapped ranges.
    range_of : int64, one per event
        Innermost mapped range (index into ``Trace.nvtx``); NONE outside.
    verify_ranges : int
        Outermost ranges of this process that name the verify phase: a witness for rounds.
    mapped : dict
        Range text -> phase name, for those that occur.
    verify_steps : int or None
        Ranges around a step that runs more rows than it has requests, so that it verifies drafts: a
        witness for rounds. None where no range tells a step's rows.
    """

    code: U8
    range_of: I64
    verify_ranges: int
    mapped: dict[str, str]
    verify_steps: int | None = None


def project(
    timeline: Timeline,
    trace: Trace,
    rules: Sequence[Rule],
    *,
    defaults: bool,
    steps: Sequence[re.Pattern[str]] = (),
) -> Projection:
    """Look up the innermost mapped range around each launching call.

    Push/pop ranges are matched on the launching thread; where no mapped range lies on that thread,
    any thread of the process counts (engines that mark in one thread and launch from another).

    Parameters
    ----------
    timeline : Timeline
    trace : Trace
    rules : sequence of Rule
        The first that matches a text names its phase.
    defaults : bool
        Whether texts that name a phase by themselves count (`default_code`).
    steps : sequence of re.Pattern
        Texts of ranges around one step (`EngineSpec.steps`).
    """
    ranges = trace.nvtx
    count = len(timeline)
    of_name = np.array(
        [_map(text, rules, defaults) for text in trace.nvtx_names] or [Code.UNKNOWN], np.uint8
    )
    mine = np.flatnonzero(ranges.process == timeline.process)
    verify_steps = _verify_steps(trace, ranges.text[mine], steps)
    mine = mine[of_name[ranges.text[mine]] != Code.UNKNOWN] if len(mine) else mine
    if not len(mine):
        return replace(nothing(count), verify_steps=verify_steps)
    codes = of_name[ranges.text[mine]]
    start = ranges.start[mine]
    end = np.where(ranges.end[mine] == NONE, np.iinfo(np.int64).max, ranges.end[mine])
    thread = ranges.thread[mine]
    everywhere = ranges.kind[mine] == NvtxKind.START_END
    marked = set(np.unique(thread[~everywhere]).tolist())
    range_of = np.full(count, NONE, np.int64)
    for t in np.unique(timeline.thread):
        events = np.flatnonzero(timeline.thread == t)
        # a start/end range belongs to the process; a push/pop range to its thread, if that marks at all
        own = (
            np.flatnonzero((thread == t) | everywhere) if int(t) in marked else np.arange(len(mine))
        )
        found = _innermost(start[own], end[own], timeline.launch[events])
        range_of[events] = np.where(found == NONE, NONE, own[found])
    code = np.append(codes, np.uint8(Code.UNKNOWN))[range_of]
    names = {
        trace.nvtx_names[i]: Code(int(of_name[i])).name.lower()
        for i in np.unique(ranges.text[mine])
    }
    verify = codes == Code.VERIFY
    range_of = np.append(mine, NONE)[range_of]
    outermost = _outermost(start[verify], end[verify])
    return Projection(code, range_of, outermost, names, verify_steps)


def nothing(count: int) -> Projection:
    """The projection of a trace without mapped ranges (or with NVTX switched off)."""
    code = np.broadcast_to(np.uint8(Code.UNKNOWN), count)  # one element takes no memory a row
    return Projection(code, np.broadcast_to(np.int64(NONE), count), 0, {})


def _map(text: str, rules: Sequence[Rule], defaults: bool) -> Code:
    for rule in rules:
        if fnmatchcase(text, rule.pattern):
            return rule.code
    found = default_code(text) if defaults else None
    return Code.UNKNOWN if found is None else found


def _verify_steps(
    trace: Trace, text: npt.NDArray[np.int32], steps: Sequence[re.Pattern[str]]
) -> int | None:
    """Ranges whose text says that a step verified drafts; None where no text is that of a step."""
    found: int | None = None
    names, times = np.unique(text, return_counts=True)
    for name, count in zip(names.tolist(), times.tolist(), strict=True):
        match = next((m for s in steps if (m := s.fullmatch(trace.nvtx_names[name]))), None)
        if match is not None:
            drafts = int(match["rows"]) > int(match["requests"]) > 0
            found = (found or 0) + count * drafts
    return found


def _outermost(start: I64, end: I64) -> int:
    """Ranges that no earlier one contains."""
    if not len(start):
        return 0
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(end[order])
    return int(1 + (start[order][1:] >= reach[:-1]).sum())


def _innermost(start: I64, end: I64, at: I64) -> I64:
    """Index of the latest-opened range that is open at each time; NONE where none is."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    times = np.unique(np.concatenate([start, end]))
    segment = np.full(len(times) + 1, NONE, np.int64)
    active: list[tuple[int, int]] = []  # (-index, index): the latest opened first
    opened = 0
    for i, t in enumerate(times):
        while opened < len(start) and start[opened] <= t:
            heappush(active, (-opened, opened))
            opened += 1
        while active and end[active[0][1]] <= t:
            heappop(active)
        segment[i + 1] = order[active[0][1]] if active else NONE
    return segment[np.searchsorted(times, at, side="right")]
