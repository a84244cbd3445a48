"""The wheel is the same whatever it is built from, holds what the checkout holds, and works alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, TRACES

from nsysacct import __version__
from nsysacct.extras import EXTRAS

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NSYSACCT_"))}
    env |= {"PYTHONUTF8": "1", "NSYSACCT_CACHE": str(cwd / "cache")}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def wheel_of(source: Path, folder: Path) -> Path:
    """What ``pip wheel SOURCE`` builds: of a folder or a packed one."""
    folder.mkdir()
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    run(*pip, "--wheel-dir", folder, source, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_of(ROOT, tmp_path_factory.mktemp("checkout") / "wheel")


def test_the_wheel_holds_registry_demo_types_and_licence(wheel: Path) -> None:
    held = contents(wheel)
    registries = sorted((ROOT / "kernels_registry").glob("*.toml"))
    assert registries
    for path in registries:
        assert held[f"nsysacct/kernels_registry/{path.name}"] == path.read_bytes()
    demo = "small_graph.sqlite.xz"
    assert held[f"nsysacct/demo/{demo}"] == (TRACES / demo).read_bytes()
    assert "nsysacct/py.typed" in held
    assert f"nsysacct-{__version__}.dist-info/licenses/LICENSE" in held
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "nsysacct").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert sources <= set(held)
    assert not [name for name in held if not name.startswith(("nsysacct/", "nsysacct-"))]


def test_a_source_distribution_gives_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--sdist", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (packed,) = tmp_path.glob("*.tar.gz")
    assert contents(wheel_of(packed, tmp_path / "wheel")) == contents(wheel)
    with tarfile.open(packed) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    # its tests can run
    assert {path.relative_to(ROOT).as_posix() for path in TRACES.glob("*.xz")} <= names
    assert {"README.md", "LICENSE", "docs/tutorial.md", "tests/conftest.py", ".ci/run"} <= names


def test_an_archive_of_the_repository_gives_the_same_wheel(tmp_path: Path) -> None:
    """Of what is committed: neither .git nor anything ignored is there."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git repository")
    packed = tmp_path / "source.tar.gz"
    run("git", "archive", "--prefix=source/", "-o", packed, "HEAD", cwd=ROOT)
    clone = tmp_path / "clone"
    run("git", "clone", "--quiet", "--no-local", ROOT, clone, cwd=tmp_path)
    assert contents(wheel_of(packed, tmp_path / "a")) == contents(wheel_of(clone, tmp_path / "b"))


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs of a virtual environment lie that has the wheel and no extra."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, with_pip=True)
    path = folder / ("Scripts" if os.name == "nt" else "bin")
    run(path / "python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    return path


def test_the_installed_wheel_works_outside_the_checkout(programs: Path, tmp_path: Path) -> None:
    program = programs / "nsysacct"
    assert run(program, "--version", cwd=tmp_path).stdout == f"nsysacct {__version__}\n"
    listed = run(program, "registry", "list", cwd=tmp_path).stdout
    for path in (ROOT / "kernels_registry").glob("*.toml"):
        assert path.stem in listed
    where = run(
        programs / "python", "-c", "import nsysacct; print(nsysacct.__file__)", cwd=tmp_path
    )
    assert Path(where.stdout.strip()).is_relative_to(programs.parent)

    shown = run(program, "demo", "--save", "demo.sqlite", cwd=tmp_path).stdout
    assert "10 rounds, proven by counting" in shown
    again = run(program, "split", "demo.sqlite", "--layers", "8", cwd=tmp_path).stdout
    assert "10 rounds, proven by counting" in again
    run(program, "check", "demo.sqlite", cwd=tmp_path)
    judged = run(program, "gate", "--base", "demo.sqlite", "--head", "demo.sqlite", cwd=tmp_path)
    assert judged.stdout.startswith("PASS")


@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        ("plot split demo.sqlite -o a.png", "matplotlib"),
        ("report demo.sqlite -o a.html", "jinja2"),
        ("history add h.db demo.sqlite", "sqlite_utils"),
        ("gate --against h.db --head demo.sqlite", "sqlite_utils"),
        ("annotate demo.sqlite -o b.sqlite", "sqlite_utils"),
        ("batch demo.sqlite -o accounts", "distributed"),
    ],
)
def test_an_extra_that_is_missing_is_named(
    arguments: str, module: str, programs: Path, tmp_path: Path
) -> None:
    run(programs / "nsysacct", "demo", "--save", "demo.sqlite", cwd=tmp_path)
    before = sorted(tmp_path.iterdir())
    done = run(programs / "nsysacct", *arguments.split(), cwd=tmp_path, code=3)
    remedy = f"{module} is not installed; pip install 'nsysacct[{EXTRAS[module]}]'\n"
    assert done.stderr.endswith(f": {remedy}") and done.stderr.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_frames_and_figures_name_their_extra(programs: Path, tmp_path: Path) -> None:
    code = """
import nsysacct as na
account = na.split("demo.sqlite", layers=8)
assert "verify" in account._repr_html_()
for use in (na.frames.buckets, lambda account: na.plots.split([account])):
    try:
        use(account)
    except na.NsysacctError as error:
        print(error)
"""
    run(programs / "nsysacct", "demo", "--save", "demo.sqlite", cwd=tmp_path)
    assert run(programs / "python", "-c", code, cwd=tmp_path).stdout.splitlines() == [
        "DataFrames: pandas is not installed; pip install 'nsysacct[pandas]'",
        "plots: matplotlib is not installed; pip install 'nsysacct[plot]'",
    ]
