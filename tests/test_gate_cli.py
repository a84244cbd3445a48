"""gate, diff and history as processes, and the CI files of the documentation as they are run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, process_environment
from gate_cases import (
    base_account,
    more_launches,
    noise,
    repeated,
    slower,
    speculation_off,
    verify_gemv,
    with_blind_spot,
    with_labels,
    with_trace,
)

from nsysacct.cli.gate import spread_files
from nsysacct.wire import dump_account, load_account

EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture
def files(tmp_path):
    """Accounts as files by name."""
    base = base_account(8)
    made = {
        "base": base,
        "longer": repeated(11)(base),
        "dear": more_launches("verify", verify_gemv(base), 2)(base),
        "off": speculation_off(base),
        "gpu": with_trace(gpu="NVIDIA L4")(base),
        "label": with_labels(quant="q8")(base),
        "lost": with_blind_spot("lost-tail", "fatal")(base),
    }
    for name, account in made.items():
        (tmp_path / f"{name}.json").write_text(dump_account(account), "utf-8")
    (tmp_path / "junk.json").write_text("{", "utf-8")
    (tmp_path / "junk.sqlite").write_bytes(b"no database at all")
    (tmp_path / "verdict.json").write_text(
        '{"schema": {"kind": "nsysacct/verdict", "version": 1}}', "utf-8"
    )
    (tmp_path / "limits.toml").write_text('[limits]\n"verify.ns_per_round" = "+200%"\n', "utf-8")
    (tmp_path / "bad.toml").write_text("[limits]\nx = 1\n", "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--base base.json --head longer.json", 0),
        ("--base base.json --head dear.json", 1),
        ("--base base.json --head dear.json --limits limits.toml", 0),
        ("--base base.json --head dear.json --limit verify.share:<=99%", 0),
        ("--base base.json --head off.json", 3),
        ("--base base.json --head gpu.json", 3),
        ("--base base.json --head label.json", 3),
        ("--base base.json --head lost.json", 3),
        ("--base base.json --head lost.json --allow lost-tail", 0),
        ("--base base.json longer.json --head base.json longer.json", 3),
        ("--base base.json --head junk.json", 3),
        ("--base base.json --head junk.sqlite", 3),
        ("--base base.json --head verdict.json", 3),
        ("--base base.json --head missing.json", 3),
        ("--against missing.db --head base.json", 3),
        ("--base base.json", 2),
        ("--head base.json", 2),
        ("--base base.json --against x.db --head base.json", 2),
        ("--base base.json base.json --head base.json", 2),
        ("--base base.json --head base.json --limit verify", 2),
        ("--base base.json --head base.json --limit nope:+5%", 2),
        ("--base base.json --head base.json --limit verify.gemmv.share:+5%", 2),
        ("--base base.json --head base.json --limits bad.toml", 2),
        ("--base base.json --head base.json --limits missing.toml", 2),
        ("--base base.json --head base.json --confidence 7", 2),
        ("--base base.json --head base.json --nope", 2),
        ("--base base.json --head base.json -o base.json", 2),
    ],
)
def test_exit_codes(run_cli, files, arguments, code):
    done = run_cli("gate", *arguments.split(), cwd=files)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if code in (0, 1):
        assert done.stdout.startswith("PASS" if code == 0 else "FAIL")
    elif not done.stdout:  # refused before a verdict: one line that says why
        assert len(done.stderr.splitlines()) == 1


def test_machine_formats_stand_alone_on_stdout(run_cli, files):
    arguments = ["gate", "--base", "base.json", "--head", "dear.json", "--github", "--format"]
    for form in ("json", "sarif"):
        done = run_cli(*arguments, form, cwd=files)
        json.loads(done.stdout)
        assert "::error" in done.stderr
    ET.fromstring(run_cli(*arguments, "junit", cwd=files).stdout)


def test_github_summary_is_appended_and_annotations_are_printed(run_cli, files):
    summary = files / "summary.md"
    summary.write_text("before\n")
    done = run_cli(
        "gate", "--base", "base.json", "--head", "dear.json", "--github", "-o", "verdict.txt",
        cwd=files, env={"GITHUB_STEP_SUMMARY": str(summary)},
    )  # fmt: skip
    assert done.returncode == 1
    assert summary.read_text().startswith("before\n## ❌ nsysacct gate: fail")
    assert done.stdout.startswith("::error title=")
    assert (files / "verdict.txt").read_text().startswith("FAIL")


def test_no_output_file_after_a_refusal(run_cli, files):
    done = run_cli("gate", "--base", "base.json", "--head", "junk.json", "-o", "out.xml", cwd=files)
    assert done.returncode == 3
    assert not (files / "out.xml").exists()


def process(files: Path, *arguments: str, code: str = "", **pipes: object) -> subprocess.Popen[str]:
    start = code + "\nfrom nsysacct.cli import main\nmain()"
    return subprocess.Popen(
        [sys.executable, "-c", start, *arguments],
        cwd=files,
        env=process_environment(files),
        text=True,
        stderr=subprocess.PIPE,
        **pipes,  # type: ignore[call-overload]
    )


PAIR = ("gate", "--base", "base.json", "--head", "base.json")
BROKEN = {
    "crash": "raise RuntimeError('x')",
    "out of memory": "raise MemoryError",
    "a library exits 1": "raise SystemExit(1)",
    "a library exits 0": "import sys; sys.stdout.close(); raise OSError",
}


@pytest.mark.parametrize("what", BROKEN)
def test_nothing_broken_exits_0_or_1(files, what):
    code = f"import nsysacct.gate\ndef judge(*a, **k):\n    {BROKEN[what]}\n"
    code += "nsysacct.gate.judge = judge"
    with process(files, *PAIR, code=code, stdout=subprocess.PIPE) as running:
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 3, errors


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupt_is_no_verdict(files):
    code = (
        "import nsysacct.gate, time\ndef judge(*a, **k):\n    print('ready', flush=True)\n"
        "    time.sleep(60)\nnsysacct.gate.judge = judge"
    )
    with process(files, *PAIR, code=code, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 3, errors


@pytest.mark.skipif(os.name != "posix", reason="pipes")
def test_a_reader_that_leaves_is_no_verdict(files):
    reader, writer = os.pipe()
    os.close(reader)
    with process(files, *PAIR, stdout=writer) as running:
        os.close(writer)
        running.communicate(timeout=60)
    assert running.returncode == 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_no_verdict(files):
    with open("/dev/full", "w") as full, process(files, *PAIR, stdout=full) as running:
        running.communicate(timeout=60)
    assert running.returncode == 3


def test_files_up_to_the_next_option():
    many = ("--base", "--head")
    words = ["--base", "a", "b", "--limit", "x:+5%", "--head", "c", "-o", "out", "--base=d"]
    assert spread_files(words, many) == [
        "--base", "a", "--base", "b", "--limit", "x:+5%", "--head", "c", "-o", "out", "--base=d",
    ]  # fmt: skip


def test_diff_command(run_cli, files):
    done = run_cli("diff", "base.json", "dear.json", "--format", "json", cwd=files)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schema"]["kind"] == "nsysacct/diff"
    assert "more launches" in run_cli("diff", "base.json", "dear.json", cwd=files).stdout
    assert run_cli("diff", "base.json", "off.json", "--per", "round", cwd=files).returncode == 3
    assert run_cli("diff", "base.json", cwd=files).returncode == 2


def test_history_commands(run_cli, files):
    assert run_cli("history", "add", "h.db", "base.json", "longer.json", cwd=files).returncode == 0
    again = run_cli("history", "add", "h.db", "base.json", cwd=files)
    assert "is there already as main#1" in again.stdout
    assert "longer.json" in run_cli("history", "list", "h.db", cwd=files).stdout
    listed = json.loads(run_cli("history", "list", "h.db", "--format", "json", cwd=files).stdout)
    assert [capture["id"] for capture in listed["captures"]] == [1, 2]
    shown = run_cli("history", "show", "h.db", "1", cwd=files).stdout
    assert load_account(shown) == load_account(files / "base.json")
    trend = run_cli("history", "trend", "h.db", "--format", "json", "--plot", "t.svg", cwd=files)
    assert len(json.loads(trend.stdout)["points"]) == 2
    assert "<svg" in (files / "t.svg").read_text("utf-8")
    assert run_cli("history", "trend", "h.db", "--plot", "t.doc", cwd=files).returncode == 2
    assert not (files / "t.doc").exists()
    assert run_cli("gate", "--against", "h.db", "--head", "base.json", cwd=files).returncode == 0
    assert run_cli("gate", "--against", "h.db", "--head", "dear.json", cwd=files).returncode == 1
    assert run_cli("gate", "--against", "h.db", "--head", "gpu.json", cwd=files).returncode == 3
    assert run_cli("gate", "--against", "h.db:x", "--head", "gpu.json", cwd=files).returncode == 2
    assert run_cli("history", "show", "h.db", "99", cwd=files).returncode == 2
    assert run_cli("history", "list", "junk.sqlite", cwd=files).returncode == 3


# -- the CI files of docs/examples ----------------------------------------------------------------


def example(name: str) -> dict[str, object]:
    return yaml.safe_load((EXAMPLES / name).read_text("utf-8"))


SCHEMAS = {
    "github-gate.yml": "vendor.github-workflows",
    "gitlab-ci.yml": "vendor.gitlab-ci",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_ci_files_follow_the_services_schemas(name):
    pytest.importorskip("check_jsonschema")
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", SCHEMAS[name],
         EXAMPLES / name],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def shell_parts(name: str) -> list[str]:
    document = example(name)
    if name.startswith("github"):
        return [step["run"] for step in document["jobs"]["gate"]["steps"] if "run" in step]
    if name.startswith("gitlab"):
        jobs = (document["capture"], document["gate"])
        return [line for job in jobs for key in ("before_script", "script")
                for line in job.get(key, [])]  # fmt: skip
    return [hook["entry"] for repo in document["repos"] for hook in repo["hooks"]]


NOT_RUN = ("pip install", "nsys profile")
"""Needs the network, or a GPU: checked for syntax only."""

CI_FILES = ["github-gate.yml", "gitlab-ci.yml", "pre-commit-config.yaml"]


@pytest.mark.parametrize("name", CI_FILES)
def test_shell_parts_have_no_syntax_errors(name):
    parts = shell_parts(name)
    assert parts
    for part in parts:
        done = subprocess.run(["bash", "-n"], input=part, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def workplace(tmp_path, trace_file):
    """Folder as a CI job finds it: a shipped trace as capture, limits, a program on PATH."""
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "run1.sqlite").symlink_to(trace_file("small_nvtx"))
    (tmp_path / "profiling" / "base").mkdir(parents=True)
    (tmp_path / "profiling" / "limits.toml").write_bytes((EXAMPLES / "limits.toml").read_bytes())
    shim = tmp_path / "bin" / "nsysacct"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nsysacct "$@"\n')
    shim.chmod(0o755)
    return tmp_path


def run_parts(name: str, workplace: Path, skip: str = "", **env: str) -> int:
    """Run the shell parts in order as the service does; the exit code of the last one."""
    environment = process_environment(
        workplace, LAYERS="8", GITHUB_SHA="1a2b3c", GITHUB_STEP_SUMMARY=str(workplace / "sum.md")
    )
    environment |= {"PATH": f"{workplace / 'bin'}:{environment['PATH']}", **env}
    code = 0
    for part in shell_parts(name):
        if any(word in part for word in NOT_RUN) or (skip and skip in part):
            continue
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", part], cwd=workplace, env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        code = done.returncode
        if code:
            break
    return code


def dearer(path: Path) -> None:
    """Make a committed base cheaper, so that the capture is a regression."""
    account = load_account(path)
    path.write_text(dump_account(slower("verify", 0.8)(account)), "utf-8")


def test_github_example_runs(workplace):
    assert run_parts("github-gate.yml", workplace, skip="gate --against") == 0  # a push to main
    assert "verify.ns_per_round" in (workplace / "sum.md").read_text()
    for file in (workplace / "accounts").iterdir():
        file.unlink()
    assert run_parts("github-gate.yml", workplace, skip="history add") == 0  # a pull request
    assert "gate: pass" in (workplace / "sum.md").read_text()
    ET.parse(workplace / "gate.xml")


def test_gitlab_example_runs(workplace):
    assert run_parts("gitlab-ci.yml", workplace, skip="nsysacct gate") == 0
    base = workplace / "profiling" / "base" / "run1.json"
    (workplace / "accounts" / "run1.json").rename(base)
    assert run_parts("gitlab-ci.yml", workplace) == 0
    (workplace / "accounts" / "run1.json").unlink()
    (workplace / "gate.xml").unlink()
    dearer(base)
    assert run_parts("gitlab-ci.yml", workplace) == 1
    suite = ET.parse(workplace / "gate.xml").getroot().find("testsuite")
    assert int(suite.get("failures")) >= 1


def test_pre_commit_example_runs(workplace):
    hook = example("pre-commit-config.yaml")["repos"][0]["hooks"][0]
    assert re.search(hook["files"], "profiling/head/run1.json")
    head = workplace / "profiling" / "head"
    head.mkdir()
    text = dump_account(base_account(8))
    for folder in (head, workplace / "profiling" / "base"):
        (folder / "run1.json").write_text(text, "utf-8")
    assert run_parts("pre-commit-config.yaml", workplace) == 0
    dearer(workplace / "profiling" / "base" / "run1.json")
    assert run_parts("pre-commit-config.yaml", workplace) == 1


def test_a_gate_on_five_captures_takes_seconds(run_cli, tmp_path):
    import random

    generator = random.Random(1)
    for side in ("base", "head"):
        for i in range(5):
            account = noise(generator)(base_account(200))
            (tmp_path / f"{side}{i}.json").write_text(dump_account(account), "utf-8")
    names = {side: [f"{side}{i}.json" for i in range(5)] for side in ("base", "head")}
    start = time.perf_counter()
    done = run_cli("gate", "--base", *names["base"], "--head", *names["head"], cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.perf_counter() - start < 20
