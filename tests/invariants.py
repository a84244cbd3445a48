"""What holds on every account, whatever the trace (design section 8), checked from outside."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from nsysacct.model import BUCKETS, PROVENANCE, Account, ProcessAccount
from nsysacct.trace import Trace
from nsysacct.wire import dump_account, load_account

COMPUTED = {basis for basis, how in PROVENANCE.items() if how == "computed"}
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
GPU_TABLES = {
    KERNEL: "kernels",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "graph_runs",
}


def violations(account: Account, trace: Trace, path: Path | None = None) -> list[str]:
    """Every invariant that `account` breaks; with `path` the rows are compared with SQLite's."""
    found = list(_whole(account, trace))
    for part in (account, *account.processes):
        found += [f"pid {part.pid} on GPU {part.gpu}: {wrong}" for wrong in _part(part)]
    if path is not None:
        found += _rows(trace, path)
    return found


def _whole(account: Account, trace: Trace) -> Iterator[str]:
    kernels, runs, memory = trace.kernels, trace.graph_runs, trace.memops
    gpu = int((kernels.end - kernels.start).sum())
    gpu += int((runs.end - runs.start)[runs.timed].sum())
    accounted = sum(p.total_gpu_ns for p in account.processes)
    if accounted != gpu:
        yield f"all accounts hold {accounted} ns, the valid rows {gpu}"
    mem = int((memory.end - memory.start).sum())
    accounted = sum(p.total_mem_ns for p in account.processes)
    if accounted != mem:
        yield f"all accounts hold {accounted} ns of memory work, the valid rows {mem}"
    if load_account(dump_account(account)) != account:
        yield "its JSON does not read back as the same account"


def _part(part: ProcessAccount) -> Iterator[str]:
    if [b.bucket for b in part.buckets] != list(BUCKETS):
        yield "buckets are not those of the contract"
    for total, name in ((part.total_gpu_ns, "gpu_ns"), (part.total_mem_ns, "mem_ns")):
        if sum(getattr(b, name) for b in part.buckets) != total:
            yield f"buckets' {name} do not sum to {total}"
    for b in part.buckets:
        known = sum(ns for basis, ns in b.by_basis.items() if basis not in COMPUTED)
        if known > b.gpu_ns or (b.bucket != "unattributed" and known != b.gpu_ns):
            yield f"{b.bucket}: bases sum to {known}, not {b.gpu_ns}"
        if not 0 <= b.busy_ns <= b.gpu_ns + b.mem_ns:
            yield f"{b.bucket}: busy {b.busy_ns} ns of {b.gpu_ns + b.mem_ns}"
        of_kernels = sum(row.gpu_ns for row in part.kernels if row.bucket == b.bucket)
        if of_kernels != b.gpu_ns:
            yield f"{b.bucket}: kernel rows sum to {of_kernels}, not {b.gpu_ns}"
    w = part.window
    if w.wall_ns != w.end_ns - w.start_ns or w.busy_ns + w.residual_ns != w.wall_ns:
        yield f"window: {w}"
    if min(w.wall_ns, w.busy_ns, w.residual_ns) < 0:
        yield f"window: {w}"
    yield from _rounds(part)


def _rounds(part: ProcessAccount) -> Iterator[str]:
    for phase in ("draft", "verify", "replay"):
        series = sum(getattr(row, f"{phase}_ns") for row in part.per_round)
        if part.per_round and series > part.bucket(phase).gpu_ns:
            yield f"{phase}: rounds hold {series} ns of {part.bucket(phase).gpu_ns}"
    for row in part.per_round:
        if row.wall_ns < 0 or row.residual_ns < 0 or row.end_ns < row.start_ns:
            yield f"round {row.index}: {row}"


def _rows(trace: Trace, path: Path) -> Iterator[str]:
    """Rows kept are rows of the file with their times; the others are counted as rejected."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    connection.text_factory = bytes
    try:
        for table, attribute in GPU_TABLES.items():
            try:
                kind = "SELECT 1 FROM sqlite_master WHERE name = ? AND type = 'table'"
                if not connection.execute(kind, (table,)).fetchone():
                    continue  # nsys writes no views
                sql = f'SELECT rowid, start, "end" FROM {table}'
                there = {rowid: (start, end) for rowid, start, end in connection.execute(sql)}
            except sqlite3.Error:
                continue
            kept = getattr(trace, attribute)
            times = zip(kept.row.tolist(), kept.start.tolist(), kept.end.tolist(), strict=True)
            wrong = [row for row, start, end in times if there.get(row) != (start, end)]
            if wrong:
                yield f"{table}: {len(wrong)} rows read that are not in the file"
            rejected = sum(r.count for r in trace.rejected if r.table == table)
            if table == KERNEL and len(kept) + rejected < len(there):
                yield f"{table}: {len(there)} rows, {len(kept)} kept, {rejected} rejected"
    finally:
        connection.close()
