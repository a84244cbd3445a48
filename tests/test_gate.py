"""The gate: a table of pairs with the right verdict, and its error rates in simulation."""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from conftest import ROOT
from gate_cases import (
    GEMV,
    base_account,
    flagged_outlier,
    longer_residual,
    more_launches,
    more_unattributed,
    noise,
    on_verify_gemv,
    repeated,
    sides,
    slower,
    speculation_off,
    then,
    timed_graphs,
    trace_account,
    with_blind_spot,
    with_engine,
    with_labels,
    with_rounds,
    with_trace,
)
from msgspec.structs import replace

from nsysacct.errors import UsageError
from nsysacct.gate import judge
from nsysacct.limits import DEFAULTS, load_limits, parse_limit
from nsysacct.metric_names import parse_metric
from nsysacct.metrics import figure

FIVE_PERCENT = [
    "verify.ns_per_round:+5%",
    "draft.ns_per_round:+5%",
    "replay.ns_per_round:+5%",
    "total.ns_per_round:+5%",
    "residual.ns_per_round:+20%",
    "unattributed.share:+2pp",
    "verify.events_per_round:+0",
]

same = then()
seed = random.Random(11)

# name, change to the head, limits (None: the table's), outcome, exit code, text in a reason
PAIRS = [
    ("the same capture", same, None, "pass", 0, ""),
    ("equal cost, twice as long", repeated(2), None, "pass", 0, ""),
    ("equal cost, eleven times as long", repeated(11), None, "pass", 0, ""),
    ("verify +3 %", slower("verify", 1.03), None, "pass", 0, ""),
    ("verify +10 %", slower("verify", 1.10), None, "fail", 1, "slower launches"),
    ("draft +3 %", slower("draft", 1.03), None, "pass", 0, ""),
    ("draft +10 %", slower("draft", 1.10), None, "fail", 1, "draft gemv"),
    ("replay +3 %", slower("replay", 1.03), None, "pass", 0, ""),
    ("replay +10 %", slower("replay", 1.10), None, "fail", 1, "k_rq_q4_gemv3"),
    ("prefill +10 % is in no round", slower("prefill", 1.10), None, "pass", 0, ""),
    ("prefill +3 %", slower("prefill", 1.03), ["prefill.ns_per_run:+5%"], "pass", 0, ""),
    ("prefill +10 %", slower("prefill", 1.10), ["prefill.ns_per_run:+5%"], "fail", 1, "k_gemm"),
    ("plain +3 %", slower("plain", 1.03), ["step.plain.gpu_ns_per_step:+5%"], "pass", 0, ""),
    ("plain +10 %", slower("plain", 1.10), ["step.plain.gpu_ns_per_step:+5%"], "fail", 1, "+10"),
    ("other +10 %", slower("other", 1.10), ["other.ns_per_run:+5%"], "fail", 1, "k_fill"),
    ("a tenth unattributed", more_unattributed(0.1), None, "fail", 1, "unattributed.share"),
    ("residual +10 %", longer_residual(1.10), None, "pass", 0, ""),
    ("residual +50 %", longer_residual(1.50), None, "fail", 1, "residual.ns_per_round"),
    ("one more GEMV a layer", on_verify_gemv(more_launches, 129 / 65), None, "fail", 1,
     "more launches: 65 → 129 launches a round, 200 us → 200 us each"),
    ("one more GEMV, none slower", on_verify_gemv(more_launches, 66 / 65),
     ["verify.gemv.instances_per_round:+0"], "fail", 1, "66"),
    ("fewer, slower launches",
     then(on_verify_gemv(more_launches, 0.5), on_verify_gemv(slower, 2.4)),
     ["verify.gemv.ns_per_round:+5%"], "fail", 1, "slower launches"),
    ("faster verify", slower("verify", 0.8), None, "pass", 0, ""),
    ("noise only", noise(seed), None, "pass", 0, ""),
    ("noise only, longer", then(noise(seed), repeated(3)), None, "pass", 0, ""),
    ("one round an outlier", flagged_outlier, None, "pass", 0, ""),
    ("other granularity", timed_graphs, None, "no verdict", 3, "another granularity"),
    ("other GPU", with_trace(gpu="NVIDIA L4"), None, "no verdict", 3, "another GPU"),
    ("other engine", with_engine(name="vllm"), None, "no verdict", 3, "another engine"),
    ("other registry", with_engine(registry_digest="sha256:2"), None, "no verdict", 3,
     "another registry digest"),
    ("other label", with_labels(quant="q8"), None, "no verdict", 3, "another labels"),
    ("one label more", with_labels(concurrency="4"), None, "no verdict", 3, "concurrency=4"),
    ("other layers", with_rounds(layers={"all": 32}), None, "no verdict", 3, "another layers"),
    ("other width", with_rounds(width=4), None, "no verdict", 3, "verifies 4 rows"),
    ("other width, per token", with_rounds(width=4), ["verify.ns_per_token:+5%"], "pass", 0, ""),
    ("lost tail", with_blind_spot("lost-tail", "fatal"), None, "no verdict", 3, "lost-tail"),
    ("a minor blind spot", with_blind_spot("x", "warning", 1000), None, "pass", 0, ""),
    ("speculation off", speculation_off, None, "no verdict", 3, "speculation is off"),
    ("rounds not proven", with_rounds(verdict="inconsistent"), None, "no verdict", 3,
     "not proven"),
    ("slower on another GPU", then(slower("verify", 2), with_trace(gpu="T4")), None, "no verdict",
     3, "another GPU"),
    ("under a cap", same, ["verify.ns_per_round:<=20ms"], "pass", 0, ""),
    ("over a cap", same, ["verify.ns_per_round:<=100us"], "fail", 1, "above 100 us"),
    ("fewer tokens", lambda a: replace(a, acceptance=replace(a.acceptance, n_ok=[42, 0, 0, 0])),
     ["tokens.per_round:-3%"], "fail", 1, "tokens.per_round"),
    ("more time, within us", slower("draft", 1.05), ["draft.ns_per_round:+20us"], "pass", 0, ""),
    ("more time, beyond us", slower("draft", 1.20), ["draft.ns_per_round:+20us"], "fail", 1, "us"),
    ("no log", lambda a: replace(a, acceptance=None), ["verify.ns_per_token:+5%"], "no verdict", 3,
     "not known in head0.json"),
    ("computed against measured",
     lambda a: replace(a, buckets=[replace(b, by_basis={"arithmetic": b.gpu_ns}, gpu_ns=0)
                                   if b.bucket == "replay" else b for b in a.buckets]),
     ["replay.ns_per_round:+5%"], "no verdict", 3,
     "measured in the base and computed in the head"),
]  # fmt: skip


