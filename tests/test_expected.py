"""Columns that do not change are not fetched: the tables must come out as if they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fixtures.builder import TraceBuilder
from nsysacct.trace import columns, expected, read_trace
from nsysacct.trace.column import Column
from nsysacct.trace.schema import KERNEL, RUNTIME

COLUMNS = (
    "start",
    "end",
    "process",
    "gpu",
    "context",
    "stream",
    "correlation",
    "name",
    "graph",
    "row",
)


@pytest.mark.parametrize(
    ("table", "change"),
    [
        (KERNEL, {}),
        (KERNEL, {"contextId": 9}),
        (KERNEL, {"contextId": None}),
        (KERNEL, {"streamId": "side"}),
        (KERNEL, {"streamId": 2.5}),
        (KERNEL, {"streamId": None}),
        (KERNEL, {"deviceId": 1 << 40}),
        (KERNEL, {"graphNodeId": (3 << 32) | 5}),
        (RUNTIME, {"returnValue": 2}),
    ],
)
def test_a_change_between_the_ends_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, change: dict[str, object]
) -> None:
    builder = TraceBuilder()
    for i in range(400):
        builder.kernel(f"k_{i % 3}", 1_000 * i, 1_000 * i + 300, stream=7)
    builder.rows(table)[200].update(change)
    file = builder.write(tmp_path / "t.sqlite", strict=False)
    fetched = read_trace(file)
    monkeypatch.setattr(columns, "RANGE_ROWS", 32)
    monkeypatch.setattr(expected, "SAMPLE_ROWS", 10)
    compared = read_trace(file)
    for name in COLUMNS:
        assert np.array_equal(getattr(fetched.kernels, name), getattr(compared.kernels, name)), name
    assert np.array_equal(fetched.api.return_value, compared.api.return_value)
    assert np.array_equal(fetched.api.thread, compared.api.thread)
    assert fetched.rejected == compared.rejected


def test_only_columns_that_must_hold_integers_are_expected(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for i in range(5):
        builder.kernel("k", 10 * i, 10 * i + 5, stream=7)
    trace = read_trace(builder.write(tmp_path / "t.sqlite"))
    database = trace._database
    there = [Column("streamId"), Column("start"), Column("graphNodeId")]
    assert expected.expect(database, KERNEL, there, 1, 5) == {"streamId": 7, "graphNodeId": None}
    needed = [Column("graphNodeId", required=True)]
    assert expected.expect(database, KERNEL, needed, 1, 5) == {}
    assert expected.expect(database, "StringIds", [Column("value")], 1, 5) == {}
