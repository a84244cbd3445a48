import re

import msgspec
import pytest
from article_account import KESTREL, account, article
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from nsysacct.cli import compare as compare_cli
from nsysacct.cli import explain as explain_cli
from nsysacct.cli import model as model_cli
from nsysacct.cli import whatif as whatif_cli
from nsysacct.compare import compare
from nsysacct.errors import UsageError
from nsysacct.explain import Explanation, explain
from nsysacct.model import BlindSpot, StepCost
from nsysacct.wire import dump_account


def sentences(found: Explanation):
    return [s for field in found.__struct_fields__ for s in getattr(found, field)]


def said(found, topic):
    return next(s for s in sentences(found) if s.topic == topic)


def test_the_article_in_words():
    found = explain(article(), weight_bytes=14_400_000_000)
    assert "does not pay: 0.562x" in said(found, "paying").text
    assert "16.952 ms a round" in said(found, "verify").text
    assert said(found, "verify").basis == "measured 94 %, estimated 6 %"
    assert said(found, "replay").basis == "computed"
    assert "150.278 to 162.548 ms" in said(found, "residual").text
    assert [s.topic for s in found.levers] == ["acceptance", "replay"]
    assert "0.88x to 1.05x" in found.levers[1].text
    assert said(found, "1 bottleneck").text.startswith("memory-bound")
    assert "0.357, 0.310, 0.167" in said(found, "2 acceptance by scenario").text
    assert "+0.141 a row" in said(found, "3 verify cost against width").text
    low = said(found, "acceptance too low")
    assert "below 0.5" in low.text
    assert "0.822: too low" in low.text


def test_every_sentence_has_a_number_or_says_that_it_is_missing():
    for run in (article(), account(wall_ms=440, verify_ms=340, n_ok=[8, 7, 4, 7], plain_ms=11.7)):
        for sentence in sentences(explain(run)):
            known = re.search(r"\d", sentence.text) and sentence.basis
            assert known or sentence.state == "missing", sentence


def test_five_steps_and_three_reasons_always_have_a_state():
    bare = account(wall_ms=10)
    found = explain(bare)
    assert len(found.steps) == 5
    assert len(found.give_up) == 3
    assert {s.state for s in found.steps + found.give_up} == {"missing"}
    assert all(s.how for s in found.steps + found.give_up)
    assert "open" in said(found, "paying").text
    assert said(found, "rounds").text == "No round is proven"


def test_an_unknown_acceptance_leaves_the_time_explained():
    found = explain(msgspec.structs.replace(article(), acceptance=None))
    assert "90.970 ms" in said(found, "draft").text
    assert not found.levers
    assert "--n-ok" in said(found, "paying").text


def test_gpu_time_alone_of_a_plain_step_does_not_say_that_a_run_does_not_pay():
    """A step takes 10 ms or more: rounds of 20 ms for 1 token need not be slower."""
    bare = [StepCost(role="decode", count=4, gpu_ns=40_000_000, busy_ns=0, width=1)]
    slow = account(wall_ms=440, draft_ms=30, verify_ms=340, n_ok=[22, 0, 0, 0])
    text = said(explain(msgspec.structs.replace(slow, steps=bare)), "paying").text
    assert text.startswith("Whether it pays is open: at least 0.500x of plain decoding")
    assert "a plain step takes at least 10.000 ms" in text
    fast = account(wall_ms=440, draft_ms=30, verify_ms=340, n_ok=[0, 0, 0, 22])
    text = said(explain(msgspec.structs.replace(fast, steps=bare)), "paying").text
    assert text.startswith("Speculation pays: at least 2.000x")


def test_a_run_that_pays_and_has_room():
    run = account(
        wall_ms=440, draft_ms=30, verify_ms=340, n_ok=[8, 7, 4, 7], plain_ms=11.7,
        gpu_memory_bytes=32_000_000_000,
    )  # fmt: skip
    found = explain(run, peak_memory_bytes=24_000_000_000)
    assert "pays: 1.649x" in said(found, "paying").text
    assert "25.0 % of 32.0 GB free" in said(found, "no memory left for the draft").text
    assert "no reason" in said(found, "no memory left for the draft").text
    full = explain(run, peak_memory_bytes=31_000_000_000)
    assert ": a reason" in said(full, "no memory left for the draft").text


def test_blind_spots_come_with_their_remedy():
    spot = BlindSpot(
        kind="untimed graphs", severity="warning", hidden_ns=542_512_000, basis="arithmetic",
        detail="41 launches", remedy="--cuda-graph-trace=graph",
    )  # fmt: skip
    found = explain(msgspec.structs.replace(article(), blind_spots=[spot]))
    assert "542.512 ms hidden: 41 launches" in said(found, "untimed graphs").text
    assert said(found, "untimed graphs").how == "--cuda-graph-trace=graph"


def test_a_blind_spot_that_hides_nothing_claims_no_time():
    spot = BlindSpot(
        kind="whole graphs", severity="info", hidden_ns=0, basis="graph", detail="299 launches",
        remedy="--cuda-graph-trace=node",
    )  # fmt: skip
    found = explain(msgspec.structs.replace(article(), blind_spots=[spot]))
    assert said(found, "whole graphs").text == "299 launches"


@given(
    counts=st.lists(st.integers(0, 20), min_size=2, max_size=5).filter(lambda h: sum(h) > 0),
    verify=st.floats(1, 1e3),
    plain=st.floats(0.1, 100),
)
def test_the_verdict_is_the_speedup(counts, verify, plain):
    run = account(wall_ms=verify * 1.1, verify_ms=verify, n_ok=counts, plain_ms=plain)
    text = said(explain(run), "paying").text
    tokens = sum((n + 1) * c for n, c in enumerate(counts))
    assert text.startswith("Speculation pays") == (round(plain * 1e6) * tokens > run.window.wall_ns)


