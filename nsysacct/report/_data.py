"""Figures of the page: the verdict in words, and what the scripts compute with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from nsysacct.economics import NS_PER_MS, Costs, costs_of
from nsysacct.errors import NsysacctError
from nsysacct.explain import Explanation, explain
from nsysacct.model import Account, RoundRow
from nsysacct.semantics import REPLAY_STEPS, TOKENS, VERIFY_WIDTH

MOST_POINTS = 3000
"""Rounds that the chart holds; of more, neighbours are joined to their mean."""

SERIES = ("verify", "draft", "replay", "residual")
"""Stacked in the chart from the bottom up."""


@dataclass(frozen=True, slots=True)
class PageData:
    """What the page shows besides tables.

    ``problem`` says why there is no what-if; ``costs`` is None then. ``points`` are columns, one
    array element a round or a mean of ``step`` neighbouring rounds, times in ns; ``last`` is the last round's index.
    ``file`` is what the JSON of the account may be called: of the trace itself, commands would have
    to be told again what the account was told.
    """

    explanation: Explanation
    costs: Costs | None
    problem: str
    points: dict[str, list[Any]]
    step: int
    last: int
    file: str

    @property
    def shown(self) -> list[str]:
        """Series of the chart that are not nothing throughout."""
        return [name for name in SERIES if any(self.points[name])]

    def for_scripts(self) -> dict[str, Any]:
        """JSON values for the scripts."""
        return {
            "costs": None if self.costs is None else costs_for_scripts(self.costs),
            "points": self.points,
            "step": self.step,
            "last": self.last,
            "series": list(SERIES),
            "file": self.file,
        }


def page_data(account: Account, *, plain_ms: float | None = None) -> PageData:
    """Figures of an account for its page."""
    costs, problem = None, ""
    try:
        costs = costs_of(account, plain_ms=plain_ms)
    except NsysacctError as error:
        problem = str(error)
    step = -(-len(account.per_round) // MOST_POINTS) or 1
    return PageData(
        explanation=explain(account, plain_ms=plain_ms),
        costs=costs,
        problem=problem,
        points=points_of(account.per_round, step),
        step=step,
        last=account.per_round[-1].index if account.per_round else 0,
        file=f"{PurePath(account.trace.name).stem}.json",
    )


def points_of(rows: Sequence[RoundRow], step: int) -> dict[str, list[Any]]:
    """Columns of the chart: index of the first round, means of `step` rounds, their flags."""
    groups = [rows[i : i + step] for i in range(0, len(rows), step)]
    columns: dict[str, list[Any]] = {"index": [g[0].index for g in groups]}
    for name in (*SERIES, "wall"):
        columns[name] = [round(sum(getattr(r, f"{name}_ns") for r in g) / len(g)) for g in groups]
    columns["n_ok"] = [_mean_n_ok(g) for g in groups]
    columns["flags"] = [" ".join(dict.fromkeys(f for r in g for f in r.flags)) for g in groups]
    return columns


def _mean_n_ok(group: Sequence[RoundRow]) -> float | int | None:
    """The round's n_ok; of several rounds the mean, when all are known."""
    known = [r.n_ok for r in group if r.n_ok is not None]
    if len(known) != len(group):
        return None
    return known[0] if len(known) == 1 else round(sum(known) / len(known), 3)


def costs_for_scripts(costs: Costs) -> dict[str, Any]:
    """`Costs` with the engine's named rules written out as tables, for the script of what-if."""
    rules, most = costs.semantics, max(8, 2 * costs.k)
    drafts = range(most + 1)
    return {
        "rounds": costs.rounds,
        "k": costs.k,
        "k_max": most,
        "width": costs.width,
        "wall_ns": costs.wall_ns,
        "draft_ns": costs.draft_ns,
        "verify_ns": costs.verify_ns,
        "replay_ns": costs.replay_ns,
        "rest_ns": costs.rest_ns,
        "tokens": costs.tokens,
        "emitted": costs.emitted,
        "batch": costs.batch,
        "histogram": list(costs.histogram) if costs.histogram else None,
        "accepted": costs.accepted,
        "plain_ns": costs.plain_ns,
        "plain_is_least": costs.plain_is_least,
        "plain_given": costs.plain_how.startswith("given with"),
        "checkpoint": rules.replay == "checkpoint",
        "tokens_of": [[TOKENS[rules.tokens](n, k) for n in range(k + 1)] for k in drafts],
        "width_of": [VERIFY_WIDTH[rules.verify_width](k) for k in drafts],
        "steps_of": [[REPLAY_STEPS[rules.replay](n, k) for n in range(k + 1)] for k in drafts],
        "ns_per_ms": NS_PER_MS,
    }


def script_json(value: Any) -> str:
    """JSON that can stand inside a script element, whatever its texts hold."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def facts(account: Account) -> list[str]:
    """Where the account comes from."""
    trace, engine = account.trace, account.engine
    known = [
        trace.gpu,
        f"nsys {trace.nsys_version}" if trace.nsys_version else None,
        f"export schema {trace.export_schema}" if trace.export_schema else None,
        f"graph granularity {trace.graph_trace}" if trace.graph_trace else None,
        f"engine {engine.name} ({engine.how})",
    ]
    return [fact for fact in known if fact]


def lever_limits(costs: Costs | None) -> dict[str, Any]:
    """What the sliders show: measured figures, and how far each goes (twice as far)."""
    if costs is None:
        return {"ms": {}, "scale": {}, "accepted": "", "k_max": 0}
    parts = {
        name: getattr(costs, f"{name}_ns") / costs.rounds / NS_PER_MS
        for name in ("draft", "verify", "replay")
    }
    plain = None if costs.plain_ns is None else costs.plain_ns / NS_PER_MS
    scale = {name: round(2 * value, 3) or 1.0 for name, value in parts.items()}
    scale["slope"] = round(parts["verify"] / costs.width, 3) or 0.001
    return {
        "ms": {name: f"{value:.3f}" for name, value in parts.items()}
        | {"plain": "" if plain is None else f"{plain:.6g}"},
        "scale": scale,
        "accepted": f"{costs.mean_accepted or 0:.2f}",
        "k_max": max(8, 2 * costs.k),
    }
