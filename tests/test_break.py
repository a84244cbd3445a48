"""A hostile or unlucky user: one line, the right exit code, no file lost; as processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done, Run

HUGE = "9" * 5000  # Python itself refuses to read this many digits


@pytest.fixture
def folder(tmp_path: Path, trace_file: Callable[[str], Path], run_cli: Run) -> Path:
    """A folder with its own copies of a trace and its account."""
    (tmp_path / "t.sqlite").write_bytes(trace_file("small_graph").read_bytes())
    assert run_cli("split", "t.sqlite", "--format", "json", "-o", "a.json").returncode == 0
    return tmp_path


def refused(done: Done, code: int, said: str) -> None:
    assert done.returncode == code, done.stderr[:500] + done.stdout[:500]
    assert done.stdout == "" and done.stderr.count("\n") == 1
    assert said in done.stderr and "internal error" not in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "split t.sqlite -o t.sqlite",
        "split t.sqlite -o ./link",
        "rounds link -o t.sqlite",
        "report t.sqlite -o t.sqlite",
        "annotate t.sqlite -o t.sqlite",
        "export t.sqlite --perfetto t.json.gz",
        "explain a.json -o a.json",
        "diff a.json a.json -o a.json",
        "gate --base a.json --head t.sqlite -o t.sqlite",
    ],
)
def test_force_never_overwrites_an_input(line: str, folder: Path, run_cli: Run) -> None:
    (folder / "link").symlink_to("t.sqlite")
    (folder / "t.json.gz").symlink_to("t.sqlite")
    before = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    refused(run_cli(*line.split(), "--force"), 2, "is an input of this command; ")
    assert {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()} == before


@pytest.mark.parametrize("option", ["--plain-ms", "--replay-ms", "--verify-slope-ms"])
@pytest.mark.parametrize("value", ["nan", "inf", "1e300"])
def test_costs_are_finite(option: str, value: str, folder: Path, run_cli: Run) -> None:
    refused(run_cli("whatif", "a.json", option, value), 2, option)


@pytest.mark.parametrize(
    "line",
    [
        "split t.sqlite --layers " + HUGE,
        f"split t.sqlite --n-ok {HUGE},1,1,1",
        f"split t.sqlite --plan prefill={HUGE}",
        f"split t.sqlite --graph-role {HUGE}=verify",
        "split t.sqlite --pid " + HUGE,
        f"split t.sqlite --log t.sqlite --log-lines {HUGE}:",
        f"plot timeline t.sqlite -o x.png --rounds {HUGE}-1",
        "split t.sqlite --step-ms 1e999999",
        "split t.sqlite --step-ms 1e-9",
        "split t.sqlite --wall-ms 1e30",
        "split t.sqlite --plan prefill=\N{SUPERSCRIPT TWO}",
        "whatif a.json --acceptance 1e99999999",
        "bottleneck a.json --plain-ms 1e-300",
        "bottleneck a.json --dram-share nan",
        "report a.json --plain-ms inf -o -",
        "plot waterfall a.json --plain-ms nan -o x.png",
        "model --extra nan",
        "gate --base a.json --head a.json --confidence nan",
        "gate --base a.json --head a.json --limit verify.ns_per_round:+1e999%",
    ],
)
def test_numbers_that_nobody_means(line: str, folder: Path, run_cli: Run) -> None:
    before = sorted(folder.iterdir())
    refused(run_cli(*line.split()), 2, "; ")
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "text",
    [
        f"draft acceptance rate = 0.5 ( {HUGE} accepted / {HUGE} generated)",
        f"accepted 1/{HUGE} draft tokens",
        f"SpecDecoding metrics: Mean acceptance length: nan, Accepted: {HUGE} tokens, Drafted: 3",
    ],
)
def test_log_with_impossible_counts(text: str, folder: Path, run_cli: Run) -> None:
    (folder / "run.log").write_text(text + "\n", "utf-8")
    refused(run_cli("acceptance", "run.log"), 3, "run.log: ")


@pytest.mark.parametrize("text", ["x = " + HUGE, "a = " + "[" * 5000])
def test_toml_that_no_parser_reads(text: str, folder: Path, run_cli: Run) -> None:
    (folder / "x.toml").write_text(text, "utf-8")
    refused(run_cli("split", "t.sqlite", "--registry", "x.toml"), 3, "x.toml: ")
    limits = run_cli("gate", "--base", "a.json", "--head", "a.json", "--limits", "x.toml")
    refused(limits, 2, "x.toml: ")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--engine", ""), "--engine: is empty"),
        (("--n-ok", " "), "--n-ok: is empty"),
        (("--plan", ""), "--plan: is empty"),
        (("--log", ""), "--log: is empty"),
        (("--layers", ","), "--layers: is empty"),
        (("--log-lines", "1:2"), "--log-lines: there is no --log"),
        (("--wall-ms", "0.001"), "--wall-ms: 0.001 ms is less than"),
    ],
)
def test_options_that_say_nothing_or_cannot_be(
    run_cli: Run, trace_file: Callable[[str], Path], options: tuple[str, ...], line: str
) -> None:
    done = run_cli("split", trace_file("small_graph"), *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(line) and done.stderr.count("\n") == 1
