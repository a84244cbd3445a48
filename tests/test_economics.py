from fractions import Fraction

import msgspec
import pytest
from article_account import BONUS, CHECKPOINT, KESTREL, PLAIN_MS, account, article
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nsysacct.breakeven import break_even
from nsysacct.economics import Model, calibrated, costs_of
from nsysacct.errors import UsageError
from nsysacct.histograms import at_other_k, normal, two_point_histograms
from nsysacct.model import StepCost
from nsysacct.whatif import Levers, what_if

H1 = Levers(acceptance=Fraction("1.385"))
H3 = Levers(no_replay=True)
H1_H3 = Levers(acceptance=Fraction("1.385"), no_replay=True)


@pytest.fixture
def costs():
    return costs_of(article())


def row(costs, levers):
    return what_if(costs, levers).rows[-1]


# --- the article, number by number ---------------------------------------------------------------


def test_the_article_run_as_measured(costs):
    assert (costs.rounds, costs.emitted, costs.tokens, costs.accepted) == (42, 62, 64, 35)
    assert costs.replay_ns == 542_512_000
    assert costs.rest_ns == 162_548_000
    assert costs.speedup == pytest.approx(0.562, abs=5e-4)
    assert costs.tokens_per_round == pytest.approx(1.476, abs=5e-4)
    assert costs.mean_accepted == pytest.approx(0.8333, abs=5e-5)
    assert costs.verify_ns / costs.rounds / 1e6 == pytest.approx(16.95, abs=5e-3)
    assert costs.draft_ns / costs.rounds / 1e6 == pytest.approx(2.166, abs=5e-4)
    assert costs.replay_ns / costs.wall_ns == pytest.approx(0.36, abs=5e-4)
    assert costs.rest_ns / costs.wall_ns == pytest.approx(0.108, abs=5e-4)


def test_two_tail_tokens_explain_part_of_the_rest(costs):
    assert any("2 of 64 tokens" in n and "26.46 ms of the 162.55 ms" in n for n in costs.notes)


def test_the_parts_as_printed_leave_ten_point_six_percent_of_the_run():
    missing = 1508.03 - 42 * (2.2 + 17.0 + 12.9)
    assert missing / 1508.03 == pytest.approx(0.106, abs=5e-4)


def test_the_true_gap_to_the_other_engine_is_42_over_26(costs):
    other = 1 + 36 / 26
    assert other / costs.tokens_per_round == pytest.approx(1.615, abs=5e-4)
    assert 42 / 26 == pytest.approx(other / costs.tokens_per_round, abs=1e-9)
    assert other / (1 + costs.mean_accepted) == pytest.approx(1.30, abs=5e-3)  # wrong ruler


def test_baseline_is_the_measured_wall(costs):
    result = what_if(costs, H1_H3)
    assert result.difference_ns == 0
    assert result.rows[0].corners[0].total_ns == 1_508_030_000
    assert result.rows[0].low == result.rows[0].high == costs.speedup


def test_no_replay_is_0_88_with_the_rest_kept_and_above_1_without(costs):
    found = row(costs, H3)
    assert found.corner("replay none, rest kept").speedup == pytest.approx(0.88, abs=5e-3)
    assert found.corner("rest dropped").speedup == pytest.approx(1.05, abs=5e-3)
    assert (found.low, found.high) == (
        found.corner("rest kept").speedup,
        found.corner("rest dropped").speedup,
    )


def test_h1_range_and_its_article_corner(costs):
    found = row(costs, H1)
    assert (round(found.low, 2), round(found.high, 2)) == (0.67, 0.82)
    assert found.corner("by hand").speedup == pytest.approx(0.82, abs=5e-3)
    assert found.corner("by hand").rounds == 32
    assert found.corner("by hand").total_ns == 1_027_200_000
    assert found.corner("A+1", "rest dropped").speedup == pytest.approx(0.819, abs=5e-4)
    # "measured baseline" in place of the parts: per round .73, fixed .71
    assert found.corner("A+1", "rest per round").speedup == pytest.approx(0.731, abs=5e-4)
    assert found.corner("A+1", "rest fixed").speedup == pytest.approx(0.708, abs=5e-4)


