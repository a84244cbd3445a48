"""Roles of executable graphs when no name tells them: k cheap launches, then one dear one, over and over.

Where draft and verify both hide inside CUDA graphs, three facts remain: what a launch costs, in which
order the launches come, and where the host waits. They carry a reading only when it is the one that
fits; otherwise this module says why not and leaves the graphs open:

- a draft costs clearly less than the pass that verifies it;
- what verifies comes right after drafts, always or never;
- pieces of one pass follow each other too, but each piece once: drafting repeats its graph, or waits;
- one cheap launch before each dear one may be two halves of a plain step, unless plain steps of the
  target alone are there too;
- the host must read tokens to go on drafting, so it waits (or copies back) in each round.

Graphs that are instantiated anew during the run get a new id: roles rest on cost and place, not on ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nsysacct.evidence import Code

I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

MIN_LAUNCHES = 3
"""A pattern needs at least this many repetitions to be called one."""

AGREE = 0.6
"""Share of a graph's launches that must stand in the same place for the place to name its role."""

STEADY = 0.8
"""Share of rounds with the usual number of drafts; fewer only where nothing else speaks against it."""

CHEAPER = 0.9
"""Cost of the dearest draft graph over the cheapest other graph, at most."""

TARGET_STEP = 0.5
"""Cost of a plain target step over that of a verify pass, at least: both read all weights once."""


@dataclass(frozen=True, slots=True)
class GraphRole:
    """Role of one executable graph, and why."""

    code: Code
    basis: str  # "graph" when exclusive neighbours or streams decide, else "pattern"
    confidence: float
    reason: str


@dataclass(frozen=True, slots=True)
class Launches:
    """Model passes of a timeline in launch order, as far as the pattern needs them.

    Attributes
    ----------
    graph : int64
        Executable graph; negative for passes that are known to be the target's, or cost nothing known.
    cost : float64, ns
        Median GPU time of a launch of that graph; NaN where the graph is negative.
    waits : int64
        Waits of the host, and copies back to it, before the launch.
    """

    graph: I64
    cost: npt.NDArray[np.float64]
    waits: I64


@dataclass(frozen=True, slots=True)
class _Reading:
    """One way to read the launches."""

    gap: float
    drafts: tuple[int, ...]
    verify: tuple[int, ...]
    k: int
    steady: float


def read(launches: Launches) -> tuple[dict[int, GraphRole], list[str]]:
    """Find the roles, or say why the launches do not tell.

    Returns
    -------
    roles : dict
        Executable graph -> role; empty when no reading fits.
    notes : list of str
        Why a reading that looked like speculation was not used.
    """
    known = launches.graph >= 0
    costs = np.unique(launches.cost[known])
    best: _Reading | None = None
    notes: dict[str, None] = {}
    for below, above in pairwise(costs.tolist()):
        if below > CHEAPER * above:
            continue
        found = _read_at(launches, below, above / max(below, 1.0))
        if isinstance(found, str):
            if found:
                notes[found] = None
        elif best is None or found.gap > best.gap:
            best = found
    if best is None:
        return {}, list(notes)
    return _roles(launches, best), []


def _read_at(launches: Launches, limit: float, gap: float) -> _Reading | str:
    """Read launches that cost up to `limit` as drafts; a text says why they are not."""
    graph = launches.graph
    cheap = (graph >= 0) & (launches.cost <= limit)
    before = _run_before(cheap)
    after_drafts = ~cheap & (before > 0)
    verify = [
        g
        for g in np.unique(graph[after_drafts]).tolist()
        if _share(after_drafts, graph == g) >= AGREE
    ]
    verify = [g for g in verify if g >= 0]
    rounds = np.flatnonzero(after_drafts & np.isin(graph, verify))
    if len(rounds) < MIN_LAUNCHES or len(rounds) < STEADY * after_drafts.sum():
        return ""
    drafts, counts = _drafts(launches, cheap, rounds, before)
    if not drafts or not counts.any():
        return ""
    values, times = np.unique(counts[counts > 0], return_counts=True)
    k, steady = int(values[np.argmax(times)]), float(times.max() / len(counts))
    names = ", ".join(str(g) for g in sorted([*verify, *drafts])[:8])
    if len(verify) + len(drafts) > 8:
        names += ", ..."
    if k > 1 and not _repeats(launches, drafts, rounds, k):
        return (
            f"graphs {names} follow each other once each without the host waiting between: pieces of one "
            "pass, or drafts and what verifies them, the launches cannot tell"
        )
    if steady < STEADY and not _always_before(launches, drafts, rounds, counts):
        return ""
    if k == 1 and not _plain_steps(launches, verify, cheap):
        return (
            f"graphs {names} alternate: one draft and its verify pass, or two parts of a plain step, "
            "the launches cannot tell"
        )
    if not _host_waits(launches, rounds):
        return (
            f"graphs {names} alternate without the host waiting between them: pieces of one pass or "
            "draft and verify, the launches cannot tell"
        )
    if not _one_at_a_time(graph, verify, rounds):
        return (
            f"graphs {names} look like several verify passes at once: pieces of one pass, perhaps"
        )
    return _Reading(gap, tuple(drafts), tuple(verify), k, steady)


