import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysacct import theory
from nsysacct.errors import UsageError

# Leviathan et al. 2023, table 1 (c = c_hat = 0): alpha, gamma, operations, speed
TABLE_1 = [
    (0.6, 2, 1.53, 1.96),
    (0.7, 3, 1.58, 2.53),
    (0.8, 2, 1.23, 2.44),
    (0.8, 5, 1.63, 3.69),
    (0.9, 2, 1.11, 2.71),
    (0.9, 10, 1.60, 6.86),
]
# a blog's simulated table: rows alpha .4 .6 .75 .9; columns MTP, external at beta 1, then at 1.6
TABLE_2 = [
    (1.02, 0.86, 0.71, 0.61),
    (1.21, 1.00, 0.84, 0.71),
    (1.44, 1.15, 1.00, 0.82),
    (1.71, 1.31, 1.19, 0.94),
]


@pytest.mark.parametrize(("alpha", "gamma", "operations", "speed"), TABLE_1)
def test_table_1_of_leviathan(alpha, gamma, operations, speed):
    assert theory.improvement_factor(alpha, gamma, 0.0) == pytest.approx(speed, abs=0.005)
    assert theory.operations_factor(alpha, gamma) == pytest.approx(operations, abs=0.005)


@pytest.mark.parametrize(
    ("alpha", "c", "gamma", "tokens", "factor"),
    [(0.9, 0.05, 5, 4.69, 3.75), (0.8, 0.05, 5, 3.69, 2.95), (0.7, 0.05, 5, 2.94, 2.35),
     (0.8, 0.1, 5, 3.69, 2.46), (0.8, 0.1, 3, 2.95, 2.27)],
)  # fmt: skip
def test_public_worked_examples_with_a_draft_cost(alpha, c, gamma, tokens, factor):
    assert theory.expected_tokens(alpha, gamma) == pytest.approx(tokens, abs=0.006)
    assert theory.improvement_factor(alpha, gamma, c) == pytest.approx(factor, abs=0.006)


def test_optimal_gamma_is_the_best_of_all_and_zero_when_nothing_pays():
    best = theory.optimal_gamma(0.8, 0.05)
    factors = {g: theory.improvement_factor(0.8, g, 0.05) for g in range(1, 65)}
    assert factors[best] == max(factors.values())
    assert theory.optimal_gamma(0.3, 0.9) == 0
    assert theory.optimal_gamma(0.9, 0.0, gamma_max=7) == 7


@given(alpha=st.floats(0.02, 0.98), c=st.floats(0.0, 0.9))
def test_corollary_3_9_some_gamma_helps_exactly_when_alpha_exceeds_c(alpha, c):
    if abs(alpha - c) < 1e-6:
        return
    assert (theory.optimal_gamma(alpha, c) > 0) == (alpha > c)
    if alpha > c:
        assert theory.improvement_factor(alpha, 1, c) == pytest.approx((1 + alpha) / (1 + c))


@given(alpha=st.floats(0.0, 0.99), gamma=st.integers(1, 12))
def test_the_sum_is_the_closed_form(alpha, gamma):
    closed = (1 - alpha ** (gamma + 1)) / (1 - alpha)
    assert theory.expected_tokens(alpha, gamma) == pytest.approx(closed)
    assert theory.expected_tokens(1.0, gamma) == gamma + 1


@given(alpha=st.floats(0.0, 1.0), k=st.integers(1, 10))
def test_alpha_for_mean_inverts_the_mean(alpha, k):
    mean = theory.expected_tokens(alpha, k) - 1
    again = theory.alpha_for_mean(min(mean, k), k)
    assert theory.expected_tokens(again, k) - 1 == pytest.approx(mean, abs=1e-9)


def test_break_even_alpha():
    alpha = theory.break_even_alpha(3, 1.7)
    assert alpha is not None
    assert theory.expected_tokens(alpha, 3) == pytest.approx(1.7)
    assert theory.break_even_alpha(3, 4.01) is None
    assert theory.break_even_alpha(3, 0.9) == 0.0


