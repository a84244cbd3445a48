"""History: nothing lost, nothing twice, other files left alone, steps where they are."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from gate_cases import base_account, noise, repeated, sides, slower, with_labels, with_trace
from msgspec.structs import replace

from nsysacct import history as history_module
from nsysacct.errors import UsageError
from nsysacct.gate import judge
from nsysacct.history import (
    MIGRATIONS,
    History,
    HistoryError,
    check_series,
    parse_against,
)
from nsysacct.wire import dump_account


def numbered(number: int):
    """An account like no other, since equal ones are one capture."""
    return replace(base_account(), options={"number": number})


def filled(path: Path, accounts, series: str = "main") -> Path:
    with History(path) as history:
        for i, account in enumerate(accounts):
            history.add(account, series, name=f"run{i}", commit_id=f"c{i}")
    return path


def test_add_list_show(tmp_path):
    with History(tmp_path / "h.db") as history:
        first, new = history.add(base_account(), commit_id="abc", added_at="2024-05-01")
        assert new
        (capture,) = history.captures()
        assert (capture.id, capture.series, capture.commit_id) == (first, "main", "abc")
        assert (capture.engine, capture.gpu, capture.rounds) == ("kestrel", "NVIDIA H200", 42)
        assert history.account(first) == base_account()
        assert history.series() == ["main"]
        with pytest.raises(UsageError, match="no capture 99"):
            history.account(99)


def test_the_same_account_is_one_capture(tmp_path):
    with History(tmp_path / "h.db") as history:
        first = history.add(base_account())
        again = history.add(base_account())
        assert (first[1], again[1]) == (True, False)
        assert first[0] == again[0]
        assert history.add(base_account(), "other")[1]


def test_figures_are_readable_with_any_sqlite_tool(tmp_path):
    filled(tmp_path / "h.db", [numbered(i) for i in range(3)])
    connection = sqlite3.connect(tmp_path / "h.db")
    rows = connection.execute(
        "SELECT capture, value, unit FROM trend WHERE name = 'verify.ns_per_round'"
    ).fetchall()
    connection.close()
    assert [row[0] for row in rows] == ["run0", "run1", "run2"]
    assert {row[2] for row in rows} == {"ns"}


def test_trend_marks_steps(tmp_path):
    generator = random.Random(8)
    accounts = [noise(generator)(base_account()) for _ in range(8)]
    accounts += [noise(generator)(slower("verify", 1.06)(base_account())) for _ in range(6)]
    path = filled(tmp_path / "h.db", accounts)
    with History(path, readonly=True) as history:
        trend = history.trend("verify.ns_per_round")
        assert [i for i, point in enumerate(trend.points) if point.step] == [8]
        assert not any(point.step for point in history.trend("draft.ns_per_round").points)
        assert history.trend("step.decode.ns_per_step").left_out == 14
        with pytest.raises(UsageError, match="no such figure"):
            history.trend("nope")
        with pytest.raises(UsageError, match="series: main"):
            history.trend("verify.ns_per_round", "release")


def test_baseline_takes_the_newest_like_captures(tmp_path):
    accounts = [numbered(i) for i in range(6)]
    accounts += [with_labels(quant="q8")(numbered(i)) for i in range(6, 8)]
    path = filled(tmp_path / "h.db", accounts)
    with History(path, readonly=True) as history:
        found = history.baseline("main", base_account(), last=4)
        assert [side.account.options["number"] for side in found.sides] == [2, 3, 4, 5]
        assert (found.unlike, found.since) == (2, None)
        assert found.sides[0].name == "h.db:main#3"
        assert len(history.baseline("main", last=3).sides) == 3
        nothing = history.baseline("main", with_trace(gpu="T4")(base_account()))
        assert (nothing.sides, nothing.unlike) == ((), 8)
        with pytest.raises(UsageError):
            history.baseline("release")
        head = sides("head", *[repeated(2)(numbered(i)) for i in range(4)])
        assert judge(found.sides, head).exit_code == 0


def test_baseline_starts_at_the_last_change_of_level(tmp_path):
    generator = random.Random(9)
    accounts = [noise(generator)(base_account()) for _ in range(5)]
    accounts += [noise(generator)(slower("verify", 1.2)(base_account())) for _ in range(4)]
    path = filled(tmp_path / "h.db", accounts)
    with History(path, readonly=True) as history:
        found = history.baseline("main", base_account())
    assert len(found.sides) == 4
    assert found.since == 6


def test_other_files_are_refused_and_left_alone(tmp_path):
    other = tmp_path / "trace.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER)")
    connection.commit()
    connection.close()
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but longer than a hundred bytes " * 5)
    for path in (other, text):
        before = path.read_bytes()
        with pytest.raises(HistoryError) as caught:
            History(path)
        assert caught.value.exit_code == 3
        assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "trace.sqlite"]
    with pytest.raises(HistoryError, match="does not exist"):
        History(tmp_path / "missing.db", readonly=True)
    assert not (tmp_path / "missing.db").exists()


def test_newer_files_are_refused(tmp_path):
    path = filled(tmp_path / "h.db", [base_account()])
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(HistoryError, match="newer"):
        History(path)


def test_older_files_are_migrated_without_loss(tmp_path, monkeypatch):
    path = tmp_path / "h.db"
    monkeypatch.setattr(history_module, "MIGRATIONS", MIGRATIONS[:1])
    filled(path, [numbered(i) for i in range(3)])
    monkeypatch.undo()
    with History(path, readonly=True) as history:  # readable before anybody migrates it
        assert len(history.trend("verify.ns_per_round").points) == 3
    with History(path) as history:
        assert len(history.captures()) == 3
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS)
    assert connection.execute("SELECT count(*) FROM trend").fetchone()[0] > 100
    assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    connection.close()


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    path = filled(tmp_path / "h.db", [numbered(0)])
    with History(path) as history:
        monkeypatch.setattr(history_module, "available", lambda account: ["rounds.count"] * 2)
        with pytest.raises(HistoryError):
            history.add(numbered(1))  # the second row of figures breaks the primary key
        assert len(history.captures()) == 1


WRITER = """
    import sys
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    from gate_cases import base_account
    from msgspec.structs import replace
    from nsysacct.history import History
    path, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for i in range(first, first + count):
        with History(path) as history:
            history.add(replace(base_account(), options={{"number": i}}), "main", name=f"run{{i}}")
        print(i, flush=True)
