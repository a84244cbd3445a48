"""Turning a FILE argument into an account: an export, a report, or an account's JSON."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nsysacct.cli._progress import EVERY_S, FIRST_S, Progress

if TYPE_CHECKING:
    from nsysacct.account import Options
    from nsysacct.model import Account

JSON_START = (b"{", b"\xef\xbb\xbf{")


def is_account_json(path: Path) -> bool:
    """Whether the file looks like JSON (exports start with SQLite's magic)."""
    try:
        if not path.is_file():
            return False  # opening a pipe waits for its writer
        with path.open("rb") as file:
            return file.read(64).lstrip().startswith(JSON_START)
    except OSError:
        return False


def account_of(path: str | Path, options: Options | None = None) -> Account:
    """The account of an export (.sqlite), a report (.nsys-rep) or an account JSON.

    Options only apply to exports: an account JSON holds the options it was made with.
    """
    path = Path(path)
    if is_account_json(path):
        from nsysacct.wire import load_account

        return load_account(path)
    from nsysacct.account import account
    from nsysacct.nsysrep import resolve
    from nsysacct.trace import read_trace

    file = resolve(path)
    with reading() as progress:
        return account(read_trace(file, progress), options)


@contextlib.contextmanager
def reading() -> Iterator[Callable[[str, int, int], None]]:
    """Progress of `read_trace`: one line a table, then one for the events: how far, how fast, how long."""
    current = ""
    line: Progress | None = None
    with contextlib.ExitStack() as open_line:

        def report(work: str, done: int, total: int) -> None:
            nonlocal current, line
            if line is None or work != current:
                patience = EVERY_S if line is not None and line.was_shown else FIRST_S
                open_line.close()  # wipes the line of the work before
                line = open_line.enter_context(Progress(work, patience=patience))
                current = work
            line(done, total)

        yield report
