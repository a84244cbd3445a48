"""What limits a plain step -- memory, launches, arithmetic -- and which phase is worth attacking.

Speculation trades idle arithmetic for fewer passes over the weights, so it needs a memory-bound
plain step. The verdict rests on three shares, each printed with its source and its threshold.
"""

from __future__ import annotations

import re

import msgspec

from nsysacct.economics import NS_PER_MS, Costs
from nsysacct.errors import UsageError
from nsysacct.layout import share as share_text
from nsysacct.model import Account, StepCost
from nsysacct.plainstep import choose, plain_steps
from nsysacct.semantics import TOKENS

MEMORY_BOUND_SHARE = 0.60
"""Share of the card's bandwidth from which a plain step counts as memory-bound."""
LAUNCH_BOUND_SHARE = 0.25
"""Share of a plain step's wall without GPU work from which it counts as launch-bound."""
COMPUTE_ROW_SHARE = 0.80
"""Growth a verified row, in plain steps, from which rows count as paid in full."""
LOW_BANDWIDTH_SHARE = 0.30
"""Below this share of bandwidth, rows paid in full point to arithmetic."""
DISAGREEMENT = 0.10
"""Difference of two shares of bandwidth from which they do not tell the same story."""
MOST_SHARE = 1.05
"""Share of the bandwidth up to which sizes and times that are a little off still make sense."""
MOST_BYTES = 10**15
COUNTERS = "capture with --gpu-metrics-devices=all"

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(text: str) -> int:
    """Bytes from ``14.4GB``, ``13.4GiB``, ``900 MB`` or a plain number.

    Raises
    ------
    UsageError
        Text that is no size, or one that no memory has.
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]i?)?b?\s*", text, re.IGNORECASE)
    factor = {**_UNITS, **_BINARY}
    size = float(match[1]) * factor[(match[2] or "").lower()] if match else 0
    if not 1 <= size <= MOST_BYTES:
        raise UsageError(
            f"size {text[:40]!r}",
            "is no size from 1 byte to 1 PB",
            "write it like 14.4GB or 13.4GiB",
        )
    return round(size)


class Stake(msgspec.Struct, frozen=True, kw_only=True):
    """Time that one lever could give back at most, over the whole run."""

    lever: str
    at_stake_ms: float
    share_of_wall: float
    basis: str
    detail: str


class Bottleneck(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict with the shares under it; a share is None when its inputs are missing.

    ``bandwidth_share`` is the one that the verdict rests on and ``bandwidth_how`` says which:
    as given, as hardware counters measured it during plain steps (``dram_read_share`` and
    ``dram_write_share``), or as the bytes given would need it.
    """

    verdict: str  # "memory-bound", "launch-bound", "compute-bound", "cannot tell"
    plain_ms: float | None
    plain_how: str
    bytes_per_step: int | None
    achieved_bytes_per_s: float | None
    card_bytes_per_s: int | None
    bandwidth_share: float | None
    bandwidth_how: str
    dram_read_share: float | None
    dram_write_share: float | None
    idle_share: float | None
    row_cost_plain_steps: float | None
    stakes: list[Stake] = []
    reasons: list[str] = []


