"""Acceptance figures from a histogram or from counters: rates, intervals, bounds.

Two rates of a position are easily mixed up, so both come with their denominators:

- cumulative ``p_j = P(n_ok >= j)``: rounds that accepted at least j drafts over *all rounds*
  (what engines print as "acc per pos" or "per-position acceptance rate");
- conditional ``alpha_j = P(n_ok >= j | n_ok >= j - 1)``: the same rounds over *those that accepted
  j - 1*, which is the alpha of Leviathan et al. 2023 (arXiv 2211.17192).

``n_ok[i]`` = rounds that accepted i of their k drafts, throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from nsysacct import model
from nsysacct.errors import UsageError
from nsysacct.histograms import Bounds, bounds, constant_alpha_shares
from nsysacct.logs.reading import EXACT, Counters, LogReading
from nsysacct.model import Finding
from nsysacct.semantics import REPLAY_STEPS, TOKENS, tokens_of
from nsysacct.theory import alpha_for_mean

__all__ = [
    "Bounds",
    "Position",
    "Rate",
    "Summary",
    "acceptance_rate",
    "bounds",
    "constant_alpha_shares",
    "contradictions",
    "expected_length",
    "is_exact",
    "mean_n_ok",
    "pooled_alpha",
    "positions",
    "rate",
    "rounds_of",
    "summarise",
    "to_model",
    "wilson",
]

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Rate:
    """A share with its denominator and Wilson interval; ``share`` is None without trials.

    ``effective`` is the number of independent trials that the interval rests on, where it is not
    ``trials`` itself.
    """

    successes: int
    trials: int
    share: float | None
    low: float | None
    high: float | None
    effective: float | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """Draft position j (from 1): cumulative p_j over all rounds, conditional alpha_j."""

    position: int
    cumulative: Rate
    conditional: Rate


def wilson(
    successes: float, trials: float, confidence: float = CONFIDENCE
) -> tuple[float | None, float | None]:
    """Wilson's score interval of a share; (None, None) without trials.

    Source: Wilson 1927 (doi:10.1080/01621459.1927.10502953). Unlike the normal interval it stays
    within 0..1 and does not shrink to a point at 0 or at all.

    Raises
    ------
    UsageError
        Successes outside 0..trials or a confidence outside 0..1.

    Examples
    --------
    >>> [round(x, 4) for x in wilson(8, 10)]
    [0.4902, 0.9433]
    """
    if not 0 <= successes <= trials:
        raise UsageError("rate", f"{successes} of {trials}", "give 0 <= successes <= trials")
    if not 0 < confidence < 1:
        raise UsageError("confidence", f"{confidence} is not in 0..1", "give 0.95")
    if not trials:
        return None, None
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / trials
    scale = 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    low = 0.0 if successes == 0 else max(0.0, middle - half)
    high = 1.0 if successes == trials else min(1.0, middle + half)
    return low, high


def rate(
    successes: int, trials: int, confidence: float = CONFIDENCE, effective: float | None = None
) -> Rate:
    """Return a share with Wilson's interval, over `effective` trials where they are fewer."""
    share = successes / trials if trials else None
    size = trials if effective is None else effective
    low, high = wilson(size * share if share is not None else 0, size, confidence)
    return Rate(successes, trials, share, low, high, effective)


def rounds_of(n_ok: Sequence[int]) -> int:
    """Count the rounds of a histogram.

    Raises
    ------
    UsageError
        Negative counts, no k, or no rounds.
    """
    if len(n_ok) < 2 or min(n_ok) < 0 or not sum(n_ok):
        raise UsageError(
            "n_ok", f"{list(n_ok)} is no histogram", "give rounds that accepted 0, 1, .. k drafts"
        )
    return sum(n_ok)


def mean_n_ok(n_ok: Sequence[int]) -> float:
    """Return accepted drafts a round.

    Examples
    --------
    >>> round(mean_n_ok([27, 2, 6, 7]), 4)
    0.8333
    """
    return sum(n * count for n, count in enumerate(n_ok)) / rounds_of(n_ok)


def expected_length(n_ok: Sequence[int], tokens: str = "n_ok+1") -> float:
    """Return tokens a round under a `semantics.TOKENS` rule.

    Examples
    --------
    >>> round(expected_length([27, 2, 6, 7], "max(n_ok,1)"), 3)
    1.476
    """
    return tokens_of(n_ok, tokens) / rounds_of(n_ok)


