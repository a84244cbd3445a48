"""Histograms of accepted drafts a round: exact shares, one rate's, another k's, all of one mean.

Shares are `Fraction` where a run must be reproduced to the nanosecond and float where a person
reads them; the formulas are the same. The histograms with a given mean form a polytope whose
corners have two points at most (sum and mean are two equations), so the extremes of any function's
mean, and of a ratio of two such means, lie at pairs; with whole rounds near them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from nsysacct.errors import UsageError
from nsysacct.semantics import TOKENS
from nsysacct.theory import alpha_for_mean

Histogram = tuple[Fraction, ...]
"""P(n_ok = 0), .., P(n_ok = k), exact."""

Number = TypeVar("Number", float, Fraction)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Least and greatest value over all histograms that fit, each with one that attains it."""

    low: float
    high: float
    low_n_ok: tuple[float, ...]
    high_n_ok: tuple[float, ...]


def normal(counts: Sequence[int]) -> Histogram:
    """Return counts of rounds by n_ok as exact shares.

    Raises
    ------
    UsageError
        No round, or a negative count.
    """
    total = sum(counts)
    if total <= 0 or min(counts) < 0:
        raise UsageError(
            "n_ok", "is no histogram", "give the rounds that accepted 0, 1, .. k drafts"
        )
    return tuple(Fraction(c, total) for c in counts)


def mean_of(histogram: Histogram, tokens: str | None = None) -> Fraction:
    """Return the mean of n_ok, or of the tokens that the named rule of `semantics` emits."""
    k = len(histogram) - 1
    values = [TOKENS[tokens](n, k) if tokens else n for n in range(k + 1)]
    return sum((value * p for value, p in zip(values, histogram, strict=True)), Fraction(0))


def constant_rate_histogram(alpha: Number, k: int) -> tuple[Number, ...]:
    """P(n_ok = 0..k) when each drafted token is accepted with `alpha` after the ones before it."""
    shares: list[Number] = []
    reach = alpha**0
    for _ in range(k):
        shares.append(reach * (1 - alpha))
        reach = reach * alpha
    shares.append(reach)
    return tuple(shares)


def at_other_k(histogram: Histogram, k: int) -> Histogram:
    """Return the histogram with `k` drafts: cut exactly, or extended at a constant rate."""
    if k < len(histogram):
        return (*histogram[:k], sum(histogram[k:], Fraction(0)))
    old = len(histogram) - 1
    alpha = Fraction(alpha_for_mean(float(mean_of(histogram)), old))
    return (
        *histogram[:old],
        *(histogram[old] * p for p in constant_rate_histogram(alpha, k - old)),
    )


def two_point_histograms(mean: Number, k: int) -> Iterator[tuple[Number, ...]]:
    """Yield the corners of the set of all histograms over 0..k with this mean."""
    for low, high in _pairs(mean, k):
        yield _two_points(low, high, mean, k)


def constant_alpha_shares(mean: float, k: int) -> tuple[float, ...]:
    """Shares of rounds with 0..k accepted at one conditional rate whose mean is `mean`.

    Raises
    ------
    UsageError
        A mean outside 0..k.

    Examples
    --------
    >>> [round(x, 3) for x in constant_alpha_shares(36 / 26, 3)]
    [0.34, 0.224, 0.148, 0.288]
    """
    return constant_rate_histogram(alpha_for_mean(mean, k), k)


def bounds(
    mean: float, k: int, function: Callable[[int], float], rounds: int | None = None
) -> Bounds:
    """Bound the mean of ``function(n_ok)`` over all histograms with this mean of n_ok.

    Parameters
    ----------
    mean : float
        Accepted drafts a round, 0..k.
    k : int
        Drafts a round.
    function : callable
        Of n_ok: 1 for n_ok = 0 bounds P(n_ok = 0); tokens; replay steps.
    rounds : int, optional
        With it only histograms of that many whole rounds count (``mean * rounds`` accepted drafts,
        rounded); ends and histograms are then exact counts.

    Returns
    -------
    Bounds
        Per round; histograms as rounds when `rounds` is given, else as shares.

    Raises
    ------
    UsageError
        A mean outside 0..k.

    Examples
    --------
    >>> found = bounds(36 / 26, 3, lambda n: n == 0, rounds=26)
    >>> found.low, round(found.high, 3), found.high_n_ok
    (0.0, 0.538, (14, 0, 0, 12))
    """
    if k < 1 or not 0 <= mean <= k:
        raise UsageError("mean acceptance", f"{mean} is not in 0..{k}", "give drafts a round")
    values = [float(function(n)) for n in range(k + 1)]
    if rounds is not None:
        least = _extreme_rounds([-v for v in values], rounds, round(mean * rounds))
        most = _extreme_rounds(values, rounds, round(mean * rounds))
        return Bounds(
            _weighted(values, least) / rounds, _weighted(values, most) / rounds, least, most
        )
    pairs = list(two_point_histograms(mean, k))
    low = min(pairs, key=lambda shares: _weighted(values, shares))
    high = max(pairs, key=lambda shares: _weighted(values, shares))
    return Bounds(_weighted(values, low), _weighted(values, high), low, high)


def _pairs(mean: Number, k: int) -> list[tuple[int, int]]:
    ends = [(i, j) for i in range(k + 1) for j in range(i, k + 1)]
    return [(i, j) for i, j in ends if i <= mean < j or i == mean == j]


def _two_points(low: int, high: int, mean: Number, k: int) -> tuple[Number, ...]:
    """Shares at n_ok = `low` and `high` alone, with this mean."""
    upper = (mean - low) / max(high - low, 1)
    shares = [mean * 0] * (k + 1)
    shares[high] += upper
    shares[low] += 1 - upper
    return tuple(shares)


def _weighted(values: Sequence[float], weights: Sequence[float]) -> float:
    return math.fsum(v * w for v, w in zip(values, weights, strict=True))


def _extreme_rounds(values: Sequence[float], rounds: int, accepted: int) -> tuple[int, ...]:
    """Whole histogram of `rounds` and `accepted` with the greatest sum of values.

    Most rounds lie on the two points of the best corner; the few others are found exhaustively
    (an optimum needs fewer than k rounds off the corner's points).
    """
    k = len(values) - 1
    mean = accepted / rounds
    i, j = max(_pairs(mean, k), key=lambda p: _weighted(values, _two_points(p[0], p[1], mean, k)))
    upper = (accepted - i * rounds) // (j - i) if j > i else 0
    counts = [0] * (k + 1)
    counts[j] += max(0, upper - k)
    counts[i] += max(0, rounds - upper - k)
    rest = _best_rest(
        values, rounds - sum(counts), accepted - sum(n * c for n, c in enumerate(counts))
    )
    return tuple(a + b for a, b in zip(counts, rest, strict=True))


def _best_rest(values: Sequence[float], rounds: int, accepted: int) -> list[int]:
    """Histogram of few rounds by dynamic programming over (rounds, accepted)."""
    k = len(values) - 1
    best: list[dict[int, tuple[float, int]]] = [{0: (0.0, -1)}]
    for done in range(1, rounds + 1):
        layer: dict[int, tuple[float, int]] = {}
        for total, (value, _) in best[-1].items():
            for n in range(min(k, accepted - total) + 1):
                if total + n + k * (rounds - done) < accepted:
                    continue
                found = value + values[n]
                if total + n not in layer or found > layer[total + n][0]:
                    layer[total + n] = (found, n)
        best.append(layer)
    counts = [0] * (k + 1)
    for layer in reversed(best[1:]):
        n = layer[accepted][1]
        counts[n] += 1
        accepted -= n
    return counts