def test_h1_and_h3_range_and_its_article_corner(costs):
    found = row(costs, H1_H3)
    assert (round(found.low, 2), round(found.high, 2)) == (1.00, 1.38)
    assert found.corner("by hand").speedup == pytest.approx(1.38, abs=5e-3)
    assert found.corner("by hand").total_ns == 614_400_000
    assert found.corner("constant rate", "rest dropped").speedup == pytest.approx(1.23, abs=5e-3)
    assert found.corner("A+1", "rest fixed").speedup == pytest.approx(1.09, abs=5e-3)


def test_rounds_under_the_other_engines_mean(costs):
    model, mean = Model(costs), Fraction("1.385")
    rounds = [float(model.rounds(h)) for h in two_point_histograms(mean, 3)]
    assert min(rounds) == pytest.approx(32.2, abs=0.05)
    assert max(rounds) == pytest.approx(44.8, abs=0.05)
    assert row(costs, H1).corner("constant rate").rounds == pytest.approx(36.0, abs=0.06)
    assert float(model.calibrated_shape(mean).rounds) == pytest.approx(32.29, abs=5e-3)


def test_the_bounds_over_all_histograms_hold_the_constant_rate_one(costs):
    found = row(costs, H1)
    inside = [c.speedup for c in found.corners if c.acceptance == "constant rate"]
    assert found.any_low <= min(inside) <= max(inside) <= found.any_high
    assert found.any_low < found.low


def test_a_table_has_each_lever_pairs_and_all(costs):
    levers = Levers(acceptance=Fraction("1.385"), no_replay=True, draft_ms=1.0, no_residual=True)
    rows = what_if(costs, levers).rows
    assert [len(r.levers) for r in rows] == [0] + [1] * 4 + [2] * 6 + [4]


def test_a_lever_of_zero_is_a_lever(costs):
    free = what_if(costs, Levers(draft_ms=0.0)).rows
    assert len(free) == 2
    assert free[-1].corner("rest kept").total_ns == 1_508_030_000 - 90_970_000
    nothing = what_if(costs, Levers(acceptance=Fraction(0))).rows[-1]
    assert nothing.corner("constant rate").rounds == 62


def test_a_whole_histogram_fixes_the_rounds(costs):
    found = row(costs, Levers(n_ok=(5, 8, 9, 20)))
    assert found.any_low is None
    assert {c.rounds for c in found.corners} == {62 / ((5 + 8 + 18 + 60) / 42)}
    steps = Fraction(5 + 8 + 18, 42)
    corner = found.corner("recomputed", "rest dropped")
    rounds = Fraction(62 * 42, 91)
    parts = Fraction(costs.draft_ns + costs.verify_ns, 42) + steps * 13_232_000
    assert corner.total_ns == round(rounds * parts)


def test_verify_without_shared_kernels_moves_them_to_the_rest():
    bare = costs_of(article(shared_ms=0.0))
    assert bare.rest_ns - costs_of(article()).rest_ns == 39_700_000
    assert what_if(bare, H3).rows[-1].corner("rest kept").speedup == pytest.approx(0.877, abs=5e-4)


# --- properties --------------------------------------------------------------------------------

ms = st.floats(0.0, 50.0)
histograms = st.lists(st.integers(0, 30), min_size=2, max_size=6).filter(lambda h: sum(h) > 0)
semantics = st.sampled_from([KESTREL, BONUS, CHECKPOINT])


@st.composite
def runs(draw):
    counts = draw(histograms)
    rule = draw(semantics)
    parts = [draw(ms) * sum(counts), draw(st.floats(0.01, 50)) * sum(counts)]
    parts.append(draw(ms) * sum(counts))
    if rule.replay == "none":
        parts[2] = 0.0
    wall = sum(parts) + draw(st.floats(0.01, 20.0)) * sum(counts)
    run = account(
        wall_ms=wall, draft_ms=parts[0], verify_ms=parts[1], replay_ms=parts[2], n_ok=counts,
        semantics=rule, plain_ms=draw(st.floats(0.1, 50.0)),
    )  # fmt: skip
    return costs_of(run)


