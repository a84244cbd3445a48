"""TensorRT-LLM: iteration statistics JSON and the DFlash acceptance dump.

Sources: ``executor/types.h`` (SpecDecodingStats: totals over the requests of one iteration;
numRequestsWithDraftTokens = requests with a draft), ``dflash_accept_stats_rank*.json``.
"""

from __future__ import annotations

from nsysacct.logs.reading import Counters, Found, from_histogram, positions_of, total
from nsysacct.logs.text import Log, counts, whole
from nsysacct.model import Finding

FORMATS = ("TensorRT-LLM specDecodingStats JSON", "TensorRT-LLM DFlash histogram JSON")


def read(log: Log) -> Found:
    """Sum iterations (a round = one request's verify in one iteration) and histogram dumps."""
    iterations, dumps = [], []
    for number, document, _ in log.objects:
        stats = document.get("specDecodingStats")
        if isinstance(stats, dict) and (part := _iteration(number, stats)) is not None:
            iterations.append(part)
        histogram = counts(document.get("accepted_draft_hist"))
        if histogram is not None and any(histogram):
            dumps.append(from_histogram(FORMATS[1], histogram, lines=[number]))
    findings = []
    if len(dumps) > 1:
        findings.append(
            Finding(
                kind="several-dumps",
                severity="warning",
                detail=f"{len(dumps)} DFlash dumps are summed; each rank counts all rounds",
                remedy="give the dump of one rank",
            )
        )
    sources = [total(FORMATS[1], dumps)] if dumps else []
    if iterations:
        sources.append(total(FORMATS[0], iterations))
    return Found(counters=sources, parts=dumps, findings=findings)


def _iteration(number: int, stats: dict[str, object]) -> Counters | None:
    requests = whole(stats, "numRequestsWithDraftTokens")
    drafted = whole(stats, "numDraftTokens")
    accepted = whole(stats, "numAcceptedTokens")
    if not requests or not drafted or accepted is None or accepted > drafted:
        return None
    k = -(-drafted // requests)  # the longest draft of the batch is at least the mean
    # one request's counters are one round's, and nothing accepted is 0 for all requests
    n_ok: list[int] | None = [0] * (k + 1) if requests == 1 or accepted == 0 else None
    if n_ok is not None:
        n_ok[accepted] = requests
    return Counters(
        source=FORMATS[0],
        lines=[number],
        rounds=requests,
        k=k,
        accepted=accepted,
        drafted=drafted,
        n_ok=n_ok,
        n_ok_basis="printed" if n_ok else None,
        positions=positions_of(n_ok) if n_ok else None,
    )
