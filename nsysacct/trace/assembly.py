"""Putting a table together from the pieces in which it is read, in the narrowest types that hold it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nsysacct.trace.column import NONE, Column
from nsysacct.trace.encoding import fitting, is_constant

I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rejection:
    """Rows that were left out: where, why, how many."""

    table: str
    reason: str
    count: int


@dataclass
class Table:
    """Columns of a table, damaged rows left out.

    Attributes
    ----------
    arrays : dict
        Column name -> array of `size`. Constant columns are read-only views of one element.
    size : int
        Rows kept.
    first : int
        Smallest rowid.
    kept : int64 array or None
        Rowids of the rows kept; None when they are ``first .. first + size - 1``.
    rejected : list of Rejection
    """

    arrays: dict[str, npt.NDArray[Any]]
    size: int
    first: int = 1
    kept: I64 | None = None
    rejected: list[Rejection] = field(default_factory=list)

    def rowids(self) -> I64:
        """Rowid of each row."""
        if self.kept is not None:
            return self.kept
        return np.arange(self.first, self.first + self.size, dtype=np.int64)

    def keep(self, good: Bool) -> None:
        """Keep the rows marked in `good`."""
        rowids = self.rowids()
        self.kept = rowids[good]
        self.size = len(self.kept)
        for name, array in self.arrays.items():
            constant = is_constant(array) and self.size
            self.arrays[name] = np.broadcast_to(array[0], self.size) if constant else array[good]


@dataclass(frozen=True, slots=True)
class Piece:
    """What one range gave: a scalar in place of an array means the same value in each row.

    `rowids` is None when they are ``low .. low + size - 1``.
    """

    low: int
    size: int
    values: dict[str, npt.NDArray[Any] | int]
    rowids: I64 | None
    damaged: int
    missing: int

    @property
    def seen(self) -> int:
        """Rows read, those left out included."""
        return self.size + self.damaged + self.missing


class _Filling:
    """A column that grows by pieces into memory set aside once, or stays a single value.

    `narrow` keeps it in the smallest type that holds what has come so far.
    """

    def __init__(self, capacity: int, *, narrow: bool = False) -> None:
        self._dtype: np.dtype[np.signedinteger[Any]] = np.dtype(np.int16 if narrow else np.int64)
        self._capacity = capacity
        self._size = 0
        self._value = NONE
        self._array: npt.NDArray[Any] | None = None

    def add(self, part: npt.NDArray[Any] | int, size: int) -> None:
        """Append `size` rows."""
        self._widen(part)
        if self._size == 0 and isinstance(part, int):
            self._value = part
        elif self._array is None and not (isinstance(part, int) and part == self._value):
            self._array = np.empty(self._capacity, self._dtype)  # costs memory once written to
            self._array[: self._size] = self._value
        if self._array is not None:
            self._array[self._size : self._size + size] = part
        self._size += size

    def _widen(self, part: npt.NDArray[Any] | int) -> None:
        """Take a wider type where the next values need it."""
        if self._dtype == np.int64:
            return
        low, high = (part, part) if isinstance(part, int) else (part.min(), part.max())
        wider = fitting(int(low), int(high))
        if wider.itemsize <= self._dtype.itemsize:
            return
        self._dtype = wider
        if self._array is not None:
            old, self._array = self._array, np.empty(self._capacity, wider)
            self._array[: self._size] = old[: self._size]

    def finished(self) -> npt.NDArray[Any]:
        """Give the column; one value throughout takes the room of one."""
        if self._array is not None:
            return self._array[: self._size]
        if not self._size:
            return np.empty(0, self._dtype)
        return np.broadcast_to(self._dtype.type(self._value), self._size)


class Whole:
    """Puts pieces together as they come."""

    def __init__(self, columns: Sequence[Column], low: int, capacity: int) -> None:
        self.seen = 0
        self._low = low
        self._size = 0
        self._counts = {"a value is not an integer": 0, "a value is missing or out of range": 0}
        self._columns = {
            column.name: _Filling(capacity, narrow=column.is_id or column.dtype is np.int32)
            for column in columns
        }
        self._rowids = _Filling(capacity)
        self._contiguous = True

    def add(self, piece: Piece) -> None:
        """Append a piece."""
        self.seen += piece.seen
        for reason, count in zip(self._counts, (piece.damaged, piece.missing), strict=True):
            self._counts[reason] += count
        if not piece.size:
            return
        for name, column in self._columns.items():
            column.add(piece.values.get(name, NONE), piece.size)
        self._add_rowids(piece)
        self._size += piece.size

    def _add_rowids(self, piece: Piece) -> None:
        """Keep rowids from the first gap on; until then their numbers follow from the place."""
        follows = piece.rowids is None and piece.low == self._low + self._size
        if self._contiguous and follows:
            return
        if self._contiguous and self._size:
            self._rowids.add(np.arange(self._low, self._low + self._size), self._size)
        self._contiguous = False
        rowids = piece.rowids
        if rowids is None:
            rowids = np.arange(piece.low, piece.low + piece.size)
        self._rowids.add(rowids, piece.size)

    def finished(self, table: str) -> Table:
        """Give the table."""
        return Table(
            {name: column.finished() for name, column in self._columns.items()},
            self._size,
            self._low,
            None if self._contiguous else self._rowids.finished(),
            [Rejection(table, reason, n) for reason, n in self._counts.items() if n],
        )
