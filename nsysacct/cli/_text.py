"""Terminal-safe text: a trace may hold any byte, a terminal must not obey it."""

from __future__ import annotations

import os
import re
import sys
from typing import IO

_KEPT = "\n\t"
# the codes that our own styles use and no other: in a name from a trace they can do no harm
_COLOUR = re.compile("(\x1b\\[(?:0|1|2|31|32|33)m)")


def printable(text: str, *, one_line: bool = False, keep_colours: bool = False) -> str:
    r"""`text` with control characters written out instead of sent to the terminal.

    Parameters
    ----------
    text : str
        Anything, names from a trace included.
    one_line : bool
        Also join lines and runs of blanks into one line.
    keep_colours : bool
        Let the few colour codes of our own styles through.

    Returns
    -------
    str
        C0 and C1 controls, line separators, bidirectional overrides and lone surrogates become
        ``\xNN`` or ``\uNNNN``; new line and tab stay unless `one_line`.

    Examples
    --------
    >>> print(printable("k\x1b[2J<3>"))
    k\x1b[2J<3>
    >>> printable("two\n  lines", one_line=True)
    'two lines'
    """
    if one_line:
        text = " ".join(text.split())
    # nearly all text is plain: let one fast check decide
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    if keep_colours:
        parts = _COLOUR.split(text)  # text, code, text, code, .., text
        return "".join(p if i % 2 else printable(p) for i, p in enumerate(parts))
    return "".join(c if c in _KEPT or _harmless(c) else _written_out(c) for c in text)


def _harmless(character: str) -> bool:
    # str.isprintable is False for controls, surrogates, separators (except the space) and
    # formatting characters such as the bidirectional overrides that can disguise a name
    return character.isprintable() or character in "\N{NO-BREAK SPACE}\N{IDEOGRAPHIC SPACE}"


def _written_out(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_FIGURE = re.compile(r"[-+]?(?:[\d.,]+(?:e[-+]?\d+)?(?: ?(?:%|pp|[a-z]{1,2}))?)?")


def csv_cell(text: str) -> str:
    r"""`text` as one cell of a CSV file: spreadsheets run what starts like a formula.

    Examples
    --------
    >>> csv_cell("=1+1"), csv_cell("-0.5"), csv_cell("-")
    ("'=1+1", '-0.5', '-')
    """
    text = printable(text, one_line=True)
    return (
        f"'{text}"
        if text.startswith(("=", "+", "-", "@")) and not _FIGURE.fullmatch(text)
        else text
    )


_PLAIN = {
    "→": "->", "←": "<-", "±": "+-", "…": "~", "×": "x", "·": ".", "–": "-", "—": "-", "µ": "u",
    "≤": "<=", "≥": ">=", "‘": "'", "’": "'", "“": '"', "”": '"', "✅": "OK", "❌": "X", "⚠️": "!",
}  # fmt: skip
"""What our own signs are on a console that lacks them."""


def encodable(text: str, stream: IO[str]) -> str:
    """`text` with what the encoding of `stream` lacks replaced, so that printing cannot fail.

    Our own signs become plain ones, other characters a question mark.
    """
    encoding = getattr(stream, "encoding", None) or "ascii"
    try:
        "".encode(encoding)
    except LookupError:
        encoding = "ascii"
    if _fits(text, encoding):
        return text
    for sign, plain in _PLAIN.items():
        if sign in text and not _fits(sign, encoding):
            text = text.replace(sign, plain)
    return text.encode(encoding, "replace").decode(encoding, "replace")


def _fits(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def on_terminal(stream: IO[str] | None) -> bool:
    """Whether `stream` is a terminal that a person looks at."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def wants_colour(stream: IO[str] | None = None) -> bool:
    """Whether to colour: a terminal, not a dumb one, and no NO_COLOR (no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    if os.name == "nt" and not (os.environ.get("WT_SESSION") or os.environ.get("TERM")):
        return False  # an old console prints the codes
    return on_terminal(stream if stream is not None else sys.stdout)
