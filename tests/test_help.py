"""``--help`` and shell completion."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from boom import MODULES
from conftest import Run, process_environment

from nsysacct.cli import TOPICS


def test_help_lists_the_commands_that_exist_and_no_other(run_cli: Run) -> None:
    done = run_cli("--help")
    listed = re.findall(r"^  ([a-z]+) {2,}[A-Z]", done.stdout, re.M)
    assert sorted(listed) == MODULES
    assert set(MODULES) <= set(TOPICS)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize("name", MODULES)
def test_every_command_has_help(name: str, run_cli: Run) -> None:
    command = importlib.import_module(f"nsysacct.cli.{name}").command
    assert isinstance(command, click.Command) and command.name == name
    done = run_cli(name, "--help")
    assert done.returncode == 0 and done.stdout.startswith(f"Usage: nsysacct {name}")
    assert max(map(len, done.stdout.splitlines())) <= 80


def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(inner, (*path, name))
    else:
        yield path


LEAVES = [
    path
    for name in MODULES
    for path in leaves(importlib.import_module(f"nsysacct.cli.{name}").command, (name,))
]


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help_is_a_page_of_a_manual(path: tuple[str, ...], run_cli: Run) -> None:
    text = run_cli(*path, "--help").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"\nExit codes: 0 .*; 2 wrong usage; 3 .*\.\n$", text)
    assert path[0] == "cache" or f"    nsysacct {' '.join(path)}" in text, "no example"
    # names of types say less than a word for the value; ends of 64 bits say nothing
    assert not re.search(
        r"INTEGER|FLOAT|TEXT(?!$)|None\]|10000000|1e-06", text.partition("Options:")[2]
    )


@pytest.mark.parametrize("name", ["cache", "history", "registry"])
def test_groups_list_their_commands_uncut(name: str, run_cli: Run) -> None:
    listed = run_cli(name, "--help").stdout.partition("Commands:")[2]
    assert "..." not in listed
    assert len(re.findall(r"^  [a-z]+ ", listed, re.M)) >= 3


def test_options_on_splitting_stand_apart(run_cli: Run) -> None:
    for path, own in (
        (("explain",), "--weight-bytes"),
        (("whatif",), "--n-ok"),
        (("gate",), "--base"),
    ):
        before, title, after = run_cli(*path, "--help").stdout.partition("How a trace is split:")
        assert title and f"  {own} " in before
        assert "  --layers " in after and "  --layers " not in before


# -- completion -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, run_cli: Run) -> None:
    done = run_cli("completion", shell)
    assert done.returncode == 0 and "_NSYSACCT_COMPLETE" in done.stdout


def test_completion_offers_commands_and_options(run_cli: Run) -> None:
    def complete(words: str, index: int) -> list[str]:
        env = {"COMP_WORDS": words, "COMP_CWORD": str(index), "_NSYSACCT_COMPLETE": "bash_complete"}
        return [line.partition(",")[2] for line in run_cli(env=env).stdout.split()]

    assert complete("nsysacct ", 1) == [name for name in TOPICS if name in MODULES]
    assert complete("nsysacct ca", 1) == ["cache"]
    assert complete("nsysacct --v", 1) == ["--version"]
    assert complete("nsysacct cache cl", 2) == ["clear"]
    assert complete("nsysacct plot ti", 2) == ["timeline"]
    assert complete("nsysacct explain --format m", 3) == ["markdown"]


@pytest.mark.parametrize(
    "words",
    ["split s", "explain s", "compare a.json s", "whatif --plain-from s", "gate --base s",
     "history add s", "batch -o s", "split --log s", "split --registry s", "plot split s"],
)  # fmt: skip
def test_completion_offers_files_where_files_go(words: str, run_cli: Run) -> None:
    line = f"nsysacct {words}"
    env = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    assert run_cli(env=env | {"_NSYSACCT_COMPLETE": "bash_complete"}).stdout == "file,s\n"


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_completion_in_bash(tmp_path: Path) -> None:
    """What the script registers is asked, as bash would ask it."""
    script = """
        nsysacct() { "$PYTHON" -m nsysacct "$@"; }
        compopt() { :; }
        eval "$(nsysacct completion bash)"
        completer=$(complete -p nsysacct | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        COMP_WORDS=(nsysacct hist tr) COMP_CWORD=1
        $completer "$PROGRAM"; echo "${COMPREPLY[*]}"
        COMPREPLY=() COMP_WORDS=(nsysacct history tr) COMP_CWORD=2
        $completer "$PROGRAM"; echo "${COMPREPLY[*]}"
    """
    program = tmp_path / "nsysacct"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nsysacct "$@"\n')
    program.chmod(0o755)
    env = process_environment(tmp_path, PYTHON=sys.executable, PROGRAM=str(program))
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, encoding="utf-8")
    assert (done.stdout, done.stderr) == ("history\ntrend\n", "")
