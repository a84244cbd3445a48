"""vLLM: SpecDecoding metrics lines, Prometheus counters, per-request JSON, bench serve JSON.

Sources, vLLM 0.26 to 0.33: ``v1/spec_decode/metrics.py`` (one line an interval, then reset; the
length includes the bonus token; rates a position over all drafts), ``v1/metrics/stats.py``
(per-request record), ``benchmarks/serve.py`` (result keys; the rate is a percentage).
"""

from __future__ import annotations

import re
from typing import Any

from nsysacct.logs.aiperf import records
from nsysacct.logs.printed import counted
from nsysacct.logs.prometheus import prometheus
from nsysacct.logs.reading import Counters, Found, histogram_of, total
from nsysacct.logs.text import Log, whole
from nsysacct.model import Finding

FORMATS = (
    "vLLM per-request JSON",
    "vLLM SpecDecoding metrics lines",
    "vLLM bench serve JSON",
    "vLLM Prometheus counters",
)
_MARK = "SpecDecoding metrics:"
_LENGTH = re.compile(r"Mean acceptance length: ([\d.]+)")
_ACCEPTED = re.compile(r"Accepted: (\d+) tokens")
_DRAFTED = re.compile(r"Drafted: (\d+) tokens")
_PER_POS = re.compile(r"Per-position acceptance rate: ([\d.]+(?:, [\d.]+)*)")
_CONFIGURED = re.compile(r"num_spec(?:ulative)?_tokens'?[=:] ?(\d+)")
_NONE = "speculative_config=None"
_PROMETHEUS = "vllm:spec_decode_"


def read(log: Log) -> Found:
    """Read all four formats; the per-request record is the most exact."""
    requests, findings = records(log, FORMATS[0], list)
    lines, unclear = _lines(log)
    benches = [b for n, d, _ in log.objects if (b := _bench(n, d)) is not None]
    prometheus, scraped = _prometheus(log)
    sources = [
        total(name, parts)
        for name, parts in zip(FORMATS[:3], (requests, lines, benches), strict=True)
        if parts
    ]
    if not requests:
        findings += unclear
    idle = None
    if not sources and not prometheus and any(True for _ in log.numbered(_NONE)):
        idle = "the engine was started with speculative_config=None"
    return Found(
        counters=sources + prometheus,
        parts=requests or lines or benches,
        findings=findings + scraped,
        idle=idle,
    )


def _lines(log: Log) -> tuple[list[Counters], list[Finding]]:
    configured = next(
        (int(m[1]) for _, line in log.numbered("num_spec") if (m := _CONFIGURED.search(line))), None
    )
    parts: list[Counters] = []
    findings: list[Finding] = []
    for number, line in log.numbered(_MARK):
        text = line[line.index(_MARK) :]
        accepted, drafted = _ACCEPTED.search(text), _DRAFTED.search(text)
        if accepted is None or drafted is None or int(drafted[1]) == 0:
            continue
        length, per_pos = _LENGTH.search(text), _PER_POS.search(text)
        rates = [float(w) for w in per_pos[1].split(", ")] if per_pos else None
        k = len(rates) if rates else configured
        part, finding = counted(
            FORMATS[1], number, int(accepted[1]), int(drafted[1]),
            float(length[1]) if length else None, rates, k,
        )  # fmt: skip
        parts.append(part)
        findings += finding
    return parts, findings


def _bench(number: int, document: dict[str, Any]) -> Counters | None:
    rounds = whole(document, "spec_decode_num_drafts")
    length = document.get("spec_decode_acceptance_length")
    if not rounds:
        return None
    accepted = whole(document, "spec_decode_accepted_tokens")
    if accepted is None and isinstance(length, int | float):
        accepted = round((length - 1) * rounds)
    drafted = whole(document, "spec_decode_draft_tokens")
    percent = document.get("spec_decode_acceptance_rate")
    if drafted is None and accepted and isinstance(percent, int | float) and percent:
        drafted = round(accepted * 100 / percent)
    rates = document.get("spec_decode_per_position_acceptance_rates")
    positions = n_ok = None
    if isinstance(rates, list) and rates:
        positions = [round(float(r) * rounds) for r in rates]
        n_ok = histogram_of(rounds, positions) if sum(positions) == accepted else None
    return Counters(
        source=FORMATS[2],
        lines=[number],
        rounds=rounds,
        k=len(positions) if positions else None,
        accepted=accepted,
        drafted=drafted,
        positions=positions if n_ok else None,
        n_ok=n_ok,
        n_ok_basis="derived" if n_ok else None,
    )


def _prometheus(log: Log) -> tuple[list[Counters], list[Finding]]:
    return prometheus(
        log, FORMATS[3], _PROMETHEUS, rounds="num_drafts", drafted="num_draft_tokens",
        accepted="num_accepted_tokens", positions="num_accepted_tokens_per_pos",
    )  # fmt: skip
