"""Where this run's costs would break even: acceptance, verify, draft and replay cost, and k.

All answers keep the other terms as measured and the rest at its measured cost a round, unless a
treatment is named; they come from `nsysacct.economics.Model`, so replay follows the histogram.
"""

from __future__ import annotations

from fractions import Fraction

import msgspec

from nsysacct.economics import NEEDS_PLAIN, NS_PER_MS, RESIDUAL_TREATMENTS, Costs, Model
from nsysacct.errors import UsageError
from nsysacct.histograms import Histogram, at_other_k, constant_rate_histogram, mean_of
from nsysacct.whatif import base_histogram

GRID = 200
"""Rates tried before bisection: under some replay rules more acceptance is not always faster."""


class AcceptanceNeeded(msgspec.Struct, frozen=True, kw_only=True):
    """Lowest constant per-position rate that gives 1.0x, and its mean; None: no rate does."""

    residual: str
    rate: float | None
    mean_accepted: float | None
    tokens_per_round: float | None


class CostNeeded(msgspec.Struct, frozen=True, kw_only=True):
    """A phase's cost a round, measured and at 1.0x. ``needed_ms`` below 0: not by this alone."""

    phase: str
    measured_ms: float
    needed_ms: float

    @property
    def reachable(self) -> bool:
        """Whether some cost of this phase, 0 or more, gives 1.0x."""
        return self.needed_ms >= 0


class AtK(msgspec.Struct, frozen=True, kw_only=True):
    """Speed-up with k drafts a round; ``extrapolated``: acceptance at constant rate beyond data."""

    k: int
    speedup: float
    tokens_per_round: float
    extrapolated: bool


class BreakEven(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that would bring the run to 1.0x, one thing at a time."""

    speedup: float
    tokens_per_round: float
    round_cost_plain_steps: float
    acceptance: list[AcceptanceNeeded]
    costs: list[CostNeeded]
    by_k: list[AtK]
    best_k: int
    notes: list[str] = []


def break_even(
    costs: Costs, *, k_max: int | None = None, verify_slope_ms: float = 0.0
) -> BreakEven:
    """Return what would make a measured run break even.

    Parameters
    ----------
    costs : Costs
        With a plain step time.
    k_max : int, optional
        Largest k to try; default twice the measured one, at least 8.
    verify_slope_ms : float
        What one verified row more costs (see ``nsysacct curve``); 0 holds the verify cost.

    Raises
    ------
    UsageError
        Plain step time unknown.

    Examples
    --------
    >>> import nsysacct as na
    >>> account = na.split("small_graph.sqlite", layers=8, closing=2, n_ok=[5, 1, 2, 2])
    >>> even = na.break_even(na.costs_of(account))
    >>> round(even.speedup, 2), even.best_k
    (0.34, 3)
    """
    if costs.plain_ns is None:
        raise UsageError("plain step", "is not known", NEEDS_PLAIN)
    model = Model(costs)
    limit = k_max or max(8, 2 * costs.k)
    by_k = [_at_k(model, k, verify_slope_ms) for k in range(1, limit + 1)]
    notes = list(costs.notes)
    notes.append(
        f"k from 1 to {limit}; draft scales with k, verify adds {verify_slope_ms:g} ms a row"
    )
    if any(point.extrapolated for point in by_k):
        notes.append(f"acceptance beyond position {costs.k} is extrapolated at a constant rate")
    speedup = float(costs.speedup_of(Fraction(costs.wall_ns)))
    return BreakEven(
        speedup=speedup,
        tokens_per_round=costs.tokens_per_round,
        round_cost_plain_steps=costs.round_ns / costs.plain_ns,
        acceptance=[_acceptance(model, residual) for residual in RESIDUAL_TREATMENTS],
        costs=_costs(costs),
        by_k=by_k,
        best_k=max(by_k, key=lambda point: (point.speedup, -point.k)).k,
        notes=notes,
    )


def speedup_with(
    model: Model, histogram: Histogram, residual: str, parts: Fraction | None = None
) -> float:
    """Speed-up with another histogram, replay recomputed; `parts` replaces draft + verify, ns."""
    shape = model.shape("", histogram)
    both = model.draft + model.verify if parts is None else parts
    total = model.total(shape.rounds, both + shape.replay_ns, residual)
    return float(model.costs.speedup_of(total))


def _acceptance(model: Model, residual: str) -> AcceptanceNeeded:
    k = model.costs.k

    def pays(alpha: float) -> bool:
        histogram = constant_rate_histogram(Fraction(alpha), k)
        return speedup_with(model, histogram, residual) >= 1

    first = next((i for i in range(GRID + 1) if pays(i / GRID)), None)
    if first is None:
        return AcceptanceNeeded(
            residual=residual, rate=None, mean_accepted=None, tokens_per_round=None
        )
    low, high = max(first - 1, 0) / GRID, first / GRID
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    histogram = constant_rate_histogram(Fraction(high), k)
    return AcceptanceNeeded(
        residual=residual,
        rate=high,
        mean_accepted=float(mean_of(histogram)),
        tokens_per_round=float(mean_of(histogram, model.costs.semantics.tokens)),
    )


def _costs(costs: Costs) -> list[CostNeeded]:
    """Spare time a round goes to one phase: what it may cost when the others stay."""
    plain_wall = Fraction(costs.plain_ns or 0) * costs.tokens / costs.batch
    spare = (plain_wall - costs.wall_ns) / costs.rounds
    amounts = {
        "draft": costs.draft_ns,
        "verify": costs.verify_ns,
        "replay": costs.replay_ns,
        "rest": costs.rest_ns,
    }
    return [
        CostNeeded(
            phase=phase,
            measured_ms=amount / costs.rounds / NS_PER_MS,
            needed_ms=float(Fraction(amount, costs.rounds) + spare) / NS_PER_MS,
        )
        for phase, amount in amounts.items()
    ]


def _at_k(model: Model, k: int, verify_slope_ms: float) -> AtK:
    costs = model.costs
    base = base_histogram(model)
    histogram = base if k == costs.k else at_other_k(base, k)
    parts = sum(model.parts_at(k, verify_slope_ms), Fraction(0))
    return AtK(
        k=k,
        speedup=speedup_with(model, histogram, "per round", parts),
        tokens_per_round=float(model.fill * mean_of(histogram, costs.semantics.tokens)),
        extrapolated=k > costs.k,
    )
