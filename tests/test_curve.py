import csv
import io

import msgspec
import pytest
from article_account import account, article
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from nsysacct.cli.curve import command
from nsysacct.curve import Sample, curve, samples_of
from nsysacct.errors import UsageError
from nsysacct.model import GraphInfo, StepCost
from nsysacct.wire import dump_account

# measured on one H200: mean target pass, microseconds, by rows
DENSE = {1: 1334.8, 2: 1341.0, 3: 1345.3, 8: 1356.1}
MOE = {1: 558.1, 2: 588.4, 4: 593.2}


def samples(times, **kw):
    return [
        Sample(width=w, gpu_ms=us / 1e3, count=20, role="verify" if w > 1 else "plain",
               source=f"w{w}", **kw)
        for w, us in times.items()
    ]  # fmt: skip


def capture(width, us, count=20, role=None, mode="graph"):
    run = account(wall_ms=10, name=f"w{width}", graph_trace=mode)
    gpu = round(us * 1e3) * count
    step = StepCost(
        role=role or ("verify" if width > 1 else "decode"), count=count, gpu_ns=gpu, busy_ns=gpu,
        width=width,
    )  # fmt: skip
    return msgspec.structs.replace(run, steps=[step])


def test_a_dense_model_is_flat():
    found = curve(samples(DENSE))
    last = found.points[-1]
    assert last.beta == pytest.approx(1.016, abs=5e-4)
    assert last.slope_ms_per_row == pytest.approx((1356.1 - 1345.3) / 5e3)
    assert not any(point.step for point in found.points)
    assert found.slope_ms_per_row == pytest.approx(0.0027, abs=5e-4)


def test_a_moe_jumps_at_the_first_extra_row():
    found = curve(samples(MOE), experts=16, experts_per_token=2)
    steps = {point.width: point.step for point in found.points}
    assert steps == {1: "", 2: "expert scatter?", 4: ""}
    assert found.points[1].beta == pytest.approx(588.4 / 558.1)
    assert found.points[1].expert_ratio == pytest.approx(1.875)


def test_a_jump_after_a_flat_part_is_another_kernel():
    found = curve(samples({1: 100, 4: 103, 8: 106, 9: 160}))
    assert [p.step for p in found.points] == ["", "", "", "kernel switch?"]


def test_a_straight_steep_line_has_no_step():
    found = curve(samples({1: 100, 2: 200, 3: 300, 4: 400}))
    assert not any(point.step for point in found.points)
    assert found.points[-1].beta == 4


def test_a_step_is_steeper_than_most_segments_not_than_the_flattest():
    found = curve(samples({1: 100, 2: 100.1, 3: 110, 4: 120, 5: 130}))
    assert not any(point.step for point in found.points)


def test_samples_come_from_steps():
    (found,) = samples_of(capture(8, 1356.1))
    assert (found.width, found.count, found.granularity) == (8, 20, "graph")
    assert found.gpu_ms == pytest.approx(1.3561)


def graphed(rounds, width, graphs, bucket="plain", gpu_ns=0):
    run = account(wall_ms=10, name="g")
    buckets = [
        msgspec.structs.replace(b, gpu_ns=gpu_ns) if b.bucket == bucket else b for b in run.buckets
    ]
    proven = msgspec.structs.replace(run.rounds, value=rounds, width=width)
    return msgspec.structs.replace(run, graphs=graphs, buckets=buckets, rounds=proven)


def graph(role, launches, gpu_ns, **kw):
    return GraphInfo(
        graph_exec_id=1, launches=launches, state="timed", role=role, gpu_ns=gpu_ns, **kw
    )


def test_a_graph_that_is_the_verify_pass_is_taken_alone():
    run = graphed(25, 3, [graph("verify", 25, 33_632_366)], "verify", 35_492_942)
    (found,) = samples_of(run)
    assert (found.width, found.count) == (3, 25)
    assert found.gpu_ms == pytest.approx(1.3453, abs=5e-5)
    pieces = graphed(25, 3, [graph("verify", 50, 33_632_366)], "verify", 35_492_942)
    assert samples_of(pieces)[0].gpu_ms == pytest.approx(35.492942 / 25)


