"""Second passes of the target: what an engine runs again after it restored a checkpoint.

A target that cannot drop the rejected rows of a verify pass restores the state it saved before the pass,
and verifies the accepted drafts once more. Such a pass has the kernels of a verify pass and no more rows;
two things tell it from the next round's:

- nothing was drafted in between. A draft model that follows the target in a catch-up pass of the same
  rows drafts nothing by that; it counts as such a pass where it comes after nearly every verify pass;
- the state was brought back: far more bytes were copied to the GPU than the inputs of a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsysacct.evidence import Code
from nsysacct.groups import Groups
from nsysacct.passes import Passes
from nsysacct.timeline import Timeline
from nsysacct.trace import NONE

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

HABIT = 0.9
"""Share of verify passes that a catch-up pass must follow, for passes of its shape to be catch-up passes."""

STATE_TIMES = 4
"""A restored state is more than so many times the usual inputs of a pass."""

STATE_BYTES = 1 << 16
"""And so many bytes beyond that."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A pass of the target with several rows, and the draft passes since the one before."""

    at: int
    previous: int
    drafts: tuple[int, ...]
    brought: int  # bytes copied to the GPU for it


def mark(
    timeline: Timeline,
    found: Passes,
    code: U8,
    basis: npt.NDArray[np.object_],
    brought_bytes: I64,
    *,
    certain: bool,
) -> list[str]:
    """Code second passes as replay, in place.

    Parameters
    ----------
    timeline : Timeline
    found : Passes
    code, basis
        One per pass, as `roles.assign` leaves them.
    brought_bytes : int64
        Sizes of the copies from the host, in timeline order.
    certain : bool
        The user says that the engine runs second passes: then one needs no copy of the state to show.

    Returns
    -------
    list of str
        What a reader must know about them; empty when there are none.
    """
    steps = _steps(timeline, found, code, brought_bytes)
    if not steps:
        return []
    usual = float(np.quantile([s.brought for s in steps], 0.25))  # at least half bring no state
    drafted = bool((code == Code.DRAFT).any())
    catches_up = _catch_up(found, steps)
    second: list[int] = []
    restored = 0
    for step in steps:
        rows, before = int(found.width[step.at]), int(found.width[step.previous])
        known = NONE not in (rows, before)
        if step.previous in second or (known and rows > before):
            continue  # a round has one second pass, of no more rows
        state = step.brought > STATE_TIMES * usual + STATE_BYTES
        fresh = [d for d in step.drafts if not (catches_up and _follows(found, d, step.previous))]
        if fresh:
            again = state and len(step.drafts) == 1
        elif step.drafts:
            again = True
        else:
            again = state or (certain and (drafted or (known and rows < before)))
        if again:
            second.append(step.at)
            restored += state
    if not second:
        return []
    code[second] = Code.REPLAY
    basis[second] = "positional" if certain else "pattern"
    how = f"; before {restored} of them the state was copied back" if restored else ""
    if not drafted and not restored:
        how = "; by their rows alone: a second pass of as many rows as the first counts as a round"
    return [
        f"{len(second)} target passes run again what a verify pass left, with nothing drafted in between: "
        f"replay from a checkpoint{how}"
    ]


def _steps(timeline: Timeline, found: Passes, code: U8, brought_bytes: I64) -> list[_Step]:
    """Passes of verify shape that come next after another one on the target's stream."""
    verify = np.flatnonzero(code == Code.VERIFY)
    if not len(verify):
        return []
    streams, counts = np.unique(found.stream[verify], return_counts=True)
    lane = found.stream == streams[int(np.argmax(counts))]
    most = int(found.width[verify].max())
    shaped = code == Code.VERIFY
    shaped |= (code == Code.PREFILL) & (found.width > 1) & (found.width <= most)
    shaped &= ~_last_row_only(found, verify)
    of_target = (Code.VERIFY, Code.PREFILL, Code.TARGET)
    target = np.flatnonzero(lane & np.isin(code, of_target))
    drafts = np.flatnonzero(code == Code.DRAFT)
    ids = found.pass_of[timeline.copies_in]
    brought = Groups.of(ids[ids != NONE], len(found)).sum(brought_bytes[ids != NONE])
    steps: list[_Step] = []
    led: set[int] = set()  # passes that a verify pass leads to: the next one may follow a replay
    for previous, at in zip(target[:-1].tolist(), target[1:].tolist(), strict=True):
        leads = code[previous] == Code.VERIFY or previous in led
        if not leads or not shaped[at] or found.epoch[previous] == found.epoch[at]:
            continue
        led.add(at)
        between = drafts[np.searchsorted(drafts, previous) : np.searchsorted(drafts, at)]
        steps.append(_Step(at, previous, tuple(between.tolist()), int(brought[at])))
    return steps


def _last_row_only(found: Passes, verify: I64) -> npt.NDArray[np.bool_]:
    """Passes of several rows that return one row's results, as the tail of a prompt does.

    Nothing is one where verify passes do not return a row's results for each row.
    """
    width, returned = found.width[verify], found.returned[verify]
    known = verify[(width > 1) & (returned > 0)]
    rows = found.returned[known] / found.width[known]
    if not len(rows) or (rows != rows[0]).any():
        return np.zeros(len(found), bool)
    one: npt.NDArray[np.bool_] = (found.width > 1) & (found.returned == rows[0])
    return one


def _follows(found: Passes, draft: int, verify: int) -> bool:
    """Whether a pass of the draft's stream runs the rows of the verify pass, for no result."""
    rows = int(found.width[draft])
    if rows == NONE:
        return bool(found.returned[draft] == 0)
    # two rows may be a draft over two accepted tokens: it returns what it drafted
    return rows == found.width[verify] and (rows > 2 or bool(found.returned[draft] == 0))


def _catch_up(found: Passes, steps: Sequence[_Step]) -> bool:
    """Whether the draft model follows each verify pass in a pass of its own."""
    after = [_follows(found, s.drafts[0], s.previous) for s in steps if s.drafts]
    return bool(after) and sum(after) >= HABIT * len(after)
