"""Sums and extremes of values by group, exact in integers and without a pass over all rows per group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
Index = npt.NDArray[np.integer[Any]]


BLOCK = 1 << 20
"""Elements worked on at a time, so that what is computed on the way stays small and in the cache."""


def blocks(size: int) -> Iterator[slice]:
    """Cut `size` elements into blocks."""
    for low in range(0, size, BLOCK):
        yield slice(low, min(low + BLOCK, size))


def counts(values: Index, count: int) -> I64:
    """How often each of the numbers below `count` occurs."""
    total = np.zeros(count, np.int64)
    for block in blocks(len(values)):
        total += np.bincount(values[block], minlength=count)
    return total


def sums(ids: Index, values: Index, count: int) -> I64:
    """Exact sum of the values of each id below `count`."""
    total = np.zeros(count, np.int64)
    for block in blocks(len(ids)):
        np.add.at(total, ids[block], values[block].astype(np.int64))
    return total


@dataclass(frozen=True, slots=True)
class Groups:
    """Elements sorted into groups.

    Attributes
    ----------
    count : int
        Groups, empty ones included.
    order : int64 array or None
        Elements in the order of their groups; None when they stand so already.
    present : int array
        Groups that have elements, ascending.
    starts : int64 array
        First place (in `order`) of each of them.
    size : int
        Elements.
    """

    count: int
    order: I64 | None
    present: Index
    starts: I64
    size: int

    @classmethod
    def of(cls, ids: Index, count: int) -> Groups:
        """Sort elements by `ids`, each in [0, count); elements of one group keep their order.

        Examples
        --------
        >>> import numpy as np
        >>> groups = Groups.of(np.array([1, 1, 3]), 4)
        >>> groups.sum(np.array([5, 6, 7])).tolist(), groups.first().tolist()
        ([0, 11, 0, 7], [0, 2])
        """
        order = None
        if len(ids) and not bool((ids[1:] >= ids[:-1]).all()):
            order = np.argsort(ids, kind="stable")
            ids = ids[order]
        starts = np.flatnonzero(ids[1:] != ids[:-1]) + 1
        starts = np.concatenate([[0], starts]) if len(ids) else starts
        return cls(count, order, ids[starts], starts, len(ids))

    def first(self) -> I64:
        """First element of each group that has any."""
        return self.starts if self.order is None else self.order[self.starts]

    def last(self) -> I64:
        """Last element of each group that has any."""
        if not len(self.starts):
            return self.starts
        ends = np.append(self.starts[1:], self.size) - 1
        return ends if self.order is None else self.order[ends]

    def members(self) -> list[I64]:
        """Elements of each group, in their order."""
        bounds = np.full(self.count + 1, self.size)
        bounds[self.present] = self.starts
        bounds = np.minimum.accumulate(bounds[::-1])[::-1]
        order = np.arange(self.size) if self.order is None else self.order
        return [order[a:b] for a, b in pairwise(bounds.tolist())]

    def sum(self, values: Index) -> I64:
        """Sum by group; 0 for empty ones."""
        return self._reduced(np.add, values.astype(np.int64, copy=False), 0)

    def least(self, values: I64, empty: int) -> I64:
        """Smallest value by group."""
        return self._reduced(np.minimum, values, empty)

    def most(self, values: I64, empty: int) -> I64:
        """Largest value by group."""
        return self._reduced(np.maximum, values, empty)

    def _reduced(self, function: np.ufunc, values: I64, empty: int) -> I64:
        result = np.full(self.count, empty, np.int64)
        if len(self.starts):
            ordered = values if self.order is None else values[self.order]
            result[self.present] = function.reduceat(ordered, self.starts)
        return result
