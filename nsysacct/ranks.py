"""Ranks of one job side by side: their sum, and how far they are apart.

A rank that waits in a collective pays for the slowest one: the same verify graph takes longer on the
rank that waits. So ranks are compared per round, and the sum is GPU time spent, not time passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nsysacct.model import (
    BUCKETS,
    IN_ROUNDS,
    Bucket,
    Finding,
    KernelRow,
    ProcessAccount,
    Rounds,
    Window,
)


@dataclass(frozen=True, slots=True)
class Skew:
    """Spread of one bucket over the ranks, ns a round."""

    bucket: str
    low_ns: float
    high_ns: float

    @property
    def ratio(self) -> float:
        """Slowest rank over fastest."""
        return self.high_ns / self.low_ns if self.low_ns else float("inf")


def alike(parts: Sequence[ProcessAccount]) -> bool:
    """Whether the parts look like ranks of one job: the same rounds on each, and more than one."""
    rounds = {p.rounds.value for p in parts}
    return len(parts) > 1 and len(rounds) == 1 and bool(rounds - {None, 0})


def skews(parts: Sequence[ProcessAccount]) -> list[Skew]:
    """Spread of draft, verify and replay over ranks of one job; empty when they are not."""
    if not alike(parts):
        return []
    found = []
    for name in IN_ROUNDS:
        costs = [
            b.ns_per_round for p in parts for b in p.buckets if b.bucket == name and b.ns_per_round
        ]
        if len(costs) == len(parts):
            found.append(Skew(name, min(costs), max(costs)))
    return found


def collective_ns(part: ProcessAccount) -> int:
    """Time in collectives that the trace names (those inside whole graphs are not), ns."""
    return sum(k.gpu_ns for k in part.kernels if k.family == "collective")


def summed(parts: Sequence[ProcessAccount]) -> ProcessAccount:
    """GPU time of all parts together; per-round figures are per round of the job.

    The window sums the walls as well, so that shares are of all ranks' time.
    """
    values = {p.rounds.value for p in parts}
    same = len(values) == 1
    rounds = parts[0].rounds.value if same else None
    windows = [p.window for p in parts]
    findings = list(dict.fromkeys(f for p in parts for f in p.findings))
    if not same:
        findings.append(
            Finding(
                kind="ranks-differ",
                severity="warning",
                detail="the processes have different rounds ("
                + ", ".join(f"pid {p.pid}: {p.rounds.value}" for p in parts)
                + "): not ranks of one job, only totals mean something",
                remedy="pick one with --pid",
            )
        )
    verdicts = {p.rounds.verdict for p in parts}
    return ProcessAccount(
        pid=None,
        gpu=None,
        rounds=Rounds(
            value=rounds,
            verdict=verdicts.pop() if len(verdicts) == 1 and same else "inconsistent",
            signatures=parts[0].rounds.signatures if same else [],
            witnesses=parts[0].rounds.witnesses if same else [],
            k=parts[0].rounds.k if same else None,
            width=parts[0].rounds.width if same else None,
            layers=parts[0].rounds.layers if same else {},
            reasons=[f"sum over pids {', '.join(str(p.pid) for p in parts)}"],
        ),
        window=Window(
            start_ns=min(w.start_ns for w in windows),
            end_ns=max(w.end_ns for w in windows),
            wall_ns=sum(w.wall_ns for w in windows),
            busy_ns=sum(w.busy_ns for w in windows),
            residual_ns=sum(w.residual_ns for w in windows),
            wall_how="summed",
            computed_ns=sum(w.computed_ns for w in windows),
        ),
        buckets=[_bucket([p.bucket(name) for p in parts], rounds) for name in BUCKETS],
        graphs=[g for p in parts for g in p.graphs],
        blind_spots=[s for p in parts for s in p.blind_spots],
        kernels=_kernels(parts),
        findings=findings,
        acceptance=parts[0].acceptance,
        total_gpu_ns=sum(p.total_gpu_ns for p in parts),
        total_mem_ns=sum(p.total_mem_ns for p in parts),
    )


def _bucket(rows: Sequence[Bucket], rounds: int | None) -> Bucket:
    bases: dict[str, int] = {}
    for b in rows:
        for basis, ns in b.by_basis.items():
            bases[basis] = bases.get(basis, 0) + ns
    total = sum(b.total_ns for b in rows)
    return Bucket(
        bucket=rows[0].bucket,
        gpu_ns=sum(b.gpu_ns for b in rows),
        mem_ns=sum(b.mem_ns for b in rows),
        busy_ns=sum(b.busy_ns for b in rows),
        events=sum(b.events for b in rows),
        graph_launches=sum(b.graph_launches for b in rows),
        by_basis=bases,
        ns_per_round=total / rounds if rounds and rows[0].bucket in IN_ROUNDS else None,
    )


def _kernels(parts: Sequence[ProcessAccount]) -> list[KernelRow]:
    rows: dict[tuple[str, str, str], KernelRow] = {}
    for k in (k for p in parts for k in p.kernels):
        key = (k.bucket, k.family, k.signature)
        old = rows.get(key)
        if old is None:
            rows[key] = k
            continue
        bases = dict(old.by_basis)
        for basis, ns in k.by_basis.items():
            bases[basis] = bases.get(basis, 0) + ns
        rows[key] = KernelRow(
            bucket=k.bucket,
            family=k.family,
            signature=k.signature,
            instances=old.instances + k.instances,
            gpu_ns=old.gpu_ns + k.gpu_ns,
            by_basis=bases,
        )
    return list(rows.values())