def other(**kw):
    return account(
        wall_ms=440, draft_ms=30, verify_ms=340, n_ok=[8, 7, 4, 7], plain_ms=11.7, name="other",
        gpu="NVIDIA GeForce RTX 5090", **kw,
    )  # fmt: skip


def test_two_engines_with_other_rounds_get_no_ratio():
    found = compare(article(), other())
    assert not found.fair
    assert all(figure.ratio is None for figure in found.figures)
    by_name = {figure.name: figure for figure in found.figures}
    assert by_name["tokens emitted"].relation == "a lower, about 1.6x"
    assert by_name["k"].relation == "equal"
    assert any("rounds differ: 42 and 26" in reason for reason in found.unfair)
    assert any("prompt length unknown" in reason for reason in found.unfair)


def test_equal_conditions_get_ratios():
    labelled = msgspec.structs.replace(article(), labels={"prompt_tokens": "96"})
    slower = account(
        wall_ms=1508.03, draft_ms=181.94, verify_ms=712, n_ok=[27, 2, 6, 7], semantics=KESTREL,
        plain_ms=13.232, gpu="NVIDIA GeForce RTX 5090",
    )  # fmt: skip
    slower = msgspec.structs.replace(slower, labels={"prompt_tokens": "96"})
    found = compare(labelled, slower)
    assert found.fair, found.unfair
    assert {f.name: f.ratio for f in found.figures}["draft"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"labels": {"prompt_tokens": "97"}}, "prompt lengths differ"),
        ({"trace": {"gpu": "H200"}}, "GPU differs"),
        ({"rounds": {"k": 4}}, "k differs"),
    ],
)
def test_one_difference_is_enough_to_refuse_ratios(change, reason):
    base = msgspec.structs.replace(article(), labels={"prompt_tokens": "96"})
    assert compare(base, base).fair
    changed = {
        key: value if key == "labels" else msgspec.structs.replace(getattr(base, key), **value)
        for key, value in change.items()
    }
    found = compare(base, msgspec.structs.replace(base, **changed))
    assert any(reason in text for text in found.unfair)


def test_runs_without_rounds_are_not_compared():
    with pytest.raises(UsageError):
        compare(article(), account(wall_ms=1))


# --- the commands ---------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "article.json"
    file.write_text(dump_account(article()))
    return str(file)


def invoke(module, *args):
    result = CliRunner().invoke(module.command, list(args), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


FORMATS = ["text", "json", "markdown", "csv"]


@pytest.mark.parametrize("fmt", FORMATS)
def test_explain_command(path, fmt):
    text = invoke(explain_cli, path, "--weight-bytes", "14.4GB", "--format", fmt)
    assert "0.562x" in text
    if fmt == "json":
        assert msgspec.json.decode(text)["schema"] == {"kind": "nsysacct/explain", "version": 1}
    if fmt == "csv":
        assert text.startswith("section,topic,state,text,basis,how\nAnswer,rounds,")
    if fmt == "markdown":
        assert text.startswith("### Answer\n\n- 42 rounds ran ")


@pytest.mark.parametrize(("columns", "lines"), [(80, 44), (120, 36)])
def test_explain_is_half_a_page(path, monkeypatch, columns, lines):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = invoke(explain_cli, path, "--weight-bytes", "14.4GB")
    assert max(map(len, text.splitlines())) <= columns
    assert len(text.splitlines()) <= lines


@pytest.mark.parametrize("fmt", FORMATS)
def test_whatif_command(path, fmt):
    text = invoke(whatif_cli, path, "--acceptance", "1.385", "--no-replay", "--format", fmt)
    if fmt == "json":
        document = msgspec.json.decode(text)
        assert document["difference_ns"] == 0
        assert [len(row["levers"]) for row in document["rows"]] == [0, 1, 1, 2]
        assert document["break_even"]["best_k"] == 2
    else:
        for figures in ("0.67-0.82x", "0.88-1.05x", "1.00-1.38x"):
            assert figures in text


def test_whatif_command_lists_corners_and_takes_unprofiled_figures(path):
    text = invoke(
        whatif_cli, path, "--no-replay", "--corners", "--unprofiled-ms-per-token", "13,22"
    )
    assert "rounds as measured, replay none, rest kept" in text
    assert "+1.8%" in text


def test_whatif_command_refuses_what_it_cannot_read(path):
    for option, value in (
        ("--n-ok", "a,b"),
        ("--acceptance", "1/0"),
        ("--unprofiled-ms-per-token", "1,2,3"),
        ("--unprofiled-ms-per-token", "nan"),
    ):
        with pytest.raises(UsageError):
            invoke(whatif_cli, path, option, value)


@pytest.mark.parametrize("fmt", FORMATS)
def test_compare_command(path, tmp_path, fmt):
    second = tmp_path / "other.json"
    second.write_text(dump_account(other()))
    text = invoke(compare_cli, path, str(second), "--format", fmt)
    assert "about 1.6x" in text


@pytest.mark.parametrize("fmt", FORMATS)
def test_model_command(fmt):
    text = invoke(model_cli, "--format", fmt, "--experts", "256", "--experts-per-token", "8")
    if fmt == "json":
        cells = msgspec.json.decode(text)["cells"]
        assert len(cells) == 16
        assert cells[0]["speedup"] == pytest.approx(1.6496 / 1.2)
    else:
        assert "1.37x" in text
