"""Pages of a table decoded by ourselves give what SQLite gives, or nothing."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import TRACES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures.builder import TraceBuilder
from nsysacct.errors import TraceError
from nsysacct.trace import columns, pages, read_trace
from nsysacct.trace.column import NONE, Column
from nsysacct.trace.database import Database
from nsysacct.trace.schema import KERNEL, RUNTIME, SYNCHRONIZATION

Rows = list[tuple[int | None, ...]]
SHIPPED = sorted(path.name.removesuffix(".sqlite.xz") for path in TRACES.glob("*.sqlite.xz"))


def database_of(path: Path) -> Database:
    return Database(path.name, path.as_uri() + "?mode=ro&immutable=1", {}, path)


def decoded(path: Path, table: str, names: Sequence[str]) -> Rows | None:
    """Rowid and columns of all rows by our decoder; None when it leaves any of them to SQLite."""
    paged = pages.open_table(database_of(path), table, names)
    if paged is None:
        return None
    rows: Rows = []
    for group in paged.groups(-(1 << 63), (1 << 63) - 1):
        values = paged.read(group)
        if values is None:
            return None
        assert values.damaged is None
        every: list[list[int | None]] = [values.rowids.tolist()]
        for data, null in values.columns:
            missing = np.zeros(len(data), bool) if null is None else null
            every.append([None if m else d for d, m in zip(data.tolist(), missing, strict=True)])
        rows += zip(*every, strict=True)
    return rows


def asked(path: Path, table: str, names: Sequence[str]) -> Rows:
    connection = sqlite3.connect(path.as_uri() + "?mode=ro&immutable=1", uri=True)
    try:
        chosen = ", ".join(f'"{name}"' for name in names)
        return connection.execute(f"SELECT rowid, {chosen} FROM {table}").fetchall()
    finally:
        connection.close()


def whole_number_columns(path: Path, table: str) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        found = connection.execute(f"PRAGMA table_info({table})").fetchall()
        return [row[1] for row in found if "INT" in row[2].upper() and not row[5]]
    finally:
        connection.close()


def write(path: Path, rows: Sequence[tuple[object, ...]], page_size: int = 4096) -> Path:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA page_size = {page_size}")
    connection.execute("CREATE TABLE t (a INTEGER, b INT, c BIGINT)")
    connection.executemany("INSERT INTO t (rowid, a, b, c) VALUES (?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return path


@pytest.mark.parametrize("name", SHIPPED)
def test_every_row_of_a_shipped_trace(trace_file: Callable[[str], Path], name: str) -> None:
    path = trace_file(name)
    for table in (KERNEL, RUNTIME):
        names = whole_number_columns(path, table)
        rows = decoded(path, table, names)
        assert rows is not None
        assert rows == asked(path, table, names)


@pytest.mark.parametrize("page_size", [512, 1024, 8192, 65536])
def test_every_page_size(tmp_path: Path, page_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "GROUP_BYTES", 1 << 16)  # several groups
    rows = [(i, i % 3, i * 7919, -i) for i in range(1, 30_000)]
    path = write(tmp_path / "t.sqlite", rows, page_size)
    assert decoded(path, "t", ["a", "b", "c"]) == rows
    assert decoded(path, "t", ["c"]) == [(row[0], row[3]) for row in rows]


integers = st.none() | st.sampled_from([0, 1, -1]) | st.integers(-(2**63), 2**63 - 1)
sized = st.integers(0, 62).flatmap(lambda bits: st.integers(-(1 << bits), 1 << bits))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.integers(1, 1 << 40), st.tuples(integers, integers | sized, integers), max_size=60
    ),
    st.sampled_from([512, 4096]),
)
def test_any_integers_and_rowids(
    tmp_path: Path, rows: dict[int, tuple[int | None, ...]], page_size: int
) -> None:
    path = tmp_path / "t.sqlite"
    path.unlink(missing_ok=True)
    expected = [(rowid, *values) for rowid, values in sorted(rows.items())]
    found = decoded(write(path, expected, page_size), "t", ["a", "b", "c"])
    assert found == (expected if expected else None)


@pytest.mark.parametrize("value", ["text", b"\x01\x02", 2.5, "x" * 5_000])
def test_what_is_no_integer_is_left_to_sqlite(tmp_path: Path, value: object) -> None:
    path = write(tmp_path / "t.sqlite", [(1, 5, 6, 7), (2, 5, value, 7), (3, 5, 6, 7)])
    assert decoded(path, "t", ["b"]) is None
    short = not isinstance(value, str) or len(value) < 50
    assert (decoded(path, "t", ["a"]) == [(1, 5), (2, 5), (3, 5)]) == short


@pytest.mark.parametrize(
    "definition",
    [
        "CREATE TABLE t (a INTEGER PRIMARY KEY, b INTEGER)",
        "CREATE TABLE t (b INTEGER, a INTEGER, PRIMARY KEY (b)) WITHOUT ROWID",
        "CREATE TABLE t (b INTEGER, a INTEGER GENERATED ALWAYS AS (b + 1) VIRTUAL)",
        "CREATE TABLE t (b INTEGER, a REAL)",
        "CREATE TABLE t (b INTEGER, a)",
    ],
)
def test_columns_that_are_not_stored_as_they_are_read(tmp_path: Path, definition: str) -> None:
    path = tmp_path / "t.sqlite"
    connection = sqlite3.connect(path)
    connection.execute(definition)
    connection.execute("INSERT INTO t (b) VALUES (4)")
    connection.commit()
    connection.close()
    assert decoded(path, "t", ["a"]) is None


def test_a_column_added_later_is_left_to_sqlite(tmp_path: Path) -> None:
    path = write(tmp_path / "t.sqlite", [(1, 5, 6, 7)])
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE t ADD COLUMN d INTEGER DEFAULT 9")
    connection.execute("INSERT INTO t VALUES (1, 2, 3, 4)")
    connection.commit()
    connection.close()
    assert decoded(path, "t", ["d"]) is None
    assert asked(path, "t", ["d"]) == [(1, 9), (2, 4)]


@pytest.mark.parametrize("gaps", [False, True])
def test_rows_older_than_columns_are_all_read(tmp_path: Path, gaps: bool) -> None:
    builder = TraceBuilder()
    builder.kernel("k", 0, 300)
    for i in range(300):
        builder.sync(1_000 * i, 1_000 * i + 300, stream=7)
    path = builder.write(tmp_path / "t.sqlite")
    connection = sqlite3.connect(path)
    with connection:
        # their records are shorter than a value of each column would allow
        for i in range(100):
            connection.execute(f"ALTER TABLE {SYNCHRONIZATION} ADD COLUMN later{i} INTEGER")
        if gaps:
            connection.execute(f"DELETE FROM {SYNCHRONIZATION} WHERE rowid % 10 = 0")
    connection.close()
    syncs = read_trace(path).syncs
    rows = [i for i in range(1, 301) if not gaps or i % 10]
    assert syncs.row.tolist() == rows
    assert syncs.start.tolist() == [1_000 * (i - 1) for i in rows]


def test_an_index_that_lacks_rows_does_not_set_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "t.sqlite", [(i, i, i, "x") for i in range(1, 50)])
    connection = sqlite3.connect(path)
    connection.execute("CREATE INDEX i ON t (a)")
    connection.execute("CREATE TABLE other (a INTEGER)")
    connection.execute("CREATE INDEX j ON other (a)")
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(
        "UPDATE sqlite_master SET rootpage ="
        " (SELECT m.rootpage FROM sqlite_master AS m WHERE m.name = 'j') WHERE name = 'i'"
    )
    connection.commit()
    connection.close()
    database = Database(path.name, database_of(path).uri, {"t": ("a", "b", "c")}, path)
    monkeypatch.setattr(columns, "open_table", lambda *_: None)
    table = columns.read_table(database, "t", [Column("a"), Column("b")])
    assert table.arrays["a"].tolist() == list(range(1, 50))


def test_a_damaged_file_is_decoded_as_sqlite_reads_it_or_not_at_all(tmp_path: Path) -> None:
    rows = [(i, i % 5, i * 31, None if i % 7 else i) for i in range(1, 400)]
    good = write(tmp_path / "good.sqlite", rows, 512).read_bytes()
    path = tmp_path / "bad.sqlite"
    chance = random.Random(5)
    compared = 0
    for _ in range(1_500):
        data = bytearray(good)
        for _ in range(chance.choice([1, 1, 2, 8])):
            data[chance.randrange(1024, len(data))] = chance.randrange(256)
        path.write_bytes(data)
        found = decoded(path, "t", ["a", "b", "c"])
        if found is not None:
            compared += 1
            assert found == asked(path, "t", ["a", "b", "c"])
    assert 100 < compared < 1_500


def test_a_tree_that_bites_its_tail_is_left_to_sqlite(tmp_path: Path) -> None:
    path = write(tmp_path / "t.sqlite", [(i, i, i, i) for i in range(1, 2_000)], 512)
    connection = sqlite3.connect(path)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master").fetchone()
    connection.close()
    data = bytearray(path.read_bytes())
    at = (root - 1) * 512
    assert data[at] == 5  # an interior page
    data[at + 8 : at + 12] = root.to_bytes(4, "big")  # its right child is itself
    path.write_bytes(data)
    assert decoded(path, "t", ["a"]) is None


@pytest.mark.parametrize("shift", [-3, 3])
def test_rows_that_the_tree_misplaces_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: int
) -> None:
    path = write(tmp_path / "t.sqlite", [(i, i, i, i) for i in range(1, 120)], 512)
    connection = sqlite3.connect(path)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master").fetchone()
    connection.close()
    data = bytearray(path.read_bytes())
    at = (root - 1) * 512
    assert data[at] == 5  # an interior page: each cell is a child and the largest rowid below it
    cell = at + int.from_bytes(data[at + 12 : at + 14], "big")
    data[cell + 4] += shift
    path.write_bytes(data)
    monkeypatch.setattr(pages, "GROUP_BYTES", 512)
    database = Database(path.name, database_of(path).uri, {"t": ("a", "b", "c")}, path)
    table = columns.read_table(database, "t", [Column("a")])
    assert table.arrays["a"].tolist() == list(range(1, 120))


def test_a_file_cut_off_is_left_to_sqlite(tmp_path: Path) -> None:
    path = write(tmp_path / "t.sqlite", [(i, i, i, i) for i in range(1, 2_000)], 512)
    path.write_bytes(path.read_bytes()[: -40 * 512])
    with pytest.raises(TraceError, match="damaged"):
        decoded(path, "t", ["a"])


@pytest.mark.parametrize("column", ["end", "streamId", "graphNodeId"])
def test_one_odd_row_sends_its_pages_through_sqlite_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    builder = TraceBuilder()
    for i in range(2_000):
        builder.kernel(f"k_{i % 7}", 1_000 * i, 1_000 * i + 300, stream=i % 3)
    builder.rows(KERNEL)[1_000][column] = "odd"
    path = builder.write(tmp_path / "t.sqlite", strict=False)
    answers: list[bool] = []
    read = pages.PagedTable.read

    def noted(self: pages.PagedTable, group: pages.Group) -> pages.Values | None:
        values = read(self, group)
        answers.append(values is not None)
        return values

    monkeypatch.setattr(pages, "GROUP_BYTES", 1 << 14)
    monkeypatch.setattr(pages.PagedTable, "read", noted)
    kernels = read_trace(path).kernels
    assert answers.count(False) == 1
    assert answers.count(True) > 5
    monkeypatch.setattr(columns, "open_table", lambda *_: None)
    through_sqlite = read_trace(path).kernels
    for name in ("start", "end", "stream", "name", "correlation", "graph", "row"):
        assert np.array_equal(getattr(kernels, name), getattr(through_sqlite, name)), name
    assert len(kernels) == 1_999
    assert NONE in kernels.graph


def test_rows_that_a_search_misses_are_not_lost_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page whose rows go beyond the key above it: a scan finds them, a search for rowids does not."""
    builder = TraceBuilder()
    for i in range(3_000):
        builder.kernel("k", 1_000 * i, 1_000 * i + 300)
    path = builder.write(tmp_path / "t.sqlite")
    paged = pages.open_table(database_of(path), KERNEL, ["start"])
    assert paged is not None
    key = int(paged.last_rowids[3])
    data = bytearray(path.read_bytes())
    written = bytes([0x80 | key >> 7, key & 0x7F])  # as it stands in the page above
    where = int(paged.leaves[3]).to_bytes(4, "big") + written
    assert data.count(where) == 1
    at = data.index(where) + 4
    data[at : at + 2] = bytes([0x80 | (key - 5) >> 7, (key - 5) & 0x7F])
    path.write_bytes(data)
    monkeypatch.setattr(pages, "GROUP_BYTES", 1)
    assert read_trace(path).kernels.start.tolist() == [1_000 * i for i in range(3_000)]
