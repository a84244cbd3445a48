"""Acceptance figures: worked numbers, bounds against brute force, comparison with a trace, the CLI."""

import itertools
import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from nsysacct import acceptance as acc
from nsysacct.cli.acceptance import command
from nsysacct.errors import LogError, UsageError
from nsysacct.logs import read_log
from nsysacct.scenarios import LOW_RATE, advise, by_scenario, conditional_rate
from nsysacct.semantics import REPLAY_STEPS, TOKENS, replay_steps_of, tokens_of

LOGS = Path(__file__).parent / "logs"
ARTICLE = [27, 2, 6, 7]
KESTREL = "n_ok = {}\n"


def kestrel(n_ok):
    return read_log(KESTREL.format(" / ".join(f"{i}:{c}" for i, c in enumerate(n_ok))))


# --- figures


def test_the_articles_figures():
    assert acc.mean_n_ok(ARTICLE) == pytest.approx(35 / 42)
    assert acc.expected_length(ARTICLE) == pytest.approx(1.833, abs=5e-4)
    assert acc.expected_length(ARTICLE, "max(n_ok,1)") == pytest.approx(1.476, abs=5e-4)
    found = [(p.cumulative, p.conditional) for p in acc.positions(ARTICLE)]
    assert [(c.successes, c.trials) for c, _ in found] == [(15, 42), (13, 42), (7, 42)]
    assert [(a.successes, a.trials) for _, a in found] == [(15, 42), (13, 15), (7, 13)]
    assert [round(a.share, 3) for _, a in found] == [0.357, 0.867, 0.538]


@given(st.lists(st.integers(0, 30), min_size=2, max_size=7).filter(any))
def test_rates_hang_together(n_ok):
    rounds, chain = sum(n_ok), 1.0
    for position in acc.positions(n_ok):
        if position.conditional.share is None:
            assert position.conditional.trials == 0 and position.cumulative.share == 0
            continue
        chain *= position.conditional.share
        assert position.cumulative.share == pytest.approx(chain, abs=1e-12)
        assert position.cumulative.trials == rounds
    shares = [p.cumulative.share for p in acc.positions(n_ok)]
    assert sum(shares) == pytest.approx(acc.mean_n_ok(n_ok))


def test_pooled_alpha_is_the_likelihoods_maximum():
    fit = acc.pooled_alpha(ARTICLE)

    def log_likelihood(alpha):
        k = len(ARTICLE) - 1
        return sum(
            c * (n * math.log(alpha) + (math.log(1 - alpha) if n < k else 0))
            for n, c in enumerate(ARTICLE)
        )

    best = max((i / 1000 for i in range(1, 1000)), key=log_likelihood)
    assert fit.share == pytest.approx(best, abs=1e-3)


@pytest.mark.parametrize("n_ok", [[], [3], [0, 0], [2, -1]])
def test_no_histogram(n_ok):
    with pytest.raises(UsageError, match="is no histogram"):
        acc.positions(n_ok)


# --- intervals


def test_wilson_against_the_score_test_it_inverts():
    for successes, trials in ((0, 7), (3, 7), (7, 7), (41, 200)):
        low, high = acc.wilson(successes, trials)
        share = successes / trials
        for end in (low, high):
            if 0 < end < 1:
                z = abs(share - end) / math.sqrt(end * (1 - end) / trials)
                assert z == pytest.approx(1.959964, abs=1e-5)
        assert 0 <= low <= share <= high <= 1


def test_wilson_edges():
    assert acc.wilson(0, 0) == (None, None)
    assert acc.wilson(0, 5)[0] == 0.0 and acc.wilson(5, 5)[1] == 1.0
    with pytest.raises(UsageError):
        acc.wilson(6, 5)
    with pytest.raises(UsageError):
        acc.wilson(1, 5, confidence=1.0)


def test_rate_takes_the_round_as_the_sample():
    all_or_nothing = acc.acceptance_rate(30, 60, rounds=20, n_ok=[10, 0, 0, 10])
    assert all_or_nothing.effective == pytest.approx(20)
    even = acc.acceptance_rate(30, 60, rounds=20, n_ok=[0, 10, 10, 0])
    assert even.effective == 60  # never better than independent drafts
    unknown = acc.acceptance_rate(30, 60, rounds=20)
    assert (unknown.low, unknown.high) == (all_or_nothing.low, all_or_nothing.high)
    assert even.low > all_or_nothing.low
    assert acc.acceptance_rate(0, 0).share is None


# --- bounds


def brute_force(rounds, accepted, k, function):
    values = [
        sum(function(n) for n in drawn)
        for drawn in itertools.combinations_with_replacement(range(k + 1), rounds)
        if sum(drawn) == accepted
    ]
    return min(values) / rounds, max(values) / rounds


