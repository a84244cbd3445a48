"""Every command and output in README and docs is run and compared; every link leads somewhere."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median

import click
import pytest
from conftest import ROOT, TRACES, process_environment
from docrun import SETUP, Block, Command, Session, blocks, commands, matches, rewritten

from nsysacct.cli import SECTIONS, cli
from nsysacct.config import find_project

REFERENCE = ROOT / "docs" / "cli.md"
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
# what the reference shows is made and compared as a whole, below
RUN = [path for path in DOCUMENTS if path != REFERENCE]


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=named)
each_run_document = pytest.mark.parametrize("document", RUN, ids=named)

TRACE_NAME = re.compile(r"\b([\w-]+)\.sqlite\b")


@pytest.fixture
def session(tmp_path: Path) -> Session:
    folder = tmp_path / "doc"
    folder.mkdir()
    return Session(folder, process_environment(tmp_path, NO_COLOR="1"))


def place_traces(text: str, folder: Path, trace_file: Callable[[str], Path]) -> None:
    shipped = {path.name.removesuffix(".sqlite.xz") for path in TRACES.glob("*.sqlite.xz")}
    for name in sorted(set(TRACE_NAME.findall(text)) & shipped):
        (folder / f"{name}.sqlite").symlink_to(trace_file(name))


@each_run_document
def test_commands_print_what_the_document_shows(
    document: Path,
    session: Session,
    trace_file: Callable[[str], Path],
    request: pytest.FixtureRequest,
) -> None:
    text = document.read_text("utf-8")
    place_traces(text, session.folder, trace_file)
    for setup in SETUP.findall(text):
        said = session.run(setup)
        assert session.code == 0, "\n".join(said)
    wrong: list[tuple[Command, list[str]]] = []
    for block in blocks(text):
        if block.language == "console" and block.run:
            for command in commands(block):
                actual = session.run(command.text)
                if not matches(trimmed(command.output), actual):
                    wrong.append((command, actual))
    if wrong and request.config.getoption("--update-docs"):
        document.write_text(rewritten(text, wrong), "utf-8")
        pytest.skip(f"{document.name} was rewritten")
    for command, actual in wrong:
        assert trimmed(command.output) == actual, f"{document.name}:{command.line}: {command.text}"


def trimmed(lines: list[str]) -> list[str]:
    """`lines` without empty ones at the end."""
    return "\n".join(lines).rstrip("\n").splitlines()


@each_document
def test_python_blocks_run(
    document: Path, session: Session, trace_file: Callable[[str], Path], tmp_path: Path
) -> None:
    text = document.read_text("utf-8")
    script = "\n".join(
        "\n".join(block.lines) for block in blocks(text) if block.language == "python" and block.run
    )
    if not script:
        return
    place_traces(text, session.folder, trace_file)
    for setup in SETUP.findall(text):
        session.run(setup)
    path = tmp_path / f"{document.stem}_blocks.py"
    path.write_text(script, "utf-8")
    env = session.env | {"MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, path], cwd=session.folder, env=env, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr


def capture_lines(text: str) -> list[str]:
    """Command lines with ``nsys profile``, joined where a backslash breaks them."""
    return [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if "nsys profile -" in line]


def test_captures_are_shown_with_the_options_that_a_split_needs() -> None:
    """And for the gate in graph granularity: the two sides must be captured alike."""
    gate = [ROOT / "docs" / "gate.md", *(ROOT / "docs" / "examples").glob("git*.yml")]
    shown = {path: capture_lines(path.read_text("utf-8")) for path in {*DOCUMENTS, *gate}}
    assert sum(map(len, shown.values())) >= 10 and all(shown[path] for path in gate)
    for path, lines in shown.items():
        for line in lines:
            assert "-t cuda,nvtx -s none --cpuctxsw=none" in line, f"{path.name}: {line}"
            assert path not in gate or "--cuda-graph-trace=graph" in line, f"{path.name}: {line}"


def test_what_node_granularity_costs(trace_file: Callable[[str], Path]) -> None:
    """The table of docs/capture.md, on the shipped pair of captures of one run."""
    launch = (
        "select end - start from CUPTI_ACTIVITY_KIND_RUNTIME call join StringIds name "
        "on name.id = call.nameId where value like 'cudaGraphLaunch%'"
    )
    rows, calls = [], []
    for name in ("small_nvtx", "small_node_nvtx"):
        with closing(sqlite3.connect(trace_file(name))) as export:
            rows += export.execute("select count(*) from CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
            calls.append(median(ns for (ns,) in export.execute(launch)))
    assert 3 <= rows[1] / rows[0] <= 4
    assert 1.5 <= calls[1] / calls[0] < 9.5


def test_the_project_file_of_the_page_is_read(tmp_path: Path) -> None:
    (shown,) = (
        b
        for b in blocks((ROOT / "docs" / "registry.md").read_text("utf-8"))
        if b.language == "toml"
    )
    (tmp_path / "nsysacct.toml").write_text("\n".join(shown.lines), "utf-8")
    (tmp_path / "kernels").mkdir()
    project = find_project(tmp_path)
    assert (project.engine, project.k, dict(project.layers)) == ("mine", 3, {"all": 64, "gdn": 48})
    assert [Path(path).name for path in project.registry] == ["kernels"]
    assert dict(project.labels) == {"model": "demo-27b"}
    assert project.gate.confidence == 0.95
    assert [limit.metric.name for limit in project.gate.limits] == ["verify.ns_per_round"]


# -- the reference of commands ---------------------------------------------------------------------


def command_names() -> list[tuple[str, list[str]]]:
    """Sections of ``--help`` with the commands that exist, subcommands after their group."""
    context = click.Context(cli, info_name="nsysacct")

    def with_subcommands(name: str) -> list[str]:
        command = cli.get_command(context, name)
        if not isinstance(command, click.Group):
            return [name]
        return [name, *(f"{name} {sub}" for sub in command.list_commands(context))]

    existing = cli.list_commands(context)
    return [
        (title, [full for name in topics if name in existing for full in with_subcommands(name)])
        for title, topics in SECTIONS.items()
    ]


def reference_page(session: Session) -> str:
    def shown(command: str) -> list[str]:
        return ["```console", f"$ {command}", *session.run(command), "```", ""]

    lines = ["# Commands", "", "The help of every command, made from the code.", ""]
    lines += shown("nsysacct --help")
    for title, names in command_names():
        lines += [f"## {title}", ""]
        for name in names:
            level = "###" if " " not in name else "####"
            lines += [f"{level} nsysacct {name}", "", *shown(f"nsysacct {name} --help")]
    return "\n".join(lines).rstrip() + "\n"


def test_the_reference_lists_every_command(
    session: Session, request: pytest.FixtureRequest
) -> None:
    page = reference_page(session)
    if request.config.getoption("--update-docs"):
        REFERENCE.write_text(page, "utf-8")
    assert REFERENCE.read_text("utf-8") == page, "run pytest tests/test_docs.py --update-docs"


# -- links ----------------------------------------------------------------------------------------

LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.M)


def prose(text: str) -> str:
    """`text` without fenced blocks and code spans, in which a link is no link."""
    text = re.sub(r"^(\s*)(```+|~~~+).*?^\s*\2\s*$", "", text, flags=re.M | re.S)
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "code", text)


def anchors(document: Path) -> set[str]:
    text = re.sub(r"^(\s*)```.*?^\s*```\s*$", "", document.read_text("utf-8"), flags=re.M | re.S)
    slugs = set(re.findall(r'(?:id|name)="([^"]+)"', text))
    for heading in HEADING.findall(text):
        words = re.sub(r"[^\w\s-]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).lower()
        slugs.add(re.sub(r"[-\s]+", "-", words.strip()))
    return slugs


@each_document
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for link in LINK.findall(prose(document.read_text("utf-8"))):
        if re.match(r"[a-z][a-z+.-]*:", link):  # another site: not ours to check
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if (
            not target.exists()
            or not target.is_relative_to(ROOT)
            or (anchor and target.suffix == ".md" and anchor not in anchors(target))
        ):
            broken.append(link)
    assert broken == []


# -- the checks themselves ------------------------------------------------------------------------


def test_blocks_commands_and_outputs_are_found() -> None:
    text = (
        "# T\n\n```console\n$ nsysacct split \\\n    a.sqlite\none\n\n$ nsys profile x\n```\n\n"
        "<!-- not run: needs a GPU -->\n```console\n$ nsysacct x\n```\n"
        "- a\n  ```python\n  x = 1\n  ```\n"
    )
    found = list(blocks(text))
    assert found == [
        Block(
            "console",
            4,
            ["$ nsysacct split \\", "    a.sqlite", "one", "", "$ nsys profile x"],
            True,
        ),
        Block("console", 13, ["$ nsysacct x"], False),
        Block("python", 17, ["x = 1"], True),
    ]
    first, second = commands(found[0])
    assert (first.text, first.line, first.output) == (
        "nsysacct split \\\n    a.sqlite",
        4,
        ["one", ""],
    )
    assert (second.text, second.output) == ("nsys profile x", [])
    assert rewritten(text, [(first, ["two", "three"])]) == text.replace("one\n\n", "two\nthree\n")


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        (["a", "..."], ["a", "b", "c"], True),
        (["a", "...", "c"], ["a", "c"], True),
        (["a", "...", "c"], ["a", "b"], False),
        (["took ... s (all)"], ["took 1.2 s (all)"], True),
        (["took ... s"], ["took 1.2 ms"], False),
        (["a.b"], ["axb"], False),
        ([], ["a"], False),
        (["a"], [], False),
        (["..."], [], True),
    ],
)
def test_dots_stand_for_anything(expected: list[str], actual: list[str], same: bool) -> None:
    assert matches(expected, actual) is same


def test_a_session_runs_the_program_and_keeps_the_exit_code(session: Session) -> None:
    assert session.run("nsysacct nothing") == [
        "nsysacct: No such command 'nothing'; see 'nsysacct --help'"
    ]
    assert session.run("echo $?") == ["2"]
    assert session.run("python -c 'print(1)' > out; cat out") == ["1"]


def test_links_are_found() -> None:
    text = '[a](b.md#c) ![i](x.png "t") `[no](n.md)`\n```\n[no](m.md)\n```\n[`x`[1]](y.md)'
    assert LINK.findall(prose(text)) == ["b.md#c", "x.png", "y.md"]
