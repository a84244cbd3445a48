"""What a plain decode step costs: the figure that every speed-up is held against.

A capture that speculates throughout has none. Then it comes from a second capture, of the same run
without speculation, and only from one that is like it: another card, engine or graph granularity
would be another baseline.
"""

from __future__ import annotations

from nsysacct.comparability import NO_GRAPHS, granularity
from nsysacct.errors import IncomparableError, UsageError
from nsysacct.model import Account, ProcessAccount, StepCost

ROLES = ("plain", "decode")
GAPS_UNKNOWN = "gaps between them unknown"
"""How a step is known whose wall is this long at least: only its GPU time is in the trace."""

FEW_STEPS = 5
"""Plain steps below which, or without whose gaps, a speed-up rests on thin ground."""


def plain_steps(account: ProcessAccount) -> list[StepCost]:
    """Plain passes of one row, those of role "plain" first."""
    steps = [s for s in account.steps if s.count and s.width in (None, 1)]
    return [s for role in ROLES for s in steps if s.role == role]


def plain_step(account: ProcessAccount) -> tuple[float, str] | None:
    """Return the wall of one plain step in ns and how it is known; None when the account has none.

    First choice is a step time that the user gave (an unprofiled figure of the same run), then
    runs of plain or decode steps in the trace.
    """
    options = account.options if isinstance(account, Account) else {}
    given = options.get("step_ns")
    if given is not None:
        return float(given), "given step time"
    for role in ROLES:
        steps = [s for s in plain_steps(account) if s.role == role]
        walls = [s for s in steps if s.wall_ns is not None]
        count = sum(s.count for s in walls)
        if count:
            wall = sum((s.wall_ns or 0.0) * s.count for s in walls) / count
            return wall, f"{_counted(count, role)} in the trace, gaps included"
        count = sum(s.count for s in steps)
        busy = sum(s.busy_ns or s.gpu_ns for s in steps)
        if count and busy:
            return busy / count, f"GPU time of {_counted(count, role)}; {GAPS_UNKNOWN}"
    return None


def _counted(count: int, role: str) -> str:
    return f"{count} {role} step" + ("" if count == 1 else "s")


def is_thin(account: ProcessAccount) -> bool:
    """Whether the account's own plain step rests on a few passes, or on none with its gaps."""
    if isinstance(account, Account) and account.options.get("step_ns") is not None:
        return False
    return sum(s.count for s in plain_steps(account) if s.wall_ns is not None) < FEW_STEPS


def plain_step_from(account: Account, plain: Account) -> tuple[float, str]:
    """Return the plain step of another capture, as `plain_step` does.

    Parameters
    ----------
    account : Account
        The run that speculates.
    plain : Account
        The run without speculation (or another one with plain steps).

    Raises
    ------
    IncomparableError
        Another engine, GPU, graph granularity, layer count or label than `account`'s.
    UsageError
        `plain` has no plain step.
    """
    differs = _differences(account, plain)
    if differs:
        raise IncomparableError(
            plain.trace.name, f"no plain step for {account.trace.name}: {'; '.join(differs)}",
            "capture the same run without speculation, or give --plain-ms",
        )  # fmt: skip
    found = plain_step(plain)
    if found is None:
        raise UsageError(
            plain.trace.name, "has no plain step", "give a capture without speculation"
        )
    wall, how = found
    return wall, f"{plain.trace.name}: {how.replace(' in the trace', '')}"


def _differences(account: Account, plain: Account) -> list[str]:
    """What makes another capture's plain step another baseline; unknown facts differ from none."""
    pairs: dict[str, tuple[str | int | None, str | int | None]] = {
        "engine": (account.engine.name, plain.engine.name),
        "GPU": (account.trace.gpu, plain.trace.gpu),
        "layers": (account.rounds.layers.get("all"), plain.rounds.layers.get("all")),
    }
    seen = granularity(account), granularity(plain)
    if NO_GRAPHS not in seen:
        pairs["granularity"] = seen
    for label in sorted(account.labels.keys() & plain.labels.keys()):
        pairs[f"label {label}"] = (account.labels[label], plain.labels[label])
    return [
        f"{name} is {theirs}, not {ours}"
        for name, (ours, theirs) in pairs.items()
        if ours != theirs and None not in (ours, theirs)
    ]


def choose(
    account: Account,
    part: ProcessAccount,
    plain_ns: float | None = None,
    plain_from: Account | None = None,
) -> tuple[float, str] | None:
    """Return the plain step to use, ns, and how it is known: given, another capture's, its own.

    Raises
    ------
    UsageError
        Both a time and another capture are given, or the capture has no plain step.
    IncomparableError
        The other capture is not like this one.
    """
    if plain_ns is not None and plain_from is not None:
        raise UsageError("--plain-ms", "is given beside --plain-from", "give one of them")
    if plain_ns is not None:
        return plain_ns, "given with --plain-ms"
    if plain_from is not None:
        return plain_step_from(account, plain_from)
    return plain_step(part)
