"""Accounts over time in one SQLite file: a baseline that remembers, and its trend.

Schema (version 2), readable with Datasette or any SQLite tool::

    captures(id, series, name, digest, commit_id, added_at, tool, engine, gpu, granularity,
             registry_digest, labels, layers, rounds, account)
        one capture; ``account`` is its JSON as `wire` writes it, ``digest`` that text's SHA-256;
        the same account is in a series once.
    figures(capture_id, name, value, unit)
        every figure that the account knows (`metrics`).
    trend (view)
        series, name, value, unit, capture, commit_id, added_at in order of ``captures.id``.

Writes are one transaction with SQLite's rollback journal: a writer that is killed leaves nothing
half done, a second writer waits. The journal rather than a write-ahead log, because histories
live on network shares and in read-only checkouts, where the log does not work. The file carries
an ``application_id``, so that no other SQLite file is taken for a history and altered.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsysacct.comparability import Side, key
from nsysacct.errors import NsysacctError, UsageError
from nsysacct.history_schema import APPLICATION_ID, MIGRATIONS
from nsysacct.metric_names import parse_metric
from nsysacct.metrics import available, figure
from nsysacct.model import Account
from nsysacct.stats import step_starts
from nsysacct.wire import dump_account, load_account

BUSY_SECONDS = 60.0
"""How long a writer waits for another one."""


class HistoryError(NsysacctError):
    """A file that is no history, or cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Capture:
    """One row of a history, without its account."""

    id: int
    series: str
    name: str
    digest: str
    commit_id: str | None
    added_at: str | None
    engine: str
    gpu: str
    granularity: str
    labels: str
    rounds: int | None


@dataclass(frozen=True, slots=True)
class Point:
    """A figure of one capture. ``step`` marks the first capture at a new level."""

    capture: Capture
    value: float
    step: bool


