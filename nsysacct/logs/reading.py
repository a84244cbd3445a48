"""What a run log says about acceptance: plain structures and sums of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from nsysacct.model import Finding

EXACT = ("printed", "derived")
"""Histogram bases without a choice: printed by the engine, or the only one that fits."""


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Acceptance as one format of a log tells it, summed over its lines.

    ``positions[j - 1]`` = rounds that accepted at least j drafts; ``n_ok[i]`` = rounds that
    accepted i. ``n_ok_basis``: "printed", "derived" (the only histogram that fits the printed
    figures) or "rounded" (one of several that fit). ``rates`` are cumulative per position, as
    printed, when no counts are known. ``rounds_low``..``rounds_high``: what the printed figures
    allow when they leave a choice. ``mean_n_ok`` and ``rate``: as printed, without counts.
    """

    source: str
    lines: list[int] = []
    rounds: int | None = None
    rounds_low: int | None = None
    rounds_high: int | None = None
    k: int | None = None
    accepted: int | None = None
    drafted: int | None = None
    positions: list[int] | None = None
    rates: list[float] | None = None
    n_ok: list[int] | None = None
    n_ok_basis: str | None = None
    mean_n_ok: float | None = None
    rate: float | None = None
    tokens: int | None = None
    requests: int | None = None
    replays: int | None = None


class LogReading(msgspec.Struct, frozen=True, kw_only=True):
    """Acceptance that a run log reports, with everything in it that does not fit.

    ``counters`` is the most exact format found, ``sources`` holds all of them, ``parts`` the single
    lines or requests that `counters` sums. ``lines_read`` counts the log's lines, ``lines_used``
    those that a figure came from. ``speculation`` is False when the log says that none ran.
    """

    engine: str
    formats: list[str]
    lines_read: int
    lines_used: int
    counters: Counters
    sources: list[Counters] = []
    parts: list[Counters] = []
    findings: list[Finding] = []
    speculation: bool = True


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine's reader got: counters in order of preference, and what does not fit.

    ``idle``: why the log says that no speculation ran, where it does.
    """

    counters: list[Counters] = []
    parts: list[Counters] = []
    findings: list[Finding] = []
    idle: str | None = None


def histogram_of(rounds: int, positions: Sequence[int]) -> list[int] | None:
    """Count rounds by accepted drafts from cumulative counts; None when those rise.

    Examples
    --------
    >>> histogram_of(42, [15, 13, 7])
    [27, 2, 6, 7]
    """
    steps = [rounds, *positions, 0]
    counts = [a - b for a, b in pairwise(steps)]
    return counts if min(counts) >= 0 else None


def positions_of(n_ok: Sequence[int]) -> list[int]:
    """Count rounds that accepted at least 1, 2, .. k drafts.

    Examples
    --------
    >>> positions_of([27, 2, 6, 7])
    [15, 13, 7]
    """
    return [sum(n_ok[j:]) for j in range(1, len(n_ok))]


def from_histogram(
    source: str,
    n_ok: Sequence[int],
    *,
    lines: Sequence[int] = (),
    drafted: int | None = None,
    requests: int | None = None,
    replays: int | None = None,
) -> Counters:
    """Counters that a histogram implies; `drafted` stays unknown unless given."""
    return Counters(
        source=source,
        lines=list(lines),
        rounds=sum(n_ok),
        k=len(n_ok) - 1,
        accepted=sum(n * count for n, count in enumerate(n_ok)),
        drafted=drafted,
        positions=positions_of(n_ok),
        n_ok=list(n_ok),
        n_ok_basis="printed",
        requests=requests,
        replays=replays,
    )


def total(source: str, parts: Sequence[Counters]) -> Counters:
    """Sum of parts of one format; a figure that one of them lacks is unknown in the sum.

    Rates and means without counts are not summed: their weights are not known here.
    """
    rounds = _sum([p.rounds for p in parts])
    positions = _columns([p.positions for p in parts])
    n_ok = _columns([p.n_ok for p in parts])
    bases = {p.n_ok_basis for p in parts}
    open_ended = any(p.rounds_low is not None for p in parts)
    return Counters(
        source=source,
        lines=sorted({n for p in parts for n in p.lines}),
        rounds=rounds,
        rounds_low=_sum([_or(p.rounds_low, p.rounds) for p in parts]) if open_ended else None,
        rounds_high=_sum([_or(p.rounds_high, p.rounds) for p in parts]) if open_ended else None,
        k=max((p.k for p in parts if p.k is not None), default=None),
        accepted=_sum([p.accepted for p in parts]),
        drafted=_sum([p.drafted for p in parts]),
        positions=positions,
        n_ok=n_ok,
        n_ok_basis=_weakest(bases) if n_ok is not None else None,
        tokens=_sum([p.tokens for p in parts]),
        requests=_sum([p.requests for p in parts]),
        replays=_sum([p.replays for p in parts]),
    )


def _or(value: int | None, other: int | None) -> int | None:
    return other if value is None else value


def _weakest(bases: set[str | None]) -> str:
    return next((b for b in ("rounded", "derived") if b in bases), "printed")


def _sum(values: Sequence[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known and len(known) == len(values) else None


def _columns(rows: Sequence[list[int] | None]) -> list[int] | None:
    known = [r for r in rows if r is not None]
    if not known or len(known) != len(rows):
        return None
    width = max(map(len, known))
    return [sum(r[i] for r in known if i < len(r)) for i in range(width)]
