"""Figures of an account by dotted name: ``verify.ns_per_round``, ``verify.gemv.ns_per_instance``.

The names are those of `metric_names`.

``total`` is draft + verify + replay. A bucket's time includes amounts that were computed because
the trace does not show them, and then its provenance says so. Times per round are means over
`clean_rounds` where the account has a per-round series, and the whole amount over the number of
rounds where it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median

from nsysacct.metric_names import (
    BUCKET_QUANTITIES,
    FAMILY_QUANTITIES,
    FIXED,
    ROLES,
    ROUND_BUCKETS,
    STEP_QUANTITIES,
    Metric,
    parse_metric,
)
from nsysacct.model import BUCKETS, PROVENANCE, Account, Bucket, KernelRow, RoundRow
from nsysacct.semantics import tokens_of


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric of one account. ``value`` None = unknown, and ``how`` says why.

    ``series`` holds the rounds' own values (ns), for the spread within a run; empty without one.
    ``provenance`` is the weakest of what went in: measured, estimated or computed.
    """

    metric: Metric
    value: float | None
    how: str
    provenance: str = "measured"
    series: tuple[float, ...] = ()


def figure(account: Account, name: str) -> Figure:
    """One figure of an account (top level: the chosen process and GPU).

    Parameters
    ----------
    account : Account
    name : str
        A name of the module's grammar.

    Returns
    -------
    Figure
        Times in ns, shares 0..1; ``value`` None when the account does not know it.

    Raises
    ------
    UsageError
        A name that the grammar does not have.
    """
    metric = parse_metric(name)
    if metric.quantity.endswith("per_token"):
        return _per_token(account, metric)
    if metric.family is not None:
        return _family(account, metric)
    if metric.bucket is not None:
        return _bucket(account, metric)
    if metric.subject.startswith("step."):
        return _step(account, metric)
    return _OTHERS[metric.subject](account, metric)


def available(account: Account) -> list[str]:
    """Names of all figures that this account knows, in report order."""
    names = [f"{bucket}.{q}" for bucket in BUCKETS for q in BUCKET_QUANTITIES]
    pairs = dict.fromkeys((row.bucket, row.family) for row in account.kernels)
    names += [f"{b}.{f}.{q}" for b, f in pairs if f and b in BUCKETS for q in FAMILY_QUANTITIES]
    names += list(FIXED)
    names += [f"step.{role}.{q}" for role in ROLES for q in STEP_QUANTITIES]
    return [name for name in names if figure(account, name).value is not None]


def families(accounts: Iterable[Account], bucket: str) -> list[str]:
    """Families that occur in a bucket of any of the accounts, sorted."""
    return sorted({r.family for a in accounts for r in a.kernels if r.bucket == bucket})


def tokens_per_round(account: Account) -> float | None:
    """Work out emitted tokens a round from the histogram and the engine's rule, or counters."""
    acceptance = account.acceptance
    if acceptance is None:
        return None
    histogram = acceptance.n_ok or []
    if sum(histogram):
        return tokens_of(histogram, account.engine.semantics.tokens) / sum(histogram)
    if acceptance.tokens is not None and acceptance.rounds:
        return acceptance.tokens / acceptance.rounds
    return None


def clean_rounds(account: Account) -> list[RoundRow]:
    """Return the rounds that stand for the run; all of them when none would be left.

    Partial and warm-up rounds are left out. An outlier is left out only when it is slow among
    the rounds with as many replay steps: a round that replays more is dearer by its acceptance,
    and leaving such rounds out would hide exactly the change that matters.
    """
    kept = [
        row
        for row in account.per_round
        if not {"partial", "warm-up"} & set(row.flags)
        and not ("outlier" in row.flags and _is_stalled(row, account.per_round))
    ]
    return kept or list(account.per_round)


STALL = 1.5
"""A flagged round this many times as long as its like is a stall, not the program."""


def _is_stalled(row: RoundRow, rows: Iterable[RoundRow]) -> bool:
    like = [
        other.wall_ns
        for other in rows
        if other.index != row.index and other.replay_steps == row.replay_steps
    ]
    return bool(like) and row.wall_ns > STALL * median(like)


MINOR = 0.05
"""Part of an amount below which its basis does not decide the provenance of the whole."""


