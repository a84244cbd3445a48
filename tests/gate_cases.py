"""Accounts for the tests of gate, diff and history: a base, and what may happen to one.

Every change works on any account, so the same table runs on a base written in code
(`base_account`) and on accounts of shipped traces.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from nsysacct.comparability import Side
from nsysacct.model import (
    BUCKETS,
    Acceptance,
    Account,
    BlindSpot,
    Bucket,
    EngineInfo,
    GraphInfo,
    KernelRow,
    RoundRow,
    Rounds,
    Semantics,
    SignatureCount,
    StepCost,
    TraceInfo,
    Window,
)

GEMV = "k_rq_q4_gemv_mr<*,3>"
Change = Callable[[Account], Account]

# bucket, family, signature, launches a round (x rounds), ns of one
ROWS = (
    ("draft", "gemv", "k_rq_q4_gemv_mr<*,1>", 15, 20_000),
    ("draft", "norm", "k_rmsnorm", 6, 3_000),
    ("verify", "gemv", GEMV, 65, 200_000),
    ("verify", "gdn", "k_gdn_*_m", 48, 60_000),
    ("verify", "attention", "k_attn_decode", 16, 40_000),
    ("verify", "norm", "k_rmsnorm", 128, 3_000),
    ("replay", "gemv", "k_rq_q4_gemv3", 64, 90_000),
    ("plain", "gemv", "k_rq_q4_gemv3", 128, 90_000),
    ("prefill", "gemm", "k_gemm", 8, 400_000),
    ("other", "fill", "k_fill", 1, 90_000),
    ("unattributed", "", "k_mystery", 1, 12_000),
)


def base_account(rounds: int = 42) -> Account:
    """An engine of 64 layers (48 gdn + 16 attention), k = 3, everything seen kernel by kernel."""
    kernels = [
        KernelRow(bucket=b, family=f, signature=s, instances=n * rounds, gpu_ns=n * rounds * ns,
                  by_basis={"exclusive": n * rounds * ns})
        for b, f, s, n, ns in ROWS
    ]  # fmt: skip
    buckets = [_bucket(name, kernels, rounds) for name in BUCKETS]
    a_round = {name: sum(n * ns for b, _, _, n, ns in ROWS if b == name) for name in BUCKETS}
    busy = a_round["draft"] + a_round["verify"] + a_round["replay"]
    residual = 1_500_000
    launches = sum(n for b, _, _, n, _ in ROWS if b in ("draft", "verify", "replay"))
    rows = [
        RoundRow(index=i, start_ns=i * (busy + residual), end_ns=(i + 1) * (busy + residual),
                 wall_ns=busy + residual, draft_ns=a_round["draft"], verify_ns=a_round["verify"],
                 replay_ns=a_round["replay"], residual_ns=residual, launches=launches)
        for i in range(rounds)
    ]  # fmt: skip
    return Account(
        pid=100,
        gpu=0,
        trace=TraceInfo(name="base.sqlite", gpu="NVIDIA H200", graph_trace="node"),
        engine=EngineInfo(
            name="kestrel",
            how="given",
            registry_digest="sha256:1",
            semantics=Semantics(
                verify_width="k", tokens="max(n_ok,1)", replay="closing-steps"
            ),
        ),
        labels={"model": "m64", "quant": "q4"},
        rounds=Rounds(
            value=rounds,
            verdict="exact",
            k=3,
            width=3,
            layers={"all": 64, "gdn": 48},
            signatures=[
                SignatureCount(pattern=GEMV, instances=65 * rounds, layers=64, rounds=rounds),
                SignatureCount(
                    pattern="k_gdn_*_m", instances=48 * rounds, kind="gdn", layers=48, rounds=rounds
                ),
            ],
        ),
        graphs=[GraphInfo(graph_exec_id=1, launches=rounds, state="expanded", role="replay",
                          gpu_ns=a_round["replay"] * rounds)],
        window=Window(
            start_ns=0,
            end_ns=rounds * (busy + residual),
            wall_ns=rounds * (busy + residual),
            busy_ns=rounds * busy,
            residual_ns=rounds * residual,
        ),
        buckets=buckets,
        kernels=kernels,
        per_round=rows,
        steps=[StepCost(role="plain", count=2 * rounds, gpu_ns=64 * 90_000 * 2 * rounds,
                        busy_ns=64 * 90_000 * 2 * rounds, wall_ns=6_000_000.0)],
        acceptance=Acceptance(source="log", rounds=rounds, n_ok=[27, 2, 6, 7]),
        total_gpu_ns=sum(b.gpu_ns for b in buckets),
    )  # fmt: skip


def _bucket(name: str, kernels: list[KernelRow], rounds: int) -> Bucket:
    rows = [row for row in kernels if row.bucket == name]
    ns = sum(row.gpu_ns for row in rows)
    return Bucket(
        bucket=name,
        gpu_ns=ns,
        busy_ns=ns,
        events=sum(row.instances for row in rows),
        by_basis={"exclusive": ns} if ns else {},
        ns_per_round=ns / rounds if name in ("draft", "verify", "replay") else None,
    )


def trace_account(path: Path, **options: object) -> Account:
    """Account of a shipped trace, with acceptance where the options tell it."""
    from nsysacct.account import Options, account
    from nsysacct.trace import read_trace

    return account(read_trace(path), Options(**options))  # type: ignore[arg-type]


def verify_gemv(account: Account) -> str:
    """Signature of the dearest GEMV of the verify pass."""
    rows = [row for row in account.kernels if (row.bucket, row.family) == ("verify", "gemv")]
    return max(rows, key=lambda row: row.gpu_ns).signature


def sides(role: str, *accounts: Account) -> list[Side]:
    return [Side(role, f"{role}{i}.json", account) for i, account in enumerate(accounts)]


def slower(bucket: str, factor: float, signature: str | None = None) -> Change:
    """Make the kernels of a bucket (or one signature in it) `factor` times as slow."""

    def change(account: Account) -> Account:
        return _resized(account, bucket, signature, factor, 1.0)

    return change


def more_launches(bucket: str, signature: str, factor: float) -> Change:
    """Launch a signature `factor` times as often at the same time each."""

    def change(account: Account) -> Account:
        return _resized(account, bucket, signature, factor, factor)

    return change


def on_verify_gemv(make: Callable[..., Change], *args: float) -> Change:
    """Apply ``slower`` or ``more_launches`` to the dearest GEMV of the verify pass."""

    def change(account: Account) -> Account:
        signature = verify_gemv(account)
        if make is slower:
            return slower("verify", args[0], signature)(account)
        return make("verify", signature, *args)(account)

    return change


def _resized(
    account: Account, bucket: str, signature: str | None, time: float, count: float
) -> Account:
    kernels, old, new, launches = [], 0, 0, 0
    for row in account.kernels:
        if row.bucket == bucket and signature in (None, row.signature):
            old += row.gpu_ns
            grown = round(row.gpu_ns * time)
            new += grown
            more = round(row.instances * count)
            launches += more - row.instances
            basis = next(iter(row.by_basis), "exclusive")
            row = replace(row, gpu_ns=grown, instances=more, by_basis={basis: grown})
        kernels.append(row)
    delta = new - old
    return _grown(replace(account, kernels=kernels), bucket, delta, launches)


def _grown(account: Account, bucket: str, delta: int, launches: int = 0) -> Account:
    """Add `delta` ns of GPU time to a bucket, evenly over the rounds."""
    buckets = []
    for b in account.buckets:
        if b.bucket == bucket:
            basis = next(iter(b.by_basis), "exclusive")
            b = replace(
                b,
                gpu_ns=b.gpu_ns + delta,
                busy_ns=b.busy_ns + delta,
                events=b.events + launches,
                by_basis={**b.by_basis, basis: b.by_basis.get(basis, 0) + delta},
            )
        buckets.append(b)
    changed = replace(account, buckets=buckets, total_gpu_ns=account.total_gpu_ns + delta)
    steps = [
        replace(s, gpu_ns=s.gpu_ns + delta, busy_ns=s.busy_ns + delta) if s.role == bucket else s
        for s in changed.steps
    ]
    changed = replace(changed, steps=steps)
    if bucket not in ("draft", "verify", "replay"):
        return changed
    rounds = account.rounds.value or 1
    field = f"{bucket}_ns"
    spread = sum(getattr(row, field) for row in account.per_round) or 1
    rows = []
    for row in account.per_round:
        share = round(delta * getattr(row, field) / spread)
        row = replace(
            row, wall_ns=row.wall_ns + share, launches=row.launches + round(launches / rounds),
            **{field: getattr(row, field) + share},
        )  # fmt: skip
        rows.append(row)
    window = account.window
    window = replace(window, wall_ns=window.wall_ns + delta, busy_ns=window.busy_ns + delta)
    return replace(changed, per_round=rows, window=window)


def longer_residual(factor: float) -> Change:
    def change(account: Account) -> Account:
        window = account.window
        more = round(window.residual_ns * (factor - 1))
        window = replace(
            window, residual_ns=window.residual_ns + more, wall_ns=window.wall_ns + more
        )
        rows = [
            replace(row, residual_ns=round(row.residual_ns * factor),
                    wall_ns=row.wall_ns + round(row.residual_ns * (factor - 1)))
            for row in account.per_round
        ]  # fmt: skip
        return replace(account, window=window, per_round=rows)

    return change


def repeated(times: int) -> Change:
    """Run the same program `times` as long: every amount and the rounds grow alike."""

    def change(account: Account) -> Account:
        rounds = account.rounds
        window = account.window
        return replace(
            account,
            rounds=replace(rounds, value=(rounds.value or 0) * times),
            window=replace(
                window,
                wall_ns=window.wall_ns * times,
                busy_ns=window.busy_ns * times,
                residual_ns=window.residual_ns * times,
            ),
            buckets=[
                replace(
                    b,
                    gpu_ns=b.gpu_ns * times,
                    mem_ns=b.mem_ns * times,
                    busy_ns=b.busy_ns * times,
                    events=b.events * times,
                    by_basis={k: v * times for k, v in b.by_basis.items()},
                )
                for b in account.buckets
            ],
            kernels=[
                replace(
                    row,
                    gpu_ns=row.gpu_ns * times,
                    instances=row.instances * times,
                    by_basis={k: v * times for k, v in row.by_basis.items()},
                )
                for row in account.kernels
            ],
            per_round=list(account.per_round) * times,
            total_gpu_ns=account.total_gpu_ns * times,
        )

    return change


def noise(generator: random.Random, between: float = 0.005, each: float = 0.002) -> Change:
    """Another capture of the same program: one clock for all of it, and each kernel's own."""
    clock = math.exp(generator.gauss(0, between))
    host = math.exp(generator.gauss(0, 4 * between))

    def change(account: Account) -> Account:
        for row in list(account.kernels):
            factor = clock * math.exp(generator.gauss(0, each))
            account = slower(row.bucket, factor, row.signature)(account)
        return longer_residual(host)(account)

    return change


