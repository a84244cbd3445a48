"""The gate: does a change make a round dearer? Pass, fail, or no verdict - never a guess.

Order of judging: what forbids a comparison first (`comparability`), then each limit by the
interval of the change: wholly beyond the limit is a fail, wholly within it a pass, anything else
inconclusive. The sample is a capture. With one capture on a side there is no interval: the bare
threshold decides and the verdict says "single capture". Any fail outweighs inconclusive limits.
Judged per round or per emitted token, so a longer run at equal cost passes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from msgspec import structs

from nsysacct.comparability import PROVEN, Obstacle, Side, obstacles
from nsysacct.diff import Diff, Moved, diff, largest
from nsysacct.errors import UsageError
from nsysacct.limits import Limit, default_limits
from nsysacct.metrics import Figure, families, figure
from nsysacct.quantities import clean, duration, percent_beside, short, significant, value_text
from nsysacct.stats import Change, Spread, compare, samples_needed, spread

Outcome = Literal["pass", "fail", "inconclusive", "no verdict", "skipped"]
Inconclusive = Literal["no-verdict", "fail", "pass"]

EXIT_CODES = {"pass": 0, "fail": 1, "no verdict": 3}


@dataclass(frozen=True, slots=True)
class Check:
    """One limit, judged.

    ``base`` and ``head`` are medians of the captures, in the metric's own unit; ``bound`` is the
    limit on `change` (head / base, or head - base; for a cap on the head itself) after the noise
    floor. ``why`` names the family and signature that moved. The spreads are within one run.
    """

    limit: Limit
    outcome: Outcome
    base: float | None
    head: float | None
    bound: float
    reason: str
    change: Change | None = None
    why: str = ""
    provenance: str = "measured"
    base_spread: Spread | None = None
    head_spread: Spread | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a gate. ``obstacles`` are non-empty only when nothing could be judged."""

    outcome: Literal["pass", "fail", "no verdict"]
    reasons: tuple[str, ...]
    checks: tuple[Check, ...]
    obstacles: tuple[Obstacle, ...]
    base_names: tuple[str, ...]
    head_names: tuple[str, ...]
    confidence: float
    single_capture: bool
    inconclusive: Inconclusive = "no-verdict"
    notes: tuple[str, ...] = ()

    def effective(self, check: Check) -> Outcome:
        """Outcome of a check as it counts: inconclusive ones as the user said."""
        return _effective(check, self.inconclusive)

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 3 no verdict."""
        return EXIT_CODES[self.outcome]


def judge(
    base: Sequence[Side],
    head: Sequence[Side],
    limits: Sequence[Limit] | None = None,
    *,
    confidence: float = 0.95,
    inconclusive: Inconclusive = "no-verdict",
    allow: Collection[str] = (),
    rounds: Literal["inferred", "exact"] = "inferred",
) -> Verdict:
    """Judge `head` against `base`.

    Parameters
    ----------
    base, head : sequence of Side
        Captures, at least one each; four or more a side give an interval at 95 %.
    limits : sequence of Limit, optional
        The defaults (`limits.DEFAULTS`) when left out.
    confidence : float
        Of the interval, two-sided.
    inconclusive : "no-verdict", "fail" or "pass"
        What an interval on both sides of its limit counts as. Captures that cannot be compared
        and figures that are not known are never a pass.
    allow : collection of str
        Kinds of blind spots and findings to judge in spite of.
    rounds : "inferred" or "exact"
        Weakest verdict on the number of rounds that counts as proven.

    Returns
    -------
    Verdict

    Raises
    ------
    UsageError
        An empty side, or a limit on a family that no capture has.

    Examples
    --------
    >>> import nsysacct as na
    >>> account = na.split("small_graph.sqlite", layers=8, closing=2)
    >>> base = [na.Side("base", "main.json", account)]
    >>> head = [na.Side("head", "change.json", account)]
    >>> na.judge(base, head).outcome
    'pass'
    """
    if not base or not head:
        raise UsageError("gate", "one side has no capture", "give at least one each")
    base, head = _without(base, allow), _without(head, allow)
    limits = default_limits() if limits is None else list(limits)
    _check_families([*base, *head], limits)
    single = min(len(base), len(head)) == 1
    found = obstacles([*base, *head], accept=PROVEN if rounds == "inferred" else ("exact",))
    widths = [o for o in found if o.kind == "verify width"]
    serious = [o for o in found if o.kind != "verify width"]
    checks: list[Check] = []
    if not serious:
        moved = diff(base, head, "round")
        judging = _Judging(base, head, confidence, moved, widths)
        checks = [judging.check(limit) for limit in limits]
    outcome, reasons = _overall(checks, serious, inconclusive)
    return Verdict(
        outcome=outcome,
        reasons=tuple(reasons),
        checks=tuple(checks),
        obstacles=tuple(serious),
        base_names=tuple(side.name for side in base),
        head_names=tuple(side.name for side in head),
        confidence=confidence,
        single_capture=single,
        inconclusive=inconclusive,
        notes=tuple(_notes(base, head, checks, single)),
    )


@dataclass(frozen=True, slots=True)
class _Judging:
    """What every limit of one gate is judged with."""

    base: Sequence[Side]
    head: Sequence[Side]
    confidence: float
    moved: Diff
    widths: Sequence[Obstacle]

    def check(self, limit: Limit) -> Check:
        base = [(side, figure(side.account, limit.metric.name)) for side in self.base]
        head = [(side, figure(side.account, limit.metric.name)) for side in self.head]
        refused = self._refusal(limit, base, head)
        if refused is not None:
            return refused
        before = [f.value for _, f in base if f.value is not None]
        after = [f.value for _, f in head if f.value is not None]
        change, bound, outcome, reason = self._verdict(limit, before, after)
        spreads = [spread(side[0][1].series) if len(side) == 1 else None for side in (base, head)]
        return Check(
            limit=limit,
            outcome=outcome,
            base=median(before),
            head=median(after),
            bound=bound,
            reason=reason,
            change=change,
            why="" if outcome == "pass" else explain(self.moved, limit),
            provenance=_weakest(f for _, f in [*base, *head]),
            base_spread=spreads[0],
            head_spread=spreads[1],
        )

    def _refusal(
        self, limit: Limit, base: Sequence[_Known], head: Sequence[_Known]
    ) -> Check | None:
        """Check that cannot be judged: an unknown figure, other bases, other rounds."""
        unknown = [(s, f) for s, f in [*base, *head] if f.value is None]
        everywhere = len(unknown) == len(base) + len(head)
        outcome: Outcome = "no verdict"
        if unknown and everywhere and not limit.explicit:
            outcome, reason = "skipped", f"not known: {unknown[0][1].how}"
        elif unknown:
            reason = f"not known in {unknown[0][0].name}: {unknown[0][1].how}"
        elif self.widths and limit.metric.per in ("round", "layer and round"):
            reason = str(self.widths[0])
        elif _needs_like_bases(limit) and _provenance(base) != _provenance(head):
            known = f"{_provenance(base)} in the base and {_provenance(head)} in the head"
            reason = f"{known}; capture both alike, with the same options"
        elif limit.kind == "relative" and any((f.value or 0) < 0 for _, f in [*base, *head]):
            reason = "negative, so that a ratio means nothing; give an absolute limit"
        else:
            return None
        return Check(limit, outcome, _middle(base), _middle(head), limit.amount, reason)

    def _verdict(
        self, limit: Limit, before: Sequence[float], after: Sequence[float]
    ) -> tuple[Change | None, float, Outcome, str]:
        if limit.kind == "cap":
            return None, limit.amount, *_judge_cap(limit, after)
        relative = limit.kind == "relative"
        scale: Literal["ratio", "difference"] = "ratio" if relative else "difference"
        change = compare(before, after, scale=scale, confidence=self.confidence)
        bound = _bound(limit, median(before))
        low, high = change.low, change.high
        if limit.metric.exact and _constant(before) and _constant(after):
            low = high = change.estimate
        single = min(len(before), len(after)) == 1
        if low is None or high is None:
            if not single:
                need = samples_needed(self.confidence)
                reason = f"too few captures ({len(before)} and {len(after)}): {need} a side needed"
                return change, bound, "no verdict", reason
            low = high = change.estimate
        outcome = _judge_interval(limit.upper, bound, low, high)
        return change, bound, outcome, _reason(limit, change, bound, outcome)


_Known = tuple[Side, Figure]


def explain(moved: Diff, limit: Limit) -> str:
    """Which family and signature moved, in counts and time a launch; "" when no kernel row did.

    For a figure of several buckets, the bucket that changed most is looked into.
    """
    metric = limit.metric
    candidates = [b for b in moved.buckets if b.parts]
    if metric.bucket is not None:
        candidates = [b for b in candidates if b.name == metric.bucket]
    elif metric.subject in ("residual", "tokens", "accepted", "rounds", "blind"):
        return ""
    if not candidates:
        return ""
    bucket = max(candidates, key=lambda b: abs(b.delta_ns))
    if metric.family is not None:
        lines = [
            (f.name, line) for f in bucket.parts if f.name == metric.family for line in f.parts
        ]
        found = max(lines, key=lambda pair: abs(pair[1].delta_ns), default=None)
    else:
        found = largest(bucket)
    if found is None or found[1].delta_ns == 0:
        return ""
    return f"{bucket.name} {clean(found[0])}: {line_text(found[1])}"


def line_text(line: Moved) -> str:
    """Describe a signature line: launches a round, time of one, and which of them did it."""
    counts = f"{significant(line.base_count)} → {significant(line.head_count)} launches a round"
    if line.base_count == line.head_count:
        counts = f"{significant(line.head_count)} launches a round as before"
    each = f"{duration(line.base_each_ns)} → {duration(line.head_each_ns)} each"
    if line.base_each_ns is None or line.head_each_ns is None:
        each = f"{duration(line.head_each_ns or line.base_each_ns)} each"
    return f"{short(line.name)} {line.why}: {counts}, {each}"


def _without(sides: Sequence[Side], allow: Collection[str]) -> list[Side]:
    """Take away the blind spots and findings that the user allows."""
    return [
        replace(
            side,
            account=structs.replace(
                side.account,
                blind_spots=[s for s in side.account.blind_spots if s.kind not in allow],
                findings=[f for f in side.account.findings if f.kind not in allow],
            ),
        )
        for side in sides
    ]


def _check_families(sides: Sequence[Side], limits: Sequence[Limit]) -> None:
    for limit in limits:
        bucket, family = limit.metric.bucket, limit.metric.family
        if bucket is None or family is None:
            continue
        known = families([side.account for side in sides], bucket)
        if known and family not in known and known != ["graph"]:
            raise UsageError(
                f"limit {limit.text!r}",
                f"no capture has a family {family!r} in {bucket}",
                f"one of {', '.join(map(clean, known))}",
            )


def _bound(limit: Limit, base: float) -> float:
    """Limit on head / base or head - base, not tighter than the metric's own noise."""
    floor = limit.metric.floor
    sign = 1 if limit.upper else -1
    if limit.kind == "relative":
        if limit.metric.unit == "share":
            floor = floor / base if base else floor
        return 1 + sign * max(limit.amount, floor)
    if limit.metric.unit != "share":
        floor = floor * base
    return sign * max(limit.amount, floor)