@pytest.mark.parametrize(
    ("experts", "per_token", "tokens", "ratio"),
    [(256, 8, 2, 1.969), (128, 8, 4, 3.640), (512, 10, 4, 3.884), (8, 2, 5, 3.051)],
)
def test_expected_distinct_experts(experts, per_token, tokens, ratio):
    assert theory.expert_ratio(experts, per_token, tokens) == pytest.approx(ratio, abs=5e-4)
    assert theory.distinct_experts(experts, per_token, 1) == pytest.approx(per_token)


def test_target_efficiency_and_utility_are_beta_and_speedup_in_other_words():
    assert theory.target_efficiency(51, 112) == pytest.approx(1 / 2.196, abs=1e-4)
    assert theory.utility(2.0, 30.0, 20.0) == pytest.approx(2.0 / (30 / 20))
    assert theory.implied_step_cost(2.65, 1.36) == pytest.approx(1.949, abs=5e-4)


def test_no_f_of_alpha_over_h_of_costs_makes_table_2():
    assert not theory.is_separable(TABLE_2)
    at_beta_1 = [row[:2] for row in TABLE_2]
    assert not theory.is_separable(at_beta_1)
    # beta alone does separate: the two MTP columns differ by a constant factor within rounding
    assert theory.is_separable([(row[0], row[2]) for row in TABLE_2])


def test_separability_is_decided_at_the_rounding_intervals_ends():
    # the fourth cell is x01 x10 / x00, at most 1.005 ** 2 / 0.995 = 1.0151 when all print 1.00
    assert theory.is_separable([[1.00, 1.00], [1.00, 1.02]])
    assert not theory.is_separable([[1.00, 1.00], [1.00, 1.03]])
    assert theory.is_separable([[1.00, 1.00], [1.00, 0.99]])
    assert not theory.is_separable([[1.00, 1.00], [1.00, 0.98]])  # 0.995 ** 2 / 1.005 = 0.9851


def test_table_2_is_not_its_own_printed_formula():
    cells = [(a, c) for a in (0.4, 0.6, 0.75, 0.9) for c in (0.05, 0.25)]
    printed = [value for row in TABLE_2 for value in row[:2]]
    formula = [theory.improvement_factor(a, 4, c) for a, c in cells]
    assert [round(x, 2) for x in formula] == [1.37, 0.82, 1.92, 1.15, 2.54, 1.53, 3.41, 2.05]
    close = [abs(f - p) <= 0.05 * p for f, p in zip(formula, printed, strict=True)]
    assert sum(close) == 1


@given(
    f=st.lists(st.floats(0.5, 3), min_size=2, max_size=4),
    h=st.lists(st.floats(0.5, 3), min_size=2, max_size=4),
)
def test_a_table_made_from_f_over_h_is_separable_after_rounding(f, h):
    assert theory.is_separable([[round(a / b, 2) for b in h] for a in f], half_unit=0.0051)


@pytest.mark.parametrize("table", [[], [[1.0, 2.0], [1.0]], [[0.0, 1.0]]])
def test_a_broken_table_is_refused(table):
    with pytest.raises(UsageError):
        theory.is_separable(table)


@pytest.mark.parametrize(
    "call",
    [
        lambda: theory.expected_tokens(1.2, 3),
        lambda: theory.expected_tokens(float("nan"), 3),
        lambda: theory.expected_tokens(0.5, -1),
        lambda: theory.distinct_experts(8, 9, 1),
        lambda: theory.alpha_for_mean(3.5, 3),
        lambda: theory.target_efficiency(0, 1),
        lambda: theory.utility(1, 0, 1),
        lambda: theory.implied_step_cost(1, 0),
        lambda: theory.improvement_factor(0.5, 2, 0.0, beta=0.0),
    ],
)
def test_values_that_cannot_be_are_refused(call):
    with pytest.raises(UsageError):
        call()
