"""Make a large nsys export out of a small one, by repeating its capture one after the other.

Every copy is shifted in time by the length of the capture and in its correlation ids by their range, so that
launches join their kernels as before; all else (names, streams, graphs) stays. Run it as a script:

    python tests/benchmarks/scale.py small.sqlite big.sqlite --kernels 9200000
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
TIMES = ("start", "end", "timestamp")
LAUNCH = "correlationId"
EVENT_TABLES = (
    "CUPTI_ACTIVITY_KIND_",
    "NVTX_EVENTS",
    "CUDA_GRAPH_",
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "GPU_METRICS",
)
"""Tables (by start of their name) whose rows are events; all others are copied once."""

PAUSE_NS = 1_000_000
"""Between two copies."""


def scale(source: Path, target: Path, copies: int) -> Path:
    """Write `target`: the events of `source`, `copies` times.

    Parameters
    ----------
    source : Path
        An nsys SQLite export.
    target : Path
        Overwritten when it is complete.
    copies : int

    Returns
    -------
    Path
        `target`.
    """
    partial = target.with_name(target.name + ".part")
    shutil.copyfile(source, partial)
    database = sqlite3.connect(partial)
    try:
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        tables = dict(_event_tables(database))
        time_step, launch_step = _steps(database, tables)
        for table, columns in tables.items():
            _repeat(database, table, columns, copies, time_step, launch_step)
        database.commit()
    finally:
        database.close()
    os.replace(partial, target)
    return target


def _event_tables(database: sqlite3.Connection) -> Iterator[tuple[str, list[str]]]:
    """Tables of events that have rows, and their columns."""
    found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in found:
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        filled = database.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone()
        if table.startswith(EVENT_TABLES) and {*TIMES} & {*columns} and filled:
            yield table, columns


def _steps(database: sqlite3.Connection, tables: dict[str, list[str]]) -> tuple[int, int]:
    """Shift of each copy against the one before: in time (ns), and in correlation ids."""
    times: list[int] = []
    launches: list[int] = []
    for table, columns in tables.items():
        for column in columns:
            if column not in (*TIMES, LAUNCH):
                continue
            chosen = f'SELECT min("{column}"), max("{column}") FROM "{table}" WHERE "{column}" > 0'
            ends = [value for value in database.execute(chosen).fetchone() if value is not None]
            (launches if column == LAUNCH else times).extend(ends)
    step = max(times) - min(times) + PAUSE_NS
    return step, max(launches) - min(launches) + 1 if launches else 1


def _repeat(
    database: sqlite3.Connection,
    table: str,
    columns: list[str],
    copies: int,
    time_step: int,
    launch_step: int,
) -> None:
    """Append the shifted copies of one table; 0 and NULL mean "not known" and stay."""
    steps = dict.fromkeys(TIMES, time_step) | {LAUNCH: launch_step}
    chosen = [
        f'CASE WHEN "{c}" > 0 THEN "{c}" + :nth * {steps[c]} ELSE "{c}" END'
        if c in steps
        else f'"{c}"'
        for c in columns
    ]
    rows = database.execute(f'SELECT max(rowid) FROM "{table}"').fetchone()[0]
    append = f'INSERT INTO "{table}" SELECT {", ".join(chosen)} FROM "{table}" WHERE rowid <= {int(rows)}'
    for nth in range(1, copies):
        database.execute(append, {"nth": nth})


def copies_for(source: Path, kernels: int) -> int:
    """Copies of `source` that together hold about `kernels` kernel rows."""
    database = sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)
    try:
        rows = int(database.execute(f"SELECT count(*) FROM {KERNEL}").fetchone()[0])
    finally:
        database.close()
    return max(1, round(kernels / max(rows, 1)))


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(description="Make a large nsys export out of a small one.")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--copies", type=int)
    size.add_argument("--kernels", type=int, help="kernel rows wanted, about")
    given = parser.parse_args()
    begin = time.perf_counter()
    copies = given.copies or copies_for(given.source, given.kernels)
    scale(given.source, given.target, copies)
    size_mb = given.target.stat().st_size / 1e6
    print(f"{given.target}: {copies} copies, {size_mb:.0f} MB, {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
