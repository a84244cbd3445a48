"""Project defaults: where they are found, what they may say, and that the command line goes first."""

from __future__ import annotations

import json

import pytest
from test_registry import MINIMAL, SIGNATURE

from nsysacct.config import Project, find_project
from nsysacct.errors import UsageError

FULL = """
engine = "kestrel"
layers = { all = 8, gdn = 6 }
k = 3
registry = ["kernels"]
labels = { model = "demo", quant = "q4" }
[gate]
confidence = 0.9
[gate.limits]
"verify.ns_per_round" = "+5%"
"""


def test_every_key_is_read_and_paths_are_the_files(tmp_path):
    (tmp_path / "nsysacct.toml").write_text(FULL)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    found = find_project(below)
    assert found.source == str(tmp_path / "nsysacct.toml")
    assert (found.engine, found.layers, found.k) == ("kestrel", {"all": 8, "gdn": 6}, 3)
    assert found.registry == (str(tmp_path / "kernels"),)
    assert found.labels == {"model": "demo", "quant": "q4"}
    assert found.gate.confidence == 0.9
    assert [limit.text for limit in found.gate.limits] == ["verify.ns_per_round:+5%"]
    assert found.summary() == (
        "engine kestrel, layers 8,gdn=6, k 3, registry kernels, labels model=demo, quant=q4, limits 1"
    )


def test_pyproject_counts_only_with_a_table_of_ours(tmp_path):
    (tmp_path / "nsysacct.toml").write_text('engine = "above"')
    project = tmp_path / "project"
    project.mkdir()
    pyproject = project / "pyproject.toml"
    pyproject.write_text('[project]\ndependencies = ["nsysacct"]')
    assert find_project(project).engine == "above"
    pyproject.write_text('[tool.nsysacct]\nengine = "vllm"\nregistry = "own.toml"')
    assert find_project(project).engine == "vllm"
    assert find_project(project).registry == (str(project / "own.toml"),)
    (project / "nsysacct.toml").write_text("layers = 12")
    assert find_project(project) == Project(
        source=str(project / "nsysacct.toml"), layers={"all": 12}
    )


def test_a_broken_pyproject_without_us_is_not_our_business(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project\nname =")
    assert find_project(tmp_path) == Project()
    (tmp_path / "pyproject.toml").write_text("[tool.nsysacct\n")
    with pytest.raises(UsageError, match=r"pyproject.toml: is not TOML"):
        find_project(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layrs = 64", "nsysacct.toml: key layrs: is not known; did you mean layers?"),
        (
            "colour = 1",
            "nsysacct.toml: key colour: is not known; known keys: engine, layers, k, "
            "registry, labels, gate",
        ),
        ("k = 0", "nsysacct.toml: key k: is 0; give 1 to 64"),
        ('k = "3"', "nsysacct.toml: key k: expected int | null, got str; correct it"),
        ("layers = 0", "nsysacct.toml: key layers: all is 0; give 1 or more"),
        (
            "layers = { all = 8, gdn = 9 }",
            "nsysacct.toml: key layers: 9 gdn layers of 8 in all; fix one",
        ),
        ("labels = { model = 3 }", "nsysacct.toml: key labels[...]: expected str, got int; "),
        ("[gate]\nlimit = 1", "nsysacct.toml [gate]: unknown key 'limit'; one of "),
        ("[gate.limits]\nx = 3", "nsysacct.toml [gate]: limits.x: 3 is not a string; "),
        ("engine =", "nsysacct.toml: is not TOML ("),
    ],
)
def test_errors_name_file_key_and_remedy(tmp_path, text, message):
    (tmp_path / "nsysacct.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        find_project(tmp_path)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_errors_in_pyproject_name_the_table(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.nsysacct]\nlayrs = 64")
    with pytest.raises(UsageError) as caught:
        find_project(tmp_path)
    assert str(caught.value) == (
        "pyproject.toml [tool.nsysacct]: key layrs: is not known; did you mean layers?"
    )


# ---------------------------------------------------------------- as processes


