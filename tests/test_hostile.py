"""What a trace says reaches every output as text, never as markup, formula or terminal command."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done, Run

from fixtures.builder import TraceBuilder

HOSTILE = (
    "<script>alert(1)</script>",
    '<img src=x onerror="alert(1)">',
    '=HYPERLINK("http://x.example")',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(1)",
    "\x1b]0;owned\x07\x1b[2J",
    "a|b`c`*d*[x](http://x.example)@you",
    "]]></failure><x>",
    "--><!-- &amp; {{7*7}} {% raise %}",
    "\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe",
    "\r\n::error::x",
    "\x9b31m\x85next",
    "nul\x01byte \ufffe",
    "</script><script>alert(2)</script>",
)
NAME = "=1+<b>&|[x](y) \N{RIGHT-TO-LEFT OVERRIDE}%s.sqlite"
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
FORMULA = re.compile(r"\s*[=+\-@\t\r](?![\d. ]*%?$)")

Files = dict[str, Path]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("hostile")
    return {which: hostile(folder / (NAME % which), cost) for which, cost in (("a", 1), ("b", 2))}


def hostile(path: Path, cost: int) -> Path:
    """Six rounds of kernels, graphs and ranges whose texts are all hostile."""
    trace = TraceBuilder(gpu=HOSTILE[0])
    trace.process(10, name=HOSTILE[6])
    at = 1_000_000
    for _ in range(6):
        for phase in ("draft", "verify"):
            begun = at
            for text in HOSTILE:
                for name in (text, f"void {text}<(int)3>(int)"):
                    trace.kernel(name, at, at + 9_000 * cost)
                    at += 10_000 * cost
            trace.nvtx(phase, begun - 6_000, at - 6_000)
        for text in HOSTILE:
            trace.nvtx(text, at - 5_000, at - 4_000)
        trace.graph_launch(3, at, at + 5_000, launch=at - 5_000)
        at += 50_000
    for text in HOSTILE:
        trace.diagnostic(f"Not all CUDA events might have been collected. {text}")
    return trace.write(path)


def said(done: Done, codes: tuple[int, ...] = (0,)) -> str:
    """What a command printed, which must be safe to look at."""
    assert done.returncode in codes, done.stderr
    assert not FORBIDDEN.search(done.stdout), repr(FORBIDDEN.search(done.stdout))
    assert not FORBIDDEN.search(done.stderr)
    return done.stdout


GATE = ("gate", "--base", "{a}", "--head", "{b}")
DIFF = ("diff", "{a}", "{b}")
PRINTED: dict[str, tuple[str, ...]] = {
    "split": ("split", "{a}", "--detail"),
    "check": ("check", "{a}"),
    "rounds": ("rounds", "{a}"),
    "explain": ("explain", "{a}"),
    "compare": ("compare", "{a}", "{b}"),
    "gate": GATE,
    "diff": DIFF,
    "explained name": ("registry", "explain", HOSTILE[6]),
}


@pytest.mark.parametrize("case", PRINTED)
@pytest.mark.parametrize("to_file", [False, True])
def test_text_cannot_command_a_terminal(
    case: str, to_file: bool, files: Files, run_cli: Run, tmp_path: Path
) -> None:
    command = [word.format(**files) if "{" in word[:1] else word for word in PRINTED[case]]
    if not to_file:
        assert said(run_cli(*command), (0, 1))
        return
    done = run_cli(*command, "-o", "out.txt")
    if done.returncode == 2:
        pytest.skip("prints only")
    said(done, (0, 1))
    assert not FORBIDDEN.search((tmp_path / "out.txt").read_text("utf-8"))


def test_errors_and_names_of_files(run_cli: Run, tmp_path: Path) -> None:
    path = tmp_path / (NAME % "\x1b[2J")
    path.write_bytes(b"no")
    done = run_cli("split", path)
    assert done.returncode == 3 and done.stderr.count("\n") == 1
    said(done, (3,))
    done = run_cli("batch", path, "--workers", "1")
    assert "failed" in said(done, (3,))


JSON = {
    "split": ("split", "{a}", "--format", "json"),
    "check": ("check", "{a}", "--format", "json"),
    "rounds": ("rounds", "{a}", "--format", "json"),
    "explain": ("explain", "{a}", "--format", "json"),
    "gate": (*GATE, "--format", "json"),
    "sarif": (*GATE, "--format", "sarif"),
    "diff": (*DIFF, "--format", "json"),
}


@pytest.mark.parametrize("case", JSON)
def test_json_is_json_and_harmless_to_look_at(case: str, files: Files, run_cli: Run) -> None:
    command = [word.format(**files) for word in JSON[case]]
    document = json.loads(said(run_cli(*command), (0, 1)))
    if case == "split":
        assert document["trace"]["name"] == files["a"].name
        assert document["trace"]["gpu"] == HOSTILE[0]


@pytest.mark.parametrize(
    "command", [("explain", "{a}"), ("compare", "{a}", "{b}"), ("rounds", "{a}")]
)
def test_csv_holds_no_formula(command: tuple[str, ...], files: Files, run_cli: Run) -> None:
    text = said(run_cli(*(word.format(**files) for word in command), "--format", "csv"))
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    assert cells
    assert [cell for cell in cells if FORMULA.match(cell) and cell != "-"] == []


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(1)", "'@SUM(1)"),
        ("-2+3", "'-2+3"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("\t=1", "'=1"),
        ("-", "-"),
        ("-0.5", "-0.5"),
        ("+3.0 %", "+3.0 %"),
        ("-1.5e-3", "-1.5e-3"),
        ("k<4>", "k<4>"),
        ("a\x1b[2J", "a\\x1b[2J"),
    ],
)
def test_csv_cells(text: str, safe: str) -> None:
    from nsysacct.cli._text import csv_cell

    assert csv_cell(text) == safe


MARKDOWN = {
    "gate": (*GATE, "--format", "markdown"),
    "diff": (*DIFF, "--format", "markdown"),
    "explain": ("explain", "{a}", "--format", "markdown"),
    "compare": ("compare", "{a}", "{b}", "--format", "markdown"),
}


@pytest.mark.parametrize("case", MARKDOWN)
def test_markdown_has_no_markup_of_the_trace(case: str, files: Files, run_cli: Run) -> None:
    text = said(run_cli(*(word.format(**files) for word in MARKDOWN[case])), (0, 1))
    for bad in ("<script", "<b>", "<img", "[x](", "@you", "</failure", "\n::error"):
        assert bad not in text
    tables = re.findall(r"(?:^\|.*\n)+", text, re.M)
    assert tables or case == "explain"
    for table in tables:
        bars = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(bars) == 1, table


def test_junit_is_well_formed(files: Files, run_cli: Run) -> None:
    command = [word.format(**files) for word in (*GATE, "--format", "junit")]
    root = ET.fromstring(said(run_cli(*command), (1,)))
    tags = {element.tag for element in root.iter()}
    assert tags <= {"testsuites", "testsuite", "testcase", "failure", "error", "skipped",
                    "system-out", "properties", "property"}  # fmt: skip
    assert root.findall(".//failure")


def test_github_annotations_are_only_ours(files: Files, run_cli: Run, tmp_path: Path) -> None:
    command = [word.format(**files) for word in GATE]
    env = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    done = run_cli(*command, env=env)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("::")]
    assert all(re.match(r"::(error|warning|notice) title=nsysacct", line) for line in lines)
    assert "::error::x" not in lines


class Tags(html.parser.HTMLParser):
    """Tags, event handlers and script texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.scripts: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.tags and self.tags[-1] == "script":
            self.scripts.append(data)


def test_the_page_runs_no_script_of_the_trace(
    files: Files, run_cli: Run, trace_file: Callable[[str], Path], tmp_path: Path
) -> None:
    pytest.importorskip("jinja2")
    pages = []
    for name, path in (("bad", files["a"]), ("good", trace_file("small_graph"))):
        said(run_cli("report", path, "-o", f"{name}.html"))
        page = Tags()
        page.feed((tmp_path / f"{name}.html").read_text("utf-8"))
        pages.append(page)
    bad, good = pages
    assert bad.handlers == good.handlers
    assert bad.tags.count("script") == good.tags.count("script") > 0
    assert "img" not in bad.tags and "b" not in set(bad.tags) - set(good.tags)
    assert "=1+<b>&|[x](y)" in bad.text
    assert not any("alert(2)" in script and "</script" in script for script in bad.scripts)
