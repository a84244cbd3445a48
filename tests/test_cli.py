"""The command line's core, as processes: exit codes and lines on stderr."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from boom import Boom, one_line, posix_only
from conftest import Run, process_environment

from nsysacct import __version__

# -- commands and what they load ------------------------------------------------------------------


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
