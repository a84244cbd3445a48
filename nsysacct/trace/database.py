"""The SQLite side: connections that leave no trace, schema facts, small look-ups, clear errors."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from nsysacct.errors import NotAnExportError, TraceError, UnsupportedSchemaError
from nsysacct.trace.files import FileFacts

_BATCH = 900  # host parameters that every SQLite build accepts in one statement
_LOCK_WAIT_S = 2.0
_ERRORS = (sqlite3.Error, UnicodeError, OverflowError, MemoryError)
"""What sqlite3 raises on damage; its message may itself be text that is not UTF-8."""


def quoted(name: str) -> str:
    """Put an SQL identifier in quotes (``end`` is a keyword)."""
    return '"' + name.replace('"', '""') + '"'


def text_of(value: object) -> str:
    """Text of an SQLite value; bytes that are not UTF-8 are replaced, never refused."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


@dataclass(frozen=True)
class Database:
    """An export that can be read: where it is, which tables it has and which columns.

    Connections are opened for each use and closed, so nothing stays open and an instance can be
    sent to another process.

    Attributes
    ----------
    name : str
        Subject of error messages.
    uri : str
        Read-only SQLite URI.
    columns : dict
        Table -> its column names. Ordinary tables only.
    file : Path
        The file, which is the whole database: no write-ahead log belongs to it.
    stamp : (int, int) or None
        Its length and time of change when it was opened; None does not watch it.
    """

    name: str
    uri: str
    columns: dict[str, tuple[str, ...]] = field(repr=False)
    file: Path
    stamp: tuple[int, int] | None = None

    def has(self, table: str) -> bool:
        """Whether the export has this table (absent means: no data of that kind)."""
        return table in self.columns

    @contextlib.contextmanager
    def connect(self, table: str = "") -> Iterator[sqlite3.Connection]:
        """Connect; text comes as bytes, SQLite's errors come out as `TraceError`."""
        try:
            connection = sqlite3.connect(self.uri, uri=True, timeout=_LOCK_WAIT_S)
            connection.text_factory = bytes
            try:
                yield connection
            finally:
                connection.close()
        except _ERRORS as error:
            raise self.damage(error, table) from None
        self.check_unchanged()

    def damage(self, error: BaseException, table: str = "") -> TraceError:
        """Make the error that a reader sees in place of SQLite's; a file that changed is not damaged."""
        return self._changed() or damage(self.name, error, table)

    def check_unchanged(self) -> None:
        """Make sure that what was read is of the file that was opened, not of two.

        Raises
        ------
        TraceError
            It was replaced, written to or removed since.
        """
        changed = self._changed()
        if changed is not None:
            raise changed

    def _changed(self) -> TraceError | None:
        if self.stamp is None or self.stamp == _stamp(self.file):
            return None
        return TraceError(
            self.name, "was changed while it was read", "wait until it is complete, then run again"
        )

    def rows(
        self, table: str, sql: str, parameters: Iterable[object] = ()
    ) -> list[tuple[object, ...]]:
        """All rows of a small query."""
        with self.connect(table) as connection:
            return connection.execute(sql, tuple(parameters)).fetchall()

    def records(self, table: str, *names: str) -> list[dict[str, object]]:
        """Rows of a small table with these columns; None where the table lacks the column."""
        if not self.has(table):
            return []
        there = [name for name in names if name in self.columns[table]]
        if not there:
            return []
        chosen = ", ".join(quoted(name) for name in there)
        nothing = dict.fromkeys(names)
        found = self.rows(table, f"SELECT {chosen} FROM {quoted(table)}")
        return [nothing | dict(zip(there, row, strict=True)) for row in found]

    def strings(self, ids: Iterable[int]) -> list[str]:
        """Texts of these StringIds, in order; ``<string id N>`` where there is none.

        Only the ids asked for are read: the table also holds whole files.
        """
        wanted = [int(i) for i in ids]  # SQLite takes a numpy integer for a blob
        found: dict[int, str] = {}
        if {"id", "value"} <= set(self.columns.get("StringIds", ())):
            with self.connect("StringIds") as connection:
                for i in range(0, len(wanted), _BATCH):
                    part = wanted[i : i + _BATCH]
                    marks = ",".join("?" * len(part))
                    sql = (
                        "SELECT id, CAST(value AS BLOB) FROM StringIds"
                        f" WHERE id IN ({marks}) AND value IS NOT NULL"
                    )
                    found.update(
                        (key, text_of(value)) for key, value in connection.execute(sql, part)
                    )
        return [found.get(key, f"<string id {key}>") for key in wanted]


