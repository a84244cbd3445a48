from __future__ import annotations

import lzma
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from boom import Boom

ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT / "fixtures" / "traces"

# a shared or slow machine must not fail a property by the clock
settings.register_profile("nsysacct", deadline=None, print_blob=True)
settings.load_profile("nsysacct")

Done = subprocess.CompletedProcess[str]
Run = Callable[..., Done]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-docs",
        action="store_true",
        help="rewrite outputs in README and docs that differ (test_docs.py); look at the diff",
    )


def process_environment(tmp_path: Path, **changes: str | None) -> dict[str, str]:
    """The environment of a test process: nothing of the caller's that changes an output."""
    dropped = ("NSYSACCT_", "XDG_CACHE_HOME", "LOCALAPPDATA", "NO_COLOR", "FORCE_COLOR", "PYTHONIO")
    env = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    env |= {"COLUMNS": "80", "PYTHONUTF8": "1", "NSYSACCT_CACHE": str(tmp_path / "cache")}
    env.pop("PYTHONUNBUFFERED", None)
    for name, value in changes.items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    return env


@pytest.fixture
def run_cli(tmp_path: Path) -> Run:
    """Run ``nsysacct ARGS...`` as a process of its own in a folder of its own."""

    def run(
        *args: str | Path, env: Mapping[str, str | None] | None = None, cwd: Path | None = None
    ) -> Done:
        return subprocess.run(
            [sys.executable, "-m", "nsysacct", *map(str, args)],
            cwd=cwd or tmp_path,
            env=process_environment(tmp_path, **(env or {})),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
        )

    return run


@pytest.fixture
def boom(tmp_path: Path) -> Boom:
    """Run ``nsysacct boom``, a command of the test's own."""
    from boom import Boom

    return Boom(tmp_path)


@pytest.fixture(scope="session")
def trace_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Path of a shipped trace, unpacked once: ``trace_file("small_graph")``."""
    folder = tmp_path_factory.mktemp("traces")

    def unpack(name: str) -> Path:
        target = folder / f"{name}.sqlite"
        if not target.exists():
            with lzma.open(TRACES / f"{name}.sqlite.xz") as packed, target.open("wb") as file:
                shutil.copyfileobj(packed, file)
        return target

    return unpack


def stored_names(packed: Path, folder: Path) -> list[tuple[str, str]]:
    """Demangled and short names of the kernels of a packed trace, as the export stores them."""
    file = folder / "t.sqlite"
    file.write_bytes(lzma.decompress(packed.read_bytes()))
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        db.text_factory = lambda raw: raw.decode("utf-8", "replace")
        return db.execute(
            "SELECT DISTINCT s.value, b.value FROM CUPTI_ACTIVITY_KIND_KERNEL k "
            "JOIN StringIds s ON s.id = k.demangledName JOIN StringIds b ON b.id = k.shortName"
        ).fetchall()
