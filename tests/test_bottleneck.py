import msgspec
import pytest
from article_account import BONUS, account, article
from click.testing import CliRunner

from nsysacct.bottleneck import bottleneck, parse_bytes, stakes
from nsysacct.cli.bottleneck import command
from nsysacct.economics import costs_of
from nsysacct.errors import UsageError
from nsysacct.model import StepCost
from nsysacct.wire import dump_account

CARD = {"gpu_memory_bandwidth_bytes_per_s": 1_000_000_000_000}


def with_step(wall_ms, busy_ms, **trace):
    run = account(wall_ms=100, verify_ms=80, n_ok=[5, 5], **trace)
    step = StepCost(
        role="plain", count=10, gpu_ns=round(busy_ms * 1e7), busy_ns=round(busy_ms * 1e7),
        wall_ns=wall_ms * 1e6, width=1,
    )  # fmt: skip
    return msgspec.structs.replace(run, steps=[step])


def test_the_article_is_memory_bound_on_its_card():
    run = article()
    found = bottleneck(run, weight_bytes=14_400_000_000, costs=costs_of(run))
    assert found.verdict == "memory-bound"
    assert found.bandwidth_share == pytest.approx(14.4e9 / 13.232e-3 / 1792e9)
    assert found.row_cost_plain_steps == pytest.approx((712 / 42 / 13.232 - 1) / 2)


def test_gaps_make_it_launch_bound():
    found = bottleneck(with_step(10.0, 6.0, **CARD), weight_bytes=4_000_000_000)
    assert found.verdict == "launch-bound"
    assert found.idle_share == pytest.approx(0.4)


def test_whole_graphs_make_the_idle_share_a_lower_bound():
    found = bottleneck(with_step(10.0, 9.9, graph_trace="graph", **CARD), weight_bytes=10**9)
    assert any("lower bound" in reason for reason in found.reasons)
    node = bottleneck(with_step(10.0, 9.9, graph_trace="node", **CARD), weight_bytes=10**9)
    assert not any("lower bound" in reason for reason in node.reasons)


def test_rows_paid_in_full_at_low_bandwidth_are_compute_bound():
    run = with_step(4.0, 3.9, **CARD)  # 8 ms for 2 rows
    found = bottleneck(run, weight_bytes=10**9, costs=costs_of(run))
    assert found.row_cost_plain_steps == pytest.approx(1.0)
    assert found.verdict == "compute-bound"
    flat = with_step(7.9, 7.8, **CARD)
    assert bottleneck(flat, weight_bytes=10**9, costs=costs_of(flat)).verdict == "cannot tell"


def test_more_than_the_card_can_is_refused_a_verdict():
    found = bottleneck(with_step(10.0, 9.9, **CARD), weight_bytes=20_000_000_000)
    assert found.verdict == "cannot tell"
    assert "200 % of the card's bandwidth, which is impossible" in found.reasons[0]


def test_the_impossible_is_called_so_beside_any_verdict():
    """Bytes that no step can read are named also where something else decides the verdict."""
    launches = bottleneck(with_step(10.0, 6.0, **CARD), weight_bytes=30_000_000_000, dram_share=0.1)
    assert launches.verdict == "launch-bound"
    assert any("300 % of the card's bandwidth, which is impossible" in r for r in launches.reasons)
    near = bottleneck(with_step(10.0, 9.9, **CARD), weight_bytes=10_200_000_000)
    assert near.verdict == "memory-bound"
    assert any("102 %" in r and "impossible" in r for r in near.reasons)
    possible = bottleneck(with_step(10.0, 9.9, **CARD), weight_bytes=9_900_000_000)
    assert not any("impossible" in reason for reason in possible.reasons)


def test_counters_above_the_whole_are_called_impossible():
    run = with_step(10.0, 9.9, **CARD)
    step = msgspec.structs.replace(run.steps[0], dram_read_share=0.8, dram_write_share=0.4)
    found = bottleneck(msgspec.structs.replace(run, steps=[step]))
    assert found.verdict == "cannot tell"
    assert found.reasons[0].startswith("120 % of the bandwidth, measured by GPU metrics")
    assert "impossible" in found.reasons[0]


