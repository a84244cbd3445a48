"""``nsysacct rounds``: one row a round."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from nsysacct.cli._base import FILE, force_option, output_option, terminal_width, write_output
from nsysacct.cli._help import page
from nsysacct.cli._inputs import account_of
from nsysacct.cli._options import trace_options

if TYPE_CHECKING:
    from nsysacct.account import Options
    from nsysacct.model import ProcessAccount, RoundRow

COLUMNS = ("start", "wall", "draft", "verify", "replay", "residual")
PERCENTILES = (50, 90, 99)


@page("rounds")
@click.argument("trace", type=FILE)
@trace_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "csv", "json"]),
    default="text",
    show_default=True,
    help="How to print it.",
)
@output_option
@force_option
def command(trace: str, options: Options, form: str, output: str | None, force: bool) -> None:
    """List the rounds of TRACE: start, wall, draft, verify, replay, residual, launches, width, n_ok.

    Rounds count from 0, as in JSON, Parquet, Perfetto and figures. Warm-up and outlier rounds are
    flagged; percentiles leave them, and partial rounds, out.

    \b
    Examples:
      nsysacct rounds trace.sqlite
      nsysacct rounds trace.sqlite --format csv -o rounds.csv
    """
    account = account_of(trace, options)
    body = {"text": as_text, "csv": as_csv, "json": as_json}[form](account)
    write_output(output, body, force=force, data=form != "text")


def as_text(account: ProcessAccount) -> str:
    """Aligned table with percentiles below."""
    from nsysacct.layout import count, fold, table

    width = terminal_width()
    rounds = account.per_round
    if not rounds:
        said = ["no rounds", *account.rounds.reasons]
        return "\n".join(
            fold(line, width, indent=2 * (i > 0), hang=4) for i, line in enumerate(said)
        )
    widths = {r.width for r in rounds}
    alike = next(iter(widths)) if len(widths) == 1 else None
    each = f", each verifies {count(alike, 'row')}" if alike is not None else ""
    head = f"{count(len(rounds), 'round')}, counted from 0{each}; ms, start on the trace's clock"
    clean = [r for r in rounds if not r.flags]
    rows = [["round", *COLUMNS, "launches", "rows", "n_ok", "flags"]]
    rows += [_cells(r, alike) for r in rounds]
    for p in PERCENTILES:
        values = [_percentile([_ns(r, c) for r in clean], p) for c in COLUMNS[1:]]
        figures = ["" if v is None else f"{v / 1e6:.3f}" for v in values]
        rows.append([f"p{p}", "", *figures, "", "", "", ""])
    left_out = len(rounds) - len(clean)
    foot = f"percentiles over {count(len(clean), 'round')}"
    foot += f", {left_out} flagged left out" if left_out else ""
    return "\n".join([fold(head, width), "", *table(rows, width), "", fold(foot, width)]) + "\n"


def _cells(r: RoundRow, alike: int | None) -> list[str]:
    """Cells of a round; a width that all rounds have is not repeated."""
    return [
        str(r.index),
        *(f"{_ns(r, c) / 1e6:.3f}" for c in COLUMNS),
        str(r.launches),
        "" if r.width is None or alike is not None else str(r.width),
        "" if r.n_ok is None else str(r.n_ok),
        " ".join(r.flags),
    ]


def _ns(r: RoundRow, column: str) -> int:
    value: int = getattr(r, f"{column}_ns")
    return value


def _percentile(values: Sequence[int], p: int) -> float | None:
    """Linear interpolation between order statistics."""
    if not values:
        return None
    ordered = sorted(values)
    at = (len(ordered) - 1) * p / 100
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def as_csv(account: ProcessAccount) -> str:
    """One line a round; all fields, ns as integers, flags joined by blanks."""
    from nsysacct.model import RoundRow

    names = list(RoundRow.__struct_fields__)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    for r in account.per_round:
        values = msgspec.structs.asdict(r)
        values["flags"] = " ".join(r.flags)
        writer.writerow(["" if values[n] is None else values[n] for n in names])
    return file.getvalue()


def as_json(account: ProcessAccount) -> str:
    """Object with the rows and their percentiles."""
    clean = [r for r in account.per_round if not r.flags]
    document = {
        "schema": {"kind": "nsysacct/rounds", "version": 1},
        "rounds": [msgspec.to_builtins(r) for r in account.per_round],
        "percentiles": {
            f"p{p}": {f"{c}_ns": _percentile([_ns(r, c) for r in clean], p) for c in COLUMNS[1:]}
            for p in PERCENTILES
        },
    }
    return json.dumps(document, indent=1) + "\n"
