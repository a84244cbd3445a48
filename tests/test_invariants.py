"""What holds on every account, whatever the engine did (design section 8), on runs drawn at random."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invariants import violations
from test_variants import STREAM, Engine

from nsysacct import api
from nsysacct.model import Account
from nsysacct.trace import read_trace

BASES = ("exclusive", "nvtx", "graph", "positional", "pattern")

runs = st.fixed_dictionaries(
    {
        "layers": st.integers(1, 3),
        "k": st.integers(1, 5),
        "gdn": st.booleans(),
        "waits": st.sampled_from(["step", "round", "none"]),
        "draft_stream": st.sampled_from([STREAM, 13]),
        "graphs": st.sets(st.sampled_from(["target", "verify", "draft"])).map(tuple),
        "n_ok": st.lists(st.integers(0, 5), max_size=5),
        "plain": st.integers(0, 3),
        "closing": st.integers(0, 2),
        "copies": st.booleans(),
    }
)
once = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def engine(run: dict, start: int = 1_000_000) -> Engine:
    own = {name: run[name] for name in ("layers", "k", "gdn", "waits", "draft_stream", "graphs")}
    e = Engine(**own, now=start)
    e.run([min(n, run["k"]) for n in run["n_ok"]], plain=run["plain"], closing=run["closing"])
    if run["copies"]:
        e.trace.memcpy(e.now + 6_000, e.now + 8_000, kind=2)
        e.trace.memset(e.now + 9_000, e.now + 10_000)
    return e


def figures(account: Account) -> dict[str, object]:
    """All that depends neither on the clock's origin nor on the order of rows."""
    w = account.window
    return {
        "rounds": (account.rounds.value, account.rounds.verdict),
        "buckets": account.buckets,
        "per_round": [
            (r.wall_ns, r.draft_ns, r.verify_ns, r.replay_ns, r.n_ok) for r in account.per_round
        ],
        "window": (w.wall_ns, w.busy_ns, w.residual_ns),
        "graphs": account.graphs,
    }


def worked(run: dict) -> bool:
    return bool(run["n_ok"] or run["plain"] or run["closing"])


@once
@given(runs.filter(worked), st.sets(st.sampled_from(BASES)))
def test_sums_are_exact_whatever_evidence_is_used(
    tmp_path: Path, run: dict, ignore: set[str]
) -> None:
    e = engine(run)
    path = e.trace.write(tmp_path / "t.sqlite")
    trace = read_trace(path)
    account = api.split(trace, engine="kestrel", ignore=sorted(ignore))
    assert violations(account, trace, path) == []
    assert sum(b.gpu_ns for b in account.buckets) == sum(e.truth.values())
    assert not {basis for b in account.buckets for basis in b.by_basis} & ignore
    for phase in ("draft", "verify", "replay"):
        series = sum(getattr(r, f"{phase}_ns") for r in account.per_round)
        assert not account.per_round or series == account.bucket(phase).gpu_ns


@once
@given(runs.filter(worked), st.integers(0, 99))
def test_the_order_of_rows_says_nothing(tmp_path: Path, run: dict, seed: int) -> None:
    e = engine(run)
    plain = api.split(e.trace.write(tmp_path / "a.sqlite"), engine="kestrel")
    mixed = api.split(e.trace.write(tmp_path / "b.sqlite", shuffle=seed), engine="kestrel")
    assert figures(mixed) == figures(plain)


@once
@given(runs.filter(worked), st.integers(1, 10**15))
def test_the_origin_of_the_clock_says_nothing(tmp_path: Path, run: dict, later: int) -> None:
    first = api.split(engine(run).trace.write(tmp_path / "a.sqlite"), engine="kestrel")
    moved = engine(run, 1_000_000 + later).trace.write(tmp_path / "b.sqlite")
    assert figures(api.split(moved, engine="kestrel")) == figures(first)


@once
@given(runs.filter(worked))
def test_no_phase_is_invented(tmp_path: Path, run: dict) -> None:
    """Unless the launches leave room for doubt, and then the account says so, figures are the truth."""
    e = engine(run)
    n_ok = run["n_ok"]
    account = e.split(tmp_path, closing=run["closing"])
    if account.rounds.verdict == "exact":
        assert account.rounds.value == len(n_ok)
        assert account.bucket("verify").gpu_ns == e.truth["verify"]
        assert account.bucket("draft").gpu_ns == pytest.approx(e.truth["draft"], abs=0)
    elif not n_ok:
        assert account.rounds.value in (0, None)
        assert not account.bucket("verify").gpu_ns
