"""The wheel holds what the checkout holds, and works far from it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

from nsysacct import __version__

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NSYSACCT_"))}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    run(*pip, "--wheel-dir", folder, ROOT, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_registry_and_the_types(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    registries = sorted((ROOT / "kernels_registry").glob("*.toml"))
    assert registries
    for path in registries:
        assert held[f"nsysacct/kernels_registry/{path.name}"] == path.read_bytes()
    assert "nsysacct/py.typed" in held
    assert f"nsysacct-{__version__}.dist-info/licenses/LICENSE" in held
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "nsysacct").rglob("*.py")}
    assert sources <= set(held)
    assert not [name for name in held if name.startswith(("tests/", "docs/"))]


def test_the_installed_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    python = programs / ("python.exe" if os.name == "nt" else "python")
    run(python, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    assert run(programs / "nsysacct", "--version", cwd=tmp_path) == f"nsysacct {__version__}\n"
    listed = run(programs / "nsysacct", "registry", "list", cwd=tmp_path)
    for path in (ROOT / "kernels_registry").glob("*.toml"):
        assert path.stem in listed
    where = run(python, "-c", "import nsysacct; print(nsysacct.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path / "venv")
