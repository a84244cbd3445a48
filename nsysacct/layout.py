"""Text and tables that fit a width: folded lines, aligned columns, and how figures are written."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence

Style = Callable[[str, str], str]
"""Colours a text: (text, style name) -> text; styles are "good", "bad", "warn", "dim", "bold"."""

GAP = 2
WIDE_CELL, NARROW_CELL = 24, 16
"""Widths below which a column of words is folded only where nothing else helps, and never."""

NUMBER = 6
"""Width up to which a first column that has figures is one of numbers and not of names."""

_UNIT = re.compile(r"(?<=\d) (?=(?:%|pp|x|ns|us|ms|s|GB|MB)(?![\w/]))")
_PIECE = re.compile(r"[^\s,;|/]*(?:\s+|[,;|/]+|$)")
_PART = re.compile(r"[^_:.-]*(?:[_:.-]+|$)")
_FIGURE = re.compile(r"[-+~]?\d")
_HELD = "\0"


def fold(text: str, width: int, *, indent: int = 0, hang: int = 0) -> str:
    """Break a paragraph into lines of `width`; a number keeps its unit.

    Parameters
    ----------
    text : str
        One paragraph.
    width : int
        Columns. A word that is longer is broken.
    indent, hang : int
        Blanks before the first line and before the others.

    Examples
    --------
    >>> print(fold("a step takes 13.2 ms", 18, hang=2))
    a step takes
      13.2 ms
    """
    held = _UNIT.sub(_HELD, text)
    folded = textwrap.fill(
        held,
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * hang,
        break_on_hyphens=False,
    )
    return folded.replace(_HELD, " ")


def share(value: float, digits: int = 1) -> str:
    """Share in percent.

    Examples
    --------
    >>> share(0.5804), share(0.94, 0)
    ('58.0 %', '94 %')
    """
    return f"{100 * value:.{digits}f} %"


def count(number: int, noun: str) -> str:
    """Number with its noun, in the plural where it takes one.

    Examples
    --------
    >>> count(1, "launch"), count(28, "launch"), count(0, "graph")
    ('1 launch', '28 launches', '0 graphs')
    """
    ending = "" if number == 1 else "es" if noun.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{number} {noun}{ending}"


def table(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    r"""Lines of a table whose first row is its head and whose first column names the rows.

    Figures stand right, words left; a column without a cell is left out. What is too wide for
    `width` gets narrower gaps, then folded words, and at last several blocks, each with the first
    column again.

    Examples
    --------
    >>> print("\n".join(table([("where", "ms"), ("draft", "1.25"), ("verify", "14.93")], 80)))
    where      ms
    draft    1.25
    verify  14.93
    """
    kept = [i for i in range(len(rows[0])) if i == 0 or any(row[i] for row in rows[1:])]
    # a line end in a name must not look like a further row
    columns = [[" ".join(row[i].splitlines()) for row in rows] for i in kept]
    for gap, least in ((GAP, WIDE_CELL), (1, WIDE_CELL), (1, NARROW_CELL)):
        widths = _shrunk(columns, width - gap * (len(columns) - 1), least)
        if sum(widths) + gap * (len(columns) - 1) <= width:
            return _lines(columns, widths, gap)
    return _blocks(columns, width)


def _is_figures(column: Sequence[str]) -> bool:
    cells = column[1:]
    return any(map(_FIGURE.match, cells)) and max(map(len, cells)) <= WIDE_CELL


def _shrunk(columns: Sequence[Sequence[str]], room: int, least: int) -> list[int]:
    """Widths of the columns, those of words taken down to `least` as far as `room` asks for it."""
    widths = [max(map(len, column)) for column in columns]
    words = [i for i, column in enumerate(columns) if i == 0 or not _is_figures(column)]
    while sum(widths) > room:
        widest = max(words, key=lambda i: widths[i])
        if widths[widest] <= max(least, len(columns[widest][0])):
            break
        widths[widest] -= 1
    return widths


def _lines(columns: Sequence[Sequence[str]], widths: Sequence[int], gap: int) -> list[str]:
    right = [
        _is_figures(column) and (i > 0 or widths[0] <= NUMBER) for i, column in enumerate(columns)
    ]
    lines = []
    for row in zip(*columns, strict=True):
        cells = [_folded(cell, width) for cell, width in zip(row, widths, strict=True)]
        for k in range(max(map(len, cells))):
            parts = [cell[k] if k < len(cell) else "" for cell in cells]
            placed = [
                part.rjust(width) if to_right else part.ljust(width)
                for part, width, to_right in zip(parts, widths, right, strict=True)
            ]
            lines.append((" " * gap).join(placed).rstrip())
    return lines


def _folded(cell: str, width: int) -> list[str]:
    """Break a cell behind blanks and the marks that names are made of; the rest hangs in."""
    if len(cell) <= width:
        return [cell]
    lines, line = [], ""
    pieces = []
    for piece in _PIECE.findall(cell):
        # a long name breaks behind its own marks only when it has to
        pieces += [piece] if len(piece.rstrip()) < width else _PART.findall(piece)
    for piece in filter(None, pieces):
        while len((line + piece).rstrip()) > width:
            if not line.strip():  # a piece that no line holds
                cut = width - len(line)
                line, piece = line + piece[:cut], piece[cut:]
            lines.append(line.rstrip())
            line = "  "
        line += piece
    return [*lines, line.rstrip()] if line.strip() else lines


def _blocks(columns: Sequence[Sequence[str]], width: int) -> list[str]:
    first, *others = columns
    widths = _shrunk(columns, 0, WIDE_CELL)
    lines: list[str] = []
    while others:
        count, used = 0, widths[0]
        while count < len(others) and (not count or used + GAP + widths[1 + count] <= width):
            used += GAP + widths[1 + count]
            count += 1
        taken = [first, *others[:count]]
        lines += [""] if lines else []
        lines += _lines(taken, [widths[0], *widths[1 : 1 + count]], GAP)
        others = others[count:]
        widths = [widths[0], *widths[1 + count :]]
    return lines


def ms(ns: float | None) -> str:
    """Milliseconds with as many digits as are worth reading; "open" when unknown."""
    if ns is None:
        return "open"
    value = ns / 1e6
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.3f}"


def plain(text: str, style: str) -> str:
    """No colour."""
    del style
    return text


_CODES = {"good": "32", "bad": "31", "warn": "33", "dim": "2", "bold": "1"}
CODE = re.compile(r"\x1b\[[0-9;]*m")


def ansi(text: str, style: str) -> str:
    """Colour for a terminal."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"
