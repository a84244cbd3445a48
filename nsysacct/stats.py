"""Small-sample statistics of two sets of captures: exact, distribution-free, no SciPy.

The sample is a capture, never a round: rounds of one capture share a clock, a temperature and a
prompt, so they are not independent. One method throughout, so that p value, estimate and
interval cannot contradict each other: the exact Mann-Whitney test and the Hodges-Lehmann
estimate with the interval that inverts that test. Ratios are compared as logarithms, which
orders them as the ratios themselves, so a value of 0 needs no special arithmetic.

Sources: Mann & Whitney 1947 (doi:10.1214/aoms/1177730491); Hodges & Lehmann 1963
(doi:10.1214/aoms/1177704172); interval: Hollander, Wolfe & Chicken, *Nonparametric Statistical
Methods*, 3rd ed., section 4.3; step search: optimal partitioning, Jackson et al. 2005
(doi:10.1109/LSP.2001.838216), with absolute deviations.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, median, quantiles, stdev
from typing import Literal

Scale = Literal["ratio", "difference"]


@dataclass(frozen=True, slots=True)
class Change:
    """Head against base: estimate, interval, and what the samples could have shown.

    ``estimate``, ``low`` and ``high`` are head / base for scale "ratio" (1 = no change), head -
    base for "difference". ``low`` and ``high`` are None when no interval of that confidence
    exists; ``detectable`` (same scale as a change: 0.03 = 3 %) is None with them.
    """

    scale: Scale
    n_base: int
    n_head: int
    estimate: float
    low: float | None
    high: float | None
    p: float
    confidence: float
    detectable: float | None


@dataclass(frozen=True, slots=True)
class Spread:
    """Quartiles of one series, in the series' own unit."""

    count: int
    median: float
    low_quartile: float
    high_quartile: float

    @property
    def relative(self) -> float | None:
        """Interquartile range over the median; None when the median is 0."""
        return (self.high_quartile - self.low_quartile) / self.median if self.median else None


def spread(values: Sequence[float]) -> Spread | None:
    """Quartiles of `values`; None for fewer than two.

    Examples
    --------
    >>> spread([1, 2, 3, 4, 5]).relative
    0.6666666666666666
    """
    if len(values) < 2:
        return None
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return Spread(len(values), middle, low, high)


def compare(
    base: Sequence[float],
    head: Sequence[float],
    *,
    scale: Scale = "ratio",
    confidence: float = 0.95,
) -> Change:
    """Change from `base` to `head` with an exact interval.

    Parameters
    ----------
    base, head : sequence of float, one value a capture
        Finite; not negative for scale "ratio".
    scale : "ratio" or "difference"
        What is estimated. A ratio against a base of 0 is infinite, 0 / 0 is 1.
    confidence : float
        Two-sided, 0..1.

    Returns
    -------
    Change

    Raises
    ------
    ValueError
        An empty side, a value that is not finite, or a negative one for a ratio.
    """
    _check(base, head, scale)
    pairs = sorted(_pair(scale, b, h) for b in base for h in head)
    low = high = detectable = None
    cut = interval_cut(len(base), len(head), confidence)
    if cut is not None:
        low, high = pairs[cut - 1], pairs[-cut]
        detectable = _detectable(base, head, scale, confidence)
    return Change(
        scale=scale,
        n_base=len(base),
        n_head=len(head),
        estimate=_middle(scale, pairs),
        low=low,
        high=high,
        p=mann_whitney_p(base, head),
        confidence=confidence,
        detectable=detectable,
    )


def mann_whitney_p(base: Sequence[float], head: Sequence[float]) -> float:
    """Exact two-sided p of the Mann-Whitney test, ties by midranks.

    The distribution is over all ways to deal the observed ranks to the two sides, so it is exact
    with ties too.

    Examples
    --------
    >>> round(mann_whitney_p([1, 2, 3, 4], [5, 6, 7, 8]), 4)
    0.0286
    """
    ranks = _doubled_midranks([*base, *head])
    seen = sum(ranks[: len(base)])
    counts = _rank_sum_counts(tuple(sorted(ranks)), len(base))
    total = sum(counts.values())
    lower = sum(ways for value, ways in counts.items() if value <= seen)
    upper = sum(ways for value, ways in counts.items() if value >= seen)
    return min(1.0, 2 * min(lower, upper) / total)


