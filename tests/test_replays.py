"""llama.cpp with checkpoints: after a rejection the target's state is restored and a second pass runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from test_engines import MS, US, Host

from nsysacct import api
from nsysacct.model import Account

TARGET, DRAFT = 14, 15
KERNELS = 8
STATE = 8 << 20


@dataclass
class Run:
    """What a built run does; its passes are llama.cpp's."""

    k: int = 3
    drafter: str = (
        "mtp"  # follows the target in a catch-up pass; "model" does not; "ngram" runs nothing
    )
    restores: bool = True  # whether the state comes back from the host, where a trace shows it
    requests: int = 1
    graphs: bool = False  # whether passes of the draft are CUDA graphs, timed as a whole

    def build(
        self, n_ok: Sequence[int], *, second: bool = True, host: Host | None = None
    ) -> tuple[Host, dict[str, float]]:
        """The host after rounds that accepted `n_ok` drafts, and the GPU milliseconds of each phase.

        A `host` that is given goes on with them; a new one warms up and reads a prompt before.
        """
        truth = dict.fromkeys(("draft", "verify", "replay"), 0.0)
        if host is None:
            host = Host()
            for stream in (TARGET, DRAFT)[: 1 if self.drafter == "ngram" else 2]:
                host.eager(2, stream)
                host.eager(80, stream)
        for accepted in n_ok:
            self._draft(host, truth)
            self._target(host, truth, "verify", (self.k + 1) * self.requests)
            if second and accepted < self.k:
                if self.restores:
                    host.trace.memcpy(host.now, host.now + 400 * US, kind=1, size=STATE)
                    host.now += 402 * US
                self._target(host, truth, "replay", accepted + 2)
        return host, truth

    def _draft(self, host: Host, truth: dict[str, float]) -> None:
        for _ in range(self.k if self.drafter != "ngram" else 0):
            self._of_draft(host, truth, self.requests, returned=self.requests)

    def _target(self, host: Host, truth: dict[str, float], phase: str, rows: int) -> None:
        host.eager(rows, TARGET)
        truth[phase] += KERNELS * 0.008
        if self.drafter == "mtp":
            self._of_draft(host, truth, rows, returned=0)

    def _of_draft(self, host: Host, truth: dict[str, float], rows: int, *, returned: int) -> None:
        if self.graphs:
            host.inputs(DRAFT)
            host.graph(100 + rows, 3 * KERNELS, stream=DRAFT)
            host.result(DRAFT, rows=returned)
        else:
            host.eager(rows, DRAFT, rows_returned=returned)
        truth["draft"] += KERNELS * 0.003

    def split(self, folder: Path, n_ok: Sequence[int], engine: str | None = None) -> Account:
        host, self.truth = self.build(n_ok)
        return api.split(host.trace.write(folder / "t.sqlite"), engine=engine)


def phases(account: Account) -> dict[str, float]:
    return {b.bucket: b.gpu_ns / MS for b in account.buckets if b.bucket in IN_ROUNDS}


IN_ROUNDS = ("draft", "verify", "replay")
N_OK = [0, 3, 1, 2, 3, 0, 2, 1, 0, 3]


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("restores", [True, False])
@pytest.mark.parametrize("engine", [None, "llama.cpp/checkpoint"])
def test_a_second_pass_behind_a_catch_up_pass_is_replay(
    tmp_path: Path, engine: str | None, restores: bool, graphs: bool
) -> None:
    run = Run(restores=restores, graphs=graphs)
    found = run.split(tmp_path, N_OK, engine)
    assert found.rounds.value == 10
    assert phases(found) == pytest.approx(run.truth)
    assert [r.replay_steps for r in found.per_round] == [int(n < 3) for n in N_OK]
    assert (found.engine.name, found.engine.variant) == ("llama.cpp", "checkpoint")
    assert found.engine.semantics.tokens == "min(n_ok+2,k+1)"
    replay = found.bucket("replay").by_basis
    assert set(replay) == ({"pattern"} if engine is None else {"positional"})
    assert any(f.kind == "roles" and "7 target passes" in f.detail for f in found.findings)