@given(costs=runs())
def test_baseline_reproduces_any_run_to_the_nanosecond(costs):
    result = what_if(costs, Levers(no_residual=True))
    assert result.difference_ns == 0
    model = Model(costs)
    shape = model.shape("", model.base)
    steps = model.steps(model.base, costs.k)
    if steps or not costs.replay_ns:
        replay = shape.replay_ns
        total = model.total(shape.rounds, model.draft + model.verify + replay, "per round")
        assert total == costs.wall_ns  # the path that every lever takes, exact


@given(costs=runs())
def test_replay_at_no_cost_is_never_worse(costs):
    result = what_if(costs, Levers(no_replay=True))
    assert result.rows[-1].low >= costs.speedup * (1 - 1e-12)


@given(costs=runs(), data=st.data())
def test_more_acceptance_never_slows(costs, data):
    """Move rounds to a higher n_ok; rules under which replay can grow with n_ok: replay held."""
    counts = list(costs.histogram)
    start = data.draw(st.sampled_from([n for n, c in enumerate(counts) if c]))
    assume(start < costs.k)
    end = data.draw(st.integers(start + 1, costs.k))
    moved = list(counts)
    moved[start] -= 1
    moved[end] += 1
    held = costs.semantics.replay == "closing-steps"
    model = Model(costs)
    before = model.shape("", normal(counts), held=held)
    after = model.shape("", normal(moved), held=held)
    assert after.rounds <= before.rounds
    for residual in ("per round", "fixed", "dropped"):
        parts = model.draft + model.verify
        old = model.total(before.rounds, parts + before.replay_ns, residual)
        new = model.total(after.rounds, parts + after.replay_ns, residual)
        assert new <= old


def test_under_closing_steps_a_partial_acceptance_can_cost_more_than_it_gives():
    """n_ok 1 -> 2 adds one token and one step: slower once a token is cheaper than a step."""
    run = account(
        wall_ms=21 * 11, verify_ms=20 * 11, replay_ms=11, n_ok=[0, 1, 0, 10], semantics=KESTREL,
        plain_ms=11.0,
    )  # fmt: skip
    found = row(costs_of(run), Levers(n_ok=(0, 0, 1, 10)))
    assert found.corner("recomputed", "dropped").total_ns > 21 * 11e6
    assert found.corner("held", "dropped").total_ns < 21 * 11e6


@given(k=st.integers(1, 6), share=st.fractions(0, 1))
def test_extreme_histograms_have_the_mean(k, share):
    found = list(two_point_histograms(share * k, k))
    assert found
    for histogram in found:
        assert sum(histogram) == 1
        assert sum(n * p for n, p in enumerate(histogram)) == share * k


@settings(max_examples=50)
@given(costs=runs(), data=st.data())
def test_bounds_over_all_histograms_hold_any_histogram_of_that_mean(costs, data):
    counts = data.draw(
        st.lists(st.integers(0, 9), min_size=costs.k + 1, max_size=costs.k + 1).filter(
            lambda h: sum(h) > 0
        )
    )
    mean = sum((n * p for n, p in enumerate(normal(counts))), Fraction(0))
    bounds = row(costs, Levers(acceptance=mean))
    exact = row(costs, Levers(n_ok=tuple(counts)))
    for corner in exact.corners:
        if corner.replay != "held":
            assert bounds.any_low * (1 - 1e-9) <= corner.speedup <= bounds.any_high * (1 + 1e-9)


def test_at_other_k_cuts_exactly_and_extends_at_a_constant_rate():
    base = normal([27, 2, 6, 7])
    assert at_other_k(base, 2) == (Fraction(27, 42), Fraction(2, 42), Fraction(13, 42))
    assert at_other_k(base, 3) == base
    longer = at_other_k(base, 5)
    assert longer[:3] == base[:3]
    assert float(sum(longer)) == pytest.approx(1)


# --- break-even --------------------------------------------------------------------------------


