"""The notebook runs from top to bottom, and prints what it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, process_environment

NOTEBOOK = ROOT / "docs" / "article_notebook.ipynb"

pytestmark = pytest.mark.slow


def printed(notebook: Any) -> list[str]:
    """What each code cell prints; what it shows otherwise depends on pandas and matplotlib."""
    return [
        "".join(o["text"] for o in cell["outputs"] if o["output_type"] == "stream")
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def pictures(notebook: Any) -> int:
    return sum(
        "image/png" in output.get("data", {})
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell["outputs"]
    )


@pytest.mark.filterwarnings("default")  # of the notebook's own machinery
def test_the_notebook_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    env = process_environment(tmp_path, IPYTHONDIR=str(tmp_path / "ipython"))
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    shown = nbformat.read(NOTEBOOK, as_version=4)
    done = nbformat.from_dict(shown)
    nbclient.NotebookClient(
        done,
        timeout=300,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(NOTEBOOK.parent)}},
    ).execute()
    if request.config.getoption("--update-docs"):
        done.metadata.pop("language_info", None)
        nbformat.write(done, NOTEBOOK)
        shown = done
    assert printed(done) == printed(shown)
    assert pictures(done) == pictures(shown) == 5


def test_no_path_of_a_machine_is_in_it() -> None:
    text = NOTEBOOK.read_text("utf-8")
    assert not re.search(r"(/home/|/root/|/tmp/|/work/|[A-Z]:\\\\Users)", text)
    assert '"ename"' not in text
