"""``nsysacct split``: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsysacct.cli._base import (
    FILE,
    echo_text,
    force_option,
    output_option,
    refuse_existing,
    terminal_style,
    terminal_width,
    write_output,
)
from nsysacct.cli._help import page
from nsysacct.cli._inputs import account_of
from nsysacct.cli._options import trace_options

if TYPE_CHECKING:
    from nsysacct.account import Options


@page("split")
@click.argument("trace", type=FILE)
@trace_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print it.",
)
@output_option
@force_option
@click.option("--detail", is_flag=True, help="List every signature and graph.")
@click.option(
    "--detail-from",
    metavar="NODE_TRACE",
    type=FILE,
    help="Second capture of the same run, node granularity: proportions inside graphs.",
)
def command(
    trace: str,
    options: Options,
    form: str,
    output: str | None,
    force: bool,
    detail: bool,
    detail_from: str | None,
) -> None:
    """Split the cost of speculative decoding in TRACE into verify, replay and draft.

    TRACE is an nsys export (.sqlite), a report (.nsys-rep, where nsys is on PATH), or the JSON of an
    account made before. Every figure says how it is known.

    \b
    Examples:
      nsysacct split trace.sqlite --layers 64
      nsysacct split trace.sqlite --layers 64 --n-ok 27,2,6,7 --step-ms 13.232
      nsysacct split trace.sqlite --format json -o account.json
      nsysacct split graph.sqlite --detail-from node.sqlite
      nsysacct split trace.sqlite --log run.log
    """
    if output is not None:
        refuse_existing(Path(output), force)
    result = account_of(trace, options)
    if detail_from is not None:
        from nsysacct.twocaptures import with_detail

        result = with_detail(result, account_of(detail_from, options))
    if form == "json":
        from nsysacct.wire import dump_account

        write_output(output, dump_account(result), force=force, data=True)
        return
    from nsysacct import render
    from nsysacct.layout import plain

    style = terminal_style() if output is None else plain
    body = render.text(result, width=terminal_width(), style=style, detail=detail)
    if output is None:
        echo_text(body)
    else:
        write_output(output, body, force=force)
