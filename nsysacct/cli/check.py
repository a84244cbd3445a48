"""``nsysacct check``: whether a capture can carry a split."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import click

from nsysacct.cli._base import FILE, echo_text, judged_failed, terminal_style, terminal_width
from nsysacct.cli._help import JudgingPage, page
from nsysacct.cli._inputs import account_of
from nsysacct.cli._options import trace_options

if TYPE_CHECKING:
    from nsysacct.checkup import Checkup
    from nsysacct.model import Account
    from nsysacct.options import Options


@page("check", JudgingPage)
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
def command(trace: str, options: Options, form: str) -> None:
    """Judge whether TRACE can carry a split, and print the command for a better capture.

    Exit code 0: rounds are proven (or inferred with witnesses that agree), nothing is lost, and no
    blind spot in the rounds is without a price. 1: it cannot; the reasons are printed. 3: unreadable.

    \b
    Example:
      nsysacct check trace.sqlite --layers 64
    """
    from nsysacct.checkup import check

    account = account_of(trace, options)
    result = check(account)
    if form == "json":
        document = {
            "schema": {"kind": "nsysacct/check", "version": 1},
            "passed": result.passed,
            "reasons": list(result.reasons),
            "cautions": list(result.cautions),
            "command": result.command,
        }
        echo_text(json.dumps(document, indent=1), data=True)
    else:
        echo_text(_text(account, result))
    if not result.passed:
        judged_failed()


def _text(account: Account, result: Checkup) -> str:
    """Verdict, what stands against a split or must be kept in mind, and the better command."""
    from nsysacct.checkup import ranks_differ, rounds_found
    from nsysacct.layout import count, fold

    width, style = terminal_width(), terminal_style()
    if result.passed:
        lines = [style("this capture can carry a split", "good")]
        witnesses = account.rounds.witnesses
        agreeing = f"{sum(w.agrees for w in witnesses)} of {count(len(witnesses), 'witness')}"
        lines.append(f"  {rounds_found(account.rounds)}; {agreeing} agree")
    else:
        lines = [style("this capture cannot carry a split", "bad")]
    lines += [fold(reason, width, indent=2, hang=4) for reason in result.reasons]
    if result.cautions:
        lines += ["keep in mind:"]
        lines += [fold(caution, width, indent=2, hang=4) for caution in result.cautions]
    if ranks_differ(account):
        lines += ["look at one process with --pid"]
    elif not result.passed:
        lines += ["capture again:", *(_to_paste(c, width) for c in result.command.split(" && "))]
    return "\n".join(lines)


def _to_paste(command: str, width: int) -> str:
    """A command broken as a shell takes it, between options and not behind one."""
    from nsysacct.layout import fold

    held = re.sub(r"(?<= )(--?[\w-]+) (?=[^-])", "\\1\N{NO-BREAK SPACE}", command)
    folded = fold(held, width - 2, indent=2, hang=4)
    return folded.replace("\n", " \\\n").replace("\N{NO-BREAK SPACE}", " ")
