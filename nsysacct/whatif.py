"""Levers on a measured run: what each alone, each pair and all of them would make of it, as ranges.

Which corners make a range: with a whole histogram, rounds and replay follow from it, and the rest
is kept per round, fixed in total, or dropped (replay also held at its measured cost a round). With
only a mean, two models of the rounds stand beside each other: the histogram of a constant
per-position rate, replay recomputed; and rounds scaled by A + 1, which knows no histogram, so
replay is held. What the mean alone allows, over all histograms, is given apart (``any_low/high``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import msgspec

from nsysacct.economics import NS_PER_MS, RESIDUAL_TREATMENTS, Costs, Model, Shape
from nsysacct.errors import UsageError
from nsysacct.histograms import (
    Histogram,
    at_other_k,
    constant_rate_histogram,
    normal,
    two_point_histograms,
)
from nsysacct.theory import alpha_for_mean

HAND_UNIT_NS = 100_000
"""0.1 ms: the precision of a calculation by hand (the "by hand" corner)."""
LARGE_REST = 0.5
"""Share of the wall outside the phases from which dropping it says little about the run."""
HAND_ERROR = Fraction(1, 100)
"""The "by hand" corner is left out where its rounding moves a round's cost by more than this."""


class Levers(msgspec.Struct, frozen=True, kw_only=True):
    """What to change; None or False leaves a term as measured. Times are ms a round.

    ``n_ok`` counts rounds by accepted drafts (0..k); ``acceptance`` is only their mean.
    ``verify_slope_ms`` is what one verified row more adds, for ``k``.

    Examples
    --------
    >>> import nsysacct as na
    >>> na.Levers(no_replay=True, verify_ms=0.4).verify_ms
    0.4
    """

    n_ok: tuple[int, ...] | None = None
    acceptance: Fraction | None = None
    no_replay: bool = False
    replay_ms: float | None = None
    verify_ms: float | None = None
    draft_ms: float | None = None
    k: int | None = None
    no_residual: bool = False
    verify_slope_ms: float = 0.0


