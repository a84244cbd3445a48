"""The published run that the economics are checked on, as an account built in code.

One RTX 5090, kestrel rules, k = 3: 42 rounds with n_ok 27/2/6/7, 41 replay steps of 13.232 ms
that the trace does not show, 64 tokens in 1508.03 ms.
"""

from __future__ import annotations

import msgspec

from nsysacct.model import (
    BUCKETS,
    Acceptance,
    Account,
    Bucket,
    EngineInfo,
    Rounds,
    Semantics,
    StepCost,
    TraceInfo,
    Window,
)

KESTREL = Semantics(verify_width="k", tokens="max(n_ok,1)", replay="closing-steps")
BONUS = Semantics()
CHECKPOINT = Semantics(replay="checkpoint")
PLAIN_MS = 13.232


def ns(ms: float) -> int:
    """Milliseconds to whole nanoseconds."""
    return round(ms * 1e6)


def account(
    *,
    wall_ms: float,
    draft_ms: float = 0.0,
    verify_ms: float = 0.0,
    replay_ms: float = 0.0,
    n_ok: list[int] | None = None,
    rounds: int | None = None,
    semantics: Semantics = BONUS,
    plain_ms: float | None = None,
    tokens: int | None = None,
    name: str = "run",
    **trace: object,
) -> Account:
    """An account with these totals, all measured."""
    buckets = {bucket: Bucket(bucket=bucket) for bucket in BUCKETS}
    for bucket, ms in (("draft", draft_ms), ("verify", verify_ms), ("replay", replay_ms)):
        buckets[bucket] = Bucket(
            bucket=bucket, gpu_ns=ns(ms), busy_ns=ns(ms), by_basis={"exclusive": ns(ms)}
        )
    busy = ns(draft_ms) + ns(verify_ms) + ns(replay_ms)
    k = len(n_ok) - 1 if n_ok else None
    steps = []
    if plain_ms is not None:
        steps.append(
            StepCost(
                role="plain", count=64, gpu_ns=64 * ns(plain_ms), busy_ns=64 * ns(plain_ms),
                wall_ns=plain_ms * 1e6, width=1,
            )
        )  # fmt: skip
    return Account(
        pid=1,
        gpu=0,
        rounds=Rounds(
            value=rounds if rounds is not None else sum(n_ok) if n_ok else None,
            verdict="exact", k=k,
            width=None if k is None else k if semantics.verify_width == "k" else k + 1,
        ),
        window=Window(
            start_ns=0, end_ns=ns(wall_ms), wall_ns=ns(wall_ms), busy_ns=busy,
            residual_ns=ns(wall_ms) - busy, wall_how="trace" if tokens is None else "given",
        ),
        buckets=list(buckets.values()),
        steps=steps,
        acceptance=Acceptance(source="given", n_ok=n_ok, k=k, tokens=tokens) if n_ok else None,
        trace=TraceInfo(name=name, **trace),  # type: ignore[arg-type]
        engine=EngineInfo(name="kestrel", how="given", semantics=semantics),
    )  # fmt: skip


def article(*, shared_ms: float = 39.70) -> Account:
    """The article's run B: verify 672.30 ms measured plus shared kernels, replay computed."""
    run = account(
        wall_ms=1508.03, draft_ms=90.97, verify_ms=672.30 + shared_ms, n_ok=[27, 2, 6, 7],
        semantics=KESTREL, plain_ms=PLAIN_MS, tokens=64, name="article",
        gpu="NVIDIA GeForce RTX 5090", gpu_memory_bandwidth_bytes_per_s=1_792_000_000_000,
    )  # fmt: skip
    replaced = {
        "verify": msgspec.structs.replace(
            run.bucket("verify"), by_basis={"exclusive": ns(672.30), "apportioned": ns(shared_ms)}
        ),
        "replay": Bucket(
            bucket="replay", graph_launches=41, by_basis={"arithmetic": 41 * ns(PLAIN_MS)}
        ),
    }
    rest = run.window.residual_ns - 41 * ns(PLAIN_MS)
    window = msgspec.structs.replace(
        run.window,
        computed_ns=41 * ns(PLAIN_MS),
        residual_low_ns=rest - ns(12.27),  # kernels that no signature takes
        residual_high_ns=rest,
    )
    buckets = [replaced.get(bucket.bucket, bucket) for bucket in run.buckets]
    return msgspec.structs.replace(run, buckets=buckets, window=window)
