"""The article's own case: every figure from the rows of the fixture and the options given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Run

from fixtures import article

OPTIONS = ("--layers", "64", "--n-ok", "27,2,6,7", "--step-ms", "13.232", "--wall-ms", "1508.03")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("article") / "article.sqlite"
    article.write(path)
    return path


@pytest.fixture
def account(run_cli: Run, trace: Path) -> dict:
    done = run_cli("split", trace, *OPTIONS, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def buckets(account: dict) -> dict[str, dict]:
    return {b["bucket"]: b for b in account["buckets"]}


def test_42_rounds_are_proven_with_the_head_found(account: dict) -> None:
    rounds = account["rounds"]
    assert (rounds["value"], rounds["verdict"]) == (42, "exact")
    assert rounds["layers"] == {"all": 64, "gdn": 48}
    counted = {s["pattern"]: s for s in rounds["signatures"]}
    head = counted["k_rq_q4_gemv_mr<2, 3>"]
    assert (head["instances"], head["per_layer"], head["per_round"]) == (2730, 1, 1)
    assert counted["k_rq_q4_gemv_mr<4, 3>"]["instances"] == 8064
    assert sum(s["kind"] == "gdn" and s["instances"] == 2016 for s in rounds["signatures"]) == 6


def test_draft_counts_that_are_not_whole_are_shown_with_their_remainder(account: dict) -> None:
    counted = {s["pattern"]: s for s in account["rounds"]["signatures"]}
    assert counted["k_rq_q4_gemv_mr<1, 1>"]["detail"] == "633 = 5 x 126 draft steps + 3"
    assert counted["k_rq_q4_gemv3"]["detail"] == "380 = 3 x 126 draft steps + 2"
    assert counted["k_rq_q4_gemv3"]["rounds"] is None


def test_the_split_in_milliseconds(account: dict) -> None:
    b = buckets(account)
    assert b["verify"]["by_basis"]["exclusive"] / 1e6 == pytest.approx(672.30, abs=0.005)
    assert b["verify"]["gpu_ns"] / 1e6 == pytest.approx(712.0, abs=0.05)
    assert b["verify"]["ns_per_round"] / 1e6 == pytest.approx(17.0, abs=0.05)
    assert b["draft"]["gpu_ns"] / 1e6 == pytest.approx(90.97, abs=0.005)
    assert b["draft"]["ns_per_round"] / 1e6 == pytest.approx(2.17, abs=0.005)
    assert b["replay"]["gpu_ns"] == 0
    assert b["replay"]["by_basis"] == {"arithmetic": 41 * 13_232_000}
    assert b["replay"]["by_basis"]["arithmetic"] / 1_508_030_000 == pytest.approx(0.36, abs=0.0005)


def test_gdn_is_12_percent_of_verify_and_5_67_of_the_wall(account: dict) -> None:
    gdn = sum(
        k["gpu_ns"] for k in account["kernels"] if k["bucket"] == "verify" and k["family"] == "gdn"
    )
    assert gdn / buckets(account)["verify"]["gpu_ns"] == pytest.approx(0.120, abs=0.0005)
    assert gdn / account["window"]["wall_ns"] == pytest.approx(0.0567, abs=0.00005)


def test_the_residual_is_a_range_over_what_was_not_classified(account: dict) -> None:
    w = account["window"]
    assert w["wall_how"] == "given"
    assert w["residual_low_ns"] / 1e6 == pytest.approx(150.3, abs=0.05)
    assert w["residual_high_ns"] / 1e6 == pytest.approx(162.5, abs=0.06)
    assert w["residual_low_ns"] / w["wall_ns"] == pytest.approx(0.100, abs=0.0005)
    assert w["residual_high_ns"] / w["wall_ns"] == pytest.approx(0.108, abs=0.0005)


def test_the_299_blind_launches_reconcile(run_cli: Run, trace: Path) -> None:
    plan = "prefill=96 decode=64 prefill=96 rounds closing=2"
    done = run_cli("split", trace, *OPTIONS, "--plan", plan, "--format", "json")
    account = json.loads(done.stdout)
    found = {f["kind"]: f["detail"] for f in account["findings"]}
    assert (
        found["graph-launches"]
        == "299 = 96 prefill + 64 decode + 96 prefill + 41 replay + 2 closing"
    )
    assert "less than" in found["kernel-time-below-wall"]
    assert [g["state"] for g in account["graphs"]] == ["blind"]
    hidden = {s["bucket"]: s["count"] for s in account["blind_spots"] if s["kind"] == "graph-blind"}
    assert hidden == {"prefill": 192, "decode": 64, "replay": 41, "plain": 2}


def test_without_a_step_time_the_host_bounds_it(run_cli: Run, trace: Path) -> None:
    done = run_cli("split", trace, "--layers", "64", "--closing", "2", "--format", "json")
    replay = buckets(json.loads(done.stdout))["replay"]
    assert set(replay["by_basis"]) == {"bound"}
    assert replay["by_basis"]["bound"] > 0


def test_the_text_says_what_a_reader_must_know(run_cli: Run, trace: Path) -> None:
    out = " ".join(run_cli("split", trace, *OPTIONS).stdout.split())
    for words in (
        "42 rounds, proven by counting",
        "672.30 exclusive",
        "542.51 arithmetic (41 steps x 13.232 ms)",
        "10.0..10.8 %",
        "gdn 12.0 %",  # of verify
        "gdn 5.67 %",
        "not whole (633 = 5 x 126 draft steps + 3)",
    ):
        assert words in out
