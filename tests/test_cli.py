"""The command line's core, as processes: exit codes, lines on stderr, files, printing."""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from conftest import ROOT, Done, Run, process_environment

from nsysacct import __version__
from nsysacct.cli import TOPICS
from nsysacct.cli._base import Progress, atomic_file, printable, write_output
from nsysacct.cli._progress import progress_line
from nsysacct.errors import UsageError

posix_only = pytest.mark.skipif(os.name != "posix", reason="about file descriptors and signals")

MODULES = sorted(
    path.stem for path in (ROOT / "nsysacct" / "cli").glob("*.py") if not path.stem.startswith("_")
)

# a command of the test's own, found and run in the way all commands are
DRIVER = """
import sys
import nsysacct.cli as cli
cli.__path__.append(sys.argv.pop(1))
cli.TOPICS["boom"] = "test"
cli.main()
"""

COMMAND = """
import os, sys, time
import click
from nsysacct.cli._base import *
from nsysacct.errors import *

@click.command("boom")
@click.pass_context
def command(ctx):
{body}
"""


class Boom:
    """Runs ``nsysacct boom`` with a given body as a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "commands").mkdir()

    def write(self, body: str) -> list[str]:
        text = COMMAND.format(body=textwrap.indent(textwrap.dedent(body), "    "))
        (self.folder / "commands" / "boom.py").write_text(text)
        return [sys.executable, "-c", DRIVER, str(self.folder / "commands")]

    def env(self, **changes: str | None) -> dict[str, str]:
        return process_environment(self.folder, **changes)

    def __call__(self, body: str, *args: str, **env: str | None) -> Done:
        return subprocess.run(
            [*self.write(body), *(args or ("boom",))],
            cwd=self.folder,
            env=self.env(**env),
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )


@pytest.fixture
def boom(tmp_path: Path) -> Boom:
    return Boom(tmp_path)


def one_line(done: Done) -> str:
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.rstrip("\n")


# -- commands and what they load ------------------------------------------------------------------


def test_help_lists_the_commands_that_exist_and_no_other(run_cli: Run) -> None:
    done = run_cli("--help")
    listed = re.findall(r"^  ([a-z]+) {2,}[A-Z]", done.stdout, re.M)
    assert sorted(listed) == MODULES
    assert set(MODULES) <= set(TOPICS)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize("name", MODULES)
def test_every_command_has_help(name: str, run_cli: Run) -> None:
    command = importlib.import_module(f"nsysacct.cli.{name}").command
    assert isinstance(command, click.Command) and command.name == name
    done = run_cli(name, "--help")
    assert done.returncode == 0 and done.stdout.startswith(f"Usage: nsysacct {name}")
    assert max(map(len, done.stdout.splitlines())) <= 80


def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(inner, (*path, name))
    else:
        yield path


LEAVES = [
    path
    for name in MODULES
    for path in leaves(importlib.import_module(f"nsysacct.cli.{name}").command, (name,))
]


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help_is_a_page_of_a_manual(path: tuple[str, ...], run_cli: Run) -> None:
    text = run_cli(*path, "--help").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"\nExit codes: 0 .*; 2 wrong usage; 3 .*\.\n$", text)
    assert path[0] == "cache" or f"    nsysacct {' '.join(path)}" in text, "no example"
    # names of types say less than a word for the value; ends of 64 bits say nothing
    assert not re.search(
        r"INTEGER|FLOAT|TEXT(?!$)|None\]|10000000|1e-06", text.partition("Options:")[2]
    )


@pytest.mark.parametrize("name", ["cache", "history", "registry"])
def test_groups_list_their_commands_uncut(name: str, run_cli: Run) -> None:
    listed = run_cli(name, "--help").stdout.partition("Commands:")[2]
    assert "..." not in listed
    assert len(re.findall(r"^  [a-z]+ ", listed, re.M)) >= 3


def test_options_on_splitting_stand_apart(run_cli: Run) -> None:
    for path, own in (
        (("explain",), "--weight-bytes"),
        (("whatif",), "--n-ok"),
        (("gate",), "--base"),
    ):
        before, title, after = run_cli(*path, "--help").stdout.partition("How a trace is split:")
        assert title and f"  {own} " in before
        assert "  --layers " in after and "  --layers " not in before


def test_version(run_cli: Run) -> None:
    done = run_cli("--version")
    assert (done.returncode, done.stdout) == (0, f"nsysacct {__version__}\n")


@pytest.mark.parametrize(
    "code",
    [
        "import nsysacct",
        "from nsysacct.cli import cli; cli.main(['--help'])",
        "from nsysacct.cli import cli; cli.main(['--version'])",
        "from nsysacct.cli import cli; cli.main(['cache', '--help'])",
    ],
)
def test_start_loads_nothing_heavy(code: str, tmp_path: Path) -> None:
    at_exit = "lambda: json.dump(sorted(sys.modules), sys.stderr)"
    report = f"import atexit, json, sys; atexit.register({at_exit})\n"
    done = subprocess.run(
        [sys.executable, "-c", report + code],
        env=process_environment(tmp_path),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stderr)}
    heavy = {"numpy", "pandas", "pyarrow", "adbc_driver_sqlite", "matplotlib", "msgspec", "sqlite3"}
    heavy |= {"rich", "jinja2", "dask", "distributed", "sqlite_utils"}
    assert not loaded & heavy


# -- exit codes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ([], "nsysacct: Missing command; see 'nsysacct --help'"),
        (["splitt"], "nsysacct: No such command 'splitt' (did you mean 'split'?); see 'nsysacct "),
        (["xyz"], "nsysacct: No such command 'xyz'; see 'nsysacct --help'"),
        (["--wrong"], "nsysacct: No such option"),
        (["cache"], "nsysacct cache: Missing command; see 'nsysacct cache --help'"),
        (["cache", "list", "x"], "nsysacct cache list: Got unexpected extra argument"),
        (["completion", "tcsh"], "nsysacct completion: Invalid value for "),
    ],
)
def test_wrong_usage_is_2(args: list[str], line: str, run_cli: Run) -> None:
    done = run_cli(*args)
    assert done.returncode == 2 and done.stdout == ""
    assert one_line(done).startswith(line)


def test_wrong_variable_is_2(run_cli: Run) -> None:
    done = run_cli("cache", "path", env={"NSYSACCT_DEBUG": "perhaps"})
    assert done.returncode == 2 and "NSYSACCT_DEBUG" in one_line(done)


@pytest.mark.parametrize(
    ("body", "code", "line"),
    [
        ("raise UsageError('--k', 'is 0', 'give 1 or more')", 2, "--k: is 0; give 1 or more"),
        ("raise PatternError('a<', 3, 'no end', 'close it')", 2, "pattern 'a<': column 3: no end"),
        (
            "raise TraceError('a.sqlite', 'is empty', 'export again')",
            3,
            "a.sqlite: is empty; export",
        ),
        ("raise click.FileError('a.txt', 'gone')", 3, "a.txt: gone; check the path"),
        ("raise click.ClickException('odd')", 3, "nsysacct: odd"),
        (
            "raise click.UsageError('two\\nlines.')",
            2,
            "nsysacct boom: two lines; see 'nsysacct boom --help'",
        ),
        ("open('missing.txt')", 3, "missing.txt: No such file or directory; check the path"),
        ("os.mkdir(os.curdir)", 3, ".: File exists; "),
        ("raise KeyboardInterrupt", 3, "nsysacct: interrupted; no verdict"),
        ("raise click.Abort", 3, "nsysacct: interrupted; no verdict"),
        ("raise MemoryError", 3, "nsysacct: out of memory; "),
        (
            "import matplotlib_missing",
            3,
            "nsysacct: internal error: ModuleNotFoundError: No module",
        ),
        (
            "raise ModuleNotFoundError('no', name='matplotlib.pyplot')",
            3,
            "nsysacct: matplotlib is not installed; pip install 'nsysacct[plot]'",
        ),
        (
            "[][1]",
            3,
            "nsysacct: internal error: IndexError: list index out of range; run it again as "
            "'nsysacct --debug ...' and report it",
        ),
        ("assert False", 3, "nsysacct: internal error: AssertionError; run it again"),
        ("(lambda f: f(f))(lambda f: f(f))", 3, "nsysacct: internal error: RecursionError: "),
        ("raise TraceError('evil\\x1b[2J\\n.sqlite', 'no', 'x')", 3, "evil\\x1b[2J .sqlite: no; x"),
        ("raise EOFError('cut')", 3, "nsysacct: internal error: EOFError: cut;"),
        (
            "raise BaseExceptionGroup('many', [GeneratorExit()])",
            3,
            "nsysacct: internal error: Base",
        ),
    ],
)
def test_failures(body: str, code: int, line: str, boom: Boom) -> None:
    done = boom(body)
    assert done.returncode == code
    assert one_line(done).startswith(line)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("pass", 0),
        ("return 1", 0),
        ("ctx.exit(0)", 0),
        ("ctx.exit(1)", 1),
        ("judged_failed()", 1),
        ("sys.exit()", 0),
        ("sys.exit(0)", 0),
        ("sys.exit(1)", 3),  # a library that gives up has judged nothing
        ("sys.exit(2)", 2),
        ("sys.exit('text')", 3),
        ("sys.exit(77)", 3),
    ],
)
def test_only_a_verdict_is_1(body: str, code: int, boom: Boom) -> None:
    done = boom(body)
    assert (done.returncode, done.stderr) == (code, "")


def test_a_broken_command_module_is_3(boom: Boom) -> None:
    arguments = boom.write("pass")
    (boom.folder / "commands" / "boom.py").write_text("1 / 0")
    done = subprocess.run([*arguments, "boom"], capture_output=True, encoding="utf-8")
    assert done.returncode == 3 and "ZeroDivisionError" in one_line(done)


@pytest.mark.parametrize("how", ["option", "variable"])
def test_debug_adds_the_traceback(how: str, boom: Boom) -> None:
    if how == "option":
        done = boom("[][1]", "--debug", "boom")
    else:
        done = boom("[][1]", NSYSACCT_DEBUG="1")
    assert done.returncode == 3
    assert done.stderr.startswith("Traceback (most recent call last)")
    assert done.stderr.splitlines()[-1].startswith("nsysacct: internal error: IndexError")


@posix_only
def test_ctrl_c_is_3(boom: Boom) -> None:
    body = """
    with atomic_file("out.txt") as out:
        out.write_text("half")
        print("ready", flush=True)
        time.sleep(50)
    """
    arguments = [*boom.write(body), "boom"]
    with subprocess.Popen(
        arguments,
        cwd=boom.folder,
        env=boom.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
    assert process.returncode == 3
    assert stderr == "nsysacct: interrupted; no verdict\n"
    assert [path.name for path in boom.folder.iterdir()] == ["commands"]


# -- stdout that does not take it -----------------------------------------------------------------

PRINTERS = {
    "echo_text": "for _ in range(9999): echo_text('x' * 99)",
    "click": "for _ in range(9999): click.echo('x' * 99)",
    "print": "for _ in range(9999): print('x' * 99)",
    "one small print": "print('x')",
    "print and verdict": "print('x'); ctx.exit(1)",
}


@posix_only
@pytest.mark.parametrize("unbuffered", [None, "1"])
@pytest.mark.parametrize("printer", PRINTERS)
def test_full_disk_behind_stdout_is_3(printer: str, unbuffered: str | None, boom: Boom) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*boom.write(PRINTERS[printer]), "boom"],
            env=boom.env(PYTHONUNBUFFERED=unbuffered),
            stdout=full,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
    assert done.returncode == 3
    assert one_line(done) == "stdout: No space left on device; free some space or write elsewhere"


@posix_only
@pytest.mark.parametrize("printer", ["echo_text", "click", "print"])
def test_reader_that_left_is_3_and_quiet(printer: str, boom: Boom) -> None:
    body = f"sys.stdin.read()\n{PRINTERS[printer]}"
    with subprocess.Popen(
        [*boom.write(body), "boom"],
        env=boom.env(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.close()  # as head does, before the command prints
        process.stdin.close()
        stderr = process.stderr.read()
        process.wait(timeout=20)
    assert (process.returncode, stderr) == (3, "")


@posix_only
def test_head_0(boom: Boom) -> None:
    arguments = [*boom.write(PRINTERS["echo_text"]), "boom"]
    done = subprocess.run(
        ["bash", "-c", '"$@" | head -n 0; exit "${PIPESTATUS[0]}"', "bash", *arguments],
        env=boom.env(),
        capture_output=True,
        encoding="utf-8",
    )
    assert (done.returncode, done.stderr) == (3, "")


@posix_only
def test_closed_stdout_and_stderr(boom: Boom) -> None:
    arguments = [*boom.write("echo_text('x')"), "boom"]
    for closed, stderr in [
        (">&-", "stdout: is closed; check the path and the disk\n"),
        (">&- 2>&-", ""),
    ]:
        done = subprocess.run(
            ["bash", "-c", f'"$@" {closed}', "bash", *arguments],
            env=boom.env(),
            capture_output=True,
            encoding="utf-8",
        )
        assert (done.returncode, done.stderr) == (3, stderr)


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


# -- completion -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, run_cli: Run) -> None:
    done = run_cli("completion", shell)
    assert done.returncode == 0 and "_NSYSACCT_COMPLETE" in done.stdout


def test_completion_offers_commands_and_options(run_cli: Run) -> None:
    def complete(words: str, index: int) -> list[str]:
        env = {"COMP_WORDS": words, "COMP_CWORD": str(index), "_NSYSACCT_COMPLETE": "bash_complete"}
        return [line.partition(",")[2] for line in run_cli(env=env).stdout.split()]

    assert complete("nsysacct ", 1) == [name for name in TOPICS if name in MODULES]
    assert complete("nsysacct ca", 1) == ["cache"]
    assert complete("nsysacct --v", 1) == ["--version"]
    assert complete("nsysacct cache cl", 2) == ["clear"]
    assert complete("nsysacct plot ti", 2) == ["timeline"]
    assert complete("nsysacct explain --format m", 3) == ["markdown"]


@pytest.mark.parametrize(
    "words",
    ["split s", "explain s", "compare a.json s", "whatif --plain-from s", "gate --base s",
     "history add s", "batch -o s", "split --log s", "split --registry s", "plot split s"],
)  # fmt: skip
def test_completion_offers_files_where_files_go(words: str, run_cli: Run) -> None:
    line = f"nsysacct {words}"
    env = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    assert run_cli(env=env | {"_NSYSACCT_COMPLETE": "bash_complete"}).stdout == "file,s\n"


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_completion_in_bash(tmp_path: Path) -> None:
    """What the script registers is asked, as bash would ask it."""
    script = """
        nsysacct() { "$PYTHON" -m nsysacct "$@"; }
        compopt() { :; }
        eval "$(nsysacct completion bash)"
        completer=$(complete -p nsysacct | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        COMP_WORDS=(nsysacct hist tr) COMP_CWORD=1
        $completer "$PROGRAM"; echo "${COMPREPLY[*]}"
        COMPREPLY=() COMP_WORDS=(nsysacct history tr) COMP_CWORD=2
        $completer "$PROGRAM"; echo "${COMPREPLY[*]}"
    """
    program = tmp_path / "nsysacct"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nsysacct "$@"\n')
    program.chmod(0o755)
    env = process_environment(tmp_path, PYTHON=sys.executable, PROGRAM=str(program))
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, encoding="utf-8")
    assert (done.stdout, done.stderr) == ("history\ntrend\n", "")
