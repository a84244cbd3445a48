"""Real captures of engines against what their programs logged; and rounds built after their anatomy.

Milliseconds of the truth are sums of GPU time by launch order or NVTX ranges of the run itself, never by
kernel names; they are compared with NVTX switched off, which is how most captures come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import pytest

from fixtures.builder import TraceBuilder
from nsysacct.account import account
from nsysacct.grammar import Plan
from nsysacct.model import Account
from nsysacct.options import Options
from nsysacct.trace import read_trace

US = 1_000
MS = 1e6


@dataclass(frozen=True)
class Truth:
    """What a run says of itself: rounds, and ms a phase (one number, or the least and the most)."""

    trace: str
    rounds: int
    ms: dict[str, float | tuple[float, float]] = field(default_factory=dict)
    engine: str = "kestrel"
    closing: int | None = None
    pid: int | None = None

    @property
    def label(self) -> str:
        return self.trace if self.pid is None else f"{self.trace}-{self.pid}"


TRUTHS = [
    Truth("small_graph", 10, {"verify": 4.9343, "draft": 1.2662, "replay": 2.8375, "plain": 4.8081}, closing=2),
    Truth("small_nvtx", 10, {"verify": 4.9497, "draft": 1.2701, "replay": 2.8429, "plain": 4.8197}, closing=2),
    Truth("small_node_nvtx", 10, {"verify": 4.937, "draft": 1.2667, "replay": 2.7303, "plain": 4.9017}, closing=2),
    Truth("vgraph_k4", 30, {"verify": 54.2734, "draft": 5.0636, "replay": 28.7497}, closing=2),
    Truth("overlap", 10, {"verify": 9.5834, "draft": 1.2692, "replay": 5.5393}, closing=2),
    Truth("twoproc", 10, {"verify": 4.9296, "draft": 1.28, "replay": 2.6989}, closing=2, pid=1083),
    Truth("twoproc", 15, {"verify": 10.7999, "draft": 1.9043, "replay": 3.1245}, closing=2, pid=1084),
    Truth("torch_graphs_nvtx", 40, {"verify": 31.5711, "draft": 16.6205, "replay": 0.0}, engine="unknown"),
    Truth("llama_A_servernospec_graph", 0, {"verify": 0.0, "draft": 0.0, "replay": 0.0}, engine="llama.cpp"),
    Truth("llama_B_plain_graph", 0, {"verify": 0.0, "draft": 0.0, "replay": 0.0}, engine="llama.cpp"),
    Truth("llama_B_spec_graph", 27, {"verify": 22.0094, "draft": 11.5779, "plain": 4.5051}, engine="llama.cpp"),
    Truth("llama_B_mtp_graph", 44, {"verify": 25.5092, "draft": 12.8257, "plain": 3.2484}, engine="llama.cpp"),
    Truth("vllm_plain_graph", 0, {"verify": 0.0, "draft": 0.0, "replay": 0.0}, engine="vllm"),
    Truth("vllm_draft_graph_nvtx", 23, {"verify": (31.894, 33.1391), "draft": (8.9796, 9.8316)}, engine="vllm"),
    Truth("vllm_ngram_graph", 18, {"draft": 0.0, "replay": 0.0}, engine="vllm"),
    Truth("vllm_eagle_graph", 20, {"replay": 0.0}, engine="vllm"),  # the log uses 19 of the 20
]  # fmt: skip


def split(path: Path, **options: object) -> Account:
    settings = {"ignore": frozenset({"nvtx"})} | options
    return account(read_trace(path), Options(**settings))  # type: ignore[arg-type]


def ms_of(found: Account, phase: str) -> float:
    """GPU ms of a phase; target steps outside the rounds are one sum, set-up kernels with them."""
    buckets = {b.bucket: b.gpu_ns / MS for b in found.buckets}
    if phase != "plain":
        return buckets[phase]
    outside = buckets["prefill"] + buckets["decode"] + buckets["plain"]
    return outside + (buckets["other"] if found.engine.name == "llama.cpp" else 0.0)


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda truth: truth.label)
def test_a_capture_agrees_with_its_run(trace_file: Callable[[str], Path], truth: Truth) -> None:
    found = split(trace_file(truth.trace), plan=Plan(closing=truth.closing), pid=truth.pid)
    assert found.engine.name == truth.engine
    assert found.rounds.value == truth.rounds
    for phase, expected in truth.ms.items():
        low, high = expected if isinstance(expected, tuple) else (expected, expected)
        assert low * 0.98 - 0.005 <= ms_of(found, phase) <= high * 1.02 + 0.005, phase
    assert sum(b.gpu_ns for b in found.buckets) == found.total_gpu_ns


@pytest.mark.parametrize("name", ["llama_A_servernospec_graph", "vllm_plain_graph"])
def test_speculation_that_is_off_is_said_and_not_guessed(
    trace_file: Callable[[str], Path], name: str
) -> None:
    found = split(trace_file(name))
    assert found.rounds.verdict == "none"
    assert found.rounds.reasons[0].startswith("no verify pass: speculation was off")
    assert found.per_round == []


def test_warm_ups_of_verify_shape_are_no_rounds(trace_file: Callable[[str], Path]) -> None:
    """Both models run a pass of two rows before the prompt: 0.717 and 1.533 ms."""
    for name, warm_up_ms in (("llama_B_mtp_graph", 0.7168), ("llama_B_spec_graph", 1.5328)):
        found = split(trace_file(name))
        assert ms_of(found, "other") == pytest.approx(warm_up_ms, rel=0.02)


def test_graphs_given_up_half_way_are_not_scaled_to_rounds(
    trace_file: Callable[[str], Path],
) -> None:
    """24 of 27 verify passes are whole graphs, the other three are kernels."""
    found = split(trace_file("llama_B_spec_graph"))
    verify = next(b for b in found.buckets if b.bucket == "verify")
    assert verify.graph_launches == 24
    assert set(verify.by_basis) == {"graph", "positional"}
    assert not [s for s in found.rounds.signatures if s.rounds not in (None, 27)]
    assert found.rounds.k == 4 and found.rounds.width == 5


def test_passes_at_verify_width_on_the_draft_stream_are_draft(
    trace_file: Callable[[str], Path],
) -> None:
    """The MTP head's catch-up pass runs on four rows as well: 3 proposing passes and it, each round."""
    found = split(trace_file("llama_B_mtp_graph"))
    assert found.rounds.width == 4
    verify = next(s for s in found.steps if s.role == "verify")
    draft = next(s for s in found.steps if s.role == "draft")
    assert (verify.count, draft.count) == (44, 4 * 44)


