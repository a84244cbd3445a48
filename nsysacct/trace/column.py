"""What to read of a table: integer columns by name, type and whether a row needs them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NONE = -1
"""Stands for NULL in id columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """An integer column to read.

    Attributes
    ----------
    name : str
        Name of the column in the table.
    dtype : type
        ``np.int64`` or ``np.int32``; values outside it are damage in a required column and NONE in
        another (sentinels such as 4294967295 for "all streams").
    required : bool
        Whether a row without a value is excluded. Otherwise NULL is NONE.
    is_id : bool
        Kept in the narrowest type that holds its values: nothing is computed with it. Columns of 32
        bits always are.
    """

    name: str
    dtype: type[np.int64] | type[np.int32] = np.int64
    required: bool = False
    is_id: bool = False
