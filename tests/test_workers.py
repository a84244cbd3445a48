"""A system that grants no threads gets the same answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nsysacct.account import account
from nsysacct.trace import columns, pages, read_trace
from nsysacct.wire import dump_account
from nsysacct.workers import submit

TraceFile = Callable[[str], Path]


def refuse(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Let `after` threads start, no more."""
    start, left = threading.Thread.start, [after]

    def limited(self: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(self)

    monkeypatch.setattr(threading.Thread, "start", limited)


@pytest.mark.parametrize("threads", [0, 1])
def test_work_is_done_without_threads(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    refuse(monkeypatch, threads)
    with ThreadPoolExecutor(3) as pool:
        results = [submit(pool, divmod, i, 3) for i in range(20)]
        assert [r.result() for r in results] == [divmod(i, 3) for i in range(20)]


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_an_account_without_threads(
    monkeypatch: pytest.MonkeyPatch, trace_file: TraceFile, threads: int
) -> None:
    path = trace_file("small_graph")
    expected = dump_account(account(read_trace(path)))
    monkeypatch.setattr(pages, "GROUP_BYTES", 1 << 14)
    monkeypatch.setattr(columns, "_THREADS", 4)
    refuse(monkeypatch, threads)
    assert dump_account(account(read_trace(path))) == expected
