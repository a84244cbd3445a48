"""Columnar reading: integer columns of one table as numpy arrays, without a Python object a row.

Tables are read in ranges, on several threads, from their pages where these are plain (see `pages`) and
through SQLite otherwise, as arrow batches. The ADBC driver takes a column's type from the first batch, so
each range is one batch: a column that is not purely integer comes out with another arrow type, and that
range is read again with a type check per value. Values that are no integers exclude their row, which is
counted, never guessed at.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from nsysacct.trace.arrow import Connection, values_of
from nsysacct.trace.assembly import Piece, Table, Whole
from nsysacct.trace.column import NONE, Column
from nsysacct.trace.database import Database, quoted, text_of
from nsysacct.trace.pages import Group, PagedTable, Values, open_table
from nsysacct.workers import submit

I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
Progress = Callable[[str, int, int], None]

RANGE_ROWS = 1 << 18
"""Rows read at a time: large enough to be fast, small enough to keep memory flat."""

_THREADS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class _Range:
    """Consecutive rowids that are read at once, and the pages that they lie in where that is known."""

    low: int
    high: int
    size_limit: int
    group: Group | None = None


def read_table(
    database: Database,
    table: str,
    columns: Sequence[Column],
    *,
    where: str = "",
    lenient: bool = False,
    progress: Progress | None = None,
) -> Table:
    """Read integer columns of `table`.

    Parameters
    ----------
    database : Database
    table : str
        Must exist. Columns that it lacks and need not have are filled with NONE.
    columns : sequence of Column
    where : str
        SQL condition; rows that do not meet it are not read.
    lenient : bool
        Read values that are no integers as NONE, and leave out no row for them.
    progress : callable, optional
        Called with ("reading TABLE", rows done, rows in all).

    Raises
    ------
    UnsupportedSchemaError
        A required column is not there.
    TraceError
        The table cannot be read to its end.
    """
    low, high = _ends(database, table)
    if high is None:
        return Whole(columns, 0, 0).finished(table)
    if high < low:
        raise database.damage(ValueError("rows out of order"), table)
    there = [column for column in columns if column.name in database.columns[table]]
    for column in columns:
        if column.required and column not in there:
            raise database.damage(ValueError(f"no such column: {column.name}"), table)
    reader = _RangeReader(database, table, there, where, lenient)
    paged = None if where else open_table(database, table, [c.name for c in there])
    found = None
    if paged is not None:
        with contextlib.suppress(_AstrayError):
            found = _gathered(reader, columns, low, high, progress, paged)
    if found is None:
        found = _gathered(reader, columns, low, high, progress)
    database.check_unchanged()
    return found


class _AstrayError(Exception):
    """Rows are not where the tree of the table says: SQLite alone has to judge such a table."""


def _gathered(
    reader: _RangeReader,
    columns: Sequence[Column],
    low: int,
    high: int,
    progress: Progress | None,
    paged: PagedTable | None = None,
) -> Table:
    """Read all ranges of a table, from its pages where `paged` knows them."""
    database, table = reader.database, reader.table
    if paged is not None:
        count = high - low + 1  # all that can be; gaps that cost memory are counted out
        if count > paged.plausible_rows():
            count = _count(database, table)
        plan = [_Range(g.low, g.high, count, g) for g in paged.groups(low, high)]
    else:
        count = _count(database, table)
        plan = _plan(low, high, count)
    whole = Whole(columns, low, count)
    for piece in _read_ranges(reader, plan, paged):
        if whole.seen + piece.seen > count:
            raise database.damage(ValueError(f"more rows than {count}"), table)
        whole.add(piece)
        if progress is not None:
            progress(f"reading {table}", min(whole.seen, count), count)
    if whole.seen != count and paged is None and not reader.where:
        raise database.damage(ValueError(f"{whole.seen} rows of {count}"), table)
    return whole.finished(table)


def _ends(database: Database, table: str) -> tuple[int, int | None]:
    """Smallest and largest rowid; the latter is None without rows."""
    name = quoted(table)
    sql = f"SELECT (SELECT min(rowid) FROM {name}), (SELECT max(rowid) FROM {name})"
    low, high = database.rows(table, sql)[0]
    return low if isinstance(low, int) else 0, high if isinstance(high, int) else None


def _count(database: Database, table: str) -> int:
    """Rows of the table itself: an index may be damaged and hold others."""
    sql = f"SELECT count(*) FROM {quoted(table)} NOT INDEXED"
    count = database.rows(table, sql)[0][0]
    assert isinstance(count, int)
    return count


def _plan(low: int, high: int, count: int) -> list[_Range]:
    """Ranges of rowids with about RANGE_ROWS rows each; one range when rowids are scattered."""
    if high - low + 1 > 4 * count:
        return [_Range(low, high, count)]
    return [
        _Range(start, min(start + RANGE_ROWS - 1, high), RANGE_ROWS)
        for start in range(low, high + 1, RANGE_ROWS)
    ]


def _read_ranges(
    reader: _RangeReader, plan: list[_Range], paged: PagedTable | None
) -> Iterator[Piece]:
    """Pieces in the order of `plan`, a few of them in the making at a time."""
    threads = min(_THREADS, len(plan))
    try:
        if threads < 2:
            yield from (reader.read(part, paged) for part in plan)
            return
        pool = ThreadPoolExecutor(threads, thread_name_prefix="nsysacct-read")
        waiting: deque[Future[Piece]] = deque()
        try:
            for part in plan:
                waiting.append(submit(pool, reader.read, part, paged))
                if len(waiting) > 2 * threads:  # no more: each holds memory until it is taken
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    finally:
        reader.close()


class _RangeReader:
    """Reads one range of a table at a time: from its pages, or through SQLite."""

    def __init__(
        self,
        database: Database,
        table: str,
        columns: Sequence[Column],
        where: str,
        lenient: bool,
    ) -> None:
        self.database = database
        self.table = table
        self.where = where
        self._columns = columns
        self._lenient = lenient
        self._free: SimpleQueue[Connection] = SimpleQueue()
        self._opened: list[Connection] = []

    def read(self, part: _Range, paged: PagedTable | None) -> Piece:
        """Read a range; several threads may be at it."""
        if paged is None or part.group is None:
            return _piece(self._columns, self._ask(part), part)
        values = paged.read(part.group)
        if values is None:
            values = self._ask(part)
            if len(values.rowids) != paged.rows_in(part.group):
                raise _AstrayError
        return _piece(self._columns, values, part)

    def close(self) -> None:
        """Close the connections."""
        while self._opened:
            self._opened.pop().close()
        self._free = SimpleQueue()

    def _ask(self, part: _Range) -> Values:
        """Read a range through SQLite."""
        try:
            connection = self._free.get_nowait()
        except Empty:
            connection = Connection(self.database)
            self._opened.append(connection)
        try:
            batch = connection.query(self._sql(part), part.size_limit)
            if batch is not None and not _all_integers(batch):
                batch = connection.query(self._sql(part, checked=True), part.size_limit)
        except connection.errors as error:
            raise self.database.damage(error, self.table) from None
        finally:
            self._free.put(connection)
        if batch is None:
            nothing = np.empty(0, np.int64)
            return Values(nothing, [(nothing, None)] * len(self._columns))
        arrays = [values_of(array) for array in batch.columns]
        rowids = arrays.pop()[0]
        if rowids[0] < part.low or rowids[-1] > part.high or not (rowids[1:] > rowids[:-1]).all():
            # a page of the table is not where it belongs
            raise self.database.damage(ValueError("rows out of order"), self.table)
        damaged = arrays.pop()[0] != 0 if len(arrays) > len(self._columns) else None
        return Values(rowids, arrays, damaged)

    def _sql(self, part: _Range, *, checked: bool = False) -> str:
        """Select the columns and the rowid. `checked` takes integers only and flags damaged rows."""
        names = [quoted(column.name) for column in self._columns]
        chosen = list(names)
        if checked:
            chosen = [f"CASE WHEN typeof({n}) = 'integer' THEN {n} END" for n in names]
            damaged = " OR ".join(f"typeof({n}) NOT IN ('integer', 'null')" for n in names)
            chosen.append("0" if self._lenient else f"({damaged})")
        condition = f"rowid BETWEEN {part.low} AND {part.high}"
        if self.where:
            condition += f" AND ({self.where})"
        return f"SELECT {', '.join([*chosen, 'rowid'])} FROM {quoted(self.table)} WHERE {condition}"


def _piece(columns: Sequence[Column], values: Values, part: _Range) -> Piece:
    """Fit the values of a range to their columns, and leave out the rows that cannot be kept."""
    rowids = values.rowids
    size = len(rowids)
    damaged = np.zeros(size, bool) if values.damaged is None else values.damaged
    missing = np.zeros(size, bool)
    fitted: dict[str, npt.NDArray[Any]] = {}
    for column, (data, null) in zip(columns, values.columns, strict=True):
        fitted[column.name], bad = _fitted(column, data, null, damaged)
        if bad is not None:
            missing |= bad
    missing &= ~damaged
    counts = int(np.count_nonzero(damaged)), int(np.count_nonzero(missing))
    if any(counts):
        keep = ~(damaged | missing)
        fitted = {name: data[keep] for name, data in fitted.items()}
        rowids = rowids[keep]
        size = len(rowids)
    # rowids ascend, so as many of them as there are numbers in between means that none is left out
    dense = not size or (rowids[0] == part.low and rowids[-1] - rowids[0] + 1 == size)
    compact = {name: _compact(data) for name, data in fitted.items()}
    return Piece(part.low, size, compact, None if dense else rowids.copy(), *counts)


def _all_integers(batch: Any) -> bool:
    import pyarrow as pa

    return all(pa.types.is_int64(t) for t in batch.schema.types)


def _fitted(
    column: Column, data: I64, null: Bool | None, damaged: Bool
) -> tuple[npt.NDArray[Any], Bool | None]:
    """Values in the column's type, NONE for NULL, and the rows that cannot be kept (or None)."""
    bad: Bool | None = None
    if null is not None:
        data = np.where(null, NONE, data)
        if column.required:
            bad = null & ~damaged
    if column.dtype is np.int64:
        return data, bad
    bounds = np.iinfo(np.int32)
    if len(data) and (int(data.max()) > bounds.max or int(data.min()) < bounds.min):
        outside = (data > bounds.max) | (data < bounds.min)
        data = np.where(outside, NONE, data)
        if column.required:
            bad = outside if bad is None else bad | outside
    return data.astype(np.int32), bad