def test_active_bytes_replace_all_weights_of_a_moe():
    run = with_step(10.0, 9.9, **CARD)
    found = bottleneck(run, weight_bytes=20_000_000_000, active_bytes=7_000_000_000)
    assert (found.verdict, found.bytes_per_step) == ("memory-bound", 7_000_000_000)


def test_a_measured_dram_share_wins_over_the_computed_one():
    found = bottleneck(with_step(10.0, 9.9, **CARD), weight_bytes=10**9, dram_share=0.9)
    assert (found.verdict, found.bandwidth_share) == ("memory-bound", 0.9)
    assert not any("computed" in reason for reason in found.reasons)


def test_what_is_missing_is_named():
    found = bottleneck(account(wall_ms=10))
    assert found.verdict == "cannot tell"
    text = " ".join(found.reasons)
    assert "--weight-bytes" in text
    assert "--plain-ms" in text
    assert "bandwidth" in text


def test_stakes_are_ordered_and_priced():
    costs = costs_of(article())
    found = stakes(costs)
    amounts = [s.at_stake_ms for s in found]
    assert amounts == sorted(amounts, reverse=True)
    by_lever = {s.lever: s for s in found}
    assert by_lever["replay"].at_stake_ms == pytest.approx(542.512)
    assert by_lever["replay"].basis == "arithmetic (0 % measured)"
    assert by_lever["verify"].at_stake_ms == pytest.approx(712 - 42 * 13.232)
    full = 62 / 3 * (1508.03 - 542.512) / 42
    assert by_lever["acceptance"].at_stake_ms == pytest.approx(1508.03 - full)


def test_a_verify_below_a_plain_step_has_nothing_at_stake():
    run = account(wall_ms=100, verify_ms=40, n_ok=[5, 5], plain_ms=5.0, semantics=BONUS)
    by_lever = {s.lever: s for s in stakes(costs_of(run))}
    assert by_lever["verify"].at_stake_ms == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [("14.4GB", 14_400_000_000), ("1GiB", 2**30), ("900 mb", 900_000_000), ("12", 12), ("2k", 2000),
     (".5T", 500_000_000_000)],
)  # fmt: skip
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "GB", "-1GB", "0", "1.2.3GB", "14,4GB", "5 parsecs", "9" * 400, "2PB"]
)
def test_no_sizes(text):
    with pytest.raises(UsageError):
        parse_bytes(text)


def test_contradicting_inputs_are_refused():
    with pytest.raises(UsageError):
        bottleneck(article(), weight_bytes=5, active_bytes=6)
    with pytest.raises(UsageError):
        bottleneck(article(), dram_share=1.5)


@pytest.mark.parametrize("fmt", ["text", "json", "markdown", "csv"])
def test_command(tmp_path, fmt):
    path = tmp_path / "a.json"
    path.write_text(dump_account(article()))
    result = CliRunner().invoke(
        command, [str(path), "--weight-bytes", "14.4GB", "--format", fmt], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert ("memory-bound" in result.output) == (fmt != "csv")
    if fmt == "json":
        assert msgspec.json.decode(result.output)["schema"]["kind"] == "nsysacct/bottleneck"


def test_command_without_acceptance_still_gives_a_verdict(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(dump_account(msgspec.structs.replace(article(), acceptance=None)))
    result = CliRunner().invoke(command, [str(path), "--weight-bytes", "14.4GB"])
    assert result.exit_code == 0
    assert "no time at stake" in result.output


@pytest.mark.parametrize(("size", "marked"), [("14.4GB", False), ("14.4TB", True)])
def test_command_marks_the_impossible(tmp_path, size, marked):
    path = tmp_path / "a.json"
    path.write_text(dump_account(article()))
    result = CliRunner().invoke(command, [str(path), "--weight-bytes", size])
    assert ("share of bandwidth, impossible" in result.output) == marked
    assert ("bytes given would need" in result.output) == marked
