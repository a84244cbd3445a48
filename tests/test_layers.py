"""Imports point down, and each kind of work has one room (checked on the syntax tree)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGE = ROOT / "nsysacct"

# One tier a line, the lowest first. A room may import its own tier and lower ones. A new module
# needs a place here.
TIERS = """
errors extras strict model semantics intervals groups workers theory histograms stats layout
trace nsysrep spelling conditions names arguments signatures registry \
registry_file registry_tables specs wire counting logs
timeline tables_export evidence nvtx passes steps repetition roles replays sketch grammar structure attribution \
losses census
witnesses blindspots acceptance options amounts hardware perround ranks sharing suggest suggest_toml
runlog
placement account
comparability plainstep
twocaptures economics scenarios bottleneck breakeven compare curve whatif explain checkup
metric_names metrics quantities diff wording
gate limits config history_schema history batch batch_store batch_summary
render render_proof account_tables plots report perfetto export frames annotate notebook gate_output diff_output
cli api __main__
"""
RANK = {room: rank for rank, line in enumerate(TIERS.strip().splitlines()) for room in line.split()}

DATABASES = {"trace", "history", "history_schema", "annotate"}
OPTIONAL = {"pandas", "matplotlib", "sqlite_utils", "jinja2", "dask", "distributed", "rich"}
NSYS_TABLE = re.compile(r"\b(?:CUPTI_|META_DATA|TARGET_INFO|CUDA_GRAPH_|NVTX_EVENTS)")
SQL = re.compile(r"\bselect\b.+\bfrom\b|\b(?:insert into|create table|pragma)\b", re.I | re.S)


@dataclass(frozen=True)
class Import:
    """One imported module: where, what, and whether it runs when the importer is loaded."""

    target: str
    line: int
    lazy: bool
    typing_only: bool


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imports(path: Path) -> Iterator[Import]:
    def walk(node: ast.AST, lazy: bool, typing_only: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, child.lineno, lazy, typing_only)
            elif isinstance(child, ast.ImportFrom):
                module = absolute(path, child)
                names = [alias.name for alias in child.names] if module == "nsysacct" else [None]
                for name in names:
                    target = f"{module}.{name}" if name else module
                    yield Import(target, child.lineno, lazy, typing_only)
            else:
                function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                typed = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
                yield from walk(child, lazy or function, typing_only or typed)

    return walk(tree(path), lazy=False, typing_only=False)


def absolute(path: Path, node: ast.ImportFrom) -> str:
    """Full name of the module that ``from ... import`` names."""
    if not node.level:
        return node.module or ""
    folders = ("nsysacct", *path.relative_to(PACKAGE).parts[:-1])
    parents = folders[: len(folders) - node.level + 1]
    return ".".join([*parents, *([node.module] if node.module else [])])


def room_imported(target: str) -> str | None:
    """Room of ``nsysacct.ROOM...``; None for other packages and for names of the root."""
    parts = target.split(".")
    if parts[0] != "nsysacct" or len(parts) == 1:
        return None
    is_room = (PACKAGE / parts[1]).is_dir() or (PACKAGE / f"{parts[1]}.py").exists()
    return parts[1] if is_room else None


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT).as_posix()}:{line}"


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """String constants that are not docstrings (those may name a source)."""
    root = tree(path)
    silent = {
        id(node.value)
        for node in ast.walk(root)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(root):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in silent
        ):
            yield node.lineno, node.value


def test_every_module_has_a_tier() -> None:
    rooms = {room(path) for path in modules()} - {"__init__"}
    assert sorted(rooms - set(RANK)) == []


def test_imports_point_down() -> None:
    wrong = [
        f"{where(path, found.line)}: {room(path)} imports {target}"
        for path in modules()
        if room(path) in RANK
        for found in imports(path)
        if not found.typing_only
        and (target := room_imported(found.target)) in RANK
        and RANK[target] > RANK[room(path)]
    ]
    assert wrong == []


def test_no_cycles_between_rooms() -> None:
    edges: dict[str, set[str]] = {}
    for path in modules():
        if room(path) not in ("__init__", "cli"):
            targets = {room_imported(i.target) for i in imports(path) if not i.typing_only}
            edges.setdefault(room(path), set()).update(t for t in targets if t and t != room(path))
    while leaves := {name for name, targets in edges.items() if not targets & set(edges)}:
        for name in leaves:
            del edges[name]
    assert {name: sorted(targets & set(edges)) for name, targets in edges.items()} == {}


NAMES_ROOMS = {"names", "arguments", "signatures", "registry"}
TRACE_ROOMS = {"trace", "nsysrep", "timeline"}


@pytest.mark.parametrize(
    ("rooms", "forbidden"), [(TRACE_ROOMS, NAMES_ROOMS), (NAMES_ROOMS, TRACE_ROOMS)]
)
def test_trace_and_registry_do_not_know_each_other(rooms: set[str], forbidden: set[str]) -> None:
    wrong = [
        where(path, found.line)
        for path in modules()
        if room(path) in rooms
        for found in imports(path)  # for types neither
        if room_imported(found.target) in forbidden
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("package", "rooms"),
    [
        ("click", {"cli"}),
        ("rich", {"cli"}),
        ("matplotlib", {"plots"}),
        ("sqlite3", DATABASES),
        ("adbc_driver_sqlite", {"trace"}),
        ("sqlite_utils", {"history", "annotate"}),
        ("jinja2", {"report"}),
    ],
)
def test_a_package_is_used_in_its_room_only(package: str, rooms: set[str]) -> None:
    wrong = [
        where(path, found.line)
        for path in modules()
        if room(path) not in rooms
        for found in imports(path)
        if found.target.partition(".")[0] == package and not found.typing_only
    ]
    assert wrong == []


def test_optional_packages_are_imported_when_used() -> None:
    wrong = [
        f"{where(path, found.line)}: {found.target}"
        for path in modules()
        for found in imports(path)
        if found.target.partition(".")[0] in OPTIONAL and not found.lazy and not found.typing_only
    ]
    assert wrong == []


def test_nothing_below_cli_prints_or_exits() -> None:
    ends = {"print", "input", "exit", "quit", "SystemExit", "breakpoint"}
    attributes = {"sys.exit", "os._exit", "sys.stdout", "sys.stderr", "warnings.warn"}
    wrong = [
        f"{where(path, node.lineno)}: {ast.unparse(node)}"
        for path in modules()
        if room(path) not in ("cli", "__main__")
        for node in ast.walk(tree(path))
        if (isinstance(node, ast.Name) and node.id in ends)
        or (isinstance(node, ast.Attribute) and ast.unparse(node) in attributes)
    ]
    assert wrong == []


def test_only_trace_knows_tables_of_nsys() -> None:
    wrong = [
        f"{where(path, line)}: {text[:60]!r}"
        for path in modules()
        if room(path) != "trace"
        for line, text in strings(path)
        if NSYS_TABLE.search(text)
    ]
    assert wrong == []


def test_sql_stays_with_the_databases() -> None:
    wrong = [
        f"{where(path, line)}: {text[:60]!r}"
        for path in modules()
        if room(path) not in DATABASES
        for line, text in strings(path)
        if SQL.search(text)
    ]
    assert wrong == []


def test_the_checks_see_what_they_should(tmp_path: Path) -> None:
    """A rule that finds nothing anywhere would pass for ever."""
    sample = tmp_path / "x.py"
    sample.write_text(
        '"""About CUPTI_X."""\n'
        "from nsysacct import trace\n"
        "def f():\n    import click.core\n    return 'SELECT a\\nFROM CUPTI_Y'\n"
        "if TYPE_CHECKING:\n    from nsysacct.registry import Registry\n"
    )
    assert list(imports(sample)) == [
        Import("nsysacct.trace", 2, lazy=False, typing_only=False),
        Import("click.core", 4, lazy=True, typing_only=False),
        Import("nsysacct.registry", 7, lazy=False, typing_only=True),
    ]
    texts = list(strings(sample))
    assert texts == [(5, "SELECT a\nFROM CUPTI_Y")]
    assert SQL.search(texts[0][1]) and NSYS_TABLE.search(texts[0][1])
