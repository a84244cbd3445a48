"""What the economics commands share: options, reading accounts, tables in four formats."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeVar

import click
import msgspec

from nsysacct import layout
from nsysacct.cli._base import FILE, force_option, output_option, terminal_width, write_output
from nsysacct.cli._inputs import account_of
from nsysacct.cli._numbers import TIME_MS
from nsysacct.cli._text import csv_cell
from nsysacct.economics import Costs, calibrated, costs_of
from nsysacct.errors import UsageError
from nsysacct.gate_output import md
from nsysacct.model import Account
from nsysacct.wire import dump_document

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("text", "json", "markdown", "csv")


def account_argument(function: F) -> F:
    """Add the argument that names an account."""
    return click.argument("account", metavar="TRACE|ACCOUNT.json", type=FILE)(function)


def format_option(function: F) -> F:
    """Add ``--format``, ``--output`` and ``--force``."""
    option = click.option(
        "--format", "fmt", type=click.Choice(FORMATS), default="text", show_default=True,
        help="How to print the answer.",
    )  # fmt: skip
    return option(output_option(force_option(function)))


def plain_option(function: F) -> F:
    """Add ``--plain-ms`` and ``--plain-from``; the latter arrives as an account."""
    given = click.option(
        "--plain-ms", type=TIME_MS, metavar="MS",
        help="Wall of one plain decode step; overrides the account's.",
    )  # fmt: skip
    other = click.option(
        "--plain-from", metavar="TRACE|JSON", type=FILE, callback=_plain_account,
        help="Capture of the same run without speculation: its plain step.",
    )  # fmt: skip
    return given(other(function))


def _plain_account(
    context: click.Context, parameter: click.Parameter, path: str | None
) -> Account | None:
    return account_of(path) if path else None


def unprofiled_option(function: F) -> F:
    """Add ``--unprofiled-ms-per-token``."""
    return click.option(
        "--unprofiled-ms-per-token", "unprofiled", metavar="A[,B]",
        help="Unprofiled ms a token, plain (A) and speculative (B): absolute figures follow "
        "them, shares stay the trace's.",
    )(function)  # fmt: skip


def costs_with(
    account: Account,
    plain_ms: float | None,
    plain_from: Account | None,
    unprofiled: str | None,
) -> Costs:
    """Return the account's costs, calibrated when unprofiled figures are given."""
    costs = costs_of(account, plain_ms=plain_ms, plain_from=plain_from)
    if unprofiled is None:
        return costs
    figures = numbers("--unprofiled-ms-per-token", unprofiled)
    if len(figures) > 2:
        raise UsageError("--unprofiled-ms-per-token", f"{len(figures)} figures", "give A or A,B")
    return calibrated(costs, *figures)


def numbers(option: str, text: str) -> list[float]:
    """Return the numbers of a comma-separated list."""
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(option, f"{text!r} is no list of numbers", "write 0.4,0.6") from None
    if any(value != value or abs(value) == float("inf") for value in found):
        raise UsageError(option, f"{text!r} is not finite", "write 0.4,0.6")
    return found


def counts(option: str, text: str) -> tuple[int, ...]:
    """Return the whole numbers of a comma-separated list."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise UsageError(option, f"{text!r} is no list of counts", "write 27,2,6,7") from None


def exact(option: str, text: str) -> Fraction:
    """Return a decimal as the fraction it stands for."""
    try:
        # 1e99999999 as a fraction has as many digits and takes hours
        if len(text) > 40 or len(text.lower().partition("e")[2].lstrip("+-")) > 2:
            raise ValueError
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise UsageError(option, f"{text!r} is no number", "write 1.385") from None


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as they are printed; `title` is left out of CSV, `text` replaces all in a terminal."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Sentences under a title; left out of CSV."""

    title: str
    sentences: list[str]


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: `document` for JSON, the rest for people (CSV: the first table).

    `head` and `notes` are sentences, one line each: every format breaks them in its own way.
    `csv` is for an answer without tables.
    """

    kind: str
    document: Any
    tables: list[Table]
    head: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    csv: Table | None = None


def emit(page: Page, fmt: str, output: str | None, force: bool) -> None:
    """Print a page in a format, or write it to a file."""
    write_output(output, _RENDER[fmt](page), force=force, data=fmt in ("json", "csv"))


def cell(value: float | None, digits: int = 3, unit: str = "") -> str:
    """Return a figure, or a dash for one that is unknown."""
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def span(low: float | None, high: float | None, digits: int = 2, unit: str = "") -> str:
    """Return a range, one figure when its ends print alike."""
    first, last = cell(low, digits), cell(high, digits)
    return (first if first == last else f"{first}-{last}") + (unit if first != "-" else "")


def _json(page: Page) -> str:
    body = msgspec.to_builtins(page.document)
    schema = {"kind": f"nsysacct/{page.kind}", "version": 1}
    text = dump_document({"schema": schema, **body})
    return text if text.endswith("\n") else text + "\n"


def _text(page: Page) -> str:
    blocks = ["\n".join(wrapped(line, hang=2) for line in page.head)] if page.head else []
    blocks += [_section_text(section) for section in page.sections]
    blocks += [table_text(table).removesuffix("\n") for table in page.tables]
    if page.notes:
        blocks.append("\n".join(wrapped(f"note: {note}", hang=6) for note in page.notes))
    return "\n\n".join(blocks) + "\n"


def _section_text(section: Section) -> str:
    return "\n".join([section.title, *(wrapped(s, indent=2, hang=4) for s in section.sentences)])


def wrapped(text: str, *, indent: int = 0, hang: int = 0) -> str:
    """Fold a line to the terminal (80 columns elsewhere), continued `hang` columns in."""
    return layout.fold(text, terminal_width(), indent=indent, hang=hang)


def table_text(given: Table) -> str:
    """Title, column heads and rows, aligned for a terminal."""
    if given.text:
        return given.text + "\n"
    title = [wrapped(given.title)] if given.title else []
    lines = layout.table([given.columns, *given.rows], terminal_width())
    return "\n".join([*title, *lines]) + "\n"


def _markdown(page: Page) -> str:
    blocks = ["\n\n".join(map(md, page.head))] if page.head else []
    for section in page.sections:
        bullets = "\n".join(f"- {md(sentence)}" for sentence in section.sentences)
        blocks.append(f"### {md(section.title)}\n\n{bullets}")
    for table in page.tables:
        lines = [f"### {md(table.title)}", ""] if table.title else []
        lines.append("| " + " | ".join(table.columns) + " |")
        lines.append("|" + " --- |" * len(table.columns))
        lines += ["| " + " | ".join(map(md, row)) + " |" for row in table.rows]
        blocks.append("\n".join(lines))
    if page.notes:
        blocks.append("\n".join(f"- {md(note)}" for note in page.notes))
    return "\n\n".join(blocks) + "\n"


def _csv(page: Page) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    table = page.csv or page.tables[0]
    writer.writerows([csv_cell(word) for word in row] for row in [table.columns, *table.rows])
    return out.getvalue()


_RENDER: dict[str, Callable[[Page], str]] = {
    "text": _text,
    "json": _json,
    "markdown": _markdown,
    "csv": _csv,
}
