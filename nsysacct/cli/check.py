"""``nsysacct check``: whether a capture can carry a split."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from nsysacct.cli._base import echo_text, judged_failed
from nsysacct.cli._inputs import account_of
from nsysacct.cli._options import trace_options

if TYPE_CHECKING:
    from nsysacct.account import Options


@click.command("check")
@click.argument("trace", type=click.Path())
@trace_options
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def command(trace: str, options: Options, form: str) -> None:
    """Judge whether TRACE can carry a split, and print the command for a better capture.

    Exit code 0: rounds are proven (or inferred with witnesses that agree), nothing is lost, and no
    blind spot in the rounds is without a price. 1: it cannot; the reasons are printed. 3: unreadable.

    \b
    Example:
      nsysacct check trace.sqlite --layers 64
    """
    from nsysacct.checkup import check

    result = check(account_of(trace, options))
    if form == "json":
        document = {
            "schema": {"kind": "nsysacct/check", "version": 1},
            "passed": result.passed,
            "reasons": list(result.reasons),
            "cautions": list(result.cautions),
            "command": result.command,
        }
        echo_text(json.dumps(document, indent=1))
    else:
        lines = [
            "this capture can carry a split"
            if result.passed
            else "this capture cannot carry a split"
        ]
        lines += [f"  {reason}" for reason in result.reasons]
        lines += ["keep in mind:", *(f"  {c}" for c in result.cautions)] if result.cautions else []
        lines += [] if result.passed else ["capture again:", f"  {result.command}"]
        echo_text("\n".join(lines))
    if not result.passed:
        judged_failed()
