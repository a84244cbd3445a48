"""Records of a table decoded many at a time: integers and NULL, by the layouts that their headers tell.

Source: "Database File Format", sqlite.org/fileformat2.html, sections 1.6 (variable-length integers) and 2.1
(records).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]

MOST_COLUMNS = 126
"""Columns whose types fit a record header with a length of one byte."""
_SIZES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0], np.int64)
"""Bytes of a value by its serial type; 0 is NULL, 7 a float, 8 and 9 are the numbers 0 and 1."""
_NULL, _FLOAT, _ONE, _FIRST_TEXT = 0, 7, 9, 12
BEHIND = 1 << 17
"""Bytes behind the pages, so that a read of the longest record at their end stays in the array."""
_MIX = 0x9E3779B97F4A7C15
_PLACE_BITS = 14
_TRIES = 8
"""Hashes that are tried until no two headers share a place in the table."""


class OddError(Exception):
    """Something that is not plain; SQLite has to look at it."""


def windows(data: U8, at: I64, width: int) -> U8:
    """Take `width` bytes from each place; shape (places, width rounded up to 8)."""
    width = max(8, -(-width // 8) * 8)
    sliding: npt.NDArray[Any] = np.ndarray(
        len(data) - width + 1, np.dtype((np.void, width)), data.data, 0, (1,)
    )
    return np.ascontiguousarray(sliding[at]).view(np.uint8).reshape(len(at), width)


def big_endian(octets: U8) -> I64:
    """Read big-endian unsigned numbers of up to 7 bytes, one a row."""
    value = octets[:, 0].astype(np.int64)
    for i in range(1, octets.shape[1]):
        value = value << 8 | octets[:, i]
    return value


def short_varint(data: U8, at: I64) -> tuple[I64, I64]:
    """Numbers of one or two bytes, and how many."""
    first = data[at].astype(np.int64)
    long = first >= 0x80
    if not long.any():
        return first, np.ones(len(at), np.int64)
    second = data[at + 1].astype(np.int64)
    if (long & (second >= 0x80)).any():
        raise OddError
    return np.where(long, (first & 0x7F) << 7 | second, first), 1 + long.astype(np.int64)


def varint(data: U8, at: I64) -> tuple[I64, I64]:
    """Numbers of up to seven bytes, and how many."""
    word = windows(data, at, 8).view(">u8")[:, 0].astype(np.uint64)
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
        raise OddError
    return value, length


@dataclass(frozen=True, slots=True)
class Layouts:
    """Distinct record headers: serial types, where each value begins, bytes of the whole record."""

    types: I64  # (layouts, columns)
    starts: I64  # (layouts, columns)
    sizes: I64  # (layouts,)


def layouts_of(records: U8, stored: int) -> tuple[Layouts, I64]:
    """Tell the distinct headers apart; index of each record's.

    Each type is one byte here: a number, NULL, or text of up to 57 bytes.
    """
    header = stored + 1
    if records.shape[1] < header:
        raise OddError
    code, first = _distinct_rows(records, header)
    heads = records[first, :header].astype(np.int64)
    types = heads[:, 1:]
    if (
        (heads[:, 0] != header).any()
        or (types >= 0x80).any()
        or ((types > _ONE) & (types < _FIRST_TEXT)).any()
    ):
        raise OddError
    sizes = np.where(
        types < _FIRST_TEXT, _SIZES[np.minimum(types, _ONE)], (types - _FIRST_TEXT) >> 1
    )
    ends = header + np.cumsum(sizes, axis=1)
    return Layouts(types, ends - sizes, ends[:, -1]), code


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
    raise OddError


def column_of(
    data: U8, at: I64, records: U8, layouts: Layouts, layout_of: I64, column: int
) -> tuple[I64, Bool | None]:
    """Values of one column, 0 where NULL, and which are NULL."""
    types, starts = layouts.types[:, column], layouts.starts[:, column]
    if ((types == _FLOAT) | (types >= _FIRST_TEXT)).any():
        raise OddError
    sizes = _SIZES[types]
    if (types == types[0]).all() and (starts == starts[0]).all():
        value = _number(records, int(starts[0]), int(sizes[0]), int(types[0]))
    else:
        value = windows(data, at + starts[layout_of], 8).view(">i8")[:, 0].astype(np.int64)
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
