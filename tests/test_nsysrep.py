"""Reports in place of exports, with a stand-in for nsys that counts its runs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import Run, process_environment

from nsysacct.errors import NsysacctError, TraceError
from nsysacct.nsysrep import cache_folder, cached_exports, clear_cache, is_report, resolve

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the stand-in is a script")

FAKE_NSYS = """#!{python}
import os, sqlite3, sys, time
with open({log!r}, "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
mode = os.environ.get("FAKE_NSYS", "good")
target = sys.argv[sys.argv.index("--output") + 1]
if mode == "fails":
    print("Importer error: file is damaged", file=sys.stderr)
    sys.exit(1)
if mode == "zeros":
    open(target, "wb").write(bytes(8192))
    sys.exit(0)
if mode == "slow":
    time.sleep(0.5)
if mode == "touches":
    open(sys.argv[-1], "ab").write(b"more")
db = sqlite3.connect(target)
db.execute("CREATE TABLE made_from (path TEXT)")
db.execute("INSERT INTO made_from VALUES (?)", (sys.argv[-1],))
db.commit()
"""


class Nsys:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.path = folder / "nsys"
        self.log = folder / "log"
        self.path.write_text(FAKE_NSYS.format(python=sys.executable, log=str(self.log)))
        self.path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nsys:
    fake = Nsys(tmp_path / "bin")
    monkeypatch.setenv("NSYSACCT_NSYS", str(fake.path))
    monkeypatch.setenv("NSYSACCT_CACHE", str(tmp_path / "cache"))
    return fake


@pytest.fixture
def report(tmp_path: Path) -> Path:
    folder = tmp_path / "reports ä"
    folder.mkdir()
    path = folder / "run 1.nsys-rep"
    path.write_bytes(b"NVIDIA Tegra Profiler Report 2025@5@1")
    return path


def test_an_export_is_itself(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    assert resolve(path) == path  # missing or not: the reader says it
    path.write_bytes(b"SQLite format 3\0")
    assert resolve(str(path)) == path


def test_a_report_is_known_by_ending_or_content(report: Path, tmp_path: Path) -> None:
    assert is_report(report) and is_report("x.NSYS-REP") and is_report("old.qdrep")
    renamed = report.rename(tmp_path / "run.bin")
    assert is_report(renamed)
    assert not is_report(tmp_path / "missing") and not is_report(tmp_path)


def test_exported_once_while_unchanged(report: Path, nsys: Nsys, tmp_path: Path) -> None:
    said: list[str] = []
    first = resolve(report, announce=said.append)
    assert first.read_bytes().startswith(b"SQLite format 3\0")
    assert first.name == "run 1.sqlite" and first.is_relative_to(tmp_path / "cache")
    assert nsys.calls[0].startswith("export --type sqlite --output ")
    assert len(said) == 1 and said[0].startswith("run 1.nsys-rep: exporting with ")
    link = tmp_path / "link.nsys-rep"
    link.symlink_to(report)
    assert resolve(report) == first and len(nsys.calls) == 1 and len(said) == 1
    assert resolve(link).parent == first.parent  # the same report by another name
    assert [path.name for path in report.parent.iterdir()] == [report.name]


def test_exported_again_when_changed_and_the_older_one_dropped(report: Path, nsys: Nsys) -> None:
    first = resolve(report)
    status = report.stat()
    os.utime(report, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert [export.fresh for export in cached_exports()] == [False]
    second = resolve(report)
    assert second != first and not first.exists() and len(nsys.calls) == 2
    assert [(e.path, e.report, e.fresh) for e in cached_exports()] == [
        (second, str(report.resolve()), True)
    ]


def test_cached_exports_need_no_nsys(
    report: Path, nsys: Nsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = resolve(report)
    monkeypatch.setenv("NSYSACCT_NSYS", "/nowhere/nsys")
    assert resolve(report) == first


def test_two_at_once_both_get_a_whole_export(
    report: Path, nsys: Nsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NSYS", "slow")
    paths: list[Path] = []
    contents: list[bytes] = []

    def work() -> None:
        paths.append(resolve(report))
        contents.append(paths[-1].read_bytes())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 1 and len(nsys.calls) > 1
    assert all(content.startswith(b"SQLite format 3\0") for content in contents)
    assert len(contents) == 3
    assert leftovers() == [paths[0].parent]


@pytest.mark.parametrize("kept", [True, False])
def test_an_export_that_somebody_reads_stays(
    kept: bool, report: Path, nsys: Nsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows replaces no open file: the one that another run kept meanwhile is as good."""

    def refuse(source: Path, target: Path) -> None:
        if kept:
            (target.parent / f"{report.stem}.sqlite").write_bytes(b"by another run")
        raise PermissionError(13, "in use", str(target))

    monkeypatch.setattr("nsysacct.nsysrep.os.replace", refuse)
    if kept:
        assert resolve(report).read_bytes() == b"by another run"
    else:
        with pytest.raises(NsysacctError, match="in use"):
            resolve(report)


def leftovers() -> list[Path]:
    return list((cache_folder() / "exports").iterdir())


@pytest.mark.parametrize(
    ("mode", "problem"),
    [
        ("fails", "nsys export failed (exit code 1): Importer error: file is damaged; export it"),
        ("zeros", "nsys export failed (exit code 0): it said nothing; export it"),
        ("touches", "changed while it was exported; run again"),
    ],
)
def test_a_failed_export_is_not_kept(
    mode: str, problem: str, report: Path, nsys: Nsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NSYS", mode)
    with pytest.raises(TraceError) as caught:
        resolve(report)
    assert str(caught.value).startswith(f"{report}: {problem}")
    assert leftovers() == [] and cached_exports() == []
    monkeypatch.setenv("FAKE_NSYS", "good")
    assert resolve(report).is_file()


def test_no_nsys_names_the_command(
    report: Path, nsys: Nsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NSYSACCT_NSYS")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TraceError) as caught:
        resolve(report)
    assert str(caught.value) == (
        f"{report}: is a report, and no nsys is on PATH to export it; run 'nsys export --type "
        f'sqlite "run 1.nsys-rep"\' where nsys is and pass the .sqlite, or set NSYSACCT_NSYS'
    )
    monkeypatch.setenv("PATH", str(nsys.path.parent))
    assert resolve(report).is_file()


def test_a_wrong_nsysacct_nsys_is_named(
    report: Path, nsys: Nsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSYSACCT_NSYS", "/nowhere/nsys")
    with pytest.raises(TraceError, match="NSYSACCT_NSYS names /nowhere/nsys, which cannot be run"):
        resolve(report)


def test_an_nsys_that_does_not_start(report: Path, nsys: Nsys) -> None:
    nsys.path.write_bytes(b"\x7fELF")
    with pytest.raises(TraceError, match=r"set NSYSACCT_NSYS to the nsys to use"):
        resolve(report)


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_what_is_no_report(kind: str, nsys: Nsys, tmp_path: Path) -> None:
    path = tmp_path / "x.nsys-rep"
    if kind == "folder":
        path.mkdir()
    problem = "No such file or directory" if kind == "missing" else "not a file"
    with pytest.raises(TraceError, match=f"x.nsys-rep: {problem}; "):
        resolve(path)


def test_a_cache_that_cannot_be_written(
    report: Path, nsys: Nsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NSYSACCT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(NsysacctError, match="Not a directory; set NSYSACCT_CACHE to a folder"):
        resolve(report)


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("NSYSACCT_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "nsysacct"
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_folder() == tmp_path / "local" / "nsysacct"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == tmp_path / "local" / "nsysacct"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "nsysacct"
    monkeypatch.setenv("NSYSACCT_CACHE", "here")
    assert cache_folder() == Path("here")


def test_the_cache_is_the_users_alone(report: Path, nsys: Nsys) -> None:
    resolve(report)
    assert stat.S_IMODE((cache_folder() / "exports").stat().st_mode) & 0o077 == 0


def test_clear_removes_exports_and_nothing_else(report: Path, nsys: Nsys) -> None:
    size = resolve(report).stat().st_size
    (cache_folder() / "other").write_text("not ours")
    (cache_folder() / "exports" / ".making-x").mkdir()  # of a run that was killed
    assert clear_cache() == (1, size)
    assert [path.name for path in cache_folder().iterdir()] == ["other"]
    assert clear_cache() == (0, 0)


def test_cache_command(report: Path, nsys: Nsys, run_cli: Run, tmp_path: Path) -> None:
    assert run_cli("cache", "path").stdout == f"{tmp_path / 'cache'}\n"
    assert run_cli("cache", "list").stdout == "no exports in the cache\n"
    resolve(report)
    assert run_cli("cache", "list").stdout == f"       0.0 MB  unchanged  {report}\n"
    report.unlink()
    assert run_cli("cache", "list").stdout == f"       0.0 MB  outdated   {report}\n"
    done = run_cli("cache", "clear")
    assert (done.returncode, done.stdout) == (0, "removed 1 export, 0.0 MB\n")


def test_killed_while_exporting_leaves_no_export(report: Path, nsys: Nsys, tmp_path: Path) -> None:
    code = f"from nsysacct.nsysrep import resolve; resolve({str(report)!r})"
    env = process_environment(tmp_path, NSYSACCT_NSYS=str(nsys.path), FAKE_NSYS="slow")
    process = subprocess.Popen([sys.executable, "-c", code], env=env)
    while not nsys.calls:
        assert process.poll() is None
    process.kill()
    process.wait()
    assert cached_exports() == []
    assert resolve(report).is_file()
