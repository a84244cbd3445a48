"""Counts behind one printed line whose figures are rounded (llama.cpp's and vLLM's)."""

from __future__ import annotations

from nsysacct.logs.reading import Counters, histogram_of
from nsysacct.logs.rounding import Solution, solve_rounds
from nsysacct.model import Finding


def counted(
    source: str,
    number: int,
    accepted: int,
    drafted: int,
    length: float | None,
    rates: list[float] | None,
    k: int | None,
) -> tuple[Counters, list[Finding]]:
    """Counters of one printed line: rounds and histogram worked out from rounded figures."""
    solution = solve_rounds(accepted, drafted, length, rates, k)
    if solution is None:
        part = Counters(
            source=source, lines=[number], k=k, accepted=accepted, drafted=drafted, rates=rates,
            mean_n_ok=None if length is None else length - 1,
        )  # fmt: skip
        problem = "no whole number of rounds fits its length, rates and totals"
        return part, [_finding("counters-disagree", "warning", f"line {number}: {problem}")]
    known = length is not None or rates is not None or solution.how != "nearest"
    n_ok = histogram_of(solution.rounds, solution.positions) if solution.positions else None
    exact = solution.how != "nearest" and solution.unique
    part = Counters(
        source=source,
        lines=[number],
        rounds=solution.rounds if known else None,
        rounds_low=solution.low if solution.low < solution.high else None,
        rounds_high=solution.high if solution.low < solution.high else None,
        k=k,
        accepted=accepted,
        drafted=drafted,
        positions=solution.positions if n_ok else None,
        rates=rates,
        n_ok=n_ok,
        n_ok_basis=("derived" if exact else "rounded") if n_ok else None,
    )
    return part, _unclear(number, solution, known)


def _unclear(number: int, solution: Solution, known: bool) -> list[Finding]:
    span = f"{solution.low} to {solution.high} rounds fit the rounded figures"
    if not known:
        return [_finding("rounds-open", "info", f"line {number}: {span}")]
    if solution.how == "nearest":
        detail = (
            f"line {number}: {span}; {solution.rounds} used (accepted / (length - 1) is rounded)"
        )
        return [_finding("rounds-ill-conditioned", "warning", detail)]
    return []


def _finding(kind: str, severity: str, detail: str) -> Finding:
    remedy = "collect per-request records or the Prometheus counters for exact counts"
    return Finding(kind=kind, severity=severity, detail=detail, remedy=remedy)
