"""``nsysacct compare``: two runs on one prompt, per-round figures side by side."""

from __future__ import annotations

import click

from nsysacct.cli._base import FILE
from nsysacct.cli._econ import Page, Table, cell, emit, format_option
from nsysacct.cli._help import page
from nsysacct.cli._inputs import account_of
from nsysacct.compare import Figure, compare


@page("compare")
@click.argument("first", metavar="TRACE|A.json", type=FILE)
@click.argument("second", metavar="TRACE|B.json", type=FILE)
@format_option
def command(first: str, second: str, fmt: str, output: str | None, force: bool) -> None:
    """Compare two engines on one prompt.

    Ratios are printed only when prompt length, k, rounds and card agree; else direction and
    magnitude.

    \b
    Examples:
      nsysacct compare kestrel.json llama.json
      nsysacct compare a.sqlite b.sqlite --format markdown
    """
    found = compare(account_of(first), account_of(second))
    rows = [
        [
            figure.name,
            figure.unit,
            cell(figure.a, _digits(figure)),
            cell(figure.b, _digits(figure)),
            cell(figure.ratio, 3) if found.fair else figure.relation,
        ]
        for figure in found.figures
    ]
    columns = ["figure", "unit", "a", "b", "a / b" if found.fair else "direction"]
    notes = list(found.notes)
    if not found.fair:
        notes.append("only direction and magnitude can be compared: " + "; ".join(found.unfair))
    head = [f"a: {found.a}", f"b: {found.b}"]
    emit(
        Page("compare", found, [Table("Per round", columns, rows)], head, notes), fmt, output, force
    )


def _digits(figure: Figure) -> int:
    return 0 if figure.unit in ("", "rows") else 3
