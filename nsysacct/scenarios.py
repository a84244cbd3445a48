"""Acceptance by kind of request, and whether speculation should stay on for it.

The method and its threshold come from a published article on two engines that disagreed about
speculation (2026-11-09), section 5.2: acceptance is no constant of a model, so sample 200 to 500
requests of each kind, and give speculation up for a kind whose per-position rate stays below 0.5.
A run's own break-even says more than any fixed threshold; this is the coarse first cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from nsysacct.acceptance import CONFIDENCE, Summary, summarise
from nsysacct.errors import UsageError
from nsysacct.logs import LogReading
from nsysacct.logs.reading import total
from nsysacct.theory import alpha_for_mean

LOW_RATE = 0.5
"""Conditional rate a draft below which the article gives speculation up: "若某类任务 α 长期低于 0.5,
直接放弃该场景的推测解码"."""
SOURCE = (
    "threshold 0.5: article on llama.cpp and vLLM of 2026-11-09, section 5.2 "
    "(give it up for a kind of request whose rate a position stays below 0.5; it asks for 200-500 "
    "requests of each kind)"
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Logs of one kind of request and one k, taken together.

    ``alpha``, ``alpha_low``, ``alpha_high``: conditional rate of a draft with its interval.
    ``advice``: "drop", "keep" or "open"; ``why`` says from what.
    """

    name: str
    logs: tuple[str, ...]
    engine: str
    requests: int | None
    summary: Summary
    alpha: float | None
    alpha_low: float | None
    alpha_high: float | None
    advice: str
    why: str


def by_scenario(
    readings: Sequence[tuple[str, str, LogReading]], confidence: float = CONFIDENCE
) -> list[Scenario]:
    """Take logs together that share scenario, engine and k, in order of first appearance.

    Parameters
    ----------
    readings : sequence of (scenario, log name, reading)
    confidence : float
        Of all intervals, 0..1.
    """
    groups: dict[tuple[str, str, int | None], list[tuple[str, LogReading]]] = {}
    for name, log, reading in readings:
        key = (name, reading.engine, reading.counters.k)
        groups.setdefault(key, []).append((log, reading))
    return [
        _scenario(name, engine, found, confidence) for (name, engine, _), found in groups.items()
    ]


def _scenario(
    name: str, engine: str, found: list[tuple[str, LogReading]], confidence: float
) -> Scenario:
    readings = [reading for _, reading in found]
    counters = readings[0].counters
    if len(readings) > 1:
        counters = total(counters.source, [r.counters for r in readings])
    summary = summarise(counters, confidence)
    alpha = conditional_rate(summary)
    advice, why = advise(alpha, confidence)
    if not all(r.speculation for r in readings):
        advice, why = "open", "no speculation ran"
    return Scenario(
        name=name,
        logs=tuple(log for log, _ in found),
        engine=engine,
        requests=counters.requests,
        summary=summary,
        alpha=alpha[0],
        alpha_low=alpha[1],
        alpha_high=alpha[2],
        advice=advice,
        why=why,
    )


def conditional_rate(summary: Summary) -> tuple[float | None, float | None, float | None]:
    """Return the conditional rate of a draft with its interval.

    From the histogram; without one the constant rate that gives the mean, its ends from those of
    accepted over drafted; without counts there is no interval.
    """
    if summary.alpha is not None:
        return summary.alpha.share, summary.alpha.low, summary.alpha.high
    k, share = summary.k, summary.rate
    if k is None or share is None or share.low is None or share.high is None:
        return summary.constant_alpha, None, None
    middle = summary.constant_alpha
    if middle is None and share.share is not None:
        middle = alpha_for_mean(k * share.share, k)
    return middle, alpha_for_mean(k * share.low, k), alpha_for_mean(k * share.high, k)


def advise(
    alpha: tuple[float | None, float | None, float | None], confidence: float = CONFIDENCE
) -> tuple[str, str]:
    """Compare a rate's whole interval with `LOW_RATE`.

    Returns
    -------
    advice : str
        "drop" when the interval lies below, "keep" when it does not, "open" when it holds the
        threshold or is not known.
    why : str
    """
    share, low, high = alpha
    if share is None:
        return "open", "no rate known"
    if low is None or high is None:
        return "open", "no counts, so no interval"
    if high < LOW_RATE:
        return "drop", f"whole interval below {LOW_RATE}"
    if low >= LOW_RATE:
        return "keep", f"whole interval at {LOW_RATE} or above"
    needed = _trials(share, confidence)
    if needed is None:
        return "open", f"interval holds {LOW_RATE}"
    return "open", f"interval holds {LOW_RATE}: about {needed} tested drafts would decide"


def _trials(share: float, confidence: float) -> int | None:
    distance = abs(share - LOW_RATE)
    if distance < 0.005:
        return None  # no affordable sample tells these apart
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    exact = z * z * LOW_RATE * (1 - LOW_RATE) / (distance * distance)
    return int(round(exact, 1 - int(math.log10(exact))))  # two digits


def scenario_names(labels: Sequence[str], logs: Sequence[str]) -> list[str]:
    """Return each log's scenario: ``--label scenario=NAME`` in order, else the log's name.

    Raises
    ------
    UsageError
        Labels, but not one for each log, or one that cannot be read.
    """
    if not labels:
        return list(logs)
    if len(labels) != len(logs):
        raise UsageError(
            "--label",
            f"{len(labels)} labels for {len(logs)} logs",
            "give one for each log, in order",
        )
    names = [label.partition("=")[2] if "=" in label else label for label in labels]
    if not all(names):
        raise UsageError("--label", "is empty", "write --label scenario=code")
    return names
