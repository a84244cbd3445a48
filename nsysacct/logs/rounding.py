"""Whole counts behind rounded figures: every solution, or the statement that there are several.

An engine prints a mean length with 2 decimals and rates with 3; the counts behind them are whole.
Few whole numbers of rounds fit all figures of a line, usually one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_MOST_CANDIDATES = 5000
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Solution:
    """Rounds that fit: ``low``..``high``, the one to use, and its counts per position.

    ``how``: "only" (one fits), "drafted / k" (several do, and this one has k drafts in every
    round) or "nearest". ``unique``: whether `positions` is the only one for that many rounds.
    """

    rounds: int
    low: int
    high: int
    how: str
    positions: list[int] | None
    unique: bool


def solve_rounds(
    accepted: int,
    drafted: int,
    mean_length: float | None,
    rates: Sequence[float] | None,
    k: int | None,
    *,
    length_half: float = 0.005,
    rate_half: float = 0.0005,
) -> Solution | None:
    """Find the rounds behind ``mean_length = 1 + accepted / rounds`` and rates a position.

    Parameters
    ----------
    accepted, drafted : int
        Totals, exact.
    mean_length : float or None
        Accepted drafts a round plus 1, as printed.
    rates : sequence of float or None
        Share of rounds that accepted at least 1, 2, .. drafts, as printed.
    k : int or None
        Most drafts of a round.
    length_half, rate_half : float
        Half of the last printed digit.

    Returns
    -------
    Solution or None
        None when no whole number of rounds fits, or too little is known.

    Examples
    --------
    >>> solve_rounds(43, 69, 2.87, [0.870, 0.522, 0.478], 3).positions
    [20, 12, 11]
    """
    low, high = _range(accepted, drafted, mean_length, k, length_half)
    if high - low > _MOST_CANDIDATES:
        fitting = [drafted // k] if k and drafted % k == 0 and low <= drafted // k <= high else []
        if fitting and _bounds(fitting[0], accepted, rates, rate_half) is None:
            fitting = []
    else:
        fitting = [
            r for r in range(low, high + 1) if _bounds(r, accepted, rates, rate_half) is not None
        ]
        low, high = (fitting[0], fitting[-1]) if fitting else (low, high)
    if not fitting:
        return None
    rounds, how = _choose(fitting, low == high, accepted, drafted, mean_length, k)
    positions, unique = _counts(rounds, accepted, rates, rate_half)
    return Solution(rounds, low, high, how, positions, unique)


def _range(
    accepted: int, drafted: int, mean_length: float | None, k: int | None, half: float
) -> tuple[int, int]:
    # a round proposes 1 to k drafts
    low = max(1, math.ceil(drafted / k) if k else math.ceil(accepted / max(drafted, 1)))
    high = drafted
    if mean_length is not None:
        if accepted:
            low = max(low, math.ceil(accepted / (mean_length - 1 + half + _SLACK)))
        if mean_length - 1 - half > 0:
            high = min(high, math.floor(accepted / (mean_length - 1 - half - _SLACK)))
    return low, high


def _bounds(
    rounds: int, accepted: int, rates: Sequence[float] | None, half: float
) -> list[tuple[int, int]] | None:
    """Range of each position's count; None when the sum cannot be `accepted`."""
    if rates is None:
        return []
    limits: list[tuple[int, int]] = []
    for rate in rates:
        least = max(0, math.ceil(rounds * (rate - half) - _SLACK))
        most = min(rounds, math.floor(rounds * (rate + half) + _SLACK))
        if least > most:
            return None
        limits.append((least, most))
    fits = sum(a for a, _ in limits) <= accepted <= sum(b for _, b in limits)
    return limits if fits else None


def _choose(
    fitting: list[int],
    only: bool,
    accepted: int,
    drafted: int,
    mean_length: float | None,
    k: int | None,
) -> tuple[int, str]:
    if only:
        return fitting[0], "only"
    if k and drafted % k == 0 and drafted // k in fitting:
        return drafted // k, "drafted / k"
    aim = accepted / (mean_length - 1) if mean_length and mean_length > 1 else fitting[0]
    return min(fitting, key=lambda r: abs(r - aim)), "nearest"


def _counts(
    rounds: int, accepted: int, rates: Sequence[float] | None, half: float
) -> tuple[list[int] | None, bool]:
    limits = _bounds(rounds, accepted, rates, half)
    if not limits:
        return None, False
    assert rates is not None
    counts = [
        min(max(round(rounds * rate), least), most)
        for rate, (least, most) in zip(rates, limits, strict=True)
    ]
    open_positions = sum(a < b for a, b in limits)
    ends = (sum(a for a, _ in limits), sum(b for _, b in limits))
    unique = open_positions <= 1 or accepted in ends
    # move whole rounds until the sum is the printed total; raising from the front and lowering
    # from the back keeps the counts falling
    for index in range(len(counts)):
        room = limits[index][1] - counts[index]
        counts[index] += min(room, max(0, accepted - sum(counts)))
    for index in reversed(range(len(counts))):
        room = counts[index] - limits[index][0]
        counts[index] -= min(room, max(0, sum(counts) - accepted))
    return counts, unique
