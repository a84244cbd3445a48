"""Unions of half-open time intervals [start, end), integer nanoseconds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


def merge(start: I64, end: I64) -> tuple[I64, I64]:
    """Merge intervals into the disjoint ones that cover the same instants.

    Parameters
    ----------
    start, end : int64, shape (n,)
        In any order; ``end >= start``.

    Returns
    -------
    start, end : int64, shape (m,)
        Sorted, disjoint and not touching; empty intervals are dropped.

    Examples
    --------
    >>> import numpy as np
    >>> merge(np.array([5, 0, 2]), np.array([9, 3, 4]))
    (array([0, 5]), array([4, 9]))
    """
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if not len(start):
        return start, end
    if not (start[1:] >= start[:-1]).all():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    opens = np.ones(len(start), bool)
    opens[1:] = start[1:] > reach[:-1]
    first = np.flatnonzero(opens)
    last = np.append(first[1:] - 1, len(start) - 1)
    return start[first], reach[last]


def union_ns(start: I64, end: I64) -> int:
    """Time covered by at least one of the intervals, ns."""
    s, e = merge(start, end)
    return int((e - s).sum())


def clip(start: I64, end: I64, low: int, high: int) -> tuple[I64, I64]:
    """Intervals cut to [low, high); those outside become empty."""
    return np.clip(start, low, high), np.clip(end, low, high)


def covered_ns(merged: tuple[I64, I64], low: I64, high: I64) -> I64:
    """Covered time inside each window [low, high), ns, from an already merged cover.

    Parameters
    ----------
    merged : (start, end)
        As `merge` returns them.
    low, high : int64, shape (w,)
        Windows, in any order.
    """
    start, end = merged
    if not len(start):
        return np.zeros(len(low), np.int64)
    total = np.concatenate([[0], np.cumsum(end - start)])

    def before(t: I64) -> I64:
        """Covered time before each instant."""
        count = np.searchsorted(start, t, side="right")
        last = np.maximum(count - 1, 0)
        inside = np.where(count > 0, np.minimum(t, end[last]) - start[last], 0)
        return total[last] + inside

    return before(high) - before(low)
