"""Whether accounts may be compared at all: what must be equal, and what each must have.

A gate refuses on these; `diff` prints them beside its answer. Peers that only look at times call
another capture mode or a longer run a regression, and a run with speculation silently off an
improvement.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from nsysacct.model import Account

PROVEN = ("exact", "inferred")


@dataclass(frozen=True, slots=True)
class Side:
    """One capture of a comparison. ``name`` is what messages call it (a file name)."""

    role: str  # "base" or "head"
    name: str
    account: Account


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why captures cannot be compared. ``where`` = the capture, ``kind`` is stable for tools."""

    kind: str
    where: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.remedy}"


def obstacles(
    sides: Sequence[Side],
    *,
    accept: Collection[str] = PROVEN,
    per_round: bool = True,
) -> list[Obstacle]:
    """List everything that forbids a verdict, in the order in which to repair it.

    Parameters
    ----------
    sides : sequence of Side
        All captures; the first is what the others are held against.
    accept : collection of str
        Verdicts on the number of rounds that count as proven.
    per_round : bool
        Whether figures per round are asked, so that rounds must be the same work.

    Returns
    -------
    list of Obstacle
        Empty: comparable.
    """
    found: list[Obstacle] = []
    for side in sides:
        found += _alone(side, accept)
    reference = sides[0]
    for side in sides[1:]:
        found += _against(reference, side, per_round)
    return found


NO_GRAPHS = "no graphs"
_SETTING_OF_STATE = {"expanded": "node", "timed": "graph"}


def granularity(account: Account) -> str:
    """Tell how graphs are seen: "graph", "node", or `NO_GRAPHS` when none were launched.

    The capture's setting where the file says it, else the states of the launches.
    """
    states = {graph.state for graph in account.graphs if graph.launches}
    if not states:
        return NO_GRAPHS
    if account.trace.graph_trace:
        return account.trace.graph_trace
    return "+".join(sorted({_SETTING_OF_STATE.get(state, state) for state in states}))


def key(account: Account) -> dict[str, str]:
    """Identity that two comparable captures share: what `history` files them under."""
    return {
        "engine": account.engine.name,
        "GPU": account.trace.gpu or "unknown",
        "granularity": granularity(account),
        "registry digest": account.engine.registry_digest or "none",
        "labels": ", ".join(f"{k}={v}" for k, v in sorted(account.labels.items())) or "none",
        "layers": ", ".join(f"{k}={v}" for k, v in sorted(account.rounds.layers.items())) or "none",
    }


_REMEDIES = {
    "engine": "compare runs of one engine",
    "GPU": "compare runs on one GPU model",
    "granularity": "capture both with the same --cuda-graph-trace",
    "registry digest": "split both again with one version of the registry",
    "labels": "compare runs with the same --label values",
    "layers": "compare runs of one model, split with the same --layers",
}


def _alone(side: Side, accept: Collection[str]) -> list[Obstacle]:
    account = side.account
    found = [
        Obstacle("blind spot", side.name, f"{spot.kind}: {spot.detail}", spot.remedy)
        for spot in account.blind_spots
        if spot.severity == "fatal"
    ]
    found += [
        Obstacle("finding", side.name, f"{f.kind}: {f.detail}", f.remedy or "repair the capture")
        for f in account.findings
        if f.severity == "fatal"
    ]
    rounds = account.rounds
    if not rounds.value:
        what = "speculation is off: no verify pass ran" if rounds.value == 0 else "no rounds found"
        remedy = "capture a run that speculates"
        found.append(Obstacle("speculation", side.name, what, remedy))
    elif rounds.verdict not in accept:
        reason = f" ({rounds.reasons[0]})" if rounds.reasons else ""
        what = f"rounds are not proven: verdict {rounds.verdict}{reason}"
        found.append(Obstacle("rounds", side.name, what, "see `nsysacct check`"))
    return found


def _short(value: str) -> str:
    """A digest by its first digits; the account has all of them."""
    return value[: len("sha256:") + 12] if value.startswith("sha256:") else value


def _against(reference: Side, side: Side, per_round: bool) -> list[Obstacle]:
    found = []
    wanted, seen = key(reference.account), key(side.account)
    for name, value in wanted.items():
        if seen[name] == value:
            continue
        if name == "granularity" and NO_GRAPHS in (value, seen[name]):
            continue  # the program began or ceased to use graphs: a change to judge
        what = f"another {name} than {reference.name} ({_short(seen[name])}, not {_short(value)})"
        found.append(Obstacle(name, side.name, what, _REMEDIES[name]))
    base, head = reference.account, side.account
    widths = base.rounds.width, head.rounds.width
    if per_round and None not in widths and widths[0] != widths[1]:
        what = f"a round verifies {widths[1]} rows, in {reference.name} {widths[0]}"
        remedy = "judge per token, or compare runs with the same k"
        found.append(Obstacle("verify width", side.name, what, remedy))
    return found
