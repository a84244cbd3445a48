"""kestrel: the n_ok histogram and the per-position line of its speculative driver.

Source of the formats: the engine's published account (``n_ok = 0:a / 1:b / ..`` and
``acc per pos = (p1, p2, ..)`` with p_j = P(n_ok >= j), denominator = rounds).
"""

from __future__ import annotations

import re

from nsysacct.logs.reading import Counters, Found, from_histogram, total
from nsysacct.logs.text import Log
from nsysacct.model import Finding

FORMATS = ("kestrel n_ok histogram", "kestrel acc per pos")
_HISTOGRAM = re.compile(r"n_ok\s*[=:]\s*(\d+\s*:\s*\d+(?:\s*/\s*\d+\s*:\s*\d+)*)")
_PER_POS = re.compile(r"\[spec\].*acc per pos\s*=\s*\(([\d., ]*)\)")


def read(log: Log) -> Found:
    """Read the histogram lines (summed) and the per-position lines."""
    parts, rates = [], []
    for number, line in log.numbered("n_ok", "acc per pos"):
        if match := _HISTOGRAM.search(line):
            pairs = [pair.split(":") for pair in match[1].split("/")]
            sparse = {int(n): int(count) for n, count in pairs}
            n_ok = [sparse.get(i, 0) for i in range(max(sparse) + 1)]
            # its verify width is fixed, so every round proposes k drafts; all bins are printed
            drafted = sum(n_ok) * max(sparse)
            parts.append(from_histogram(FORMATS[0], n_ok, lines=[number], drafted=drafted))
        if match := _PER_POS.search(line):
            values = [float(w) for w in match[1].replace(",", " ").split()]
            rates.append(_rates(number, values))
    if not parts:
        return Found(counters=rates[-1:])
    summed = total(FORMATS[0], parts)
    findings = [_differs(line) for line in rates[-1:] if len(parts) == 1 and _off(summed, line)]
    return Found(counters=[summed, *rates[-1:]], parts=parts, findings=findings)


def _rates(number: int, values: list[float]) -> Counters:
    return Counters(
        source=FORMATS[1], lines=[number], k=len(values), rates=values, mean_n_ok=sum(values)
    )


def _off(histogram: Counters, line: Counters) -> bool:
    assert histogram.positions is not None and histogram.rounds and line.rates is not None
    counts = histogram.positions + [0] * len(line.rates)
    return any(
        abs(count / histogram.rounds - rate) > 0.0005 + 1e-9
        for count, rate in zip(counts, line.rates, strict=False)
    )


def _differs(line: Counters) -> Finding:
    return Finding(
        kind="counters-disagree",
        severity="warning",
        detail=f"line {line.lines[0]}: the rates a position are not those of the histogram",
        remedy="see whether the lines come from one run",
    )
