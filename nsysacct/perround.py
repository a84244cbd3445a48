"""Rounds as rows, and the wall window that they span."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nsysacct import structure
from nsysacct.attribution import Attribution
from nsysacct.evidence import Code
from nsysacct.groups import Groups, blocks, counts, sums
from nsysacct.intervals import covered_ns
from nsysacct.model import BUCKETS, IN_ROUNDS, RoundRow, Semantics, Window
from nsysacct.semantics import n_ok_from_replay
from nsysacct.structure import Structure
from nsysacct.timeline import Kind, Timeline, takes_gpu_time
from nsysacct.trace import NONE

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]

_IN_ROUNDS = np.array([bucket in IN_ROUNDS for bucket in BUCKETS])
"""Whether each bucket is part of rounds."""


def round_of_events(line: Timeline, found: Structure, placed: Attribution) -> I32:
    """Round of each event by launch time; draft, verify and replay always have one."""
    rounds = found.layout.rounds
    if not rounds:
        return np.full(len(line), NONE, np.int32)
    starts = structure.round_starts(found)
    # launches ascend: each round takes those from its own start to the next one's
    first = np.searchsorted(line.launch, np.maximum.accumulate(starts))
    bounds = np.concatenate([[0], first, [len(line)]])
    index = np.repeat(np.arange(-1, rounds, dtype=np.int32), np.diff(bounds))
    inside = _IN_ROUNDS[placed.bucket]
    before = slice(0, int(bounds[1]))
    index[before][inside[before]] = 0
    end = int(starts[-1])
    if inside.any():
        last = len(inside) - 1 - int(np.argmax(inside[::-1]))
        end = max(end, int(line.launch[last]))
    index[np.searchsorted(line.launch, end, side="right") :] = NONE
    return index


def rounds_and_window(
    line: Timeline,
    found: Structure,
    placed: Attribution,
    round_of: I32,
    semantics: Semantics,
) -> tuple[list[RoundRow], Window]:
    """Per-round rows and the wall window of all rounds."""
    rounds = found.layout.rounds
    if not rounds:
        return [], _whole_window(line)
    start, end = _spans(line, placed, round_of, rounds)
    # a pass of blind launches has no GPU time: its host time stands in
    empty = start == _NEVER
    start[empty] = structure.round_starts(found)[empty]
    end[empty] = start[empty]
    start = np.maximum.accumulate(start)
    close = np.append(start[1:], max(int(end[-1]), int(start[-1])))
    low, high = int(start[0]), int(close[-1])
    covered = np.zeros(rounds, np.int64)
    for parts in line.covered():
        covered += covered_ns(parts, start, close)
    gpu_ns = _by_bucket(line, placed, round_of, rounds)
    spent = {name: gpu_ns[BUCKETS.index(name)] for name in IN_ROUNDS}
    other = gpu_ns[~_IN_ROUNDS].sum(axis=0)
    copies = np.flatnonzero(line.is_memory & (round_of != NONE))
    memory = sums(round_of[copies], line.duration[copies], rounds)
    unit_first = np.concatenate([[True], line.unit[1:] != line.unit[:-1]]) & ~line.is_memory
    launches = counts(round_of[unit_first & (round_of != NONE)], rounds)
    layout = found.layout
    flags = _flags(close - start, found)
    rows = []
    for i in range(rounds):
        fits = _fitting_n_ok(
            semantics,
            int(layout.replay_steps[i]),
            found.k,
            i == rounds - 1 and bool(layout.findings),
        )
        rows.append(
            RoundRow(
                index=i,
                start_ns=int(start[i]),
                end_ns=int(close[i]),
                wall_ns=int(close[i] - start[i]),
                draft_ns=int(spent["draft"][i]),
                verify_ns=int(spent["verify"][i]),
                replay_ns=int(spent["replay"][i]),
                residual_ns=int(close[i] - start[i] - covered[i]),
                launches=int(launches[i]),
                other_ns=int(other[i]),
                mem_ns=int(memory[i]),
                width=structure.or_none(int(found.passes.width[layout.verify[i]])),
                draft_steps=int(layout.draft_passes[i]),
                replay_steps=int(layout.replay_steps[i]),
                n_ok=fits[0] if len(fits) == 1 else None,
                n_ok_basis="arithmetic" if len(fits) == 1 else None,
                flags=flags[i],
            )
        )
    total = int(covered.sum())
    return rows, Window(
        start_ns=low, end_ns=high, wall_ns=high - low, busy_ns=total, residual_ns=high - low - total
    )


def _fitting_n_ok(semantics: Semantics, steps: int, k: int | None, unsure: bool) -> tuple[int, ...]:
    """n_ok that explain a number of replay steps; none when the rule says nothing."""
    if semantics.replay != "closing-steps" or k is None or unsure:
        return ()
    return n_ok_from_replay(semantics.replay, steps, k)


_NEVER = np.iinfo(np.int64).max


def _whole_window(line: Timeline) -> Window:
    """Window from the first GPU event to the last, where there are no rounds."""
    shown = line.kind != Kind.BLIND
    if not shown.any():
        return Window(start_ns=0, end_ns=0, wall_ns=0, busy_ns=0, residual_ns=0)
    low, high = int(line.start[shown].min()), int(line.end_of(shown).max())
    busy = int(line.busy_ns(shown, 2)[1])
    return Window(
        start_ns=low,
        end_ns=high,
        wall_ns=high - low,
        busy_ns=busy,
        residual_ns=high - low - busy,
    )


def _spans(line: Timeline, placed: Attribution, round_of: I32, rounds: int) -> tuple[I64, I64]:
    """First GPU start and last GPU end of each round's own work, ns; _NEVER for a start of none."""
    start, end = np.full(rounds, _NEVER), np.full(rounds, -_NEVER)
    for block in blocks(len(line)):
        mine = np.flatnonzero(_IN_ROUNDS[placed.bucket[block]] & (round_of[block] != NONE))
        mine += block.start
        groups = Groups.of(round_of[mine], rounds)
        np.minimum(start, groups.least(line.start[mine], _NEVER), out=start)
        np.maximum(end, groups.most(line.end_of(mine), -_NEVER), out=end)
    return start, end


