"""Limits of a gate: how much a figure may move, or what it may be at most.

One limit is ``METRIC:BOUND``::

    verify.ns_per_round:+5%      at most 5 % dearer than the base
    draft.ns_per_round:+50us     at most 50 us more (ns, us, ms, s)
    tokens.per_round:-3%         at most 3 % fewer
    unattributed.share:+1pp      at most one percentage point more
    verify.gemv.instances_per_round:+0    not one launch more
    replay.ns_per_round:<=12ms   the head alone, whatever the base
    tokens.per_round:>=2.5       likewise
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nsysacct.errors import UsageError
from nsysacct.metric_names import Metric, parse_metric

Kind = Literal["relative", "absolute", "cap"]

NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}

DEFAULTS = (
    "total.ns_per_round:+3%",
    "verify.ns_per_round:+3%",
    "draft.ns_per_round:+3%",
    "replay.ns_per_round:+10%",
    "residual.ns_per_round:+25%",
    "unattributed.share:+1pp",
    "blind.share:+1pp",
)
"""Used without ``--limit`` and without a limits file.

Kernel times of one program on one GPU repeat within about 1 % from capture to capture, so 3 % is
not noise. Replay depends on which drafts were rejected, and the residual on the host: tracing NVTX
as well moves it by a fifth where the kernels stay within 1 %.
"""

_BOUND = re.compile(
    r"(?P<op>\+|-|<=|>=)\s*(?P<value>\d+(?:\.\d*)?(?:e[+-]?\d+)?)\s*(?P<unit>[a-z%]*)"
)
_EXAMPLES = "write METRIC:+5%, METRIC:+50us, METRIC:-3% or METRIC:<=2ms"


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on one figure.

    ``amount``: relative: share of the base (0.05); absolute: ns, count or share; cap: the same as
    a value of the head. ``upper``: the figure may not rise above (else fall below) it.
    ``explicit`` is False for the defaults, which are left out where a figure does not exist.
    """

    metric: Metric
    kind: Kind
    amount: float
    upper: bool
    text: str
    explicit: bool = True


def parse_limit(text: str, *, explicit: bool = True) -> Limit:
    """Limit from ``METRIC:BOUND``.

    Raises
    ------
    UsageError
        No such metric, a bound that cannot be read, or a unit that the metric does not have.

    Examples
    --------
    >>> limit = parse_limit("verify.ns_per_round:+5%")
    >>> limit.kind, limit.amount, limit.upper
    ('relative', 0.05, True)
    """
    subject = f"limit {text!r}"
    name, colon, bound = text.strip().rpartition(":")
    if not colon:
        raise UsageError(subject, "has no bound", _EXAMPLES)
    metric = parse_metric(name.strip())
    found = _BOUND.fullmatch(bound.strip())
    if found is None:
        raise UsageError(subject, f"cannot read the bound {bound!r}", _EXAMPLES)
    op, value, unit = found["op"], float(found["value"]), found["unit"]
    if value == float("inf"):
        raise UsageError(subject, f"the bound {bound!r} is not finite", _EXAMPLES)
    upper = op in ("+", "<=")
    if op in ("+", "-") and unit == "%":
        return Limit(metric, "relative", value / 100, upper, text.strip(), explicit)
    kind: Kind = "absolute" if op in ("+", "-") else "cap"
    return Limit(
        metric, kind, value * _factor(subject, metric, unit), upper, text.strip(), explicit
    )


def default_limits() -> list[Limit]:
    """Limits used when none are given (`DEFAULTS`)."""
    return [parse_limit(text, explicit=False) for text in DEFAULTS]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a limits file may say beside its limits; None = not said."""

    limits: tuple[Limit, ...] = ()
    confidence: float | None = None
    inconclusive: str | None = None
    allow: tuple[str, ...] = ()
    rounds: str | None = None


def load_limits(path: Path) -> Settings:
    """Read a limits file (TOML).

    ::

        confidence = 0.95
        inconclusive = "no-verdict"     # or "fail", "pass"
        allow = ["kind-of-blind-spot"]
        rounds = "inferred"             # or "exact": what counts as proven
        [limits]
        "verify.ns_per_round" = "+5%"
        "verify.gemv.instances_per_round" = ["+0", "<=130"]

    Raises
    ------
    UsageError
        Unreadable, not TOML, or an unknown key or value: the message names it.
    """
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(str(path), f"cannot be read ({error.strerror})", "check it") from error
    except (ValueError, RecursionError) as error:  # tomllib's own, and its limits
        raise UsageError(str(path), f"is not TOML ({error})", "see docs/gate.md") from error
    return read_settings(str(path), document)


def read_settings(subject: str, document: Mapping[str, Any]) -> Settings:
    """Settings from a table with the keys of a limits file; `subject` names it in errors.

    Raises
    ------
    UsageError
        An unknown key or value: the message names it.
    """
    known = {"limits", "confidence", "inconclusive", "allow", "rounds"}
    unknown = sorted(set(document) - known)
    if unknown:
        raise UsageError(
            subject, f"unknown key {unknown[0]!r}", f"one of {', '.join(sorted(known))}"
        )
    table = document.get("limits", {})
    if not isinstance(table, dict):
        raise UsageError(subject, "limits is not a table", "see docs/gate.md")
    confidence = document.get("confidence")
    if confidence is not None and not (isinstance(confidence, float) and 0.5 <= confidence < 1):
        raise UsageError(subject, "confidence must be 0.5 to 1", "0.95 is usual")
    inconclusive = document.get("inconclusive")
    if inconclusive not in (None, "fail", "pass", "no-verdict"):
        raise UsageError(subject, "inconclusive is not fail, pass or no-verdict", "choose one")
    rounds = document.get("rounds")
    if rounds not in (None, "inferred", "exact"):
        raise UsageError(subject, "rounds is not inferred or exact", "choose one")
    allow = document.get("allow", [])
    if not (isinstance(allow, list) and all(isinstance(kind, str) for kind in allow)):
        raise UsageError(subject, "allow is not a list of kinds", "see `nsysacct check`")
    return Settings(tuple(_limits(subject, table)), confidence, inconclusive, tuple(allow), rounds)


def _limits(subject: str, table: Mapping[str, Any]) -> list[Limit]:
    limits = []
    for name, bounds in table.items():
        texts: Sequence[Any] = bounds if isinstance(bounds, list) else [bounds]
        for bound in texts:
            if not isinstance(bound, str):
                raise UsageError(subject, f"limits.{name}: {bound!r} is not a string", _EXAMPLES)
            limits.append(parse_limit(f"{name}:{bound}"))
    return limits


def _factor(subject: str, metric: Metric, unit: str) -> float:
    """Size of one `unit` in the metric's own (ns, count, share)."""
    if metric.unit == "ns" and unit in NS:
        return NS[unit]
    if metric.unit == "share" and unit in ("%", "pp", ""):
        return 0.01 if unit else 1.0
    if metric.unit == "count" and not unit:
        return 1.0
    units = {"ns": "ns, us, ms or s", "share": "pp", "count": "no unit"}[metric.unit]
    raise UsageError(
        subject, f"unit {unit!r} does not fit {metric.name}" if unit else "has no unit",
        f"use % of the base, or {units}",
    )  # fmt: skip
