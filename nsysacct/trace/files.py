"""What kind of file is this? An nsys SQLite export, or one of the things handed in its place.

Looks at the first bytes and at the file system only; opens nothing as a database.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePath
from urllib.parse import quote_from_bytes

from nsysacct.errors import NotAnExportError, TraceError

_SQLITE_MAGIC = b"SQLite format 3\x00"
_REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"
_STREAM_MAGIC = b"NVIDIA Nsight Systems Stream"
_LFS_MAGIC = b"version https://git-lfs"
_EXPORT = "export it: nsys export --type sqlite REPORT.nsys-rep"
_EXPORT_AGAIN = "export the report again: nsys export --type sqlite --force-overwrite true"
_HEADER_BYTES = 100
_WAL_FORMAT = 2  # bytes 18 and 19 of the SQLite header: 1 rollback journal, 2 write-ahead log


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What is known of the file without reading its tables.

    Attributes
    ----------
    name : str
        File name without directories.
    path : Path
        Where the data is read from, links resolved.
    size_bytes : int
        Length of the file.
    wal_format : bool
        The header asks for a write-ahead log, so a plain read-only connection would create side
        files.
    wal_bytes : int or None
        Length of the ``-wal`` file beside it, None without one; more than 0 means that committed
        data may lie there.
    """

    name: str
    path: Path
    size_bytes: int
    wal_format: bool
    wal_bytes: int | None

    def uri(self, *, immutable: bool) -> str:
        """SQLite URI that opens the file read-only.

        Parameters
        ----------
        immutable : bool
            Promise that nobody changes the file: no locks are taken and no ``-shm`` is created, but
            a ``-wal`` is not looked at.
        """
        return uri_of(self.path) + ("?mode=ro&immutable=1" if immutable else "?mode=ro")


def uri_of(path: PurePath) -> str:
    """SQLite URI of an absolute path; SQLite takes no host in it, so a Windows share is all path.

    Examples
    --------
    >>> from pathlib import PurePosixPath, PureWindowsPath
    >>> uri_of(PurePosixPath("/a b/c.sqlite"))
    'file:///a%20b/c.sqlite'
    >>> uri_of(PureWindowsPath("D:/c.sqlite")), uri_of(PureWindowsPath("//server/share/c.sqlite"))
    ('file:///D:/c.sqlite', 'file:////server/share/c.sqlite')
    """
    text = path.as_posix()
    return (
        "file://"
        + ("" if text.startswith("/") else "/")
        + quote_from_bytes(os.fsencode(text), "/:")
    )


def identify(path: str | os.PathLike[str]) -> FileFacts:
    """Check that `path` can be an nsys SQLite export.

    Raises
    ------
    TraceError
        Missing, directory, pipe or device, not readable, empty, cut off.
    NotAnExportError
        Another kind of file: a report, a stream file, a git-LFS pointer, not SQLite at all.
    """
    given = Path(path)
    name = given.name or str(given)
    try:
        status = given.stat()  # first: what a shell hands over, /dev/fd/63, resolves to no path
        _check_type(name, status.st_mode)
        real = given.resolve()
    except FileNotFoundError:
        raise TraceError(name, "no such file", "check the path") from None
    except PermissionError:
        raise TraceError(name, "permission denied", "make it readable") from None
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TraceError(name, f"cannot be opened ({reason})", "check the path") from None
    header = _read_header(name, real)
    _check_magic(name, header, status.st_size)
    page = int.from_bytes(header[16:18], "big")
    page = 65536 if page == 1 else page
    _check_length(name, header, page, status.st_size)
    return FileFacts(
        name=name,
        path=real,
        size_bytes=status.st_size,
        wal_format=_WAL_FORMAT in (header[18], header[19]),
        wal_bytes=_length(real.with_name(real.name + "-wal")),
    )


def snapshot(facts: FileFacts) -> tuple[FileFacts, str]:
    """Copy the file and its write-ahead log to a temporary directory, to read both without a trace.

    SQLite needs an index file beside a write-ahead log and would create it next to the input.

    Returns
    -------
    facts, directory
        The copy, and the temporary directory that the caller removes.
    """
    directory = tempfile.mkdtemp(prefix="nsysacct-")
    copy = Path(directory) / "export.sqlite"
    try:
        shutil.copyfile(facts.path, copy)
        shutil.copyfile(facts.path.with_name(facts.path.name + "-wal"), f"{copy}-wal")
    except BaseException as error:
        shutil.rmtree(directory, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        raise TraceError(
            facts.name,
            f"has a write-ahead log beside it that could not be copied ({error.strerror})",
            "free some space for temporary files"
            if error.errno == errno.ENOSPC
            else "close the program that writes to it",
        ) from None
    return (
        FileFacts(facts.name, copy.resolve(), facts.size_bytes, True, facts.wal_bytes),
        directory,
    )


def _length(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _check_type(name: str, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise NotAnExportError(
            name, "is a directory, not a file", "name the .sqlite export inside it, or " + _EXPORT
        )
    if not stat.S_ISREG(mode):
        raise NotAnExportError(
            name, "is a pipe or device", "save the export to a file: SQLite needs random access"
        )


def _read_header(name: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEADER_BYTES)
    except PermissionError:
        raise TraceError(name, "permission denied", "make it readable") from None
    except OSError as error:
        raise TraceError(name, f"cannot be read ({error.strerror})", "check the disk") from None


def _check_magic(name: str, header: bytes, size: int) -> None:
    if size == 0:
        raise NotAnExportError(name, "is empty (0 bytes)", _EXPORT_AGAIN)
    if header.startswith(_SQLITE_MAGIC):
        return
    if _REPORT_MAGIC in header:
        raise NotAnExportError(name, "is an nsys report, not its SQLite export", _EXPORT)
    if _STREAM_MAGIC in header:
        raise NotAnExportError(
            name,
            "is a raw nsys stream (.qdstrm), not an export",
            "import it with QdstrmImporter, then " + _EXPORT,
        )
    if header.startswith(_LFS_MAGIC):
        raise NotAnExportError(name, "is a git-LFS pointer, not the file", "run: git lfs pull")
    if not any(header):
        raise NotAnExportError(
            name, "starts with zeros: an export that was killed before it finished", _EXPORT_AGAIN
        )
    raise NotAnExportError(name, "is not an SQLite file", _EXPORT)


def _check_length(name: str, header: bytes, page: int, size: int) -> None:
    """Compare the length with the page count that the header states.

    The count is only valid when the change counter equals the "version valid for" number.
    """
    truncated = TraceError(name, "is cut off (truncated)", "copy it again, or " + _EXPORT_AGAIN)
    if size < 512 or len(header) < _HEADER_BYTES:
        raise truncated
    if page < 512 or page & (page - 1):
        raise TraceError(name, "has a damaged SQLite header", _EXPORT_AGAIN)
    pages = int.from_bytes(header[28:32], "big")
    stated = header[24:28] == header[92:96]
    if stated and pages * page > size and _WAL_FORMAT not in (header[18], header[19]):
        raise TraceError(
            name,
            f"is cut off (truncated): {size} of {pages * page} bytes",
            "copy it again, or " + _EXPORT_AGAIN,
        )
