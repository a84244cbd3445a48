"""Progress while tables are read: on a terminal, after a second, one line at a time."""

from __future__ import annotations

import io

import pytest

from nsysacct.cli import _inputs, _progress


class Terminal(io.StringIO):
    """A text stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, seconds: float) -> str:
    """What two tables of three ranges each write, `seconds` apart."""
    now = [0.0]
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(
        _progress.Progress.__init__, "__kwdefaults__", {"stream": None, "clock": lambda: now[0]}
    )
    with _inputs.reading() as report:
        for table in ("KERNEL", "RUNTIME"):
            for done in (1_000_000, 2_000_000, 4_000_000):
                report(table, done, 4_000_000)
                now[0] += seconds
    return stream.getvalue()


def test_rate_and_time_left_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, Terminal(), 2.0)
    assert "reading KERNEL: 50 %, 2.0 M rows, 1.0 M rows/s, 2 s left" in text
    assert "reading RUNTIME: 100 %" in text
    assert text.endswith("\r")
    last = text.rstrip("\r").rpartition("\r")[2]
    assert not last.strip()


def test_nothing_is_shown_within_a_second_or_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shown(monkeypatch, Terminal(), 0.1) == ""
    assert shown(monkeypatch, io.StringIO(), 2.0) == ""
