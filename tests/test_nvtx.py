"""NVTX ranges projected on GPU work through the launching call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from test_engines import Host

from fixtures.builder import TraceBuilder
from nsysacct.account import account, events
from nsysacct.evidence import Code
from nsysacct.model import BUCKETS, Witness
from nsysacct.nvtx import Rule, default_code
from nsysacct.options import Options
from nsysacct.trace import read_trace
from nsysacct.witnesses import STEPS_THAT_VERIFY

US = 1_000


@pytest.mark.parametrize(
    ("text", "bucket"),
    [
        ("draft", "draft"),
        ("Verify", "verify"),
        ("T:draft #12", "draft"),
        ("prefill_b", "prefill"),
        ("engine/verify 3", "verify"),
        ("gpu_model_runner: draft", "draft"),
        ("autoregressive", "decode"),
        ("target-verify", "verify"),
        ("decode L16 ctx0 n=5", None),
        ("verify_logits_processor", None),
        ("drafty", None),
        ("T:target #3", None),
        ("", None),
    ],
)
def test_words_that_name_a_phase_by_themselves(text: str, bucket: str | None) -> None:
    code = default_code(text)
    assert (code.name.lower() if code else None) == bucket


def placed(trace: TraceBuilder, folder: Path, **options: object) -> list[str]:
    """Bucket of each kernel, in launch order."""
    path = trace.write(folder / "t.sqlite")
    (found,) = events(read_trace(path), Options(**options))  # type: ignore[arg-type]
    return [BUCKETS[b] for b in found.bucket]


@pytest.fixture
def trace() -> TraceBuilder:
    builder = TraceBuilder()
    builder.process(50)
    return builder


def test_a_kernel_belongs_to_the_range_that_launched_it_however_late_it_runs(
    trace: TraceBuilder, tmp_path: Path
) -> None:
    trace.nvtx("draft", 0, 10 * US)
    trace.nvtx("verify", 20 * US, 30 * US)
    trace.kernel("a", 500 * US, 501 * US, launch=5 * US)
    trace.kernel("b", 502 * US, 503 * US, launch=25 * US)
    trace.kernel("c", 504 * US, 505 * US, launch=40 * US)
    assert placed(trace, tmp_path) == ["draft", "verify", "unattributed"]


def test_the_innermost_mapped_range_wins(trace: TraceBuilder, tmp_path: Path) -> None:
    trace.nvtx("verify", 0, 100 * US)
    trace.nvtx("layer 3", 10 * US, 90 * US)
    trace.nvtx("replay", 20 * US, 30 * US)
    for at in (15, 25, 35):
        trace.kernel("k", (200 + at) * US, (201 + at) * US, launch=at * US)
    assert placed(trace, tmp_path) == ["verify", "replay", "verify"]


def test_a_range_still_open_at_the_end(trace: TraceBuilder, tmp_path: Path) -> None:
    trace.nvtx("verify", 10 * US, None)
    trace.kernel("k", 200 * US, 201 * US, launch=50 * US)
    assert placed(trace, tmp_path) == ["verify"]


def test_push_pop_on_another_thread_does_not_count_where_the_launcher_marks(
    trace: TraceBuilder, tmp_path: Path
) -> None:
    other = trace.thread(777)
    trace.nvtx("draft", 0, 100 * US, other)
    trace.nvtx("verify", 0, 20 * US)
    trace.kernel("a", 200 * US, 201 * US, launch=10 * US)
    trace.kernel("b", 202 * US, 203 * US, launch=50 * US)
    assert placed(trace, tmp_path) == ["verify", "unattributed"]


def test_marks_of_another_thread_count_where_the_launcher_has_none(
    trace: TraceBuilder, tmp_path: Path
) -> None:
    trace.nvtx("draft", 0, 100 * US, trace.thread(777))
    trace.kernel("a", 200 * US, 201 * US, launch=10 * US)
    assert placed(trace, tmp_path) == ["draft"]


def test_start_end_ranges_belong_to_the_process(trace: TraceBuilder, tmp_path: Path) -> None:
    trace.nvtx("draft", 0, 100 * US, trace.thread(777), event_type=60)
    trace.nvtx("verify", 0, 20 * US)
    trace.kernel("a", 200 * US, 201 * US, launch=10 * US)
    trace.kernel("b", 202 * US, 203 * US, launch=50 * US)
    assert placed(trace, tmp_path) == ["verify", "draft"]


def test_ranges_of_another_process_do_not_count(trace: TraceBuilder, tmp_path: Path) -> None:
    trace.kernel("a", 200 * US, 201 * US, launch=10 * US)
    trace.process(60)
    trace.nvtx("draft", 0, 100 * US)
    trace.kernel("b", 300 * US, 301 * US, launch=10 * US)
    path = trace.write(tmp_path / "t.sqlite")
    by_pid = {e.pid: [BUCKETS[b] for b in e.bucket] for e in events(read_trace(path))}
    assert by_pid == {50: ["unattributed"], 60: ["draft"]}


def test_the_users_rules_come_first_and_nvtx_can_be_ignored(
    trace: TraceBuilder, tmp_path: Path
) -> None:
    trace.nvtx("draft", 0, 20 * US)
    trace.nvtx("Target forward", 30 * US, 50 * US)
    trace.kernel("a", 200 * US, 201 * US, launch=10 * US)
    trace.kernel("b", 202 * US, 203 * US, launch=40 * US)
    rules = (Rule("Target*", Code.VERIFY), Rule("draft", Code.REPLAY))
    assert placed(trace, tmp_path, nvtx=rules) == ["replay", "verify"]
    (tmp_path / "t.sqlite").unlink()
    ignored = placed(trace, tmp_path, nvtx=rules, ignore=frozenset({"nvtx"}))
    assert ignored == ["unattributed", "unattributed"]


def test_ranges_carry_the_rounds_where_nothing_has_a_name(
    trace: TraceBuilder, tmp_path: Path
) -> None:
    now = 0
    for _ in range(5):
        for text, kernels in (("draft", 3), ("verify", 6)):
            trace.nvtx(text, now, now + 50 * US)
            for i in range(kernels):
                trace.kernel(
                    "gemm",
                    now + (10 + 5 * i) * US,
                    now + (12 + 5 * i) * US,
                    launch=now + (1 + i) * US,
                )
            now += 60 * US
    a = account(read_trace(trace.write(tmp_path / "t.sqlite")))
    assert (a.rounds.value, a.rounds.verdict) == (5, "inferred")
    assert a.bucket("verify").by_basis == {"nvtx": 5 * 6 * 2 * US}
    assert a.bucket("draft").by_basis == {"nvtx": 5 * 3 * 2 * US}


# ---------------------------------------------------------------- steps with their numbers


def vllm_run(rounds: int, ranges: int, text: str = "execute_context_0(0)_generation_2(8)") -> Host:
    """Two requests of k = 3 in vLLM's rounds; `ranges` of the steps are marked."""
    host = Host()
    for step in range(rounds):
        begin = host.now - 6 * US
        host.inputs()
        host.kernel("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 40)
        host.kernel("_gather_draft_sampled_kernel")
        host.kernel("_compute_local_logits_stats_kernel", grid=(8, 2, 1))
        host.kernel("_rejection_kernel", grid=(2, 1, 1))
        host.result()
        if step < ranges:
            host.trace.nvtx(text, begin, host.now - 6 * US)
    return host


def steps_witness(host: Host, folder: Path, **options: object) -> tuple[str, list[Witness]]:
    path = host.trace.write(folder / "t.sqlite")
    rounds = account(read_trace(path), Options(engine="vllm", **options)).rounds  # type: ignore[arg-type]
    return rounds.verdict, [w for w in rounds.witnesses if w.name == STEPS_THAT_VERIFY]


def test_ranges_of_steps_that_verify_count_rounds(tmp_path: Path) -> None:
    verdict, (witness,) = steps_witness(vllm_run(rounds=7, ranges=7), tmp_path)
    assert verdict == "exact"
    assert (witness.rounds, witness.agrees) == (7, True)


def test_a_range_too_few_contradicts(tmp_path: Path) -> None:
    verdict, (witness,) = steps_witness(vllm_run(rounds=7, ranges=6), tmp_path)
    assert verdict == "inconsistent"
    assert (witness.rounds, witness.agrees) == (6, False)


def test_steps_of_a_row_a_request_verify_nothing(tmp_path: Path) -> None:
    host = vllm_run(rounds=7, ranges=7)
    for text in ("execute_context_1(28)_generation_0(0)", "execute_context_0(0)_generation_2(2)"):
        host.trace.nvtx(text, host.now, host.now + 10 * US)
        host.now += 20 * US
    _, (witness,) = steps_witness(host, tmp_path)
    assert witness.rounds == 7


def test_ranges_without_numbers_are_no_witness(tmp_path: Path) -> None:
    host = vllm_run(rounds=7, ranges=7, text="execute_context_0(0)_generation_x(8)")
    assert steps_witness(host, tmp_path) == ("exact", [])
    marked = vllm_run(rounds=7, ranges=7)
    assert steps_witness(marked, tmp_path, ignore=frozenset({"nvtx"})) == ("exact", [])


def test_marked_steps_that_verify_forbid_to_deny_speculation(tmp_path: Path) -> None:
    host = Host()
    for _ in range(5):
        begin = host.now - 6 * US
        host.kernel("_post_update_kernel")
        host.kernel("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 40)
        host.result()
        host.trace.nvtx("execute_context_0(0)_generation_1(4)", begin, host.now - 6 * US)
    path = host.trace.write(tmp_path / "t.sqlite")
    rounds = account(read_trace(path), Options(engine="vllm")).rounds
    assert rounds.value is None
    assert any(r.startswith("5 NVTX ranges of steps that verify") for r in rounds.reasons)


def test_vllms_own_ranges_agree(trace_file: Callable[[str], Path]) -> None:
    found = account(read_trace(trace_file("vllm_draft_graph_nvtx")), Options()).rounds
    (witness,) = [w for w in found.witnesses if w.name == STEPS_THAT_VERIFY]
    assert (found.value, witness.rounds, witness.agrees) == (23, 23, True)
