"""Unions of half-open time intervals [start, end), integer nanoseconds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nsysacct.groups import blocks

I64 = npt.NDArray[np.int64]


class Cover:
    """Union of intervals that come in ascending order of their starts, some at a time.

    Attributes
    ----------
    total : int
        Time covered so far, ns.

    Examples
    --------
    >>> import numpy as np
    >>> cover = Cover()
    >>> cover.add(np.array([0, 2]), np.array([3, 5]))
    (array([0, 3]), array([3, 5]))
    >>> cover.add(np.array([4, 8]), np.array([6, 9]))
    (array([5, 8]), array([6, 9]))
    >>> cover.total
    7
    """

    def __init__(self) -> None:
        self.total = 0
        self._reach = np.int64(np.iinfo(np.int64).min)

    def add(self, start: I64, end: I64) -> tuple[I64, I64]:
        """Cover more; gives the parts that were not covered before, ascending and disjoint."""
        if not len(start):
            return start, end
        reach = np.maximum.accumulate(np.concatenate([[self._reach], end]))
        begin = np.maximum(start, reach[:-1])
        self._reach = reach[-1]
        new = end > begin
        begin, end = begin[new], end[new]
        self.total += int((end - begin).sum())
        return begin, end


def union_ns(start: I64, end: I64) -> int:
    """Time covered by at least one of the intervals (in any order; ``end >= start``), ns."""
    if not bool((start[1:] >= start[:-1]).all()):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    cover = Cover()
    for block in blocks(len(start)):
        cover.add(start[block], end[block])
    return cover.total


def clip(start: I64, end: I64, low: int, high: int) -> tuple[I64, I64]:
    """Intervals cut to [low, high); those outside become empty."""
    return np.clip(start, low, high), np.clip(end, low, high)


def covered_ns(parts: tuple[I64, I64], low: I64, high: I64) -> I64:
    """Covered time inside each window [low, high), ns.

    Parameters
    ----------
    parts : (start, end)
        Ascending and disjoint, as `Cover.add` gives them.
    low, high : int64, shape (w,)
        Windows, in any order.
    """
    start, end = parts
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