def test_break_even_points_give_exactly_one(costs):
    result = break_even(costs)
    assert result.speedup == costs.speedup
    for needed in result.costs:
        if needed.reachable and needed.phase != "rest":
            lever = Levers(**{f"{needed.phase}_ms": needed.needed_ms})
            assert row(costs, lever).corner("rest kept").speedup == pytest.approx(1.0)
    by_phase = {needed.phase: needed for needed in result.costs}
    assert by_phase["verify"].needed_ms == pytest.approx(
        16.952 - (1508.03 - 846.848) / 42, abs=1e-3
    )
    assert not by_phase["replay"].reachable  # as the 0.88x says: not by replay alone


def test_break_even_acceptance(costs):
    needed = {a.residual: a for a in break_even(costs).acceptance}
    for residual, found in needed.items():
        lever = Levers(acceptance=Fraction(found.mean_accepted))
        corner = row(costs, lever).corner("constant rate", f"rest {residual}")
        assert corner.speedup == pytest.approx(1.0, abs=1e-6)
    assert needed["dropped"].rate < needed["per round"].rate


def test_break_even_by_k_contains_the_measurement_and_its_best(costs):
    result = break_even(costs)
    at = {point.k: point for point in result.by_k}
    assert at[3].speedup == pytest.approx(costs.speedup)
    assert at[result.best_k].speedup == max(point.speedup for point in result.by_k)
    assert not at[2].extrapolated
    assert at[4].extrapolated


def test_the_k_lever_and_the_k_table_agree(costs):
    by_k = {p.k: p.speedup for p in break_even(costs, verify_slope_ms=1.0).by_k}
    for k in (1, 2, 5):
        found = row(costs, Levers(k=k, verify_slope_ms=1.0))
        assert found.corner("recomputed", "per round").speedup == pytest.approx(by_k[k])


def test_a_histogram_of_another_k_only_stands_beside_that_k(costs):
    rows = what_if(costs, Levers(n_ok=(10, 10, 22), k=2, no_replay=True)).rows
    named = [row.levers for row in rows]
    assert ["k 2"] in named
    assert ["n_ok 10,10,22", "k 2"] in named
    assert all("k 2" in names for names in named if "n_ok 10,10,22" in names)


def test_a_verify_slope_makes_long_drafts_dearer(costs):
    flat = {p.k: p.speedup for p in break_even(costs).by_k}
    steep = {p.k: p.speedup for p in break_even(costs, verify_slope_ms=2.0).by_k}
    assert steep[3] == flat[3]
    assert steep[6] < flat[6]
    assert steep[2] > flat[2]


def test_no_acceptance_can_pay_for_a_round_longer_than_its_tokens():
    run = account(wall_ms=1000, verify_ms=900, n_ok=[5, 5], plain_ms=10.0)
    assert break_even(costs_of(run)).acceptance[0].rate is None


# --- calibration, steps, refusals ----------------------------------------------------------------


def test_calibration_keeps_shares_and_takes_absolute_figures(costs):
    scaled = calibrated(costs, 13.0, 22.0)
    assert scaled.wall_ns == pytest.approx(22.0e6 * 64, abs=3)
    assert scaled.verify_ns / scaled.wall_ns == pytest.approx(costs.verify_ns / costs.wall_ns)
    assert scaled.speedup == pytest.approx(13.0 / 22.0)
    assert any("+1.8%" in note for note in scaled.notes)  # 13.232 / 13.0
    one = calibrated(costs, 13.0)
    assert one.speedup == pytest.approx(costs.speedup)
    assert what_if(scaled, H1_H3).difference_ns == 0


def test_a_missing_plain_step_leaves_speedups_open_but_not_times():
    run = account(wall_ms=100, verify_ms=80, n_ok=[5, 5])
    costs = costs_of(run)
    assert costs.speedup is None
    found = what_if(costs, Levers(verify_ms=4.0)).rows[-1]
    assert found.low is None
    assert found.corner("rest kept").total_ns == 60_000_000
    assert costs_of(run, plain_ms=7.5).speedup == pytest.approx(15 * 7.5 / 100)
    with pytest.raises(UsageError, match="plain-ms"):
        break_even(costs)


def test_the_given_step_time_comes_before_the_traces():
    run = msgspec.structs.replace(article(), options={"step_ns": 12_500_000})
    assert costs_of(run).plain_ns == 12.5e6
    assert costs_of(article()).plain_ns == PLAIN_MS * 1e6


