"""A copy of an export with the account beside its rows, for one's own SQL (extra: history).

Tables of nsys stay as they are; added are ``NSYSACCT_EVENTS`` (table, rowid -> bucket, basis,
round), ``NSYSACCT_BUCKETS``, ``NSYSACCT_ROUNDS``, ``NSYSACCT_BLIND_SPOTS``, ``NSYSACCT_ACCOUNT``
(the account's JSON) and the view ``NSYSACCT_KERNELS`` (kernel rows with their bucket and name).
All but the JSON say of which ``pid`` and ``gpu`` a row is: rounds are counted in each by itself.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from nsysacct.account import Events, account_and_events
from nsysacct.attribution import BASES
from nsysacct.errors import UsageError
from nsysacct.extras import need
from nsysacct.model import BUCKETS, Account, BlindSpot, Bucket, ProcessAccount, Record, RoundRow
from nsysacct.timeline import Kind
from nsysacct.trace import Trace, read_trace, schema
from nsysacct.wire import dump_account

if TYPE_CHECKING:
    from nsysacct.account import Options

EVENTS = "NSYSACCT_EVENTS"
KERNELS = "NSYSACCT_KERNELS"

_RECORDS: tuple[tuple[str, type[Record], str], ...] = (
    ("NSYSACCT_BUCKETS", Bucket, "buckets"),
    ("NSYSACCT_ROUNDS", RoundRow, "per_round"),
    ("NSYSACCT_BLIND_SPOTS", BlindSpot, "blind_spots"),
)
"""Table -> its record and the field of an account that holds them."""

ROWS_AT_ONCE = 200_000

TABLE_OF = {
    Kind.KERNEL: schema.KERNEL,
    Kind.MEMCPY: schema.MEMCPY,
    Kind.MEMSET: schema.MEMSET,
    Kind.GRAPH: schema.GRAPH_TRACE,
    Kind.BLIND: schema.RUNTIME,  # the launching call is all there is
}
"""Kind of event -> table of the export that holds its row."""

_CREATE = f"""
    create table {EVENTS} (
        tableName text not null, row integer not null, bucket text, basis text, round integer,
        pid integer, gpu integer, primary key (tableName, row)
    ) without rowid
"""  # keyed by what one joins on; an index beside the table would double it


def annotate(
    source: str | Path, target: str | Path, options: Options | None = None
) -> tuple[Account, int]:
    """Write the annotated copy.

    Parameters
    ----------
    source : str or Path
        An nsys export; only read.
    target : str or Path
        Overwritten.
    options : Options, optional
        As for the account.

    Returns
    -------
    (Account, int)
        The account, and how many rows are in ``NSYSACCT_EVENTS``.

    Raises
    ------
    NsysacctError
        An unreadable export, a target that is the source, or sqlite-utils not installed.
    OSError
        The target cannot be written, or the disk is full.
    """
    sqlite_utils = need("sqlite_utils", "annotate")
    source, target = Path(source), Path(target)
    if target.exists() and source.exists() and target.samefile(source):
        raise UsageError(str(target), "is the export itself", "name another file")
    trace = read_trace(source)
    result, placed = account_and_events(trace, options)
    shutil.copyfile(source, target)
    target.chmod(target.stat().st_mode | 0o600)
    database = sqlite_utils.Database(target)
    try:
        # the copy is thrown away when anything fails: no journal on the disk is needed
        database.execute("PRAGMA journal_mode = MEMORY")
        database.execute("PRAGMA synchronous = OFF")
        with database.conn:
            count = _write_events(database, trace, placed)
            for name, kind, field in _RECORDS:
                records = [(part, getattr(part, field)) for part in result.processes]
                _write_records(database, name, records, kind)
            about = {"tool": result.tool, "account": dump_account(result)}
            database["NSYSACCT_ACCOUNT"].insert(about, replace=True)
            _create_view(database)
    except sqlite3.OperationalError as failure:
        code = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_IOERR: errno.EIO}.get(
            failure.sqlite_errorcode & 0xFF  # the rest says in which call
        )
        if code is None:
            raise
        raise OSError(code, os.strerror(code), str(target)) from failure
    finally:
        database.close()
    return result, count


def _create_view(database: Any) -> None:
    """Kernel rows with their name as text, bucket, basis and round."""
    tables = set(database.table_names())
    if not {schema.KERNEL, "StringIds"} <= tables:
        return
    columns = tuple(column.name for column in database[schema.KERNEL].columns)
    name = schema.kernel_name_column(columns)
    query = f"""
        select kernel.*, name.value as kernelName, event.bucket, event.basis, event.round
        from {schema.KERNEL} kernel
        join {EVENTS} event on event.tableName = '{schema.KERNEL}' and event.row = kernel.rowid
        left join StringIds name on name.id = kernel.{name}
    """
    database.create_view(KERNELS, query, replace=True)


def _write_events(database: Any, trace: Trace, placed: Sequence[Events]) -> int:
    database[EVENTS].drop(ignore=True)
    database.execute(_CREATE)
    count = 0
    for part in placed:
        for columns in _columns(trace, part):
            # two of the columns repeat one value for ever
            database.conn.executemany(
                f"insert into {EVENTS} values (?, ?, ?, ?, ?, ?, ?)", zip(*columns, strict=False)
            )
        count += len(part.line)
    return count


def _columns(trace: Trace, part: Events) -> Iterator[tuple[Iterable[object], ...]]:
    """Columns of ``NSYSACCT_EVENTS``, some rows of a table at a time, in the order of its key."""
    rowids = {
        Kind.KERNEL: trace.kernels,
        Kind.MEMCPY: trace.memops,
        Kind.MEMSET: trace.memops,
        Kind.GRAPH: trace.graph_runs,
        Kind.BLIND: trace.api,
    }
    line = part.line
    buckets = np.array(BUCKETS, object)
    bases = np.array([*BASES, None], object)
    for kind, table in TABLE_OF.items():
        mine = (line.kind == kind).nonzero()[0]
        if not len(mine):
            continue
        rows = rowids[kind].row[line.source[mine]]
        order = np.argsort(rows)
        for first in range(0, len(mine), ROWS_AT_ONCE):
            some = order[first : first + ROWS_AT_ONCE]
            index = mine[some]
            rounds = part.round_of[index].astype(object)
            rounds[part.round_of[index] < 0] = None
            yield (
                repeat(table), rows[some].tolist(), buckets[part.bucket[index]].tolist(),
                bases[part.basis[index]].tolist(), rounds.tolist(), repeat(part.pid),
                repeat(part.gpu),
            )  # fmt: skip


def _write_records(
    database: Any,
    name: str,
    parts: Iterable[tuple[ProcessAccount, Sequence[Record]]],
    kind: type[Record],
) -> None:
    """One column a field, after the pid and the GPU; lists and mappings as JSON."""
    table = database[name]
    table.drop(ignore=True)
    rows = [
        {"pid": part.pid, "gpu": part.gpu} | msgspec.structs.asdict(record)
        for part, records in parts
        for record in records
    ]
    if not rows:
        table.create(dict.fromkeys(("pid", "gpu", *kind.__struct_fields__), str))
        return
    table.insert_all(rows)