def provenance_of(by_basis: Mapping[str, int]) -> str:
    """Weakest provenance with more than `MINOR` of the amount; "measured" for nothing.

    Examples
    --------
    >>> provenance_of({"exclusive": 80, "pattern": 20}), provenance_of({"graph": 99, "pattern": 1})
    ('estimated', 'measured')
    """
    total = sum(by_basis.values())
    amounts = dict.fromkeys(("computed", "estimated"), 0)
    for basis, ns in by_basis.items():
        provenance = PROVENANCE.get(basis, "estimated")
        if provenance in amounts:
            amounts[provenance] += ns
    return next((name for name, ns in amounts.items() if ns > MINOR * total), "measured")


def merged(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add amounts by basis."""
    result: dict[str, int] = {}
    for part in parts:
        for basis, ns in part.items():
            result[basis] = result.get(basis, 0) + ns
    return result


def _per_round(
    account: Account, metric: Metric, total: float, row_value: Callable[[RoundRow], float] | None
) -> Figure:
    """Mean over clean rounds where the account has them, else total / rounds."""
    rounds = account.rounds.value
    if not rounds:
        return Figure(metric, None, "the number of rounds is not known")
    if row_value is not None and account.per_round:
        rows = clean_rounds(account)
        series = tuple(float(row_value(row)) for row in rows)
        how = f"mean of {len(rows)} of {len(account.per_round)} rounds"
        return Figure(metric, fmean(series), how, series=series)
    return Figure(metric, total / rounds, f"whole amount / {rounds} rounds")


def _per_token(account: Account, metric: Metric) -> Figure:
    name = metric.name.removesuffix("per_token") + "per_round"
    a_round = figure(account, name)
    tokens = tokens_per_round(account)
    if a_round.value is None:
        return Figure(metric, None, a_round.how)
    if not tokens:
        return Figure(metric, None, "emitted tokens are not known; give a log or --n-ok")
    how = f"{a_round.how}, {tokens:.4g} tokens a round"
    return Figure(metric, a_round.value / tokens, how, a_round.provenance)


_ROW_OF_BUCKET: dict[str, Callable[[RoundRow], float]] = {
    "draft": lambda row: row.draft_ns,
    "verify": lambda row: row.verify_ns,
    "replay": lambda row: row.replay_ns,
}


def _bucket(account: Account, metric: Metric) -> Figure:
    bucket = account.bucket(metric.bucket or "")
    provenance = provenance_of(bucket.by_basis)
    if metric.quantity == "share":
        return _share(account, metric, bucket.gpu_ns)
    if metric.quantity == "ns_per_run":
        return Figure(metric, float(bucket.total_ns), "whole amount", provenance)
    found = _per_round(account, metric, *_bucket_amount(bucket, metric.quantity))
    return Figure(metric, found.value, found.how, provenance, found.series)


def _bucket_amount(
    bucket: Bucket, quantity: str
) -> tuple[float, Callable[[RoundRow], float] | None]:
    if quantity == "ns_per_round":
        # computed amounts are in no round's row, so the series alone would understate the bucket
        row = None if bucket.computed_ns else _ROW_OF_BUCKET.get(bucket.bucket)
        return bucket.total_ns, row
    amounts = {
        "mem_ns_per_round": bucket.mem_ns,
        "busy_ns_per_round": bucket.busy_ns,
        "events_per_round": bucket.events,
    }
    return amounts[quantity], None


def _family(account: Account, metric: Metric) -> Figure:
    in_bucket = [row for row in account.kernels if row.bucket == metric.bucket]
    rows = [row for row in in_bucket if row.family == metric.family]
    if not rows and (not in_bucket or any(row.family == "graph" for row in in_bucket)):
        return Figure(metric, None, f"the trace shows no kernels by family in {metric.bucket}")
    gpu_ns = sum(row.gpu_ns for row in rows)
    instances = sum(row.instances for row in rows)
    provenance = provenance_of(merged(row.by_basis for row in rows))
    if metric.quantity == "share":
        return _share(account, metric, gpu_ns)
    if metric.quantity == "ns_per_instance":
        value = gpu_ns / instances if instances else None
        return Figure(metric, value, f"{instances} instances", provenance)
    amount = gpu_ns if metric.quantity == "ns_per_round" else instances
    found = _per_round(account, metric, amount, None)
    value, how = found.value, found.how
    if metric.quantity == "instances_per_layer_round":
        layers = layers_of(account, rows)
        value = value / layers if value is not None and layers else None
        how = f"{how}, {layers} layers" if layers else "the number of layers is not known"
    return Figure(metric, value, how, provenance)


def layers_of(account: Account, rows: Iterable[KernelRow]) -> int | None:
    """Layers that kernels of these signatures run in: their layer kind's, else all layers."""
    kinds = {s.pattern: s.kind for s in account.rounds.signatures}
    found = {kinds.get(row.signature, "all") for row in rows}
    kind = found.pop() if len(found) == 1 else "all"
    return account.rounds.layers.get(kind) or account.rounds.layers.get("all")


def _share(account: Account, metric: Metric, gpu_ns: int) -> Figure:
    if not account.total_gpu_ns:
        return Figure(metric, None, "no GPU time")
    return Figure(metric, gpu_ns / account.total_gpu_ns, "of all GPU time")


def _step(account: Account, metric: Metric) -> Figure:
    role = metric.subject.removeprefix("step.")
    steps = [step for step in account.steps if step.role == role and step.count]
    count = sum(step.count for step in steps)
    provenance = provenance_of(merged({step.basis: step.gpu_ns} for step in steps))
    if not count:
        return Figure(metric, None, f"no {role} steps")
    if metric.quantity == "gpu_ns_per_step":
        value = sum(step.gpu_ns for step in steps) / count
        return Figure(metric, value, f"{count} steps", provenance)
    walls = [(step.wall_ns, step.count) for step in steps]
    if any(wall is None for wall, _ in walls):
        return Figure(metric, None, f"the wall time of {role} steps is not known")
    value = sum((wall or 0.0) * n for wall, n in walls) / count
    return Figure(metric, value, f"{count} steps", provenance)


def _total(account: Account, metric: Metric) -> Figure:
    parts = [figure(account, f"{name}.ns_per_round") for name in ROUND_BUCKETS]
    values = [part.value for part in parts if part.value is not None]
    if len(values) < len(parts):
        return Figure(metric, None, parts[0].how)
    bases = merged(account.bucket(name).by_basis for name in ROUND_BUCKETS)
    series: tuple[float, ...] = ()
    if all(part.series for part in parts):
        series = tuple(map(sum, zip(*(part.series for part in parts), strict=True)))
    how = "draft + verify + replay"
    return Figure(metric, sum(values), how, provenance_of(bases), series)


def _busy(account: Account, metric: Metric) -> Figure:
    return _per_round(
        account, metric, account.window.busy_ns, lambda row: row.wall_ns - row.residual_ns
    )


def _wall(account: Account, metric: Metric) -> Figure:
    row = None if account.window.wall_how == "given" else lambda row: row.wall_ns
    return _per_round(account, metric, account.window.wall_ns, row)


def _residual(account: Account, metric: Metric) -> Figure:
    row = None if account.window.wall_how == "given" else lambda row: row.residual_ns
    return _per_round(account, metric, account.window.residual_ns, row)


def _launches(account: Account, metric: Metric) -> Figure:
    if not account.per_round:
        return Figure(metric, None, "the account has no per-round series")
    return _per_round(account, metric, 0, lambda row: row.launches)


def _tokens(account: Account, metric: Metric) -> Figure:
    value = tokens_per_round(account)
    how = "acceptance" if value is not None else "emitted tokens are not known"
    return Figure(metric, value, how)


def _accepted(account: Account, metric: Metric) -> Figure:
    acceptance = account.acceptance
    if acceptance and acceptance.n_ok and sum(acceptance.n_ok):
        total = sum(i * count for i, count in enumerate(acceptance.n_ok))
        return Figure(metric, total / sum(acceptance.n_ok), "histogram")
    if acceptance and acceptance.accepted is not None and acceptance.rounds:
        return Figure(metric, acceptance.accepted / acceptance.rounds, "counters")
    return Figure(metric, None, "acceptance is not known")


def _rounds(account: Account, metric: Metric) -> Figure:
    value = account.rounds.value
    return Figure(metric, None if value is None else float(value), account.rounds.verdict)


def _blind(account: Account, metric: Metric) -> Figure:
    """Hidden time over hidden + shown; unknown while a blind spot of weight is open."""
    spots = [spot for spot in account.blind_spots if spot.severity != "info"]
    if any(spot.hidden_ns is None for spot in spots):
        return Figure(metric, None, "a blind spot is open: its hidden time is not known")
    hidden = sum(spot.hidden_ns or 0 for spot in spots)
    seen = account.total_gpu_ns
    if not hidden + seen:
        return Figure(metric, None, "no GPU time")
    provenance = "computed" if hidden else "measured"
    return Figure(metric, hidden / (hidden + seen), "hidden / (hidden + shown)", provenance)


_OTHERS: dict[str, Callable[[Account, Metric], Figure]] = {
    "total": _total,
    "busy": _busy,
    "wall": _wall,
    "residual": _residual,
    "launches": _launches,
    "tokens": _tokens,
    "accepted": _accepted,
    "rounds": _rounds,
    "blind": _blind,
}