def _judge_interval(upper: bool, bound: float, low: float, high: float) -> Outcome:
    if not upper:
        low, high, bound = -high, -low, -bound
    slack = 1e-12 * max(1.0, abs(bound))  # the last bits of a division are no regression
    if low > bound + slack:
        return "fail"
    return "pass" if high <= bound + slack else "inconclusive"


def _judge_cap(limit: Limit, values: Sequence[float]) -> tuple[Outcome, str]:
    """Judge captures of the head alone: all within, all beyond, or some of each."""
    beyond = [v > limit.amount if limit.upper else v < limit.amount for v in values]
    word = "above" if limit.upper else "below"
    cap = value_text(limit.amount, limit.metric.unit)
    reason = f"{sum(beyond)} of {len(beyond)} captures {word} {cap}"
    if all(beyond):
        return "fail", reason
    return ("inconclusive" if any(beyond) else "pass"), reason


def change_text(change: Change, limit: Limit, bound: float | None = None) -> str:
    """Estimate of a change with its interval, in percent or in the metric's unit."""
    if change.scale == "ratio":
        beside = change.estimate if bound is None else bound
        text = percent_beside(change.estimate, beside)
        ends = [f"{percent_beside(e, beside)}" for e in (change.low, change.high) if e is not None]
    else:
        unit = limit.metric.unit
        text = _signed(change.estimate, unit)
        ends = [_signed(end, unit) for end in (change.low, change.high) if end is not None]
    return f"{text} [{ends[0]}, {ends[1]}]" if len(ends) == 2 else text


