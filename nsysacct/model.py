"""The account: what every other room reads and writes (design section 8, JSON contract version 1).

Plain frozen structures, integer nanoseconds, no behaviour beyond look-ups. `wire` turns them into
JSON and back; `account` fills them from a trace; economics, gate, plots and render only read them.
Times are on the trace's own clock.
"""

from __future__ import annotations

from typing import Any

import msgspec

BUCKETS = ("draft", "verify", "replay", "prefill", "decode", "plain", "other", "unattributed")
"""Buckets in report order (design section 2); ``residual`` stands beside them."""

IN_ROUNDS = ("draft", "verify", "replay")
"""Buckets whose events all belong to a round."""

PROVENANCE = {
    "exclusive": "measured",
    "nvtx": "measured",
    "graph": "measured",
    "positional": "measured",
    "pattern": "estimated",
    "apportioned": "estimated",
    "arithmetic": "computed",
    "bound": "computed",
}
"""Basis of an amount -> provenance, strongest evidence first (design section 3)."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Base of all account structures."""


class TraceInfo(Record, frozen=True, kw_only=True):
    """Where the numbers come from. Sources: META_DATA_EXPORT/CAPTURE, TARGET_INFO_GPU."""

    name: str
    nsys_version: str | None = None
    export_schema: str | None = None
    graph_trace: str | None = None  # "graph", "node" or None when the file does not say
    gpu: str | None = None
    gpu_memory_bandwidth_bytes_per_s: int | None = None
    gpu_memory_bytes: int | None = None
    gpu_sm_count: int | None = None
    peak_memory_bytes: int | None = None  # allocated at once, at least; None when not recorded
    kernels: int = 0
    api_calls: int = 0
    duration_ns: int | None = None


class Semantics(Record, frozen=True, kw_only=True):
    """Named round rules of an engine (see `semantics`)."""

    verify_width: str = "k+1"  # "k" or "k+1"
    tokens: str = "n_ok+1"  # "n_ok+1", "max(n_ok,1)", "min(n_ok+2,k+1)"
    replay: str = "none"  # "none", "closing-steps", "checkpoint"


class EngineInfo(Record, frozen=True, kw_only=True):
    """Which registry file was used, and why."""

    name: str
    how: str  # "given" or "recognised" or "none"
    variant: str = ""  # of its round rules (`EngineSpec.variants`); empty for the usual ones
    detail: str = ""
    registry_digest: str = ""
    semantics: Semantics = Semantics()


class SignatureCount(Record, frozen=True, kw_only=True):
    """One verify-only signature counted: instances = rounds x (per_layer x layers + per_round)."""

    pattern: str
    instances: int
    gpu_ns: int = 0
    kind: str = "all"
    layers: int | None = None
    per_layer: int | None = None
    per_round: int | None = None
    rounds: int | None = None
    verdict: str = ""  # "exact", "solved", "not whole"
    detail: str = ""


class Witness(Record, frozen=True, kw_only=True):
    """An independent count of rounds, and whether it agrees."""

    name: str
    rounds: int | None
    agrees: bool = True
    detail: str = ""


class Rounds(Record, frozen=True, kw_only=True):
    """How many rounds ran and how that is known (design section 6)."""

    value: int | None
    verdict: str  # "exact", "inferred", "inconsistent", "none"
    signatures: list[SignatureCount] = []
    witnesses: list[Witness] = []
    k: int | None = None
    width: int | None = None  # rows verified in a round
    layers: dict[str, int] = {}  # layer kind -> count, "all" first
    layers_how: str = ""  # "given", "suggested", "" = unknown
    reasons: list[str] = []


class GraphInfo(Record, frozen=True, kw_only=True):
    """Launches of one executable graph. Source: *_GraphLaunch API rows x GRAPH_TRACE x graphNodeId."""

    graph_exec_id: int | None
    launches: int
    state: str  # "expanded", "timed", "blind"
    role: str | None
    gpu_ns: int | None  # timed: intervals; expanded: sum of kernels; blind: None
    busy_ns: int | None = None  # expanded: union of the kernels
    basis: str | None = None
    confidence: float | None = None
    reason: str = ""
    buckets: dict[str, int] = {}  # launches by bucket, when one graph serves several


class BlindSpot(Record, frozen=True, kw_only=True):
    """GPU work that the trace does not show, or shows without a time (design section 7)."""

    kind: str
    severity: str  # "info", "warning", "fatal"
    hidden_ns: int | None  # None: open
    basis: str | None
    detail: str
    remedy: str
    hidden_max_ns: int | None = None
    bucket: str | None = None
    count: int | None = None


class Finding(Record, frozen=True, kw_only=True):
    """Something that does not fit and that a reader must know (never settled in silence)."""

    kind: str
    severity: str
    detail: str
    remedy: str = ""