# ---------------------------------------------------------------- built after an engine's anatomy


class Host:
    """Launches one thing after another, each 20 us after the last, and waits for results."""

    def __init__(self) -> None:
        self.trace = TraceBuilder()
        self.now = 1_000_000

    def kernel(self, name: str, us: int = 4, **where: object) -> None:
        self.trace.kernel(name, self.now, self.now + us * US, **where)  # type: ignore[arg-type]
        self.now += (us + 2) * US

    def graph(self, exec_id: int, us: int, stream: int = 7) -> None:
        self.trace.graph_launch(exec_id, self.now, self.now + us * US, stream=stream)
        self.now += (us + 2) * US

    def result(self, stream: int = 7, *, rows: int = 1) -> None:
        """Copy the results of so many rows back and wait for them, or only wait."""
        if rows:
            self.trace.memcpy(self.now, self.now + 2 * US, kind=2, size=4096 * rows, stream=stream)
        self.trace.sync(self.now + US, self.now + 4 * US, stream=stream)
        self.now += 30 * US

    def inputs(self, stream: int = 7) -> None:
        self.trace.memcpy(self.now, self.now + 2 * US, kind=1, stream=stream)
        self.now += 6 * US

    def eager(
        self, rows: int, stream: int, kernels: int = 8, *, rows_returned: int | None = None
    ) -> None:
        """A llama.cpp pass outside graphs: a prompt returns its last row, others all, unless told."""
        self.inputs(stream)
        for _ in range(kernels):
            if rows > 8:
                self.kernel("void quantize_mmq_q8_1<(int)0>(int)", stream=stream, grid=(rows, 1, 1))
                self.kernel("void mul_mat_q<(ggml_type)12, (int)96>(int)", stream=stream)
            else:
                name = f"void mul_mat_vec_q<(ggml_type)12, (int){rows}>(const void *)"
                self.kernel(name, 8 if stream == 14 else 3, stream=stream)
        usual = rows if rows <= 8 else 1
        self.result(stream, rows=usual if rows_returned is None else rows_returned)


def llama_with_many_draft_graphs(rounds: int, graphs: int) -> TraceBuilder:
    """Speculation whose draft passes, alike in work, are launches of many executable graphs."""
    host = Host()
    exec_ids = cycle(range(101, 101 + graphs))
    for rows in (2, 80):  # warm-up, prompt
        host.eager(rows, 14)
        host.eager(rows, 15)
    host.eager(1, 15)  # the first draft pass, before its graph exists
    for _ in range(rounds):
        for _ in range(4):
            host.inputs(15)
            host.graph(next(exec_ids), 30, stream=15)
            host.result(15)
        host.eager(5, 14)
    return host.trace