"""


def writer(path: Path, first: int, count: int) -> subprocess.Popen[str]:
    code = textwrap.dedent(WRITER.format(tests=str(Path(__file__).parent)))
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path), str(first), str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_writers_lose_nothing(tmp_path):
    path = tmp_path / "h.db"  # made by both at once
    writers = [writer(path, 0, 12), writer(path, 100, 12)]
    for process in writers:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    with History(path, readonly=True) as history:
        names = {capture.name for capture in history.captures()}
    assert names == {f"run{i}" for first in (0, 100) for i in range(first, first + 12)}


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_killed_half_way_loses_nothing(tmp_path):
    path = tmp_path / "h.db"
    process = writer(path, 0, 10_000)
    assert process.stdout is not None
    told = [int(process.stdout.readline()) for _ in range(6)]
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate(timeout=60)
    told += [int(line) for line in rest.split()]
    with History(path, readonly=True) as history:
        stored = {capture.name for capture in history.captures()}
        assert {f"run{i}" for i in told} <= stored
        for capture in history.captures():
            assert history.account(capture.id) is not None
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    counts = connection.execute(
        "SELECT count(f.name) FROM captures c LEFT JOIN figures f ON f.capture_id = c.id "
        "GROUP BY c.id"
    ).fetchall()
    connection.close()
    assert len({count for (count,) in counts}) == 1  # no capture without its figures


@pytest.mark.skipif(os.name != "posix", reason="file modes, SIGKILL")
def test_a_journal_left_by_a_killed_writer_is_rolled_back(tmp_path):
    path = filled(tmp_path / "h.db", [numbered(0)])
    code = """
        import os, sqlite3, sys
        connection = sqlite3.connect(sys.argv[1])
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE captures SET account = ?, name = 'torn'", ("x" * 4_000_000,))
        connection.execute("UPDATE figures SET value = 0")
        os.kill(os.getpid(), 9)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(path)], check=False)
    assert (tmp_path / "h.db-journal").exists()
    with History(path, readonly=True) as history:
        assert [capture.name for capture in history.captures()] == ["run0"]
        assert dump_account(history.account(1)) == dump_account(numbered(0))


def test_a_locked_file_is_one_clear_line(tmp_path, monkeypatch):
    path = filled(tmp_path / "h.db", [numbered(0)])
    monkeypatch.setattr(history_module, "BUSY_SECONDS", 0.05)
    blocker = sqlite3.connect(path)
    blocker.execute("BEGIN EXCLUSIVE")
    with pytest.raises(HistoryError, match="try again when the other writer is done"):
        History(path)
    blocker.rollback()
    blocker.close()


@pytest.mark.parametrize(
    ("text", "path", "series"),
    [
        ("h.db", "h.db", "main"),
        ("h.db:dev", "h.db", "dev"),
        ("a/b.db:feature-x", "a/b.db", "feature-x"),
        ("C:\\runs\\h.db", "C:\\runs\\h.db", "main"),
    ],
)
def test_parse_against(text, path, series):
    assert parse_against(text) == (Path(path), series)


@pytest.mark.parametrize("series", ["", "a:b", "a\nb", "\x1b[0m"])
def test_series_names(series):
    with pytest.raises(UsageError):
        check_series(series)
