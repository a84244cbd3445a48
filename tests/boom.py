"""A command of the test's own that does anything, run as a process: ``nsysacct boom``."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import ROOT, Done, process_environment

posix_only = pytest.mark.skipif(os.name != "posix", reason="about file descriptors and signals")

MODULES = sorted(
    path.stem for path in (ROOT / "nsysacct" / "cli").glob("*.py") if not path.stem.startswith("_")
)

# a command of the test's own, found and run in the way all commands are
DRIVER = """
import sys
import nsysacct.cli as cli
cli.__path__.append(sys.argv.pop(1))
cli.TOPICS["boom"] = "test"
cli.main()
"""

COMMAND = """
import os, sys, time
import click
from nsysacct.cli._base import *
from nsysacct.errors import *

@click.command("boom")
@click.pass_context
def command(ctx):
{body}
"""


class Boom:
    """Runs ``nsysacct boom`` with a given body as a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "commands").mkdir()

    def write(self, body: str) -> list[str]:
        text = COMMAND.format(body=textwrap.indent(textwrap.dedent(body), "    "))
        (self.folder / "commands" / "boom.py").write_text(text)
        return [sys.executable, "-c", DRIVER, str(self.folder / "commands")]

    def env(self, **changes: str | None) -> dict[str, str]:
        return process_environment(self.folder, **changes)

    def __call__(self, body: str, *args: str, **env: str | None) -> Done:
        return subprocess.run(
            [*self.write(body), *(args or ("boom",))],
            cwd=self.folder,
            env=self.env(**env),
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )


def one_line(done: Done) -> str:
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.rstrip("\n")