@dataclass(frozen=True, slots=True)
class Trend:
    """A figure over a series, oldest first. ``left_out`` counts captures without the figure."""

    metric: str
    unit: str
    points: tuple[Point, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class Baseline:
    """Base of a gate from a series, oldest first.

    ``unlike`` counts newer captures that were left out because the head cannot be compared with
    them; ``since`` is the capture at which the level last moved, None when it did not.
    """

    sides: tuple[Side, ...]
    unlike: int
    since: int | None


class History:
    """A history file.

    Parameters
    ----------
    path : path
        Made when missing, unless `readonly`.
    readonly : bool
        Open without the right to write; an older file is then read as it is.

    Raises
    ------
    HistoryError
        Not a history, newer than this program, missing (readonly), or locked for too long.

    Examples
    --------
    >>> import tempfile, os
    >>> with History(os.path.join(tempfile.mkdtemp(), "h.db")) as history:
    ...     history.captures()
    []
    """

    def __init__(self, path: str | Path, *, readonly: bool = False) -> None:
        import sqlite_utils

        self._path = Path(path)
        self._name = self._path.name
        with self._errors():
            self._connection = _connect(self._path, readonly)
        try:
            with self._errors():
                self._check(readonly)
            self._db = sqlite_utils.Database(self._connection)
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def add(
        self,
        account: Account,
        series: str = "main",
        *,
        name: str | None = None,
        commit_id: str | None = None,
        added_at: str | None = None,
    ) -> tuple[int, bool]:
        """Add a capture to a series, or find it there.

        Parameters
        ----------
        account : Account
        series : str
            Such as a branch.
        name, commit_id, added_at : str, optional
            What to call it (the trace's name when left out), its commit and its time, as given.

        Returns
        -------
        tuple of int and bool
            Row id, and whether it is new: the same account twice is one capture.
        """
        check_series(series)
        text = dump_account(account)
        digest = hashlib.sha256(text.encode()).hexdigest()
        row = _row(account, text, digest)
        row |= {"series": series, "name": name or account.trace.name}
        row |= {"commit_id": commit_id, "added_at": added_at}
        figures = [(f, figure(account, f).value, parse_metric(f).unit) for f in available(account)]
        with self._transaction() as connection:
            found = connection.execute(
                "SELECT id FROM captures WHERE series = ? AND digest = ?", (series, digest)
            ).fetchone()
            if found is not None:
                return int(found[0]), False
            columns = ", ".join(row)
            marks = ", ".join(f":{column}" for column in row)
            cursor = connection.execute(f"INSERT INTO captures ({columns}) VALUES ({marks})", row)
            new = int(cursor.lastrowid or 0)
            connection.executemany(
                "INSERT INTO figures (capture_id, name, value, unit) VALUES (?, ?, ?, ?)",
                [(new, *values) for values in figures],
            )
        return new, True

    def captures(self, series: str | None = None) -> list[Capture]:
        """List captures of a series (of all when left out), oldest first."""
        where, values = ("WHERE series = ?", [series]) if series else ("", [])
        fields = ", ".join(Capture.__dataclass_fields__)
        with self._errors():
            rows = self._db.query(f"SELECT {fields} FROM captures {where} ORDER BY id", values)
            return [Capture(**row) for row in rows]

    def series(self) -> list[str]:
        """Names of all series, sorted."""
        return sorted({capture.series for capture in self.captures()})

    def account(self, capture_id: int) -> Account:
        """Return the account of a capture.

        Raises
        ------
        UsageError
            No such capture.
        """
        with self._errors():
            rows = list(self._db.query("SELECT account FROM captures WHERE id = ?", [capture_id]))
        if not rows:
            raise UsageError(self._name, f"has no capture {capture_id}", "see `history list`")
        return load_account(str(rows[0]["account"]))

    def trend(self, metric: str, series: str = "main") -> Trend:
        """Follow one figure over a series, with the captures at which its level moves.

        Raises
        ------
        UsageError
            A metric that the grammar does not have, or an empty series.
        """
        meaning = parse_metric(metric)
        captures = self._of(series)
        with self._errors():
            rows = self._db.query("SELECT capture_id, value FROM figures WHERE name = ?", [metric])
            values = {row["capture_id"]: float(row["value"]) for row in rows}
        known = [capture for capture in captures if capture.id in values]
        levels = [values[capture.id] for capture in known]
        starts = set(step_starts(levels, floor=meaning.floor or 1e-9))
        points = [Point(c, levels[i], i in starts) for i, c in enumerate(known)]
        return Trend(metric, meaning.unit, tuple(points), len(captures) - len(known))

    def baseline(
        self,
        series: str,
        like: Account | None = None,
        *,
        last: int = 10,
        level: str = "total.ns_per_round",
    ) -> Baseline:
        """Take the newest captures of a series as the base of a gate.

        Parameters
        ----------
        series : str
        like : Account, optional
            Take only captures that share its engine, GPU, granularity, registry, labels, layers.
        last : int
            At most this many.
        level : str
            Figure whose last step starts the base: captures before an accepted change of level
            are no yardstick for the next one.

        Returns
        -------
        Baseline

        Raises
        ------
        UsageError
            An empty series.
        """
        wanted = None if like is None else key(like)
        found: list[tuple[int, Account]] = []
        unlike = 0
        for capture in reversed(self._of(series)):
            if len(found) == last:
                break
            account = self.account(capture.id)
            if wanted is not None and key(account) != wanted:
                unlike += 1
                continue
            found.append((capture.id, account))
        found.reverse()
        start = _level_start([account for _, account in found], level)
        sides = [
            Side("base", f"{self._name}:{series}#{number}", account)
            for number, account in found[start:]
        ]
        return Baseline(tuple(sides), unlike, found[start][0] if start else None)

    def _of(self, series: str) -> list[Capture]:
        captures = self.captures(series)
        if not captures:
            known = ", ".join(self.series()) or "none yet"
            raise UsageError(self._name, f"has no series {series!r}", f"series: {known}")
        return captures

    def _check(self, readonly: bool) -> None:
        """Refuse other files; bring an older history up to date."""
        connection = self._connection
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        mark = connection.execute("PRAGMA application_id").fetchone()[0]
        if mark != APPLICATION_ID and (tables or mark):
            raise HistoryError(self._name, "is SQLite but no history", "give another file name")
        version = _version(connection)
        if version > len(MIGRATIONS):
            raise HistoryError(
                self._name,
                f"has history version {version}, newer than this program's {len(MIGRATIONS)}",
                "update nsysacct",
            )
        if readonly:
            if not tables:
                raise HistoryError(self._name, "is empty", "add captures with `history add`")
            return
        if version < len(MIGRATIONS):
            self._migrate()

    def _migrate(self) -> None:
        with self._transaction() as connection:
            # read again under the lock: another writer may have been faster
            version = _version(connection)
            for step in MIGRATIONS[version:]:
                step(connection)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.rollback()
                raise
            self._connection.commit()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            locked = "locked" in str(error)
            remedy = "try again when the other writer is done" if locked else "check the file"
            raise HistoryError(self._name, f"cannot be used ({error})", remedy) from error


def check_series(series: str) -> None:
    """Refuse names that ``FILE:SERIES`` could not name.

    Raises
    ------
    UsageError
        Empty, with a colon, or with characters that do not print.
    """
    if not series or ":" in series or not series.isprintable():
        raise UsageError(f"series {series!r}", "is not a name", "use printable text, no colon")


def parse_against(text: str) -> tuple[Path, str]:
    """Split ``FILE:SERIES``; the series is "main" when left out.

    Examples
    --------
    >>> parse_against("history.db:release")
    (PosixPath('history.db'), 'release')
    """
    head, colon, series = text.rpartition(":")
    if not colon or "\\" in series or "/" in series:
        return Path(text), "main"
    check_series(series)
    return Path(head), series


def _level_start(accounts: Sequence[Account], metric: str) -> int:
    """Index of the first account at the newest level of a figure; 0 while it is not known."""
    values = [figure(account, metric).value for account in accounts]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return 0
    return max(step_starts(known, floor=parse_metric(metric).floor), default=0)


def _connect(path: Path, readonly: bool) -> sqlite3.Connection:
    if readonly and not path.is_file():
        raise HistoryError(str(path), "does not exist", "make it with `history add`")
    mode = "rwc"
    if readonly:
        # with the right to write, SQLite can roll back what a killed writer left half done
        mode = "rw" if os.access(path, os.W_OK) else "ro"
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _row(account: Account, text: str, digest: str) -> dict[str, Any]:
    same = key(account)
    return {
        "digest": digest,
        "tool": account.tool,
        "engine": same["engine"],
        "gpu": same["GPU"],
        "granularity": same["granularity"],
        "registry_digest": same["registry digest"],
        "labels": same["labels"],
        "layers": same["layers"],
        "rounds": account.rounds.value,
        "account": text,
    }