def positions(n_ok: Sequence[int], confidence: float = CONFIDENCE) -> list[Position]:
    """Return both rates of each position, with denominators and intervals.

    The trials of ``alpha_j`` are independent draws, one a round at most, so Wilson's interval
    applies to both. Where rounds propose fewer than k drafts, ``alpha_j`` counts positions that
    were never proposed as rejected.

    Examples
    --------
    >>> third = positions([27, 2, 6, 7])[2]
    >>> third.cumulative.trials, third.conditional.trials, third.conditional.successes
    (42, 13, 7)
    """
    rounds = rounds_of(n_ok)
    reached = [sum(n_ok[j:]) for j in range(len(n_ok))]
    return [
        Position(
            j,
            rate(reached[j], rounds, confidence),
            rate(reached[j], reached[j - 1], confidence),
        )
        for j in range(1, len(n_ok))
    ]


def pooled_alpha(n_ok: Sequence[int], confidence: float = CONFIDENCE) -> Rate:
    """Return the constant conditional rate that fits best: accepted over accepted + rejected.

    Each round tests drafts until one is rejected or none is left, so trials = accepted drafts +
    rounds that accepted fewer than k. This is the maximum-likelihood alpha of Leviathan's model.

    Examples
    --------
    >>> fit = pooled_alpha([27, 2, 6, 7])
    >>> fit.successes, fit.trials
    (35, 70)
    """
    rejected = rounds_of(n_ok) - n_ok[-1]
    accepted = sum(n * count for n, count in enumerate(n_ok))
    return rate(accepted, accepted + rejected, confidence)