def _run_before(cheap: Bool) -> I64:
    """Cheap launches directly before each launch."""
    index = np.arange(len(cheap))
    last_dear = np.maximum.accumulate(np.where(cheap, -1, index))
    previous = np.concatenate([[-1], last_dear[:-1]]) if len(cheap) else last_dear
    return np.asarray(index - previous - 1)


def _share(of: Bool, among: Bool) -> float:
    """Share of `among` that is in `of`."""
    return float((of & among).sum() / max(1, among.sum()))


def _drafts(launches: Launches, cheap: Bool, rounds: I64, before: I64) -> tuple[list[int], I64]:
    """Draft graphs, and how many of their launches come directly before each verify pass.

    A cheap graph that mostly runs elsewhere (plain steps before the rounds) is no draft.
    """
    usual = int(np.bincount(before[rounds]).argmax())
    inside = np.zeros(len(cheap), bool)
    for at in rounds.tolist():
        inside[max(0, at - min(int(before[at]), usual)) : at] = True
    drafts = [
        g
        for g in np.unique(launches.graph[inside]).tolist()
        if _share(inside, cheap & (launches.graph == g)) >= AGREE
    ]
    is_draft = cheap & np.isin(launches.graph, drafts)
    run = _run_before(is_draft)
    return drafts, run[rounds]


def _repeats(launches: Launches, drafts: Sequence[int], rounds: I64, k: int) -> bool:
    """Whether drafting shows as such: one graph launched again, or the host waiting between drafts."""
    again, waited = 0, 0
    for at in rounds.tolist():
        run = launches.graph[max(0, at - k) : at]
        again += len(np.unique(run)) < len(run)
        waits = launches.waits[max(0, at - k) : at + 1]
        waited += bool((np.diff(waits) > 0).all())
    del drafts
    return max(again, waited) >= STEADY * len(rounds)


def _always_before(launches: Launches, drafts: Sequence[int], rounds: I64, counts: I64) -> bool:
    """Whether a single draft graph runs nowhere but before verify passes, however often."""
    total = int(np.isin(launches.graph, drafts).sum())
    return len(drafts) == 1 and int(counts.sum()) >= 0.95 * total and int(counts.min()) > 0


def _plain_steps(launches: Launches, verify: Sequence[int], cheap: Bool) -> bool:
    """Whether steps of the target alone, several in a row, cost about what the verify pass does."""
    graph = launches.graph
    price = float(np.median(launches.cost[np.isin(graph, verify)]))
    alone = ~cheap & ~np.isin(graph, verify)
    alone &= (graph < 0) | (launches.cost >= TARGET_STEP * price)
    run = _run_before(alone)
    return bool((alone & (run >= MIN_LAUNCHES - 1)).any())


def _host_waits(launches: Launches, rounds: I64) -> bool:
    """Whether the host waits, or copies something back, around most verify passes."""
    before = launches.waits[np.maximum(rounds - 1, 0)]
    after = launches.waits[np.minimum(rounds + 1, len(launches.waits) - 1)]
    return bool((after > before).mean() >= AGREE)


def _one_at_a_time(graph: I64, verify: Sequence[int], rounds: I64) -> bool:
    """Whether verify graphs stand in for each other: one after the other, or for the same drafts.

    An engine that instantiates its graphs anew uses the new one from then on.
    """
    spans = sorted(
        (
            (int(at[0]), int(at[-1]), len(at))
            for g in verify
            if len(at := rounds[graph[rounds] == g])
        ),
        key=lambda s: -s[2],
    )
    kept: list[tuple[int, int, int]] = []
    for first, last, count in spans:
        if all(last < a or first > b for a, b, _ in kept):
            kept.append((first, last, count))
    if sum(count for _, _, count in kept) >= 0.9 * len(rounds):
        return True
    # several in turn, as with double buffering: each verifies as often as the others
    counts = [count for _, _, count in spans]
    return min(counts) >= AGREE * max(counts)


def _roles(launches: Launches, best: _Reading) -> dict[int, GraphRole]:
    """Roles of all graphs under a reading."""
    twins = (
        "" if len(best.verify) == 1 else f" (one of {len(best.verify)} graphs in the same place)"
    )
    found: dict[int, GraphRole] = {}
    for g in np.unique(launches.graph[launches.graph >= 0]).tolist():
        if g in best.verify:
            reason = (
                f"one launch after each {best.k} of cheaper graphs, {best.steady:.0%} alike{twins}"
            )
            found[g] = GraphRole(Code.VERIFY, "pattern", best.steady, reason)
        elif g in best.drafts:
            reason = f"{best.k} cheap launches before each launch of a dearer graph"
            found[g] = GraphRole(Code.DRAFT, "pattern", best.steady, reason)
        else:
            reason = "stands outside the draft-verify pattern"
            found[g] = GraphRole(Code.TARGET, "pattern", best.steady, reason)
    return found
