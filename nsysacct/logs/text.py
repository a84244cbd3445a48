"""A log as text: decoded, without colours, by lines; JSON and Prometheus samples found in it."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from nsysacct.errors import LogError

_ANSI = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[@-Z\\\\^_])")
_NO_COUNT = re.compile(r"(?<![\d.])\d{19,}")
"""Whole numbers beyond 64 bits: damage, never a count; Python refuses to read the longest."""
_LINE_END = re.compile("\r\n|\n|\r")
_JSON_STARTS = 20
"""Opening braces tried in one line before it counts as no JSON."""
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{([^}]*)\})?\s+(-?[0-9][0-9.eE+-]*)(?:\s+\d+)?\s*$")
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),  # what PowerShell's redirection writes
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class Log:
    """Lines of a log (without colours and line ends), numbered from 1.

    ``first_line`` is the number of the first one, above 1 when only a range is read.
    """

    name: str
    lines: list[str] = field(repr=False)
    first_line: int = 1

    def numbered(self, *needles: str) -> Iterator[tuple[int, str]]:
        """Lines that hold one of `needles` (all of them without any), with their numbers."""
        for number, line in enumerate(self.lines, self.first_line):
            if not needles or any(n in line for n in needles):
                yield number, line

    @cached_property
    def documents(self) -> list[tuple[int, Any]]:
        """JSON values in the log with their line: the whole text, or one or more on a line."""
        text = "\n".join(self.lines).strip()
        if text.startswith(("{", "[")):
            try:
                return [(self.first_line, json.loads(text))]
            except (ValueError, RecursionError):
                pass  # JSON lines, or an ordinary log
        return [
            (number, value)
            for number, line in self.numbered('": ', '":')
            for value in _json_in(line)
        ]

    @cached_property
    def objects(self) -> list[tuple[int, dict[str, Any], dict[str, Any]]]:
        """All JSON objects at any depth, in order, as (line, object, the object that holds it)."""
        found: list[tuple[int, dict[str, Any], dict[str, Any]]] = []
        for number, document in self.documents:
            stack: list[tuple[Any, dict[str, Any]]] = [(document, {})]
            while stack:
                value, parent = stack.pop()
                if isinstance(value, dict):
                    found.append((number, value, parent))
                    stack += [(v, value) for v in reversed(value.values())]
                elif isinstance(value, list):
                    stack += [(v, parent) for v in reversed(value) if isinstance(v, dict | list)]
        return found

    def samples(self, prefix: str) -> dict[tuple[str, str], Series]:
        """Prometheus samples whose name starts with `prefix`, by (name without _total, labels)."""
        series: dict[tuple[str, str], Series] = {}
        for number, line in self.numbered(prefix):
            match = _SAMPLE.match(line)
            if match is None or not match[1].startswith(prefix):
                continue
            try:
                value = int(float(match[3]))
            except (ValueError, OverflowError):
                continue
            key = (match[1].removesuffix("_total"), match[2] or "")
            series.setdefault(key, Series()).add(number, value)
        return series


@dataclass(slots=True)
class Series:
    """A counter that only grows: ``value`` is its last reading plus those before a restart."""

    value: int = 0
    readings: int = 0
    lines: list[int] = field(default_factory=list)
    _last: int = 0

    def add(self, line: int, reading: int) -> None:
        """Take a later reading."""
        self.value += reading - self._last if reading >= self._last else reading
        self._last = reading
        self.readings += 1
        self.lines.append(line)


def load(source: str | bytes | Path, lines: tuple[int, int | None] | None = None) -> Log:
    """Read a log from a path, bytes or text.

    Parameters
    ----------
    source : path, bytes or str
        A str is the log's text, or a file's name when it is one line and such a file exists.
    lines : (first, last), optional
        Only these lines, 1-based and inclusive; `last` None = to the end.

    Raises
    ------
    LogError
        The file cannot be read, or the range holds no line.
    """
    name, text = _text(source)
    if text.startswith("SQLite format 3"):
        raise LogError(name, "is an SQLite file, not a log", "give what the run printed")
    rows = _LINE_END.split(_NO_COUNT.sub("?", _ANSI.sub("", text)))
    if rows and not rows[-1]:
        rows.pop()
    if lines is None:
        return Log(name, rows)
    first, last = lines
    chosen = rows[max(first, 1) - 1 : last]
    if not chosen:
        raise LogError(name, f"has {len(rows)} lines, none of them in the range", "widen --lines")
    return Log(name, chosen, max(first, 1))


def _text(source: str | bytes | Path) -> tuple[str, str]:
    if isinstance(source, bytes):
        return "log", _decoded(source)
    if isinstance(source, str):
        if "\n" in source or not _is_file(source):
            return "log", source
        source = Path(source)
    try:
        return source.name, _decoded(source.read_bytes())
    except OSError as failure:
        raise LogError(
            source.name, f"cannot be read ({failure.strerror})", "check the path"
        ) from None


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # too long, or a NUL in it: no name
        return False


def _decoded(raw: bytes) -> str:
    encoding = next((e for bom, e in _BOMS if raw.startswith(bom)), "utf-8")
    return raw.decode(encoding, "replace")


def _json_in(line: str) -> Iterator[Any]:
    decoder, start = json.JSONDecoder(), line.find("{")
    for _ in range(_JSON_STARTS):
        if start < 0:
            return
        try:
            value, end = decoder.raw_decode(line, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            yield value
        start = line.find("{", end)


def whole(document: dict[str, Any], key: str) -> int | None:
    """Return the count under `key`; None when it is missing or no whole number of at least 0."""
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value >= 0 and value == int(value) else None


def counts(value: Any) -> list[int] | None:
    """Return a histogram written as ``[c0, c1, ..]`` or ``{"0": c0, ..}``, None for others."""
    if isinstance(value, dict):
        if not value or not all(str(key).isdecimal() for key in value):
            return None
        sparse = {int(key): count for key, count in value.items()}
        if max(sparse) > 4096:
            return None
        value = [sparse.get(i, 0) for i in range(max(sparse) + 1)]
    if not isinstance(value, list) or not value:
        return None
    if any(isinstance(c, bool) or not isinstance(c, int) or c < 0 for c in value):
        return None
    return list(value)
