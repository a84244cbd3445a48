"""The tables of docs/method.md are what the code gives: accuracy rows and thresholds."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT

PAGE = ROOT / "docs" / "method.md"


@pytest.fixture(scope="module")
def accuracy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("accuracy", ROOT / "docs" / "accuracy.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["accuracy"] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_what_shipped_traces_give(
    accuracy: ModuleType, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    found = {}
    for name, case in accuracy.cases().items():
        trace = accuracy.find(case, None, tmp_path)
        if trace is not None:
            found[name] = accuracy.row(name, case, accuracy.account_of(case, trace))
    assert len(found) >= 8
    page = PAGE.read_text("utf-8")
    if request.config.getoption("--update-docs"):
        PAGE.write_text(accuracy.with_tables(page, found), "utf-8")
        page = PAGE.read_text("utf-8")
    assert [name for name, row in found.items() if not row.agrees] == []
    assert accuracy.with_tables(page, found) == page, "python docs/accuracy.py --write"


def test_every_case_has_a_row(accuracy: ModuleType) -> None:
    page = PAGE.read_text("utf-8")
    shown = [*accuracy.rows_of(page, accuracy.SPLIT), *accuracy.rows_of(page, accuracy.PASSES)]
    assert shown == list(accuracy.cases())


def test_a_wrong_figure_is_called_off(accuracy: ModuleType) -> None:
    case = accuracy.Case("x", "engine", "", [10], {"draft": (1.0, 1.0)}, 0.01)
    document = {"rounds": {"value": 10}, "buckets": [{"bucket": "draft", "gpu_ns": 1_009_000}]}
    assert accuracy.row("x", case, document).agrees
    document["buckets"] = [{"bucket": "draft", "gpu_ns": 1_011_000}]
    off = accuracy.row("x", case, document)
    assert not off.agrees and off.text.endswith("| 1.10 % |")
    document = {"rounds": {"value": 9}, "buckets": [{"bucket": "draft", "gpu_ns": 1_000_000}]}
    assert not accuracy.row("x", case, document).agrees


def constants(module: str) -> dict[str, float]:
    """Public numbers that a module sets at its top."""
    source = (ROOT / "nsysacct" / f"{module}.py").read_text("utf-8")
    found = importlib.import_module(f"nsysacct.{module}")
    return {
        target.id: getattr(found, target.id)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
        and re.fullmatch("[A-Z][A-Z_]+", target.id)
        and type(getattr(found, target.id)) in (int, float)
    }


def test_thresholds_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)\.([A-Z_]+)` \| ([\d.]+) \|", PAGE.read_text("utf-8"), re.M)
    shown: dict[str, dict[str, float]] = {}
    for module, constant, value in rows:
        shown.setdefault(module, {})[constant] = float(value)
    assert len(rows) > 10
    for module, values in shown.items():
        assert values == constants(module), module