def test_a_draft_model_that_does_not_follow_shows_its_replay_by_the_restored_state(
    tmp_path: Path,
) -> None:
    run = Run(drafter="model")
    found = run.split(tmp_path, N_OK)
    assert found.rounds.value == 10
    assert phases(found) == pytest.approx(run.truth)


def test_without_any_copy_the_option_says_that_it_is_replay(tmp_path: Path) -> None:
    run = Run(drafter="model", restores=False)
    found = run.split(tmp_path, N_OK, "llama.cpp/checkpoint")
    assert found.rounds.value == 10
    assert phases(found) == pytest.approx(run.truth)


def test_drafts_on_the_cpu_leave_the_restored_state_to_tell(tmp_path: Path) -> None:
    run = Run(drafter="ngram")
    found = run.split(tmp_path, N_OK)
    assert found.rounds.value == 10
    assert phases(found) == pytest.approx(run.truth)
    assert found.engine.variant == "checkpoint"


def test_drafts_on_the_cpu_and_no_copy_leave_the_rows_to_tell(tmp_path: Path) -> None:
    run = Run(drafter="ngram", restores=False)
    n_ok = [0, 3, 1, 1, 3, 0]  # a second pass after 2 of 3 has as many rows as the first one
    found = run.split(tmp_path, n_ok, "llama.cpp/checkpoint")
    assert found.rounds.value == 6
    assert phases(found) == pytest.approx(run.truth)


def test_a_histogram_gives_the_tokens_of_both_passes(tmp_path: Path) -> None:
    host, _ = Run().build(N_OK)
    path = host.trace.write(tmp_path / "t.sqlite")
    found = api.split(path, engine="llama.cpp/checkpoint", n_ok=[3, 2, 2, 3])
    assert found.acceptance is not None
    assert found.acceptance.tokens == 3 * 2 + 2 * 3 + 2 * 4 + 3 * 4


@pytest.mark.parametrize("drafter", ["mtp", "model", "ngram"])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("requests", [1, 2])
@pytest.mark.parametrize("engine", [None, "llama.cpp/checkpoint"])
def test_rounds_without_second_passes_have_no_replay(
    tmp_path: Path, drafter: str, k: int, requests: int, engine: str | None
) -> None:
    run = Run(k=k, drafter=drafter, requests=requests)
    host, truth = run.build(N_OK, second=False)
    found = api.split(host.trace.write(tmp_path / "t.sqlite"), engine=engine)
    assert found.bucket("replay").gpu_ns == 0
    if requests == 1:
        assert found.rounds.value == 10
        assert phases(found) == pytest.approx(truth)
    assert found.engine.variant == ("" if engine is None else "checkpoint")


@pytest.mark.parametrize("drafter", ["mtp", "model", "ngram"])
@pytest.mark.parametrize("engine", [None, "llama.cpp/checkpoint"])
def test_the_short_tail_of_the_next_prompt_is_neither_round_nor_replay(
    tmp_path: Path, drafter: str, engine: str | None
) -> None:
    """With its beginning in the cache, the next request's prompt runs on no more rows than a round."""
    run = Run(drafter=drafter, restores=drafter != "model")
    host, truth = run.build(N_OK)
    host.now += 3_000 * US
    host.eager(4, TARGET, rows_returned=1)
    _, more = run.build(N_OK, host=host)
    found = api.split(host.trace.write(tmp_path / "t.sqlite"), engine=engine)
    if drafter == "model" and engine is None:
        assert found.bucket("replay").gpu_ns == 0  # nothing shows that there is any
        return
    assert found.rounds.value == 20
    assert phases(found) == pytest.approx({p: truth[p] + more[p] for p in truth})
