"""Runs that differ from the recorded ones: their split, or why there is none.

Each trace is a small engine of its own making, whose launches are known by construction; what is
compared is the GPU time of each phase to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fixtures.builder import TraceBuilder
from nsysacct import api
from nsysacct.account import account
from nsysacct.errors import UsageError
from nsysacct.model import Account
from nsysacct.options import Options
from nsysacct.trace import read_trace

STREAM, DRAFT_STREAM = 7, 13
PHASES = ("draft", "verify", "replay", "plain")


def gemv(rows: int, width: int) -> str:
    return (
        f"void k_rq_q4_gemv_mr<(int){rows}, (int){width}>(const unsigned char *, float *, int, int)"
    )


def target_pass(layers: int, k: int | None, *, gdn: bool) -> list[tuple[str, int]]:
    """Kernels (name, ns) of a target pass: verifying k rows, or a plain step (None)."""
    m = "_m" if k else ""
    kernels: list[tuple[str, int]] = []
    for _ in range(layers):
        kernels += [("k_rmsnorm(const float *, float *, int)", 900)]
        kernels += [(gemv(4, k), 7_000) if k else ("k_rq_q4_gemv3(const unsigned char *)", 5_000)]
        kernels += (
            [(f"k_gdn_conv{m}(float *)", 1_500), (f"k_gdn_out{m}(float *)", 1_500)] if gdn else []
        )
        kernels += [] if gdn else [("k_attn_decode(const float *)", 1_200)]
        kernels += [(gemv(2, k or 1), 7_000), ("k_residual_add(const float *)", 800)]
    return [*kernels, (gemv(2, k or 1), 9_000), ("k_argmax(const float *, int *, int)", 2_000)]


DRAFT_STEP = [
    ("k_embed(const float *, float *, int, int)", 900),
    ("k_rmsnorm(const float *, float *, int)", 900),
    (gemv(1, 1), 6_000),
    ("k_attn_decode(const float *)", 1_200),
    (gemv(1, 1), 6_000),
    ("k_argmax(const float *, int *, int)", 2_000),
]


@dataclass
class Engine:
    """Launches passes one after the other and adds up what each phase cost."""

    layers: int = 2
    k: int = 3
    gdn: bool = True
    waits: str = "step"  # "step", "round" (after verify only) or "none"
    draft_stream: int = STREAM
    graphs: Sequence[str] = ("target",)
    instance: int = 0  # counts instantiations: graph ids change with it
    trace: TraceBuilder = field(default_factory=TraceBuilder)
    now: int = 1_000_000
    truth: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PHASES, 0))

    def kernels(self, phase: str, kernels: Sequence[tuple[str, int]], stream: int = STREAM) -> None:
        for name, ns in kernels:
            self.trace.kernel(
                name, self.now + 6_000, self.now + 6_000 + ns, stream=stream, launch=self.now
            )
            self.now += max(ns, 4_000) + 1_000
            self.truth[phase] += ns

    def graph(self, phase: str, kind: int, ns: int, stream: int = STREAM) -> None:
        exec_id = 10 * self.instance + kind
        begin = self.now + 6_000
        self.trace.graph_launch(exec_id, begin, begin + ns, stream=stream, launch=self.now)
        self.now = begin + ns + 1_000
        self.truth[phase] += ns

    def wait(self, *, after: str) -> None:
        if self.waits == "step" or (self.waits == "round" and after != "draft"):
            self.trace.sync(self.now, self.now + 2_000)
        self.now += 8_000

    def step(self, phase: str) -> None:
        kernels = target_pass(self.layers, None, gdn=self.gdn)
        if "target" in self.graphs:
            self.graph(phase, 1, sum(ns for _, ns in kernels))
        else:
            self.kernels(phase, kernels)
        self.wait(after="target")

    def draft(self, steps: int = 1) -> None:
        kernels = DRAFT_STEP * steps
        if "draft" in self.graphs:
            self.graph("draft", 2, sum(ns for _, ns in kernels), self.draft_stream)
        else:
            self.kernels("draft", kernels, self.draft_stream)
        self.wait(after="draft")

    def verify(self) -> None:
        kernels = target_pass(self.layers, self.k, gdn=self.gdn)
        if "verify" in self.graphs:
            self.graph("verify", 3, sum(ns for _, ns in kernels) + 4_000)
        else:
            self.kernels("verify", kernels)
        self.wait(after="verify")

    def rounds(self, n_ok: Sequence[int]) -> None:
        for n in n_ok:
            for _ in range(self.k):
                self.draft()
            self.verify()
            for _ in range(0 if n >= self.k else max(n, 1)):
                self.step("replay")

    def run(self, n_ok: Sequence[int], *, plain: int = 6, closing: int = 2) -> None:
        for _ in range(plain):
            self.step("plain")
        self.rounds(n_ok)
        for _ in range(closing):
            self.step("plain")

    def split(
        self, path: Path, *, engine: str | None = "kestrel", closing: int = 2, **options: object
    ) -> Account:
        return api.split(
            self.trace.write(path / "t.sqlite"), engine=engine, closing=closing, **options
        )  # type: ignore[arg-type]


def found(account: Account) -> dict[str, int]:
    ns = {b.bucket: b.gpu_ns for b in account.buckets}
    ns["plain"] += ns["decode"] + ns["prefill"]
    return {phase: ns[phase] for phase in PHASES}


N_OK = [3, 0, 1, 2, 0, 3, 0, 1]

VARIANTS: dict[str, Engine] = {
    "k = 1, verify of one row": Engine(k=1),
    "k = 1 without gdn: no verify name at all": Engine(k=1, gdn=False),
    "k = 1 without graphs": Engine(k=1, graphs=()),
    "k = 2": Engine(k=2),
    "k = 5": Engine(k=5),
    "k = 8": Engine(k=8),
    "one layer": Engine(layers=1),
    "attention only": Engine(gdn=False),
    "waits after verify and steps only": Engine(waits="round"),
    "never waits": Engine(waits="none"),
    "never waits, no graphs": Engine(waits="none", graphs=()),
    "k = 1, never waits, no graphs": Engine(k=1, waits="none", graphs=()),
    "draft on a stream of its own": Engine(draft_stream=DRAFT_STREAM),
    "draft on a stream of its own, never waits": Engine(
        draft_stream=DRAFT_STREAM, waits="none", graphs=()
    ),
    "verify graph": Engine(graphs=("target", "verify")),
    "verify graph, waits for the round": Engine(graphs=("target", "verify"), waits="round"),
    "verify graph, never waits": Engine(graphs=("target", "verify"), waits="none"),
    "draft graph": Engine(graphs=("target", "draft")),
    "all in graphs": Engine(graphs=("target", "verify", "draft")),
    "all in graphs, k = 1": Engine(k=1, graphs=("target", "verify", "draft")),
    "all in graphs, waits for the round": Engine(
        graphs=("target", "verify", "draft"), waits="round"
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_split_is_what_was_launched(tmp_path: Path, name: str) -> None:
    original = VARIANTS[name]
    e = Engine(
        original.layers,
        original.k,
        original.gdn,
        original.waits,
        original.draft_stream,
        original.graphs,
    )
    e.run([min(n, e.k) for n in N_OK])
    account = e.split(tmp_path)
    assert account.rounds.value == len(N_OK)
    assert found(account) == e.truth


@pytest.mark.parametrize(
    "graphs", [("target",), ("target", "verify"), ("target", "verify", "draft")]
)
@pytest.mark.parametrize("accepted", [0, 3])
def test_acceptance_of_nothing_and_of_everything(
    tmp_path: Path, graphs: Sequence[str], accepted: int
) -> None:
    e = Engine(graphs=graphs)
    e.run([accepted] * 6)
    account = e.split(tmp_path)
    assert (account.rounds.value, found(account)) == (6, e.truth)


@pytest.mark.parametrize(
    "graphs", [("target",), ("target", "verify"), ("target", "verify", "draft")]
)
def test_graphs_instantiated_anew_keep_their_roles(tmp_path: Path, graphs: Sequence[str]) -> None:
    e = Engine(graphs=graphs)
    e.run([], closing=0)
    for e.instance in range(4):
        e.rounds([0, 2])
    e.step("plain")
    account = e.split(tmp_path, closing=1)
    assert (account.rounds.value, found(account)) == (8, e.truth)


def test_rounds_without_any_plain_step(tmp_path: Path) -> None:
    e = Engine(graphs=("target", "verify", "draft"))
    e.run(N_OK, plain=0, closing=0)
    account = e.split(tmp_path, closing=0)
    assert (account.rounds.value, found(account)) == (len(N_OK), e.truth)


def test_a_draft_graph_of_several_steps_leaves_k_open(tmp_path: Path) -> None:
    e = Engine(layers=6, graphs=("target", "verify", "draft"))
    for _ in range(5):
        e.step("plain")
    for n in N_OK:
        e.draft(steps=3)
        e.verify()
        for _ in range(0 if n == 3 else max(n, 1)):
            e.step("replay")
    account = e.split(tmp_path, closing=0)
    assert (account.rounds.value, account.rounds.k) == (len(N_OK), None)
    assert found(account) == e.truth
    assert any("may hold several steps" in f.detail for f in account.findings)


def test_glue_kernels_are_no_steps(tmp_path: Path) -> None:
    e = Engine(graphs=("target", "verify", "draft"))
    for _ in range(5):
        e.step("plain")
    for _ in range(6):
        for _ in range(3):
            e.kernels("draft", [("void copy_token<long>(long *)", 1_000)])
            e.draft()
        e.verify()
        e.step("replay")
    account = e.split(tmp_path, closing=0)
    assert found(account) == e.truth
    assert {r.draft_steps for r in account.per_round} == {3}


# --- where the launches cannot tell, nothing is invented ---------------------------------------------


def declined(account: Account) -> bool:
    ns = {b.bucket: b.gpu_ns for b in account.buckets}
    return account.rounds.value is None and not (ns["draft"] or ns["verify"] or ns["replay"])


def test_graphs_that_never_wait_are_not_split(tmp_path: Path) -> None:
    e = Engine(graphs=("target", "verify", "draft"), waits="none")
    e.run(N_OK)
    account = e.split(tmp_path)
    assert declined(account)
    assert any("without the host waiting" in reason for reason in account.rounds.reasons)


def test_one_graph_of_draft_and_verify_is_not_no_speculation(tmp_path: Path) -> None:
    e = Engine()
    e.run([], closing=0)
    for _ in range(8):
        e.graph("verify", 3, 90_000)
        e.wait(after="verify")
        e.step("replay")
    account = e.split(tmp_path)
    assert declined(account)
    assert any("different cost" in reason for reason in account.rounds.reasons)


@pytest.mark.parametrize("costs", [(20_000, 20_000), (20_000, 20_500)], ids=["equal", "alike"])
def test_two_graphs_in_turn_are_plain_steps(tmp_path: Path, costs: Sequence[int]) -> None:
    e = Engine()
    for i in range(20):
        e.graph("plain", 1 + i % 2, costs[i % 2])
        e.wait(after="target")
    account = e.split(tmp_path)
    assert account.rounds.value == 0
    assert found(account) == e.truth


def test_two_parts_of_a_step_are_no_draft_and_verify(tmp_path: Path) -> None:
    e = Engine()
    for _ in range(20):
        for kind, ns in ((2, 2_000), (1, 40_000)):
            e.graph("plain", kind, ns)
            e.wait(after="target")
    account = e.split(tmp_path, engine=None)
    assert declined(account)
    assert any("two parts of a plain step" in reason for reason in account.rounds.reasons)


def test_pieces_of_a_pass_are_no_drafts(tmp_path: Path) -> None:
    """Three graphs a pass, eager attention between: each piece once, the host waits after the pass."""
    e = Engine()
    for _ in range(20):
        for kind, ns in ((2, 5_000), (3, 5_500), (4, 40_000)):
            e.graph("plain", kind, ns)
            e.kernels("plain", [("void attention<8>(float *)", 2_000)])
        e.wait(after="target")
    account = e.split(tmp_path, engine=None)
    assert declined(account)
    assert any("pieces of one pass" in reason for reason in account.rounds.reasons)


@pytest.mark.parametrize("engine", ["llama.cpp", "vllm"])
def test_a_wrong_engine_proves_nothing(tmp_path: Path, engine: str) -> None:
    e = Engine()
    e.run(N_OK)
    account = e.split(tmp_path, engine=engine)
    assert declined(account)
    assert any(f.kind == "engine" and "look like kestrel's" in f.detail for f in account.findings)


@pytest.mark.parametrize(
    "ignore", [("exclusive",), ("positional",), ("graph",), ("pattern",), ("exclusive", "graph")]
)
@pytest.mark.parametrize("graphs", [("target",), ("target", "verify", "draft")])
def test_ignored_evidence_moves_amounts_but_loses_none(
    tmp_path: Path, graphs: Sequence[str], ignore: Sequence[str]
) -> None:
    e = Engine(graphs=graphs)
    e.run(N_OK)
    account = e.split(tmp_path, ignore=ignore)
    assert sum(b.gpu_ns for b in account.buckets) == sum(e.truth.values())
    assert not {basis for b in account.buckets for basis in b.by_basis} & set(ignore)
    if account.rounds.value == 0:
        pytest.fail("switched-off evidence is not evidence that nothing was verified")


def test_a_histogram_is_meant_for_the_process_that_was_chosen(tmp_path: Path) -> None:
    """Two processes with another k each: what fits one of them does not fit the other."""
    trace = TraceBuilder()
    now = 1_000_000
    for pid, k in ((10, 2), (11, 3)):
        trace.process(pid)
        engine = Engine(k=k, trace=trace, now=now)
        engine.run([1, 0, 2])
        now = engine.now
    file = trace.write(tmp_path / "t.sqlite")
    for pid, k in ((10, 2), (11, 3)):
        options = Options(pid=pid, n_ok=tuple([1] * (k + 1)))
        chosen = account(read_trace(file), options)
        assert (chosen.pid, chosen.rounds.k) == (pid, k)
        assert chosen.acceptance is not None
        assert [p.acceptance is None for p in chosen.processes] == [
            p.pid != pid for p in chosen.processes
        ]
        wrong = Options(pid=pid, n_ok=tuple([1] * (k + 3)))
        with pytest.raises(UsageError, match=f"which is k = {k} here"):
            account(read_trace(file), wrong)
    with pytest.raises(UsageError, match="does not fit"):
        account(read_trace(file), Options(k=7))
