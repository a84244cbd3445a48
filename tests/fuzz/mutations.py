"""One mutation of an export a seed: damaged bytes, damaged tables, damaged values."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

PAGE = 4096
HUGE = (2**63 - 1, -(2**63), 2**62, 2**62 + 1, -(2**62), 2**53 + 1, 2**32, 2**31, -1, 0)
TEXTS = ("", "12", "x" * 5_000, "1e400", "NaN", "\x1b[2J", "=1+1", "\0", "<b>", "9" * 40)
READ = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "NVTX_EVENTS",
    "StringIds",
    "META_DATA_EXPORT",
    "META_DATA_CAPTURE",
    "TARGET_INFO_GPU",
    "TARGET_INFO_CUDA_DEVICE",
    "CUDA_GRAPH_EVENTS",
    "CUDA_GRAPH_NODE_EVENTS",
    "DIAGNOSTIC_EVENT",
    "PROCESSES",
    "ANALYSIS_DETAILS",
)

Mutation = Callable[[Path, random.Random], str]


def mutate(source: Path, target: Path, seed: int) -> str:
    """Copy `source` to `target` and damage it; says how. Same seed, same damage."""
    rng = random.Random(seed)
    shutil.copyfile(source, target)
    mutations = (*BYTES, *TABLES, *VALUES)
    said = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        mutation = rng.choice(mutations)
        # a second damage may not be possible any more on what the first one left
        with contextlib.suppress(sqlite3.Error, UnicodeError, OverflowError, ValueError):
            said.append(f"{mutation.__name__} {mutation(target, rng)}".strip())
    return "; ".join(said)


# Bytes


def flip_bytes(path: Path, rng: random.Random) -> str:
    """Change bytes anywhere."""
    data = bytearray(path.read_bytes())
    count = rng.choice((1, 1, 4, 32, 500))
    for _ in range(count):
        data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
    path.write_bytes(data)
    return str(count)


def flip_head(path: Path, rng: random.Random) -> str:
    """Change bytes of the header or of the schema."""
    data = bytearray(path.read_bytes())
    limit = rng.choice((100, PAGE, 4 * PAGE))
    for _ in range(rng.choice((1, 2, 8))):
        data[rng.randrange(min(limit, len(data)))] = rng.randrange(256)
    path.write_bytes(data)
    return f"below {limit}"


def damage_page(path: Path, rng: random.Random) -> str:
    """Zero, repeat, swap or fill pages."""
    data = bytearray(path.read_bytes())
    pages = max(len(data) // PAGE, 2)
    one, other = rng.randrange(pages) * PAGE, rng.randrange(pages) * PAGE
    first, second = bytes(data[one : one + PAGE]), bytes(data[other : other + PAGE])
    how = rng.choice(("zero", "repeat", "swap", "fill"))
    if how == "zero":
        data[one : one + PAGE] = bytes(len(first))
    elif how == "fill":
        data[one : one + PAGE] = rng.randbytes(len(first))
    elif len(first) == len(second):
        data[other : other + PAGE] = first
        if how == "swap":
            data[one : one + PAGE] = second
    path.write_bytes(data)
    return f"{how} {one // PAGE}"


def cut(path: Path, rng: random.Random) -> str:
    """Cut the end off, at a page or anywhere."""
    size = path.stat().st_size
    length = rng.randrange(size)
    if rng.random() < 0.6:
        length -= length % PAGE
    with path.open("r+b") as file:
        file.truncate(length)
    return f"at {length} of {size}"


def wrong_page_count(path: Path, rng: random.Random) -> str:
    """Cut pages off and let the header agree, so that only reading a table finds out."""
    data = bytearray(path.read_bytes())
    pages = rng.randrange(1, max(2, len(data) // PAGE))
    data[28:32] = pages.to_bytes(4, "big")
    path.write_bytes(data[: pages * PAGE])
    return f"{pages} pages"


BYTES: tuple[Mutation, ...] = (flip_bytes, flip_head, damage_page, cut, wrong_page_count)

# Tables


@contextlib.contextmanager
def _changing(path: Path):  # type: ignore[no-untyped-def]
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("PRAGMA synchronous = OFF")
        yield connection
        connection.commit()
    finally:
        connection.close()


def _table(connection: sqlite3.Connection, rng: random.Random) -> str:
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    there = sorted({name for (name,) in found} & set(READ))
    if not there:
        raise sqlite3.Error("no table left")
    return rng.choice(there)


def _column(connection: sqlite3.Connection, table: str, rng: random.Random) -> str:
    names = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
    if not names:
        raise sqlite3.Error("no column")
    used = ("start", "end", "demangledName", "deviceId", "streamId", "correlationId", "globalPid",
            "globalTid", "nameId", "textId", "value", "id", "graphNodeId", "graphExecId",
            "eventType", "bytes", "returnValue", "contextId")  # fmt: skip
    likely = [name for name in names if name in used]
    return rng.choice(likely if likely and rng.random() < 0.8 else names)


def drop_table(path: Path, rng: random.Random) -> str:
    """Drop a table."""
    with _changing(path) as connection:
        table = _table(connection, rng)
        connection.execute(f'DROP TABLE "{table}"')
    return table


def empty_table(path: Path, rng: random.Random) -> str:
    """Delete all or some rows."""
    with _changing(path) as connection:
        table = _table(connection, rng)
        keep = rng.choice((0, 1, 3, 50))
        connection.execute(f'DELETE FROM "{table}" WHERE random() % 100 >= {keep}')
    return f"{table} to {keep} %"


def rename_column(path: Path, rng: random.Random) -> str:
    """Rename a column."""
    with _changing(path) as connection:
        table = _table(connection, rng)
        column = _column(connection, table, rng)
        new = rng.choice(("x", column.upper() + "_", 'a"b', "select", "\N{GREEK SMALL LETTER MU}"))
        quoted = new.replace('"', '""')
        connection.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{quoted}"')
    return f"{table}.{column} to {new}"


def drop_column(path: Path, rng: random.Random) -> str:
    """Drop a column."""
    with _changing(path) as connection:
        table = _table(connection, rng)
        column = _column(connection, table, rng)
        connection.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
    return f"{table}.{column}"


def retype_column(path: Path, rng: random.Random) -> str:
    """Write the table again with a column of another type."""
    with _changing(path) as connection:
        table = _table(connection, rng)
        column = _column(connection, table, rng)
        kind = rng.choice(("TEXT", "REAL", "BLOB"))
        names = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
        chosen = ", ".join(
            f'CAST("{n}" AS {kind}) AS "{n}"' if n == column else f'"{n}"' for n in names
        )
        connection.execute(f'CREATE TABLE written_again AS SELECT {chosen} FROM "{table}"')
        connection.execute(f'DROP TABLE "{table}"')
        connection.execute(f'ALTER TABLE written_again RENAME TO "{table}"')
    return f"{table}.{column} {kind}"


def other_object(path: Path, rng: random.Random) -> str:
    """Put a view, a table without rowids, or a view of itself in the table's place."""
    with _changing(path) as connection:
        table = _table(connection, rng)
        how = rng.choice(("view", "without rowid", "cyclic view"))
        connection.execute(f'ALTER TABLE "{table}" RENAME TO moved_away')
        if how == "view":
            connection.execute(f'CREATE VIEW "{table}" AS SELECT * FROM moved_away')
        elif how == "cyclic view":
            connection.execute(f'CREATE VIEW "{table}" AS SELECT * FROM between_us')
            connection.execute(f'CREATE VIEW between_us AS SELECT * FROM "{table}"')
        else:
            names = [row[1] for row in connection.execute("PRAGMA table_info(moved_away)")]
            columns = ", ".join(f'"{n}"' for n in names)
            connection.execute(
                f'CREATE TABLE "{table}" (key_ INTEGER PRIMARY KEY, {columns}) WITHOUT ROWID'
            )
            connection.execute(f'INSERT INTO "{table}" SELECT rowid, * FROM moved_away')
    return f"{table} {how}"