class Corner(msgspec.Struct, frozen=True, kw_only=True):
    """One fully specified answer: which rounds, which replay, which rest."""

    name: str
    acceptance: str
    replay: str
    residual: str
    rounds: float
    total_ns: int
    ms_per_token: float
    speedup: float | None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of levers with its range (lowest and highest corner).

    ``any_low``/``any_high``: the speed-up over *all* histograms with the given mean, replay worked
    out anew; only for a lever that gives a mean alone.
    """

    levers: list[str]
    low: float | None
    high: float | None
    low_ms_per_token: float
    high_ms_per_token: float
    corners: list[Corner]
    any_low: float | None = None
    any_high: float | None = None

    @property
    def ends(self) -> tuple[Corner, Corner]:
        """The corners at the ends of the range: slowest and fastest."""
        by_time = sorted(self.corners, key=lambda corner: -corner.ms_per_token)
        return by_time[0], by_time[-1]

    def corner(self, *words: str) -> Corner:
        """Return the first corner whose name holds all of `words`."""
        return next(c for c in self.corners if all(w in c.name for w in words))


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """Baseline, each lever alone, pairs, all. ``difference_ns``: baseline minus measured."""

    costs: Costs
    rows: list[Row]
    difference_ns: int
    notes: list[str] = []


def what_if(costs: Costs, levers: Levers) -> WhatIf:
    """Work out all rows.

    Parameters
    ----------
    costs : Costs
        The measured run, of `nsysacct.economics.costs_of`.
    levers : Levers
        What to change.

    Raises
    ------
    UsageError
        Levers that contradict each other or the run (a histogram of another k, a mean above k).

    Examples
    --------
    >>> import nsysacct as na
    >>> account = na.split("small_graph.sqlite", layers=8, closing=2, n_ok=[5, 1, 2, 2])
    >>> answer = na.what_if(na.costs_of(account), na.Levers(no_replay=True))
    >>> for row in answer.rows:
    ...     print(row.levers, f"{row.low:.2f} to {row.high:.2f}")
    [] 0.34 to 0.34
    ['no replay'] 0.44 to 0.74
    """
    _check(costs, levers)
    model = Model(costs)
    baseline = _row(model, [], Levers())
    measured = baseline.corners[0].total_ns
    rows = [baseline, *(_row(model, names, part) for names, part in _combinations(levers))]
    return WhatIf(
        costs=costs, rows=rows, difference_ns=measured - costs.wall_ns, notes=_notes(model, levers)
    )


def _check(costs: Costs, levers: Levers) -> None:
    k = levers.k or costs.k
    if levers.n_ok is not None and levers.acceptance is not None:
        raise UsageError("--acceptance", "is given beside a histogram", "give one of them")
    if levers.n_ok is not None and len(levers.n_ok) != k + 1:
        raise UsageError(
            "--n-ok", f"has {len(levers.n_ok)} counts for k = {k}", f"give {k + 1}: n_ok = 0..{k}"
        )
    if levers.acceptance is not None and not 0 <= levers.acceptance <= costs.k:
        raise UsageError(
            "--acceptance", f"{float(levers.acceptance)} is not in 0..{costs.k}",
            "give the mean number of accepted drafts a round",
        )  # fmt: skip
    if levers.no_replay and levers.replay_ms is not None:
        raise UsageError("--replay-ms", "is given beside --no-replay", "give one of them")
    if levers.k is not None and levers.k < 1:
        raise UsageError("--k", f"{levers.k} drafts are no speculation", "give 1 or more")
    for name in ("replay_ms", "verify_ms", "draft_ms"):
        value = getattr(levers, name)
        if value is not None and value < 0:
            raise UsageError(f"--{name.replace('_', '-')}", "is negative", "give ms a round")


_LABELS: dict[str, Callable[[Any], str]] = {
    "n_ok": lambda v: "n_ok " + ",".join(map(str, v)),
    "acceptance": lambda v: f"acceptance {float(v):g}",
    "no_replay": lambda v: "no replay",
    "replay_ms": lambda v: f"replay {v:g} ms",
    "verify_ms": lambda v: f"verify {v:g} ms",
    "draft_ms": lambda v: f"draft {v:g} ms",
    "k": lambda v: f"k {v}",
    "no_residual": lambda v: "no residual",
}


def _combinations(levers: Levers) -> Iterator[tuple[list[str], Levers]]:
    values = {name: getattr(levers, name) for name in _LABELS}
    given = {name: v for name, v in values.items() if v is not None and v is not False}
    if "n_ok" in given and "k" in given:  # a histogram of another k has no meaning without it
        given = {"n_ok": given.pop("n_ok"), **given}
    sizes = sorted({1, 2, len(given)} & set(range(1, len(given) + 1)))
    for size in sizes:
        for names in itertools.combinations(given, size):
            if "n_ok" in names and "k" in given and "k" not in names:
                continue
            chosen = {name: given[name] for name in names}
            yield (
                [_LABELS[name](value) for name, value in chosen.items()],
                Levers(**chosen, verify_slope_ms=levers.verify_slope_ms),
            )


def _shapes(model: Model, levers: Levers) -> list[Shape]:
    costs = model.costs
    k = levers.k or costs.k
    if levers.n_ok is not None:
        histogram = normal(levers.n_ok)
        shapes = [model.shape("histogram given", histogram)]
        if levers.k is None:
            shapes.append(model.shape("histogram given", histogram, held=True))
        return shapes
    if levers.acceptance is not None:
        alpha = Fraction(alpha_for_mean(float(levers.acceptance), costs.k))
        shapes = [model.shape("constant rate", constant_rate_histogram(alpha, k))]
        if levers.k is None and costs.accepted is not None:
            shapes.append(model.calibrated_shape(levers.acceptance))
        return shapes
    if k == costs.k:
        return [Shape("as measured", Fraction(costs.rounds), model.replay, "as measured")]
    return [model.shape("histogram at other k", at_other_k(base_histogram(model), k))]


def base_histogram(model: Model) -> Histogram:
    """Return the measured histogram, or the constant-rate one when only its mean is known."""
    costs = model.costs
    if model.base is not None:
        return model.base
    if costs.mean_accepted is None:
        raise UsageError("acceptance", "of the measured run is not known", "give its n_ok")
    alpha = Fraction(alpha_for_mean(costs.mean_accepted, costs.k))
    return constant_rate_histogram(alpha, costs.k)


def _fixed_parts(model: Model, levers: Levers) -> tuple[Fraction, Fraction, Fraction | None]:
    """Draft and verify of a round, and replay where a lever sets it, ns."""
    draft, verify = model.parts_at(levers.k or model.costs.k, levers.verify_slope_ms)
    if levers.verify_ms is not None:
        verify = Fraction(levers.verify_ms * NS_PER_MS)
    if levers.draft_ms is not None:
        draft = Fraction(levers.draft_ms * NS_PER_MS)
    if levers.no_replay:
        return draft, verify, Fraction(0)
    if levers.replay_ms is not None:
        return draft, verify, Fraction(levers.replay_ms * NS_PER_MS)
    return draft, verify, None


def _row(model: Model, names: list[str], levers: Levers) -> Row:
    draft, verify, replay = _fixed_parts(model, levers)
    treatments = ("dropped",) if levers.no_residual else RESIDUAL_TREATMENTS
    if not names:
        treatments = ("per round",)  # the baseline is the measurement: nothing to choose
    corners: list[Corner] = []
    for shape in _shapes(model, levers):
        cost = shape.replay_ns if replay is None else replay
        how = shape.replay if replay is None else "none" if replay == 0 else "given"
        for residual in treatments:
            if shape.rounds == model.costs.rounds and residual == "fixed":
                continue  # the same rounds: fixed and per round are one
            total = model.total(shape.rounds, draft + verify + cost, residual)
            corners.append(_corner(model, shape.name, how, residual, shape.rounds, total))
    if levers.acceptance is not None and levers.k is None:
        parts = (draft, verify, model.replay if replay is None else replay)
        corners += _by_hand(model, levers.acceptance, parts)
    speedups = [c.speedup for c in corners if c.speedup is not None]
    per_token = [c.ms_per_token for c in corners]
    any_low, any_high = _any_histogram(model, levers, draft + verify, replay, treatments)
    return Row(
        levers=names,
        low=min(speedups, default=None),
        high=max(speedups, default=None),
        low_ms_per_token=min(per_token),
        high_ms_per_token=max(per_token),
        corners=_distinct(corners),
        any_low=any_low,
        any_high=any_high,
    )


def _distinct(corners: list[Corner]) -> list[Corner]:
    return list({c.name: c for c in corners}.values())


def _corner(
    model: Model, acceptance: str, replay: str, residual: str, rounds: Fraction, total: Fraction
) -> Corner:
    costs = model.costs
    name = f"{acceptance}, replay {replay}, rest {residual}"
    if acceptance == "as measured":
        name = f"rounds as measured, replay {replay}, rest " + (
            "kept" if residual == "per round" else residual
        )
    return Corner(
        name=name,
        acceptance=acceptance,
        replay=replay,
        residual=residual,
        rounds=float(rounds),
        total_ns=round(total),
        ms_per_token=float(total * costs.batch / costs.tokens / NS_PER_MS),
        speedup=float(costs.speedup_of(total)) if costs.plain_ns and total > 0 else None,
    )


def _by_hand(
    model: Model, mean: Fraction, parts: tuple[Fraction, Fraction, Fraction]
) -> list[Corner]:
    """Whole A+1-calibrated rounds times parts written to 0.1 ms, rest dropped: as on paper."""
    if model.costs.accepted is None:
        return []
    written = Fraction(sum(round(part / HAND_UNIT_NS) for part in parts) * HAND_UNIT_NS)
    exact = sum(parts, Fraction(0))
    rounds = Fraction(round(model.calibrated_shape(mean).rounds))
    if not exact or not rounds or abs(written - exact) > HAND_ERROR * exact:
        return []
    how = "held" if parts[2] == model.replay else "none" if parts[2] == 0 else "given"
    corner = _corner(model, "A+1 calibrated", how, "dropped", rounds, rounds * written)
    name = f"by hand: whole rounds, parts to 0.1 ms, A+1 calibrated, replay {how}, rest dropped"
    return [msgspec.structs.replace(corner, name=name)]


def _any_histogram(
    model: Model,
    levers: Levers,
    parts: Fraction,
    replay: Fraction | None,
    treatments: tuple[str, ...],
) -> tuple[float | None, float | None]:
    if levers.acceptance is None or levers.k is not None or model.costs.plain_ns is None:
        return None, None
    speedups = []
    for histogram in two_point_histograms(levers.acceptance, model.costs.k):
        shape = model.shape("any", histogram)
        cost = parts + (shape.replay_ns if replay is None else replay)
        totals = [model.total(shape.rounds, cost, treatment) for treatment in treatments]
        speedups += [float(model.costs.speedup_of(total)) for total in totals if total > 0]
    return min(speedups, default=None), max(speedups, default=None)


def _notes(model: Model, levers: Levers) -> list[str]:
    costs, notes = model.costs, list(model.costs.notes)
    if levers.acceptance is not None:
        notes.append(
            "a mean alone does not fix the histogram: the range stands on the constant-rate "
            "one and on the A+1 rule; over all histograms is what the mean alone allows"
        )
    if levers.k is not None:
        how = f"+{levers.verify_slope_ms:g} ms a row" if levers.verify_slope_ms else "held"
        notes.append(f"k: draft scales with k, verify {how}")
        if levers.k > costs.k:
            notes.append(f"acceptance beyond position {costs.k} is extrapolated at a constant rate")
    if costs.rest_ns > LARGE_REST * costs.wall_ns:
        notes.append(
            f"{costs.rest_ns / costs.wall_ns:.0%} of the wall is in no phase: ends of ranges that "
            "drop it are ceilings, out of reach while the host stays as it is"
        )
    unpriced = model.base is not None and model.steps(model.base, costs.k) and not costs.replay_ns
    if unpriced:
        notes.append("the histogram implies replay passes, but none is priced: totals are too low")
    return notes
