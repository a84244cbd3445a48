"""Accounts as HTML for notebooks: tables that need no script and read well in light and dark.

Importing this module gives the structures of `model` their ``_repr_html_``. Every text of a trace
is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from nsysacct import account_tables
from nsysacct.account_tables import Table
from nsysacct.model import (
    Account,
    BlindSpot,
    Bucket,
    Finding,
    ProcessAccount,
    RoundRow,
    Rounds,
)
from nsysacct.wording import headline

MOST_ROUNDS = 12
"""Rounds that an account shows; `frames.rounds` has all."""


def table_html(table: Table, caption: str = "") -> str:
    """HTML of a table: its first column names the rows, columns of numbers are right-aligned."""
    if not table.rows:
        return ""
    title = f"<caption style='text-align:left'>{escape(caption)}</caption>" if caption else ""
    sides = ["right" if i in table.numeric else "left" for i in range(len(table.columns))]
    top = "".join(
        f"<th scope='col' style='text-align:{side}'>{escape(name)}</th>"
        for name, side in zip(table.columns, sides, strict=True)
    )
    body = "".join(f"<tr>{_cells(row, sides)}</tr>" for row in table.rows)
    return f"<table>{title}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _cells(row: Sequence[str], sides: Sequence[str]) -> str:
    first, *rest = zip(row, sides, strict=True)
    return f"<th scope='row' style='text-align:{first[1]}'>{escape(first[0])}</th>" + "".join(
        f"<td style='text-align:{side}'>{escape(cell)}</td>" for cell, side in rest
    )


def process_html(account: ProcessAccount) -> str:
    """One (process, GPU): rounds found, the split, and what the count rests on."""
    known = f"pid {account.pid} on GPU {account.gpu}"
    return f"<p>{escape(known)}</p>{_main(account)}"


def _main(account: ProcessAccount) -> str:
    why = "".join(f"<p>{escape(reason)}</p>" for reason in account.rounds.reasons)
    return (
        f"<p><b>{escape(headline(account))}</b></p>{why}"
        + table_html(account_tables.split(account))
        + _counts(account.rounds)
        + table_html(account_tables.blind_spots(account.blind_spots), "blind spots")
        + table_html(account_tables.findings(account.findings), "findings")
    )


def _counts(rounds: Rounds) -> str:
    return table_html(account_tables.signatures(rounds), "counted") + table_html(
        account_tables.witnesses(rounds), "other counts of rounds"
    )


def rounds_html(rounds: Rounds) -> str:
    """The count, its verdict, and what it rests on."""
    found = "no" if rounds.value is None else str(rounds.value)
    why = "".join(f"<p>{escape(reason)}</p>" for reason in rounds.reasons)
    return f"<p><b>{found} rounds</b>, {escape(rounds.verdict)}</p>{why}{_counts(rounds)}"


def account_html(account: Account) -> str:
    """Whole account: source, rounds, split, blind spots, findings, processes, first rounds."""
    trace = account.trace
    facts = (trace.name, trace.gpu, f"engine {account.engine.name}", account.selection)
    parts = [f"<p>{escape(' | '.join(fact for fact in facts if fact))}</p>", _main(account)]
    parts.append(table_html(account_tables.processes(account), "processes and GPUs"))
    if account.per_round:
        more = len(account.per_round) - MOST_ROUNDS
        tail = f"<p>{more} more: nsysacct.frames.rounds(account)</p>" if more > 0 else ""
        shown = table_html(account_tables.rounds(account.per_round[:MOST_ROUNDS]))
        parts.append(f"<details><summary>rounds</summary>{shown}{tail}</details>")
    return "".join(parts)


_HTML: dict[type, Callable[[Any], str]] = {
    ProcessAccount: process_html,
    Account: account_html,
    Rounds: rounds_html,
    Bucket: lambda bucket: table_html(account_tables.buckets([bucket])),
    BlindSpot: lambda spot: table_html(account_tables.blind_spots([spot])),
    Finding: lambda finding: table_html(account_tables.findings([finding])),
    RoundRow: lambda row: table_html(account_tables.rounds([row])),
}
for _kind, _function in _HTML.items():
    _kind._repr_html_ = _function  # type: ignore[attr-defined]