table = pytest.mark.parametrize(
    ("change", "limits", "outcome", "code", "says"),
    [pair[1:] for pair in PAIRS],
    ids=[pair[0] for pair in PAIRS],
)


def judged(base, change, limits, captures):
    texts = limits or FIVE_PERCENT
    return judge(
        sides("base", *[base] * captures),
        sides("head", *[change(base)] * captures),
        [parse_limit(text) for text in texts],
    )


@table
@pytest.mark.parametrize("captures", [1, 5])
def test_table_of_pairs(captures, change, limits, outcome, code, says):
    verdict = judged(base_account(), change, limits, captures)
    assert (verdict.outcome, verdict.exit_code) == (outcome, code), verdict.reasons
    assert says in "\n".join(verdict.reasons)
    assert verdict.single_capture == (captures == 1)


@pytest.fixture(scope="module")
def real_account(trace_file):
    account = trace_account(trace_file("small_node_nvtx"), layers={"all": 8}, n_ok=(5, 1, 2, 2))
    return replace(account, labels={"model": "m8"})


real_table = pytest.mark.parametrize(
    ("change", "limits", "outcome", "code"),
    [pair[1:5] for pair in PAIRS if not pair[0].startswith("plain")],
    ids=[pair[0] for pair in PAIRS if not pair[0].startswith("plain")],
)
"""With its NVTX ranges the trace's plain steps are prefill and decode."""


@real_table
@pytest.mark.parametrize("captures", [1, 5])
def test_table_of_pairs_on_a_real_trace(captures, change, limits, outcome, code, real_account):
    verdict = judged(real_account, change, limits, captures)
    assert (verdict.outcome, verdict.exit_code) == (outcome, code), verdict.reasons


def without_copies(trace: Path, folder: Path) -> Path:
    """A copy of a trace in which no copies to the host show: its last replay is a guess."""
    target = Path(shutil.copy(trace, folder / f"{trace.stem}_without_copies.sqlite"))
    with closing(sqlite3.connect(target)) as db, db:
        db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 2")
    return target


