"""A diff for readers and machines: text, Markdown, JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nsysacct.diff import Diff, Moved
from nsysacct.gate_output import md
from nsysacct.layout import fold, table
from nsysacct.quantities import clean, duration, percent, short, significant
from nsysacct.wire import dump_document

DIFF_KIND = "nsysacct/diff"
MARKDOWN_LINES = 40
"""Signature lines of a Markdown diff; the largest changes come first in each family."""

COLUMNS = ("where", "base", "head", "change", "by count", "by duration", "launches", "each", "why")


def text(found: Diff, width: int = 80) -> str:
    """Plain text: total, residual, then bucket, family, signature, largest change first."""
    moved = list(_lines(found))
    rows = [COLUMNS, *(_cells(line, depth) for line, depth in moved)]
    lines = [*fold(_title(found), width).split("\n"), ""]
    whole = table(rows, 10**6)
    if max(map(len, whole)) <= width:
        lines += whole
    else:
        lines += _two_lines(rows, moved, width)
    lines += [""] if found.notes else []
    lines += [fold(f"note: {clean(note)}", width, hang=6) for note in found.notes]
    return "\n".join(lines) + "\n"


def _two_lines(
    rows: Sequence[tuple[str, ...]], moved: Sequence[tuple[Moved, int]], width: int
) -> list[str]:
    """Each row in two lines: its times, and, where it changed, in percent and why."""
    times = [(row[0], *row[1:3], change, *row[4:6]) for row, change in zip(
        rows, [COLUMNS[3], *(_signed(line.delta_ns) for line, _ in moved)], strict=True)]  # fmt: skip
    widths = [max(len(row[i]) for row in times) for i in range(len(times[0]))]
    room = width - sum(widths[1:]) - 2 * (len(widths) - 1)
    first = max(min(widths[0], room), len(COLUMNS[0]))
    lines = []
    for i, row in enumerate(times):
        name = row[0]
        if len(name) > first:
            indent = len(name) - len(name.lstrip())
            lines += fold(name.strip(), width, indent=indent, hang=indent + 2).split("\n")
            name = ""
        figures = "  ".join(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))
        lines.append(f"{name:{first}}  {figures}")
        if i and (said := _changed(*moved[i - 1], rows[i])):
            lines += fold(said, width, indent=6, hang=6).split("\n")
    return lines


def _changed(line: Moved, depth: int, cells: tuple[str, ...]) -> str:
    """Percent, reason, launches and time of one launch of a row that changed.

    Empty also where the only row below says the same.
    """
    if not line.delta_ns or len(line.parts) == 1:
        return ""
    launches, each, why = cells[6:]
    parts = ["" if line.ratio is None else percent(line.ratio), why]
    if launches:
        parts.append(f"launches {launches}")
    if each and (depth or line.name != "total"):
        parts.append(f"each {each}")
    return ", ".join(part for part in parts if part)


def markdown(found: Diff) -> str:
    """Markdown table; at most `MARKDOWN_LINES` lines, then how many are left out."""
    lines = [f"## {md(_title(found))}", "", "| " + " | ".join(COLUMNS) + " |"]
    lines.append("|---|" + "--:|" * (len(COLUMNS) - 2) + "---|")
    rows = list(_lines(found))
    for line, depth in rows[:MARKDOWN_LINES]:
        cells = _cells(line, depth)
        name = "&nbsp;" * 2 * depth + md(cells[0].strip())
        lines.append("| " + " | ".join([name, *map(md, cells[1:])]) + " |")
    if len(rows) > MARKDOWN_LINES:
        lines += ["", f"and {len(rows) - MARKDOWN_LINES} further lines"]
    lines += ["", *(f"> {md(note)}" for note in found.notes)] if found.notes else []
    return "\n".join(lines) + "\n"


def document(found: Diff) -> dict[str, Any]:
    """Diff as a JSON object (kind ``nsysacct/diff``, version 1); times in ns per ``per``."""
    return {
        "schema": {"kind": DIFF_KIND, "version": 1},
        "per": found.per,
        "base": list(found.base_names),
        "head": list(found.head_names),
        "total": _moved(found.total, "parts"),
        "residual": _moved(found.residual, "parts"),
        "buckets": [_moved(bucket, "families") for bucket in found.buckets],
        "notes": list(found.notes),
    }


def as_json(found: Diff) -> str:
    """Diff as JSON text (`document`)."""
    return dump_document(document(found))


FORMATS: dict[str, Callable[[Diff], str]] = {"text": text, "markdown": markdown, "json": as_json}
"""Name of a format -> its writer."""


def _title(found: Diff) -> str:
    names = [", ".join(short(n, 40) for n in side) for side in (found.base_names, found.head_names)]
    return f"{names[0]} → {names[1]}, per {found.per}"


def _lines(found: Diff) -> Iterator[tuple[Moved, int]]:
    """Lines with their depth, without buckets that are empty on both sides."""
    yield found.total, 0
    yield found.residual, 0
    for bucket in found.buckets:
        if not bucket.base_ns and not bucket.head_ns:
            continue
        yield bucket, 0
        for family in bucket.parts:
            yield family, 1
            for line in family.parts:
                yield line, 2


def _cells(line: Moved, depth: int) -> tuple[str, ...]:
    launches = each = ""
    if line.base_count or line.head_count:
        launches = _arrow(significant(line.base_count), significant(line.head_count))
        each = _arrow(_each(line.base_each_ns), _each(line.head_each_ns))
    change = f"{_signed(line.delta_ns)} ({percent(line.ratio)})"
    if line.ratio is None:
        change = _signed(line.delta_ns)
    return (
        "  " * depth + (short(line.name, 48) or "(no family)"),
        duration(line.base_ns),
        duration(line.head_ns),
        change,
        _signed(line.count_ns),
        _signed(line.duration_ns),
        launches,
        each,
        line.why if line.name not in ("total", "residual") else "",
    )


def _arrow(base: str, head: str) -> str:
    return base if base == head else f"{base} → {head}"


def _each(ns: float | None) -> str:
    return "-" if ns is None else duration(ns)


def _signed(ns: float) -> str:
    if ns == 0:
        return "0"
    return ("+" if ns > 0 else "") + duration(ns)


def _moved(line: Moved, parts: str) -> dict[str, Any]:
    finer = {"families": "signatures"}.get(parts, "")
    result: dict[str, Any] = {
        "name": line.name,
        "base_ns": line.base_ns,
        "head_ns": line.head_ns,
        "delta_ns": line.delta_ns,
        "count_ns": line.count_ns,
        "duration_ns": line.duration_ns,
        "other_ns": line.other_ns,
        "base_count": line.base_count,
        "head_count": line.head_count,
        "base_each_ns": line.base_each_ns,
        "head_each_ns": line.head_each_ns,
        "why": line.why,
    }
    if parts in ("families", "signatures"):
        result[parts] = [_moved(part, finer) for part in line.parts]
    return result