class Window(Record, frozen=True, kw_only=True):
    """The wall window of the rounds (of all GPU work when there are none).

    ``busy_ns + residual_ns == wall_ns`` when the wall is the trace's own. With a wall given by the
    user (``wall_how == "given"``) priced but invisible work is in ``computed_ns`` and the residual
    is a range, by whether unclassified kernel time belongs to the window.
    """

    start_ns: int
    end_ns: int
    wall_ns: int
    busy_ns: int
    residual_ns: int
    wall_how: str = "trace"  # or "given" (--wall-ms), "summed" (over ranks)
    computed_ns: int = 0
    residual_low_ns: int | None = None
    residual_high_ns: int | None = None


class Bucket(Record, frozen=True, kw_only=True):
    """GPU time of one phase. ``gpu_ns`` = sum of kernel durations and timed graphs' intervals.

    ``by_basis`` splits ``gpu_ns`` by how it is known and may add computed amounts (``arithmetic``,
    ``bound``) for what the trace does not show; those are not in ``gpu_ns``.
    """

    bucket: str
    gpu_ns: int = 0
    mem_ns: int = 0
    busy_ns: int = 0
    events: int = 0
    graph_launches: int = 0
    by_basis: dict[str, int] = {}
    ns_per_round: float | None = None

    @property
    def computed_ns(self) -> int:
        """Priced amount that no GPU row shows (``arithmetic`` + ``bound``), ns."""
        return self.by_basis.get("arithmetic", 0) + self.by_basis.get("bound", 0)

    @property
    def total_ns(self) -> int:
        """gpu_ns plus the computed amount, ns."""
        return self.gpu_ns + self.computed_ns


class KernelRow(Record, frozen=True, kw_only=True):
    """GPU time by bucket, family and signature: the grain at which a change shows.

    ``signature`` is the registry pattern, or the base name of kernels that no signature takes;
    graphs timed as a whole have family ``graph``.
    """

    bucket: str
    family: str
    signature: str
    instances: int
    gpu_ns: int
    by_basis: dict[str, int] = {}


class RoundRow(Record, frozen=True, kw_only=True):
    """One round: GPU ns by bucket, its wall, and what was launched.

    ``wall_ns`` runs from the round's first GPU event to the next round's (the last one's end);
    ``residual_ns`` = wall minus union of GPU work in it. ``flags``: "partial", "warm-up", "outlier".
    """

    index: int
    start_ns: int
    end_ns: int
    wall_ns: int
    draft_ns: int
    verify_ns: int
    replay_ns: int
    residual_ns: int
    launches: int
    other_ns: int = 0
    mem_ns: int = 0
    width: int | None = None
    draft_steps: int | None = None
    replay_steps: int | None = None
    n_ok: int | None = None
    n_ok_basis: str | None = None
    flags: list[str] = []


class StepCost(Record, frozen=True, kw_only=True):
    """Cost of one kind of model pass: ``wall_ns`` = mean start-to-start inside runs of them.

    ``dram_*_share``: of the card's peak, by hardware counters; None when not recorded.
    """

    role: str  # "plain", "decode", "prefill", "replay", "draft", "verify"
    count: int
    gpu_ns: int  # sum over all of them
    busy_ns: int
    wall_ns: float | None = None  # mean per step, gaps included
    width: int | None = None
    basis: str = "positional"
    dram_read_share: float | None = None
    dram_write_share: float | None = None


class Acceptance(Record, frozen=True, kw_only=True):
    """What is known about accepted drafts. ``n_ok[i]`` = rounds that accepted i drafts."""

    source: str  # "given", "log", "inferred"
    rounds: int | None = None
    k: int | None = None
    n_ok: list[int] | None = None
    accepted: int | None = None
    drafted: int | None = None
    per_position: list[float] | None = None  # cumulative p_j = P(n_ok >= j)
    tokens: int | None = None


class ProcessAccount(Record, frozen=True, kw_only=True):
    """The account of one process on one GPU."""

    pid: int | None
    gpu: int | None
    rounds: Rounds
    window: Window
    buckets: list[Bucket]
    graphs: list[GraphInfo] = []
    blind_spots: list[BlindSpot] = []
    kernels: list[KernelRow] = []
    per_round: list[RoundRow] = []
    steps: list[StepCost] = []
    findings: list[Finding] = []
    acceptance: Acceptance | None = None
    total_gpu_ns: int = 0
    total_mem_ns: int = 0

    def bucket(self, name: str) -> Bucket:
        """The bucket called `name` (all of `BUCKETS` are present)."""
        return next(b for b in self.buckets if b.bucket == name)


class Schema(Record, frozen=True, kw_only=True):
    """Kind and version of a JSON document."""

    kind: str = "nsysacct/account"
    version: int = 1


class Account(ProcessAccount, frozen=True, kw_only=True):
    """The whole answer: the chosen (pid, gpu) at the top level, all of them in `processes`.

    ``labels`` are the user's (``--label model=...``); ``options`` records what the user told the
    tool (layers, histogram, step time, ...), since the figures rest on it.
    """

    schema: Schema = Schema()
    tool: str = ""
    trace: TraceInfo
    engine: EngineInfo
    labels: dict[str, str] = {}
    options: dict[str, Any] = {}
    selection: str = ""  # why this (pid, gpu) is at the top level
    gpu_busy_ns: dict[str, int] = {}  # GPU -> union over the processes that share it
    processes: list[ProcessAccount] = []