def test_pairs_of_real_traces(trace_file, tmp_path):
    """Captures as they are: another granularity, other evidence, speculation silently off."""
    eight = {
        name: trace_account(trace_file(name), layers={"all": 8})
        for name in ("small_graph", "small_nvtx", "small_node_nvtx")
    }
    eight["guessed"] = trace_account(
        without_copies(trace_file("small_graph"), tmp_path), layers={"all": 8}
    )
    reasons = {}
    for head in ("small_nvtx", "small_node_nvtx"):
        for base in ("small_graph", "guessed", "small_nvtx"):
            verdict = judge(sides("base", eight[base]), sides("head", eight[head]))
            reasons[base, head] = verdict.exit_code, " ".join(verdict.reasons)
    assert reasons["small_nvtx", "small_nvtx"][0] == 0
    assert reasons["small_nvtx", "small_node_nvtx"][0] == 3
    assert "another granularity" in reasons["small_nvtx", "small_node_nvtx"][1]
    assert reasons["small_graph", "small_nvtx"][0] == 0
    assert reasons["guessed", "small_nvtx"][0] == 3
    assert "estimated in the base and measured in the head" in reasons["guessed", "small_nvtx"][1]
    on = trace_account(trace_file("llama_B_spec_graph"), layers={"all": 16})
    off = trace_account(trace_file("llama_A_servernospec_graph"), layers={"all": 16})
    verdict = judge(sides("base", on), sides("head", off))
    assert verdict.exit_code == 3
    assert "speculation" in {obstacle.kind for obstacle in verdict.obstacles}


def test_the_same_program_measured_twice_differs_less_than_the_noise_floor(trace_file):
    """With and without NVTX: verify and draft are the same kernels on the same GPU."""
    names = ("small_graph", "small_nvtx")
    one, two = (trace_account(trace_file(name), layers={"all": 8}) for name in names)
    for name in ("verify.ns_per_round", "draft.ns_per_round"):
        ratio = figure(two, name).value / figure(one, name).value
        assert abs(ratio - 1) < parse_metric(name).floor


def test_table_is_large_enough():
    assert len(PAIRS) >= 30
    assert len({pair[0] for pair in PAIRS}) == len(PAIRS)


@pytest.mark.parametrize("captures", [2, 3])
def test_too_few_captures_are_no_verdict_and_say_how_many(captures):
    generator = random.Random(captures)
    base = [noise(generator)(base_account()) for _ in range(captures)]
    head = [noise(generator)(base_account()) for _ in range(captures)]
    verdict = judge(sides("base", *base), sides("head", *head))
    assert verdict.exit_code == 3
    assert "4 a side needed" in verdict.reasons[0]
    assert judge(sides("base", *base), sides("head", *head), confidence=0.6).exit_code != 3


def test_counts_are_exact_and_need_no_interval():
    base = [base_account() for _ in range(2)]
    head = [more_launches("verify", GEMV, 66 / 65)(base_account()) for _ in range(2)]
    limit = [parse_limit("verify.gemv.instances_per_round:+0")]
    assert judge(sides("base", *base), sides("head", *head), limit).exit_code == 1
    assert judge(sides("base", *base), sides("head", *base), limit).exit_code == 0


@pytest.mark.parametrize(("treat", "code"), [("no-verdict", 3), ("fail", 1), ("pass", 0)])
def test_inconclusive_is_what_the_user_says(treat, code):
    generator = random.Random(4)
    base = [noise(generator, 0.03)(base_account()) for _ in range(4)]
    head = [noise(generator, 0.03)(slower("verify", 1.04)(base_account())) for _ in range(4)]
    limits = [parse_limit("verify.ns_per_round:+4%")]
    verdict = judge(sides("base", *base), sides("head", *head), limits, inconclusive=treat)
    assert verdict.checks[0].outcome == "inconclusive"
    assert verdict.exit_code == code


def test_inconclusive_pass_never_excuses_an_unknown_figure():
    head = replace(base_account(), acceptance=None)
    limits = [parse_limit("verify.ns_per_token:+5%")]
    verdict = judge(sides("base", base_account()), sides("head", head), limits, inconclusive="pass")
    assert verdict.exit_code == 3


def test_fail_outweighs_inconclusive_limits():
    generator = random.Random(4)
    base = [noise(generator, 0.02)(base_account()) for _ in range(4)]
    head = [noise(generator, 0.02)(slower("verify", 1.5)(base_account())) for _ in range(4)]
    limits = [parse_limit("verify.ns_per_round:+5%"), parse_limit("draft.ns_per_round:+0.1%")]
    verdict = judge(sides("base", *base), sides("head", *head), limits)
    assert verdict.outcome == "fail"
    assert "inconclusive" in {check.outcome for check in verdict.checks}


