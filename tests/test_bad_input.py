"""Input that cannot be accounted for: one line, the right exit code, no traceback; as processes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Done, Run

from fixtures.builder import TraceBuilder

Make = Callable[[Path, bytes], object]


def check(done: Done, code: int, line: str) -> None:
    assert done.returncode == code, done.stderr + done.stdout
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    assert done.stderr.startswith(line), done.stderr
    assert "; " in done.stderr  # what is wrong; what to do


def other_database(path: Path, _: bytes) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE notes (text TEXT)")
    connection.close()


def without_kernels(path: Path, _: bytes) -> None:
    trace = TraceBuilder()
    trace.launch(1_000)
    trace.sync(5_000, 9_000)
    trace.write(path)


def without_cuda(path: Path, _: bytes) -> None:
    trace = TraceBuilder()
    trace.nvtx("step", 0, 1_000)
    trace.write(path)


FILES: dict[str, tuple[str, Make, str]] = {
    "missing": ("x.sqlite", lambda path, good: None, "no such file; "),
    "folder": ("x.sqlite", lambda path, good: path.mkdir(), "is a directory"),
    "empty": ("x.sqlite", lambda path, good: path.write_bytes(b""), "is empty"),
    "text": (
        "x.sqlite",
        lambda path, good: path.write_text("hello\n" * 99),
        "is not an SQLite file",
    ),
    "not nsys": ("x.sqlite", other_database, "is an SQLite file, but not an nsys export"),
    "cut": ("x.sqlite", lambda path, good: path.write_bytes(good[:200_000]), "is cut off"),
    "zeros": ("x.sqlite", lambda path, good: path.write_bytes(bytes(99_999)), "starts with zeros"),
    "report": (
        "x.nsys-rep",
        lambda path, good: path.write_bytes(b"any"),
        "is a report, and no nsys",
    ),
    "renamed report": (
        "x.sqlite",
        lambda path, good: path.write_bytes(b"NVIDIA Tegra Profiler Report 2025@5@1"),
        "is a report, and no nsys is on PATH",
    ),
    "no kernels": ("x.sqlite", without_kernels, "the GPU side was not captured: "),
    "no CUDA": ("x.sqlite", without_cuda, "no CUDA trace in this export; "),
}


@pytest.mark.parametrize("case", FILES)
@pytest.mark.parametrize("command", ["split", "check"])
def test_unreadable_files_are_3(
    case: str, command: str, run_cli: Run, tmp_path: Path, trace_file: Callable[[str], Path]
) -> None:
    name, make, problem = FILES[case]
    make(tmp_path / name, trace_file("small_graph").read_bytes())
    before = sorted(tmp_path.iterdir())
    no_nsys = {"PATH": str(tmp_path)}
    check(run_cli(command, name, env=no_nsys), 3, f"{name}: {problem}")
    assert sorted(tmp_path.iterdir()) == before  # nothing is written beside an input


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        ("--engine nope", 2, "engine 'nope': no registry describes it; known: kestrel"),
        ("--layers 63", 3, "--layers 63: does not fit the counts of the verify-only kernels"),
        ("--layers 0", 2, "--layers: '0': a model has at least one layer; "),
        (
            "--layers xyz=1",
            2,
            "--layers xyz=1: no engine has layers of the kind 'xyz'; use one of all, attention, ",
        ),
        ("--layers many", 2, "--layers: 'many' is not a whole number; "),
        ("--k 9", 2, "k = 9: does not fit: verify kernels run on 3 rows, which is k = 3"),
        ("--n-ok 1,2", 2, "k = 1: does not fit: "),
        ("--n-ok 1;2", 2, "--n-ok: '1;2' is not a whole number; "),
        ("--step-ms nan", 2, "--step-ms: nan is not a time; "),
        ("--pid 4000000", 2, "--pid 4000000: not in this trace; it has pid "),
        ("--gpu 7", 2, "--gpu 7: not in this trace; it has pid "),
        ("--nvtx verify", 2, "--nvtx: cannot read 'verify'; "),
        ("--graph-role 7=vrfy", 2, "--graph-role: 'vrfy' is not a bucket; "),
        ("--plan rounds,then", 2, "--plan: cannot read 'then'; "),
        ("--ignore luck", 2, "--ignore: 'luck' is not a basis; "),
        ("--registry missing.toml", 3, "missing.toml: cannot be read"),
        ("-o missing/out.txt", 3, "missing/out.txt: No such file or directory; "),
        ("-o .", 2, ".: is a folder; "),
        ("-o small.sqlite", 2, "small.sqlite: exists already; "),
    ],
)
def test_options_that_cannot_be_right(
    options: str,
    code: int,
    line: str,
    run_cli: Run,
    tmp_path: Path,
    trace_file: Callable[[str], Path],
) -> None:
    (tmp_path / "small.sqlite").symlink_to(trace_file("small_graph"))
    check(run_cli("split", "small.sqlite", *options.split()), code, line)


KESTREL = (ROOT / "kernels_registry" / "kestrel.toml").read_text("utf-8")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("format = 1", "format = ", "my.toml: is not TOML: "),
        ('bucket = "verify"', 'bukket = "verify"', "my.toml: "),
        ('"k_rq_q4_gemv_mr<*, M>"', '"k_rq_q4_gemv_mr<*, M"', "my.toml: "),
    ],
    ids=["not TOML", "unknown key", "pattern"],
)
def test_a_damaged_registry_file_is_3(
    old: str,
    new: str,
    line: str,
    run_cli: Run,
    tmp_path: Path,
    trace_file: Callable[[str], Path],
) -> None:
    assert old in KESTREL
    (tmp_path / "my.toml").write_text(KESTREL.replace(old, new, 1), "utf-8")
    done = run_cli("split", trace_file("small_graph"), "--registry", "my.toml")
    check(done, 3, line)
    if "M" in new:
        assert "column" in done.stderr
    if "bukket" in new:
        assert "bukket" in done.stderr and "signature" in done.stderr
