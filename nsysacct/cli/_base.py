"""What commands share: safe printing, whole-or-nothing files, options."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NoReturn

import click

from nsysacct.cli._text import encodable, on_terminal, printable, wants_colour
from nsysacct.errors import UsageError

__all__ = [
    "atomic_file",
    "echo_error",
    "echo_text",
    "force_option",
    "judged_failed",
    "on_terminal",
    "output_option",
    "printable",
    "wants_colour",
    "write_output",
]

output_option = click.option(
    "-o", "--output", metavar="FILE", help="Write to FILE instead of stdout ('-')."
)
force_option = click.option("--force", is_flag=True, help="Overwrite an output file.")


def echo_text(text: str, *, newline: bool = True, colour: bool = False) -> None:
    """Print `text` on stdout, safe for any terminal, console encoding and pipe.

    Parameters
    ----------
    text : str
        May hold names from a trace; control characters are written out.
    newline : bool
        End with a new line, unless `text` has one already.
    colour : bool
        `text` holds our own colour codes: keep them. Its parts from a trace must have gone through
        `printable` before the colours were added.

    Raises
    ------
    OSError
        stdout is closed, full or gone (`BrokenPipeError`).
    """
    if sys.stdout is None:
        raise OSError("stdout is closed")
    _print(text if colour else printable(text), sys.stdout, newline)


def echo_error(text: str) -> None:
    """Print a diagnostic on stderr, made safe like `echo_text`; never fails."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            _print(printable(text), sys.stderr, newline=True)


def _print(text: str, stream: IO[str], newline: bool) -> None:
    if newline and not text.endswith("\n"):
        text += "\n"
    stream.write(encodable(text, stream))
    stream.flush()


def judged_failed() -> NoReturn:
    """End with exit code 1: judged and failed. The only way to a 1."""
    raise click.exceptions.Exit(1)


def write_output(path: str | Path | None, text: str, force: bool = False) -> None:
    """Write `text` to stdout (`path` None or ``-``) or whole-or-nothing to a file, as UTF-8.

    Raises
    ------
    UsageError
        The file exists and `force` is off.
    OSError
        It cannot be written; an earlier file is left as it was.
    """
    if path is None or str(path) == "-":
        echo_text(text)
        return
    with atomic_file(path, force=force) as temporary:
        temporary.write_bytes(text.encode("utf-8", "backslashreplace"))


@contextlib.contextmanager
def atomic_file(path: str | Path, *, force: bool = False) -> Iterator[Path]:
    """Give a temporary path beside `path` that takes its place when the block succeeds.

    The block may write it in any way (matplotlib, gzip, SQLite). It is removed when the block
    fails, so a failed or interrupted run leaves nothing behind.

    Raises
    ------
    UsageError
        `path` exists and `force` is off, or it is a folder.
    OSError
        The folder is missing, not writable or full. The error names `path`.
    """
    target = Path(path)
    refuse_existing(target, force)
    if _is_special(target):  # /dev/stdout, a FIFO, /dev/null: written as it is
        yield target
        return
    # a link stays a link: replace what it points to
    target = target.resolve()
    temporary: Path | None = None
    try:
        # the ending stays, since writers choose the format by it
        handle, name = tempfile.mkstemp(
            prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent
        )
        os.close(handle)
        temporary = Path(name)
        yield temporary
        _give_usual_mode(temporary)
        os.replace(temporary, target)
    except OSError as failure:
        about_ours = (
            failure.filename in (None, str(target.parent))
            or (temporary is not None and failure.filename == str(temporary))
            or str(failure.filename).startswith(str(target.parent / f".{target.stem}-"))
        )
        if not about_ours or failure.errno is None:
            raise
        raise OSError(failure.errno, failure.strerror, str(path)) from failure
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def refuse_existing(path: Path, force: bool) -> None:
    """Raise `UsageError` when `path` must not be written: before hours of work, not after."""
    if path.is_dir():
        raise UsageError(str(path), "is a folder", "name a file")
    if path.exists() and not force and not _is_special(path):
        raise UsageError(str(path), "exists already", "choose another name or add --force")


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _give_usual_mode(path: Path) -> None:
    """Undo mkstemp's owner-only mode: the file gets what `open` would have given it."""
    if os.name == "posix":
        mask = os.umask(0)
        os.umask(mask)
        path.chmod(0o666 & ~mask)