def bottleneck(
    account: Account,
    *,
    weight_bytes: int | None = None,
    active_bytes: int | None = None,
    dram_share: float | None = None,
    plain_ms: float | None = None,
    plain_from: Account | None = None,
    costs: Costs | None = None,
) -> Bottleneck:
    """Return what limits a plain step, and the levers by the time at stake.

    Parameters
    ----------
    account : Account
        Card, steps and window.
    weight_bytes : int, optional
        Bytes of weights that a plain step reads (dense model).
    active_bytes : int, optional
        Bytes of the active experts and shared layers of a MoE; replaces `weight_bytes`.
    dram_share : float, optional
        DRAM throughput over its peak, 0..1, as seen elsewhere; preferred to all else.
    plain_ms : float, optional
        A plain step in ms; overrides the account's.
    plain_from : Account, optional
        A capture of the same run without speculation: its plain steps are looked at instead.
    costs : Costs, optional
        Of the same account, for row cost and stakes.

    Raises
    ------
    UsageError
        ``active_bytes`` above ``weight_bytes``, or a DRAM share outside 0..1.
    IncomparableError
        `plain_from` is a capture of something else.
    """
    if active_bytes and weight_bytes and active_bytes > weight_bytes:
        raise UsageError("--active-bytes", "is above --weight-bytes", "give what one token reads")
    if dram_share is not None and not 0 <= dram_share <= 1:
        raise UsageError("DRAM share", f"{dram_share} is not in 0..1", "give a share of the peak")
    given = None if plain_ms is None else plain_ms * NS_PER_MS
    known = choose(account, account, given, plain_from)
    step_ns, how = known if known else (None, "unknown")
    steps = plain_steps(plain_from or account)
    size = active_bytes or weight_bytes
    achieved = size * 1e9 / step_ns if size and step_ns else None
    card = account.trace.gpu_memory_bandwidth_bytes_per_s
    computed = achieved / card if achieved and card else None
    counted = next((s for s in steps if s.dram_read_share is not None), None)
    share, share_how = _share(dram_share, counted, computed)
    idle = _idle_share(steps)
    row = costs.row_cost if costs else None
    verdict, reasons = _verdict(share, idle, row)
    reasons += _impossible(share, share_how, computed)
    reasons += _missing(size, card, step_ns) if share is None else _disagreement(counted, computed)
    if counted is None and share is not None:
        reasons.append(f"the share of bandwidth is {share_how}, not measured: {COUNTERS}")
    reasons += _granularity(plain_from or account)
    return Bottleneck(
        verdict=verdict,
        plain_ms=None if step_ns is None else step_ns / NS_PER_MS,
        plain_how=how,
        bytes_per_step=size,
        achieved_bytes_per_s=achieved,
        card_bytes_per_s=card,
        bandwidth_share=share,
        bandwidth_how=share_how,
        dram_read_share=counted.dram_read_share if counted else None,
        dram_write_share=counted.dram_write_share if counted else None,
        idle_share=idle,
        row_cost_plain_steps=row,
        stakes=stakes(costs) if costs else [],
        reasons=reasons,
    )


def _share(
    given: float | None, counted: StepCost | None, computed: float | None
) -> tuple[float | None, str]:
    """Share of the card's bandwidth that a plain step uses, from the best source, and that source.

    Reads and writes share the bus, so their shares add up.
    """
    if given is not None:
        return given, "as given"
    if counted is not None and counted.dram_read_share is not None:
        both = counted.dram_read_share + (counted.dram_write_share or 0.0)
        return both, f"measured by GPU metrics during {counted.count} {counted.role} steps"
    return computed, "unknown" if computed is None else "computed from the bytes given"


def _idle_share(steps: list[StepCost]) -> float | None:
    for step in steps:
        busy = (step.busy_ns or step.gpu_ns) / step.count
        if step.wall_ns and busy:
            return max(0.0, 1 - busy / step.wall_ns)
    return None


def _verdict(share: float | None, idle: float | None, row: float | None) -> tuple[str, list[str]]:
    if share is not None and share > MOST_SHARE:
        return "cannot tell", []  # `_impossible` says why
    if idle is not None and idle >= LAUNCH_BOUND_SHARE:
        return "launch-bound", [
            f"{share_text(idle, 0)} of a plain step's wall has no GPU work "
            f"(threshold {share_text(LAUNCH_BOUND_SHARE, 0)})"
        ]
    if share is not None and share >= MEMORY_BOUND_SHARE:
        return "memory-bound", [
            f"a plain step moves {share_text(share, 0)} of what the card's memory can "
            f"(threshold {share_text(MEMORY_BOUND_SHARE, 0)})"
        ]
    if share is not None and share < LOW_BANDWIDTH_SHARE and row is not None:
        if row >= COMPUTE_ROW_SHARE:
            return "compute-bound", [
                f"bandwidth share {share_text(share, 0)} is low and a verified row more costs "
                f"{row:.2f} plain steps "
                f"(thresholds {share_text(LOW_BANDWIDTH_SHARE, 0)}, {COMPUTE_ROW_SHARE})"
            ]
    if share is None:
        return "cannot tell", ["the share of memory bandwidth is unknown"]
    moved = f"a plain step moves {share_text(share, 0)} of what the card's memory can"
    return "cannot tell", [moved]


