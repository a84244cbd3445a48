"""Where the time went between two accounts: bucket, family, signature; count x duration.

Time of a kernel per round = launches per round x time per launch, so its change splits into a
part by count and a part by duration. Each product term is shared evenly between the two (the
Shapley value of the two factors), which makes the parts sum to the change exactly::

    count effect    = (n1 - n0) x (d0 + d1) / 2
    duration effect = (d1 - d0) x (n0 + n1) / 2

The sums are exact: rational arithmetic inside, floats only in the answer. A signature that
appears or disappears is all count. Time that no kernel row carries (computed amounts, timed
graphs in a bucket without rows) is in ``other_ns``. Several captures a side are averaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from nsysacct.comparability import Side, key
from nsysacct.errors import IncomparableError
from nsysacct.metric_names import ROUND_BUCKETS
from nsysacct.metrics import tokens_per_round
from nsysacct.model import BUCKETS, Account

Per = Literal["round", "token", "run"]


@dataclass(frozen=True, slots=True)
class Moved:
    """One line: a bucket, a family in it, or a signature in that.

    Times in ns and counts of launches, both per `Diff.per`. ``count_ns + duration_ns + other_ns
    == head_ns - base_ns``. ``base_each_ns`` and ``head_each_ns`` are the times of one launch;
    None for nothing launched. ``parts`` is the next finer level, largest change first.
    """

    name: str
    base_ns: float
    head_ns: float
    base_count: float
    head_count: float
    count_ns: float
    duration_ns: float
    other_ns: float
    base_each_ns: float | None
    head_each_ns: float | None
    parts: tuple[Moved, ...] = ()

    @property
    def delta_ns(self) -> float:
        """Head - base, ns per `Diff.per`."""
        return self.count_ns + self.duration_ns + self.other_ns

    @property
    def ratio(self) -> float | None:
        """Head / base; None when the base has none."""
        return self.head_ns / self.base_ns if self.base_ns else None

    @property
    def why(self) -> str:
        """The larger cause in words: "more launches", "slower launches", ..."""
        if self.delta_ns == 0:
            return "unchanged"
        if not self.base_ns:
            return "new"
        if not self.head_ns:
            return "gone"
        rising = self.delta_ns > 0
        effects = {"more launches" if rising else "fewer launches": self.count_ns}
        effects["slower launches" if rising else "faster launches"] = self.duration_ns
        effects["time outside kernel rows"] = self.other_ns
        return max(effects, key=lambda cause: effects[cause] if rising else -effects[cause])


@dataclass(frozen=True, slots=True)
class Diff:
    """Head against base. ``notes`` say what makes the comparison unequal, if anything."""

    per: Per
    base_names: tuple[str, ...]
    head_names: tuple[str, ...]
    buckets: tuple[Moved, ...]
    residual: Moved
    total: Moved
    notes: tuple[str, ...] = ()


def diff(base: Sequence[Side], head: Sequence[Side], per: Per | None = None) -> Diff:
    """Decompose the change between two sides.

    Parameters
    ----------
    base, head : sequence of Side
        At least one each; several are averaged (each capture weighs the same).
    per : "round", "token", "run", optional
        Denominator; left out: round where every account has rounds, else run.

    Returns
    -------
    Diff
        All buckets of the model, in report order; ``total`` is their sum, or draft + verify +
        replay when ``per`` is not "run" (the rest does not scale with rounds).

    Raises
    ------
    IncomparableError
        `per` asked for and an account does not know its rounds or tokens.
    """
    sides = [*base, *head]
    if per is None:
        per = "round" if all(side.account.rounds.value for side in sides) else "run"
    before = _Amounts.of([(side, _unit(side, per)) for side in base])
    after = _Amounts.of([(side, _unit(side, per)) for side in head])
    buckets = {name: _bucket(name, before, after) for name in BUCKETS}
    counted = BUCKETS if per == "run" else ROUND_BUCKETS
    total = _sum("total", [buckets[name] for name in counted], before.total(counted),
                 after.total(counted))  # fmt: skip
    residual = _leaf("residual", before.residual, after.residual, Fraction(0), Fraction(0))
    return Diff(
        per=per,
        base_names=tuple(side.name for side in base),
        head_names=tuple(side.name for side in head),
        buckets=tuple(part.moved for part in buckets.values()),
        residual=residual.moved,
        total=total.moved,
        notes=tuple(_notes(sides)),
    )


def largest(moved: Moved) -> tuple[str, Moved] | None:
    """Find the (family, signature line) of a bucket that moved most; None without kernel rows."""
    lines = [(family.name, line) for family in moved.parts for line in family.parts]
    return max(lines, key=lambda pair: abs(pair[1].delta_ns), default=None)


Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Amounts:
    """Mean amounts of one side, per unit, exact."""

    ns: Mapping[Key, Fraction]
    count: Mapping[Key, Fraction]
    bucket_ns: Mapping[str, Fraction]
    residual: Fraction

    @classmethod
    def of(cls, sides: Sequence[tuple[Side, Fraction]]) -> _Amounts:
        ns: dict[Key, Fraction] = {}
        count: dict[Key, Fraction] = {}
        bucket_ns: dict[str, Fraction] = dict.fromkeys(BUCKETS, Fraction(0))
        residual = Fraction(0)
        for side, unit in sides:
            weight = 1 / (unit * len(sides))
            residual += side.account.window.residual_ns * weight
            for bucket in side.account.buckets:
                bucket_ns[bucket.bucket] += bucket.total_ns * weight
            for row in side.account.kernels:
                place = (row.bucket, row.family, row.signature)
                ns[place] = ns.get(place, Fraction(0)) + row.gpu_ns * weight
                count[place] = count.get(place, Fraction(0)) + row.instances * weight
        return cls(ns, count, bucket_ns, residual)

    def total(self, buckets: Iterable[str]) -> Fraction:
        return sum((self.bucket_ns[name] for name in buckets), Fraction(0))


@dataclass(frozen=True, slots=True)
class _Part:
    """A line with its effects kept exact, so that sums of lines are exact too."""

    moved: Moved
    effects: tuple[Fraction, Fraction, Fraction]
    counts: tuple[Fraction, Fraction]


def _unit(side: Side, per: Per) -> Fraction:
    account = side.account
    if per == "run":
        return Fraction(1)
    if not account.rounds.value:
        raise IncomparableError(side.name, "has no rounds to divide by", "use --per run")
    if per == "round":
        return Fraction(account.rounds.value)
    tokens = tokens_per_round(account)
    if not tokens:
        raise IncomparableError(side.name, "emitted tokens are not known", "use --per round")
    return Fraction(tokens) * account.rounds.value


def _bucket(name: str, before: _Amounts, after: _Amounts) -> _Part:
    keys = sorted({k for k in (*before.ns, *after.ns) if k[0] == name})
    families = []
    for family in dict.fromkeys(k[1] for k in keys):
        lines = [_line(k, before, after) for k in keys if k[1] == family]
        totals = [
            sum((side.ns.get(k, Fraction(0)) for k in keys if k[1] == family), Fraction(0))
            for side in (before, after)
        ]
        families.append(_sum(family, lines, *totals))
    return _sum(name, families, before.bucket_ns[name], after.bucket_ns[name])


def _line(place: Key, before: _Amounts, after: _Amounts) -> _Part:
    zero = Fraction(0)
    return _leaf(
        place[2],
        before.ns.get(place, zero),
        after.ns.get(place, zero),
        before.count.get(place, zero),
        after.count.get(place, zero),
    )


def _leaf(name: str, t0: Fraction, t1: Fraction, n0: Fraction, n1: Fraction) -> _Part:
    each0 = t0 / n0 if n0 else None
    each1 = t1 / n1 if n1 else None
    d0, d1 = each0 if each0 is not None else each1, each1 if each1 is not None else each0
    count = duration = Fraction(0)
    if d0 is not None and d1 is not None:
        count = (n1 - n0) * (d0 + d1) / 2
        duration = (d1 - d0) * (n0 + n1) / 2
    other = (t1 - t0) - count - duration
    return _part(name, (t0, t1), (n0, n1), (count, duration, other), ())


def _sum(name: str, parts: Sequence[_Part], t0: Fraction, t1: Fraction) -> _Part:
    count = sum((part.effects[0] for part in parts), Fraction(0))
    duration = sum((part.effects[1] for part in parts), Fraction(0))
    n0 = sum((part.counts[0] for part in parts), Fraction(0))
    n1 = sum((part.counts[1] for part in parts), Fraction(0))
    other = (t1 - t0) - count - duration
    ordered = sorted(parts, key=lambda p: (-abs(p.moved.delta_ns), p.moved.name))
    return _part(name, (t0, t1), (n0, n1), (count, duration, other), [p.moved for p in ordered])


def _part(
    name: str,
    times: tuple[Fraction, Fraction],
    counts: tuple[Fraction, Fraction],
    effects: tuple[Fraction, Fraction, Fraction],
    parts: Sequence[Moved],
) -> _Part:
    each = [float(t / n) if n else None for t, n in zip(times, counts, strict=True)]
    moved = Moved(
        name=name,
        base_ns=float(times[0]),
        head_ns=float(times[1]),
        base_count=float(counts[0]),
        head_count=float(counts[1]),
        count_ns=float(effects[0]),
        duration_ns=float(effects[1]),
        other_ns=float(effects[2]),
        base_each_ns=each[0],
        head_each_ns=each[1],
        parts=tuple(parts),
    )
    return _Part(moved, effects, counts)


def _notes(sides: Sequence[Side]) -> Iterable[str]:
    reference = key(sides[0].account)
    for side in sides[1:]:
        for name, value in key(side.account).items():
            if value != reference[name]:
                unlike = f"another {name} than {sides[0].name} ({value}, not {reference[name]})"
                yield f"{side.name}: {unlike}"
    for side in sides:
        yield from _warnings(side.name, side.account)


def _warnings(name: str, account: Account) -> Iterable[str]:
    for spot in account.blind_spots:
        if spot.severity == "fatal":
            yield f"{name}: {spot.kind}: {spot.detail}"
    if account.rounds.value and account.rounds.verdict not in ("exact", "inferred"):
        yield f"{name}: rounds are not proven (verdict {account.rounds.verdict})"