def acceptance_rate(
    accepted: int,
    drafted: int,
    *,
    rounds: int | None = None,
    n_ok: Sequence[int] | None = None,
    confidence: float = CONFIDENCE,
) -> Rate:
    """Return accepted over drafted, with an interval that takes the round as the sample.

    Drafts of one round stand or fall together, so they are no independent trials. The interval
    divides the drafts by the design effect (Kish): the variance of n_ok over that of k
    independent drafts. Without a histogram the worst case holds, all or nothing, which leaves as
    many trials as rounds. Source: Kish 1965, *Survey Sampling*, section 8.2.

    Raises
    ------
    UsageError
        More accepted than drafted.
    """
    share = accepted / drafted if drafted else 0.0
    effective: float | None = None
    if rounds:
        drafts = drafted / rounds
        effect = drafts
        if n_ok is not None and 0 < share < 1 and sum(n_ok) == rounds:
            mean = accepted / rounds
            variance = sum(c * (n - mean) ** 2 for n, c in enumerate(n_ok)) / rounds
            effect = min(max(variance / (drafts * share * (1 - share)), 1.0), drafts)
        effective = drafted / effect if effect else None
    return rate(accepted, drafted, confidence, effective)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a reading says, worked out; unknown figures are None.

    ``p_zero``, ``tokens`` and ``replay_steps`` (per round, by rule of `semantics`) are exact points
    with a histogram, else bounds from the mean. ``constant_alpha`` is the conditional rate that
    would give this mean at every position.
    """

    rounds: int | None
    k: int | None
    accepted: int | None
    drafted: int | None
    mean: float | None
    rate: Rate | None
    printed_rate: float | None
    positions: list[Position]
    alpha: Rate | None
    constant_alpha: float | None
    p_zero: Bounds | None
    tokens: dict[str, Bounds]
    replay_steps: dict[str, Bounds]


def summarise(counters: Counters, confidence: float = CONFIDENCE) -> Summary:
    """Work out all figures that the counters allow."""
    n_ok, k = counters.n_ok, counters.k
    mean = _mean(counters)
    known = n_ok is not None and len(n_ok) > 1 and any(n_ok)
    overall = None
    if counters.accepted is not None and counters.drafted:
        # the worst case of few rounds holds as long as their number is open
        sample = counters.rounds or (counters.drafted / k if k else None)
        overall = acceptance_rate(
            counters.accepted, counters.drafted, confidence=confidence,
            rounds=math.ceil(sample) if sample else None, n_ok=n_ok,
        )  # fmt: skip
    bounded = _bounder(counters, mean)
    most = len(n_ok) - 1 if n_ok else k or 0

    def at_most(rule: Callable[[int, int], int]) -> Callable[[int], float]:
        return lambda n: float(rule(n, most))

    return Summary(
        rounds=counters.rounds,
        k=k,
        accepted=counters.accepted,
        drafted=counters.drafted,
        mean=mean,
        rate=overall,
        printed_rate=counters.rate,
        positions=positions(n_ok, confidence) if known and n_ok else [],
        alpha=pooled_alpha(n_ok, confidence) if known and n_ok else None,
        constant_alpha=alpha_for_mean(mean, k) if mean is not None and k and mean <= k else None,
        p_zero=bounded(lambda n: float(n == 0)) if bounded else None,
        tokens={name: bounded(at_most(rule)) for name, rule in TOKENS.items()} if bounded else {},
        replay_steps={name: bounded(at_most(rule)) for name, rule in REPLAY_STEPS.items()}
        if bounded
        else {},
    )


def _mean(counters: Counters) -> float | None:
    if counters.accepted is not None and counters.rounds:
        return counters.accepted / counters.rounds
    return counters.mean_n_ok


def _bounder(
    counters: Counters, mean: float | None
) -> Callable[[Callable[[int], float]], Bounds] | None:
    n_ok, k, rounds = counters.n_ok, counters.k, counters.rounds
    if n_ok is not None and len(n_ok) > 1 and any(n_ok):
        histogram = tuple(n_ok)

        def exactly(function: Callable[[int], float]) -> Bounds:
            value = sum(function(n) * c for n, c in enumerate(histogram)) / sum(histogram)
            return Bounds(value, value, histogram, histogram)

        return exactly
    if mean is None or not k or not 0 <= mean <= k:
        return None
    whole = rounds if counters.accepted is not None and rounds else None
    return lambda function: bounds(mean, k, function, whole)


def to_model(reading: LogReading) -> model.Acceptance:
    """Return the reading as the account holds it; source "log"."""
    counters = reading.counters
    rates = counters.rates
    if counters.positions is not None and counters.rounds:
        rates = [count / counters.rounds for count in counters.positions]
    return model.Acceptance(
        source="log",
        rounds=counters.rounds,
        k=counters.k,
        n_ok=counters.n_ok,
        accepted=counters.accepted,
        drafted=counters.drafted,
        per_position=rates,
        tokens=counters.tokens,
    )


def contradictions(reading: LogReading, rounds: int) -> list[Finding]:
    """Compare a log with the rounds that a trace shows: what differs, and the likely cause.

    Parameters
    ----------
    reading : LogReading
    rounds : int
        Verify passes that ran on the GPU.

    Returns
    -------
    list of Finding
        Empty when both agree. "info" where a known habit of engines explains the difference,
        else "warning".
    """
    told, counters = reading.counters.rounds, reading.counters
    if told is None or told == rounds:
        return []
    if counters.rounds_low is not None and counters.rounds_high is not None:
        if counters.rounds_low <= rounds <= counters.rounds_high:
            return []
    both = f"the log counts {told} rounds, the trace shows {rounds}"
    if told == 0 or rounds == 0:
        return [_finding("warning", both, "see that log and trace come from the same run")]
    if rounds == told + 1:
        return [_finding("info", f"{both}: an asynchronous engine launches one more than it uses")]
    span = _span(reading.parts, rounds)
    if span is not None:
        first, last = span
        where = f"line {first}" if first == last else f"lines {first} to {last}"
        return [
            _finding(
                "info",
                f"{both}; {where} alone fit: the capture covers that part of the log",
                f"read the log with --lines {first}:{last} (in split: --log-lines)",
            )
        ]
    if told > rounds:
        detail = (
            f"{both}: {told / rounds:.2f} a pass; with several requests in a batch the log "
            "counts each, else the capture covers less than the log"
        )
        return [_finding("warning", detail, "give the part of the log that was captured")]
    return [_finding("warning", f"{both}: the log holds less", "give the log of the whole capture")]


def _finding(severity: str, detail: str, remedy: str = "") -> Finding:
    return Finding(kind="log-rounds-differ", severity=severity, detail=detail, remedy=remedy)


def _span(parts: Sequence[Counters], rounds: int) -> tuple[int, int] | None:
    """Find consecutive parts that hold `rounds` rounds, or one less; exact fits first."""
    if len(parts) < 2:
        return None
    for aim in (rounds, rounds - 1):
        for first in range(len(parts)):
            held = 0
            for last in range(first, len(parts)):
                held += parts[last].rounds or 0
                if held == aim and (first, last) != (0, len(parts) - 1):
                    return min(parts[first].lines), max(parts[last].lines)
                if held >= aim:
                    break
    return None


def is_exact(counters: Counters) -> bool:
    """Whether the histogram is printed or the only one that fits what is printed."""
    return counters.n_ok is not None and counters.n_ok_basis in EXACT
