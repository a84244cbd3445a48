"""``nsysacct curve``: verify cost against width over several captures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nsysacct.cli._base import FILE
from nsysacct.cli._econ import Page, Table, cell, emit, format_option
from nsysacct.cli._help import page
from nsysacct.cli._inputs import account_of
from nsysacct.cli._options import trace_options
from nsysacct.curve import curve, samples_of
from nsysacct.economics import width_of

if TYPE_CHECKING:
    from nsysacct.account import Options


@page("curve")
@click.argument("accounts", nargs=-1, required=True, metavar="TRACE|ACCOUNT.json...", type=FILE)
@click.option("--experts", metavar="N", type=click.IntRange(min=1), help="Experts of a MoE layer.")
@click.option(
    "--experts-per-token", metavar="N", type=click.IntRange(min=1), help="Experts a token uses."
)
@trace_options
@format_option
def command(
    accounts: tuple[str, ...],
    experts: int | None,
    experts_per_token: int | None,
    options: Options,
    fmt: str,
    output: str | None,
    force: bool,
) -> None:
    """Print what a target pass costs against the rows it runs.

    Give captures of one model on one card: a plain one for width 1, others with different k.

    \b
    Examples:
      nsysacct curve plain.sqlite k1.sqlite k2.sqlite k7.sqlite
      nsysacct curve *.json --experts 16 --experts-per-token 2 --format csv
    """
    samples, notes = [], []
    for path in accounts:
        loaded = account_of(path, options)
        samples += samples_of(loaded)
        if loaded.rounds.value and width_of(loaded, loaded) is None:
            notes.append(f"{loaded.trace.name}: verify width unknown, left out; split it with --k")
    found = curve(samples, experts=experts, experts_per_token=experts_per_token)
    columns = ["width", "ms", "passes", "ms a row more", "beta", "step", "captures"]
    rows = [
        [
            str(point.width),
            cell(point.ms, 4),
            str(point.count),
            cell(point.slope_ms_per_row, 5),
            cell(point.beta),
            point.step,
            ", ".join(point.sources),
        ]
        for point in found.points
    ]
    if experts is not None:
        columns.insert(5, "experts read")
        for row, point in zip(rows, found.points, strict=True):
            row.insert(5, cell(point.expert_ratio))
    notes += found.notes
    if found.slope_ms_per_row is not None:
        notes.append(f"least squares over all widths: {found.slope_ms_per_row:.5f} ms a row")
    emit(
        Page("curve", found, [Table("Verify cost", columns, rows)], notes=notes), fmt, output, force
    )