def function_named(name, k):
    """A function of n_ok: a rule of semantics, P(n_ok = 0), or one without any order."""
    for rules in (TOKENS, REPLAY_STEPS):
        if name in rules:
            return lambda n: rules[name](n, k)
    return {"zero": lambda n: float(n == 0), "odd": lambda n: (n * 7 % 5) - n / 3}[name]


@pytest.mark.parametrize("name", [*TOKENS, *REPLAY_STEPS, "zero", "odd"])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_bounds_of_whole_rounds_are_the_extremes(name, k):
    function = function_named(name, k)
    for rounds in range(1, 8 if k > 3 else 11):
        for accepted in range(rounds * k + 1):
            found = acc.bounds(accepted / rounds, k, function, rounds)
            low, high = brute_force(rounds, accepted, k, function)
            assert (found.low, found.high) == pytest.approx((low, high))
            for n_ok, value in ((found.low_n_ok, low), (found.high_n_ok, high)):
                assert min(n_ok) >= 0 and sum(n_ok) == rounds
                assert sum(n * c for n, c in enumerate(n_ok)) == accepted
                assert sum(c * function(n) for n, c in enumerate(n_ok)) / rounds == pytest.approx(
                    value
                )


def best_by_all_histograms(values, rounds, accepted):
    """Greatest sum of values over `rounds` draws that add up to `accepted`, without shortcuts."""
    best = {0: 0.0}
    for _ in range(rounds):
        after = {}
        for total, value in best.items():
            for n, gain in enumerate(values):
                after[total + n] = max(after.get(total + n, -math.inf), value + gain)
        best = after
    return best[accepted]