def test_allowed_blind_spots_do_not_stop_a_verdict():
    head = with_blind_spot("lost-tail", "fatal", 1000)(base_account())
    found = judge(sides("base", base_account()), sides("head", head), allow=["lost-tail"])
    assert found.exit_code == 0


def test_inferred_rounds_are_proof_unless_exact_ones_are_asked_for():
    base, head = base_account(), with_rounds(verdict="inferred")(base_account())
    assert judge(sides("base", base), sides("head", head)).exit_code == 0
    strict = judge(sides("base", base), sides("head", head), rounds="exact")
    assert (strict.exit_code, strict.obstacles[0].kind) == (3, "rounds")


def test_defaults_pass_equal_runs_and_catch_ten_percent():
    base = sides("base", base_account())
    assert judge(base, sides("head", repeated(3)(base_account()))).exit_code == 0
    assert judge(base, sides("head", slower("verify", 1.1)(base_account()))).exit_code == 1
    assert [parse_limit(text).text for text in DEFAULTS] == list(DEFAULTS)


def test_default_limits_without_a_figure_are_left_out_with_a_note():
    spots = with_blind_spot("open", "warning", None)
    verdict = judge(sides("base", spots(base_account())), sides("head", spots(base_account())))
    assert verdict.outcome == "pass"
    assert any("blind.share" in note for note in verdict.notes)


def test_limits_are_not_tighter_than_the_metrics_own_noise():
    head = slower("verify", 1.008)(base_account())
    limits = [parse_limit("verify.ns_per_round:+0.1%")]
    verdict = judge(sides("base", base_account()), sides("head", head), limits)
    assert verdict.outcome == "pass"
    assert "noise floor" in verdict.checks[0].reason


def test_a_display_never_contradicts_the_verdict():
    head = slower("verify", 1.050001)(base_account())
    verdict = judge(
        sides("base", base_account()), sides("head", head), [parse_limit("verify.ns_per_round:+5%")]
    )
    assert verdict.outcome == "fail"
    assert "+5.00 %, limit" not in verdict.reasons[0]


def test_misspelt_families_are_usage_errors_not_passes():
    limits = [parse_limit("verify.gemmv.ns_per_round:+5%")]
    with pytest.raises(UsageError, match="attention, gdn, gemv, norm"):
        judge(sides("base", base_account()), sides("head", base_account()), limits)


def test_empty_sides_are_usage_errors():
    with pytest.raises(UsageError):
        judge([], sides("head", base_account()))


@pytest.mark.parametrize(
    "text",
    ["verify.ns_per_round", "verify.ns_per_round:5%", "verify.ns_per_round:+5", "nope:+5%",
     "verify.nope:+5%", "verify.share:+5ms", "verify.events_per_round:+5us", ":+5%", "",
     "verify.ns_per_round:<=5%", "verify.ns_per_round:+1e999x"],
)  # fmt: skip
def test_bad_limits_are_usage_errors(text):
    with pytest.raises(UsageError) as caught:
        parse_limit(text)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "kind", "amount", "upper"),
    [
        ("verify.ns_per_round:+5%", "relative", 0.05, True),
        ("tokens.per_round:-3%", "relative", 0.03, False),
        ("draft.ns_per_round:+50us", "absolute", 50_000, True),
        ("replay.ns_per_round:<=12.5ms", "cap", 12_500_000, True),
        ("tokens.per_round:>=2.5", "cap", 2.5, False),
        ("unattributed.share:+1pp", "absolute", 0.01, True),
        ("unattributed.share:<=2%", "cap", 0.02, True),
        ("verify.gemv.instances_per_layer_round:+0", "absolute", 0, True),
    ],
)
def test_limits(text, kind, amount, upper):
    limit = parse_limit(text)
    assert (limit.kind, limit.upper) == (kind, upper)
    assert limit.amount == pytest.approx(amount)


def test_limits_file(tmp_path):
    path = tmp_path / "limits.toml"
    path.write_text(
        'confidence = 0.9\ninconclusive = "fail"\nallow = ["lost-tail"]\nrounds = "exact"\n'
        '[limits]\n"verify.ns_per_round" = "+5%"\n'
        '"verify.gemv.instances_per_round" = ["+0", "<=130"]\n'
    )
    settings = load_limits(path)
    assert [limit.text for limit in settings.limits] == [
        "verify.ns_per_round:+5%",
        "verify.gemv.instances_per_round:+0",
        "verify.gemv.instances_per_round:<=130",
    ]
    assert (settings.confidence, settings.inconclusive) == (0.9, "fail")
    assert (settings.allow, settings.rounds) == (("lost-tail",), "exact")


