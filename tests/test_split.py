"""``nsysacct split`` on shipped real traces, against what the recorded programs logged about themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TRACES, Run

from nsysacct.model import BUCKETS

Traces = Callable[[str], Path]

# trace, options -> rounds, GPU ms of draft, verify, replay, and of everything plain (truth of the run)
TRUTH = {
    "small_graph": (10, 1.2662, 4.9343, 2.8375, 4.8080),
    "small_nvtx": (10, 1.2697, 4.9503, 2.8432, 4.8198),
    "small_node_nvtx": (10, 1.2666, 4.9366, 2.7303, 4.9024),
}


def split(run_cli: Run, trace: Path, *options: str) -> dict:
    done = run_cli("split", trace, "--format", "json", *options)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("ignore", [(), ("--ignore", "nvtx")], ids=["all evidence", "without nvtx"])
@pytest.mark.parametrize("name", TRUTH)
def test_the_split_is_the_truth_with_and_without_nvtx(
    run_cli: Run, trace_file: Traces, name: str, ignore: tuple[str, ...]
) -> None:
    account = split(run_cli, trace_file(name), "--layers", "8", "--closing", "2", *ignore)
    rounds, *wanted = TRUTH[name]
    b = {x["bucket"]: x["gpu_ns"] / 1e6 for x in account["buckets"]}
    got = [b["draft"], b["verify"], b["replay"], b["plain"] + b["prefill"] + b["decode"]]
    assert account["rounds"]["value"] == rounds
    assert account["rounds"]["verdict"] == "exact"
    assert got == pytest.approx(wanted, rel=0.001)


def test_the_contract_of_the_json(run_cli: Run, trace_file: Traces) -> None:
    account = split(run_cli, trace_file("small_graph"))
    assert account["schema"] == {"kind": "nsysacct/account", "version": 1}
    assert [b["bucket"] for b in account["buckets"]] == list(BUCKETS)
    assert (
        account["window"]["busy_ns"] + account["window"]["residual_ns"]
        == account["window"]["wall_ns"]
    )
    assert account["engine"]["name"] == "kestrel"
    assert account["engine"]["how"] == "recognised"
    assert sum(b["gpu_ns"] for b in account["buckets"]) == account["total_gpu_ns"]
    assert sum(b["mem_ns"] for b in account["buckets"]) == account["total_mem_ns"]
    for b in account["buckets"]:
        assert b["busy_ns"] <= b["gpu_ns"] + b["mem_ns"]
    assert len(account["processes"]) == 1


def test_same_trace_same_bytes(run_cli: Run, trace_file: Traces, tmp_path: Path) -> None:
    trace = trace_file("small_graph")
    first = run_cli("split", trace, "--format", "json").stdout
    assert run_cli("split", trace, "--format", "json").stdout == first
    assert str(tmp_path) not in first


def test_layers_are_solved_for_when_left_out(run_cli: Run, trace_file: Traces) -> None:
    rounds = split(run_cli, trace_file("small_graph"))["rounds"]
    assert rounds["layers"] == {"all": 8, "gdn": 6}
    assert rounds["layers_how"] == "solved"


def test_wrong_layers_are_refused_with_the_right_ones(run_cli: Run, trace_file: Traces) -> None:
    done = run_cli("split", trace_file("small_graph"), "--layers", "7")
    assert done.returncode == 3
    assert done.stdout == ""
    assert "8 layers and 10 rounds would explain all of them" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("basis", ["exclusive", "nvtx", "graph", "positional", "pattern"])
def test_switching_a_rung_off_moves_its_amount_never_away(
    run_cli: Run, trace_file: Traces, basis: str
) -> None:
    trace = trace_file("small_nvtx")
    before = split(run_cli, trace, "--closing", "2")
    after = split(run_cli, trace, "--closing", "2", "--ignore", basis)
    assert after["total_gpu_ns"] == before["total_gpu_ns"]
    assert sum(b["gpu_ns"] for b in after["buckets"]) == before["total_gpu_ns"]
    assert all(basis not in b["by_basis"] for b in after["buckets"])


def test_a_capture_without_speculation_has_no_rounds(run_cli: Run, trace_file: Traces) -> None:
    account = split(run_cli, trace_file("llama_A_servernospec_graph"))
    assert account["rounds"]["value"] == 0
    assert account["rounds"]["verdict"] == "none"
    assert {b["bucket"]: b["gpu_ns"] for b in account["buckets"]}["verify"] == 0


GOLDEN = Path(__file__).parent / "golden"


def test_the_report_reads_as_it_did(
    run_cli: Run, trace_file: Traces, request: pytest.FixtureRequest
) -> None:
    done = run_cli("split", trace_file("small_graph"), "--layers", "8", "--closing", "2")
    golden = GOLDEN / "split_small_graph.txt"
    if request.config.getoption("--update-docs"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(done.stdout, encoding="utf-8")
    assert done.stdout == golden.read_text(encoding="utf-8")


def test_every_shipped_trace_is_read(run_cli: Run, trace_file: Traces) -> None:
    for packed in sorted(TRACES.glob("*.sqlite.xz")):
        account = split(run_cli, trace_file(packed.name.removesuffix(".sqlite.xz")))
        assert account["rounds"]["verdict"] != "inconsistent", packed.name


def test_a_role_for_a_graph_that_is_not_there_is_refused(run_cli: Run, trace_file: Traces) -> None:
    done = run_cli("split", trace_file("small_graph"), "--graph-role", "7=verify")
    assert done.returncode == 2
    assert done.stderr == (
        "--graph-role 7: no such executable graph in this trace; it launches 2\n"
    )


def test_a_sum_of_different_jobs_says_why_it_has_no_rounds(
    run_cli: Run, trace_file: Traces
) -> None:
    done = run_cli("split", trace_file("twoproc"), "--pid", "all")
    assert "no split: the processes have different numbers of rounds" in done.stdout
    assert "cannot be told apart" not in done.stdout
    assert "next: look at one process with --pid" in done.stdout


def test_a_registry_that_names_no_verify_kernel_does_not_deny_rounds_inside_graphs(
    run_cli: Run, trace_file: Traces, tmp_path: Path
) -> None:
    trace, mine = trace_file("torch_graphs_nvtx"), tmp_path / "mine.toml"
    done = run_cli("registry", "suggest", trace, "--name", "mine", "-o", mine)
    assert done.returncode == 0, done.stderr
    own = ("--registry", str(mine), "--engine", "mine", "--ignore", "nvtx")
    account = split(run_cli, trace, *own)
    assert account["rounds"]["value"] != 0


@pytest.mark.parametrize(
    ("n_ok", "verdict", "severity"),
    [
        ("5,5,5,5", "exact", None),
        ("5,5,5,4", "exact", "info"),
        ("5,5,4,4", "inconsistent", "warning"),
    ],
)
def test_a_histogram_may_lack_the_pass_that_an_engine_launched_ahead(
    n_ok: str, verdict: str, severity: str | None, run_cli: Run, trace_file: Traces
) -> None:
    account = split(run_cli, trace_file("vllm_eagle_graph"), "--n-ok", n_ok)
    assert (account["rounds"]["value"], account["rounds"]["verdict"]) == (20, verdict)
    differ = [f for f in account["findings"] if f["kind"] == "histogram-rounds-differ"]
    assert [f["severity"] for f in differ] == ([severity] if severity else [])
