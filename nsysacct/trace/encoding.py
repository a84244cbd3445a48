"""Big ids to small indices, and the checks on times and duplicates; all on whole arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]

TIME_LIMIT = 1 << 61
"""Times beyond it (ns) are damage: no clock reaches them. Clocks of the epoch are at 1.8e18, and the
difference of any two times below it fits 64 bits."""

_SUM_LIMIT = 1 << 62
_PEELS = 24
_LOOKUP_SPAN = 1 << 24


def fitting(low: int, high: int) -> np.dtype[np.signedinteger[Any]]:
    """Give the narrowest of int16, int32 and int64 that holds `low` to `high`."""
    for kind in (np.int16, np.int32):
        bounds = np.iinfo(kind)
        if bounds.min <= low and high <= bounds.max:
            return np.dtype(kind)
    return np.dtype(np.int64)


def narrowed(values: npt.NDArray[np.signedinteger[Any]]) -> npt.NDArray[np.signedinteger[Any]]:
    """`values` in the narrowest type that holds them; for what is compared, not computed with."""
    if not values.size:
        return values
    if is_constant(values):
        only = int(values[0])
        return np.broadcast_to(fitting(only, only).type(only), values.shape)
    return values.astype(fitting(int(values.min()), int(values.max())), copy=False)


def is_constant(values: npt.NDArray[np.generic]) -> bool:
    """Whether the array is a view of one element."""
    return values.size > 0 and values.strides == (0,)


def distinct(values: npt.NDArray[np.integer]) -> tuple[I64, I32]:
    """Sorted distinct values, and the index of each value among them.

    As ``np.unique(return_inverse=True)``, without its sort where ids lie close together or are few.
    """
    if not values.size:
        return np.empty(0, np.int64), np.empty(0, np.int32)
    if is_constant(values):
        return values[:1].astype(np.int64), np.broadcast_to(np.int32(0), values.shape)
    low, high = int(values.min()), int(values.max())
    if high - low < _LOOKUP_SPAN:
        offsets = np.subtract(
            values, low, dtype=np.int64 if values.dtype.itemsize > 4 else np.int32
        )
        seen = np.zeros(high - low + 1, bool)
        seen[offsets] = True
        found = np.flatnonzero(seen)
        index = np.zeros(high - low + 1, np.int32)
        index[found] = np.arange(len(found), dtype=np.int32)
        return found + low, index[offsets]
    few = _peel(values)
    if few is not None:
        return few, np.searchsorted(few, values).astype(np.int32)
    found, inverse = np.unique(values, return_inverse=True)
    return found.astype(np.int64), inverse.astype(np.int32)


def _peel(values: npt.NDArray[np.integer]) -> I64 | None:
    """Sorted distinct values when there are only a few, else None."""
    found: list[int] = []
    rest = values
    while rest.size:
        if len(found) == _PEELS:
            return None
        found.append(int(rest[0]))
        rest = rest[rest != rest[0]]
    return np.array(sorted(found), np.int64)


def relabel(codes: I32, new: npt.NDArray[np.signedinteger[Any]]) -> npt.NDArray[Any]:
    """``new[codes]`` in the narrowest type, which keeps a constant column constant."""
    new = narrowed(new)
    return np.broadcast_to(new[int(codes[0])], codes.shape) if is_constant(codes) else new[codes]


def absurd(*times: I64) -> Bool | None:
    """Rows with a time beyond TIME_LIMIT, or None when there are none."""
    bad: Bool | None = None
    for time in times:
        if time.size and (int(time.max()) > TIME_LIMIT or int(time.min()) < -TIME_LIMIT):
            mark = (time > TIME_LIMIT) | (time < -TIME_LIMIT)
            bad = mark if bad is None else bad | mark
    return bad


def sum_overflows(start: I64, end: I64) -> bool:
    """Whether the durations sum to more than 64 bits can hold."""
    if not start.size:
        return False
    span = int(end.max()) - int(start.min())
    if span * start.size < _SUM_LIMIT:
        return False  # the usual case, without a pass over the durations
    return float((end - start).sum(dtype=np.float64)) >= _SUM_LIMIT


def repeated(start: I64, *others: npt.NDArray[np.integer]) -> Bool | None:
    """Rows that repeat an earlier one in all columns, or None when there are none.

    Only rows that share their start with another are compared, so that the usual case costs one
    pass (starts ascend) or one sort of plain numbers.
    """
    if len(start) < 2 or bool((start[1:] > start[:-1]).all()):
        return None
    ordered = np.sort(start)
    shared = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(shared):
        return None
    rows = np.flatnonzero(np.isin(start, shared))
    keys = [start[rows], *(other[rows] for other in others)]
    order = np.lexsort((rows, *keys))
    same = np.ones(len(order) - 1, bool)
    for key in keys:
        same &= key[order][1:] == key[order][:-1]
    if not same.any():
        return None
    bad = np.zeros(len(start), bool)
    bad[rows[order[1:][same]]] = True
    return bad
