"""Acceptance counters on a Prometheus /metrics page (vLLM, llama.cpp)."""

from __future__ import annotations

import re

from nsysacct.logs.reading import Counters, histogram_of
from nsysacct.logs.text import Log
from nsysacct.model import Finding

_POSITION = re.compile(r'position="(\d+)"')


def prometheus(
    log: Log, source: str, prefix: str, *, rounds: str, drafted: str, accepted: str, positions: str
) -> tuple[list[Counters], list[Finding]]:
    """Counters scraped from a /metrics page, all label sets (engines, models) summed.

    The last reading of each series counts; a fall means a restart, and earlier readings are added.
    """
    totals: dict[str, int] = {}
    by_position: dict[int, int] = {}
    lines: list[int] = []
    scrapes = 0
    for (name, labels), series in log.samples(prefix).items():
        short = name.removeprefix(prefix)
        if short == positions:
            if match := _POSITION.search(labels):
                by_position[int(match[1])] = by_position.get(int(match[1]), 0) + series.value
        elif short in (rounds, drafted, accepted):
            totals[short] = totals.get(short, 0) + series.value
        else:
            continue
        lines += series.lines
        scrapes = max(scrapes, series.readings)
    if not totals.get(rounds):
        return [], []
    counted_positions = [by_position.get(i, 0) for i in range(max(by_position, default=-1) + 1)]
    n_ok = None
    if counted_positions and sum(counted_positions) == totals.get(accepted):
        n_ok = histogram_of(totals[rounds], counted_positions)
    found = Counters(
        source=source,
        lines=sorted(lines),
        rounds=totals[rounds],
        k=len(counted_positions) or None,
        accepted=totals.get(accepted),
        drafted=totals.get(drafted),
        positions=counted_positions if n_ok else None,
        n_ok=n_ok,
        n_ok_basis="printed" if n_ok else None,
    )
    findings = []
    if scrapes > 1:
        detail = f"{scrapes} scrapes of counters that only grow: the last one is used"
        remedy = "cut the file to the scrapes around the run"
        found_twice = Finding(kind="several-scrapes", severity="info", detail=detail, remedy=remedy)
        findings.append(found_twice)
    return [found], findings
