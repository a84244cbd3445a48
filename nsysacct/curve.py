"""The verify-cost curve: what one target pass costs against the rows it runs.

Points come from any number of accounts: plain steps are width 1, verify passes the width that the
account proves. ``beta(M) = T(M) / T(1)`` is the inverse of MoESD's target efficiency.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable

import msgspec

from nsysacct.economics import NS_PER_MS, width_of
from nsysacct.errors import UsageError
from nsysacct.model import Account
from nsysacct.theory import expert_ratio

STEP_FACTOR = 3.0
"""A segment this much steeper than the curve's other segments is a step ..."""
STEP_SHARE = 0.05
"""... if a row in it also costs this share of the narrowest pass."""
MAIN_GRAPH_SHARE = 0.5
"""A graph with more than this share of a plain run's GPU time is its target pass."""


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
    """Target passes of an account by width.

    Where one graph launch is a whole target pass, the graph alone is taken: what an engine runs
    beside it (sampling, input preparation) differs between plain and verify passes. Else its steps,
    else the verify bucket over its rounds. A pass whose width nobody knows is left out.
    """
    found = [_plain_graph(account), _verify_graph(account)]
    for index, roles in enumerate((("plain", "decode"), ("verify",))):
        if found[index] is None:
            found[index] = _from_steps(account, roles)
    if found[1] is None:
        found[1] = _from_bucket(account)
    return [sample for sample in found if sample is not None]


def _sample(account: Account, role: str, width: int, gpu_ns: int, count: int) -> Sample:
    return Sample(
        width=width, gpu_ms=gpu_ns / count / NS_PER_MS, count=count, role=role,
        source=account.trace.name, granularity=account.trace.graph_trace,
    )  # fmt: skip


def _verify_graph(account: Account) -> Sample | None:
    """Find the graph that was launched once for each round's verify pass."""
    rounds, width = account.rounds.value, width_of(account, account)
    for graph in account.graphs:
        mine = graph.role == "verify" and graph.launches == rounds and len(graph.buckets) <= 1
        if mine and width is not None and graph.gpu_ns:
            return _sample(account, "verify", width, graph.gpu_ns, graph.launches)
    return None


def _plain_graph(account: Account) -> Sample | None:
    """Find the graph that does most of the work of a run without rounds."""
    if account.rounds.value:
        return None
    total = sum(account.bucket(name).gpu_ns for name in ("plain", "decode"))
    for graph in account.graphs:
        most = graph.gpu_ns is not None and graph.gpu_ns > MAIN_GRAPH_SHARE * total
        if most and graph.role in ("plain", "decode") and graph.launches > 1:
            return _sample(account, "plain", 1, graph.gpu_ns or 0, graph.launches)
    return None


def _from_steps(account: Account, roles: tuple[str, ...]) -> Sample | None:
    for step in account.steps:
        width = step.width
        if width is None and step.role == "verify":
            width = width_of(account, account)
        elif width is None and (step.role == "decode" or not account.rounds.value):
            width = 1  # "plain" beside rounds may be the prompt: not taken without a width
        if step.role in roles and width is not None and step.count and step.gpu_ns:
            if step.role == "verify" or width == 1:
                return _sample(account, step.role, width, step.gpu_ns, step.count)
    return None


def _from_bucket(account: Account) -> Sample | None:
    rounds, width = account.rounds.value, width_of(account, account)
    verify = account.bucket("verify").gpu_ns
    if not rounds or width is None or not verify:
        return None
    return _sample(account, "verify", width, verify, rounds)


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
