"""Progress while tables are read: on a terminal, after a second, one line at a time."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from nsysacct.account import account
from nsysacct.cli import _inputs, _progress
from nsysacct.trace import read_trace


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
        for table in ("reading KERNEL", "reading RUNTIME"):
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


def test_placing_events_is_told_to_its_end_after_the_tables(
    trace_file: Callable[[str], Path],
) -> None:
    told: list[tuple[str, int, int]] = []
    account(read_trace(trace_file("twoproc"), progress=lambda *now: told.append(now)))
    placing = [(done, total) for work, done, total in told if work == "placing events"]
    first = next(i for i, (work, _, _) in enumerate(told) if work == "placing events")
    assert all(work == "placing events" for work, _, _ in told[first:])
    assert placing == sorted(placing)
    assert placing[0][0] == 0
    assert placing[-1][0] == placing[-1][1] > 0
    assert len(placing) == 1 + 2 * 3  # two processes, three stages each