def repeat_rows(path: Path, rng: random.Random) -> str:
    """Insert rows of a table again."""
    with _changing(path) as connection:
        table = _table(connection, rng)
        connection.execute(
            f'INSERT OR IGNORE INTO "{table}" SELECT * FROM "{table}" ORDER BY random() LIMIT 50'
        )
    return table


def shuffle_rows(path: Path, rng: random.Random) -> str:
    """Put the rows in another order, with gaps between their ids."""
    with _changing(path) as connection:
        table = _table(connection, rng)
        connection.execute(f'CREATE TABLE shuffled AS SELECT * FROM "{table}" ORDER BY random()')
        if rng.random() < 0.5:
            connection.execute("UPDATE shuffled SET rowid = -rowid * 1000003")
        connection.execute(f'DROP TABLE "{table}"')
        connection.execute(f'ALTER TABLE shuffled RENAME TO "{table}"')
    return table


TABLES: tuple[Mutation, ...] = (
    drop_table,
    empty_table,
    rename_column,
    drop_column,
    retype_column,
    other_object,
    repeat_rows,
    shuffle_rows,
)

# Values


def _loosen(connection: sqlite3.Connection, table: str) -> None:
    """Write the table again without its constraints."""
    connection.execute(f'CREATE TABLE loosened AS SELECT * FROM "{table}"')
    connection.execute(f'DROP TABLE "{table}"')
    connection.execute(f'ALTER TABLE loosened RENAME TO "{table}"')