def split(run_cli, trace, *args, **kwargs):
    done = run_cli("split", trace, "--format", "json", *args, **kwargs)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_defaults_reach_the_account_and_the_command_line_goes_first(run_cli, trace_file, tmp_path):
    trace = trace_file("small_graph")
    (tmp_path / "nsysacct.toml").write_text(
        'engine = "kestrel"\nlayers = 8\nk = 3\nlabels = { model = "demo", quant = "q4" }'
    )
    plain, stderr = split(run_cli, trace)
    assert stderr == ""
    assert plain["engine"]["how"] == "given"
    assert plain["options"]["layers"] == {"all": 8}
    assert plain["options"]["k"] == 3
    assert plain["labels"] == {"model": "demo", "quant": "q4"}
    given, _ = split(run_cli, trace, "--layers", "8", "--layers", "gdn=6", "--label", "quant=q6")
    assert given["options"]["layers"] == {"all": 8, "gdn": 6}
    assert given["labels"] == {"model": "demo", "quant": "q6"}
    done = run_cli("split", trace, "--layers", "7")
    assert done.returncode == 3 and "--layers 7" in done.stderr


def test_a_note_only_with_debug(run_cli, trace_file, tmp_path):
    (tmp_path / "nsysacct.toml").write_text("layers = 8")
    done = run_cli("--debug", "split", trace_file("small_graph"))
    assert done.returncode == 0
    assert done.stderr == f"nsysacct: defaults from {tmp_path / 'nsysacct.toml'}: layers 8\n"
    assert run_cli("split", trace_file("small_graph")).stderr == ""


def test_a_wrong_key_is_wrong_usage(run_cli, trace_file, tmp_path):
    (tmp_path / "nsysacct.toml").write_text("layrs = 8")
    done = run_cli("split", trace_file("small_graph"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "nsysacct.toml: key layrs: is not known; did you mean layers?\n"


def test_limits_of_the_project_judge_a_gate(run_cli, trace_file, tmp_path):
    trace = trace_file("small_graph")
    assert run_cli("gate", "--base", trace, "--head", trace).returncode == 0
    (tmp_path / "nsysacct.toml").write_text('[gate.limits]\n"verify.ns_per_round" = "<=1us"')
    done = run_cli("gate", "--base", trace, "--head", trace)
    assert done.returncode == 1, done.stderr
    (tmp_path / "own.toml").write_text('[limits]\n"verify.ns_per_round" = "<=1s"')
    assert run_cli("gate", "--base", trace, "--head", trace, "--limits", "own.toml").returncode == 0


DEMO = (MINIMAL + SIGNATURE).replace("k_*", "k_rq_*").replace("k_gemv", "k_rq_q4_gemv_mr")


@pytest.mark.parametrize("way", ["option", "environment", "project", "folder"])
def test_own_registries_are_used_from_everywhere(run_cli, trace_file, tmp_path, way):
    own = tmp_path / "kernels"
    own.mkdir()
    (own / "demo.toml").write_text(DEMO)
    arguments = ["--engine", "demo"]
    env = {}
    if way == "option":
        arguments += ["--registry", "kernels/demo.toml"]
    elif way == "folder":
        arguments += ["--registry", "kernels"]
    elif way == "environment":
        env["NSYSACCT_REGISTRY"] = str(own)
    else:
        (tmp_path / "nsysacct.toml").write_text('registry = ["kernels"]')
    found, _ = split(run_cli, trace_file("small_graph"), *arguments, env=env)
    assert (found["engine"]["name"], found["engine"]["how"]) == ("demo", "given")
    verify = next(b for b in found["buckets"] if b["bucket"] == "verify")
    assert verify["by_basis"]["exclusive"] > 4_000_000
    listed = run_cli("registry", "list", *arguments[2:], env=env).stdout
    assert "demo.toml" in listed


def test_without_any_of_them_the_engine_is_not_known(run_cli, trace_file):
    done = run_cli("split", trace_file("small_graph"), "--engine", "demo")
    assert done.returncode == 2
    assert done.stderr.startswith("engine 'demo': no registry describes it; ")