@lru_cache(maxsize=256)
def interval_cut(n_base: int, n_head: int, confidence: float) -> int | None:
    """Which ordered pairwise difference, counted from either end, bounds the interval.

    Returns
    -------
    int or None
        1 = the extremes; None when these sample sizes cannot reach `confidence`.

    Examples
    --------
    >>> interval_cut(4, 4, 0.95), interval_cut(3, 3, 0.95), interval_cut(5, 5, 0.95)
    (1, None, 3)
    """
    ways = _u_counts(n_base, n_head)
    allowed = (1 - confidence) / 2 * math.comb(n_base + n_head, n_base)
    below = 0
    for u, count in enumerate(ways):
        below += count
        if below > allowed * (1 + 1e-12):
            return u or None
    return None  # pragma: no cover - the loop always passes half of all ways


def samples_needed(confidence: float) -> int:
    """Find how many captures a side an interval of `confidence` takes.

    Examples
    --------
    >>> samples_needed(0.95), samples_needed(0.90)
    (4, 3)
    """
    return next(n for n in range(1, 60) if interval_cut(n, n, confidence) is not None)


@lru_cache(maxsize=64)
def detectable_sds(n_base: int, n_head: int, confidence: float, power: float = 0.95) -> float:
    """Shift, in standard deviations between captures, that is told from none with `power`.

    By simulation of normal noise with a fixed seed, through the very interval used for verdicts.
    Only meaningful where `interval_cut` is not None.
    """
    cut = interval_cut(n_base, n_head, confidence)
    if cut is None:
        raise ValueError("no interval exists for these sample sizes")
    generator = random.Random(20240229)
    normal = NormalDist()
    lows = []
    for _ in range(600):
        base = [normal.inv_cdf(generator.random() or 0.5) for _ in range(n_base)]
        head = [normal.inv_cdf(generator.random() or 0.5) for _ in range(n_head)]
        lows.append(sorted(h - b for b in base for h in head)[cut - 1])
    lows.sort()
    return max(0.0, -lows[int((1 - power) * len(lows))])


def step_starts(values: Sequence[float], *, floor: float = 0.01) -> list[int]:
    """Find the indices at which a series moves to a new level.

    Least absolute deviations of the logarithms around one median a segment, with a price per
    segment taken from the series' own noise; a step smaller than `floor` is not one, nor is a
    single value that stands out.

    Parameters
    ----------
    values : sequence of float
        In order of time; values of 0 or less are compared as they are, not as logarithms.
    floor : float
        Smallest step that counts, as a share of the level (absolute for series with zeros).

    Returns
    -------
    list of int
        First index of each segment but the first, ascending.

    Examples
    --------
    >>> step_starts([10.0, 10.1, 9.9, 10.0, 12.0, 12.1, 11.9, 12.0])
    [4]
    """
    if len(values) < 4:
        return []
    positive = min(values) > 0
    series = [math.log(v) for v in values] if positive else list(values)
    smallest = math.log1p(floor) if positive else floor
    starts = _partition(series, price=_segment_price(series, smallest))
    return _without_small_steps(series, starts, smallest)


def _check(base: Sequence[float], head: Sequence[float], scale: Scale) -> None:
    if not base or not head:
        raise ValueError("both sides need at least one value")
    if not all(map(math.isfinite, (*base, *head))):
        raise ValueError("values must be finite")
    if scale == "ratio" and min(*base, *head) < 0:
        raise ValueError("a ratio needs values that are not negative")


def _pair(scale: Scale, base: float, head: float) -> float:
    if scale == "difference":
        return head - base
    if base == 0:
        return 1.0 if head == 0 else math.inf
    return head / base


