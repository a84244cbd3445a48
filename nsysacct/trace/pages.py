"""Integer columns straight from the pages of a table, many rows at a time.

SQLite gives out one value at a time, some 40 ns each: two thirds of the time that an account of millions of
kernels took. Here the records of a few thousand pages are decoded at once, with the GIL released for most of it.

Only what is plain is decoded: ordinary tables, integers and NULL, rows within their page, every length and
place as it should be. Anything else is None, and the caller asks SQLite for those rows, so that SQLite alone
judges what is odd or damaged. Source: "Database File Format", sqlite.org/fileformat2.html, sections 1.3 (the
header), 1.6 (b-tree pages) and 2.1 (records).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nsysacct.trace.database import Database, quoted, text_of
from nsysacct.trace.records import (
    BEHIND,
    MOST_COLUMNS,
    OddError,
    big_endian,
    column_of,
    layouts_of,
    short_varint,
    varint,
    windows,
)

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]

GROUP_BYTES = 1 << 21
"""Pages decoded at a time: enough to be fast, few enough for a processor's cache and a flat memory."""

_LEAF, _INTERIOR = 13, 5
_POINTERS_AT = {_LEAF: 8, _INTERIOR: 12}
_DEEPEST = 20
"""Levels of a b-tree beyond which it is a loop."""


