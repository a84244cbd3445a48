"""The plain step of another capture: taken from one like the run, refused from any other."""

from __future__ import annotations

import msgspec
import pytest
from article_account import account, article
from click.testing import CliRunner

from nsysacct.bottleneck import bottleneck
from nsysacct.cli import bottleneck as bottleneck_cli
from nsysacct.cli import explain as explain_cli
from nsysacct.cli import whatif as whatif_cli
from nsysacct.economics import costs_of
from nsysacct.errors import IncomparableError, UsageError
from nsysacct.explain import explain
from nsysacct.model import Account, EngineInfo, GraphInfo, Rounds
from nsysacct.plainstep import is_thin
from nsysacct.wire import dump_account

GPU = {"gpu": "NVIDIA H200", "gpu_memory_bytes": 100_000_000_000}


def spec(**trace: object) -> Account:
    """A run that speculates throughout: 40 rounds of 3 tokens, 10 ms each."""
    return account(
        wall_ms=400, draft_ms=80, verify_ms=280, n_ok=[0, 0, 40], name="spec", **(GPU | trace)
    )


def plain(plain_ms: float = 5.0, **trace: object) -> Account:
    made = account(wall_ms=500, plain_ms=plain_ms, name="plain", **(GPU | trace))
    return msgspec.structs.replace(made, rounds=Rounds(value=0, verdict="none"))


def test_the_plain_step_comes_from_the_other_capture():
    costs = costs_of(spec(), plain_from=plain())
    assert costs.plain_ns == 5e6
    assert costs.plain_how == "plain: 64 plain steps, gaps included"
    assert costs.speedup == pytest.approx(120 * 5 / 400)
    assert costs_of(spec()).speedup is None


def graph(state: str) -> list[GraphInfo]:
    return [GraphInfo(graph_exec_id=1, launches=2, state=state, role="plain", gpu_ns=1)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"engine": EngineInfo(name="llama.cpp", how="recognised")}, "engine is llama.cpp"),
        ({"trace": plain(gpu="RTX 5090").trace}, "GPU is RTX 5090, not NVIDIA H200"),
        ({"labels": {"quant": "q8"}}, "label quant is q8, not q4"),
        ({"rounds": Rounds(value=0, verdict="none", layers={"all": 8})}, "layers is 8, not 24"),
        ({"graphs": graph("expanded")}, "granularity is node, not graph"),
    ],
)
def test_another_baseline_is_refused(change, says):
    run = msgspec.structs.replace(
        spec(),
        labels={"quant": "q4"},
        graphs=graph("timed"),
        rounds=msgspec.structs.replace(spec().rounds, layers={"all": 24}),
    )
    other = msgspec.structs.replace(plain(), **change)
    for ask in (costs_of, bottleneck, explain):
        with pytest.raises(IncomparableError, match=says):
            ask(run, plain_from=other)


def test_a_label_that_one_side_lacks_is_no_difference():
    run = msgspec.structs.replace(spec(), labels={"quant": "q4"})
    assert costs_of(run, plain_from=plain()).plain_ns == 5e6


def test_a_capture_without_plain_steps_and_two_sources_are_refused():
    with pytest.raises(UsageError, match="has no plain step"):
        costs_of(spec(), plain_from=spec())
    with pytest.raises(UsageError, match="beside --plain-from"):
        costs_of(spec(), plain_ms=5, plain_from=plain())


def test_one_step_without_its_gaps_is_thin_and_said_so():
    run = plain()
    step = msgspec.structs.replace(run.steps[0], count=1, wall_ns=None)
    lone = msgspec.structs.replace(spec(), steps=[step])
    assert is_thin(lone) and not is_thin(run)
    assert any("thin" in note for note in costs_of(lone).notes)
    assert not any("thin" in note for note in costs_of(lone, plain_from=run).notes)


def test_the_bottleneck_looks_at_the_other_captures_steps():
    found = bottleneck(spec(), plain_from=plain(), weight_bytes=10**10)
    assert found.plain_ms == 5.0
    assert found.idle_share == 0.0
    assert bottleneck(spec()).idle_share is None


def memory(run: Account, **more: object) -> str:
    return next(s for s in explain(run, **more).give_up if "memory" in s.topic).text  # type: ignore[arg-type]


def test_a_draft_that_eats_the_cache_is_a_reason_to_give_up():
    full, before = spec(peak_memory_bytes=95_000_000_000), plain(peak_memory_bytes=70_000_000_000)
    text = memory(full, plain_from=before)
    assert "5.0 % of 100.0 GB free at the peak: a reason to give up" in text
    assert "+25.00 GB against the capture without speculation" in text


def test_allocations_of_a_trace_are_a_lower_bound_that_clears_nothing():
    roomy = spec(peak_memory_bytes=40_000_000_000)
    assert "no reason seen, from a lower bound" in memory(roomy)
    assert "no reason to give up" in memory(roomy, peak_memory_bytes=50_000_000_000)
    assert memory(spec()).startswith("open: memory in use of 100.0 GB is unknown")


# --- the commands ---------------------------------------------------------------------------------


def invoke(command, *args):
    result = CliRunner().invoke(command, list(map(str, args)), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


@pytest.fixture
def files(tmp_path):
    for name, made in (("spec", spec()), ("plain", plain()), ("article", article())):
        (tmp_path / f"{name}.json").write_text(dump_account(made))
    return tmp_path


def test_without_a_plain_step_the_first_lines_say_what_to_give(files):
    head = " ".join(invoke(whatif_cli.command, files / "spec.json", "--no-residual").split()[:80])
    assert "No speed-up can be told: T_plain" in head
    assert "--plain-from PLAIN_TRACE or --plain-ms MS" in head


def test_commands_take_the_plain_step_of_another_file(files):
    for command in (whatif_cli.command, explain_cli.command, bottleneck_cli.command):
        found = invoke(command, files / "spec.json", "--plain-from", files / "plain.json")
        assert "plain: 64 plain steps, gaps included" in " ".join(found.split()) or "5.000" in found
    assert "1.50x" in invoke(
        whatif_cli.command, files / "spec.json", "--plain-from", files / "plain.json"
    )


def test_the_articles_figures_stand_as_named_ends_beside_the_honest_ranges(files):
    text = invoke(
        whatif_cli.command, files / "article.json", "--acceptance", "1.385", "--no-replay"
    )
    assert max(map(len, text.splitlines())) <= 79
    flat = " ".join(text.split())
    for words in (
        "0.67-0.82x 0.67x constant rate, replay recomputed, rest fixed 0.82x by hand: whole rounds",
        "0.88-1.05x 0.88x rounds as measured, replay none, rest kept 1.05x rounds as measured",
        "1.00-1.38x 1.00x constant rate, replay none, rest fixed 1.38x by hand: whole rounds",
    ):
        assert words in flat
