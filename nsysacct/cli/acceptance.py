"""``nsysacct acceptance``: what run logs say about accepted drafts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import msgspec

from nsysacct.acceptance import Bounds, Rate, Summary, contradictions, is_exact, summarise
from nsysacct.cli._base import FILE
from nsysacct.cli._econ import Page, Table, cell, emit, format_option, span
from nsysacct.cli._help import page
from nsysacct.cli._numbers import Finite
from nsysacct.cli._options import line_range
from nsysacct.errors import UsageError
from nsysacct.logs import READERS, LogReading, read_log
from nsysacct.model import Finding
from nsysacct.scenarios import SOURCE, Scenario, by_scenario, scenario_names

_BASES = {
    "printed": "as printed",
    "derived": "the only one that fits",
    "rounded": "one of several that fit",
}


@page("acceptance")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...", type=FILE)
@click.option(
    "--label",
    "labels",
    metavar="scenario=NAME",
    multiple=True,
    help="Kind of request of each log, in their order; equal ones are taken together.",
)
@click.option("--engine", type=click.Choice(tuple(READERS)), help="Engine (default: recognised).")
@click.option("--lines", "lines", metavar="FROM:TO", help="Read only these lines of each log.")
@click.option(
    "--rounds",
    metavar="N",
    type=click.IntRange(min=0),
    help="Rounds a trace shows, to check against.",
)
@click.option(
    "--confidence",
    type=Finite(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    metavar="P",
    help="Confidence of the intervals.",
)
@format_option
def command(
    logs: tuple[str, ...],
    labels: tuple[str, ...],
    engine: str | None,
    lines: str | None,
    rounds: int | None,
    confidence: float,
    fmt: str,
    output: str | None,
    force: bool,
) -> None:
    """Read the acceptance of drafts from run logs ('-' for stdin).

    One log: rounds, rates a position with their denominators, histogram or its bounds. Several:
    a table by kind of request.

    \b
    Examples:
      nsysacct acceptance run.log
      nsysacct acceptance run.log --rounds 42 --lines 120:
      nsysacct acceptance a.log b.log --label scenario=chat --label scenario=code
    """
    if logs.count("-") > 1:
        raise UsageError("-", "stdin can be read once", "name files for the others")
    if rounds is not None and len(logs) > 1:
        raise UsageError("--rounds", "needs one log", "give the log of the trace alone")
    scope = line_range("--lines", lines)
    names = ["stdin" if log == "-" else Path(log).name for log in logs]
    scenarios = scenario_names(labels, names)
    readings = [
        read_log(
            sys.stdin.buffer.read() if log == "-" else Path(log),
            engine,
            lines=scope,
        )
        for log in logs
    ]
    if len(logs) == 1:
        page = _one(names[0], scenarios[0] if labels else None, readings[0], rounds, confidence)
    else:
        page = _several(list(zip(scenarios, names, readings, strict=True)), confidence)
    emit(page, fmt, output, force)


def _one(
    name: str, scenario: str | None, reading: LogReading, rounds: int | None, confidence: float
) -> Page:
    summary = summarise(reading.counters, confidence)
    findings = reading.findings + (contradictions(reading, rounds) if rounds is not None else [])
    document = {
        "log": name,
        "scenario": scenario,
        "reading": msgspec.to_builtins(msgspec.structs.replace(reading, findings=findings)),
        "summary": asdict(summary),
        "confidence": confidence,
    }
    tables = [_positions(summary)] if summary.positions else []
    if reading.counters.n_ok is not None:
        tables.append(_histogram(reading))
    if summary.p_zero is not None:
        tables.append(_per_round(summary))
    tables.append(_sources(reading))
    if len(reading.parts) > 1:
        tables.append(_parts(reading))
    head = [_verdict(name, reading, summary, confidence)]
    notes = [_note(f) for f in findings] + _short_drafts(summary)
    return Page("acceptance", document, tables, head=head, notes=notes)


def _short_drafts(summary: Summary) -> list[str]:
    if None in (summary.rounds, summary.k, summary.drafted) or not summary.positions:
        return []
    assert summary.rounds is not None and summary.k is not None and summary.drafted is not None
    missing = summary.rounds * summary.k - summary.drafted
    if missing <= 0:
        return []
    return [
        f"rounds proposed {missing} drafts fewer than {summary.k} each: p_j and alpha_j count a "
        "draft that was never proposed as not accepted"
    ]


def _note(finding: Finding) -> str:
    text = f"{finding.severity}: {finding.detail}"
    return f"{text}; {finding.remedy}" if finding.remedy else text


def _verdict(name: str, reading: LogReading, summary: Summary, confidence: float) -> str:
    if not reading.speculation:
        return f"{name}: no speculation ran (0 rounds)"
    told = []
    if summary.mean is not None:
        of = f" of {summary.k}" if summary.k else ""
        told.append(f"{summary.mean:.3f}{of} drafts accepted a round")
    if summary.rate is not None and summary.rate.share is not None:
        rate = summary.rate
        told.append(
            f"{rate.successes} of {rate.trials} drafts ({_share(rate)}, interval at {100 * confidence:g} %)"
        )
    elif summary.printed_rate is not None:
        told.append(f"{100 * summary.printed_rate:.1f} % of drafts")
    low, high = reading.counters.rounds_low, reading.counters.rounds_high
    if summary.rounds is not None:
        range_ = f" ({low}-{high} fit)" if low is not None and high is not None else ""
        told.append(f"{summary.rounds} rounds{range_}")
    else:
        told.append("rounds not told")
    return f"{name} ({reading.engine}): {'; '.join(told)}"


def _share(rate: Rate | None) -> str:
    """Percentage with its interval."""
    if rate is None or rate.share is None or rate.low is None or rate.high is None:
        return "-"
    return f"{100 * rate.share:.1f} %, {100 * rate.low:.1f}-{100 * rate.high:.1f}"


def _positions(summary: Summary) -> Table:
    rows = [
        [
            str(p.position),
            f"{p.cumulative.successes}/{p.cumulative.trials}",
            cell(p.cumulative.share),
            span(p.cumulative.low, p.cumulative.high, 3),
            f"{p.conditional.successes}/{p.conditional.trials}",
            cell(p.conditional.share),
            span(p.conditional.low, p.conditional.high, 3),
        ]
        for p in summary.positions
    ]
    columns = [
        "j",
        "of all rounds",
        "p_j",
        "p_j interval",
        "of those at j-1",
        "alpha_j",
        "alpha_j interval",
    ]
    return Table(
        "Positions: p_j = P(n_ok >= j), alpha_j = P(n_ok >= j | n_ok >= j-1)", columns, rows
    )


def _histogram(reading: LogReading) -> Table:
    counters = reading.counters
    n_ok = counters.n_ok or []
    rows = [[str(n), str(c), cell(c / max(sum(n_ok), 1))] for n, c in enumerate(n_ok)]
    basis = _BASES[counters.n_ok_basis or "printed"]
    return Table(f"Rounds by accepted drafts ({basis})", ["n_ok", "rounds", "share"], rows)


def _per_round(summary: Summary) -> Table:
    assert summary.p_zero is not None
    named: list[tuple[str, Bounds]] = [("P(n_ok = 0)", summary.p_zero)]
    named += [(f"tokens, {rule}", b) for rule, b in summary.tokens.items()]
    named += [(f"replay steps, {rule}", b) for rule, b in summary.replay_steps.items()]
    rows = [[name, cell(b.low), cell(b.high)] for name, b in named]
    exact = summary.positions
    title = "A round" if exact else "A round: least and most that the mean allows"
    return Table(title, ["figure and rule", "low", "high"], rows)


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _sources(reading: LogReading) -> Table:
    rows = [
        [s.source, str(len(s.lines)), _count(s.rounds), _count(s.accepted), _count(s.drafted)]
        for s in reading.sources
    ]
    title = f"Sources ({reading.lines_used} of {reading.lines_read} lines)"
    return Table(title, ["format", "lines", "rounds", "accepted", "drafted"], rows)


def _parts(reading: LogReading) -> Table:
    rows = [
        [
            f"{min(p.lines)}-{max(p.lines)}" if len(p.lines) > 1 else _count(min(p.lines)),
            _count(p.rounds),
            _count(p.accepted),
            _count(p.drafted),
            "yes" if is_exact(p) else "no",
        ]
        for p in reading.parts
    ]
    return Table("Parts", ["log lines", "rounds", "accepted", "drafted", "exact"], rows)


def _several(readings: list[tuple[str, str, LogReading]], confidence: float) -> Page:
    scenarios = by_scenario(readings, confidence)
    # the answer first: on a narrow terminal the rest goes into a second block
    columns = ["scenario", "speculation", "alpha", "interval", "rounds", "k", "accepted",
               "rate and interval", "drafts a round", "logs", "engine"]  # fmt: skip
    table = Table("Acceptance by kind of request", columns, [_row(s) for s in scenarios])
    advice: dict[str, list[str]] = {}
    for s in scenarios:
        advice.setdefault(f"{s.advice}, {s.why}", []).append(s.name)
    notes = [f"{said}: {', '.join(dict.fromkeys(names))}" for said, names in advice.items()]
    notes += [
        "alpha: accepted drafts over tested ones (accepted and first rejected of each round)",
        SOURCE,
        "a run's own break-even says more: nsysacct explain",
    ]
    for _, log, reading in readings:
        notes += [f"{log}: {_note(finding)}" for finding in reading.findings]
    document: dict[str, Any] = {
        "scenarios": [asdict(s) for s in scenarios],
        "readings": [
            {"scenario": name, "log": log, "reading": msgspec.to_builtins(reading)}
            for name, log, reading in readings
        ],
        "threshold": {"rate": 0.5, "source": SOURCE},
        "confidence": confidence,
    }
    return Page(
        "acceptance-by-scenario", document, [table], head=[_headline(scenarios)], notes=notes
    )


def _headline(scenarios: Sequence[Scenario]) -> str:
    drop = [s.name for s in scenarios if s.advice == "drop"]
    if drop:
        return f"drop speculation for: {', '.join(drop)}"
    undecided = [s.name for s in scenarios if s.advice == "open"]
    if undecided:
        return f"nothing to drop; open for: {', '.join(undecided)}"
    return "nothing to drop: every kind of request stays at the threshold or above"


def _row(s: Scenario) -> list[str]:
    summary = s.summary
    accepted = "-"
    if summary.accepted is not None:
        accepted = f"{summary.accepted}/{_count(summary.drafted)}"
    return [
        s.name,
        s.advice,
        cell(s.alpha),
        span(s.alpha_low, s.alpha_high, 3),
        _count(summary.rounds),
        _count(summary.k),
        accepted,
        _share(summary.rate),
        cell(summary.mean),
        str(len(s.logs)),
        s.engine,
    ]
