"""AIPerf's interchange record of acceptance, with its invariants held.

Source: ``SpecDecodeAcceptanceRecord`` of NVIDIA AIPerf: a sparse histogram {accepted: steps},
``num_spec_steps`` = its sum, ``num_accepted_draft_tokens`` = its sum weighted by accepted.
"""

from __future__ import annotations

from nsysacct.logs.reading import Counters, Found, from_histogram, total
from nsysacct.logs.text import Log, counts, whole
from nsysacct.model import Finding

FORMATS = ("AIPerf acceptance record",)


def read(log: Log) -> Found:
    """Sum the records; one whose totals contradict its histogram is a finding."""
    parts, findings = records(log, FORMATS[0], dict)
    return Found(
        counters=[total(FORMATS[0], parts)] if parts else [], parts=parts, findings=findings
    )


def records(
    log: Log, source: str, shape: type[dict[str, object]] | type[list[object]]
) -> tuple[list[Counters], list[Finding]]:
    """Read each object with an ``acceptance_histogram`` of that shape, one a request.

    AIPerf writes a table of n_ok and steps, vLLM a list by n_ok.
    """
    parts: list[Counters] = []
    findings: list[Finding] = []
    for number, document, _ in log.objects:
        histogram = document.get("acceptance_histogram")
        n_ok = counts(histogram) if isinstance(histogram, shape) else None
        if n_ok is None or not sum(n_ok):
            continue
        k = whole(document, "num_spec_tokens") or 0
        n_ok += [0] * (k + 1 - len(n_ok))
        drafted = whole(document, "num_draft_tokens")
        part = from_histogram(source, n_ok, lines=[number], drafted=drafted, requests=1)
        parts.append(part)
        findings += _broken_invariants(number, document, part)
    return parts, findings


def _broken_invariants(number: int, document: dict[str, object], part: Counters) -> list[Finding]:
    """Totals of a record that its own histogram contradicts; the histogram is used."""
    findings = []
    for key, told in (
        ("num_spec_steps", part.rounds),
        ("num_accepted_draft_tokens", part.accepted),
    ):
        stated = whole(document, key)
        if stated is not None and stated != told:
            findings.append(
                Finding(
                    kind="histogram-disagrees",
                    severity="warning",
                    detail=f"line {number}: {key} is {stated}, the histogram gives {told}",
                    remedy="the histogram is used; see what wrote the record",
                )
            )
    drafted, accepted = whole(document, "num_draft_tokens"), part.accepted
    if drafted is not None and accepted is not None and drafted < accepted:
        findings.append(
            Finding(
                kind="histogram-disagrees",
                severity="warning",
                detail=f"line {number}: {drafted} drafts, of which {accepted} were accepted",
                remedy="see what wrote the record",
            )
        )
    return findings
