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
from typing import Any

import numpy as np
import numpy.typing as npt

from nsysacct.trace.database import Database, quoted, text_of

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]

GROUP_BYTES = 1 << 21
"""Pages decoded at a time: enough to be fast, few enough for a processor's cache and a flat memory."""

_LEAF, _INTERIOR = 13, 5
_POINTERS_AT = {_LEAF: 8, _INTERIOR: 12}
_DEEPEST = 20
"""Levels of a b-tree beyond which it is a loop."""
_MOST_COLUMNS = 126
"""Columns whose types fit a record header with a length of one byte."""
_SIZES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0], np.int64)
"""Bytes of a value by its serial type; 0 is NULL, 7 a float, 8 and 9 are the numbers 0 and 1."""
_NULL, _FLOAT, _ONE, _FIRST_TEXT = 0, 7, 9, 12
_BEHIND = 1 << 17
"""Bytes behind the pages, so that a read of the longest record at their end stays in the array."""
_MIX = 0x9E3779B97F4A7C15
_PLACE_BITS = 14
_TRIES = 8
"""Hashes that are tried until no two headers share a place in the table."""


class _OddError(Exception):
    """Something that is not plain; SQLite has to look at it."""


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
        except (_OddError, OSError):
            return None

    def rows_in(self, group: Group) -> int | None:
        """Rows that the pages of a group hold by their headers; None when they are no leaves."""
        try:
            data = _read_pages(self.path, group.pages, self.page_size)
        except (_OddError, OSError):
            return None
        page = data[: len(group.pages) * self.page_size].reshape(-1, self.page_size)
        return int(_big(page[:, 3:5]).sum()) if (page[:, 0] == _LEAF).all() else None

    def _decoded(self, data: U8, cells: _Cells, group: Group) -> Values:
        if not len(cells.at):
            raise _OddError
        payload, length = _short_varint(data, cells.at)
        rowids, more = _varint(data, cells.at + length)
        length += more
        if rowids[0] < group.low or rowids[-1] > group.high:
            raise _OddError
        if not (rowids[1:] > rowids[:-1]).all():
            raise _OddError
        ends = cells.place + length + payload
        if int(payload.max()) > self.usable - 35:  # the rest lies on another page
            raise _OddError
        if (ends > self.usable).any():
            raise _OddError
        at = cells.at + length
        records = _windows(data, at, int(payload.max()))
        layouts, layout_of = _layouts(records, self.stored)
        if (layouts.sizes[layout_of] != payload).any():
            raise _OddError
        return Values(
            rowids, [_column(data, at, records, layouts, layout_of, c) for c in self.wanted]
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
    except (_OddError, OSError):
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
    if not 0 < len(rows) <= _MOST_COLUMNS:
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
        raise _OddError
    return size, size - header[20]


def _read_pages(path: Path, pages: I64, size: int) -> U8:
    """Read pages, each run of neighbours at once, with room behind them for reads beyond their end."""
    data = np.empty(len(pages) * size + _BEHIND, np.uint8)
    runs = np.flatnonzero(np.diff(pages, prepend=pages[:1] - 2, append=-1) != 1)
    view = data.data
    view[len(pages) * size :] = bytes(_BEHIND)
    with path.open("rb", buffering=0) as file:
        for first, end in zip(runs[:-1].tolist(), runs[1:].tolist(), strict=True):
            file.seek((int(pages[first]) - 1) * size)
            wanted = view[first * size : end * size]
            while wanted:
                got = file.readinto(wanted)
                if not got:
                    raise _OddError
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
        raise _OddError
    first = _POINTERS_AT[kind]
    count = _big(page[:, 3:5])
    most = int(count.max(initial=0))
    if first + 2 * most > usable:
        raise _OddError
    pointers = page[:, first : first + 2 * most].view(">u2")
    there = np.arange(most) < count[:, None]
    place = pointers[there].astype(np.int64)
    base = np.repeat(np.arange(pages) * size, count)
    if (place < np.repeat(first + 2 * count, count)).any() or (place >= usable).any():
        raise _OddError
    return _Cells(base + place, place, count)


def _leaves(path: Path, size: int, usable: int, root: int) -> tuple[I64, I64]:
    """Leaf pages of a table b-tree in order, and the largest rowid that may lie in each."""
    most = os.path.getsize(path) // size
    pages, highs = np.array([root], np.int64), np.array([np.iinfo(np.int64).max])
    for _ in range(_DEEPEST):
        if len(pages) > most or not ((pages > 1) & (pages <= most)).all():
            raise _OddError
        kinds = _read_kinds(path, pages, size)
        if (kinds == _LEAF).all():
            if len(np.unique(pages)) != len(pages) or not (highs[1:] > highs[:-1]).all():
                raise _OddError
            return pages, highs
        if (kinds != _INTERIOR).any():
            raise _OddError
        pages, highs = _children(path, pages, highs, size, usable)
    raise _OddError


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
    left = _big(_windows(data, cells.at, 4)[:, :4])
    keys, _ = _varint(data, cells.at + 4)
    right = _big(data[: len(pages) * size].reshape(-1, size)[:, 8:12])
    ends = np.cumsum(cells.count)  # the right child stands after the cells of its page
    return np.insert(left, ends, right), np.insert(keys, ends, highs)


def _windows(data: U8, at: I64, width: int) -> U8:
    """Take `width` bytes from each place; shape (places, width rounded up to 8)."""
    width = max(8, -(-width // 8) * 8)
    sliding: npt.NDArray[Any] = np.ndarray(
        len(data) - width + 1, np.dtype((np.void, width)), data.data, 0, (1,)
    )
    return np.ascontiguousarray(sliding[at]).view(np.uint8).reshape(len(at), width)


def _big(octets: U8) -> I64:
    """Read big-endian unsigned numbers of up to 7 bytes, one a row."""
    value = octets[:, 0].astype(np.int64)
    for i in range(1, octets.shape[1]):
        value = value << 8 | octets[:, i]
    return value


def _short_varint(data: U8, at: I64) -> tuple[I64, I64]:
    """Numbers of one or two bytes, and how many."""
    first = data[at].astype(np.int64)
    long = first >= 0x80
    if not long.any():
        return first, np.ones(len(at), np.int64)
    second = data[at + 1].astype(np.int64)
    if (long & (second >= 0x80)).any():
        raise _OddError
    return np.where(long, (first & 0x7F) << 7 | second, first), 1 + long.astype(np.int64)


def _varint(data: U8, at: I64) -> tuple[I64, I64]:
    """Numbers of up to seven bytes, and how many."""
    word = _windows(data, at, 8).view(">u8")[:, 0].astype(np.uint64)
    value = np.zeros(len(at), np.int64)
    length = np.zeros(len(at), np.int64)
    for size in range(1, 8):
        # all bytes but the last one have their highest bit set
        bits = (word >> np.uint64(64 - 8 * size)) & np.uint64(0x80808080808080 >> (56 - 8 * size))
        mine = bits == np.uint64(0x80808080808080 >> (56 - 8 * size) & ~0x80)
        if not mine.any():
            continue
        number = np.zeros(len(at), np.uint64)
        for i in range(1, size + 1):
            number <<= np.uint64(7)
            number |= (word >> np.uint64(64 - 8 * i)) & np.uint64(0x7F)
        if mine.all():
            return number.view(np.int64), np.full(len(at), size)
        value = np.where(mine, number.view(np.int64), value)
        length[mine] = size
    if not length.all():
        raise _OddError
    return value, length


@dataclass(frozen=True, slots=True)
class _Layouts:
    """Distinct record headers: serial types, where each value begins, bytes of the whole record."""

    types: I64  # (layouts, columns)
    starts: I64  # (layouts, columns)
    sizes: I64  # (layouts,)


def _layouts(records: U8, stored: int) -> tuple[_Layouts, I64]:
    """Tell the distinct headers apart; index of each record's.

    Each type is one byte here: a number, NULL, or text of up to 57 bytes.
    """
    header = stored + 1
    if records.shape[1] < header:
        raise _OddError
    code, first = _distinct_rows(records, header)
    heads = records[first, :header].astype(np.int64)
    types = heads[:, 1:]
    if (
        (heads[:, 0] != header).any()
        or (types >= 0x80).any()
        or ((types > _ONE) & (types < _FIRST_TEXT)).any()
    ):
        raise _OddError
    sizes = np.where(
        types < _FIRST_TEXT, _SIZES[np.minimum(types, _ONE)], (types - _FIRST_TEXT) >> 1
    )
    ends = header + np.cumsum(sizes, axis=1)
    return _Layouts(types, ends - sizes, ends[:, -1]), code


def _distinct_rows(records: U8, width: int) -> tuple[I64, I64]:
    """Index of each record's first `width` bytes among the distinct ones, and a record that has each.

    Found by a hash with a table, which costs a few passes where a sort would cost dozens; rows of one
    place in it that are not alike are odd.
    """
    words = records.view(np.uint64)[:, : -(-width // 8)].T.copy()
    if width % 8:
        words[-1] &= np.frombuffer(b"\xff" * (width % 8) + bytes(-width % 8), np.uint64)
    for seed in range(1, _TRIES + 1):
        mixed = np.zeros(len(records), np.uint64)
        for i, word in enumerate(words):
            mixed += word * np.uint64(pow(_MIX, i + seed, 1 << 64))
        place = (mixed >> np.uint64(64 - _PLACE_BITS)).astype(np.int64)
        first_at = np.full(1 << _PLACE_BITS, -1)
        first_at[place[::-1]] = np.arange(len(place) - 1, -1, -1)
        taken = np.flatnonzero(first_at >= 0)
        first = first_at[taken]
        first_at[taken] = np.arange(len(taken))
        code = first_at[place]
        if all((word[first][code] == word).all() for word in words):
            return code, first
    raise _OddError


def _column(
    data: U8, at: I64, records: U8, layouts: _Layouts, layout_of: I64, column: int
) -> tuple[I64, Bool | None]:
    """Values of one column, 0 where NULL, and which are NULL."""
    types, starts = layouts.types[:, column], layouts.starts[:, column]
    if ((types == _FLOAT) | (types >= _FIRST_TEXT)).any():
        raise _OddError
    sizes = _SIZES[types]
    if (types == types[0]).all() and (starts == starts[0]).all():
        value = _number(records, int(starts[0]), int(sizes[0]), int(types[0]))
    else:
        value = _windows(data, at + starts[layout_of], 8).view(">i8")[:, 0].astype(np.int64)
        value >>= np.minimum(64 - 8 * sizes, 63)[layout_of]
        if not sizes.all():
            value = np.where((sizes == 0)[layout_of], (types == _ONE)[layout_of], value)
    if not (types == _NULL).any():
        return value, None
    return value, (types == _NULL)[layout_of]


def _number(records: U8, start: int, size: int, kind: int) -> I64:
    """Values at the same place of each record, with the same size."""
    if not size:
        return np.full(len(records), kind == _ONE, np.int64)
    octets = records[:, start : start + size]
    if size in (1, 2, 4, 8):
        return octets.view(f">i{size}")[:, 0].astype(np.int64)
    head = 1 if size == 3 else 2
    value = octets[:, :head].view(f">i{head}")[:, 0].astype(np.int64)
    value <<= 8 * (size - head)
    value |= octets[:, head:].view(f">u{size - head}")[:, 0]
    return value
