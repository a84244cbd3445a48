"""A project's own defaults: ``nsysacct.toml``, or ``[tool.nsysacct]`` in ``pyproject.toml``.

::

    engine = "vllm"
    layers = 64                       # or { all = 64, gdn = 48 }
    k = 3
    registry = ["kernels"]            # files or folders, relative to this file
    labels = { model = "llama-8b" }

    [gate]                            # what a limits file holds (`limits`)
    confidence = 0.95
    [gate.limits]
    "verify.ns_per_round" = "+5%"

The first file found counts, looking in a folder and then in those above it; in one folder
``nsysacct.toml`` goes before ``pyproject.toml``. What stands on the command line goes before both.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from nsysacct.errors import UsageError
from nsysacct.limits import Settings, read_settings
from nsysacct.strict import convert

FILE = "nsysacct.toml"
PYPROJECT = "pyproject.toml"

MOST_DRAFTS = 64
"""Largest k that the command line takes."""


class _Table(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Keys of a project's defaults."""

    engine: str | None = None
    layers: int | dict[str, int] | None = None
    k: int | None = None
    registry: str | list[str] = []
    labels: dict[str, str] = {}
    gate: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Project:
    """Defaults of a project; everything is optional.

    Attributes
    ----------
    source : str
        File that they come from; empty without one.
    engine : str or None
    layers : mapping
        Layer kind -> count, ``all`` for the model's layers.
    k : int or None
        Drafts a round.
    registry : tuple of str
        Registry files and folders.
    labels : mapping
        What the runs are.
    gate : Settings
        Limits of ``nsysacct gate``.
    """

    source: str = ""
    engine: str | None = None
    layers: Mapping[str, int] = field(default_factory=dict)
    k: int | None = None
    registry: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    gate: Settings = field(default_factory=Settings)

    def summary(self) -> str:
        """What the defaults are, in one line."""
        layers = ",".join(
            str(n) if kind == "all" else f"{kind}={n}" for kind, n in self.layers.items()
        )
        parts = [
            ("engine", self.engine),
            ("layers", layers),
            ("k", self.k),
            ("registry", ", ".join(Path(path).name for path in self.registry)),
            ("labels", ", ".join(f"{key}={value}" for key, value in self.labels.items())),
            ("limits", len(self.gate.limits) or None),
        ]
        return ", ".join(f"{name} {value}" for name, value in parts if value) or "nothing"


def find_project(folder: Path) -> Project:
    """Defaults that hold in `folder`.

    Parameters
    ----------
    folder : Path
        Where to start looking upwards.

    Raises
    ------
    UsageError
        The file that counts cannot be read, or has a key or value that cannot be right.
    """
    for place in (folder.absolute(), *folder.absolute().parents):
        own = place / FILE
        if own.is_file():
            return read_project(own, _load(own))
        table = _from_pyproject(place / PYPROJECT)
        if table is not None:
            return read_project(place / PYPROJECT, table)
    return Project()


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise UsageError(
            path.name, f"cannot be read ({error.strerror})", "check its permissions"
        ) from error
    except (ValueError, RecursionError) as error:  # tomllib's own, and its limits
        raise UsageError(path.name, f"is not TOML ({error})", "correct it") from error


def _from_pyproject(path: Path) -> Mapping[str, Any] | None:
    """``[tool.nsysacct]``; None when the file has none, or is somebody else's problem."""
    try:
        if b"nsysacct" not in path.read_bytes():
            return None
    except OSError:
        return None
    tools = _load(path).get("tool", {})
    table = tools.get("nsysacct") if isinstance(tools, dict) else None
    return table if isinstance(table, dict) else None


def read_project(path: Path, table: Mapping[str, Any]) -> Project:
    """Check the defaults that stand in `path`.

    Raises
    ------
    UsageError
        ``file: key: what is wrong; what to do``.
    """
    where = path.name if path.name == FILE else f"{path.name} [tool.nsysacct]"
    refuse = partial(_refuse, where)
    found = convert(table, _Table, refuse)
    if found.k is not None and not 1 <= found.k <= MOST_DRAFTS:
        raise refuse("k", f"is {found.k}", f"give 1 to {MOST_DRAFTS}")
    registry = [found.registry] if isinstance(found.registry, str) else found.registry
    return Project(
        source=str(path),
        engine=found.engine,
        layers=_layers(found.layers, where),
        k=found.k,
        registry=tuple(str(path.parent / Path(entry).expanduser()) for entry in registry),
        labels=found.labels,
        gate=read_settings(f"{where} [gate]", found.gate),
    )


def _layers(value: int | dict[str, int] | None, where: str) -> dict[str, int]:
    layers = {"all": value} if isinstance(value, int) else dict(value or {})
    total = layers.get("all")
    for kind, count in layers.items():
        if count < 1:
            raise _refuse(where, "layers", f"{kind} is {count}", "give 1 or more")
        if total is not None and count > total:
            raise _refuse(where, "layers", f"{count} {kind} layers of {total} in all", "fix one")
    return layers


def _refuse(where: str, key: str, problem: str, remedy: str) -> UsageError:
    return UsageError(where, f"key {key}: {problem}" if key else problem, remedy)
