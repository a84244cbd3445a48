"""What reaches consoles, pipes and files: safe characters, whole files, progress."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from boom import Boom, one_line, posix_only
from conftest import process_environment

from nsysacct.cli._base import Progress, atomic_file, printable, write_output
from nsysacct.cli._progress import progress_line
from nsysacct.errors import UsageError

# -- safe printing --------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_any_text_prints_on_any_console(encoding: str, boom: Boom) -> None:
    body = r"echo_text('k\u0394<\u4e2d> \x1b[2J\x07\x9b \ud800 \u202e\u2028 a\tb')"
    done = boom(body, PYTHONIOENCODING=encoding, PYTHONUTF8=None)
    assert (done.returncode, done.stderr) == (0, "")
    k = "kΔ<中>" if encoding == "utf-8" else "k?<?>"
    assert done.stdout == rf"{k} \x1b[2J\x07\x9b \ud800 \u202e\u2028 a" + "\tb\n"


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("ascii", "a -> b, ~ +-"), ("cp1252", "a -> b, \u2026 \u00b1"), ("cp437", "a -> b, ~ \u00b1")],
)
def test_our_own_signs_stay_readable_on_any_console(encoding: str, said: str, boom: Boom) -> None:
    arguments = [*boom.write("echo_text('a \u2192 b, \u2026 \u00b1')"), "boom"]
    env = boom.env(PYTHONIOENCODING=encoding, PYTHONUTF8=None)
    done = subprocess.run(arguments, env=env, capture_output=True, check=True)
    assert done.stdout.decode(encoding) == f"{said}\n"


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-16", "utf-8"])
def test_data_in_a_pipe_is_utf_8(encoding: str, tmp_path: Path, boom: Boom) -> None:
    """A console's encoding must not reach JSON that is sent into a file: its reader wants UTF-8."""
    arguments = [*boom.write('echo_text(\'{"a": "d\u00e9j\u00e0 \u4e2d"}\', data=True)'), "boom"]
    env = boom.env(PYTHONIOENCODING=encoding, PYTHONUTF8=None)
    done = subprocess.run(arguments, env=env, capture_output=True, check=True)
    assert done.stdout.decode("utf-8") == '{"a": "d\u00e9j\u00e0 \u4e2d"}\n'
    assert json.loads(done.stdout) == {"a": "d\u00e9j\u00e0 \u4e2d"}


def test_printable_leaves_no_control_character() -> None:
    everything = "".join(map(chr, range(0x3000)))
    assert all(c.isprintable() or c in "\n\t\xa0" for c in printable(everything))
    assert printable("void k<3>(float*)\n\ta", one_line=True) == "void k<3>(float*) a"


def on_pty(arguments: list[str], env: dict[str, str]) -> str:
    import pty

    ours, theirs = pty.openpty()
    process = subprocess.Popen(arguments, env=env, stdout=theirs, stderr=theirs)
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 4096):
            output += chunk
    except OSError:  # how Linux says that the other side is closed
        pass
    os.close(ours)
    process.wait(timeout=20)
    return output.decode()


@posix_only
def test_colour_only_on_a_terminal(boom: Boom) -> None:
    body = r"echo_text(terminal_style()('fine', 'good') + ' \x1b[31mk\x1b[8m')"
    arguments = [*boom.write(body), "boom"]
    coloured = on_pty(arguments, boom.env(TERM="xterm"))
    assert coloured.startswith("\x1b[32mfine\x1b[0m") and "\x1b[8m" not in coloured
    assert "\x1b" not in on_pty(arguments, boom.env(TERM="xterm", NO_COLOR="1"))
    assert "\x1b" not in on_pty(arguments, boom.env(TERM="dumb"))
    assert boom(body, TERM="xterm").stdout == "fine \\x1b[31mk\\x1b[8m\n"


# -- files ----------------------------------------------------------------------------------------


def test_write_output_is_whole_or_nothing(tmp_path: Path) -> None:
    target = tmp_path / "ä b.txt"
    write_output(target, "one\n")
    assert target.read_bytes() == b"one\n"
    with pytest.raises(UsageError, match="exists already; choose another name or add --force"):
        write_output(target, "two\n")
    write_output(target, "zwö\n", force=True)
    assert target.read_bytes() == "zwö\n".encode()
    with pytest.raises(RuntimeError), atomic_file(target, force=True) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_bytes() == "zwö\n".encode()
    assert list(tmp_path.iterdir()) == [target]


