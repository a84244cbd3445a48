"""The folder of a batch: one account JSON a trace, and a journal that makes it resumable.

The journal has one line a finished trace: the source's identity (size, time of change), what the
account depends on besides (options, registry, version), and the digest of what was written. A trace
is done when all of that still holds; everything else is made again. Lines are appended, so a kill
at any moment costs at most the traces in the making.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from nsysacct.errors import NsysacctError, UsageError

JOURNAL = ".nsysacct-batch.jsonl"
_PART = ".part"
_LONGEST_STEM = 150  # file names may have 255 bytes, which these characters can take up


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One finished trace. `source` is relative to the folder, where that is possible."""

    source: str
    size_bytes: int
    mtime_ns: int
    settings: str
    output: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes a source the same as before: its size and its time of change."""

    size_bytes: int
    mtime_ns: int


def identity(source: Path) -> Identity | None:
    """Identity of a file; None when it cannot be looked at (reading it will say why)."""
    try:
        status = source.stat()
    except (OSError, ValueError):
        return None
    return Identity(status.st_size, status.st_mtime_ns)


class Store:
    """Accounts of a batch in a folder.

    Parameters
    ----------
    folder : path
        Made when it is not there.
    settings : str
        Digest of all that accounts depend on besides the traces.
    force : bool
        Overwrite accounts that no journal knows.

    Raises
    ------
    NsysacctError
        The folder cannot be made or read.
    """

    def __init__(self, folder: str | Path, settings: str, *, force: bool = False) -> None:
        self.folder = Path(folder)
        self._settings = settings
        self._force = force
        with _named(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            for leftover in self.folder.glob(f".*{_PART}"):
                leftover.unlink(missing_ok=True)
            self._entries = self._journal()

    def outputs(self, sources: Iterable[Path]) -> dict[Path, Path]:
        """File of each source's account: what it was before, else a new ``STEM.json``.

        Sources of one name in different folders get a piece of their path's digest as well.

        Raises
        ------
        UsageError
            A file of that name is there and is none of this batch's.
        """
        wanted = list(dict.fromkeys(sources))
        known = {s: e.output for s in wanted if (e := self._entries.get(self._key(s)))}
        taken = {entry.output for entry in self._entries.values()}
        stems = Counter(_stem(s) for s in wanted if s not in known)
        found: dict[Path, Path] = {}
        for source in wanted:
            name = known.get(source)
            if name is None:
                stem = _stem(source)
                name = f"{stem}.json"
                if stems[stem] > 1 or name in taken:
                    digest = hashlib.sha256(os.fsencode(source.absolute())).hexdigest()[:8]
                    name = f"{stem}-{digest}.json"
                target = self.folder / name
                if target.exists() and not self._force:
                    raise UsageError(
                        str(target),
                        "exists already and is none of this batch's",
                        "choose another folder or add --force",
                    )
            found[source] = self.folder / name
        return found

    def finished(self, source: Path) -> Path | None:
        """Account of a source that is unchanged since it was made, with the same settings."""
        entry = self._entries.get(self._key(source))
        now = identity(source)
        if entry is None or now is None or entry.settings != self._settings:
            return None
        if (entry.size_bytes, entry.mtime_ns) != (now.size_bytes, now.mtime_ns):
            return None
        target = self.folder / entry.output
        try:
            digest = hashlib.sha256(target.read_bytes()).hexdigest()
        except OSError:
            return None
        return target if digest == entry.sha256 else None

    def save(self, source: Path, before: Identity | None, target: Path, text: str) -> None:
        """Write an account, whole or not at all, then its line in the journal.

        Parameters
        ----------
        before : Identity or None
            Of the source before it was read: when it changes meanwhile, the next run notices.

        Raises
        ------
        NsysacctError
            The folder cannot be written.
        """
        data = text.encode("utf-8")
        with _named(self.folder):
            self._replace(target, data)
            if before is None:
                return
            entry = Entry(
                source=self._key(source),
                size_bytes=before.size_bytes,
                mtime_ns=before.mtime_ns,
                settings=self._settings,
                output=target.name,
                sha256=hashlib.sha256(data).hexdigest(),
            )
            with (self.folder / JOURNAL).open("ab") as journal:
                # a line of its own even after one that a kill cut off
                journal.write(b"\n" + msgspec.json.encode(entry) + b"\n")
        self._entries[entry.source] = entry

    def _replace(self, target: Path, data: bytes) -> None:
        handle, name = tempfile.mkstemp(prefix=".", suffix=_PART, dir=self.folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            if os.name == "posix":
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(name, 0o666 & ~mask)  # mkstemp gives its files to the owner only
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _journal(self) -> dict[str, Entry]:
        """Newest line of each source; a line that a kill cut off counts as not there."""
        entries: dict[str, Entry] = {}
        with contextlib.suppress(FileNotFoundError):
            for line in (self.folder / JOURNAL).read_bytes().splitlines():
                with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                    entry = msgspec.json.decode(line, type=Entry)
                    if Path(entry.output).name == entry.output:
                        entries[entry.source] = entry
        return entries

    def _key(self, source: Path) -> str:
        absolute = Path(os.path.abspath(source))
        try:
            relative = os.path.relpath(absolute, os.path.abspath(self.folder))
        except ValueError:  # another drive
            relative = str(absolute)
        return os.fsencode(relative).decode("utf-8", "backslashreplace")


def _stem(source: Path) -> str:
    stem = os.fsencode(source.stem).decode("utf-8", "replace").lstrip(".") or "trace"
    return stem[:_LONGEST_STEM] if len(stem.encode()) > _LONGEST_STEM else stem


@contextlib.contextmanager
def _named(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        what = failure.strerror or type(failure).__name__
        raise NsysacctError(str(folder), what, "name a folder that can be written") from failure
