"""Whether a capture can carry a split, and the nsys command line for a better one."""

from __future__ import annotations

from dataclasses import dataclass

from nsysacct.layout import count
from nsysacct.model import Account, BlindSpot, ProcessAccount, Rounds

ENOUGH_WITNESSES = 2
"""Agreeing witnesses that an inferred number of rounds needs to carry a split."""


VERDICTS = {
    "exact": "proven by counting",
    "inferred": "inferred, not proven",
    "inconsistent": "INCONSISTENT: the counts contradict each other",
}
"""What a verdict on the number of rounds is called."""


@dataclass(frozen=True, slots=True)
class Checkup:
    """Judgement on one capture.

    Attributes
    ----------
    passed : bool
        Rounds are proven (or inferred with witnesses that agree), nothing is lost, and no blind spot
        in the rounds is without a price.
    reasons : tuple of str
        What stands against it; empty when it passed.
    cautions : tuple of str
        What a reader of the split must keep in mind.
    command : str
        nsys command line for a capture without those faults.
    """

    passed: bool
    reasons: tuple[str, ...]
    cautions: tuple[str, ...]
    command: str


def check(account: Account) -> Checkup:
    """Judge the account that is at the top level."""
    reasons = [*_rounds(account), *_blind(account)]
    cautions = [
        f"{s.kind}: {s.detail}"
        for s in account.blind_spots
        if s.severity == "warning" and s.hidden_ns is not None
    ]
    cautions += [f"{f.kind}: {f.detail}" for f in account.findings if f.severity == "warning"]
    return Checkup(not reasons, tuple(reasons), tuple(cautions), recapture(account))


def rounds_found(rounds: Rounds) -> str:
    """Number of rounds, and how it is known."""
    return f"{count(rounds.value or 0, 'round')}, {VERDICTS.get(rounds.verdict, rounds.verdict)}"


def no_split(account: ProcessAccount) -> str:
    """Why an account has no number of rounds, in one clause."""
    if ranks_differ(account):
        return "the processes have different numbers of rounds, so their sum has none"
    if lost_events(account):
        return "events were lost, and no verify pass is among those that are left"
    return "draft and verify cannot be told apart in this trace"


def lost_events(account: ProcessAccount) -> BlindSpot | None:
    """The first blind spot that says that events were lost, when that is fatal."""
    return next(
        (s for s in account.blind_spots if s.severity == "fatal" and s.kind.startswith("lost")),
        None,
    )


def ranks_differ(account: ProcessAccount) -> bool:
    """Whether this is a sum over processes that are not ranks of one job."""
    return any(f.kind == "ranks-differ" for f in account.findings)


def _rounds(account: ProcessAccount) -> list[str]:
    rounds = account.rounds
    told = {s.detail for s in account.blind_spots}  # each has a line of its own
    because = next((f" ({r})" for r in rounds.reasons[:1] if not any(t in r for t in told)), "")
    if rounds.value is None and (lost_events(account) or ranks_differ(account)):
        return [f"{no_split(account)}{because}"]
    if rounds.value is None:
        return [
            f"draft and verify cannot be told apart{because}",
            'put NVTX ranges called "draft" and "verify" around the two calls, or write a registry '
            "(nsysacct registry suggest): the same capture again would show no more",
        ]
    if not rounds.value:
        return [f"no speculation to split{because}"]
    if rounds.verdict == "inconsistent":
        return [f"the counts of rounds contradict each other{because}"]
    agreeing = sum(w.agrees for w in rounds.witnesses)
    if rounds.verdict == "inferred" and agreeing < ENOUGH_WITNESSES:
        return [f"{rounds_found(rounds)}: {agreeing} of the {ENOUGH_WITNESSES} witnesses needed"]
    return []


def _blind(account: ProcessAccount) -> list[str]:
    return [
        f"{s.kind}: {s.detail}"
        for s in account.blind_spots
        if s.severity == "fatal"
        or (s.hidden_ns is None and s.severity == "warning" and s.bucket is not None)
    ]


def recapture(account: Account) -> str:
    """Nsys command line for a capture that shows what this one does not.

    Whole-graph times (``graph``) are right for cost and disturb little; ``node`` is for names inside
    graphs, when nothing else tells the phases apart.
    """
    kinds = {s.kind for s in account.blind_spots}
    unclear = account.rounds.value is None or account.rounds.verdict == "inferred"
    graphs = bool(account.graphs)
    granularity = "node" if graphs and (unclear or "graph-blind" in kinds) else "graph"
    parts = [
        "nsys profile -t cuda,nvtx -s none --cpuctxsw=none",
        f"--cuda-graph-trace={granularity}",
    ]
    if kinds & {"lost-tail", "lost-events"}:
        parts.append("--cuda-flush-interval=100 -c cudaProfilerApi")
    if "process-not-traced" in kinds:
        parts.append("--trace-fork-before-exec=true")
    return (
        " ".join([*parts, "-o capture PROGRAM"])
        + " && nsys export --type sqlite -o capture.sqlite capture.nsys-rep"
    )
