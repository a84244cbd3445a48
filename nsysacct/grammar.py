"""Reading passes as rounds: drafts, one verify pass, the target steps that put a rejection right.

What a target step is depends on where it stands: before the first round it is prompt processing or
plain decoding; between a verify pass and the next draft it is replay, if the engine replays; after
the last round it may be either, and only the run's own plan can say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nsysacct.errors import UsageError
from nsysacct.evidence import Code
from nsysacct.model import Finding, Semantics
from nsysacct.repetition import MIN_LAUNCHES
from nsysacct.semantics import REPLAY_STEPS, REPLAY_WIDTH
from nsysacct.trace import NONE

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Plan:
    """What surrounds the rounds, as the user knows it (``--plan``, ``--closing``).

    Attributes
    ----------
    before : tuple of (Code, int)
        Target steps before the first round, in order.
    closing : int or None
        Plain steps after the last round; None when not said.
    """

    before: tuple[tuple[Code, int], ...] = ()
    closing: int | None = None

    @classmethod
    def parse(cls, text: str) -> Plan:
        """Read ``"prefill=96 decode=64 prefill=96 rounds closing=2"``.

        Raises
        ------
        UsageError
            When a word is not one of prefill, decode, plain, closing, rounds, or a count is missing.
        """
        before: list[tuple[Code, int]] = []
        closing: int | None = None
        seen_rounds = False
        words = {"prefill": Code.PREFILL, "decode": Code.DECODE, "plain": Code.PLAIN}
        for token in text.replace(",", " ").split():
            word, _, count = token.partition("=")
            if word == "rounds" and not count and not seen_rounds:
                seen_rounds = True
            elif word in (*words, "closing") and count.isdecimal() and len(count) <= 18:
                if word == "closing":
                    closing = int(count)
                elif seen_rounds:
                    raise UsageError(
                        "--plan",
                        f"{token!r} stands after rounds",
                        "only closing=N may follow rounds",
                    )
                else:
                    before.append((words[word], int(count)))
            else:
                raise UsageError(
                    "--plan",
                    f"cannot read {token!r}",
                    'write it like "prefill=96 decode=64 rounds closing=2"',
                )
        return cls(tuple(before), closing)


@dataclass(slots=True)
class Layout:
    """Passes told apart by round.

    Attributes
    ----------
    code : uint8, one per pass
        `Code` with TARGET resolved to REPLAY, PREFILL, DECODE or PLAIN.
    round_of : int32, one per pass
        Round that the pass belongs to; NONE outside.
    verify : int64
        The (first) verify pass of each round.
    basis : object array, one per pass
    replay_steps, draft_passes : int32, one per round
    adopted : bool, one per pass
        Launched with another pass and part of it: no step of its own.
    """

    code: U8
    basis: npt.NDArray[np.object_]
    round_of: I32
    verify: I64
    replay_steps: I32
    draft_passes: I32
    adopted: npt.NDArray[np.bool_]
    findings: list[Finding] = field(default_factory=list)
    reconciled: str = ""

    @property
    def rounds(self) -> int:
        """Number of rounds: verify passes that ran on the GPU."""
        return len(self.verify)


def read_rounds(
    code: U8,
    basis: npt.NDArray[np.object_],
    epoch: I32,
    width: I32,
    is_graph: npt.NDArray[np.bool_],
    *,
    semantics: Semantics,
    k: int | None,
    plan: Plan,
    n_ok: Sequence[int] | None = None,
    returned: I64 | None = None,
) -> Layout:
    """Group coded passes into rounds and name the target steps by where they stand.

    Parameters
    ----------
    code, basis, epoch, width, is_graph
        One per pass, in launch order.
    semantics : Semantics
        Round rules of the engine.
    k : int or None
        Drafts a round, which bounds the replay steps.
    plan : Plan
    n_ok : sequence of int, optional
        Histogram given by the user, which fixes the total of replay steps.
    returned : int64, optional
        Bytes copied back to the host after each pass: they may tell where a round ends.
    """
    code = code.copy()
    code[code == Code.MODEL] = Code.TARGET
    verify = _verify_passes(code, epoch)
    count = len(verify)
    round_of = np.full(len(code), NONE, np.int32)
    # a pass belongs to the round whose verify pass comes next (drafts) or came last (the rest)
    index = np.arange(len(code))
    coming = np.searchsorted(verify, index)
    drafts = code == Code.DRAFT
    round_of[drafts & (coming < count)] = coming[drafts & (coming < count)]
    after = np.searchsorted(verify, index, side="right") - 1
    in_verify = code == Code.VERIFY
    round_of[in_verify] = after[in_verify]
    layout = Layout(
        code=code,
        basis=basis.copy(),
        round_of=round_of,
        verify=verify,
        replay_steps=np.zeros(count, np.int32),
        adopted=np.zeros(len(code), bool),
        draft_passes=np.bincount(round_of[drafts & (round_of != NONE)], minlength=count).astype(
            np.int32
        ),
    )
    _name_steps(layout, width, semantics, k, plan, n_ok, returned)
    layout.reconciled = _reconcile(layout, is_graph)
    replayed = (code == Code.REPLAY) & (after >= 0)
    round_of[replayed] = after[replayed]
    layout.replay_steps = np.bincount(round_of[replayed], minlength=count).astype(np.int32)
    return layout


def _verify_passes(code: U8, epoch: I32) -> I64:
    """First pass of each verify; later pieces in the same epoch belong to it."""
    verify = np.flatnonzero(code == Code.VERIFY)
    drafting = np.concatenate([[0], np.cumsum(code == Code.DRAFT)])
    first: list[int] = []
    for i in verify:
        if first:
            fresh = drafting[i] > drafting[first[-1]]
            if not fresh and epoch[i] == epoch[first[-1]]:
                continue
        first.append(int(i))
    return np.array(first, np.int64)


def _name_steps(
    layout: Layout,
    width: I32,
    semantics: Semantics,
    k: int | None,
    plan: Plan,
    n_ok: Sequence[int] | None,
    returned: I64 | None,
) -> None:
    """Resolve `Code.TARGET` by position."""
    code, verify = layout.code, layout.verify
    steps = np.flatnonzero(code == Code.TARGET)
    plain = np.where(width[steps] == 1, Code.DECODE, Code.PLAIN)
    if not len(verify):
        code[steps] = plain
        _apply_plan(layout, steps, plan)
        return
    begin = int(verify[0])
    early, late = steps < begin, steps > verify[-1]
    code[steps[early]] = plain[early]
    _apply_plan(layout, steps[early], plan)
    middle = steps[~early & ~late]
    marked = bool((code == Code.REPLAY).any())  # the run itself names its replay: the rest is none
    if marked or not _replays_in_steps(semantics.replay):
        rest = ~early
        code[steps[rest]] = plain[rest]
        return
    limit = _max_replay(semantics.replay, k)
    ends = None if returned is None else _ends(code, verify, returned, limit)
    drafting = np.concatenate([[0], np.cumsum(code == Code.DRAFT)])
    after = np.searchsorted(verify, middle, side="right") - 1
    stray = drafting[middle] > drafting[verify[after]]  # a target step between draft and verify
    code[middle[stray]] = Code.PLAIN
    runs, sizes = np.unique(after[~stray], return_counts=True)
    foreign: dict[int, int] = {}  # round -> target steps behind its end
    unclear: dict[int, int] = {}  # round -> target steps, some of them surely no replay
    for run, size in zip(runs, sizes, strict=True):
        mine = middle[~stray][after[~stray] == run]
        too_many = limit is not None and size > limit
        code[mine] = Code.PLAIN if too_many else Code.REPLAY
        if too_many and ends is not None and ends[run] != NONE:
            code[mine[: ends[run]]] = Code.REPLAY
            foreign[int(run)] = int(size - ends[run])
        elif too_many:
            unclear[int(run)] = int(size)
    if foreign:
        layout.findings.append(_after_ends("another-request", foreign, "of another request"))
    if unclear:
        layout.findings.append(
            Finding(
                kind="long-replay",
                severity="warning",
                detail=f"{_each(unclear)} target steps follow {_rounds(unclear)}, at most {limit} can be "
                "replay: counted as plain (another request between?)",
                remedy="capture one request at a time, or mark phases with NVTX",
            )
        )
    end = None if ends is None or ends[-1] == NONE else int(ends[-1])
    _name_tail(layout, steps[late], semantics, k, plan, n_ok, end)


def _ends(code: U8, verify: I64, returned: I64, limit: int | None) -> I64 | None:
    """Target steps of each round before its results are copied back, NONE where none are.

    An engine that copies the results of a round back once, when its replay is done, shows by that
    where the round ends. None unless all rounds do so whose end the next drafts show.
    """
    drafts = np.flatnonzero(code == Code.DRAFT)
    steps = np.flatnonzero(code == Code.TARGET)
    copied = np.flatnonzero(returned > 0)
    ends = np.full(len(verify), NONE, np.int64)
    shown = 0
    for r, begin in enumerate(verify.tolist()):
        last = r + 1 == len(verify)
        bound = len(code) if last else int(verify[r + 1])
        first_draft = np.searchsorted(drafts, begin)
        stop = min(bound, int(drafts[first_draft]) if first_draft < len(drafts) else bound)
        mine = steps[np.searchsorted(steps, begin) : np.searchsorted(steps, stop)]
        copies = copied[np.searchsorted(copied, begin) : np.searchsorted(copied, stop)]
        held = int((mine <= copies[0]).sum()) if len(copies) else NONE
        if limit is None or held <= limit:
            ends[r] = held
        if not last and (limit is None or len(mine) <= limit):
            if len(copies) != 1 or held != len(mine):
                return None
            shown += bool(len(mine))
    return ends if shown >= MIN_LAUNCHES else None


def _after_ends(kind: str, steps: Mapping[int, int], what: str) -> Finding:
    """Target steps behind the ends of rounds; rounds count from 0, as everywhere."""
    many = "" if len(steps) == 1 else "s"
    return Finding(
        kind=kind,
        severity="info",
        detail=f"{_each(steps)} target steps follow the cop{'ies' if many else 'y'} of the results of "
        f"{_rounds(steps)}, with which all others end: {what}",
    )


MANY_ROUNDS = 5
"""Rounds that a finding names before it stops."""


def _each(steps: Mapping[int, int]) -> str:
    """How many steps follow each round."""
    low, high = min(steps.values()), max(steps.values())
    return str(low) if low == high else f"{low} to {high}"


def _rounds(steps: Mapping[int, int]) -> str:
    """The rounds, by number; of many the first ones."""
    numbers = sorted(steps)
    if len(numbers) == 1:
        return f"round {numbers[0]}"
    some = ", ".join(map(str, numbers[:MANY_ROUNDS]))
    if len(numbers) <= MANY_ROUNDS:
        return f"each of the rounds {some}"
    return f"each of {len(numbers)} rounds ({some}, ...)"


def _replays_in_steps(rule: str) -> bool:
    """Whether a replay is single-row target steps, whose place alone tells them from plain ones."""
    rows = REPLAY_WIDTH.get(rule)
    return rows is not None and rows(0) == 1


def _max_replay(rule: str, k: int | None) -> int | None:
    return None if k is None else max(REPLAY_STEPS[rule](n, k) for n in range(k + 1))


def _name_tail(
    layout: Layout,
    tail: I64,
    semantics: Semantics,
    k: int | None,
    plan: Plan,
    n_ok: Sequence[int] | None,
    end: int | None,
) -> None:
    """Name the target steps after the last verify pass: replay of the last round, or closing."""
    code = layout.code
    named = np.isin(code[layout.verify[-1] :], (Code.REPLAY, Code.DECODE, Code.PLAIN, Code.PREFILL))
    if not len(tail) and named.any():
        return  # the run's own marks named them
    limit = _max_replay(semantics.replay, k)
    replay = len(tail) if limit is None else min(len(tail), limit)
    if plan.closing is not None:
        replay = len(tail) - plan.closing
        if replay < 0 or (limit is not None and replay > limit):
            layout.findings.append(
                Finding(
                    kind="closing",
                    severity="warning",
                    detail=f"--closing {plan.closing} does not fit: {len(tail)} target steps follow the last "
                    f"verify pass"
                    + ("" if limit is None else f", of which at most {limit} can be replay"),
                    remedy="check --closing, or leave it out",
                )
            )
            replay = max(0, len(tail) - plan.closing)
        elif end is not None and end != replay:
            layout.findings.append(
                Finding(
                    kind="closing",
                    severity="warning",
                    detail=f"--closing {plan.closing} leaves {replay} steps as replay of the last round, but its "
                    f"results were copied back after {end}, with which all others end",
                    remedy=f"check --closing; {len(tail) - end} would agree",
                )
            )
    elif n_ok is not None and k is not None and len(n_ok) == k + 1:
        total = sum(c * REPLAY_STEPS[semantics.replay](n, k) for n, c in enumerate(n_ok))
        earlier = int((code == Code.REPLAY).sum())
        if 0 <= total - earlier <= len(tail):
            replay = total - earlier
    elif end is not None:
        replay = end
        if end < len(tail):
            layout.findings.append(
                _after_ends("closing", {layout.rounds - 1: len(tail) - end}, "closing steps")
            )
    elif replay:
        layout.basis[tail[:replay]] = "pattern"
        layout.findings.append(
            Finding(
                kind="closing",
                severity="warning",
                detail=f"{len(tail)} target steps follow the last verify pass; {replay} counted as its replay, "
                "but they may be closing steps",
                remedy="say how many with --closing N",
            )
        )
    code[tail[:replay]] = Code.REPLAY
    code[tail[replay:]] = Code.PLAIN


def _apply_plan(layout: Layout, steps: I64, plan: Plan) -> None:
    """Name the steps before the rounds as the plan says, when the counts agree."""
    if not plan.before:
        return
    planned = sum(count for _, count in plan.before)
    if planned != len(steps):
        layout.findings.append(
            Finding(
                kind="plan",
                severity="warning",
                detail=f"--plan says {planned} target steps before the rounds, the trace has {len(steps)}",
                remedy="check the plan; the steps stay in the plain bucket",
            )
        )
        return
    at = 0
    for name, count in plan.before:
        layout.code[steps[at : at + count]] = name
        at += count


def _reconcile(layout: Layout, is_graph: npt.NDArray[np.bool_]) -> str:
    """Graph launches as a sum by phase: ``299 = 96 prefill + 64 decode + 96 prefill + 41 replay + 2 closing``."""
    launches = np.flatnonzero(is_graph)
    begin = layout.verify[0] if layout.rounds else len(is_graph)
    before: list[tuple[str, int]] = []
    inside: dict[str, int] = {}
    for i in launches:
        label = Code(int(layout.code[i])).name.lower()
        if i < begin and label not in ("draft", "verify"):
            same = bool(before) and before[-1][0] == label
            before[-1:] = [(label, before[-1][1] + 1)] if same else [*before[-1:], (label, 1)]
        else:
            ends = layout.rounds and i > layout.verify[-1] and label in ("plain", "decode")
            label = "closing" if ends else label
            inside[label] = inside.get(label, 0) + 1
    parts = [*before, *inside.items()]
    return f"{len(launches)} = " + " + ".join(f"{n} {label}" for label, n in parts) if parts else ""
