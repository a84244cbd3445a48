"""Accounts as JSON: exact round trip, same bytes, and a clear error for everything else."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysacct import wire
from nsysacct.errors import WireError
from nsysacct.model import (
    BUCKETS,
    Account,
    Bucket,
    EngineInfo,
    KernelRow,
    ProcessAccount,
    Rounds,
    TraceInfo,
    Window,
)


def account_with(**changes: object) -> Account:
    fields: dict[str, object] = {
        "pid": 7,
        "gpu": 0,
        "trace": TraceInfo(name="run.sqlite"),
        "engine": EngineInfo(name="kestrel", how="given"),
        "rounds": Rounds(value=42, verdict="exact", layers={"all": 64, "gdn": 48}),
        "window": Window(start_ns=0, end_ns=100, wall_ns=100, busy_ns=70, residual_ns=30),
        "buckets": [Bucket(bucket=name) for name in BUCKETS],
        "options": {"layers": 64, "histogram": [1, 2]},
    }
    return Account(**{**fields, **changes})  # type: ignore[arg-type]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
ns = st.integers(-(2**63), 2**63 - 1)


@given(
    texts,
    st.lists(st.builds(KernelRow, bucket=st.sampled_from(BUCKETS), family=texts, signature=texts,
                       instances=st.integers(0, 2**40), gpu_ns=ns), max_size=3),
    st.dictionaries(texts, texts, max_size=3),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
)  # fmt: skip
def test_round_trip_is_exact(name, kernels, labels, per_round):
    buckets = [Bucket(bucket=b, gpu_ns=5, ns_per_round=per_round) for b in BUCKETS]
    part = ProcessAccount(
        pid=None,
        gpu=1,
        rounds=Rounds(value=None, verdict="none"),
        window=Window(start_ns=0, end_ns=0, wall_ns=0, busy_ns=0, residual_ns=0),
        buckets=buckets,
    )
    account = account_with(
        trace=TraceInfo(name=name.lstrip("/\\")[2:].lstrip("/\\")),
        kernels=kernels,
        labels=labels,
        buckets=buckets,
        processes=[part],
    )
    text = wire.dump_account(account)
    assert wire.load_account(text) == account
    assert wire.dump_account(wire.load_account(text.encode())) == text


def test_layout_follows_the_contract():
    text = wire.dump_account(account_with())
    document = json.loads(text)
    wanted = ["schema", "trace", "engine", "rounds", "graphs", "blind_spots", "window", "buckets"]
    assert [key for key in document if key in wanted] == wanted
    assert next(iter(document)) == "schema"
    assert list(document)[-1] == "processes"
    assert document["schema"] == {"kind": "nsysacct/account", "version": 1}
    assert document["processes"] == []
    assert text.endswith("}\n")
    assert not text.endswith("\n\n")
    assert [b["bucket"] for b in document["buckets"]] == list(BUCKETS)


def test_one_record_a_line_so_that_baselines_diff_well():
    lines = wire.dump_account(account_with()).splitlines()
    assert sum(line.lstrip().startswith('{"bucket"') for line in lines) == len(BUCKETS)


def test_no_directory_is_written():
    account = account_with(
        trace=TraceInfo(name="/home/ann/run.sqlite"),
        options={"log": "/home/ann/run.log", "registry": ["C:\\Users\\ann\\own.toml"], "n": 1},
    )
    text = wire.dump_account(account)
    assert "ann" not in text
    loaded = wire.load_account(text)
    assert loaded.trace.name == "run.sqlite"
    assert loaded.options == {"log": "run.log", "registry": ["own.toml"], "n": 1}


def test_non_finite_numbers_and_lone_surrogates_stay_valid_json():
    rows = [KernelRow(bucket="other", family="", signature="a\udc80b", instances=1, gpu_ns=1)]
    buckets = [Bucket(bucket=name, ns_per_round=float("nan")) for name in BUCKETS]
    text = wire.dump_account(account_with(kernels=rows, buckets=buckets))
    text.encode("utf-8")
    loaded = wire.load_account(text)
    assert loaded.bucket("draft").ns_per_round is None
    assert loaded.kernels[0].signature == "a?b"


def test_reads_files_and_ignores_unknown_keys(tmp_path: Path):
    document = json.loads(wire.dump_account(account_with()))
    document["added_later"] = {"x": 1}
    document["buckets"][0]["added_later"] = 3
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document), encoding="utf-8-sig")
    assert wire.load_account(path) == account_with()
    assert wire.load_account(str(path)) == account_with()
    assert wire.is_account_text(path.read_bytes()[:10])


def changed(**top: object) -> str:
    return json.dumps({**json.loads(wire.dump_account(account_with())), **top})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not valid JSON"),
        ('{"a": 1}', "no file of nsysacct"),
        ('{"schema": 3}', "no file of nsysacct"),
        (changed(schema={"kind": "nsysacct/verdict", "version": 1}), "is a 'nsysacct/verdict'"),
        (changed(schema={"kind": "nsysacct/account", "version": 99}), "newer than this program"),
        (changed(schema={"kind": "nsysacct/account", "version": 0}), "cannot be upgraded"),
        (changed(schema={"kind": "nsysacct/account", "version": True}), "not an integer"),
        (changed(schema={"kind": "nsysacct/account"}), "not an integer"),
        (changed(buckets=[]), "lacks draft, verify"),
        (changed(buckets=json.loads(changed())["buckets"] * 2), "bucket twice"),
        (changed(window=None), "is damaged (Expected `object`"),
        (changed(rounds={"value": 4.5, "verdict": "exact"}), "$.rounds.value"),
        ('{"schema": ' + "[" * 100_000, "is not valid JSON"),
    ],
)
def test_everything_else_is_one_clear_line(text: str, says: str):
    with pytest.raises(WireError) as caught:
        wire.load_account(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "is not valid JSON"),
        (b"[1]", "not an object"),
        (b"SQLite format 3\0....", "is a SQLite file"),
        (b"\xff\xfe{", "is not valid JSON"),
        (wire.dump_account(account_with()).encode()[:200], "is not valid JSON"),
    ],
)
def test_files_of_another_kind(tmp_path: Path, raw: bytes, says: str):
    path = tmp_path / "x.json"
    path.write_bytes(raw)
    with pytest.raises(WireError, match=r"^x\.json: ") as caught:
        wire.load_account(path)
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["missing.json", ".", "a\0b"])
def test_unreadable_files(tmp_path: Path, name: str):
    with pytest.raises(WireError):
        wire.load_account(tmp_path / name)


def test_options_must_be_json():
    with pytest.raises(WireError, match="cannot be written"):
        wire.dump_account(account_with(options={"x": object()}))


def test_older_versions_are_upgraded_step_by_step():
    steps = {
        1: lambda doc: {**doc, "b": doc["a"] + 1},
        2: lambda doc: {**doc, "c": doc["b"] * 10},
    }
    done = wire.upgrade("x", {"schema": {"kind": "k", "version": 1}, "a": 1}, 3, steps)
    assert done == {"schema": {"kind": "k", "version": 3}, "a": 1, "b": 2, "c": 20}


def test_truncated_anywhere_is_an_error_never_a_partial_account():
    text = wire.dump_account(account_with())
    for length in range(1, len(text) - 2, 37):
        with pytest.raises(WireError):
            wire.load_account(text[:length].encode())


def test_schema_constants_are_the_models():
    assert (wire.KIND, wire.VERSION) == ("nsysacct/account", 1)
    assert msgspec.structs.fields(Account)
