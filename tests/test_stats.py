"""Exact small-sample statistics against brute force, and the coverage they promise."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsysacct import stats

small = st.lists(st.integers(0, 6), min_size=1, max_size=5)


def brute_force_p(base, head):
    """Two-sided p over every way to deal the pooled values to the two sides."""
    pooled = [*base, *head]

    def u(chosen):
        rest = [i for i in range(len(pooled)) if i not in chosen]
        return sum(
            (pooled[i] > pooled[j]) + 0.5 * (pooled[i] == pooled[j]) for i in chosen for j in rest
        )

    seen = u(range(len(base)))
    every = [u(c) for c in itertools.combinations(range(len(pooled)), len(base))]
    lower = sum(value <= seen for value in every)
    upper = sum(value >= seen for value in every)
    return min(1.0, 2 * min(lower, upper) / len(every))


@given(small, small)
@settings(max_examples=60, deadline=None)
def test_p_is_exact_with_ties(base, head):
    assert stats.mann_whitney_p(base, head) == pytest.approx(brute_force_p(base, head), abs=1e-12)


def test_known_p_values():
    assert stats.mann_whitney_p([1, 2, 3], [4, 5, 6]) == pytest.approx(0.1)
    assert stats.mann_whitney_p([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / 252)
    assert stats.mann_whitney_p([1], [1]) == 1.0


def test_interval_and_p_agree():
    """The interval leaves out "no change" exactly when p is small enough (no ties)."""
    generator = random.Random(1)
    for _ in range(300):
        shift = generator.choice([1.0, 1.02, 1.1])
        base = [generator.gauss(100, 2) for _ in range(5)]
        head = [generator.gauss(100, 2) * shift for _ in range(4)]
        change = stats.compare(base, head)
        assert change.low is not None
        assert change.high is not None
        excluded = not change.low <= 1 <= change.high
        assert excluded == (change.p <= 0.05)
        assert change.low <= change.estimate <= change.high


@pytest.mark.parametrize(
    ("sizes", "cut"),
    # Hollander & Wolfe: critical values of the rank sum test, two-sided 0.05
    [((4, 4), 1), ((3, 3), None), ((3, 5), 1), ((5, 5), 3), ((8, 8), 14), ((10, 10), 24)],
)
def test_interval_cut(sizes, cut):
    assert stats.interval_cut(*sizes, 0.95) == cut
    assert stats.interval_cut(*reversed(sizes), 0.95) == cut


def test_samples_needed():
    assert stats.samples_needed(0.95) == 4
    assert stats.samples_needed(0.99) == 5


@given(
    st.lists(st.floats(1, 1e9), min_size=1, max_size=6),
    st.lists(st.floats(1, 1e9), min_size=1, max_size=6),
    st.floats(0.01, 100),
)
@settings(max_examples=60, deadline=None)
def test_ratio_is_free_of_units_and_inverts(base, head, unit):
    change = stats.compare(base, head)
    scaled = stats.compare([b * unit for b in base], [h * unit for h in head])
    assert scaled.estimate == pytest.approx(change.estimate)
    back = stats.compare(head, base)
    assert back.estimate == pytest.approx(1 / change.estimate)
    if change.low is not None:
        assert back.high == pytest.approx(1 / change.low)


def test_zeros_need_no_special_arithmetic():
    assert stats.compare([0, 0], [0, 0]).estimate == 1
    assert stats.compare([0, 0, 0, 0], [5, 5, 5, 5]).low == math.inf
    assert stats.compare([5, 5, 5, 5], [0, 0, 0, 0]).high == 0
    assert stats.compare([0, 1, 2, 3], [0, 1, 2, 3]).detectable is None


def test_difference_scale():
    change = stats.compare([0, 0, 0, 0], [2, 2, 2, 2], scale="difference")
    assert (change.estimate, change.low, change.high) == (2, 2, 2)


@pytest.mark.parametrize(
    ("base", "head"), [([], [1]), ([1], []), ([1], [math.nan]), ([-1], [1]), ([math.inf], [1])]
)
def test_values_that_cannot_be_compared(base, head):
    with pytest.raises(ValueError, match=r"."):
        stats.compare(base, head)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(4, 4), (5, 5), (4, 8)])
def test_interval_covers_the_truth_as_promised(sizes):
    generator = random.Random(7)
    covered = runs = 0
    for _ in range(2000):
        base = [math.exp(generator.gauss(0, 0.02)) for _ in range(sizes[0])]
        head = [1.05 * math.exp(generator.gauss(0, 0.02)) for _ in range(sizes[1])]
        change = stats.compare(base, head)
        covered += change.low <= 1.05 <= change.high
        runs += 1
    assert covered / runs > 0.94


def test_detectable_change_is_detected():
    """A true change of the stated size is told from none about as often as stated."""
    sds = stats.detectable_sds(5, 5, 0.95)
    generator = random.Random(3)
    told = 0
    for _ in range(600):
        base = [generator.gauss(0, 1) for _ in range(5)]
        head = [generator.gauss(sds, 1) for _ in range(5)]
        told += stats.compare(base, head, scale="difference").low > 0
    assert 0.92 <= told / 600 <= 0.98


def test_detectable_is_the_samples_own_unit():
    change = stats.compare([100, 101, 99, 100, 100.5], [100, 99, 101, 100.2, 99.7])
    assert 0.01 < change.detectable < 0.05
    assert stats.compare([100, 101], [102, 103]).detectable is None


def test_spread():
    assert stats.spread([1.0]) is None
    found = stats.spread([10, 11, 12, 13])
    assert (found.count, found.median) == (4, 11.5)
    assert stats.spread([0, 0, 0]).relative is None


def noisy(levels, sd, seed):
    generator = random.Random(seed)
    return [level * math.exp(generator.gauss(0, sd)) for level in levels]


def test_steps_are_found_where_they_are():
    levels = [100] * 12 + [106] * 10 + [98] * 8
    for seed in range(10):
        assert stats.step_starts(noisy(levels, 0.005, seed)) == [12, 22]


def test_noise_makes_no_steps():
    found = [len(stats.step_starts(noisy([100] * 30, 0.01, seed))) for seed in range(30)]
    assert sum(found) <= 1


def test_one_outlier_is_no_step():
    values = noisy([100] * 20, 0.004, 5)
    values[9] *= 1.08
    assert stats.step_starts(values) == []


def test_steps_of_flat_short_and_zero_series():
    assert stats.step_starts([1.0, 2.0]) == []
    assert stats.step_starts([5.0] * 10) == []
    assert stats.step_starts([0.0] * 6 + [3.0] * 6) == [6]
    assert stats.step_starts([100.0] * 8 + [100.4] * 8, floor=0.01) == []