def test_closing_steps_of_a_given_wall_are_tokens():
    run = article()
    acceptance = msgspec.structs.replace(run.acceptance, tokens=62)
    run = msgspec.structs.replace(run, acceptance=acceptance)
    assert costs_of(run).tokens == 62
    assert costs_of(msgspec.structs.replace(run, options={"closing": 2})).tokens == 64


def test_work_that_is_priced_but_not_seen_is_not_idle():
    run = account(wall_ms=100, verify_ms=80, n_ok=[5, 5], plain_ms=5.0)
    window = msgspec.structs.replace(run.window, computed_ns=15_000_000)
    assert costs_of(msgspec.structs.replace(run, window=window)).idle_ns == 5_000_000


def test_plain_step_without_a_wall_says_that_gaps_are_missing():
    run = msgspec.structs.replace(
        article(), steps=[StepCost(role="decode", count=4, gpu_ns=40_000, busy_ns=0, width=1)]
    )
    costs = costs_of(run)
    assert costs.plain_ns == 10_000
    assert "gaps between them unknown" in costs.plain_how


def test_a_log_with_one_round_less_still_reproduces_the_wall():
    run = account(wall_ms=100, verify_ms=80, n_ok=[5, 5], rounds=11, plain_ms=5.0)
    costs = costs_of(run)
    assert any("10 rounds, the trace 11" in note for note in costs.notes)
    assert what_if(costs, Levers(no_residual=True)).difference_ns == 0


def four_requests(width=None):
    """Ten passes for 40 rounds of requests; `width`: rows of a pass, None where not known."""
    run = account(wall_ms=100, verify_ms=80, n_ok=[20, 20], rounds=10, plain_ms=5.0)
    return msgspec.structs.replace(run, rounds=msgspec.structs.replace(run.rounds, width=width))


def test_the_rows_of_a_pass_tell_many_requests_from_a_log_of_more_than_the_capture():
    together, alone = costs_of(four_requests(width=8)), costs_of(four_requests(width=2))
    assert (together.batch, alone.batch) == (4, 1)
    assert (together.tokens, alone.tokens) == (60, 15)  # 10 of 40 rounds, 1.5 tokens each
    assert together.speedup == alone.speedup == pytest.approx(5.0 * 15 / 100)
    assert any("40 rounds, the trace 10" in note for note in alone.notes)
    assert not any("the trace" in note for note in together.notes)


def test_counts_of_more_than_the_capture_do_not_make_it_faster():
    """A log of 25 rounds beside 10 in the trace, no matter whether the ratio is whole."""
    run = account(wall_ms=100, verify_ms=80, n_ok=[0, 25], rounds=10, plain_ms=5.0)
    costs = costs_of(run)
    assert costs.tokens_per_round == 2.0
    assert costs.speedup == pytest.approx(5.0 * 20 / 100)
    assert what_if(costs, Levers(no_residual=True)).difference_ns == 0


def test_several_requests_in_a_pass_are_priced_per_request():
    run = four_requests()
    costs = costs_of(run)
    assert costs.batch == 4
    assert costs.tokens_per_round == 1.5
    assert costs.speedup == pytest.approx(5.0 * 15 / 100)


def test_levers_and_calibration_of_several_requests_in_a_pass():
    run = four_requests()
    costs = costs_of(run)
    found = row(costs, Levers(n_ok=(0, 40)))
    assert found.corner("recomputed", "per round").rounds == 7.5  # 60 tokens at 4 x 2 a pass
    assert found.corner("recomputed", "per round").ms_per_token == pytest.approx(5.0)
    mean = row(costs, Levers(acceptance=Fraction(1)))
    assert mean.corner("A+1", "per round").rounds == 7.5
    scaled = calibrated(costs, 4.0, 6.0)
    assert scaled.wall_ns == pytest.approx(15 * 6.0e6, abs=3)  # 15 tokens of each request


def test_a_run_that_mostly_waits_says_what_dropping_the_wait_means():
    waiting = account(wall_ms=100, verify_ms=30, n_ok=[5, 5], plain_ms=5.0)
    assert any("70% of the wall" in note for note in what_if(costs_of(waiting), H3).notes)
    busy = account(wall_ms=100, verify_ms=60, n_ok=[5, 5], plain_ms=5.0)
    assert not any("of the wall" in note for note in what_if(costs_of(busy), H3).notes)