def test_the_main_graph_of_a_plain_run_is_width_1():
    run = graphed(0, None, [graph("plain", 63, 84_095_017), graph("plain", 1, 46_816)],
                  gpu_ns=89_843_885)  # fmt: skip
    (found,) = samples_of(run)
    assert (found.width, found.count) == (1, 63)
    assert found.gpu_ms == pytest.approx(1.3348, abs=5e-5)


def test_plain_work_of_unknown_width_beside_rounds_is_no_point():
    run = capture(3, 1345.0)
    prompt = StepCost(role="plain", count=1, gpu_ns=1_774_880, busy_ns=1_774_880)
    run = msgspec.structs.replace(run, steps=[prompt, *run.steps], rounds=article().rounds)
    assert [sample.role for sample in samples_of(run)] == ["verify"]


def test_a_verify_pass_of_unknown_width_is_left_out_and_said(tmp_path):
    run = graphed(23, None, [graph("verify", 23, 13_644_193)], "verify", 15_624_738)
    assert samples_of(run) == []
    paths = []
    for name, one in (("a", run), ("b", capture(1, 558.1))):
        file = tmp_path / f"{name}.json"
        file.write_text(dump_account(one))
        paths.append(str(file))
    result = CliRunner().invoke(command, paths, catch_exceptions=False)
    assert "g: verify width unknown, left out; split it with --k" in result.output


def test_a_width_follows_from_the_k_that_the_user_gave():
    run = graphed(23, None, [graph("verify", 23, 13_644_193)], "verify", 15_624_738)
    run = msgspec.structs.replace(run, options={"k": 3})
    (found,) = samples_of(run)
    assert found.width == 4  # k + 1 by this engine's rule
    assert found.gpu_ms == pytest.approx(0.5932, abs=5e-5)


def test_without_verify_steps_the_bucket_over_rounds_is_the_sample():
    by_role = {sample.role: sample for sample in samples_of(article())}
    assert by_role["verify"].width == 3
    assert by_role["verify"].gpu_ms == pytest.approx(712 / 42)
    assert by_role["plain"].gpu_ms == pytest.approx(13.232)


def test_other_passes_are_not_points():
    assert samples_of(capture(96, 5000, role="prefill")) == []
    assert samples_of(capture(1, 50, role="draft")) == []


def test_equal_widths_are_merged_by_their_counts():
    found = curve([*samples_of(capture(2, 100, count=30)), *samples_of(capture(2, 200, count=10))])
    assert found.points[0].ms == pytest.approx(0.125)
    assert found.points[0].count == 40
    assert any("one width" in note for note in found.notes)
    assert found.slope_ms_per_row is None


def test_mixed_granularity_and_a_missing_width_1_are_said():
    found = curve([*samples_of(capture(2, 100)), *samples_of(capture(4, 110, mode="node"))])
    assert any("granularity" in note for note in found.notes)
    assert any("beta is unknown" in note for note in found.notes)
    assert found.points[0].beta is None


def test_nothing_to_draw_is_refused():
    with pytest.raises(UsageError):
        curve([])
    with pytest.raises(UsageError):
        curve(samples(DENSE), experts=16)


@given(st.dictionaries(st.integers(1, 64), st.floats(1, 1e4), min_size=2, max_size=8))
def test_slopes_lead_from_point_to_point(times):
    found = curve(samples(times))
    widths = [p.width for p in found.points]
    assert widths == sorted(times)
    ms = found.points[0].ms
    for before, point in zip(found.points, found.points[1:], strict=False):
        ms += point.slope_ms_per_row * (point.width - before.width)
    assert ms == pytest.approx(found.points[-1].ms)


def test_command_prints_csv_in_order_of_width(tmp_path):
    paths = []
    for width, us in reversed(DENSE.items()):
        path = tmp_path / f"{width}.json"
        path.write_text(dump_account(capture(width, us)))
        paths.append(str(path))
    result = CliRunner().invoke(command, [*paths, "--format", "csv"], catch_exceptions=False)
    rows = list(csv.DictReader(io.StringIO(result.output)))
    assert [row["width"] for row in rows] == ["1", "2", "3", "8"]
    assert rows[-1]["beta"] == "1.016"
    text = CliRunner().invoke(command, [*paths, "--experts", "16", "--experts-per-token", "2"])
    assert "experts read" in text.output
    assert "least squares" in text.output