@posix_only
def test_write_output_keeps_links_and_the_usual_mode(tmp_path: Path) -> None:
    real = tmp_path / "real.txt"
    real.write_text("old")
    link = tmp_path / "link.txt"
    link.symlink_to(real)
    write_output(link, "new", force=True)
    assert link.is_symlink() and real.read_text() == "new"
    (tmp_path / "plain").write_text("")
    assert stat.S_IMODE(real.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


@pytest.mark.parametrize("make", [lambda p: p.mkdir(), lambda p: None], ids=["folder", "no folder"])
def test_write_output_names_what_it_cannot_write(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    target = tmp_path / "x"
    make(target)
    if target.is_dir():
        with pytest.raises(UsageError, match="x: is a folder; name a file"):
            write_output(target, "text", force=True)
    else:
        with pytest.raises(FileNotFoundError) as caught:
            write_output(target / "out.txt", "text")
        assert caught.value.filename == str(target / "out.txt")


@posix_only
def test_special_files_are_written_as_they_are(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        write_output(pipe, "through\n")
        assert reader.communicate(timeout=20)[0] == b"through\n"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@posix_only
def test_full_disk_leaves_nothing_and_names_the_file(boom: Boom) -> None:
    body = """
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    write_output("out.txt", "x" * 100_000)
    """
    done = boom(body, PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 3
    assert one_line(done) == "out.txt: File too large; check the path and the disk"
    assert [path.name for path in boom.folder.iterdir()] == ["commands"]


def test_a_copy_that_fails_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    """`shutil.copyfile` names its source first and the temporary file second."""
    with pytest.raises(OSError) as caught, atomic_file(tmp_path / "out.sqlite") as temporary:
        raise OSError(errno.ENOSPC, "in other words", "in.sqlite", None, str(temporary))
    failure = caught.value
    assert (failure.filename, failure.filename2) == (str(tmp_path / "out.sqlite"), None)
    assert failure.strerror == os.strerror(errno.ENOSPC)


FILLS = {
    "annotate": "annotate small_graph.sqlite -o out.sqlite",
    "perfetto": "export small_graph.sqlite --perfetto out.json",
    "parquet": "export small_graph.sqlite --parquet out",
    "plot": "plot split small_graph.sqlite -o out.png",
    "report": "report small_graph.sqlite -o out.html",
    "split": "split small_graph.sqlite --format json -o out.json",
    "demo": "demo --save out.sqlite",
}


@posix_only
@pytest.mark.parametrize("kept_bytes", [1_500, 490_000])
@pytest.mark.parametrize("command", FILLS.values(), ids=FILLS)
def test_a_file_that_grows_too_large_leaves_nothing(
    command: str, kept_bytes: int, tmp_path: Path, trace_file: Callable[[str], Path]
) -> None:
    (tmp_path / "small_graph.sqlite").symlink_to(trace_file("small_graph"))
    limited = (
        "import resource, signal; from nsysacct.cli import main;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({kept_bytes}, {kept_bytes})); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, *command.split()],
        cwd=tmp_path,
        env=process_environment(tmp_path, PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    left = {path.name for path in tmp_path.iterdir()} - {"small_graph.sqlite"}
    if done.returncode == 0:  # it is smaller than that
        assert kept_bytes > 1_500 and len(left) == 1
        return
    assert done.returncode == 3 and left == set()
    assert "Traceback" not in done.stderr
    said = done.stderr.splitlines()[-1]  # above it matplotlib may say that it keeps no fonts
    assert re.match(r"out[.\w/]*: (?:File too large|Input/output error)", said), done.stderr


def test_an_unreadable_input_is_not_blamed_on_the_output(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, atomic_file(tmp_path / "out.txt"):
        (tmp_path / "in.txt").read_text()
    assert caught.value.filename == str(tmp_path / "in.txt")


# -- progress -------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_never_wraps() -> None:
    stream = Terminal()
    with Progress("r" * 200, 1000, stream=stream, clock=iter(range(100)).__next__) as progress:
        for done in (100, 200):
            progress(done)
    lines = stream.getvalue().split("\r")
    assert max(map(len, lines)) == 79 and any("r" * 79 in line for line in lines)


def run_progress(stream: io.StringIO, seconds: list[float]) -> str:
    now = 0.0
    with Progress("reading", 1000, stream=stream, clock=lambda: now) as progress:
        for index, now in enumerate(seconds, 1):  # noqa: B007 - the clock reads it
            progress(100 * index)
    return stream.getvalue()


def test_progress_shows_after_a_second_on_a_terminal() -> None:
    assert run_progress(Terminal(), [0.2, 0.9]) == ""
    assert run_progress(io.StringIO(), [0.5, 1.5, 2.5]) == ""
    shown = run_progress(Terminal(), [0.5, 1.5, 1.55, 2.0])
    lines = [line.strip() for line in shown.split("\r") if line.strip()]
    assert lines == [
        "reading: 20 %, 200 rows, 133 rows/s, 6 s left",
        "reading: 40 %, 400 rows, 200 rows/s, 3 s left",
    ]
    assert shown.endswith("\r")  # wiped


@pytest.mark.parametrize(
    ("done", "total", "seconds", "line"),
    [
        (500, None, 2.0, "x: 500 rows, 250 rows/s"),
        (9_200_000, 9_200_000, 2.0, "x: 100 %, 9.2 M rows, 4.6 M rows/s, 0 s left"),
        (1, 200, 2.0, "x: 0 %, 1 rows, 0.5 rows/s, 6 min 38 s left"),
        (1, 10_000, 2.0, "x: 0 %, 1 rows, 0.5 rows/s, 5 h 33 min left"),
        (0, 10, 2.0, "x: 0 %, 0 rows, 0 rows/s"),
    ],
)
def test_progress_line(done: int, total: int | None, seconds: float, line: str) -> None:
    assert progress_line("x", done, total, "rows", seconds) == line
