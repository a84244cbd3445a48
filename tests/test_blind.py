"""What a trace hides: each kind of blind spot on a trace that shows it, and on one that must not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.builder import TraceBuilder
from nsysacct.account import account
from nsysacct.checkup import check
from nsysacct.grammar import Plan
from nsysacct.losses import JUMP
from nsysacct.model import Account
from nsysacct.options import Options
from nsysacct.trace import read_trace

US = 1_000
STEP = 200 * US
DRAFT = "void k_rq_q4_gemv_mr<(int)1, (int)1>(const unsigned char *)"
VERIFY = "void k_rq_q4_gemv_mr<(int)4, (int)3>(const unsigned char *)"
TARGET = "void k_rq_q4_gemv_mr<(int)4, (int)1>(const unsigned char *)"

Make = Callable[..., Account]


class Engine:
    """A small engine: draft steps, verify passes and target steps, the host waiting after each."""

    def __init__(self, schema: str = "3.20.3", pid: int = 100) -> None:
        self.trace = TraceBuilder(schema)
        self.trace.process(pid)
        self.now = 1_000 * US

    def eager(self, name: str, kernels: int = 4) -> None:
        for i in range(kernels):
            start = self.now + i * 20 * US
            self.trace.kernel(name, start, start + 10 * US)
        self._wait(kernels * 20 * US)

    def graph(self, exec_id: int = 2, *, timed: bool = True) -> None:
        end = self.now + 80 * US if timed else None
        self.trace.graph_launch(exec_id, self.now, end)
        self._wait(80 * US)

    def _wait(self, after: int) -> None:
        self.trace.sync(self.now + after - 4 * US, self.now + after + 4 * US)
        self.now += max(STEP, after + 50 * US)

    def rounds(self, replay: tuple[int, ...], *, timed: bool = True) -> None:
        for steps in replay:
            for _ in range(3):
                self.eager(DRAFT)
            self.eager(VERIFY, kernels=8)
            for _ in range(steps):
                self.graph(timed=timed)


def account_of(trace: TraceBuilder, folder: Path, **options: object) -> Account:
    path = trace.write(folder / "t.sqlite")
    return account(read_trace(path), Options(engine="kestrel", **options))  # type: ignore[arg-type]


def kinds(a: Account) -> set[str]:
    return {s.kind for s in a.blind_spots}


def test_a_whole_capture_has_no_loss(tmp_path: Path) -> None:
    engine = Engine()
    engine.rounds((1, 0, 2, 1))
    a = account_of(engine.trace, tmp_path, plan=Plan(closing=0))
    assert a.rounds.value == 4
    assert not {k for k in kinds(a) if k.startswith(("lost", "graph-blind"))}
    assert check(a).passed


def test_timed_graphs_are_a_measurement_without_names(tmp_path: Path) -> None:
    engine = Engine()
    engine.rounds((1, 0, 2, 1))
    a = account_of(engine.trace, tmp_path, plan=Plan(closing=0))
    assert kinds(a) == {"graph-names"}
    assert a.bucket("replay").gpu_ns == 4 * 80 * US
    assert a.bucket("replay").by_basis == {"graph": 4 * 80 * US}
    (graph,) = a.graphs
    assert (graph.state, graph.role, graph.launches) == ("timed", "replay", 4)


def test_blind_launches_are_priced_by_the_step_and_never_counted_as_gpu_time(
    tmp_path: Path,
) -> None:
    engine = Engine("3.7.2")
    engine.rounds((1, 0, 2, 1), timed=False)
    a = account_of(engine.trace, tmp_path, plan=Plan(closing=0), step_ns=90 * US)
    replay = a.bucket("replay")
    assert replay.gpu_ns == 0
    assert replay.by_basis == {"arithmetic": 4 * 90 * US}
    (spot,) = [s for s in a.blind_spots if s.kind == "graph-blind"]
    assert (spot.count, spot.hidden_ns, spot.basis, spot.severity) == (
        4,
        360 * US,
        "arithmetic",
        "warning",
    )
    assert "--cuda-graph-trace=node" in spot.remedy


def test_without_a_step_time_the_host_bounds_them(tmp_path: Path) -> None:
    engine = Engine("3.7.2")
    engine.rounds((1, 0, 2, 1), timed=False)
    a = account_of(engine.trace, tmp_path, plan=Plan(closing=0))
    amount = a.bucket("replay").by_basis
    assert set(amount) == {"bound"}
    assert 4 * 80 * US <= amount["bound"] <= 4 * 100 * US


def test_without_syncs_the_price_is_open_not_zero(tmp_path: Path) -> None:
    trace = TraceBuilder("3.7.2")
    trace.process(100)
    for i in range(4):
        trace.kernel(VERIFY, (i + 1) * STEP, (i + 1) * STEP + 10 * US)
        trace.graph_launch(2, (i + 1) * STEP + 50 * US)
    a = account_of(trace, tmp_path)
    spots = [s for s in a.blind_spots if s.kind == "graph-blind"]
    assert spots
    assert all(s.hidden_ns is None and s.basis is None for s in spots)


def drop_kernels(engine: Engine, keep: Callable[[int], bool]) -> None:
    rows = engine.trace.rows("CUPTI_ACTIVITY_KIND_KERNEL")
    rows[:] = [row for i, row in enumerate(rows) if keep(i)]


def test_a_lost_tail_is_called_so_with_the_last_trustworthy_time(tmp_path: Path) -> None:
    engine = Engine()
    engine.rounds((0,) * 12)
    count = len(engine.trace.rows("CUPTI_ACTIVITY_KIND_KERNEL"))
    drop_kernels(engine, lambda i: i < count // 2)
    last = max(row["end"] for row in engine.trace.rows("CUPTI_ACTIVITY_KIND_KERNEL"))
    a = account_of(engine.trace, tmp_path)
    (spot,) = [s for s in a.blind_spots if s.kind == "lost-tail"]
    assert spot.severity == "fatal"
    assert spot.count == count - count // 2
    assert f"{last / 1e9:.3f} s, the last trustworthy time" in spot.detail
    assert not check(a).passed


def test_kernels_lost_in_the_middle(tmp_path: Path) -> None:
    engine = Engine()
    engine.rounds((0,) * 12)
    drop_kernels(engine, lambda i: i % 7 != 3)
    a = account_of(engine.trace, tmp_path)
    assert [s.kind for s in a.blind_spots if s.severity == "fatal"] == ["lost-events"]


def test_jumps_of_the_correlation_ids_show_calls_that_were_never_delivered(tmp_path: Path) -> None:
    engine = Engine()
    engine.rounds((0,) * 6)
    for table in ("KERNEL", "RUNTIME", "SYNCHRONIZATION"):
        for row in engine.trace.rows(f"CUPTI_ACTIVITY_KIND_{table}"):
            row["correlationId"] += 3 * JUMP * (row["start"] > engine.now // 2)
    a = account_of(engine.trace, tmp_path)
    (spot,) = [s for s in a.blind_spots if s.kind == "lost-events"]
    assert spot.count == 3 * JUMP
    assert "in 1 jumps" in spot.detail


def test_launches_that_build_a_graph_are_no_loss(tmp_path: Path) -> None:
    engine = Engine()
    engine.trace.launch(100 * US, "cudaStreamBeginCapture_v10000")
    for i in range(30):
        engine.trace.launch((110 + i) * US)
    engine.trace.launch(200 * US, "cudaStreamEndCapture_v10000")
    engine.rounds((1, 1, 0))
    a = account_of(engine.trace, tmp_path)
    assert not {k for k in kinds(a) if k.startswith("lost")}


def test_a_phase_marked_long_after_the_last_gpu_event(tmp_path: Path) -> None:
    engine = Engine()
    engine.rounds((0,) * 4)
    engine.trace.nvtx("replay", engine.now, engine.now + 400_000 * US)
    a = account_of(engine.trace, tmp_path)
    (spot,) = [s for s in a.blind_spots if s.kind == "lost-tail"]
    assert "'replay' goes on for" in spot.detail


def test_no_verify_pass_in_a_damaged_trace_is_not_no_speculation(tmp_path: Path) -> None:
    engine = Engine()
    for _ in range(20):
        engine.eager(TARGET)
    whole = account_of(engine.trace, tmp_path)
    assert (whole.rounds.value, whole.rounds.verdict) == (0, "none")
    count = len(engine.trace.rows("CUPTI_ACTIVITY_KIND_KERNEL"))
    drop_kernels(engine, lambda i: i < count // 2)
    (tmp_path / "t.sqlite").unlink()
    damaged = account_of(engine.trace, tmp_path)
    assert damaged.rounds.value is None
    assert "events were lost" in damaged.rounds.reasons[0]


def test_what_the_collector_says_is_quoted_but_proves_nothing(tmp_path: Path) -> None:
    engine = Engine()
    engine.rounds((1, 1, 1))
    engine.trace.diagnostic("Not all CUDA events might have been collected.")
    a = account_of(engine.trace, tmp_path)
    assert not {k for k in kinds(a) if k.startswith("lost")}
    (finding,) = [f for f in a.findings if f.kind == "collector-warning"]
    assert finding.severity == "info"


def test_a_process_whose_kernels_were_not_traced_is_named(tmp_path: Path) -> None:
    engine = Engine(pid=100)
    engine.rounds((1, 1, 1))
    engine.trace.process(200)
    for i in range(5):
        engine.trace.launch(i * US)
    a = account_of(engine.trace, tmp_path)
    (spot,) = [s for s in a.blind_spots if s.kind == "process-not-traced"]
    assert "pid 200 launched 5 kernels" in spot.detail


@pytest.mark.parametrize("cut", ["start", "end"])
def test_rounds_that_the_capture_cuts_are_partial(tmp_path: Path, cut: str) -> None:
    engine = Engine()
    if cut == "start":
        engine.eager(DRAFT)
        engine.eager(VERIFY, kernels=8)
    engine.rounds((0,) * 5)
    if cut == "end":
        for _ in range(3):
            engine.eager(DRAFT)
        engine.eager(VERIFY, kernels=3)
    a = account_of(engine.trace, tmp_path)
    partial = [r.index for r in a.per_round if "partial" in r.flags]
    assert partial == ([0] if cut == "start" else [5])


def test_processes_that_share_a_gpu_overlap_in_its_busy_time(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.process(100)
    trace.kernel(TARGET, 1_000 * US, 1_010 * US)
    trace.process(200)
    trace.kernel(TARGET, 1_005 * US, 1_020 * US)
    a = account_of(trace, tmp_path)
    assert len(a.processes) == 2
    assert a.gpu_busy_ns == {"0": 20 * US}
    assert sum(p.total_gpu_ns for p in a.processes) == 25 * US