def _middle(scale: Scale, ordered: Sequence[float]) -> float:
    """Median; of ratios the geometric one, so that it is the median of the logarithms."""
    if scale == "difference" or len(ordered) % 2 or math.inf in ordered:
        return median(ordered)
    return math.sqrt(ordered[len(ordered) // 2 - 1] * ordered[len(ordered) // 2])


def _doubled_midranks(values: Sequence[float]) -> list[int]:
    ordered = sorted(values)
    first: dict[float, int] = {}
    last: dict[float, int] = {}
    for position, value in enumerate(ordered, start=1):
        first.setdefault(value, position)
        last[value] = position
    return [first[value] + last[value] for value in values]


@lru_cache(maxsize=256)
def _rank_sum_counts(ranks: tuple[int, ...], size: int) -> dict[int, int]:
    """Ways to reach each sum with `size` of the ranks."""
    by_size: list[dict[int, int]] = [{0: 1}] + [{} for _ in range(size)]
    for rank in ranks:
        for taken in range(size, 0, -1):
            target = by_size[taken]
            for value, ways in by_size[taken - 1].items():
                target[value + rank] = target.get(value + rank, 0) + ways
    return by_size[size]


@lru_cache(maxsize=256)
def _u_counts(n_base: int, n_head: int) -> list[int]:
    """Ways to each U = 0..n_base x n_head without ties."""
    ranks = tuple(2 * rank for rank in range(1, n_base + n_head + 1))
    sums = _rank_sum_counts(ranks, n_base)
    lowest = n_base * (n_base + 1)
    return [sums.get(lowest + 2 * u, 0) for u in range(n_base * n_head + 1)]


def _detectable(
    base: Sequence[float], head: Sequence[float], scale: Scale, confidence: float
) -> float | None:
    """Smallest true change that would be told from none in 95 of 100 repeats of this job."""
    sides = [list(base), list(head)]
    if scale == "ratio":
        if min(*base, *head) <= 0:
            return None
        sides = [[math.log(value) for value in side] for side in sides]
    freedom = len(base) + len(head) - 2
    within = sum((len(side) - 1) * stdev(side) ** 2 for side in sides if len(side) > 1)
    shift = detectable_sds(len(base), len(head), confidence) * math.sqrt(within / freedom)
    return math.expm1(shift) if scale == "ratio" else shift


def _segment_price(series: Sequence[float], smallest: float) -> float:
    """Price a segment by the noise of successive differences, at least by the floor."""
    jumps = sorted(abs(b - a) for a, b in itertools.pairwise(series))
    noise = jumps[len(jumps) // 2]  # median |difference| = 0.954 sd of normal noise
    return 2.0 * max(noise, smallest / 2) * max(1.0, math.log(len(series)))


def _partition(series: Sequence[float], price: float) -> list[int]:
    """Choose the starts of segments with the least total deviation plus `price` a segment.

    O(n^2 log n) with a running sorted segment; series are captures, hundreds at most.
    """
    n = len(series)
    best = [0.0] + [math.inf] * n
    start_of = [0] * (n + 1)
    for end in range(1, n + 1):
        segment: list[float] = []
        for start in range(end - 1, -1, -1):
            segment.append(series[start])
            if len(segment) < 2:
                continue  # one value is an outlier, not a level
            middle = median(segment)
            cost = best[start] + sum(abs(v - middle) for v in segment) + price
            if cost < best[end]:
                best[end], start_of[end] = cost, start
    starts = []
    end = n
    while end > 0:
        starts.append(start_of[end])
        end = start_of[end]
    return sorted(starts)[1:]


def _without_small_steps(
    series: Sequence[float], starts: Sequence[int], smallest: float
) -> list[int]:
    kept: list[int] = []
    bounds = [*starts, len(series)]
    for start, end in itertools.pairwise(bounds):
        before = series[kept[-1] if kept else 0 : start]
        if abs(median(series[start:end]) - median(before)) >= smallest:
            kept.append(start)
    return kept
