"""Joining rows on correlation ids: which call launched an event, and which events a call has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nsysacct.groups import blocks
from nsysacct.trace.column import NONE

I64 = npt.NDArray[np.int64]
Ids = npt.NDArray[np.signedinteger[Any]]

LOOKUP_SPARE = 1 << 20
"""Places that a table of rows by id may have beyond four times the ids."""


def occur(wanted: Ids, ids: Ids) -> npt.NDArray[np.bool_]:
    """Tell which of the wanted ids occur among others; negative ones never do.

    Examples
    --------
    >>> occur(np.array([7, 6, -1]), np.array([5, 7, -1])).tolist()
    [True, False, False]
    """
    low, high = _ends(wanted)
    if high - low > 4 * (len(wanted) + len(ids)) + LOOKUP_SPARE:
        return np.isin(wanted, ids) & (wanted >= 0)
    seen = np.zeros(high - low + 2, bool)  # the last place is no id's
    for part in blocks(len(ids)):
        seen[_places(ids[part], low, high)] = True
    seen[-1] = False
    return np.concatenate(
        [seen[_places(wanted[part], low, high)] for part in blocks(len(wanted))] or [seen[:0]]
    )


@dataclass(frozen=True, slots=True)
class ById:
    """Rows by id. Ids are handed out one by one, so a table of them replaces a search in most traces.

    Attributes
    ----------
    low : int
        Id of the first place of `row_of`.
    row_of : int32 array or None
        Row of each id from `low` on, the first one of equal ids; NONE where no row has it. None where
        ids lie too far apart for a table.
    ids, order : arrays
        Ascending ids and their rows, in place of the table.
    """

    low: int
    row_of: npt.NDArray[np.int32] | None
    ids: Ids
    order: I64

    @classmethod
    def of(cls, ids: Ids) -> ById:
        """Index rows by their ids; negative ones are none.

        Examples
        --------
        >>> ById.of(np.array([7, 5, 7])).rows(np.array([5, 6, 7, -1])).tolist()
        [1, -1, 0, -1]
        """
        low, high = _ends(ids)
        if high - low > 4 * len(ids) + LOOKUP_SPARE or len(ids) > np.iinfo(np.int32).max:
            order = np.argsort(ids, kind="stable")
            return cls(low, None, ids[order], order)
        row_of = np.full(high - low + 2, NONE, np.int32)  # the last place is no id's
        for part in reversed(list(blocks(len(ids)))):  # the first of equal ids is written last
            rows = np.arange(part.start, part.stop, dtype=np.int32)
            row_of[_places(ids[part], low, high)[::-1]] = rows[::-1]
        row_of[-1] = NONE
        return cls(low, row_of, ids[:0], np.empty(0, np.int64))

    def rows(self, ids: Ids) -> Ids:
        """Row of each id; NONE where no row has it."""
        if self.row_of is None:
            at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
            return np.where((self.ids[at] == ids) & (ids >= 0), self.order[at], NONE)
        found = np.empty(len(ids), np.int32)
        for part in blocks(len(ids)):
            places = _places(ids[part], self.low, self.low + len(self.row_of) - 2)
            found[part] = self.row_of[places]
        return found


def _ends(ids: Ids) -> tuple[int, int]:
    """Smallest and largest of the ids that are not negative; the latter is one less for none."""
    high = int(ids.max(initial=NONE))
    return (max(int(ids.min()), 0), high) if high >= 0 else (0, NONE)


def _places(ids: Ids, low: int, high: int) -> I64:
    """Place of each id in a table of those from `low` to `high`; all others share the last place."""
    places = np.subtract(ids, low, dtype=np.int64)
    if len(ids) and (int(ids.min()) < low or int(ids.max()) > high):
        places[(ids < low) | (ids > high)] = high - low + 1
    return places
