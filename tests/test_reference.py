"""Parts of the documentation made from the code are up to date, and the JSON Schema is the contract."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT, Run

import nsysacct
from nsysacct import model, nvtx

Traces = Callable[[str], Path]


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["reference"] = module
    spec.loader.exec_module(module)
    return module


def test_pages_are_what_the_code_makes(
    reference: ModuleType, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--update-docs"):
        reference.main()
    for path, text in reference.files().items():
        assert path.read_text("utf-8") == text, f"{path.name}: python docs/reference.py"


def test_every_structure_and_public_name_is_there(reference: ModuleType) -> None:
    told = (ROOT / "docs" / "json.md").read_text("utf-8")
    for name, kind in vars(model).items():
        if isinstance(kind, type) and issubclass(kind, model.Record) and kind is not model.Record:
            assert f"### {name}\n" in told
            assert all(f"| `{field}` |" in told for field in kind.__struct_fields__)
    page = (ROOT / "docs" / "python.md").read_text("utf-8")
    for name in set(nsysacct.__all__) - {"__version__"}:
        assert f"## {name}\n" in page


def test_names_of_ranges_are_understood(reference: ModuleType) -> None:
    part = reference.words_part()
    assert nvtx.default_code("drafting") is not None and "`drafting`" in part
    assert nvtx.default_code("engine/verify #3") == nvtx.Code.VERIFY


@pytest.mark.parametrize("name", ["small_nvtx", "llama_B_spec_graph"])
def test_accounts_fit_the_schema(run_cli: Run, trace_file: Traces, name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "docs" / "account.schema.json").read_text("utf-8"))
    document = json.loads(run_cli("split", trace_file(name), "--format", "json").stdout)
    jsonschema.validate(document, schema)
    document["rounds"]["value"] = "ten"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)
