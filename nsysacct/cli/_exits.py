"""Exit codes and the one line that explains a failure (design section 10).

0 done, 1 judged and failed (only by `click.Context.exit` in a command), 2 wrong usage, 3 no
verdict. Everything that is not one of the first three is a 3: a crash must never look like a
verdict.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable

import click

from nsysacct.cli._text import encodable, printable
from nsysacct.errors import NsysacctError
from nsysacct.extras import EXTRAS

OK, FAILED, USAGE, NO_VERDICT = 0, 1, 2, 3

_REMEDIES = {
    errno.ENOSPC: "free some space or write elsewhere",
    errno.EDQUOT: "free some space or write elsewhere",
    errno.EACCES: "check its permissions",
    errno.EPERM: "check its permissions",
    errno.EROFS: "write elsewhere",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path",
    errno.EISDIR: "name a file",
}

_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def run_guarded(action: Callable[[], object], debug: Callable[[], bool]) -> int:
    """Run `action` and turn whatever happens into an exit code and at most one line on stderr.

    Parameters
    ----------
    action : callable
        The command. Its click `Exit` is the command's own verdict and is kept.
    debug : callable
        Whether to print the traceback too; asked after the failure.

    Returns
    -------
    int
        0, 1, 2 or 3.
    """
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, _interrupt)
    try:
        action()
        code = OK
    except click.exceptions.Exit as verdict:
        code = verdict.exit_code
    except BaseException as failure:
        code = _explain(failure, debug())
    return _close_stdout(code, debug())


def _interrupt(*_: object) -> None:
    """End like Ctrl-C: temporary files are removed on the way out."""
    raise KeyboardInterrupt


def _explain(failure: BaseException, debug: bool) -> int:
    if debug and not isinstance(failure, SystemExit):
        _to_stderr(traceback.format_exc(), keep_lines=True)
    code, line = _verdict_on(failure)
    if line:
        _to_stderr(line)
    return code


def _verdict_on(failure: BaseException) -> tuple[int, str]:
    """Exit code and line for `failure`."""
    match failure:
        case click.UsageError():
            return USAGE, _usage_line(failure)
        case click.FileError():
            return NO_VERDICT, f"{failure.ui_filename}: {failure.message}; check the path"
        case click.ClickException():
            return NO_VERDICT, f"nsysacct: {failure.format_message()}"
        case NsysacctError():
            return failure.exit_code, str(failure)
        case KeyboardInterrupt() | click.Abort():
            return NO_VERDICT, "nsysacct: interrupted; no verdict"
        case MemoryError():
            return (
                NO_VERDICT,
                "nsysacct: out of memory; use a machine with more, or a shorter capture",
            )
        case ModuleNotFoundError() if (failure.name or "").split(".")[0] in EXTRAS:
            return NO_VERDICT, _extra_line(failure.name or "")
        case BrokenPipeError():
            return NO_VERDICT, ""  # the reader left; nobody wants to hear about it
        case OSError():
            return NO_VERDICT, _os_line(failure)
        case SystemExit(code=code):
            # a library's sys.exit(1) is no verdict of ours
            return (OK if code in (None, 0) else USAGE if code == USAGE else NO_VERDICT), ""
    kind, text = type(failure).__name__, str(failure)
    what = f"{kind}: {text}" if text else kind
    return NO_VERDICT, (
        f"nsysacct: internal error: {what}; run it again as 'nsysacct --debug ...' and report it"
    )


def _usage_line(failure: click.UsageError) -> str:
    path = failure.ctx.command_path if failure.ctx is not None else "nsysacct"
    if isinstance(failure, _BARE_GROUP):
        return f"{path}: Missing command; see '{path} --help'"
    return f"{path}: {failure.format_message().rstrip('. ')}; see '{path} --help'"


# click 8.2 raises this for a group without arguments, with all of --help as its message
_BARE_GROUP: type[Exception] | tuple[()] = getattr(click.exceptions, "NoArgsIsHelpError", ())


def _extra_line(module: str) -> str:
    package = module.split(".")[0]
    return f"nsysacct: {package} is not installed; pip install 'nsysacct[{EXTRAS[package]}]'"


def _os_line(failure: OSError) -> str:
    what = failure.strerror or str(failure) or type(failure).__name__
    subject = failure.filename2 or failure.filename
    if subject is None:
        # files that we write name themselves, so a nameless failed write is stdout's
        subject = "stdout" if failure.errno in _WRITE_ERRORS else "nsysacct"
    if isinstance(subject, bytes):
        subject = os.fsdecode(subject)
    remedy = _REMEDIES.get(failure.errno or 0, "check the path and the disk")
    return f"{subject}: {what}; {remedy}"


def _close_stdout(code: int, debug: bool) -> int:
    """Write out stdout now, while a failure can still change the exit code."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except (OSError, ValueError) as failure:
        gone = isinstance(failure, ValueError) or failure.errno in _READER_LEFT
        # a failure that was already explained must not be explained twice
        if code in (OK, FAILED) and not gone:
            _explain(failure, debug)
        _discard_stdout()
        return code if code == USAGE else NO_VERDICT


# Windows reports a closed pipe as EINVAL
_READER_LEFT = {errno.EPIPE, errno.EINVAL} if os.name == "nt" else {errno.EPIPE}


def _discard_stdout() -> None:
    """Send what is left in the buffer nowhere: the interpreter flushes again when it ends."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # no real file behind stdout
        pass


def _to_stderr(text: str, *, keep_lines: bool = False) -> None:
    stream = sys.stderr
    if stream is None:
        return
    text = printable(text, one_line=not keep_lines).rstrip("\n")
    try:
        stream.write(encodable(text, stream) + "\n")
        stream.flush()
    except (OSError, ValueError):
        pass  # there is nowhere left to say it