@pytest.mark.parametrize(
    "text",
    ["x = 1", "[limits]\nfoo = '+5%'", "[limits]\n'verify.share' = 3", "limits = 3", "= =",
     "confidence = 2.0", "rounds = 3", "inconclusive = 'maybe'", "allow = 'x'"],
)  # fmt: skip
def test_bad_limits_files_are_usage_errors(tmp_path, text):
    path = tmp_path / "limits.toml"
    path.write_text(text)
    with pytest.raises(UsageError):
        load_limits(path)
    with pytest.raises(UsageError):
        load_limits(tmp_path / "missing.toml")


def test_figures():
    account = base_account()
    assert figure(account, "verify.gemv.instances_per_round").value == 65
    assert figure(account, "verify.gdn.instances_per_layer_round").value == 1
    assert figure(account, "verify.gemv.ns_per_instance").value == 200_000
    assert figure(account, "residual.ns_per_round").value == 1_500_000
    assert figure(account, "total.ns_per_round").value == sum(
        figure(account, f"{b}.ns_per_round").value for b in ("draft", "verify", "replay")
    )
    tokens = (27 + 2 + 6 * 2 + 7 * 3) / 42
    assert figure(account, "tokens.per_round").value == pytest.approx(tokens)
    assert figure(account, "verify.ns_per_token").value == pytest.approx(
        figure(account, "verify.ns_per_round").value / tokens
    )
    assert figure(account, "blind.share").value == 0
    assert figure(with_blind_spot("x", "warning")(account), "blind.share").value is None
    assert figure(account, "decode.gemv.ns_per_round").value is None


def test_flagged_rounds_are_left_out_of_per_round_figures():
    account = flagged_outlier(base_account())
    found = figure(account, "verify.ns_per_round")
    assert found.value == figure(base_account(), "verify.ns_per_round").value
    assert "41 of 42 rounds" in found.how


def test_rounds_that_replay_more_are_no_outliers():
    """A few dear rounds that differ by acceptance stay in, or a collapse would go unseen."""
    account = base_account(20)
    rows = [
        replace(row, replay_steps=3, replay_ns=row.replay_ns * 3, wall_ns=row.wall_ns * 2,
                flags=["outlier"]) if row.index < 4 else replace(row, replay_steps=1)
        for row in account.per_round
    ]  # fmt: skip
    account = replace(account, per_round=rows)
    found = figure(account, "replay.ns_per_round")
    assert "20 of 20" in found.how
    assert found.value == pytest.approx(64 * 90_000 * (16 + 4 * 3) / 20)


def test_metric_names_are_closed():
    for name in ("verify", "verify.", ".ns_per_round", "step.other.ns_per_step", "total.share"):
        with pytest.raises(UsageError):
            parse_metric(name)


RUNS = 120
"""Gates a cell of the table in docs/gate.md."""


def simulated(between: float) -> dict[str, list[str]]:
    """Outcomes of gates with 5 captures a side and the defaults: equal programs, verify +5 %."""
    generator = random.Random(2024)
    outcomes: dict[str, list[str]] = {"equal": [], "dearer": []}
    for _ in range(RUNS):
        base = [noise(generator, between)(base_account(8)) for _ in range(5)]
        for name, change in (("equal", same), ("dearer", slower("verify", 1.05))):
            head = [noise(generator, between)(change(base_account(8))) for _ in range(5)]
            outcomes[name].append(judge(sides("base", *base), sides("head", *head)).outcome)
    return outcomes


@pytest.mark.slow
def test_error_rates_in_simulation_are_those_of_the_page():
    page = (ROOT / "docs" / "gate.md").read_text("utf-8")
    rows = re.findall(r"^\| ([\d.]+) % \| (\d+) % \| (\d+) % \| (\d+) % \| (\d+) % \|$", page, re.M)
    assert len(rows) == 4
    for between, *shown in rows:
        found = simulated(float(between) / 100)
        rates = [
            found[name].count(outcome) / RUNS
            for name in ("equal", "dearer")
            for outcome in ("fail", "no verdict")
        ]
        assert rates == pytest.approx([int(text) / 100 for text in shown], abs=0.02), between
        assert rates[0] < 0.01, "a false alarm"