def test_a_histogram_with_replay_that_nobody_priced_is_said():
    run = account(wall_ms=100, verify_ms=60, n_ok=[5, 5], plain_ms=5.0, semantics=CHECKPOINT)
    assert any("none is priced" in note for note in what_if(costs_of(run), H3).notes)


def test_other_gpu_work_in_the_window_is_in_the_rest_and_not_idle():
    run = account(wall_ms=100, verify_ms=80, n_ok=[5, 5], plain_ms=5.0)
    window = msgspec.structs.replace(run.window, busy_ns=95_000_000, residual_ns=5_000_000)
    costs = costs_of(msgspec.structs.replace(run, window=window))
    assert (costs.rest_ns, costs.idle_ns) == (20_000_000, 5_000_000)
    assert what_if(costs, Levers(no_residual=True)).difference_ns == 0


@pytest.mark.parametrize(
    "levers",
    [
        Levers(n_ok=(1, 2, 3)),
        Levers(acceptance=Fraction(4)),
        Levers(acceptance=Fraction(1), n_ok=(1, 1, 1, 1)),
        Levers(no_replay=True, replay_ms=1.0),
        Levers(k=0, verify_ms=-1.0),
        Levers(verify_ms=-1.0),
    ],
)
def test_levers_that_cannot_be_are_refused(costs, levers):
    with pytest.raises(UsageError):
        what_if(costs, levers)


def test_accounts_without_rounds_or_acceptance_are_refused():
    with pytest.raises(UsageError, match="rounds"):
        costs_of(account(wall_ms=10))
    bare = msgspec.structs.replace(article(), acceptance=None)
    with pytest.raises(UsageError, match="accepted"):
        costs_of(bare)


# --- published cases ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "speedup", "steps"),
    [(2.65, 1.36, 1.95), (2.26, 1.23, 1.84), (3.41, 1.34, 2.55), (3.30, 1.90, 1.74)],
)
def test_f2_implied_step_cost(tokens, speedup, steps):
    from nsysacct.theory import implied_step_cost

    assert implied_step_cost(tokens, speedup) == pytest.approx(steps, abs=5.5e-3)


def test_f2_one_rule_cannot_give_both_of_its_token_counts():
    """Inconsistent: "block 2" and "block 3" both use 1 + p + p^2, which is gamma = 2 alone."""
    from nsysacct.theory import expected_tokens

    p = 0.8
    assert expected_tokens(p, 2) == pytest.approx(1 + p + p**2)
    assert expected_tokens(p, 3) != pytest.approx(1 + p + p**2)


def test_f3_every_part_of_the_excess():
    """25.8 s plain, 97.2 s speculative: checkpoints 39.08, drafter 17.27, the rest unattributed."""
    excess = 97.2 - 25.8
    replay, draft = 17.34 + 16.33 + 5.41, 17.27
    run = account(
        wall_ms=97_200, draft_ms=draft * 1e3, verify_ms=25_800, replay_ms=replay * 1e3,
        n_ok=[728, 57], plain_ms=25_800 / 3000, semantics=CHECKPOINT,
    )  # fmt: skip
    costs = costs_of(run)
    shares = [ns / (excess * 1e9) for ns in (costs.replay_ns, costs.draft_ns, costs.rest_ns)]
    assert shares == pytest.approx([0.547, 0.242, 0.211], abs=5e-4)
    assert 17.34e3 / 785 == pytest.approx(22.1, abs=0.05)
    assert 16.33e3 / 728 == pytest.approx(22.4, abs=0.05)


@pytest.mark.parametrize(
    ("step", "verify", "draft", "rest", "share"),
    [(27.7, 20.8, 4.9, 2.0, 0.177), (100.6, 79.5, 15.6, 5.5, 0.155)],
)
def test_f4_residual_of_a_step(step, verify, draft, rest, share):
    costs = costs_of(
        account(wall_ms=step * 10, verify_ms=verify * 10, draft_ms=draft * 10, n_ok=[5, 5])
    )
    assert costs.rest_ns / costs.rounds / 1e6 == pytest.approx(rest)
    assert costs.draft_ns / costs.wall_ns == pytest.approx(share, abs=5e-4)


