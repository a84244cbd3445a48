"""SGLang: per-request meta_info JSON (exact) and the decode lines of the scheduler (rates only).

Sources: ``managers/scheduler_components/metrics_reporter.py`` (decode line: accept len includes
the bonus token, accept rate = correct drafts / proposed ones, both reset at each line) and
``managers/tokenizer_manager.py`` (meta_info keys), SGLang 0.5.
"""

from __future__ import annotations

import re

from nsysacct.logs.reading import Counters, Found, from_histogram, total
from nsysacct.logs.text import Log, counts, whole
from nsysacct.model import Finding

FORMATS = ("SGLang meta_info JSON", "SGLang decode lines")
_LEN = re.compile(r"accept len: ([\d.]+)")
_RATE = re.compile(r"accept rate: ([\d.]+)")
_RUNNING = re.compile(r"#running-req: (\d+)")


def read(log: Log) -> Found:
    """Read requests' meta_info, and decode lines weighted by their running requests."""
    requests = [
        part
        for number, document, _ in log.objects
        if "spec_verify_ct" in document and (part := _request(number, document)) is not None
    ]
    decode, findings = _decode(log)
    exact = [total(FORMATS[0], requests)] if requests else []
    return Found(counters=exact + decode, parts=requests, findings=[] if exact else findings)


def _request(number: int, document: dict[str, object]) -> Counters | None:
    rounds = whole(document, "spec_verify_ct")
    accepted = whole(document, "spec_num_correct_drafts")
    if not rounds or accepted is None:
        return None
    drafted = whole(document, "spec_num_proposed_drafts")
    n_ok = counts(document.get("spec_correct_drafts_histogram"))
    k = drafted // rounds if drafted is not None and drafted % rounds == 0 else None
    n_ok = counts(document.get("spec_correct_drafts_histogram"))
    if n_ok is not None:
        n_ok += [0] * ((k or 0) + 1 - len(n_ok))
        found = from_histogram(FORMATS[0], n_ok, lines=[number], drafted=drafted, requests=1)
        if (found.rounds, found.accepted) == (rounds, accepted):
            return found
    return Counters(
        source=FORMATS[0], lines=[number], rounds=rounds, k=k, accepted=accepted, drafted=drafted,
        requests=1,
    )  # fmt: skip


def _decode(log: Log) -> tuple[list[Counters], list[Finding]]:
    lines, weights, lengths, rates = [], [], [], []
    for number, line in log.numbered("accept len:"):
        length = _LEN.search(line)
        if length is None or "Decode batch" not in line:
            continue
        running, share = _RUNNING.search(line), _RATE.search(line)
        lines.append(number)
        weights.append(int(running[1]) if running else 1)
        lengths.append(float(length[1]))
        rates.append(float(share[1]) if share else None)
    weight = sum(weights)
    if not weight:
        return [], []
    mean = sum(w * (x - 1) for w, x in zip(weights, lengths, strict=True)) / weight
    known = [r for r in rates if r is not None]
    rate = None
    if len(known) == len(rates):
        rate = sum(w * r for w, r in zip(weights, known, strict=True)) / weight
    k = round(mean / rate) if rate else None
    if k is not None and rate and abs(k * rate - mean) > 0.005 + 0.005 * k:
        k = None
    note = Finding(
        kind="weights-assumed",
        severity="info",
        detail=f"{len(lines)} decode lines give rates without counts; each is weighted by its "
        "running requests, as lines come after equally many steps",
        remedy="collect meta_info of the responses for exact counts and a histogram",
    )
    found = Counters(source=FORMATS[1], lines=lines, k=k, mean_n_ok=mean, rate=rate)
    return [found], [note]
