"""``nsysacct demo``: the main job on a real trace that comes with the package."""

from __future__ import annotations

import lzma
import shutil
import tempfile
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from nsysacct.cli._base import (
    FILE,
    atomic_file,
    echo_text,
    force_option,
    terminal_style,
    terminal_width,
)
from nsysacct.cli._help import page
from nsysacct.errors import TraceError

NAME = "small_graph.sqlite"
WORDS = "--layers 8 --closing 2 --n-ok 5,1,2,2"
"""What the program said about this run: 8 layers; 10 rounds, of which 5 accepted no draft."""


@page("demo")
@click.option(
    "--save", metavar="FILE", type=FILE, help="Also keep the trace, to try other commands on it."
)
@force_option
def command(save: str | None, force: bool) -> None:
    """Split a real trace that comes with nsysacct: 10 rounds of a small model on an H200.

    \b
    Examples:
      nsysacct demo
      nsysacct demo --save demo.sqlite
      nsysacct report demo.sqlite --layers 8 --closing 2 -o demo.html
    """
    from nsysacct import render
    from nsysacct.account import account
    from nsysacct.cli._options import read_options
    from nsysacct.trace import read_trace

    if save is not None:
        with atomic_file(save, force=force) as temporary:
            unpack(temporary)
    echo_text(f"$ nsysacct split {save or NAME} {WORDS}\n")
    # Windows removes no file that is open, as the trace still is
    with tempfile.TemporaryDirectory(prefix="nsysacct-", ignore_cleanup_errors=True) as folder:
        trace = Path(folder) / NAME
        unpack(trace)
        options = read_options(layers=("8",), closing=2, n_ok="5,1,2,2")
        result = account(read_trace(trace), options)
    echo_text(render.text(result, width=terminal_width(), style=terminal_style()))


def unpack(target: Path) -> None:
    """Write the shipped trace to `target`.

    Raises
    ------
    TraceError
        It is missing from the installation.
    """
    with packed().open("rb") as file, lzma.open(file) as source, target.open("wb") as out:
        shutil.copyfileobj(source, out)


def packed() -> Traversable:
    """Find the compressed trace: in the wheel, or in the checkout's fixtures."""
    package = files("nsysacct")
    places: list[Traversable] = [package / "demo" / f"{NAME}.xz"]
    if isinstance(package, Path):
        places.append(package.parent / "fixtures" / "traces" / f"{NAME}.xz")
    for place in places:
        if place.is_file():
            return place
    raise TraceError("demo", "the shipped trace is missing", "install nsysacct again")
