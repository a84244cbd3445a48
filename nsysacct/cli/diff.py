"""``nsysacct diff``: where the time went between two accounts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsysacct.cli._base import FILE, force_option, output_option, terminal_width, write_output
from nsysacct.cli._help import page
from nsysacct.cli._inputs import account_of
from nsysacct.cli._options import trace_options

if TYPE_CHECKING:
    from nsysacct.account import Options
    from nsysacct.diff import Per


@page("diff")
@click.argument("base", metavar="A", type=FILE)
@click.argument("head", metavar="B", type=FILE)
@click.option(
    "--per",
    type=click.Choice(["round", "token", "run"]),
    help="Denominator.  [default: round, or run when there are no rounds]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
    help="How to print it.",
)
@output_option
@force_option
@trace_options
def command(
    options: Options,
    base: str,
    head: str,
    per: Per | None,
    form: str,
    output: str | None,
    force: bool,
) -> None:
    """Show where the time went from A to B: bucket, family, signature; by count and by duration.

    A and B are exports or account JSON. The two parts sum to the change exactly. Captures that
    should not be compared are compared all the same, with a note; `gate` refuses them.

    \b
    Examples:
      nsysacct diff before.json after.json
      nsysacct diff before.sqlite after.sqlite --layers 64 --per token
    """
    from nsysacct.comparability import Side
    from nsysacct.diff import diff
    from nsysacct.diff_output import FORMATS, text

    sides = [
        [Side(role, Path(path).name, account_of(path, options))]
        for role, path in (("base", base), ("head", head))
    ]
    found = diff(sides[0], sides[1], per)
    body = text(found, terminal_width()) if form == "text" else FORMATS[form](found)
    write_output(output, body, force=force, data=form == "json")