def _signed(value: float, unit: Literal["ns", "count", "share"]) -> str:
    text = value_text(value, unit)
    text = text.replace("%", "pp") if unit == "share" else text
    return text if value < 0 else f"+{text}"


def bound_text(limit: Limit, bound: float) -> str:
    """Show the limit as judged, and that it was raised to the noise floor if it was."""
    if limit.kind == "cap":
        return f"{'<=' if limit.upper else '>='} {value_text(limit.amount, limit.metric.unit)}"
    if limit.kind == "relative":
        raised = abs(abs(bound - 1) - limit.amount) > 1e-12
        text = f"{(bound - 1) * 100:+.4g} %"
    else:
        raised = abs(abs(bound) - limit.amount) > 1e-9
        text = _signed(bound, limit.metric.unit)
    return f"{text} (noise floor)" if raised else text


def _reason(limit: Limit, change: Change, bound: float, outcome: Outcome) -> str:
    text = f"{change_text(change, limit, bound)}, limit {bound_text(limit, bound)}"
    if outcome == "inconclusive":
        return f"{text}: the interval lies on both sides of the limit"
    return text


def _overall(
    checks: Sequence[Check], serious: Sequence[Obstacle], inconclusive: Inconclusive
) -> tuple[Literal["pass", "fail", "no verdict"], list[str]]:
    if serious:
        return "no verdict", [str(obstacle) for obstacle in serious]
    effective = [(_effective(check, inconclusive), check) for check in checks]
    for outcome in ("fail", "no verdict"):
        hits = [c for seen, c in effective if seen == outcome]
        if hits:
            reasons = [f"{c.limit.metric.name}: {c.reason}" + (f"; {c.why}" if c.why else "")
                       for c in hits]  # fmt: skip
            return ("fail" if outcome == "fail" else "no verdict"), reasons
    judged = [c for seen, c in effective if seen == "pass"]
    if not judged:
        return "no verdict", ["nothing was judged: no limit has a figure in these captures"]
    return "pass", [f"{len(judged)} limit{'s' if len(judged) > 1 else ''} held"]