@given(st.lists(st.integers(-9, 9), min_size=2, max_size=7), st.integers(1, 45), st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_bounds_of_any_function_are_the_extremes(values, rounds, part):
    k = len(values) - 1
    accepted = round(part * k * rounds)
    found = acc.bounds(accepted / rounds, k, values.__getitem__, rounds)
    assert found.high * rounds == pytest.approx(best_by_all_histograms(values, rounds, accepted))
    negated = [-v for v in values]
    assert -found.low * rounds == pytest.approx(best_by_all_histograms(negated, rounds, accepted))


@given(st.integers(1, 6), st.integers(1, 400), st.data())
@settings(max_examples=60, deadline=None)
def test_bounds_of_many_rounds_approach_the_shares(k, rounds, data):
    accepted = data.draw(st.integers(0, rounds * k))
    function = function_named("odd", k)
    mean = accepted / rounds
    whole, free = acc.bounds(mean, k, function, rounds), acc.bounds(mean, k, function)
    spread = max(map(function, range(k + 1))) - min(map(function, range(k + 1)))
    assert free.low - 1e-9 <= whole.low <= free.low + k * spread / rounds + 1e-9
    assert free.high + 1e-9 >= whole.high >= free.high - k * spread / rounds - 1e-9
    assert sum(whole.low_n_ok) == rounds
    assert sum(free.low_n_ok) == pytest.approx(1)
    assert sum(n * s for n, s in enumerate(free.high_n_ok)) == pytest.approx(mean)


def test_bounds_of_the_articles_other_engine():
    # 36 drafts accepted in 26 rounds of 3: what its log leaves open
    zero = acc.bounds(36 / 26, 3, lambda n: float(n == 0), rounds=26)
    assert (zero.low, round(zero.high, 3)) == (0.0, 0.538)
    tokens = acc.bounds(36 / 26, 3, function_named("max(n_ok,1)", 3), rounds=26)
    assert 62 / tokens.high == pytest.approx(32.2, abs=0.05)
    assert 62 / tokens.low == pytest.approx(44.8, abs=0.05)
    shares = acc.constant_alpha_shares(36 / 26, 3)
    assert [round(s, 3) for s in shares] == [0.340, 0.224, 0.148, 0.288]


@given(st.integers(1, 8), st.floats(0, 1))
def test_constant_alpha_has_the_mean(k, part):
    shares = acc.constant_alpha_shares(part * k, k)
    assert sum(shares) == pytest.approx(1)
    assert sum(n * s for n, s in enumerate(shares)) == pytest.approx(part * k, abs=1e-9)


@pytest.mark.parametrize("mean", [-0.1, 3.2])
def test_means_that_cannot_be(mean):
    with pytest.raises(UsageError, match=r"is not in 0\.\.3"):
        acc.bounds(mean, 3, float)
    with pytest.raises(UsageError, match=r"is not in 0\.\.3"):
        acc.constant_alpha_shares(mean, 3)


# --- summaries


def test_summary_with_a_histogram_is_exact():
    summary = acc.summarise(kestrel(ARTICLE).counters)
    assert (summary.rounds, summary.k, summary.accepted, summary.drafted) == (42, 3, 35, 126)
    for rule, found in summary.tokens.items():
        assert found.low == found.high == pytest.approx(tokens_of(ARTICLE, rule) / 42)
    for rule, found in summary.replay_steps.items():
        assert found.low == found.high == pytest.approx(replay_steps_of(ARTICLE, rule) / 42)
    assert summary.p_zero.low == pytest.approx(27 / 42)


def test_summary_without_a_histogram_has_bounds():
    summary = acc.summarise(read_log(LOGS / "sglang.log").counters)
    assert summary.rounds is None and summary.rate is None and summary.positions == []
    assert summary.mean == pytest.approx(1.4)
    assert summary.printed_rate == pytest.approx(0.35)
    assert 0 == summary.p_zero.low < summary.p_zero.high == pytest.approx(1 - 1.4 / 4)


def test_summary_of_totals_alone():
    summary = acc.summarise(read_log(LOGS / "ik_llama.log").counters)
    assert (summary.rate.successes, summary.rate.trials) == (17, 40)
    assert summary.mean is None and summary.p_zero is None and summary.tokens == {}


@pytest.mark.parametrize("path", sorted(LOGS.iterdir()), ids=lambda p: p.name)
def test_readings_become_the_accounts_acceptance(path):
    reading = read_log(path)
    found = acc.to_model(reading)
    assert (found.source, found.rounds, found.n_ok) == (
        "log", reading.counters.rounds, reading.counters.n_ok,
    )  # fmt: skip
    if found.n_ok is not None:
        assert sum(found.n_ok) == found.rounds
        assert sum(found.per_position) * found.rounds == pytest.approx(found.accepted)


# --- log against trace


def test_a_log_that_agrees_with_the_trace():
    assert acc.contradictions(read_log(LOGS / "vllm.log"), 43) == []
    assert acc.contradictions(read_log(LOGS / "sglang.log"), 43) == []  # tells no rounds


@pytest.mark.parametrize(
    ("rounds", "severity", "words"),
    [
        (44, "info", "one more than it uses"),
        (12, "info", "line 4 alone"),
        (13, "info", "line 4 alone"),
        (31, "info", "--lines 2:2"),
        (20, "warning", "2.15 a pass"),
        (50, "warning", "the log holds less"),
        (0, "warning", "same run"),
    ],
)
def test_a_log_that_differs_from_the_trace(rounds, severity, words):
    (finding,) = acc.contradictions(read_log(LOGS / "vllm.log"), rounds)
    assert finding.kind == "log-rounds-differ" and finding.severity == severity
    assert words in f"{finding.detail}; {finding.remedy}"


def test_speculation_that_the_log_says_did_not_run():
    reading = read_log("speculative_config=None\n")
    assert acc.contradictions(reading, 0) == []
    assert acc.contradictions(reading, 9)[0].severity == "warning"


def test_rounds_within_what_the_log_allows():
    text = (
        "SpecDecoding metrics: Mean acceptance length: 1.00, Accepted: 2 tokens, "
        "Drafted: 2999 tokens, Per-position acceptance rate: 0.002, 0.000, 0.000\n"
    )
    reading = read_log(text)
    assert reading.counters.rounds != 1001
    assert acc.contradictions(reading, 1001) == []
    assert acc.contradictions(reading, 5000) != []


# --- scenarios


def test_advice_needs_the_whole_interval():
    assert advise((0.40, 0.35, 0.45))[0] == "drop"
    assert advise((0.40, 0.30, LOW_RATE))[0] == "open"
    assert advise((0.60, LOW_RATE, 0.70))[0] == "keep"
    advice, why = advise((0.45, 0.30, 0.60))
    assert advice == "open" and "about 380 tested drafts" in why
    assert advise((0.40, None, None)) == ("open", "no counts, so no interval")
    assert advise((None, None, None))[0] == "open"


def test_the_trials_that_advice_asks_for_would_decide():
    for share in (0.3, 0.45, 0.55, 0.8):
        why = advise((share, 0.1, 0.9))[1]
        trials = int(why.split("about ")[1].split()[0])
        low, high = acc.wilson(1.05 * trials * share, 1.05 * trials)
        assert not low < LOW_RATE < high


def test_conditional_rate_without_histogram_comes_from_the_totals():
    text = "n_draft   = 3\nn_drafted = 300\nn_accept  = 60\n"
    alpha, low, high = conditional_rate(acc.summarise(read_log(text).counters))
    assert low < alpha < high < LOW_RATE
    assert sum(alpha**j for j in (1, 2, 3)) == pytest.approx(3 * 60 / 300)


def test_logs_of_one_scenario_are_taken_together():
    few, many = kestrel([3, 1, 1]), kestrel([40, 12, 8])
    found = by_scenario(
        [("chat", "a", few), ("code", "b", kestrel([1, 2, 90])), ("chat", "c", many)]
    )
    assert [(s.name, s.logs, s.advice) for s in found] == [
        ("chat", ("a", "c"), "drop"),
        ("code", ("b",), "keep"),
    ]
    assert found[0].summary.rounds == 65
    # k differs: their positions are not the same thing
    assert len(by_scenario([("x", "a", few), ("x", "b", kestrel([1, 1, 1, 1]))])) == 2


# --- the command


def run(*arguments, input=None):
    return CliRunner().invoke(command, [str(a) for a in arguments], input=input)


def test_one_log_as_text():
    result = run(LOGS / "kestrel.log")
    assert result.exit_code == 0
    first = result.output.splitlines()[0]
    assert first.startswith("kestrel.log (kestrel): 1.320 of 4 drafts accepted a round; 33 of 100")
    assert "10/16" in result.output  # alpha_2 over those that accepted one
    assert "10/25" in result.output  # p_2 over all rounds


def test_stdin_and_json():
    result = run("-", "--format", "json", input=(LOGS / "vllm.log").read_bytes())
    document = json.loads(result.output)
    assert document["schema"] == {"kind": "nsysacct/acceptance", "version": 1}
    assert document["log"] == "stdin"
    assert document["reading"]["counters"]["n_ok"] == [6, 13, 12, 6, 6]
    assert document["summary"]["positions"][1]["conditional"]["trials"] == 37


def test_rounds_of_a_trace_and_the_remedy_it_names():
    assert "--lines 4:4" in run(LOGS / "vllm.log", "--rounds", 12).output
    assert "note:" not in run(LOGS / "vllm.log", "--rounds", 12, "--lines", "4:4").output


def test_csv_and_markdown():
    rows = run(LOGS / "kestrel.log", "--format", "csv").output.splitlines()
    assert len(rows) == 5 and rows[2].startswith("2,10/25,0.400")
    assert "| j | of all rounds |" in run(LOGS / "kestrel.log", "--format", "markdown").output


def test_short_drafts_are_said():
    assert "1 drafts fewer than 3 each" in run(LOGS / "llama_server.log").output
    assert "fewer than" not in run(LOGS / "llama_slots.log").output


def test_logs_without_histogram_or_rounds():
    output = run(LOGS / "sglang.log").output
    assert "rounds not told" in output and "least and most that the mean allows" in output
    assert run(LOGS / "ik_llama.log").exit_code == 0


def test_several_logs_by_scenario(tmp_path):
    low, high = tmp_path / "low.log", tmp_path / "high.log"
    low.write_text(KESTREL.format("0:200 / 1:40 / 2:10"))
    high.write_text(KESTREL.format("0:5 / 1:15 / 2:180"))
    arguments = (low, high, "--label", "scenario=chat", "--label", "scenario=code")
    output = run(*arguments).output
    assert output.splitlines()[0] == "drop speculation for: chat"
    assert "section 5.2" in output and "threshold 0.5" in output
    document = json.loads(run(*arguments, "--format", "json").output)
    assert [s["advice"] for s in document["scenarios"]] == ["drop", "keep"]
    assert run(high, high).output.splitlines()[0].startswith("nothing to drop")


def test_a_small_sample_below_the_threshold_is_left_open(tmp_path):
    small = tmp_path / "small.log"
    small.write_text(KESTREL.format("0:5 / 1:2 / 2:1"))
    output = run(small, LOGS / "kestrel.log", "--label", "a", "--label", "b").output
    assert "nothing to drop; open for: a" in output.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-", "-"], "stdin can be read once"),
        ([LOGS / "vllm.log", "--label", "a", "--label", "b"], "2 labels for 1 logs"),
        ([LOGS / "vllm.log", "--label", "scenario="], "is empty"),
        ([LOGS / "vllm.log", LOGS / "vllm.log", "--rounds", 3], "needs one log"),
        ([LOGS / "vllm.log", "--lines", "x"], "cannot read 'x'"),
        ([LOGS / "vllm.log", "--lines", ":"], "cannot read ':'"),
        ([LOGS / "vllm.log", "--lines", "5:2"], "holds no line"),
    ],
)
def test_wrong_usage(arguments, words):
    result = run(*arguments)
    assert isinstance(result.exception, UsageError)
    assert words in str(result.exception)


def test_unknown_log_is_no_verdict(tmp_path):
    path = tmp_path / "other.log"
    path.write_text("tokens per second: 5\n")
    result = run(path)
    assert isinstance(result.exception, LogError) and result.exception.exit_code == 3
    assert str(result.exception).startswith("other.log: no known acceptance lines")
