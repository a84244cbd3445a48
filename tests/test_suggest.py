"""``nsysacct registry suggest``: from a trace of an unknown engine to a registry that splits it."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from nsysacct.account import account
from nsysacct.model import Account
from nsysacct.names import parse
from nsysacct.options import Options
from nsysacct.registry import Registry, load_registry
from nsysacct.registry_file import read_bytes
from nsysacct.suggest import PassKind, find_rhythm, investigate, width_place
from nsysacct.suggest_toml import suggestion
from nsysacct.trace import read_trace


def edited(text: str) -> str:
    """The suggestion after the edits that its comments ask for."""
    text = re.sub(r"^recognise = \[\].*\n", "", text, flags=re.M).replace(
        "# recognise", "recognise"
    )
    text = re.sub(r"^evidence = .*\n", "", text, flags=re.M)
    blocks = text.split("\n\n")
    for i, block in enumerate(blocks):
        if 'pattern = "k_fill' in block:  # the comment offers it for what sets up
            blocks[i] = block.replace('bucket = "shared"', 'bucket = "other"')
        if 'pattern = "{k_gdn_' in block:  # and this for what no single-token pass runs
            blocks[i] = block.replace('bucket = "shared"', 'bucket = "verify"')
    return "\n\n".join(blocks)


@pytest.mark.parametrize("name", ["small_graph", "small_node_nvtx"])
def test_an_edited_suggestion_splits_like_the_shipped_registry(trace_file, name):
    trace = trace_file(name)
    shipped = load_registry(env={})
    without = Registry(tuple(e for e in shipped.engines if e.name != "kestrel"))
    assert (
        account(read_trace(trace), Options(ignore=frozenset({"nvtx"})), without).engine.how
        == "none"
    )
    text = suggestion(investigate(read_trace(trace)), name="mine")
    own = read_bytes(edited(text).encode(), "mine.toml")
    registry = Registry((*without.engines, own))
    assert registry.check() == []
    mine = account(read_trace(trace), Options(ignore=frozenset({"nvtx"})), registry)
    theirs = account(read_trace(trace), Options(ignore=frozenset({"nvtx"})), shipped)
    assert (mine.engine.name, mine.engine.how) == ("mine", "recognised")
    assert mine.rounds.value == theirs.rounds.value == 10
    assert mine.rounds.verdict == "exact"
    assert {b.bucket: b.gpu_ns for b in mine.buckets} == {
        b.bucket: b.gpu_ns for b in theirs.buckets
    }


def ns_of(found: Account) -> dict[str, int]:
    return {b.bucket: b.gpu_ns for b in found.buckets}


@pytest.mark.parametrize("ignore", [frozenset(), frozenset({"nvtx"})])
@pytest.mark.parametrize(
    "name",
    [
        "llama_A_servernospec_graph", "llama_B_mtp_graph", "llama_B_plain_graph",
        "llama_B_spec_graph", "overlap", "small_graph", "small_node_nvtx", "small_nvtx",
        "torch_graphs_nvtx", "twoproc", "vgraph_k4", "vllm_draft_graph_nvtx", "vllm_eagle_graph",
        "vllm_ngram_graph", "vllm_plain_graph",
    ],
)  # fmt: skip
def test_an_unedited_suggestion_makes_no_account_worse(trace_file, name, ignore):
    trace = read_trace(trace_file(name))
    own = read_bytes(suggestion(investigate(trace), name="mine").encode(), "mine.toml")
    without = account(trace, Options(ignore=ignore), Registry(()))
    found = account(trace, Options(engine="mine", ignore=ignore), Registry((own,)))
    known = account(trace, Options(ignore=ignore))
    if found.rounds.verdict == "exact":  # what it adds is what the engine's own registry says
        mine, theirs = ns_of(found), ns_of(known)
        assert (found.rounds.value, found.rounds.k) == (known.rounds.value, known.rounds.k)
        assert (mine["draft"], mine["verify"]) == (theirs["draft"], theirs["verify"])
    else:
        told = ("value", "verdict", "k", "width")
        assert [getattr(found.rounds, t) for t in told] == [
            getattr(without.rounds, t) for t in told
        ]
        assert ns_of(found) == ns_of(without)
    assert found.rounds.value != 0 or without.rounds.value == 0


def test_only_rows_that_other_passes_run_differently_make_a_suggestion_sure(trace_file):
    text = suggestion(investigate(read_trace(trace_file("small_graph"))))
    assert 'bucket = "verify"' in text and '\nwidth = "M"' in text
    text = suggestion(investigate(read_trace(trace_file("vgraph_k4"))))
    assert set(re.findall(r'^bucket = "(\w+)"', text, flags=re.M)) == {"shared"}
    assert '"draft"? only draft passes run it' in text
    assert 'replay = "none"' in text


def test_a_suggestion_recognises_nothing_before_it_is_edited(trace_file):
    trace = trace_file("small_graph")
    text = suggestion(investigate(read_trace(trace)))
    own = read_bytes(text.encode(), "unnamed.toml")
    assert own.recognise == ()
    assert Registry((own,)).recognise(read_trace(trace).kernel_names)[0] is None


def test_a_suggestion_says_what_it_rests_on(trace_file):
    text = suggestion(investigate(read_trace(trace_file("small_graph"))))
    assert "10 times eager passes of 104 kernels follows 3 of eager passes of 10 kernels" in text
    assert "runs graph 2: 0 in 1 rounds, 1 in 6 rounds, 2 in 2 rounds" in text
    assert "# 240 x k_rq_q4_gemv_mr<4, 3>, 2.523 ms: 24 a round" in text
    assert "# 150 x k_rq_q4_gemv_mr<1, 1>, 0.914 ms: 5 a draft pass" in text
    assert 'verify_width = "k"  # CHECK: 3 rows after 3 draft passes' in text
    assert 'replay = "closing-steps"' in text
    assert "--cuda-graph-trace=node shows it" in text
    node = suggestion(investigate(read_trace(trace_file("small_node_nvtx"))))
    assert "--cuda-graph-trace=node" not in node
    assert '# 10 x verify (understood as it is: "verify")' in node


@pytest.mark.parametrize("name", ["vllm_ngram_graph", "vllm_eagle_graph", "llama_B_mtp_graph"])
def test_names_that_two_phases_share_are_never_called_verify(trace_file, name):
    """Library kernels of serving engines: what the trace cannot tell stays shared."""
    found = investigate(read_trace(trace_file(name)))
    own = read_bytes(suggestion(found).encode(), "x.toml")
    assert Registry((own,)).check() == []
    buckets = {s.bucket for s in own.signatures if "rms_norm" in s.pattern or "nvjet" in s.pattern}
    assert buckets <= {"shared", "target", "draft"}


def test_the_command_writes_a_file_that_the_strict_loader_reads(run_cli, trace_file, tmp_path):
    trace = trace_file("small_graph")
    done = run_cli("registry", "suggest", trace, "--name", "mine", "-o", "mine.toml")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = run_cli("registry", "check", "--registry", "mine.toml")
    assert done.returncode == 0, done.stdout
    done = run_cli("registry", "suggest", trace, "-o", "mine.toml")
    assert done.returncode == 2 and "mine.toml" in done.stderr
    done = run_cli(
        "split", trace, "--engine", "mine", "--registry", "mine.toml", "--format", "json"
    )
    assert json.loads(done.stdout)["rounds"]["value"] == 10


def test_a_file_that_is_no_trace_gives_one_line(run_cli, tmp_path):
    (tmp_path / "x.sqlite").write_text("no database")
    done = run_cli("registry", "suggest", "x.sqlite")
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1


# ---------------------------------------------------------------- parts


def kind(*names: int, ns: int, graph: int | None = None) -> PassKind:
    return PassKind(graph, frozenset(names), 1, len(names), ns)


def test_a_rhythm_is_a_dear_pass_after_a_steady_number_of_cheap_ones():
    kinds = [kind(1, ns=100), kind(2, ns=1000), kind(3, ns=500)]
    found = find_rhythm(kinds, [2, 2, 0, 0, 1, 0, 0, 1, 2, 0, 0, 1, 2, 2, 0, 0, 1])
    assert found is not None
    assert (found.verify, found.draft, found.rounds, found.k, found.steady) == (1, 0, 4, 2, 1.0)
    assert found.after == {2: Counter({0: 1, 1: 1, 2: 1})}


@pytest.mark.parametrize(
    "sequence",
    [[1, 1, 1, 1, 1], [0, 1, 0, 1], [0, 1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1], []],
)
def test_plain_steps_too_few_and_unsteady_passes_are_no_rhythm(sequence):
    assert find_rhythm([kind(1, ns=100), kind(2, ns=1000)], sequence) is None


def test_one_tiny_pass_before_a_dear_one_is_preparation():
    sequence = [0, 1] * 6
    assert find_rhythm([kind(1, ns=10), kind(2, ns=1000)], sequence) is None
    assert find_rhythm([kind(1, ns=100), kind(2, ns=1000)], sequence) is not None


@pytest.mark.parametrize(
    ("mine", "others", "place"),
    [
        (["k<4, 3>", "k<2, 3>"], ["k<1, 1>", "k<4, 1>"], (1, 3)),
        (["k<4, 3>"], [], None),  # either argument could be the rows
        (["k<(ggml_type)12, 5>", "k<(ggml_type)14, 5>"], ["k<(ggml_type)12, 1>"], (1, 5)),
        (["k<4, 3>"], ["k<2, 3>"], (0, 4)),
        (["k<float, 1>"], ["k<float, 2>"], None),
        (["k"], ["k<1>"], None),
        (["k<3>", "k<4>"], [], None),
    ],
)
def test_the_argument_that_is_the_rows(mine, others, place):
    assert width_place([parse(n) for n in mine], [parse(n) for n in others]) == place
