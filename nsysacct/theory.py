"""Closed formulas from the literature, each with its source. No trace, no account, no fitting.

Symbols: ``alpha`` acceptance rate of one drafted token given that all before it were accepted;
``gamma`` drafted tokens a round (k elsewhere in this library); ``c`` cost of one draft step over
one target step; ``beta`` cost of one verify pass over one plain target step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from nsysacct.errors import UsageError


def _check_rate(name: str, value: float) -> None:
    if not 0 <= value <= 1 or math.isnan(value):
        raise UsageError(name, f"{value} is not a rate", "give a number from 0 to 1")


def _check_count(name: str, value: int, least: int = 0) -> None:
    if value < least:
        raise UsageError(name, f"{value} is below {least}", f"give {least} or more")


def expected_tokens(alpha: float, gamma: int) -> float:
    """Tokens that a round emits on average, the bonus token included.

    ``(1 - alpha**(gamma + 1)) / (1 - alpha)``, which is ``1 + alpha + ... + alpha**gamma``.
    Source: Leviathan et al. 2023 (arXiv 2211.17192), equation 1.

    Parameters
    ----------
    alpha : float
        Acceptance rate, 0..1, the same at each position.
    gamma : int
        Drafted tokens a round.

    Raises
    ------
    UsageError
        A rate outside 0..1 or a negative gamma.

    Examples
    --------
    >>> round(expected_tokens(0.8, 5), 3)
    3.689
    """
    _check_rate("alpha", alpha)
    _check_count("gamma", gamma)
    return math.fsum(alpha**j for j in range(gamma + 1))


def improvement_factor(
    alpha: float, gamma: int, c: float, beta: float = 1.0, extra: float = 0.0
) -> float:
    """Return the expected wall-time improvement ``E / (beta + c gamma + extra)``.

    With ``beta = 1`` and ``extra = 0`` this is Theorem 3.8 of Leviathan et al. 2023. ``extra`` is
    everything that the theorem leaves out (replay, host work), in plain target steps a round.

    Examples
    --------
    >>> round(improvement_factor(0.8, 5, 0.05), 2)
    2.95
    """
    cost = beta + c * gamma + extra
    if cost <= 0:
        raise UsageError("cost ratio", f"a round of cost {cost} plain steps", "give costs above 0")
    return expected_tokens(alpha, gamma) / cost


def operations_factor(alpha: float, gamma: int, c_hat: float = 0.0) -> float:
    """Growth of arithmetic operations: ``(c_hat gamma + gamma + 1) / E``.

    Source: Leviathan et al. 2023, Theorem 3.11. ``c_hat`` is the draft model's operations over the
    target's, per token.
    """
    return (c_hat * gamma + gamma + 1) / expected_tokens(alpha, gamma)


def optimal_gamma(alpha: float, c: float, beta: float = 1.0, gamma_max: int = 64) -> int:
    """Return the best gamma of 0..`gamma_max` by improvement factor (0: do not speculate).

    Ties go to the smaller gamma. Source: Leviathan et al. 2023, section 3.5, by search instead of
    by its plot. For gamma = 0 no verify pass runs, so the factor is 1 whatever beta is.
    """
    _check_count("gamma_max", gamma_max)
    best, best_factor = 0, 1.0
    for gamma in range(1, gamma_max + 1):
        factor = improvement_factor(alpha, gamma, c, beta)
        if factor > best_factor:
            best, best_factor = gamma, factor
    return best


def break_even_alpha(gamma: int, round_cost: float) -> float | None:
    """Return the alpha at which expected tokens equal `round_cost`; None if none does.

    ``round_cost`` is a round's time in plain target steps. Below 1 everything pays (0.0 is
    returned); above gamma + 1 nothing does.
    """
    if round_cost > gamma + 1:
        return None
    if round_cost <= 1:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        if expected_tokens(middle, gamma) < round_cost:
            low = middle
        else:
            high = middle
    return high


def alpha_for_mean(mean: float, k: int) -> float:
    """Constant per-position rate whose mean number of accepted drafts is `mean`.

    Solves ``alpha + alpha**2 + ... + alpha**k == mean`` by bisection.

    Raises
    ------
    UsageError
        A mean outside 0..k.
    """
    _check_count("k", k, 1)
    if not 0 <= mean <= k:
        raise UsageError("mean acceptance", f"{mean} is not in 0..{k}", "give drafts a round")
    if mean == k:
        return 1.0
    return break_even_alpha(k, mean + 1) or 0.0


def distinct_experts(experts: int, per_token: int, tokens: int) -> float:
    """Distinct experts that a batch of `tokens` activates in one layer, routing uniform.

    ``E (1 - (1 - K/E)**t)``. Real routing overlaps more, so this is an upper bound for a real
    model. Source: MoESD (arXiv 2505.19645).

    Examples
    --------
    >>> round(distinct_experts(512, 10, 4), 2)
    38.84
    """
    _check_count("tokens", tokens)
    if not 0 < per_token <= experts:
        raise UsageError(
            "experts", f"{per_token} of {experts} a token", "give 0 < experts per token <= experts"
        )
    return experts * (1 - (1 - per_token / experts) ** tokens)


def expert_ratio(experts: int, per_token: int, tokens: int) -> float:
    """Expert weights that `tokens` rows read over those of one row: the ceiling of a MoE's beta.

    ``distinct_experts(E, K, t) / K``; the part of the model that is not experts grows less.
    """
    return distinct_experts(experts, per_token, tokens) / per_token


def target_efficiency(plain_step: float, verify_pass: float) -> float:
    """``T(1) / T(M)``: 1 when verifying M rows costs what one row does. Source: MoESD.

    Both times in one unit.
    """
    if plain_step <= 0 or verify_pass <= 0:
        raise UsageError("step time", "is not above 0", "give two measured times")
    return plain_step / verify_pass


def utility(tokens_per_round: float, round_time: float, plain_step: float) -> float:
    """Token gain over round cost; speculate only while it is above 1.

    ``tokens_per_round / (round_time / plain_step)``, which is also the speed-up. Source: Cascade
    (arXiv 2506.20675).
    """
    if round_time <= 0 or plain_step <= 0:
        raise UsageError("step time", "is not above 0", "give two measured times")
    return tokens_per_round * plain_step / round_time


def implied_step_cost(tokens_per_round: float, speedup: float) -> float:
    """Round time in plain steps that a reported speed-up implies: ``tokens / speedup``."""
    if speedup <= 0:
        raise UsageError("speed-up", "is not above 0", "give the measured ratio")
    return tokens_per_round / speedup


def is_separable(table: Sequence[Sequence[float]], half_unit: float = 0.005) -> bool:
    """Whether a printed table can be ``f(row) / h(column)`` for any f and h at all.

    Each printed value stands for an interval of half a printed unit either way. With logarithms
    ``f(row)/h(column)`` becomes ``u[row] - v[column]``, and the intervals become difference
    constraints; they have a solution exactly when their graph has no negative cycle
    (Bellman-Ford). So ``False`` is a proof, not a failed fit.

    Parameters
    ----------
    table : sequence of rows
        Positive numbers as printed, every row of one length.
    half_unit : float
        Half the last printed digit.

    Raises
    ------
    UsageError
        Rows of differing length, or a value that is not above `half_unit`.
    """
    width = len(table[0]) if table else 0
    if not width or any(len(row) != width for row in table):
        raise UsageError("table", "has no cells or rows of differing length", "give a full table")
    if any(value <= half_unit for row in table for value in row):
        raise UsageError("table", "has a value within half a unit of 0", "give positive values")
    rows = len(table)
    edges: list[tuple[int, int, float]] = []
    for i, row in enumerate(table):
        for j, value in enumerate(row):
            # u - v <= log(high); v - u <= -log(low)
            edges.append((rows + j, i, math.log(value + half_unit)))
            edges.append((i, rows + j, -math.log(value - half_unit)))
    distance = [0.0] * (rows + width)
    for _ in range(rows + width):
        changed = False
        for start, end, weight in edges:
            if distance[start] + weight < distance[end] - 1e-12:
                distance[end] = distance[start] + weight
                changed = True
        if not changed:
            return True
    return False