def _by_bucket(line: Timeline, placed: Attribution, round_of: I32, rounds: int) -> I64:
    """GPU time of each bucket and round, ns, shape (buckets, rounds)."""
    total = np.zeros(len(BUCKETS) * rounds, np.int64)
    for block in blocks(len(line)):
        mine = takes_gpu_time(line.kind[block]) & (round_of[block] != NONE)
        cell = placed.bucket[block][mine] * np.int64(rounds) + round_of[block][mine]
        np.add.at(total, cell, line.duration[block][mine].astype(np.int64))
    return total.reshape(len(BUCKETS), rounds)


OUTLIER = 3.5


def _flags(wall: I64, found: Structure) -> list[list[str]]:
    """Partial, warm-up and outlier flags (Iglewicz and Hoaglin's modified z-score).

    Rounds are compared with those that replay as much: a round with three replay steps is dearer by
    nature, and calling it an outlier would hide what acceptance costs.
    """
    flags: list[list[str]] = [[] for _ in wall]
    for i in partial_rounds(found):
        flags[i].append("partial")
    replay = found.layout.replay_steps
    for steps in np.unique(replay):
        alike = np.flatnonzero(replay == steps)
        if len(alike) < 4:
            continue
        median = float(np.median(wall[alike]))
        spread = float(np.median(np.abs(wall[alike] - median)))
        # a spread of zero would call every other round an outlier: ask for 1 % at least
        scale = max(spread / 0.6745, 0.01 * median / OUTLIER)
        for i in alike[np.abs(wall[alike] - median) > OUTLIER * scale].tolist():
            early = wall[i] > median and all(flags[:i])
            flags[i].append("warm-up" if early else "outlier")
    return flags


def partial_rounds(found: Structure) -> list[int]:
    """Rounds that the start or the end of the capture cuts (indices).

    The first round is partial when the capture begins with its drafts and some are missing; the last
    one when its verify pass, the last thing in the trace, has fewer kernels than any other.
    """
    layout, passes = found.layout, found.passes
    if layout.rounds < 3:
        return []
    partial = []
    drafts = layout.draft_passes
    before = layout.code[: layout.verify[0]]
    only_drafts = bool((before == Code.DRAFT).all())
    if only_drafts and drafts[0] < int(np.median(drafts[1:])):
        partial.append(0)
    kernels = passes.kernels[layout.verify]
    last = int(layout.verify[-1])
    ends = last == int(np.flatnonzero(layout.code != Code.UNKNOWN)[-1])
    eager = not passes.is_graph[layout.verify].any()
    if ends and eager and kernels[-1] < kernels[:-1].min():
        partial.append(layout.rounds - 1)
    return partial
