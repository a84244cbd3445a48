"""What commands share: safe printing, whole-or-nothing files, options."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NoReturn

import click

from nsysacct.cli._progress import Progress
from nsysacct.cli._text import encodable, on_terminal, printable, wants_colour
from nsysacct.errors import UsageError

__all__ = [
    "FILE",
    "Progress",
    "atomic_file",
    "echo_error",
    "echo_text",
    "force_option",
    "judged_failed",
    "on_terminal",
    "output_option",
    "printable",
    "refuse_existing",
    "terminal_style",
    "terminal_width",
    "wants_colour",
    "write_output",
]

Style = Callable[[str, str], str]

FILE = click.Path(readable=False)
"""A path to read or write: shells complete it, and what is wrong with it the reader says (exit 3)."""

output_option = click.option(
    "-o", "--output", metavar="FILE", type=FILE, help="Write to FILE instead of stdout ('-')."
)
force_option = click.option("--force", is_flag=True, help="Overwrite an output file.")


def echo_text(text: str, *, newline: bool = True, data: bool = False) -> None:
    """Print `text` on stdout, safe for any terminal, console encoding and pipe.

    Parameters
    ----------
    text : str
        May hold names from a trace: control characters are written out. The colours of
        `terminal_style` are kept where colours are wanted.
    newline : bool
        End with a new line, unless `text` has one already.
    data : bool
        For machines (JSON, CSV, ...): UTF-8 and bare line ends in a pipe or file, as programs that
        read it expect, whatever the encoding of the console is.

    Raises
    ------
    OSError
        stdout is closed, full or gone (`BrokenPipeError`).
    """
    if sys.stdout is None:
        raise OSError(errno.EBADF, "is closed", "stdout")
    text = printable(text, keep_colours=wants_colour(sys.stdout))
    buffer = getattr(sys.stdout, "buffer", None)
    if data and buffer is not None and not on_terminal(sys.stdout):
        sys.stdout.flush()
        ending = "" if text.endswith("\n") or not newline else "\n"
        buffer.write((text + ending).encode("utf-8", "backslashreplace"))
        buffer.flush()
        return
    _print(text, sys.stdout, newline)


def terminal_style(stream: IO[str] | None = None) -> Style:
    """`ansi` where colours are wanted, `plain` elsewhere."""
    from nsysacct.layout import ansi, plain

    return ansi if wants_colour(stream) else plain


def terminal_width() -> int:
    """Columns to wrap text at: COLUMNS, else the terminal's, 40 to 120; 80 in files and pipes."""
    context = click.get_current_context(silent=True)
    output = context.params.get("output") if context is not None else None
    if output not in (None, "-") and not os.environ.get("COLUMNS"):
        return 80
    return min(max(shutil.get_terminal_size((80, 24)).columns, 40), 120)


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


def write_output(
    path: str | Path | None, text: str, force: bool = False, *, data: bool = False
) -> None:
    """Write `text` to stdout (`path` None or ``-``) or whole-or-nothing to a file, as UTF-8.

    `data`: as for `echo_text`.

    Raises
    ------
    UsageError
        The file exists and `force` is off.
    OSError
        It cannot be written; an earlier file is left as it was.
    """
    if path is None or str(path) == "-":
        echo_text(text, data=data)
        return
    with atomic_file(path, force=force) as temporary:
        # what a file holds is looked at in terminals as well
        temporary.write_bytes(printable(text).encode("utf-8", "backslashreplace"))


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
            prefix=_temporary_prefix(target), suffix=target.suffix, dir=target.parent
        )
        os.close(handle)
        temporary = Path(name)
        yield temporary
        _give_usual_mode(temporary)
        os.replace(temporary, target)
    except OSError as failure:
        if failure.errno is None or not _is_ours(failure, target):
            raise
        # libraries put their own words around the system's
        raise OSError(failure.errno, os.strerror(failure.errno), str(path)) from failure
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _is_ours(failure: OSError, target: Path) -> bool:
    """Whether `failure` is about writing `target` and not about some input of the block."""
    if failure.filename is None:
        return not isinstance(failure, ConnectionError)
    # a copy that fails names its source first
    named = failure.filename2 or failure.filename
    return Path(os.fsdecode(named)).name.startswith(_temporary_prefix(target))


def _temporary_prefix(target: Path) -> str:
    return f".{target.stem}-"


def refuse_existing(path: Path, force: bool) -> None:
    """Raise `UsageError` when `path` must not be written: before hours of work, not after."""
    if path.is_dir():
        raise UsageError(str(path), "is a folder", "name a file")
    if path.exists() and not _is_special(path):
        if not force:
            raise UsageError(str(path), "exists already", "choose another name or add --force")
        if _is_input(path):
            raise UsageError(str(path), "is an input of this command", "choose another name")


_OUTPUTS = {"output", "perfetto", "parquet", "save", "plot"}
"""Parameters that name what a command writes; any other may name what it reads."""


def _is_input(path: Path) -> bool:
    """Whether the running command reads `path`, under any name: --force must not destroy it."""
    context = click.get_current_context(silent=True)
    for name, value in context.params.items() if context is not None else ():
        for word in value if isinstance(value, tuple) else (value,):
            # what is no path, a number or a long text, is no file either
            with contextlib.suppress(OSError, ValueError):
                if name not in _OUTPUTS and isinstance(word, str) and path.samefile(word):
                    return True
    return False


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _give_usual_mode(path: Path) -> None:
    """Undo mkstemp's owner-only mode: the file gets what `open` would have given it."""
    if os.name == "posix":
        mask = os.umask(0)
        os.umask(mask)
        path.chmod(0o666 & ~mask)
