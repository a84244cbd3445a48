"""Broken and hostile exports: an account or one line, in time, in memory, and never a wrong sum."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import ROOT, TRACES, Done, Run, process_environment
from fuzz.mutations import mutate
from fuzz.worker import MEMORY_BYTES
from invariants import violations

from fixtures.builder import TraceBuilder
from nsysacct.account import account
from nsysacct.errors import NotAnExportError
from nsysacct.trace import read_trace

TraceFile = Callable[[str], Path]
SHIPPED = sorted(path.name.removesuffix(".sqlite.xz") for path in TRACES.glob("*.sqlite.xz"))

LIMIT_S = 10.0
SILENCE_S = 120  # a worker that says nothing for so long hangs, on any machine
QUICK, ALL = 60, 2_000


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory, trace_file: TraceFile) -> Path:
    """A folder with all shipped traces and builder-made exports of other schema versions."""
    folder = tmp_path_factory.mktemp("good")
    for name in SHIPPED:
        shutil.copyfile(trace_file(name), folder / f"{name}.sqlite")
    for schema in ("none", "3.1.7", "3.7.2", "3.25.0"):
        two_processes(schema).write(folder / f"built_{schema}.sqlite")
    return folder


def two_processes(schema: str) -> TraceBuilder:
    """Rounds of kestrel's kernels on two processes, with copies, graphs, ranges and a failed call."""
    trace = TraceBuilder(schema)
    for pid in (10, 11):
        trace.process(pid, name=f"rank {pid}")
        at = 1_000_000
        for _ in range(4):
            trace.nvtx("draft", at - 20_000, at + 100_000)
            for name in ("k_rq_q4_gemv_mr<(int)1, (int)1>", "k_gdn_conv_m", "k_argmax"):
                for _ in range(8):
                    trace.kernel(f"void {name}(const float *, int)", at, at + 9_000)
                    at += 10_000
            trace.graph_launch(3, at, at + 50_000, launch=at - 5_000)
            trace.memcpy(at + 60_000, at + 61_000, kind=2)
            trace.sync(at + 61_000, at + 70_000)
            at += 100_000
        trace.launch(at, return_value=700)
    trace.diagnostic("Not all CUDA events might have been collected.")
    return trace


def cases(folder: Path, tmp_path: Path, first: int, last: int) -> Iterator[dict[str, object]]:
    """Run cases in a process that may die; a case that kills or hangs it is one of the answers."""
    paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    while first < last:
        process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.worker", str(folder), str(first), str(last)],
            env=process_environment(tmp_path, PYTHONPATH=paths),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        assert process.stdout is not None and process.stderr is not None
        begun = first
        watch = threading.Timer(SILENCE_S, process.kill)
        for line in process.stdout:
            watch.cancel()
            watch = threading.Timer(SILENCE_S, process.kill)
            watch.start()
            case = json.loads(line)
            begun = case["seed"]
            if "how" in case:
                begun += 1
                yield case
        watch.cancel()
        said = process.stderr.read()
        process.stderr.close()
        process.stdout.close()
        if process.wait() != 0:
            wrong = [f"the process died ({process.returncode}): {said[-2_000:]}"]
            yield {"seed": begun, "how": "?", "outcome": "", "wrong": wrong, "seconds": 0.0}
            begun += 1
        first = begun


