"""``nsysacct explain``: the account in half a page of words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nsysacct.bottleneck import parse_bytes
from nsysacct.cli._econ import (
    Page,
    Section,
    Table,
    account_argument,
    emit,
    format_option,
    plain_option,
)
from nsysacct.cli._help import page
from nsysacct.cli._inputs import account_of
from nsysacct.cli._options import trace_options
from nsysacct.explain import Sentence, explain

if TYPE_CHECKING:
    from nsysacct.account import Options
    from nsysacct.model import Account


@page("explain")
@account_argument
@click.option("--weight-bytes", metavar="SIZE", help="Weights a plain step reads, e.g. 14.4GB.")
@click.option("--active-bytes", metavar="SIZE", help="Of a MoE: what one token reads.")
@click.option("--peak-memory", metavar="SIZE", help="Most GPU memory in use, e.g. 23GB.")
@plain_option
@trace_options
@format_option
def command(
    account: str,
    weight_bytes: str | None,
    active_bytes: str | None,
    peak_memory: str | None,
    plain_ms: float | None,
    plain_from: Account | None,
    options: Options,
    fmt: str,
    output: str | None,
    force: bool,
) -> None:
    """Explain whether speculation pays here, why, and what would change it.

    \b
    Examples:
      nsysacct explain run.json --weight-bytes 14.4GB
      nsysacct explain spec.sqlite --log run.log --plain-from plain.sqlite
    """
    found = explain(
        account_of(account, options),
        plain_ms=plain_ms,
        plain_from=plain_from,
        weight_bytes=parse_bytes(weight_bytes) if weight_bytes else None,
        active_bytes=parse_bytes(active_bytes) if active_bytes else None,
        peak_memory_bytes=parse_bytes(peak_memory) if peak_memory else None,
    )
    sections = {
        "Answer": found.answer,
        "Where the time goes": found.time,
        "Best levers": found.levers,
        "Five steps": found.steps,
        "Reasons to give up": found.give_up,
        "Not visible": found.missing,
    }
    rows = [
        [title, s.topic, s.state, s.text, s.basis, s.how]
        for title, sentences in sections.items()
        for s in sentences
    ]
    page = Page(
        "explain",
        found,
        [],
        sections=[Section(t, [_line(s) for s in said]) for t, said in sections.items() if said],
        csv=Table("", ["section", "topic", "state", "text", "basis", "how"], rows),
    )
    emit(page, fmt, output, force)


def _line(sentence: Sentence) -> str:
    text = sentence.text
    if sentence.state:
        text = f"{sentence.topic} ({sentence.state}): {text}"
    if sentence.basis:
        text += f" [{sentence.basis}]"
    if sentence.how:
        text += f" -> {sentence.how}"
    return text
