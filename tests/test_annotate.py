"""Annotated copies: the account by SQL, the original rows as they were."""

from __future__ import annotations

import hashlib
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import nsysacct as na
from nsysacct.errors import UsageError

pytest.importorskip("sqlite_utils")
from nsysacct.annotate import annotate

TraceFile = Callable[[str], Path]
Run = Callable[..., subprocess.CompletedProcess[str]]
NAMES = ["small_graph", "small_node_nvtx", "llama_B_spec_graph"]


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        # some texts that nsys stores are not UTF-8
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        return connection.execute(sql).fetchall()


def dump(path: Path) -> dict[str, str]:
    """Digest of each table that nsys wrote."""
    found = {}
    for (name,) in query(path, "select name from sqlite_master where type = 'table'"):
        if not name.startswith(("NSYSACCT_", "sqlite_")):
            rows = repr(query(path, f'select rowid, * from "{name}" order by rowid'))
            found[name] = hashlib.sha256(rows.encode("utf-8", "surrogateescape")).hexdigest()
    return found


@pytest.mark.parametrize("name", NAMES)
def test_sums_by_sql_are_the_accounts(name: str, trace_file: TraceFile, tmp_path: Path) -> None:
    source, target = trace_file(name), tmp_path / "out.sqlite"
    before = hashlib.sha256(source.read_bytes()).hexdigest()
    account, count = annotate(source, target)
    assert hashlib.sha256(source.read_bytes()).hexdigest() == before
    assert query(target, "select count(*) from NSYSACCT_EVENTS") == [(count,)]
    sums: dict[str, int] = {}
    tables = [t for (t,) in query(target, "select distinct tableName from NSYSACCT_EVENTS")]
    for table in tables:
        if table.endswith(("_KERNEL", "_GRAPH_TRACE")):
            sql = (
                f"select e.bucket, sum(t.end - t.start) from {table} t join NSYSACCT_EVENTS e "
                f"on e.tableName = '{table}' and e.row = t.rowid group by 1"
            )
            for bucket, ns in query(target, sql):
                sums[bucket] = sums.get(bucket, 0) + ns
    whole = {b.bucket: 0 for b in account.buckets}
    for part in account.processes:
        for b in part.buckets:
            whole[b.bucket] += b.gpu_ns
    assert sums == {name: ns for name, ns in whole.items() if ns}
    assert dump(source) == dump(target)


def test_the_account_travels_with_it(trace_file: TraceFile, tmp_path: Path) -> None:
    target = tmp_path / "out.sqlite"
    account, _ = annotate(trace_file("small_graph"), target, na.make_options(layers=8))
    ((text,),) = query(target, "select account from NSYSACCT_ACCOUNT")
    assert na.load_account(text) == account
    assert na.split(target, layers=8).buckets == account.buckets  # still an export
    rows = query(target, 'select "index", verify_ns from NSYSACCT_ROUNDS order by 1')
    assert rows == [(r.index, r.verify_ns) for r in account.per_round]
    names = query(target, "select distinct kernelName from NSYSACCT_KERNELS where bucket='verify'")
    assert any("k_gdn" in name for (name,) in names)


def test_rounds_of_each_process_answer_to_their_events(
    trace_file: TraceFile, tmp_path: Path
) -> None:
    """Two processes count their rounds from 0 each: one joins by pid and GPU as well."""
    target = tmp_path / "out.sqlite"
    account, _ = annotate(trace_file("twoproc"), target)
    sql = """
        select r.pid, r."index", r.verify_ns, sum(k.end - k.start)
        from NSYSACCT_ROUNDS r
        join NSYSACCT_EVENTS e on (e.pid, e.gpu, e.round) = (r.pid, r.gpu, r."index")
        join CUPTI_ACTIVITY_KIND_KERNEL k on k.rowid = e.row
        where e.tableName = 'CUPTI_ACTIVITY_KIND_KERNEL' and e.bucket = 'verify'
        group by 1, 2 order by 1, 2
    """
    rows = query(target, sql)
    assert [(pid, i, ns) for pid, i, ns, _ in rows] == [
        (p.pid, r.index, r.verify_ns)
        for p in sorted(account.processes, key=lambda p: p.pid or 0)
        for r in p.per_round
    ]
    assert all(ns == summed for _, _, ns, summed in rows)
    for table in ("NSYSACCT_BUCKETS", "NSYSACCT_BLIND_SPOTS"):
        assert query(target, f"select count(distinct pid) from {table}") == [(2,)]


def test_annotating_again_replaces(trace_file: TraceFile, tmp_path: Path) -> None:
    first, second = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    _, count = annotate(trace_file("small_graph"), first)
    _, again = annotate(first, second)
    assert count == again
    assert query(second, "select count(*) from NSYSACCT_EVENTS") == [(count,)]


def test_never_onto_itself(trace_file: TraceFile) -> None:
    source = trace_file("small_graph")
    with pytest.raises(UsageError, match="itself"):
        annotate(source, source)


def test_the_command(run_cli: Run, trace_file: TraceFile, tmp_path: Path) -> None:
    source = trace_file("small_graph")
    done = run_cli("annotate", source, "--layers", "8", "-o", "out.sqlite")
    assert (done.returncode, done.stderr) == (0, "") and "NSYSACCT_EVENTS" in done.stdout
    onto = run_cli("annotate", source, "-o", source, "--force")
    assert onto.returncode == 2 and "is an input of this command" in onto.stderr
    bad = tmp_path / "bad.sqlite"
    bad.write_bytes(b"no database")
    failed = run_cli("annotate", bad, "-o", "other.sqlite")
    assert failed.returncode == 3 and not (tmp_path / "other.sqlite").exists()
