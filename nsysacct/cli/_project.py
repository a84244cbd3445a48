"""The project's own defaults, found once a run."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import click

from nsysacct.cli._base import echo_error

if TYPE_CHECKING:
    from nsysacct.config import Project


@cache
def project() -> Project:
    """Defaults that hold in the current folder; with ``--debug``, a note on stderr says which.

    Raises
    ------
    UsageError
        The project file has a key or value that cannot be right.
    """
    from pathlib import Path

    from nsysacct.config import find_project

    found = find_project(Path.cwd())
    context = click.get_current_context(silent=True)
    if found.source and context is not None and context.find_root().params.get("debug"):
        echo_error(f"nsysacct: defaults from {found.source}: {found.summary()}")
    return found
