"""Two runs on one prompt, per-round figures side by side; a ratio only where it is fair.

Two engines differ in kernels, weights and rules, so a ratio of their times means something only
when what they were asked is the same. Otherwise only direction and magnitude are given.
"""

from __future__ import annotations

import math

import msgspec

from nsysacct.economics import NS_PER_MS, Costs, costs_of
from nsysacct.errors import NsysacctError, UsageError
from nsysacct.model import Account

PROMPT_KEYS = ("prompt_tokens", "prompt")
"""Labels or options that tell the prompt's length in tokens."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of both runs. ``ratio`` is a / b, None when the comparison is not fair."""

    name: str
    unit: str
    a: float | None
    b: float | None
    ratio: float | None
    relation: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Both runs. ``unfair`` lists why no ratio is given; empty when ratios are."""

    a: str
    b: str
    figures: list[Figure]
    unfair: list[str]
    notes: list[str] = []

    @property
    def fair(self) -> bool:
        """Whether ratios are given."""
        return not self.unfair


def compare(a: Account, b: Account) -> Comparison:
    """Return per-round figures of two accounts.

    Raises
    ------
    UsageError
        One of them has no rounds.
    """
    for account in (a, b):
        if not account.rounds.value:
            raise UsageError(account.trace.name, "has no rounds", "compare runs that speculate")
    unfair = _unfair(a, b)
    notes: list[str] = []
    left, right = _figures(a, notes), _figures(b, notes)
    figures = [
        Figure(
            name=name,
            unit=unit,
            a=left[name, unit],
            b=right[name, unit],
            ratio=None if unfair else _ratio(left[name, unit], right[name, unit]),
            relation=_relation(left[name, unit], right[name, unit]),
        )
        for name, unit in left
    ]
    return Comparison(
        a=f"{a.trace.name} ({a.engine.name})", b=f"{b.trace.name} ({b.engine.name})",
        figures=figures, unfair=unfair, notes=list(dict.fromkeys(notes)),
    )  # fmt: skip


def prompt_tokens(account: Account) -> str | None:
    """Prompt length as the user labelled it, None when unknown."""
    for source in (account.labels, account.options):
        for key in PROMPT_KEYS:
            if source.get(key) is not None:
                return str(source[key])
    return None


def _unfair(a: Account, b: Account) -> list[str]:
    reasons = []
    lengths = prompt_tokens(a), prompt_tokens(b)
    if None in lengths:
        reasons.append("prompt length unknown (label both with prompt_tokens=N)")
    elif lengths[0] != lengths[1]:
        reasons.append(f"prompt lengths differ: {lengths[0]} and {lengths[1]} tokens")
    for name, left, right in (
        ("k", a.rounds.k, b.rounds.k),
        ("rounds", a.rounds.value, b.rounds.value),
        ("GPU", a.trace.gpu, b.trace.gpu),
        ("graph granularity", a.trace.graph_trace, b.trace.graph_trace),
    ):
        if left is None or right is None:
            if name != "graph granularity":
                reasons.append(f"{name} unknown in one run")
        elif left != right:
            verb = "differ" if name.endswith("s") else "differs"
            reasons.append(f"{name} {verb}: {left} and {right}")
    return reasons


def _figures(account: Account, notes: list[str]) -> dict[tuple[str, str], float | None]:
    rounds = account.rounds.value or 1
    figures: dict[tuple[str, str], float | None] = {
        ("rounds", ""): float(rounds),
        ("k", ""): account.rounds.k,
        ("verify width", "rows"): account.rounds.width,
        ("round wall", "ms"): account.window.wall_ns / rounds / NS_PER_MS,
    }
    for name in ("draft", "verify", "replay"):
        figures[name, "ms/round"] = account.bucket(name).total_ns / rounds / NS_PER_MS
    idle = account.window.residual_ns - account.window.computed_ns
    figures["residual", "ms/round"] = idle / rounds / NS_PER_MS
    costs: Costs | None = None
    try:
        costs = costs_of(account)
    except NsysacctError as error:
        notes.append(f"{account.trace.name}: {error}")
    plain = costs.plain_ns if costs else None
    figures |= {
        ("accepted drafts", "per round"): costs.mean_accepted if costs else None,
        ("tokens emitted", "per round"): costs.tokens_per_round if costs else None,
        ("per token", "ms"): (
            costs.wall_ns * costs.batch / costs.tokens / NS_PER_MS if costs else None
        ),
        ("plain step", "ms"): None if plain is None else plain / NS_PER_MS,
        ("round", "plain steps"): None if not plain or not costs else costs.round_ns / plain,
        ("speed-up", "x"): costs.speedup if costs else None,
    }
    return figures


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def _relation(a: float | None, b: float | None) -> str:
    """Direction and magnitude in words: one significant digit, no more than a fair ratio claims."""
    if a is None or b is None:
        return "unknown"
    if a == b:
        return "equal"
    low, high = sorted((a, b))
    word = "higher" if a > b else "lower"
    if low <= 0:
        return f"a {word}"
    factor = high / low
    if factor < 1.1:
        return f"a {word}, nearly equal"
    digits = -math.floor(math.log10(factor)) if factor >= 2 else 1
    return f"a {word}, about {round(factor, digits):g}x"
