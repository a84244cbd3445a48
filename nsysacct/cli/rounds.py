"""``nsysacct rounds``: one row a round."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from nsysacct.cli._base import force_option, output_option, write_output
from nsysacct.cli._inputs import account_of
from nsysacct.cli._options import trace_options

if TYPE_CHECKING:
    from nsysacct.account import Options
    from nsysacct.model import ProcessAccount, RoundRow

COLUMNS = ("start", "wall", "draft", "verify", "replay", "residual")
PERCENTILES = (50, 90, 99)


@click.command("rounds")
@click.argument("trace", type=click.Path())
@trace_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "csv", "json"]),
    default="text",
    show_default=True,
)
@output_option
@force_option
def command(trace: str, options: Options, form: str, output: str | None, force: bool) -> None:
    """List the rounds of TRACE: start, wall, draft, verify, replay, residual, launches, width, n_ok.

    Warm-up and outlier rounds are flagged; percentiles leave them, and partial rounds, out.

    \b
    Examples:
      nsysacct rounds trace.sqlite
      nsysacct rounds trace.sqlite --format csv -o rounds.csv
    """
    account = account_of(trace, options)
    body = {"text": as_text, "csv": as_csv, "json": as_json}[form](account)
    write_output(output, body, force=force)


def as_text(account: ProcessAccount) -> str:
    """Aligned table with percentiles below."""
    if not account.per_round:
        reasons = "; ".join(account.rounds.reasons)
        return f"no rounds{': ' + reasons if reasons else ''}\n"
    head = ["round", *(f"{c} ms" for c in COLUMNS), "launches", "rows", "n_ok", ""]
    rows = [head, *(_cells(r) for r in account.per_round)]
    widths = [max(len(r[i]) for r in rows) for i in range(len(head) - 1)]
    lines = [
        "  ".join(c.rjust(w) for c, w in zip(r, widths, strict=False))
        + ("  " + r[-1] if r[-1] else "")
        for r in rows
    ]
    clean = [r for r in account.per_round if not r.flags]
    for p in PERCENTILES:
        values = [_percentile([_ns(r, c) for r in clean], p) for c in COLUMNS[1:]]
        cells = [f"p{p}", "", *(f"{v / 1e6:.3f}" if v is not None else "" for v in values)]
        lines.append("  ".join(c.rjust(w) for c, w in zip(cells, widths, strict=False)))
    left_out = len(account.per_round) - len(clean)
    lines.append(
        f"percentiles over {len(clean)} rounds"
        + (f", {left_out} flagged left out" if left_out else "")
    )
    return "\n".join(lines) + "\n"


def _cells(r: RoundRow) -> list[str]:
    return [
        str(r.index + 1),
        *(f"{_ns(r, c) / 1e6:.3f}" for c in COLUMNS),
        str(r.launches),
        "" if r.width is None else str(r.width),
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