def _compact(data: npt.NDArray[Any]) -> npt.NDArray[Any] | int:
    """Give a scalar when all rows have the same value, else the array."""
    if len(data) and data[0] == data[-1] and bool((data == data[0]).all()):
        return int(data[0])
    return data


def read_texts(
    database: Database, table: str, column: str, where: str
) -> tuple[I64, I64, list[str]]:
    """Read a text column of the rows that meet `where` and have a value.

    Returns
    -------
    rowids : int64 array
        Ascending.
    codes : int64 array
        Index of each row's text in `texts`.
    texts : list of str
        Distinct texts; bytes that are not UTF-8 are replaced.
    """
    name = quoted(column)
    sql = (
        f"SELECT rowid, CAST({name} AS BLOB) FROM {quoted(table)}"
        f" WHERE {name} IS NOT NULL AND ({where})"
    )
    connection = Connection(database)
    try:
        batch = connection.query(sql, _count(database, table))
    except connection.errors as error:
        raise database.damage(error, table) from None
    finally:
        connection.close()
    if batch is None:
        return np.empty(0, np.int64), np.empty(0, np.int64), []
    encoded = batch.column(1).dictionary_encode()
    texts = [text_of(value) for value in encoded.dictionary.to_pylist()]
    codes = encoded.indices.to_numpy().astype(np.int64)
    return batch.column(0).to_numpy().copy(), codes, texts