def _effective(check: Check, inconclusive: Inconclusive) -> Outcome:
    if check.outcome != "inconclusive":
        return check.outcome
    return "no verdict" if inconclusive == "no-verdict" else inconclusive


def _notes(
    base: Sequence[Side], head: Sequence[Side], checks: Sequence[Check], single: bool
) -> list[str]:
    notes = []
    if single:
        need = samples_needed(0.95)
        notes.append(
            f"single capture: a bare threshold without an interval; give {need} a side for one"
        )
    versions = sorted({s.account.trace.nsys_version or "unknown" for s in [*base, *head]})
    if len(versions) > 1:
        notes.append(f"captured with different nsys versions: {', '.join(map(clean, versions))}")
    skipped = [c.limit.metric.name for c in checks if c.outcome == "skipped"]
    if skipped:
        notes.append(f"not judged, no such figure in any capture: {', '.join(skipped)}")
    inferred = [s.name for s in [*base, *head] if s.account.rounds.verdict == "inferred"]
    if inferred:
        notes.append(f"rounds are inferred, not exact, in {', '.join(map(clean, inferred))}")
    return notes


def _middle(known: Sequence[_Known]) -> float | None:
    values = [f.value for _, f in known if f.value is not None]
    return median(values) if values else None


def _needs_like_bases(limit: Limit) -> bool:
    """Whether an estimate must not be held against a measurement: for times, not for shares."""
    return limit.kind != "cap" and limit.metric.unit == "ns"


def _provenance(known: Sequence[_Known]) -> str:
    return _weakest(found for _, found in known)


def _weakest(figures: Iterable[Figure]) -> str:
    found = {f.provenance for f in figures}
    return next((p for p in ("computed", "estimated") if p in found), "measured")


def _constant(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= 1e-9 * max(1.0, abs(values[0]))