def check_cases(folder: Path, tmp_path: Path, first: int, last: int, *, at_once: int = 1) -> None:
    """Seeds from `first` to `last`, in as many parts as are run side by side."""
    ends = [first + (last - first) * i // at_once for i in range(at_once + 1)]

    def part(i: int) -> list[dict[str, object]]:
        home = tmp_path / str(i)
        home.mkdir()
        return list(cases(folder, home, ends[i], ends[i + 1]))

    with ThreadPoolExecutor(at_once) as pool:
        done = [case for found in pool.map(part, range(at_once)) for case in found]
    wrong = [case for case in done if case["wrong"]]
    assert wrong == []
    assert [case["seed"] for case in done] == list(range(first, last))
    assert [case for case in done if float(str(case["seconds"])) > LIMIT_S] == []
    outcomes = [case["outcome"] == "account" for case in done]
    # mutations that always or never break a file test nothing
    assert 0.2 < sum(outcomes) / len(outcomes) < 0.95


def test_sample_of_mutations(sources: Path, tmp_path: Path) -> None:
    check_cases(sources, tmp_path, 0, QUICK)


@pytest.mark.slow
def test_two_thousand_mutations(sources: Path, tmp_path: Path) -> None:
    check_cases(sources, tmp_path, QUICK, ALL, at_once=2)


# seeds that found something once: overflowing sums, thousands of processes, rowids that run back
FOUND = ((5072, "llama_A_servernospec_graph"), (5571, "small_graph"), (1019, "small_graph"))


@pytest.mark.parametrize(("seed", "name"), FOUND)
def test_what_was_found_once(seed: int, name: str, tmp_path: Path, trace_file: TraceFile) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    shutil.copyfile(trace_file(name), folder / f"{name}.sqlite")
    (case,) = cases(folder, tmp_path, seed, seed + 1)
    assert case["wrong"] == [] and float(str(case["seconds"])) < LIMIT_S


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 400, 10))
def test_mutations_as_a_user_meets_them(
    seed: int, sources: Path, tmp_path: Path, run_cli: Run
) -> None:
    good = sorted(sources.glob("*.sqlite"))
    mutate(good[seed % len(good)], tmp_path / "case.sqlite", seed)
    done = run_cli(("split", "check", "rounds", "explain")[seed // 10 % 4], "case.sqlite")
    one_line_or_answer(done)
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix != "") == ["case.sqlite"]


def one_line_or_answer(done: Done) -> None:
    assert "Traceback" not in done.stderr + done.stdout
    assert done.returncode in (0, 1, 3), done.stderr
    if done.returncode == 3 and not done.stdout:
        assert done.stderr.count("\n") == 1 and "internal error" not in done.stderr, done.stderr
    else:
        assert done.stdout


# Sizes


@pytest.mark.slow
def test_a_million_distinct_names(tmp_path: Path) -> None:
    path = tmp_path / "names.sqlite"
    TraceBuilder().write(path)
    trace = TraceBuilder()
    trace.kernel("k", 0, 1)
    trace.write(path)
    connection = sqlite3.connect(path)
    columns = [
        row[1] for row in connection.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")
    ]
    new = {"start": "1000 * n", "end": "1000 * n + 900", "demangledName": "100 + n",
           "shortName": "100 + n"}  # fmt: skip
    chosen = ", ".join(f"{new[c]}" if c in new else f'"{c}"' for c in columns)
    count = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 1000000) "
    with connection:
        connection.execute(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL {count} SELECT {chosen} FROM c,"
            " (SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = 1)"
        )
        connection.execute(
            f"INSERT INTO StringIds {count}"
            " SELECT 100 + n, 'void k_' || n || '<(int)4, (bool)1>(float *, int)' FROM c"
        )
    connection.close()
    done = limited("split", path, tmp_path=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "900.0" in done.stdout  # ms of GPU time: 10^6 kernels of 900 ns


def limited(command: str, path: Path, *, tmp_path: Path) -> Done:
    """Run a command as a process that may not have more than 4 GB of address space."""
    code = (
        "import resource, sys; "
        f"resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES})); "
        "from nsysacct.cli import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, command, str(path)],
        env=process_environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )


@pytest.mark.parametrize(
    "name",
    [
        "k" * (1 << 20),
        "void k<" + "(int)4, " * (1 << 17) + "(int)4>(int)",
        "k<" * (1 << 18) + ">" * (1 << 18),
        "(" * (1 << 20),
        "\N{GREEK SMALL LETTER MU}" * (1 << 19),
    ],
    ids=["word", "arguments", "nested", "open", "not ASCII"],
)
def test_a_name_of_a_megabyte(name: str, tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.kernel(name, 10_000, 11_000)
    done = limited("split", trace.write(tmp_path / "long.sqlite"), tmp_path=tmp_path)
    one_line_or_answer(done)
    assert done.returncode == 0
    assert len(done.stdout) < 20_000, "a name is shortened where it is shown"


# Files


@contextmanager
def writer(path: Path, *, wal: bool) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"PRAGMA journal_mode = {'WAL' if wal else 'DELETE'}")
        connection.execute("BEGIN EXCLUSIVE" if not wal else "BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT" if connection.in_transaction else "SELECT 1")
    finally:
        connection.close()


def test_a_locked_file_is_said_to_be_locked(
    tmp_path: Path, trace_file: TraceFile, run_cli: Run
) -> None:
    path = tmp_path / "x.sqlite"
    shutil.copyfile(trace_file("small_graph"), path)
    with writer(path, wal=False):
        done = run_cli("split", path)
    assert done.returncode == 3
    assert done.stderr.startswith("x.sqlite: is locked by another program; ")


def test_committed_rows_in_a_write_ahead_log_count(
    tmp_path: Path, trace_file: TraceFile, run_cli: Run
) -> None:
    path = tmp_path / "x.sqlite"
    shutil.copyfile(trace_file("small_graph"), path)
    whole = account(read_trace(path)).total_gpu_ns
    with writer(path, wal=True) as connection:
        connection.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid % 2")
        connection.execute("COMMIT")
        before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
        trace = read_trace(path)
        found = account(trace)
        assert violations(found, trace) == []
        assert 0 < found.total_gpu_ns < whole
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == before


@pytest.mark.parametrize("name", ["with space.sqlite", "\N{GREEK SMALL LETTER MU} \u6d4b.sqlite",
                                  "50%?#&.sqlite", "-dash.sqlite", "'quote\".sqlite"])  # fmt: skip
def test_any_file_name(name: str, tmp_path: Path, trace_file: TraceFile, run_cli: Run) -> None:
    shutil.copyfile(trace_file("small_graph"), tmp_path / name)
    done = run_cli("split", f"./{name}", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trace"]["name"] == name


def test_links_and_pipes(tmp_path: Path, trace_file: TraceFile, run_cli: Run) -> None:
    (tmp_path / "link.sqlite").symlink_to(trace_file("small_graph"))
    assert run_cli("split", "link.sqlite").returncode == 0
    (tmp_path / "circle.sqlite").symlink_to(tmp_path / "circle.sqlite")
    (tmp_path / "dangling.sqlite").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe.sqlite")
    for name, problem in (
        ("circle.sqlite", "circle.sqlite: cannot be opened"),
        ("dangling.sqlite", "dangling.sqlite: no such file"),
        ("pipe.sqlite", "pipe.sqlite: is a pipe or device"),
        ("/dev/null", "null: is a pipe or device"),
    ):
        done = run_cli("split", name)
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith(problem) and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/fd/0"), reason="no /dev/fd here")
def test_what_a_shell_pipes_in_is_no_missing_file() -> None:
    reading, writing = os.pipe()
    try:
        with pytest.raises(
            NotAnExportError, match="is a pipe or device; save the export to a file"
        ):
            read_trace(f"/dev/fd/{reading}")
    finally:
        os.close(reading)
        os.close(writing)
