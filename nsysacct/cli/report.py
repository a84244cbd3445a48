"""``nsysacct report``: one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsysacct.cli._base import FILE, force_option, refuse_existing, write_output
from nsysacct.cli._help import page
from nsysacct.cli._inputs import account_of
from nsysacct.cli._numbers import TIME_MS
from nsysacct.cli._options import trace_options

if TYPE_CHECKING:
    from nsysacct.account import Options


@page("report")
@click.argument("trace", type=FILE)
@trace_options
@click.option(
    "--plain-ms",
    type=TIME_MS,
    metavar="MS",
    help="Wall of one plain step; overrides the account's.",
)
@click.option(
    "-o", "--output", metavar="FILE", type=FILE, required=True, help="Page to write ('-': stdout)."
)
@force_option
def command(trace: str, options: Options, plain_ms: float | None, output: str, force: bool) -> None:
    """Write one self-contained HTML page of TRACE: no network is needed to read it.

    Verdict, split, rounds over time, what-if sliders, signatures, graphs, blind spots. TRACE is an
    export (.sqlite), a report (.nsys-rep) or the JSON of an account.

    \b
    Examples:
      nsysacct report trace.sqlite --layers 64 -o report.html
      nsysacct report account.json --plain-ms 13.2 -o report.html
    """
    from nsysacct.report import report_html

    if output != "-":
        refuse_existing(Path(output), force)
    page = report_html(account_of(trace, options), plain_ms=plain_ms)
    write_output(output, page, force=force, data=True)
