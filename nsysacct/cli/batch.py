"""``nsysacct batch``: many traces in parallel, resumable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsysacct.cli._base import FILE, Progress, atomic_file, echo_text, refuse_existing
from nsysacct.cli._econ import Table, cell, table_text, wrapped
from nsysacct.cli._exits import NO_VERDICT
from nsysacct.cli._help import BatchPage, page
from nsysacct.cli._options import trace_options

if TYPE_CHECKING:
    from nsysacct.batch import Outcome
    from nsysacct.batch_summary import Row
    from nsysacct.options import Options

MOST_LINES = 50
"""Rows of the table on the terminal; the rest is in the accounts and in ``--parquet``."""


@page("batch", BatchPage)
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...", type=FILE)
@trace_options
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="FOLDER",
    type=FILE,
    default="accounts",
    show_default=True,
    help="Where the accounts go, one JSON a trace.",
)
@click.option(
    "--parquet", metavar="FILE", type=FILE, help="Also write all rows as one Parquet table."
)
@click.option("--scheduler", metavar="ADDRESS", help="Dask scheduler to use, e.g. tcp://host:8786.")
@click.option(
    "--workers", type=int, metavar="N", help="Worker processes here.  [default: one a core]"
)
@click.option(
    "--memory",
    default="auto",
    show_default=True,
    metavar="SIZE",
    help="Limit of a worker process here, e.g. 4GB.",
)
@click.option("--force", is_flag=True, help="Overwrite files that no batch made.")
@click.pass_context
def command(
    ctx: click.Context,
    patterns: tuple[str, ...],
    options: Options,
    folder: str,
    parquet: str | None,
    scheduler: str | None,
    workers: int | None,
    memory: str,
    force: bool,
) -> None:
    """Account for many traces: ranks of one job, a night's captures, a sweep over k.

    PATTERN is a trace, a folder of traces or a quoted glob pattern. The options of split apply to
    all. A trace that fails does not stop the others. Run it again after a kill: what is done and
    unchanged is kept.

    \b
    Examples:
      nsysacct batch night/ -o accounts
      nsysacct batch "rank*.sqlite" --layers 64 --parquet ranks.parquet
      nsysacct batch "/shared/**/*.sqlite" --scheduler tcp://head:8786
    """
    from nsysacct.batch import Cluster, find_sources, run
    from nsysacct.batch_summary import rows_of

    if parquet is not None:
        refuse_existing(Path(parquet), force)
    cluster = Cluster(scheduler, workers, memory)
    sources = find_sources(patterns)
    outcomes: list[Outcome] = []
    rows: list[Row] = []
    with Progress("accounting", total=len(sources), unit="traces") as progress:
        for outcome in run(sources, folder, options, cluster, force=force):
            if outcome.account is not None:
                rows += rows_of(outcome.account)
            outcomes.append(_without_account(outcome))
            progress(len(outcomes))
    rows.sort(key=lambda row: (row.trace, row.pid or 0, row.gpu or 0))
    if parquet is not None:
        _write_parquet(rows, parquet, force)
    echo_text(summary(rows, outcomes, folder))
    if any(outcome.state == "failed" for outcome in outcomes):
        ctx.exit(NO_VERDICT)


def _without_account(outcome: Outcome) -> Outcome:
    """Forget the account: ten thousand of them do not fit."""
    from dataclasses import replace

    return replace(outcome, account=None)


def _write_parquet(rows: Sequence[Row], path: str, force: bool) -> None:
    from pyarrow import parquet

    from nsysacct.batch_summary import Row
    from nsysacct.export import record_table

    with atomic_file(path, force=force) as temporary:
        parquet.write_table(record_table(rows, Row), temporary)


def summary(rows: Sequence[Row], outcomes: Sequence[Outcome], folder: str) -> str:
    """Table of the batch, rank skew, outliers, failures, and where the accounts are."""
    from nsysacct.batch_summary import outliers, rank_skews

    blocks = [table_text(_table(rows[:MOST_LINES]))] if rows else []
    if len(rows) > MOST_LINES:
        blocks.append(f"... and {len(rows) - MOST_LINES} more rows (--parquet FILE has all)\n")
    told = [
        f"{skew.job}: {len(skew.ranks)} ranks, verify ms a round "
        + ", ".join(
            f"{label} {cell(_ms(row.verify_ns_per_round))}"
            for label, row in zip(skew.labels, skew.ranks, strict=True)
        )
        + f"; slowest / fastest {skew.ratio:.3f}"
        for skew in rank_skews(rows)
    ]
    told += [
        f"outlier: {row.trace} pid {row.pid} GPU {row.gpu}: verify"
        f" {cell(_ms(row.verify_ns_per_round))} ms a round, others alike {cell(_ms(middle))}"
        for row, middle in outliers(rows)
    ]
    blocks += [wrapped(line, hang=2) + "\n" for line in told]
    failed = [outcome for outcome in outcomes if outcome.state == "failed"]
    if failed:
        blocks.append("".join(["failed:\n", *(f"  {o.reason}\n" for o in failed)]))
    count = {state: sum(o.state == state for o in outcomes) for state in ("done", "kept", "failed")}
    blocks.append(
        f"{count['done']} done, {count['kept']} kept from before, {count['failed']} failed;"
        f" accounts in {folder}\n"
    )
    return "\n".join(blocks)


def _table(rows: Sequence[Row]) -> Table:
    columns = ["trace", "pid", "GPU", "engine", "rounds", "k", "draft", "verify", "replay",
               "residual", "blind"]  # fmt: skip
    return Table(
        "ms a round",
        columns,
        [
            [
                row.trace,
                cell(row.pid, 0),
                cell(row.gpu, 0),
                row.engine,
                cell(row.rounds, 0),
                cell(row.k, 0),
                cell(_ms(row.draft_ns_per_round)),
                cell(_ms(row.verify_ns_per_round)),
                cell(_ms(row.replay_ns_per_round)),
                cell(_ms(row.residual_ns_per_round)),
                str(row.fatal_blind_spots),
            ]
            for row in rows
        ],
    )


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6
