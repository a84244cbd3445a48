"""Columns that have one value throughout: tested inside SQLite, so that the value is not fetched for each row.

In most exports device, context, process and return value never change. Fetching a value costs three times as
much as comparing it where it lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nsysacct.trace.column import Column
from nsysacct.trace.database import Database, quoted, text_of

SAMPLE_ROWS = 1000
"""Rows at either end of a table from which it is told which columns do not change."""

Expected = dict[str, int | None]
"""Column -> its only value, None for NULL."""


def expect(
    database: Database, table: str, columns: Sequence[Column], low: int, high: int
) -> Expected:
    """Tell from both ends of a table which columns have one value, if only for now.

    Parameters
    ----------
    low, high : int
        First and last rowid.
    """
    whole = _integer_columns(database, table)
    columns = [column for column in columns if column.name in whole]
    if not columns:
        return {}
    ends = f"rowid BETWEEN {low} AND {low + SAMPLE_ROWS} OR rowid BETWEEN {high - SAMPLE_ROWS} AND {high}"
    chosen = ", ".join(quoted(column.name) for column in columns)
    rows = database.rows(table, f"SELECT DISTINCT {chosen} FROM {quoted(table)} WHERE {ends}")
    found: Expected = {}
    for column, values in zip(columns, zip(*rows, strict=True), strict=False):
        value = values[0]
        if len({*values}) == 1 and _usable(column, value):
            assert value is None or isinstance(value, int)
            found[column.name] = value
    return found


def _integer_columns(database: Database, table: str) -> set[str]:
    """Columns of integer affinity: in those, a value that equals an integer is one."""
    rows = database.rows(table, f"SELECT name, type FROM pragma_table_info({quoted(table)})")
    return {text_of(name) for name, declared in rows if "INT" in text_of(declared).upper()}


def _usable(column: Column, value: object) -> bool:
    if value is None:
        return not column.required
    bounds = np.iinfo(column.dtype)
    return isinstance(value, int) and bounds.min <= value <= bounds.max


def rowid_if(expected: Mapping[str, int | None]) -> str:
    """SQL for the rowid; NULL where a row differs from what is expected."""
    tests = [
        f"{quoted(name)} IS {'NULL' if value is None else value}"
        for name, value in expected.items()
    ]
    return f"CASE WHEN {' AND '.join(tests)} THEN rowid END" if tests else "rowid"
