"""``nsysacct history``: accounts over time in one SQLite file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsysacct.cli._base import (
    FILE,
    atomic_file,
    echo_text,
    force_option,
    output_option,
    terminal_width,
    write_output,
)
from nsysacct.cli._help import Pages
from nsysacct.cli._inputs import account_of
from nsysacct.cli._options import trace_options

if TYPE_CHECKING:
    from nsysacct.account import Options
    from nsysacct.history import Trend

series_option = click.option(
    "--series", metavar="NAME", default="main", show_default=True, help="Series, such as a branch."
)
format_option = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="How to print it.",
)  # fmt: skip


@click.group("history", cls=Pages)
def command() -> None:
    """Keep accounts over time in one SQLite file, list them, and show trends.

    The file is plain SQLite: Datasette and sqlite3 read it (tables captures and figures, view
    trend). `nsysacct gate --against DB:SERIES` takes its base from it.

    \b
    Examples:
      nsysacct history add history.db runs/*.json --series main
      nsysacct history list history.db
      nsysacct gate --against history.db:main --head pr.json
    """


@command.command("add")
@click.argument("db", type=FILE)
@click.argument("files", metavar="FILE...", type=FILE, nargs=-1, required=True)
@series_option
@click.option("--commit", "commit_id", metavar="ID", help="Commit that was measured.")
@click.option("--at", "added_at", metavar="TIME", help="Time to record, as text.")
@trace_options
def add(
    options: Options,
    db: str,
    files: Sequence[str],
    series: str,
    commit_id: str | None,
    added_at: str | None,
) -> None:
    """Add captures (exports or account JSON) to DB; the same account twice counts once.

    \b
    Examples:
      nsysacct history add history.db runs/*.json --series main --commit 1a2b3c
    """
    from nsysacct.history import History, check_series

    check_series(series)
    accounts = [(Path(file).name, account_of(file, options)) for file in files]
    with History(db) as history:
        for name, account in accounts:
            number, new = history.add(
                account, series, name=name, commit_id=commit_id, added_at=added_at
            )
            said = "added" if new else "is there already"
            echo_text(f"{name}: {said} as {series}#{number}")


@command.command("list")
@click.argument("db", type=FILE)
@click.option("--series", metavar="NAME", help="One series only.")
@format_option
def list_(db: str, series: str | None, form: str) -> None:
    """List the captures of DB, oldest first.

    \b
    Examples:
      nsysacct history list history.db --series main --format json
    """
    from dataclasses import asdict

    from nsysacct.history import History
    from nsysacct.wire import dump_document

    with History(db, readonly=True) as history:
        captures = history.captures(series)
    if form == "json":
        document = {
            "schema": {"kind": "nsysacct/history", "version": 1},
            "captures": [asdict(capture) for capture in captures],
        }
        echo_text(dump_document(document), data=True)
        return
    rows = [
        ["id", "series", "name", "commit", "added", "engine", "GPU", "graphs", "rounds", "labels"]
    ]
    rows += [
        [str(c.id), c.series, c.name, (c.commit_id or "-")[:12], c.added_at or "-", c.engine, c.gpu,
         c.granularity, "-" if c.rounds is None else str(c.rounds), c.labels]
        for c in captures
    ]  # fmt: skip
    echo_text(_table(rows))


@command.command("show")
@click.argument("db", type=FILE)
@click.argument("capture", type=click.IntRange(1), metavar="ID")
@output_option
@force_option
def show(db: str, capture: int, output: str | None, force: bool) -> None:
    """Print the account JSON of one capture of DB (its number as `list` shows it).

    \b
    Examples:
      nsysacct history show history.db 3 -o third.json
    """
    from nsysacct.history import History
    from nsysacct.wire import dump_account

    with History(db, readonly=True) as history:
        account = history.account(capture)
    write_output(output, dump_account(account), force=force, data=True)


@command.command("trend")
@click.argument("db", type=FILE)
@click.argument("metric", default="total.ns_per_round")
@series_option
@format_option
@click.option("--plot", metavar="FILE", type=FILE, help="Draw it as well (.png, .svg, .pdf).")
@force_option
def trend(db: str, metric: str, series: str, form: str, plot: str | None, force: bool) -> None:
    """Follow METRIC over a series of DB; captures at which its level moves are marked.

    \b
    Examples:
      nsysacct history trend history.db verify.ns_per_round --plot verify.png
    """
    from nsysacct.history import History

    with History(db, readonly=True) as history:
        found = history.trend(metric, series)
    if plot:
        from nsysacct import plots

        with atomic_file(plot, force=force) as temporary:
            plots.save(plots.trend(found, ax=plots.new_axes()), temporary)
    if form == "json":
        from nsysacct.wire import dump_document

        echo_text(dump_document(_document(found)), data=True)
    else:
        echo_text(_trend_text(found))


def _document(found: Trend) -> dict[str, Any]:
    return {
        "schema": {"kind": "nsysacct/trend", "version": 1},
        "metric": found.metric,
        "unit": found.unit,
        "left_out": found.left_out,
        "points": [
            {
                "id": point.capture.id,
                "name": point.capture.name,
                "commit": point.capture.commit_id,
                "value": point.value,
                "step": point.step,
            }
            for point in found.points
        ],
    }


def _trend_text(found: Trend) -> str:
    from nsysacct.metric_names import parse_metric
    from nsysacct.quantities import percent, value_text

    unit = parse_metric(found.metric).unit
    rows = [["id", "commit", "name", found.metric, "to the one before", ""]]
    before = None
    for point in found.points:
        change = percent(point.value / before) if before else ""
        rows.append(
            [str(point.capture.id), (point.capture.commit_id or "-")[:12], point.capture.name,
             value_text(point.value, unit), change, "<- new level" if point.step else ""]
        )  # fmt: skip
        before = point.value
    text = _table(rows)
    if found.left_out:
        captures = "1 capture" if found.left_out == 1 else f"{found.left_out} captures"
        text += f"\nnote: {captures} without this figure left out\n"
    return text


def _table(rows: Sequence[Sequence[str]]) -> str:
    from nsysacct.layout import table
    from nsysacct.quantities import short

    cells = [[short(cell) for cell in row] for row in rows]
    return "\n".join(table(cells, terminal_width())) + "\n"
