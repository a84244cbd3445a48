"""``nsysacct whatif``: levers on a measured run, as ranges, and what would break even."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

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
    wrapped,
)
from nsysacct.cli._help import page
from nsysacct.cli._inputs import account_of
from nsysacct.cli._numbers import COST_MS, SLOPE_MS
from nsysacct.cli._options import run_options
from nsysacct.economics import NEEDS_PLAIN, NS_PER_MS
from nsysacct.whatif import Corner, Levers, Row, WhatIf, what_if

if TYPE_CHECKING:
    from nsysacct.account import Options
    from nsysacct.model import Account

MS = COST_MS


@page("whatif")
@account_argument
@click.option("--n-ok", metavar="C0,..,Ck", help="Rounds by accepted drafts, e.g. 5,8,9,20.")
@click.option("--acceptance", metavar="MEAN", help="Mean accepted drafts a round, e.g. 1.385.")
@click.option("--no-replay", is_flag=True, help="Replay costs nothing.")
@click.option("--replay-ms", type=MS, metavar="MS", help="Replay, ms a round.")
@click.option("--verify-ms", type=MS, metavar="MS", help="Verify, ms a round.")
@click.option("--draft-ms", type=MS, metavar="MS", help="Draft, ms a round.")
@click.option("--k", type=click.IntRange(min=1), metavar="K", help="Draft tokens a round.")
@click.option("--no-residual", is_flag=True, help="Drop the wall outside the phases.")
@click.option(
    "--verify-slope-ms", type=SLOPE_MS, default=0.0, metavar="MS", help="One verified row more, ms."
)
@click.option("--corners", is_flag=True, help="List every corner of every range.")
@plain_option
@unprofiled_option
@run_options
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
    corners: bool,
    plain_ms: float | None,
    plain_from: Account | None,
    unprofiled: str | None,
    options: Options,
    fmt: str,
    output: str | None,
    force: bool,
) -> None:
    """Ask what other acceptance or costs would make of this run.

    Prints the baseline, each lever alone, pairs and all, each with its range and what its ends
    assume; then the acceptance, cost and k at which this run would break even. The options of
    split describe the run of a trace; its own k and histogram are --run-k and --run-n-ok here.

    \b
    Examples:
      nsysacct whatif run.json --no-replay
      nsysacct whatif run.json --acceptance 1.385 --no-replay --corners
      nsysacct whatif spec.sqlite --log run.log --plain-from plain.sqlite
      nsysacct whatif spec.sqlite --run-n-ok 27,2,6,7 --n-ok 5,8,9,20
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
    costs = costs_with(account_of(account, options), plain_ms, plain_from, unprofiled)
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
    requests = f" of {costs.batch} requests" if costs.batch > 1 else ""
    lines = [
        f"{costs.rounds} rounds, k = {costs.k}, {costs.tokens} tokens{requests}: {terms} = "
        f"{costs.wall_ns / NS_PER_MS:.2f} ms",
    ]
    if costs.plain_ns is None:
        lines.append(
            "No speed-up can be told: T_plain, the wall of one plain decode step, is not in this "
            f"account. To have it, {NEEDS_PLAIN} MS. Times below stand without it."
        )
    else:
        plain = f"{costs.plain_ns / NS_PER_MS:.3f} ms ({costs.plain_how})"
        lines.append(f"T_plain, the wall of one plain decode step: {plain}")
    lines.append(f"baseline minus measurement: {result.difference_ns} ns")
    return lines


def _ranges(result: WhatIf) -> str:
    """Each combination with its range, and under it what the ends of the range assume."""
    names = [_name(row) for row in result.rows]
    width = min(max(map(len, names)), 44)
    known = result.costs.plain_ns is not None
    lines = [_aligned("What if", "ms a token", "speed-up" if known else "", width)]
    for name, row in zip(names, result.rows, strict=True):
        speed = span(row.low, row.high, unit="x") if known else ""
        lines.append(
            _aligned(name, span(row.low_ms_per_token, row.high_ms_per_token), speed, width)
        )
        for figure, what in _ends(row):
            lines.append(wrapped(f"{figure}  {what}", indent=4, hang=len(figure) + 6))
    return "\n".join(lines)


def _name(row: Row) -> str:
    return " + ".join(row.levers) or "baseline"


def _aligned(name: str, times: str, speed: str, width: int) -> str:
    *above, last = textwrap.wrap(name, width, subsequent_indent="  ")
    return "\n".join([*above, f"{last:{width}}  {times:>15}  {speed:>13}".rstrip()])


def _ends(row: Row) -> list[tuple[str, str]]:
    """Figure and name of the corners that make the range; none for a single corner."""

    def figure(corner: Corner) -> str:
        if corner.speedup is None:
            return cell(corner.ms_per_token, 2, " ms")
        return cell(corner.speedup, 2, "x")

    ends = row.ends
    said = [(figure(end), end.name) for end in ends] if ends[0] is not ends[1] else []
    if row.any_low is not None:
        said.append((span(row.any_low, row.any_high, unit="x"), "over all histograms of this mean"))
    return said


def _levers(result: WhatIf) -> Table:
    return Table(
        "What if",
        ["lever", "speed-up", "ms a token", "any histogram", "slow end", "fast end"],
        [
            [
                _name(row),
                span(row.low, row.high, unit="x"),
                span(row.low_ms_per_token, row.high_ms_per_token),
                span(row.any_low, row.any_high, unit="x"),
                *(end.name for end in row.ends),
            ]
            for row in result.rows
        ],
        _ranges(result),
    )


def _corners(rows: list[Row]) -> Table:
    return Table(
        "Corners",
        ["lever", "corner", "rounds", "ms", "ms a token", "speed-up"],
        [
            [
                _name(row),
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
