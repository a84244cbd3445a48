"""Many traces: the same accounts as single runs, whatever dies on the way; on real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import TRACES, Run, process_environment

from fixtures.builder import TraceBuilder
from nsysacct.batch import Cluster, Outcome, _answers, find_sources, run, settings_digest
from nsysacct.batch_store import JOURNAL, Store, identity
from nsysacct.batch_summary import Row, outliers, rank_skews, rows_of
from nsysacct.cli.batch import summary
from nsysacct.errors import NsysacctError, UsageError
from nsysacct.options import Options
from nsysacct.registry import load_registry
from nsysacct.wire import load_account

distributed = pytest.importorskip("distributed")

TraceFile = Callable[[str], Path]
SHIPPED = sorted(path.name.removesuffix(".sqlite.xz") for path in TRACES.glob("*.sqlite.xz"))
ONE = Cluster(workers=1)


def small(path: Path, pid: int = 1000) -> Path:
    trace = TraceBuilder()
    trace.process(pid)
    for i in range(5):
        trace.kernel("k_rmsnorm(const float *)", 10_000 * i, 10_000 * i + 4_000)
    return trace.write(path)


def states(outcomes: list[Outcome]) -> dict[str, str]:
    return {outcome.source.name: outcome.state for outcome in outcomes}


# Which traces


def test_patterns_are_files_folders_and_globs(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    for name in ("x.sqlite", "a/y.sqlite", "a/y.nsys-rep", "a/b/z.nsys-rep", "a/notes.txt"):
        (tmp_path / name).touch()

    def found(*patterns: str) -> list[str]:
        sources = find_sources([str(tmp_path / p) for p in patterns])
        return [p.relative_to(tmp_path).as_posix() for p in sources]

    assert found("x.sqlite", "x.sqlite") == ["x.sqlite"]
    # a report whose export lies beside it is the same run
    assert found("") == ["a/b/z.nsys-rep", "a/y.sqlite", "x.sqlite"]
    assert found("**/*.sqlite") == ["a/y.sqlite", "x.sqlite"]
    assert found("missing.sqlite") == ["missing.sqlite"]
    with pytest.raises(UsageError, match="matches no trace"):
        found("*.nothing")


# The folder


def test_outputs_keep_their_names_and_never_clash(tmp_path: Path) -> None:
    for folder in "ab":
        (tmp_path / folder).mkdir()
        small(tmp_path / folder / "profile.sqlite")
    one, two = (tmp_path / f / "profile.sqlite" for f in "ab")
    store = Store(tmp_path / "out", "s")
    first = store.outputs([one])[one]
    assert first.name == "profile.json"
    store.save(one, identity(one), first, "{}\n")
    again = Store(tmp_path / "out", "s").outputs([one, two])
    assert again[one] == first
    assert again[two].name.startswith("profile-") and again[two] != first
    both = Store(tmp_path / "new", "s").outputs([one, two])
    assert len(set(both.values())) == 2 and "profile.json" not in {p.name for p in both.values()}


def test_done_means_unchanged_source_settings_and_output(tmp_path: Path) -> None:
    source = small(tmp_path / "x.sqlite")
    store = Store(tmp_path / "out", "s")
    target = store.outputs([source])[source]
    store.save(source, identity(source), target, "{}\n")
    assert Store(tmp_path / "out", "s").finished(source) == target
    assert Store(tmp_path / "out", "other").finished(source) is None
    with (tmp_path / "out" / JOURNAL).open("ab") as journal:
        journal.write(b'{"source": "cut o')  # killed while it wrote
    (tmp_path / "out" / ".x.part").touch()
    store = Store(tmp_path / "out", "s")
    assert store.finished(source) == target
    assert not (tmp_path / "out" / ".x.part").exists()
    target.write_text("{ }\n")
    assert store.finished(source) is None
    target.write_text("{}\n")
    os.utime(source, (1, 1))
    assert store.finished(source) is None


def test_files_of_others_are_not_overwritten(tmp_path: Path) -> None:
    source = small(tmp_path / "x.sqlite")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x.json").write_text("mine")
    with pytest.raises(UsageError, match="none of this batch's"):
        list(run([source], tmp_path / "out"))
    assert (tmp_path / "out" / "x.json").read_text() == "mine"
    assert Store(tmp_path / "out", "s", force=True).outputs([source])


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NsysacctError, match="name a folder"):
        Store(tmp_path / "file", "s")


def test_settings_change_with_anything_an_account_depends_on() -> None:
    registry = load_registry()
    plain = settings_digest(Options(), registry)
    many = frozenset({"nvtx", "graph", "positional", "exclusive"})
    assert settings_digest(Options(), registry) == plain
    assert settings_digest(Options(layers={"all": 8}), registry) != plain
    assert settings_digest(Options(pid=3), registry) != plain
    assert settings_digest(Options(ignore=many), registry) == settings_digest(
        Options(ignore=frozenset(sorted(many))), registry
    )


# The summary


def row(trace: str, verify: float | None, **other: Any) -> Row:
    values: dict[str, Any] = dict.fromkeys(Row.__struct_fields__, 0)
    values |= {"trace": trace, "job": trace, "engine": "e", "verdict": "exact", "rounds": 10}
    values |= {"gpu_name": "H", "verify_ns_per_round": verify} | other
    return Row(**values)


def test_ranks_of_one_job_stand_side_by_side() -> None:
    rows = [row(f"rank{i}.sqlite", 1e6 + 1e5 * (3 - i), job="*.sqlite") for i in range(3)]
    rows += [row("x.sqlite", 1e6), row("y.sqlite", None, job="j"), row("z.sqlite", 1e6, job="j")]
    (skew,) = rank_skews(rows)
    assert skew.labels == ["rank 2", "rank 1", "rank 0"]
    assert skew.ratio == pytest.approx(1.3 / 1.1)
    assert rank_skews([row("a", 1e6, job="j"), row("b", 1e6, job="j", rounds=11)]) == []


def test_job_names_lose_the_rank_and_nothing_else(trace_file: TraceFile, tmp_path: Path) -> None:
    from nsysacct.account import account
    from nsysacct.trace import read_trace

    for name, job in (
        ("run_rank3.sqlite", "run_*.sqlite"),
        ("gpu-0.sqlite", "*.sqlite"),
        ("tp2_k3.sqlite", "tp2_k3.sqlite"),
        ("frank3.sqlite", "frank3.sqlite"),
    ):
        path = small(tmp_path / name)
        assert [r.job for r in rows_of(account(read_trace(path)))] == [job]


def test_an_outlier_is_one_among_rows_alike() -> None:
    rows = [row(str(i), 1e6 + i) for i in range(6)]
    assert outliers(rows) == []
    slow = row("slow", 1.2e6)
    assert [found for found, _ in outliers([*rows, slow])] == [slow]
    assert outliers([*rows, row("another k", 1.2e6, k=7)]) == []
    assert outliers([*rows, row("another model", 1.2e6, layers=7)]) == []
    assert outliers([*rows[:3], slow]) == []  # too few to say


def test_the_summary_lists_what_failed_and_caps_the_table() -> None:
    rows = [row(f"t{i:03}", 1e6) for i in range(60)]
    outcomes = [Outcome(Path("t"), "done"), Outcome(Path("x"), "failed", reason="x: bad; fix it")]
    text = summary(rows, outcomes, "accounts")
    assert "failed:\n  x: bad; fix it\n" in text
    assert text.endswith("1 done, 0 kept from before, 1 failed; accounts in accounts\n")
    assert "t049" in text and "t050" not in text and "and 10 more rows" in text


def test_the_summary_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rows = [
        row(f"a_long_name_rank{i}.sqlite", 1e6 + i, job="a_long_name_*.sqlite") for i in range(8)
    ]
    rows.append(row("a_capture_of_another_night_in_the_same_folder.sqlite", 1.2e6))
    text = summary(rows, [], "accounts")
    assert "8 ranks" in text and "outlier: a_capture" in text
    assert max(map(len, text.splitlines())) <= 80


# The cluster


def test_one_bad_trace_does_not_stop_the_rest(tmp_path: Path, run_cli: Run) -> None:
    for i in range(3):
        small(tmp_path / f"rank{i}.sqlite")
    (tmp_path / "bad.sqlite").write_bytes(b"no")
    arguments = ("batch", "*.sqlite", "--workers", "1", "--parquet", "all.parquet")
    done = run_cli(*arguments)
    assert done.returncode == 3, done.stderr
    assert done.stderr == ""
    assert "  bad.sqlite: is not an SQLite file; " in done.stdout
    assert "3 done, 0 kept from before, 1 failed; accounts in accounts" in done.stdout
    made = sorted(p.name for p in (tmp_path / "accounts").iterdir())
    assert made == [JOURNAL, "rank0.json", "rank1.json", "rank2.json"]
    from pyarrow import parquet

    table = parquet.read_table(tmp_path / "all.parquet").to_pylist()
    assert [r["trace"] for r in table] == ["rank0.sqlite", "rank1.sqlite", "rank2.sqlite"]
    assert {r["gpu_ns"] for r in table} == {20_000}
    (tmp_path / "bad.sqlite").unlink()
    os.utime(tmp_path / "rank1.sqlite", (1, 1))
    done = run_cli(*arguments, "--force")
    assert done.returncode == 0, done.stderr
    assert "1 done, 2 kept from before, 0 failed" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["*.nothing"], 2, "*.nothing: matches no trace; "),
        (["x.sqlite", "--layers", "many"], 2, "--layers: 'many' is not a whole number; "),
        (["x.sqlite", "--engine", "nope"], 2, "engine 'nope': no registry describes it; "),
        (["x.sqlite", "--parquet", "x.sqlite"], 2, "x.sqlite: exists already; "),
        (["x.sqlite", "-o", "x.sqlite"], 3, "x.sqlite: File exists; "),
        (
            ["x.sqlite", "--scheduler", "127.0.0.1:9"],
            3,
            "127.0.0.1:9: no Dask scheduler answers there; ",
        ),
    ],
)
def test_what_is_wrong_is_said_before_any_work(
    arguments: list[str], code: int, line: str, tmp_path: Path, run_cli: Run
) -> None:
    small(tmp_path / "x.sqlite")
    done = run_cli("batch", *arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert done.stderr.startswith(line) and done.stderr.count("\n") == 1, done.stderr


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A cluster of two processes that outlives the batch, as a real one does."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None, silence_logs=60
    ) as local:
        yield local


@pytest.mark.slow
def test_the_same_accounts_as_single_runs_byte_for_byte(
    tmp_path: Path, run_cli: Run, trace_file: TraceFile
) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for name in SHIPPED:
        (folder / f"{name}.sqlite").symlink_to(trace_file(name))
    done = run_cli("batch", "traces", "-o", "out", "--workers", "2")
    assert done.returncode == 0, done.stderr + done.stdout
    for name in SHIPPED:
        single = run_cli("split", f"traces/{name}.sqlite", "--format", "json")
        assert (tmp_path / "out" / f"{name}.json").read_text("utf-8") == single.stdout, name


@pytest.mark.slow
def test_a_worker_killed_in_mid_run_costs_nothing(
    tmp_path: Path, trace_file: TraceFile, cluster: Any
) -> None:
    sources = []
    for i in range(16):
        sources.append(tmp_path / f"rank{i}.sqlite")
        shutil.copyfile(trace_file("llama_B_spec_graph"), sources[-1])
    with distributed.Client(cluster, set_as_default=False) as client:
        pids = list(client.run(os.getpid).values())
    outcomes = []
    for outcome in run(sources, tmp_path / "out", cluster=Cluster(cluster.scheduler_address)):
        if not outcomes:
            os.kill(pids[0], signal.SIGKILL)
        outcomes.append(outcome)
    assert states(outcomes) == {source.name: "done" for source in sources}
    accounts = [load_account(outcome.output) for outcome in outcomes if outcome.output]
    assert len({a.total_gpu_ns for a in accounts}) == 1
    assert {a.trace.name for a in accounts} == {source.name for source in sources}
    with distributed.Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        assert pids[0] not in client.run(os.getpid).values()


@pytest.mark.slow
def test_a_trace_that_kills_every_worker_is_given_up_and_the_others_are_not(tmp_path: Path) -> None:
    def task(path: str) -> tuple[str | None, str]:
        if "poison" in path:
            os._exit(9)
        time.sleep(0.05)
        return path, ""

    sources = [Path(f"{'poison' if i in (2, 5) else 'good'}{i}") for i in range(12)]
    import dask

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=60
        ) as local,
        distributed.Client(local, set_as_default=False) as client,
    ):
        answers = {s.name: (text, why) for s, text, why in _answers(client, sources, task)}  # type: ignore[arg-type]
    failed = {name: why for name, (text, why) in answers.items() if text is None}
    assert sorted(failed) == ["poison2", "poison5"]
    assert all("every worker that read it died" in why for why in failed.values())
    assert len(answers) == 12


@pytest.mark.slow
def test_resumed_after_a_kill(tmp_path: Path, run_cli: Run, trace_file: TraceFile) -> None:
    folder = tmp_path / "night"
    folder.mkdir()
    for i in range(40):
        shutil.copyfile(trace_file("llama_B_spec_graph"), folder / f"{i:02}.sqlite")
    process = subprocess.Popen(
        [sys.executable, "-m", "nsysacct", "batch", "night", "-o", "out", "--workers", "1"],
        cwd=tmp_path,
        env=process_environment(tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    journal = tmp_path / "out" / JOURNAL
    until = time.monotonic() + 60
    while time.monotonic() < until and not (
        journal.exists() and journal.read_bytes().count(b"{") > 2
    ):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = journal.read_bytes().count(b"}")
    assert 2 <= kept < 40
    done = run_cli("batch", "night", "-o", "out", "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert f"{40 - kept} done, {kept} kept from before, 0 failed" in done.stdout
    accounts = [json.loads(p.read_bytes()) for p in (tmp_path / "out").glob("*.json")]
    assert len(accounts) == 40
    assert len({a["total_gpu_ns"] for a in accounts}) == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--memory", "-1"), "--memory: '-1' is no size; write 4GB, or auto"),
        (("--memory", "lots"), "--memory: 'lots' is no size; write 4GB, or auto"),
        (("--memory", "1MB"), "--memory: 1MB is less than a worker takes; give 256MB or more"),
        (("--workers", "0"), "--workers: 0 is not 1 to 512; give one a core at most"),
        (("--workers", "1000000"), "--workers: 1000000 is not 1 to 512; give one a core at most"),
    ],
)
def test_a_cluster_that_cannot_be_meant_is_wrong_usage(
    run_cli: Run, tmp_path: Path, arguments: tuple[str, str], line: str
) -> None:
    (tmp_path / "a.sqlite").touch()
    done = run_cli("batch", "a.sqlite", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line + "\n")
    assert not (tmp_path / "accounts").exists()
