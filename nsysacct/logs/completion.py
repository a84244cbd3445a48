"""Rounds that llama.cpp counts in its totals but prints no line for.

The round in which a request reaches its token limit is in the request's totals and in the
drafter's statistics; its ``accepted a/b`` line is not printed (builds of 2026, seen in their
server logs: 22 lines of 23 rounds).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import msgspec

from nsysacct.logs.reading import Counters, positions_of
from nsysacct.model import Finding

Key = TypeVar("Key", bound=Hashable)


def completed(
    lines: Counters, totals: Sequence[Counters], requests: int
) -> tuple[Counters | None, list[Finding]]:
    """Add the unprinted rounds to those with a line, where the totals tell them.

    Parameters
    ----------
    lines : Counters
        Sum of the lines of single rounds, with a histogram.
    totals : sequence of Counters
        The same run's totals, most exact first.
    requests : int
        Requests in the log: so many rounds may be unprinted.

    Returns
    -------
    counters : Counters or None
        None when the lines do not cover the run: then the totals are the better source.
    findings : list of Finding
    """
    told = next((t for t in totals if t.accepted is not None and t.drafted is not None), None)
    if told is None or lines.replays:
        return lines, []
    assert told.accepted is not None and told.drafted is not None
    assert lines.accepted is not None and lines.drafted is not None
    accepted, drafted = told.accepted - lines.accepted, told.drafted - lines.drafted
    if drafted <= 0:
        return lines, []  # equal, or a disagreement that is reported as such
    missing = _missing(lines, told, requests)
    if missing > max(requests, 1) or not 0 <= accepted <= drafted:
        return None, [_cut(lines, told)]
    if missing == 1 and drafted <= (lines.k or drafted):
        return _with_round(lines, accepted, drafted), [_unprinted(1, accepted, drafted)]
    if told.n_ok is not None:
        return None, [_unprinted(missing, accepted, drafted)]
    return None, [_cut(lines, told)]


def completed_by_request(
    lines: Mapping[Key, Counters], summaries: Sequence[tuple[Key, Counters]]
) -> tuple[list[Counters], list[Finding]]:
    """Add to each request the one round that its own summary counts and no line shows.

    Requests without exactly one summary, or whose lines are cut, stay as they are.
    """
    own = Counter(key for key, _ in summaries)
    by_key = {key: summary for key, summary in summaries if own[key] == 1}
    parts: list[Counters] = []
    accepted = drafted = rounds = 0
    for key, part in lines.items():
        summary = by_key.get(key)
        best, _ = completed(part, [summary] if summary is not None else [], 1)
        parts.append(best or part)
        if best is not None and best is not part:
            rounds += 1
            accepted += (best.accepted or 0) - (part.accepted or 0)
            drafted += (best.drafted or 0) - (part.drafted or 0)
    return parts, [_unprinted(rounds, accepted, drafted)] if rounds else []


def _missing(lines: Counters, told: Counters, requests: int) -> int:
    if told.rounds is None or lines.rounds is None:
        return requests
    low, high = told.rounds_low or told.rounds, told.rounds_high or told.rounds
    # rounds that the totals leave open are at least the printed ones and the unprinted one
    return max(low, min(high, lines.rounds + 1)) - lines.rounds


def _with_round(lines: Counters, accepted: int, drafted: int) -> Counters:
    assert lines.n_ok is not None and lines.accepted is not None and lines.drafted is not None
    n_ok = list(lines.n_ok)
    n_ok[accepted] += 1
    return msgspec.structs.replace(
        lines,
        rounds=sum(n_ok),
        n_ok=n_ok,
        n_ok_basis="derived",
        positions=positions_of(n_ok),
        accepted=lines.accepted + accepted,
        drafted=lines.drafted + drafted,
    )


def _unprinted(rounds: int, accepted: int, drafted: int) -> Finding:
    what = "one round" if rounds == 1 else f"{rounds} rounds"
    return Finding(
        kind="round-not-printed",
        severity="info",
        detail=f"{what} ({accepted} of {drafted} drafts accepted) in the totals without a line: "
        "the round in which a request reaches its token limit is counted but not printed",
    )


def _cut(lines: Counters, told: Counters) -> Finding:
    return Finding(
        kind="rounds-missing",
        severity="warning",
        detail=f"the lines of single rounds hold {lines.accepted} of {lines.drafted} drafts, "
        f"{told.source} {told.accepted} of {told.drafted}; the totals are used",
        remedy="give the whole log of the run, at one log level throughout",
    )