def test_f5_a_round_of_5_25_plain_steps_at_96_6_percent_acceptance():
    plain, tokens_per_s, length = 1e3 / 342.2, 128.3, 1.97
    wall = 100 * length * 1e3 / tokens_per_s
    costs = costs_of(account(wall_ms=wall, verify_ms=1.0, n_ok=[3, 97], plain_ms=plain))
    result = break_even(costs)
    assert result.round_cost_plain_steps == pytest.approx(5.25, abs=5e-3)
    assert result.acceptance[0].rate is None  # 2 tokens at most for 5.25 steps


def test_f6_no_checkpoint_save():
    """14.96 ms a step saved: the speed-up needs the tokens a step, which the source leaves out."""
    for after in (61.2, 62.2):
        saved_per_token = 1e3 / 44.87 - 1e3 / after
        assert 14.96 / saved_per_token == pytest.approx(2.48, abs=0.2)  # implied tokens a step


def test_f7_verify_of_two_rows_on_a_moe():
    from nsysacct.theory import expert_ratio, improvement_factor

    beta = 112 / 51
    assert beta == pytest.approx(2.196, abs=5e-4)
    assert beta > expert_ratio(256, 8, 2) == pytest.approx(1.969, abs=5e-4)
    assert improvement_factor(0.9, 1, 0.0, beta=beta) == pytest.approx(0.865, abs=5e-4)


def test_f8_inconsistent_break_even():
    """Inconsistent: 18 over 5.9 ms breaks even at 3.05 tokens, not the 1.9 to 2.2 it claims."""
    costs = costs_of(account(wall_ms=180, verify_ms=180, n_ok=[5, 5], plain_ms=5.9))
    needed = break_even(costs).round_cost_plain_steps
    assert needed == pytest.approx(3.05, abs=5e-3)
    assert not 1.9 <= needed <= 2.2
    parts = costs_of(account(wall_ms=180, verify_ms=82, n_ok=[5, 5]))
    assert parts.rest_ns / 10 / 1e6 == pytest.approx(18 - 8.2)  # 7 of them said to be host


def test_f9_growth_between_two_captures():
    assert 38.67 / 34.27 - 1 == pytest.approx(0.128, abs=5e-4)
    assert (8919 / 34270, 17045 / 38670) == pytest.approx((0.260, 0.441), abs=5e-4)


@pytest.mark.parametrize(("without", "with_", "ratio"), [(55.47, 33.99, 1.63), (57.58, 48.8, 1.18)])
def test_f10_latency_at_two_rates(without, with_, ratio):
    costs = costs_of(account(wall_ms=with_, verify_ms=with_, n_ok=[1, 0], plain_ms=without))
    assert costs.speedup == pytest.approx(ratio, abs=5e-3)


def test_f11_a_tenth_of_the_time_has_no_part():
    drafting_and_verifying = 1 / (1 / 90.20 + 1 / 25.48)
    assert drafting_and_verifying == pytest.approx(19.87, abs=5e-3)
    mixed = (119 + 426) / (119 / 14.68 + 426 / 19.86)
    assert mixed == pytest.approx(18.44, abs=5e-3)
    wall, parts = 545 / 16.52 * 1e3, 545 / mixed * 1e3
    costs = costs_of(account(wall_ms=wall, verify_ms=parts, n_ok=[0, 100]))
    assert costs.rest_ns / costs.wall_ns == pytest.approx(0.10, abs=5e-3)


def test_f12_the_other_engine_on_the_same_prompt():
    """36 of 78 drafts in 26 rounds; any histogram with these totals emits 62 tokens."""
    run = account(wall_ms=400, verify_ms=300, n_ok=[8, 7, 4, 7], plain_ms=10.0)
    costs = costs_of(run)
    assert (costs.rounds, costs.accepted, costs.emitted) == (26, 36, 62)
    assert costs.accepted / (costs.rounds * costs.k) == pytest.approx(0.46154, abs=5e-6)
    assert costs.tokens_per_round == pytest.approx(2.3846, abs=5e-5)
