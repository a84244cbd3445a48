"""Diff: parts sum exactly, causes are named, and every format is harmless."""

from __future__ import annotations

import json

import pytest
from gate_cases import (
    GEMV,
    base_account,
    more_launches,
    repeated,
    sides,
    slower,
    speculation_off,
    then,
    with_engine,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nsysacct.diff import Moved, diff, largest
from nsysacct.diff_output import FORMATS, MARKDOWN_LINES, as_json, markdown, text
from nsysacct.errors import IncomparableError
from nsysacct.model import KernelRow


def every(line: Moved):
    yield line
    for part in line.parts:
        yield from every(part)


row = st.builds(
    KernelRow,
    bucket=st.sampled_from(["draft", "verify", "replay", "unattributed"]),
    family=st.sampled_from(["gemv", "gdn", ""]),
    signature=st.sampled_from(["a", "b", "c"]),
    instances=st.integers(0, 1000),
    gpu_ns=st.integers(0, 10**12),
)


@given(st.lists(row, max_size=8), st.lists(row, max_size=8), st.integers(1, 500),
       st.integers(1, 500))  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_parts_sum_to_the_change(before, after, rounds_before, rounds_after):
    accounts = []
    for rows, rounds in ((before, rounds_before), (after, rounds_after)):
        account = base_account(1)
        buckets = [
            replace(b, gpu_ns=sum(r.gpu_ns for r in rows if r.bucket == b.bucket), by_basis={})
            for b in account.buckets
        ]
        account = replace(account, kernels=rows, buckets=buckets,
                          rounds=replace(account.rounds, value=rounds))  # fmt: skip
        accounts.append(account)
    found = diff(sides("base", accounts[0]), sides("head", accounts[1]))
    for bucket in found.buckets:
        for line in every(bucket):
            change = line.head_ns - line.base_ns
            slack = 1e-9 * (1 + abs(line.base_ns) + abs(line.head_ns))
            assert line.delta_ns == pytest.approx(change, abs=slack)
            if line.parts:
                for name in ("base_ns", "head_ns", "count_ns", "duration_ns", "base_count"):
                    parts = sum(getattr(part, name) for part in line.parts)
                    assert getattr(line, name) == pytest.approx(parts, rel=1e-9, abs=slack)


def moved(change, **kw):
    return diff(sides("base", base_account()), sides("head", change(base_account())), **kw)


def bucket_of(found, name):
    return next(b for b in found.buckets if b.name == name)


def test_more_launches_and_slower_launches_are_told_apart():
    more = bucket_of(moved(more_launches("verify", GEMV, 130 / 65)), "verify")
    family, line = largest(more)
    assert (family, line.name, line.why) == ("gemv", GEMV, "more launches")
    assert (line.base_count, line.head_count) == (65, 130)
    assert line.duration_ns == 0
    slow = largest(bucket_of(moved(slower("verify", 1.5, GEMV)), "verify"))[1]
    assert slow.why == "slower launches"
    assert slow.count_ns == 0
    assert (slow.base_each_ns, slow.head_each_ns) == (200_000, 300_000)
    assert largest(bucket_of(moved(slower("verify", 0.5, GEMV)), "verify"))[1].why == (
        "faster launches"
    )


def test_shared_product_term():
    both = moved(then(more_launches("verify", GEMV, 2), slower("verify", 2, GEMV)))
    line = largest(bucket_of(both, "verify"))[1]
    # 65 x 200 us -> 130 x 400 us: 65 more at the mean 300 us, 200 us slower at the mean 97.5
    assert line.count_ns == 65 * 300_000
    assert line.duration_ns == 200_000 * 97.5


def test_length_of_the_run_is_no_change():
    found = moved(repeated(11))
    assert found.per == "round"
    assert found.total.delta_ns == 0
    assert {line.why for b in found.buckets[:3] for line in every(b)} == {"unchanged"}


def test_several_captures_are_averaged():
    base = sides("base", base_account(), slower("verify", 1.2)(base_account()))
    found = diff(base, sides("head", slower("verify", 1.1)(base_account())))
    assert found.total.delta_ns == 0


def test_new_and_gone_signatures():
    def renamed(account):
        rows = [replace(r, signature="k_new") if r.signature == GEMV else r
                for r in account.kernels]  # fmt: skip
        return replace(account, kernels=rows)

    found = {line.name: line for line in every(bucket_of(moved(renamed), "verify"))}
    assert found["k_new"].why == "new"
    assert found[GEMV].why == "gone"
    assert found["gemv"].delta_ns == 0


def test_denominators():
    assert moved(speculation_off).per == "run"
    with pytest.raises(IncomparableError, match="no rounds"):
        moved(speculation_off, per="round")
    with pytest.raises(IncomparableError, match="tokens"):
        moved(lambda a: replace(a, acceptance=None), per="token")
    per_token = moved(slower("verify", 1.1), per="token").total
    per_round = moved(slower("verify", 1.1), per="round").total
    assert per_token.ratio == pytest.approx(per_round.ratio)
    assert per_token.base_ns < per_round.base_ns


def test_computed_time_is_neither_count_nor_duration():
    def computed(account):
        buckets = [
            replace(b, by_basis={**b.by_basis, "arithmetic": 42_000}) if b.bucket == "replay" else b
            for b in account.buckets
        ]
        return replace(account, buckets=buckets)

    replay = bucket_of(moved(computed), "replay")
    assert (replay.other_ns, replay.count_ns, replay.duration_ns) == (1000, 0, 0)
    assert replay.why == "time outside kernel rows"


def test_unequal_sides_are_noted_not_refused():
    found = moved(with_engine(registry_digest="sha256:2"))
    assert any("registry digest" in note for note in found.notes)


def test_formats():
    found = moved(then(more_launches("verify", GEMV, 2), slower("draft", 1.1)))
    document = json.loads(as_json(found))
    assert document["schema"] == {"kind": "nsysacct/diff", "version": 1}
    verify = next(b for b in document["buckets"] if b["name"] == "verify")
    assert verify["families"][0]["signatures"][0]["name"] == GEMV
    assert "more launches" in text(found)
    assert "65 → 130" in text(found)
    assert len(markdown(found).splitlines()) < MARKDOWN_LINES + 12
    for write in FORMATS.values():
        assert write(found) == write(found)


def test_hostile_names_stay_text():
    hostile = "k\x1b[31m|<img src=x onerror=y>`@team`\n## [x](http://e)\u202e" + "z" * 500

    def rename(account):
        rows = [replace(r, signature=hostile) if r.signature == GEMV else r
                for r in account.kernels]  # fmt: skip
        return replace(account, kernels=rows)

    found = moved(rename)
    for write in (text, markdown):
        out = write(found)
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert not any(line.startswith("## [x]") for line in out.splitlines())
    assert "<img" not in markdown(found)
    assert "@team" not in markdown(found)
    table = [line for line in markdown(found).splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
