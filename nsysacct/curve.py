"""The verify-cost curve: what one target pass costs against the rows it runs.

Points come from any number of accounts: plain steps are width 1, verify passes the width that the
account proves. ``beta(M) = T(M) / T(1)`` is the inverse of MoESD's target efficiency.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable

import msgspec

from nsysacct.economics import NS_PER_MS
from nsysacct.errors import UsageError
from nsysacct.model import Account, ProcessAccount
from nsysacct.theory import expert_ratio

STEP_FACTOR = 3.0
"""A segment this much steeper than the curve's other segments is a step ..."""
STEP_SHARE = 0.05
"""... if a row in it also costs this share of the narrowest pass."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Passes of one width in one account. ``gpu_ms`` is their mean GPU time."""

    width: int
    gpu_ms: float
    count: int
    role: str
    source: str
    granularity: str | None = None


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One width: mean pass, slope from the width before, beta over width 1.

    ``expert_ratio`` is the ceiling that uniform routing sets for the experts' share of beta.
    """

    width: int
    ms: float
    count: int
    sources: list[str]
    slope_ms_per_row: float | None = None
    beta: float | None = None
    step: str = ""
    expert_ratio: float | None = None


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """All widths in order, with the least-squares slope over them."""

    points: list[Point]
    slope_ms_per_row: float | None
    notes: list[str] = []


def samples_of(account: Account) -> list[Sample]:
    """Target passes of an account by width: its steps, else its verify bucket by rounds."""
    source, mode = account.trace.name, account.trace.graph_trace
    found = []
    for step in account.steps:
        width = 1 if step.role in ("plain", "decode") and step.width is None else step.width
        if step.role not in ("plain", "decode", "verify") or width is None or not step.count:
            continue
        if not step.gpu_ns:
            continue
        found.append(
            Sample(
                width=width, gpu_ms=step.gpu_ns / step.count / NS_PER_MS, count=step.count,
                role=step.role, source=source, granularity=mode,
            )
        )  # fmt: skip
    if not any(sample.role == "verify" for sample in found):
        found += _from_bucket(account, source, mode)
    return found


def _from_bucket(part: ProcessAccount, source: str, mode: str | None) -> list[Sample]:
    rounds, width = part.rounds.value, part.rounds.width
    verify = part.bucket("verify").gpu_ns
    if not rounds or width is None or not verify:
        return []
    return [
        Sample(
            width=width, gpu_ms=verify / rounds / NS_PER_MS, count=rounds, role="verify",
            source=source, granularity=mode,
        )
    ]  # fmt: skip


def curve(
    samples: Iterable[Sample], *, experts: int | None = None, experts_per_token: int | None = None
) -> Curve:
    """Return the curve through samples, equal widths merged by their counts.

    Parameters
    ----------
    samples : iterable of Sample
        Of one model on one card; widths in any order.
    experts, experts_per_token : int, optional
        Of a MoE layer, for the uniform-routing ceiling beside beta.

    Raises
    ------
    UsageError
        No sample at all, or only one of the two expert counts.
    """
    gathered = list(samples)
    if not gathered:
        raise UsageError("curve", "no target pass of known width", "give accounts with rounds")
    if (experts is None) != (experts_per_token is None):
        raise UsageError("--experts", "needs both counts", "give --experts and --experts-per-token")
    by_width: dict[int, list[Sample]] = {}
    for sample in gathered:
        by_width.setdefault(sample.width, []).append(sample)
    times = {
        width: sum(s.gpu_ms * s.count for s in group) / sum(s.count for s in group)
        for width, group in sorted(by_width.items())
    }
    slopes = _slopes(times)
    steps = _steps(times, slopes)
    first = times.get(1)
    points = [
        Point(
            width=width,
            ms=ms,
            count=sum(s.count for s in by_width[width]),
            sources=sorted({s.source for s in by_width[width]}),
            slope_ms_per_row=slopes.get(width),
            beta=None if first is None else ms / first,
            step=steps.get(width, ""),
            expert_ratio=(
                expert_ratio(experts, experts_per_token, width)
                if experts is not None and experts_per_token is not None
                else None
            ),
        )
        for width, ms in times.items()
    ]
    slope = (
        statistics.linear_regression(list(times), list(times.values())).slope if slopes else None
    )
    return Curve(points=points, slope_ms_per_row=slope, notes=_notes(gathered, times))


def _slopes(times: dict[int, float]) -> dict[int, float]:
    widths = list(times)
    return {
        wide: (times[wide] - times[narrow]) / (wide - narrow)
        for narrow, wide in itertools.pairwise(widths)
    }


def _steps(times: dict[int, float], slopes: dict[int, float]) -> dict[int, str]:
    """Name the segments that are much steeper than the others.

    Experts scatter at once (the first rows bring the most new experts, later ones fewer); another
    kernel shows as a jump after a flatter part. A single segment has nothing to stand out from.
    """
    found = {}
    narrowest = next(iter(times.values()))
    for position, (width, slope) in enumerate(slopes.items()):
        others = [abs(s) for w, s in slopes.items() if w != width]
        if not others or slope < STEP_SHARE * narrowest:
            continue
        if slope >= STEP_FACTOR * statistics.median(others):
            found[width] = "expert scatter?" if position == 0 else "kernel switch?"
    return found


def _notes(samples: list[Sample], times: dict[int, float]) -> list[str]:
    notes = []
    modes = {s.granularity for s in samples if s.granularity}
    if len(modes) > 1:
        notes.append(
            "captures mix graph and node granularity: node tracing slows kernels in graphs"
        )
    if 1 not in times:
        notes.append("no plain step (width 1) among the captures: beta is unknown")
    if len(times) == 1:
        notes.append("one width only: no slope")
    if any(s.role == "verify" and s.width == 1 for s in samples):
        notes.append("width 1 includes verify passes")
    return notes