@dataclass(frozen=True, slots=True)
class Values:
    """Rows as read.

    Attributes
    ----------
    rowids : int64 array
        Ascending.
    columns : list
        Values of each column and which are NULL (None: none is).
    damaged : bool array or None
        Rows with a value that is no integer; None: none has.
    """

    rowids: I64
    columns: list[tuple[I64, Bool | None]]
    damaged: Bool | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Leaf pages that are decoded together, and the rowids between which their rows lie."""

    pages: I64
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class PagedTable:
    """A table whose pages can be decoded.

    Attributes
    ----------
    path : Path
    page_size, usable : int
        Bytes of a page, and those of it that are not reserved.
    stored : int
        Columns in each record.
    wanted : tuple of int
        Places of the columns to read among those stored.
    leaves, last_rowids : int64 arrays
        Page number of each leaf, and the largest rowid that may lie in it; ascending.
    """

    path: Path
    page_size: int
    usable: int
    stored: int
    wanted: tuple[int, ...]
    leaves: I64
    last_rowids: I64

    def plausible_rows(self) -> int:
        """Rows that fit the leaves; more fit where columns were added later and rows lack them."""
        return len(self.leaves) * (self.usable // (self.stored + 5))

    def groups(self, low: int, high: int) -> Iterator[Group]:
        """Cut the leaves into groups; `low` and `high` are the smallest and largest rowid."""
        step = max(1, GROUP_BYTES // self.page_size)
        for first in range(0, len(self.leaves), step):
            last = min(int(self.last_rowids[first : first + step][-1]), high)
            yield Group(self.leaves[first : first + step], low, last)
            low = last + 1

    def read(self, group: Group) -> Values | None:
        """Decode the rows of a group; None when any of them is not plain."""
        try:
            data = _read_pages(self.path, group.pages, self.page_size)
            cells = _cells(data, len(group.pages), self.page_size, self.usable, _LEAF)
            return self._decoded(data, cells, group)
        except (OddError, OSError):
            return None

    def rows_in(self, group: Group) -> int | None:
        """Rows that the pages of a group hold by their headers; None when they are no leaves."""
        try:
            data = _read_pages(self.path, group.pages, self.page_size)
        except (OddError, OSError):
            return None
        page = data[: len(group.pages) * self.page_size].reshape(-1, self.page_size)
        return int(big_endian(page[:, 3:5]).sum()) if (page[:, 0] == _LEAF).all() else None

    def _decoded(self, data: U8, cells: _Cells, group: Group) -> Values:
        if not len(cells.at):
            raise OddError
        payload, length = short_varint(data, cells.at)
        rowids, more = varint(data, cells.at + length)
        length += more
        if rowids[0] < group.low or rowids[-1] > group.high:
            raise OddError
        if not (rowids[1:] > rowids[:-1]).all():
            raise OddError
        ends = cells.place + length + payload
        if int(payload.max()) > self.usable - 35:  # the rest lies on another page
            raise OddError
        if (ends > self.usable).any():
            raise OddError
        at = cells.at + length
        records = windows(data, at, int(payload.max()))
        layouts, layout_of = layouts_of(records, self.stored)
        if (layouts.sizes[layout_of] != payload).any():
            raise OddError
        return Values(
            rowids, [column_of(data, at, records, layouts, layout_of, c) for c in self.wanted]
        )


def open_table(database: Database, table: str, columns: Sequence[str]) -> PagedTable | None:
    """Find the pages of a table; None where it has to be read through SQLite.

    Parameters
    ----------
    database : Database
    table : str
    columns : sequence of str
        Columns that the table has.
    """
    path = database.file
    stored = _stored_columns(database, table)
    root = database.rows(
        table, "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
    )
    if (
        stored is None
        or len(root) != 1
        or not set(columns) <= {n for n, plain in stored.items() if plain}
    ):
        return None
    places = list(stored)
    number = root[0][0]
    assert isinstance(number, int)
    try:
        page_size, usable = _page_size(path)
        leaves, last_rowids = _leaves(path, page_size, usable, number)
    except (OddError, OSError):
        return None
    return PagedTable(
        path,
        page_size,
        usable,
        len(stored),
        tuple(places.index(c) for c in columns),
        leaves,
        last_rowids,
    )


def _stored_columns(database: Database, table: str) -> dict[str, bool] | None:
    """Columns in the order of the records, and whether each keeps integers as they are.

    None for tables whose records are not one column after the other: without rowid, or with columns
    that are computed.
    """
    rows = database.rows(
        table, f"SELECT name, type, pk, hidden FROM pragma_table_xinfo({quoted(table)})"
    )
    made = database.rows(table, "SELECT sql FROM sqlite_master WHERE name = ?", (table,))
    if len(made) != 1 or "WITHOUT" in text_of(made[0][0]).upper() or any(row[3] for row in rows):
        return None
    if not 0 < len(rows) <= MOST_COLUMNS:
        return None
    # an INTEGER PRIMARY KEY is the rowid, and NULL in its record; other than integer affinity may convert
    return {text_of(name): "INT" in text_of(kind).upper() and not pk for name, kind, pk, _ in rows}


def _page_size(path: Path) -> tuple[int, int]:
    """Size of a page, and of the part that is used. Source: bytes 16, 17 and 20 of the file."""
    with path.open("rb") as file:
        header = file.read(100)
    size = int.from_bytes(header[16:18], "big")
    size = 65536 if size == 1 else size
    if len(header) < 100 or size < 512:  # the file has changed since it was identified
        raise OddError
    return size, size - header[20]


def _read_pages(path: Path, pages: I64, size: int) -> U8:
    """Read pages, each run of neighbours at once, with room behind them for reads beyond their end."""
    data = np.empty(len(pages) * size + BEHIND, np.uint8)
    runs = np.flatnonzero(np.diff(pages, prepend=pages[:1] - 2, append=-1) != 1)
    view = data.data
    view[len(pages) * size :] = bytes(BEHIND)
    with path.open("rb", buffering=0) as file:
        for first, end in zip(runs[:-1].tolist(), runs[1:].tolist(), strict=True):
            file.seek((int(pages[first]) - 1) * size)
            wanted = view[first * size : end * size]
            while wanted:
                got = file.readinto(wanted)
                if not got:
                    raise OddError
                wanted = wanted[got:]
    return data


@dataclass(frozen=True, slots=True)
class _Cells:
    """Cells of pages in order: where each begins in the data and in its page, and its page."""

    at: I64
    place: I64
    count: I64


def _cells(data: U8, pages: int, size: int, usable: int, kind: int) -> _Cells:
    """Find the cells of pages of one kind."""
    page = data[: pages * size].reshape(pages, size)
    if (page[:, 0] != kind).any():
        raise OddError
    first = _POINTERS_AT[kind]
    count = big_endian(page[:, 3:5])
    most = int(count.max(initial=0))
    if first + 2 * most > usable:
        raise OddError
    pointers = page[:, first : first + 2 * most].view(">u2")
    there = np.arange(most) < count[:, None]
    place = pointers[there].astype(np.int64)
    base = np.repeat(np.arange(pages) * size, count)
    if (place < np.repeat(first + 2 * count, count)).any() or (place >= usable).any():
        raise OddError
    return _Cells(base + place, place, count)


def _leaves(path: Path, size: int, usable: int, root: int) -> tuple[I64, I64]:
    """Leaf pages of a table b-tree in order, and the largest rowid that may lie in each."""
    most = os.path.getsize(path) // size
    pages, highs = np.array([root], np.int64), np.array([np.iinfo(np.int64).max])
    for _ in range(_DEEPEST):
        if len(pages) > most or not ((pages > 1) & (pages <= most)).all():
            raise OddError
        kinds = _read_kinds(path, pages, size)
        if (kinds == _LEAF).all():
            if len(np.unique(pages)) != len(pages) or not (highs[1:] > highs[:-1]).all():
                raise OddError
            return pages, highs
        if (kinds != _INTERIOR).any():
            raise OddError
        pages, highs = _children(path, pages, highs, size, usable)
    raise OddError


def _read_kinds(path: Path, pages: I64, size: int) -> U8:
    """Kind of each page. A tree is equally deep everywhere, so the first tells whether these are leaves.

    Leaves are looked at again when they are decoded.
    """
    first = int(_read_pages(path, pages[:1], size)[0])
    if first == _LEAF:
        return np.full(len(pages), _LEAF, np.uint8)
    return _read_pages(path, pages, size)[: len(pages) * size : size]


def _children(path: Path, pages: I64, highs: I64, size: int, usable: int) -> tuple[I64, I64]:
    """Child pages of interior pages, in order, and the largest rowid below each."""
    data = _read_pages(path, pages, size)
    cells = _cells(data, len(pages), size, usable, _INTERIOR)
    left = big_endian(windows(data, cells.at, 4)[:, :4])
    keys, _ = varint(data, cells.at + 4)
    right = big_endian(data[: len(pages) * size].reshape(-1, size)[:, 8:12])
    ends = np.cumsum(cells.count)  # the right child stands after the cells of its page
    return np.insert(left, ends, right), np.insert(keys, ends, highs)
