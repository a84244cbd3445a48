"""What a mean of accepted drafts leaves open: all histograms that have it, and their extremes.

The histograms with a given sum and mean form a polytope whose corners have two points at most, so
the extremes of any function's mean are found by trying pairs; with whole rounds by few more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nsysacct.errors import UsageError
from nsysacct.theory import alpha_for_mean


@dataclass(frozen=True, slots=True)
class Bounds:
    """Least and greatest value over all histograms that fit, each with one that attains it."""

    low: float
    high: float
    low_n_ok: tuple[float, ...]
    high_n_ok: tuple[float, ...]


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
    alpha = alpha_for_mean(mean, k)
    return (*(alpha**n * (1 - alpha) for n in range(k)), alpha**k)


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
    pairs = [_two_points(i, j, mean, k) for i, j in _pairs(mean, k)]
    low = min(pairs, key=lambda shares: _weighted(values, shares))
    high = max(pairs, key=lambda shares: _weighted(values, shares))
    return Bounds(_weighted(values, low), _weighted(values, high), low, high)


def _pairs(mean: float, k: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(k + 1) for j in range(i, k + 1) if i <= mean <= j]


def _two_points(i: int, j: int, mean: float, k: int) -> tuple[float, ...]:
    # sum and mean are two equations, so the corners of the feasible set have two points at most
    upper = (mean - i) / (j - i) if j > i else 0.0
    shares = [0.0] * (k + 1)
    shares[j] += upper
    shares[i] += 1 - upper
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
