"""What names the inputs: options that do nothing for an account, patterns that no shell expands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Run, process_environment

Traces = Callable[[str], Path]


@pytest.fixture
def base(run_cli: Run, trace_file: Traces, tmp_path: Path) -> Path:
    path = tmp_path / "base.json"
    run_cli("split", trace_file("small_graph"), "--closing", "2", "--format", "json", "-o", path)
    return path


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ("whatif base.json --run-n-ok 5,1,2,2", "--run-n-ok"),
        ("rounds base.json --gpu 0", "--gpu"),
        ("plot split base.json base.json --label a=b -o x.png", "--label"),
        ("gate --base base.json --head base.json --layers 8", "--layers"),
    ],
)
def test_an_option_on_splitting_is_refused_for_an_account(
    arguments: str, option: str, base: Path, run_cli: Run
) -> None:
    done = run_cli(*arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"{option}: is for splitting a trace, and base.json is an account already; "
        "split the trace again with it\n"
    )


def test_it_is_taken_where_one_input_is_a_trace(
    base: Path, run_cli: Run, trace_file: Traces
) -> None:
    head = trace_file("small_graph")
    assert run_cli("gate", "--base", base, "--head", head, "--closing", "2").returncode == 0
    # a default of the project is no wish of the caller
    (base.parent / "nsysacct.toml").write_text("layers = 8\n", "utf-8")
    assert run_cli("rounds", base).returncode == 0


def test_patterns_stand_for_files_where_the_shell_leaves_them(base: Path, tmp_path: Path) -> None:
    """As on Windows: everything the command line asks its own `os` for says so."""
    folder = tmp_path / "heads"
    folder.mkdir()
    for name in ("b.json", "a.json"):
        (folder / name).write_bytes(base.read_bytes())
    code = (
        "import os, sys, types, nsysacct.cli as cli\n"
        "cli.os = types.SimpleNamespace(name=sys.argv.pop(1), environ=os.environ)\n"
        "cli.main()"
    )

    def run(system: str, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, system, *args],
            cwd=tmp_path,
            env=process_environment(tmp_path),
            capture_output=True,
            encoding="utf-8",
        )

    gate = ("gate", "--base", "base.json", "--head", os.path.join("heads", "*.json"))
    assert run("nt", *gate).stdout.endswith("base: base.json\nhead: a.json, b.json\n")
    assert run("posix", *gate).stderr.endswith("*.json: no such file; check the path\n")
    # what matches no file is a pattern of something else
    explained = run("nt", "registry", "explain", "k_gdn_*_m")
    assert "k_gdn_*_m" in explained.stdout