def set_values(path: Path, rng: random.Random) -> str:
    """Put NULL, text, a huge integer, a real or a blob into some rows, or all."""
    with _changing(path) as connection:
        table = _table(connection, rng)
        _loosen(connection, table)
        column = _column(connection, table, rng)
        choices: tuple[object, ...] = (None, rng.choice(TEXTS), rng.choice(HUGE), 1.5, b"\xff\xfe")
        value = rng.choice(choices)
        share = rng.choice((1, 1, 10, 100))
        # a column of type INT would turn text of digits back into a number
        connection.execute(
            f'UPDATE "{table}" SET "{column}" = ? WHERE rowid % 100 < {share}', (value,)
        )
    return f"{table}.{column} = {str(value)[:20]!r} in {share} %"


def spread_values(path: Path, rng: random.Random) -> str:
    """Give each row of a column a value of its own, near or far."""
    with _changing(path) as connection:
        table = _table(connection, rng)
        _loosen(connection, table)
        column = _column(connection, table, rng)
        new = rng.choice(
            ("random()", "random() % 5", "abs(random() % 3000000000)", "rowid", "-rowid",
             "rowid << 32", "random() % 1000000", "rowid << 40")
        )  # fmt: skip
        connection.execute(f'UPDATE "{table}" SET "{column}" = {new}')
    return f"{table}.{column} = {new}"


def bend_times(path: Path, rng: random.Random) -> str:
    """Reverse, clear, shift or collapse times."""
    with _changing(path) as connection:
        table = rng.choice(READ[:7])
        how = rng.choice(
            (
                'start = "end", "end" = start',
                'start = 0, "end" = 0',
                'start = start + (1 << 61), "end" = "end" + (1 << 61)',
                'start = -start, "end" = -"end"',
                '"end" = start',
                'start = 5, "end" = 1000',
                '"end" = "end" + (1 << 58)',
                'start = start - 4504839249, "end" = "end" - 4504839249',
            )
        )
        share = rng.choice((1, 30, 100))
        connection.execute(f'UPDATE "{table}" SET {how} WHERE rowid % 100 < {share}')
    return f"{table}: {how} in {share} %"


def damage_names(path: Path, rng: random.Random) -> str:
    """Break StringIds: missing, moved by one, in a circle, all equal, hostile."""
    with _changing(path) as connection:
        _loosen(connection, "StringIds")
        how = rng.choice(
            (
                "DELETE FROM StringIds WHERE rowid % 2",
                "UPDATE StringIds SET id = id + 1",
                "UPDATE StringIds SET value = id + 1",
                "UPDATE StringIds SET value = 'same'",
                "UPDATE StringIds SET value = char(27) || ']0;' || value",
                "UPDATE StringIds SET value = value || '<' || value || '<' || value",
                "UPDATE StringIds SET value = replace(value, '>', '')",
                "UPDATE StringIds SET value = zeroblob(100)",
                "UPDATE StringIds SET id = CAST(id AS TEXT)",
                "UPDATE StringIds SET id = 1",
            )
        )
        connection.execute(how)
    return how


VALUES: tuple[Mutation, ...] = (set_values, set_values, spread_values, bend_times, damage_names)
