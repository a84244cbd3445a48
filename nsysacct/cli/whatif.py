"""``nsysacct whatif``: levers on a measured run, as ranges, and what would break even."""

from __future__ import annotations

import click
import msgspec

from nsysacct.breakeven import BreakEven, break_even
from nsysacct.cli._econ import (
    Page,
    Table,
    account_argument,
    cell,
    costs_with,
    counts,
    emit,
    exact,
    format_option,
    plain_option,
    span,
    unprofiled_option,
)
from nsysacct.cli._inputs import account_of
from nsysacct.cli._options import read_options
from nsysacct.economics import NS_PER_MS
from nsysacct.whatif import Levers, Row, WhatIf, what_if

MS = click.FloatRange(min=0)


@click.command(name="whatif")
@account_argument
@click.option("--n-ok", metavar="C0,..,Ck", help="Rounds by accepted drafts, e.g. 5,8,9,20.")
@click.option("--acceptance", metavar="MEAN", help="Mean accepted drafts a round, e.g. 1.385.")
@click.option("--no-replay", is_flag=True, help="Replay costs nothing.")
@click.option("--replay-ms", type=MS, help="Replay, ms a round.")
@click.option("--verify-ms", type=MS, help="Verify, ms a round.")
@click.option("--draft-ms", type=MS, help="Draft, ms a round.")
@click.option("--k", type=click.IntRange(min=1), help="Draft tokens a round.")
@click.option("--no-residual", is_flag=True, help="Drop the wall outside the phases.")
@click.option("--verify-slope-ms", type=float, default=0.0, help="One verified row more, ms.")
@click.option("--engine", metavar="NAME", help="Of a trace: engine whose registry to use.")
@click.option("--layers", multiple=True, metavar="N|KIND=N", help="Of a trace: model layers.")
@click.option(
    "--run-n-ok", metavar="C0,..,Ck", help="Of a trace: its own rounds by accepted drafts."
)
@click.option(
    "--run-plan", metavar="TEXT", help="Of a trace: what surrounds the rounds, as in split."
)
@click.option("--step-ms", metavar="MS", help="Of a trace: one plain step, prices untimed steps.")
@click.option("--wall-ms", metavar="MS", help="Of a trace: wall of the speculative part.")
@click.option("--closing", type=click.IntRange(0), help="Of a trace: plain steps after the rounds.")
@click.option("--corners", is_flag=True, help="List every corner of every range.")
@plain_option
@unprofiled_option
@format_option
def command(
    account: str,
    n_ok: str | None,
    acceptance: str | None,
    no_replay: bool,
    replay_ms: float | None,
    verify_ms: float | None,
    draft_ms: float | None,
    k: int | None,
    no_residual: bool,
    verify_slope_ms: float,
    engine: str | None,
    layers: tuple[str, ...],
    run_n_ok: str | None,
    run_plan: str | None,
    step_ms: str | None,
    wall_ms: str | None,
    closing: int | None,
    corners: bool,
    plain_ms: float | None,
    unprofiled: str | None,
    fmt: str,
    output: str | None,
    force: bool,
) -> None:
    """Ask what other acceptance or costs would make of this run.

    Prints the baseline, each lever alone, pairs and all, each with its range; then the acceptance,
    cost and k at which this run would break even.
    """
    levers = Levers(
        n_ok=counts("--n-ok", n_ok) if n_ok else None,
        acceptance=exact("--acceptance", acceptance) if acceptance else None,
        no_replay=no_replay,
        replay_ms=replay_ms,
        verify_ms=verify_ms,
        draft_ms=draft_ms,
        k=k,
        no_residual=no_residual,
        verify_slope_ms=verify_slope_ms,
    )
    options = read_options(
        engine=engine,
        layers=layers,
        n_ok=run_n_ok,
        plan=run_plan,
        closing=closing,
        step_ms=step_ms,
        wall_ms=wall_ms,
    )
    costs = costs_with(account_of(account, options), plain_ms, unprofiled)
    result = what_if(costs, levers)
    even = break_even(costs, verify_slope_ms=verify_slope_ms) if costs.plain_ns else None
    tables = [_levers(result)]
    if corners:
        tables.append(_corners(result.rows))
    if even is not None:
        tables += _even(even)
    document = {**msgspec.to_builtins(result), "break_even": msgspec.to_builtins(even)}
    emit(Page("whatif", document, tables, _head(result), result.notes), fmt, output, force)


def _head(result: WhatIf) -> list[str]:
    costs = result.costs
    parts = {
        "draft": costs.draft_ns,
        "verify": costs.verify_ns,
        "replay": costs.replay_ns,
        "rest": costs.rest_ns,
    }
    terms = " + ".join(f"{name} {ns / NS_PER_MS:.2f}" for name, ns in parts.items())
    return [
        f"{costs.rounds} rounds, k = {costs.k}, {costs.tokens} tokens: {terms} = "
        f"{costs.wall_ns / NS_PER_MS:.2f} ms",
        f"plain step {cell(costs.plain_ns and costs.plain_ns / NS_PER_MS)} ms ({costs.plain_how}); "
        f"baseline differs from the measurement by {result.difference_ns} ns",
    ]


def _levers(result: WhatIf) -> Table:
    return Table(
        "What if",
        ["lever", "speed-up", "ms a token", "any histogram"],
        [
            [
                " + ".join(row.levers) or "baseline",
                span(row.low, row.high, unit="x"),
                span(row.low_ms_per_token, row.high_ms_per_token),
                span(row.any_low, row.any_high, unit="x"),
            ]
            for row in result.rows
        ],
    )


def _corners(rows: list[Row]) -> Table:
    return Table(
        "Corners",
        ["lever", "corner", "rounds", "ms", "ms a token", "speed-up"],
        [
            [
                " + ".join(row.levers) or "baseline",
                corner.name,
                cell(corner.rounds, 1),
                cell(corner.total_ns / NS_PER_MS, 2),
                cell(corner.ms_per_token, 2),
                cell(corner.speedup, 3, "x"),
            ]
            for row in rows
            for corner in row.corners
        ],
    )


def _even(even: BreakEven) -> list[Table]:
    acceptance = Table(
        f"Break-even: {even.tokens_per_round:.3f} tokens a round that costs "
        f"{even.round_cost_plain_steps:.3f} plain steps",
        ["rest", "constant rate", "mean accepted", "tokens a round"],
        [
            [
                a.residual,
                "none is enough" if a.rate is None else cell(a.rate),
                cell(a.mean_accepted),
                cell(a.tokens_per_round),
            ]
            for a in even.acceptance
        ],
    )
    costs = Table(
        "Break-even by one cost alone, ms a round",
        ["phase", "measured", "at 1.0x"],
        [
            [
                c.phase,
                cell(c.measured_ms),
                cell(c.needed_ms) if c.reachable else "not by this alone",
            ]
            for c in even.costs
        ],
    )
    by_k = Table(
        f"By k (best: {even.best_k})",
        ["k", "speed-up", "tokens a round", "acceptance"],
        [
            [
                str(point.k),
                cell(point.speedup, 3, "x"),
                cell(point.tokens_per_round),
                "extrapolated" if point.extrapolated else "from the histogram",
            ]
            for point in even.by_k
        ],
    )
    return [acceptance, costs, by_k]