def with_trace(**changes: object) -> Change:
    return lambda account: replace(account, trace=replace(account.trace, **changes))


def with_engine(**changes: object) -> Change:
    return lambda account: replace(account, engine=replace(account.engine, **changes))


def with_rounds(**changes: object) -> Change:
    return lambda account: replace(account, rounds=replace(account.rounds, **changes))


def with_labels(**labels: str) -> Change:
    return lambda account: replace(account, labels={**account.labels, **labels})


def with_blind_spot(kind: str, severity: str, hidden_ns: int | None = None) -> Change:
    spot = BlindSpot(
        kind=kind,
        severity=severity,
        hidden_ns=hidden_ns,
        basis=None,
        detail="events after the 30th pass are missing",
        remedy="capture a shorter run",
    )
    return lambda account: replace(account, blind_spots=[*account.blind_spots, spot])


def speculation_off(account: Account) -> Account:
    gone = ("draft", "verify", "replay")
    return replace(
        account,
        rounds=replace(account.rounds, value=0, verdict="none", signatures=[]),
        buckets=[Bucket(bucket=b.bucket) if b.bucket in gone else b for b in account.buckets],
        kernels=[row for row in account.kernels if row.bucket not in gone],
        per_round=[],
        acceptance=None,
    )


def flagged_outlier(account: Account) -> Account:
    """One round ten times as long, marked as an outlier, as a paused host makes it."""
    first, second, *rest = account.per_round
    slow = replace(
        second, verify_ns=second.verify_ns * 10, wall_ns=second.wall_ns * 8, flags=["outlier"]
    )
    return replace(account, per_round=[first, slow, *rest])


def more_unattributed(share: float) -> Change:
    """Run a kernel that nobody knows for `share` of all GPU time."""

    def change(account: Account) -> Account:
        ns = round(account.total_gpu_ns * share)
        row = KernelRow(
            bucket="unattributed", family="", signature="k_unknown", instances=1, gpu_ns=ns
        )
        return _grown(replace(account, kernels=[*account.kernels, row]), "unattributed", ns)

    return change


def timed_graphs(account: Account) -> Account:
    """Capture the same run with graphs timed as a whole: no kernels inside."""
    graphs = [replace(graph, state="timed") for graph in account.graphs]
    return replace(account, graphs=graphs, trace=replace(account.trace, graph_trace="graph"))


def then(*changes: Change) -> Change:
    def change(account: Account) -> Account:
        for one in changes:
            account = one(account)
        return account

    return change
