"""Reports (``.nsys-rep``) in place of exports: exported once into a cache of the user's.

Nothing is ever written beside a report. An export is kept under a key made from the report's
resolved path, size and modification time, so it is used as long as the report is unchanged. Two
runs at once export twice, each into a folder of its own; the later rename wins, and a reader sees
a whole export or none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nsysacct.errors import NsysacctError, TraceError

SUFFIXES = (".nsys-rep", ".qdrep")
_REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"
_SQLITE_MAGIC = b"SQLite format 3\x00"
_SOURCE = "source.json"


@dataclass(frozen=True, slots=True)
class CachedExport:
    """One export in the cache.

    Attributes
    ----------
    path : Path
        The SQLite export.
    report : str
        Resolved path of the report it was made from.
    size_bytes : int
        Size of the export.
    fresh : bool
        Whether the report is still there and unchanged.
    """

    path: Path
    report: str
    size_bytes: int
    fresh: bool


def is_report(path: str | Path) -> bool:
    """Whether `path` is a report of nsys: by its ending, or by its first bytes."""
    path = Path(path)
    if path.suffix.lower() in SUFFIXES:
        return True
    return _starts_with(path, _REPORT_MAGIC)


def resolve(path: str | Path, *, announce: Callable[[str], None] | None = None) -> Path:
    """Path of the SQLite export of `path`: itself, or the export of a report.

    Parameters
    ----------
    path : path
        An export, or a report (``.nsys-rep``, ``.qdrep``).
    announce : callable, optional
        Told in one line when an export starts, since it can take minutes.

    Returns
    -------
    Path
        `path` when it is no report; else the export in `cache_folder`, made now by the ``nsys``
        that NSYSACCT_NSYS names or that is on PATH, unless one of the unchanged report is there.

    Raises
    ------
    TraceError
        The report is missing, there is no nsys, or nsys could not export it.
    NsysacctError
        The cache folder cannot be written.
    """
    path = Path(path)
    if not is_report(path):
        return path
    identity = _identity(path)
    kept = _folder_of(identity) / f"{path.stem}.sqlite"
    if kept.is_file():
        return kept
    nsys = _find_nsys(path)
    if announce is not None:
        announce(f"{path.name}: exporting with {nsys}; kept for the next time")
    try:
        with _workplace() as workplace:
            made = workplace / kept.name
            _export(nsys, path, made)
            if _identity(path) != identity:
                raise TraceError(str(path), "changed while it was exported", "run again")
            _keep(made, kept, identity)
    except OSError as failure:
        where = str(cache_folder())
        what = failure.strerror or str(failure)
        raise NsysacctError(where, what, "set NSYSACCT_CACHE to a folder with space") from failure
    _drop_older(identity)
    return kept


def cache_folder() -> Path:
    """Folder of the cache: NSYSACCT_CACHE, or the user's cache folder of this system.

    Raises
    ------
    NsysacctError
        The user has no home folder.
    """
    given = os.environ.get("NSYSACCT_CACHE")
    if given:
        return Path(given)
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        base = os.environ.get(variable)
        if base and Path(base).is_absolute():  # XDG: a relative path is to be ignored
            return Path(base) / "nsysacct"
    try:
        return Path.home() / ".cache" / "nsysacct"
    except RuntimeError:
        raise NsysacctError("cache", "no home folder", "set NSYSACCT_CACHE to a folder") from None


def cached_exports() -> list[CachedExport]:
    """All exports in the cache, by report."""
    found = []
    for source in sorted(_exports_folder().glob(f"*/{_SOURCE}")):
        try:
            identity = json.loads(source.read_text("utf-8"))
            path = source.parent / f"{Path(identity['report']).stem}.sqlite"
            size_bytes = path.stat().st_size
        except (OSError, ValueError, KeyError, TypeError):
            continue  # being written or removed by another run
        found.append(CachedExport(path, identity["report"], size_bytes, _is_current(identity)))
    return sorted(found, key=lambda export: (export.report, export.path))


def clear_cache() -> tuple[int, int]:
    """Remove all exports, unfinished ones included.

    Returns
    -------
    tuple of int
        Exports removed, and their bytes.

    Raises
    ------
    NsysacctError
        Something could not be removed.
    """
    exports = cached_exports()
    # only what is ours: NSYSACCT_CACHE may name a folder that holds other things
    try:
        shutil.rmtree(_exports_folder())
    except FileNotFoundError:
        pass
    except OSError as failure:
        subject = str(failure.filename or _exports_folder())
        what = failure.strerror or str(failure)
        raise NsysacctError(subject, what, "check its permissions") from failure
    return len(exports), sum(export.size_bytes for export in exports)


def _exports_folder() -> Path:
    return cache_folder() / "exports"


def _identity(report: Path) -> dict[str, str | int]:
    """Say what makes a report the same: where it is, its size and its time of change."""
    try:
        resolved = report.resolve(strict=True)
        status = resolved.stat()
    except OSError as failure:
        what = failure.strerror or str(failure)
        raise TraceError(str(report), what, "check the path") from failure
    if not resolved.is_file():
        raise TraceError(str(report), "not a file", "name a report or an export")
    size, time = status.st_size, status.st_mtime_ns
    return {"report": str(resolved), "size_bytes": size, "mtime_ns": time}


def _is_current(identity: dict[str, str | int]) -> bool:
    try:
        return _identity(Path(str(identity["report"]))) == identity
    except TraceError:
        return False


def _folder_of(identity: dict[str, str | int]) -> Path:
    text = json.dumps(identity, sort_keys=True)
    return _exports_folder() / hashlib.sha256(text.encode()).hexdigest()[:24]


def _find_nsys(report: Path) -> str:
    given = os.environ.get("NSYSACCT_NSYS")
    found = shutil.which(given or "nsys")
    if found is not None:
        return found
    command = f'nsys export --type sqlite "{report.name}"'
    if given:
        raise TraceError(
            str(report),
            f"NSYSACCT_NSYS names {given}, which cannot be run",
            f"correct it, or run '{command}' where nsys is and pass the .sqlite",
        )
    raise TraceError(
        str(report),
        "is a report, and no nsys is on PATH to export it",
        f"run '{command}' where nsys is and pass the .sqlite, or set NSYSACCT_NSYS",
    )


@contextlib.contextmanager
def _workplace() -> Iterator[Path]:
    """Make a folder in the cache, gone afterwards."""
    parent = _exports_folder()
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = Path(tempfile.mkdtemp(prefix=".making-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _export(nsys: str, report: Path, target: Path) -> None:
    command = [nsys, "export", "--type", "sqlite", "--output", str(target), str(report.resolve())]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
    except OSError as failure:
        what = failure.strerror or str(failure)
        raise TraceError(nsys, what, "set NSYSACCT_NSYS to the nsys to use") from failure
    # a failed or killed nsys leaves a file of zeros, and old ones then still exit 0
    if done.returncode != 0 or not _starts_with(target, _SQLITE_MAGIC):
        said = [line.strip() for line in (done.stderr + "\n" + done.stdout).splitlines()]
        why = next((line for line in said if line), "it said nothing")
        raise TraceError(
            str(report),
            f"nsys export failed (exit code {done.returncode}): {why}",
            "export it with an nsys at least as new as the one that wrote it",
        )


def _keep(made: Path, kept: Path, identity: dict[str, str | int]) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    note = made.parent / _SOURCE
    note.write_text(json.dumps(identity), encoding="utf-8")
    try:
        os.replace(note, kept.parent / _SOURCE)
        os.replace(made, kept)
    except PermissionError:
        # Windows: another run made the same export meanwhile, and somebody reads it
        if not kept.is_file():
            raise


def _drop_older(identity: dict[str, str | int]) -> None:
    """Remove exports of the same report as it was before."""
    current = _folder_of(identity)
    for export in cached_exports():
        if export.report == identity["report"] and export.path.parent != current:
            shutil.rmtree(export.path.parent, ignore_errors=True)


def _starts_with(path: Path, magic: bytes) -> bool:
    # a pipe must not be opened here: what is read from it is lost for the reader
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError:
        return False
