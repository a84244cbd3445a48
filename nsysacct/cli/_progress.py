"""Progress on stderr: only on a terminal, only when it takes longer than a second."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import IO

from nsysacct.cli._text import encodable, on_terminal, printable

FIRST_S = 1.0
"""Nothing is shown before, since most commands are done by then."""
EVERY_S = 0.1


class Progress:
    """Context manager that shows how far a job is, how fast, and the time left.

    Call it with the amount done so far; library code takes it as a plain callable.

    Parameters
    ----------
    label : str
        What is being done.
    total : int, optional
        Amount when done; without it no share and no time left are shown.
    unit : str
        What is counted, plural.
    patience : float
        Seconds before anything is shown.
    stream : text stream, optional
        Default stderr.
    clock : callable
        Seconds, monotonic.

    Examples
    --------
    >>> with Progress("reading", total=2, unit="files") as progress:
    ...     progress(1)
    ...     progress(2)
    """

    def __init__(
        self,
        label: str,
        total: int | None = None,
        unit: str = "rows",
        *,
        patience: float = FIRST_S,
        stream: IO[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.label = label
        self.total = total
        self.unit = unit
        self._stream = stream if stream is not None else sys.stderr
        self._clock = clock
        self._enabled = on_terminal(self._stream)
        self._columns = _columns(self._stream)
        self._patience = patience
        self._start = clock()
        self._next = self._start + patience
        self._shown = 0

    def __enter__(self) -> Progress:
        """Start the clock."""
        self._start = self._clock()
        self._next = self._start + self._patience
        return self

    @property
    def was_shown(self) -> bool:
        """Whether the line has been seen."""
        return self._shown > 0

    def __call__(self, done: int, total: int | None = None) -> None:
        """Say that `done` units are finished (of `total`, when it is known only now)."""
        if total is not None:
            self.total = total
        now = self._clock()
        if not self._enabled or now < self._next:
            return
        self._next = now + EVERY_S
        self._show(progress_line(self.label, done, self.total, self.unit, now - self._start))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wipe the line, so that the answer or the error stands alone."""
        if self._shown:
            self._write("\r" + " " * self._shown + "\r")

    def _show(self, line: str) -> None:
        line = printable(line, one_line=True)
        line = line[: self._columns - 1]  # what wraps cannot be wiped
        self._write("\r" + line.ljust(self._shown))
        self._shown = len(line)

    def _write(self, text: str) -> None:
        # a lost terminal must not stop the job
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(encodable(text, self._stream))
            self._stream.flush()


def _columns(stream: IO[str]) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):  # no terminal, or none that tells
        return 80


def progress_line(label: str, done: int, total: int | None, unit: str, elapsed_s: float) -> str:
    """Text of a progress line.

    Examples
    --------
    >>> progress_line("reading", 2_000_000, 8_000_000, "rows", 4.0)
    'reading: 25 %, 2.0 M rows, 500 k rows/s, 12 s left'
    """
    rate = done / elapsed_s if elapsed_s > 0 else 0.0
    parts = [f"{done / total:.0%}".replace("%", " %")] if total else []
    parts += [f"{_short(done)} {unit}", f"{_short(rate)} {unit}/s"]
    if total and rate and done <= total:
        parts.append(f"{_duration((total - done) / rate)} left")
    return f"{label}: {', '.join(parts)}"


def _short(number: float) -> str:
    for limit, suffix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= limit:
            value = number / limit
            return f"{value:.1f}{suffix}" if value < 10 else f"{value:.0f}{suffix}"
    return f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
