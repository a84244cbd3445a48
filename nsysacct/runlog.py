"""The run's own log as a witness: acceptance for the account, and where it contradicts the trace."""

from __future__ import annotations

import msgspec

from nsysacct import acceptance
from nsysacct.logs import LogReading
from nsysacct.model import Finding, ProcessAccount, Witness


def with_log(part: ProcessAccount, reading: LogReading) -> ProcessAccount:
    """Attach what the log says to an account.

    The log never decides the rounds: an asynchronous engine launches one verify pass more than it
    counts, and a batch of requests makes one pass of several request-rounds. A difference is a finding.
    A histogram given by the user stays; the log's is used where there is none.
    """
    counters = reading.counters
    rounds = part.rounds.value
    witnesses = list(part.rounds.witnesses)
    if counters.rounds is not None:
        source = f"{reading.engine} log" if reading.engine else "log"
        witnesses.append(
            Witness(name=source, rounds=counters.rounds, agrees=counters.rounds == rounds)
        )
    findings = [*part.findings, *reading.findings]
    if rounds:
        findings += acceptance.contradictions(reading, rounds)
    accepted = part.acceptance
    if accepted is None or accepted.source != "given":
        accepted = acceptance.to_model(reading)
    elif counters.n_ok is not None and accepted.n_ok is not None and counters.n_ok != accepted.n_ok:
        findings.append(
            Finding(
                kind="histogram-disagrees",
                severity="warning",
                detail=f"--n-ok says {accepted.n_ok}, the log {counters.n_ok}: the one given is used",
                remedy="leave --n-ok out, or give the right log",
            )
        )
    return msgspec.structs.replace(
        part,
        rounds=msgspec.structs.replace(part.rounds, witnesses=witnesses),
        acceptance=accepted,
        findings=findings,
    )