def test_one_role_over_nineteen_executable_graphs(tmp_path: Path) -> None:
    trace = llama_with_many_draft_graphs(rounds=12, graphs=19)
    found = split(trace.write(tmp_path / "t.sqlite"))
    assert found.engine.name == "llama.cpp"
    assert found.rounds.value == 12
    assert len(found.graphs) == 19
    assert {g.role for g in found.graphs} == {"draft"}
    assert ms_of(found, "draft") == pytest.approx(12 * 4 * 0.030 + 8 * 0.003)
    assert ms_of(found, "verify") == pytest.approx(12 * 8 * 0.008)


def sglang(rounds: int) -> TraceBuilder:
    """SGLang's round: draft graph and tree, verify graph and acceptance, draft_extend graph."""
    host = Host()
    for _ in range(6):  # the prompt
        host.kernel("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", 40)
    host.result()
    host.kernel("_draft_extend_inputs_kernel")
    host.graph(30, 25)
    for _ in range(rounds):
        host.inputs()
        host.graph(10, 50)
        host.kernel("sglang::build_tree_efficient(long *)", block=(4, 1, 1))
        host.result()
        host.inputs()
        host.graph(20, 400)
        host.kernel("void sglang::VerifyTreeGreedy<int, long>(int *)")
        host.kernel("_verify_commit_outputs_kernel")
        host.result()
        host.kernel("_draft_extend_inputs_kernel")
        host.graph(30, 25)
    host.result()
    return host.trace


def test_sglang_draft_extend_is_draft_though_it_runs_on_the_verified_rows(tmp_path: Path) -> None:
    found = split(sglang(rounds=9).write(tmp_path / "t.sqlite"))
    assert found.engine.name == "sglang"
    assert found.rounds.value == 9
    assert found.rounds.verdict == "exact"
    assert ms_of(found, "verify") == pytest.approx(9 * 0.408, rel=0.02)
    assert ms_of(found, "draft") == pytest.approx(9 * (0.050 + 0.004 + 0.025 + 0.004), rel=0.06)


def test_transformers_gets_no_split_without_ranges_and_one_with_them(tmp_path: Path) -> None:
    host = Host()
    for _ in range(5):
        for text, kernels, us in (("draft", 6, 5), ("verify", 3, 20)):
            begin = host.now - 6 * US
            for _ in range(kernels):
                host.kernel("void at::native::elementwise_kernel<(int)128, (int)2>(int)", us)
            host.trace.nvtx(text, begin, host.now - 6 * US)
            host.result()
    path = host.trace.write(tmp_path / "t.sqlite")
    for engine in (None, "transformers"):
        none = split(path, engine=engine)
        assert none.rounds.value is None
        assert ms_of(none, "unattributed") == none.total_gpu_ns / MS
    assert none.engine.detail == "its kernel names tell no phase: only NVTX ranges do"
    found = split(path, engine="transformers", ignore=frozenset())
    assert found.rounds.value == 5
    assert (ms_of(found, "draft"), ms_of(found, "verify")) == (
        pytest.approx(0.15),
        pytest.approx(0.3),
    )


def test_tensorrt_llm_rounds_inside_one_graph_are_not_called_plain(tmp_path: Path) -> None:
    host = Host()
    for _ in range(8):
        host.inputs()
        host.graph(5, 300)
        host.result()
    found = split(host.trace.write(tmp_path / "t.sqlite"), engine="tensorrt-llm")
    assert found.rounds.value is None
    assert "names tell phases only where graphs are expanded" in found.engine.detail


@pytest.mark.parametrize("engine", ["kestrel", "sglang", "tensorrt-llm", "transformers"])
@pytest.mark.parametrize(
    "trace", ["vllm_eagle_graph", "vllm_draft_graph_nvtx", "llama_B_mtp_graph"]
)
def test_another_engine_than_the_traces_is_never_sure(
    trace_file: Callable[[str], Path], trace: str, engine: str
) -> None:
    found = split(trace_file(trace), engine=engine)
    assert found.rounds.verdict in ("none", "inferred")
    assert found.rounds.k is None  # 3 in truth; 9, 3 and 4 launches of draft graphs a round
    assert [f.severity for f in found.findings if f.kind == "engine"] == ["warning"]
    for phase in ("draft", "verify", "replay"):
        assert set(found.bucket(phase).by_basis) <= {"pattern"}


def test_what_is_launched_with_a_graph_is_no_step_of_its_own(
    trace_file: Callable[[str], Path],
) -> None:
    """A verify graph and the sampling kernels behind it are one step, and cost what both cost."""
    found = account(read_trace(trace_file("torch_graphs_nvtx")))
    (verify,) = [s for s in found.steps if s.role == "verify"]
    assert verify.count == found.rounds.value == 40
    (bucket,) = [b for b in found.buckets if b.bucket == "verify"]
    assert verify.gpu_ns == bucket.gpu_ns
    assert verify.wall_ns is None  # two verify steps never stand side by side
