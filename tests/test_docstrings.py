"""Examples in docstrings give what they show; they stand in the reference of the Python API."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

import nsysacct

PACKAGE = Path(nsysacct.__file__).parent
WITH_EXAMPLES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text("utf-8")
}


@pytest.fixture
def folder(
    trace_file: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder with the trace that the examples name."""
    (tmp_path / "small_graph.sqlite").symlink_to(trace_file("small_graph"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", sorted(WITH_EXAMPLES))
def test_examples_give_what_they_show(name: str, folder: Path) -> None:
    module = importlib.import_module(name)
    examples = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    said: list[str] = []
    for test in examples:
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert examples and said == []
    assert not [e for test in examples for e in test.examples if doctest.SKIP in e.options]


@pytest.mark.parametrize(
    "name",
    ["split", "make_options", "costs_of", "what_if", "break_even", "judge", "dump_account",
     "load_account", "Levers"],
)  # fmt: skip
def test_public_names_have_examples(name: str) -> None:
    assert ">>> " in (getattr(nsysacct, name).__doc__ or "")