def _impossible(share: float | None, how: str, computed: float | None) -> list[str]:
    """Say so when a share is above the whole."""
    said = []
    if share is not None and share > 1 and share != computed:
        said.append(f"{share_text(share, 0)} of the bandwidth, {how}, is impossible")
    if computed is not None and computed > 1:
        said.append(
            f"the bytes given would need {share_text(computed, 0)} of the card's bandwidth, which "
            "is impossible: a step does not read all of them, or the step time is wrong"
        )
    return said


def _missing(size: int | None, card: int | None, step_ns: float | None) -> list[str]:
    inputs = (
        ("bytes a step reads (--weight-bytes)", size),
        ("the card's bandwidth (not in the trace)", card),
        ("a plain step time (--plain-from or --plain-ms)", step_ns),
    )
    absent = ", ".join(what for what, value in inputs if not value)
    return [f"missing: {absent}; or counters: {COUNTERS}"]


def _disagreement(counted: StepCost | None, computed: float | None) -> list[str]:
    """Say so when counters and the bytes given do not tell the same story."""
    if counted is None or counted.dram_read_share is None or computed is None:
        return []
    if abs(computed - counted.dram_read_share) < DISAGREEMENT:
        return []
    return [
        f"the bytes given would need {share_text(computed, 0)} of the bandwidth, the counters saw "
        f"{share_text(counted.dram_read_share, 0)} read: a step reads more or less than those bytes"
    ]


def _granularity(account: Account) -> list[str]:
    if account.trace.graph_trace != "graph":
        return []
    return [
        "graphs are timed as a whole: gaps between kernels inside them count as GPU work, so "
        "the idle share is a lower bound (--cuda-graph-trace=node shows them)"
    ]


def stakes(costs: Costs) -> list[Stake]:
    """Levers by the milliseconds that each could give back at most, largest first."""
    found = [
        _stake(costs, "replay", costs.replay_ns, "all of replay, if state could be put back free"),
        _stake(costs, "draft", costs.draft_ns, "all of draft, if proposals cost nothing"),
    ]
    if costs.idle_ns is not None:
        found.append(_stake(costs, "host work", costs.idle_ns, "wall without any GPU work"))
    elif costs.rest_ns > 0:
        found.append(
            _stake(costs, "host work", costs.rest_ns, "wall outside the phases, not all of it idle")
        )
    if costs.plain_ns is not None:
        above = max(0.0, costs.verify_ns - costs.rounds * costs.plain_ns)
        found.append(
            _stake(costs, "verify", above, "verify above one plain step a round, its memory floor")
        )
    best = TOKENS[costs.semantics.tokens](costs.k, costs.k)
    full_rounds = costs.emitted / costs.batch / best
    full = full_rounds * (costs.wall_ns - costs.replay_ns) / costs.rounds
    found.append(
        _stake(
            costs, "acceptance", costs.wall_ns - full, "if every draft were accepted (no replay)"
        )
    )
    return sorted(found, key=lambda stake: -stake.at_stake_ms)


_PROVEN = ("exclusive", "nvtx", "graph", "positional")


def _stake(costs: Costs, lever: str, amount_ns: float, detail: str) -> Stake:
    split = {b: ns for b, ns in costs.bases.get(lever, {}).items() if ns}
    proven = sum(ns for b, ns in split.items() if b in _PROVEN)
    basis = "computed"
    if split:
        basis = ", ".join(sorted(split, key=lambda b: -split[b]))
        basis += f" ({share_text(proven / sum(split.values()), 0)} measured)"
    return Stake(
        lever=lever,
        at_stake_ms=amount_ns / NS_PER_MS,
        share_of_wall=amount_ns / costs.wall_ns,
        basis=basis,
        detail=detail,
    )