def open_database(facts: FileFacts) -> Database:
    """Open the file read-only, make sure that it can be read now, and list its tables.

    Raises
    ------
    TraceError
        Locked by a writer, left half-written, damaged.
    NotAnExportError
        SQLite that nsys did not write.
    """
    if not facts.wal_format and facts.wal_bytes is None:
        _probe(facts)
    uri = facts.uri(immutable=True)
    stamp = _stamp(facts.path)
    database = Database(facts.name, uri, _tables(facts.name, uri), facts.path, stamp)
    _check_is_export(database)
    return database


def merge_log(copy: FileFacts) -> FileFacts:
    """Write the write-ahead log of our own copy into it, which leaves one plain file.

    Connections to a file with a log lock each other out while one of them builds its index.

    Raises
    ------
    TraceError
        The log, or the file, is damaged.
    """
    try:
        connection = sqlite3.connect(copy.path)
        try:
            mode = connection.execute("PRAGMA journal_mode = DELETE").fetchone()[0]
        finally:
            connection.close()
    except _ERRORS as error:
        raise damage(copy.name, error) from None
    if mode != "delete":
        raise damage(copy.name, ValueError("write-ahead log"))
    return replace(copy, wal_format=False, wal_bytes=None)


def _stamp(path: Path) -> tuple[int, int]:
    """Length and time of change; no file has the answer for none."""
    try:
        status = path.stat()
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def _probe(facts: FileFacts) -> None:
    """Read one page with locking on, so that a writer at work is noticed."""
    journal = facts.path.with_name(facts.path.name + "-journal")
    with contextlib.suppress(OSError):
        with journal.open("rb") as file:
            hot = file.read(1) not in (b"", b"\x00")  # a finished transaction zeroes its journal
        if hot:
            raise TraceError(
                facts.name,
                "was left half-written (a -journal file lies beside it)",
                "wait for the export to finish, or export it again",
            )
    try:
        connection = sqlite3.connect(facts.uri(immutable=False), uri=True, timeout=_LOCK_WAIT_S)
        try:
            connection.execute("PRAGMA schema_version").fetchone()
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        finally:
            connection.close()
    except _ERRORS as error:
        if "locked" in str(error):
            raise damage(facts.name, error) from None
        # file systems without locks refuse this connection and allow the immutable one


def _tables(name: str, uri: str) -> dict[str, tuple[str, ...]]:
    columns: dict[str, list[str]] = {}
    try:
        connection = sqlite3.connect(uri, uri=True)
        connection.text_factory = bytes
        try:
            found = connection.execute(
                "SELECT m.name, p.name FROM sqlite_master AS m, pragma_table_info(m.name) AS p"
                " WHERE m.type = 'table' AND m.rootpage > 0"
            )
            for table, column in found:
                columns.setdefault(text_of(table), []).append(text_of(column))
        finally:
            connection.close()
    except _ERRORS as error:
        raise damage(name, error) from None
    return {table: tuple(names) for table, names in columns.items()}


def damage(name: str, error: BaseException, table: str = "") -> TraceError:
    """Make the error that a reader sees in place of SQLite's."""
    text = " ".join(str(error).split())
    where = f"table {table} " if table else ""
    if isinstance(error, OSError) and error.strerror:
        return TraceError(
            name, f"{where}cannot be read ({error.strerror})", "check the disk and the limits"
        )
    if "disk is full" in text:
        return TraceError(
            name, f"{where}cannot be read ({text[:160]})", "free some space for temporary files"
        )
    if "unable to open" in text:
        return TraceError(
            name, f"{where}cannot be read ({text[:160]})", "check that it is still there"
        )
    if "locked" in text or "busy" in text:
        return TraceError(
            name, "is locked by another program", "wait until the export has finished"
        )
    if "no such column" in text or "no such table" in text:
        return UnsupportedSchemaError(
            name, f"{where}cannot be read ({text})", "export it with a supported nsys"
        )
    return TraceError(
        name,
        f"{where}cannot be read, the file is damaged ({text[:160]})",
        "copy it again, or export the report again",
    )


def _check_is_export(database: Database) -> None:
    tables = database.columns
    if not tables:
        raise NotAnExportError(
            database.name,
            "is an SQLite file without any table",
            "check the path, or export the report again",
        )
    if "StringTable" in tables or "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL" in tables:
        raise NotAnExportError(
            database.name,
            "is an nvprof / Visual Profiler database",
            "record the run with Nsight Systems (nsys profile)",
        )
    marks = (
        "META_DATA_",
        "EXPORT_META_DATA",
        "CUPTI_ACTIVITY_KIND_",
        "TARGET_INFO_",
        "NVTX_EVENTS",
    )
    if not any(table.startswith(marks) for table in tables):
        raise NotAnExportError(
            database.name,
            "is an SQLite file, but not an nsys export",
            "export a report: nsys export --type sqlite REPORT.nsys-rep",
        )
