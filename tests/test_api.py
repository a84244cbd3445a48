"""The Python API: light to import, the same answers as the command line, HTML for notebooks."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

import nsysacct as na
from nsysacct.attribution import BASES
from nsysacct.model import Account, BlindSpot, RoundRow

TraceFile = Callable[[str], Path]
SMALL = {"layers": 8, "closing": 2, "n_ok": [5, 1, 2, 2]}


@pytest.fixture(scope="module")
def small(trace_file: TraceFile) -> Account:
    return na.split(trace_file("small_graph"), **SMALL)  # type: ignore[arg-type]


def test_import_loads_nothing_heavy() -> None:
    code = "import sys; import nsysacct; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"numpy", "msgspec", "pandas", "pyarrow", "matplotlib", "jinja2", "click", "sqlite3"}
    assert not heavy & set(loaded)
    assert [m for m in loaded if m.startswith("nsysacct")] == ["nsysacct"]


@pytest.mark.parametrize("name", na.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(na, name)
    assert name in dir(na)
    assert name == "__version__" or value.__doc__


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="splits"):
        na.splits  # noqa: B018


def test_split_answers_like_the_command(
    trace_file: TraceFile, small: Account, run_cli: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    words = "--layers 8 --closing 2 --n-ok 5,1,2,2 --format json".split()
    done = run_cli("split", trace_file("small_graph"), *words)
    assert done.stdout == na.dump_account(small)


def test_the_log_of_the_run_is_read(trace_file: TraceFile, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("n_ok = 0:5 / 1:1 / 2:2 / 3:2\n", "utf-8")
    account = na.split(trace_file("small_graph"), layers=8, closing=2, log=log)
    assert account.acceptance is not None and account.acceptance.n_ok == [5, 1, 2, 2]
    (witness,) = [w for w in account.rounds.witnesses if "log" in w.name]
    assert (witness.rounds, witness.agrees) == (10, True)
    with pytest.raises(na.NsysacctError, match=r"missing\.log"):
        na.make_options(log=tmp_path / "missing.log")


def test_split_takes_accounts_and_traces(
    trace_file: TraceFile, small: Account, tmp_path: Path
) -> None:
    saved = tmp_path / "a.json"
    saved.write_text(na.dump_account(small), "utf-8")
    assert na.split(saved) == small == na.load_account(saved)
    trace = na.read_trace(trace_file("small_graph"))
    assert na.split(trace, **SMALL) == small  # type: ignore[arg-type]


def test_split_has_the_keywords_of_make_options() -> None:
    """Written once: help, completion and type checkers read them from here."""
    source, *keywords = inspect.signature(na.split).parameters.values()
    assert source.name == "source" and source.kind is source.POSITIONAL_ONLY
    assert keywords == list(inspect.signature(na.make_options).parameters.values())
    assert na.split.__name__ == "split" and "nsysacct split" in str(na.split.__doc__)
    with pytest.raises(TypeError, match="layer"):
        na.split("x.sqlite", layer=8)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"layers": {"xyz": 1}}, "^layers xyz=1: no engine has layers of the kind 'xyz'"),
        ({"layers": 0}, "layers"),
        ({"layers": {"all": 4, "gdn": 5}}, "gdn"),
        ({"n_ok": [3]}, "n_ok"),
        ({"n_ok": [3, -1]}, "n_ok"),
        ({"step_ms": -1.0}, "step_ms"),
        ({"step_ms": float("nan")}, "step_ms"),
        ({"ignore": ["luck"]}, "luck"),
        ({"nvtx": {"unattributed": "x*"}}, "nvtx"),
        ({"graph_roles": {3: "verfy"}}, "verfy"),
    ],
)
def test_values_that_cannot_be_right_are_named(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(na.NsysacctError, match=message) as caught:
        na.make_options(**wrong)  # type: ignore[arg-type]
    assert caught.value.exit_code == 2


def test_milliseconds_keep_the_decimals_that_were_written() -> None:
    assert na.make_options(step_ms=13.232).step_ns == 13_232_000


def test_frames_hold_the_account(trace_file: TraceFile, small: Account) -> None:
    buckets = na.frames.buckets(small).set_index("bucket")
    assert buckets.loc["verify", "gpu_ns"] == small.bucket("verify").gpu_ns
    bases = [f"basis_{b}_ns" for b in BASES]
    assert buckets.loc["verify", bases].sum() == small.bucket("verify").total_ns
    rounds = na.frames.rounds(small)
    assert len(rounds) == small.rounds.value
    assert rounds["verify_ns"].sum() == small.bucket("verify").gpu_ns
    assert str(rounds["n_ok"].dtype) == "Int64"
    assert len(na.frames.signatures(small)) == len(small.rounds.signatures)
    assert len(na.frames.steps(small)) == len(small.steps)
    assert len(na.frames.kernels(small)) == len(small.kernels)
    assert len(na.frames.blind_spots(small)) == len(small.blind_spots)
    assert len(na.frames.graphs(small)) == len(small.graphs)
    assert na.frames.witnesses(small)["rounds"].tolist() == [10] * len(small.rounds.witnesses)
    assert na.frames.findings(small)["kind"].tolist() == [f.kind for f in small.findings]


def test_single_events_add_up_to_the_account(trace_file: TraceFile, small: Account) -> None:
    trace = na.read_trace(trace_file("small_graph"))
    events = na.frames.events(trace, na.make_options(**SMALL))  # type: ignore[arg-type]
    timed = events[events["kind"].isin(["kernel", "graph"])]
    sums = (timed["end_ns"] - timed["start_ns"]).groupby(timed["bucket"]).sum()
    for bucket in small.buckets:
        assert sums.get(bucket.bucket, 0) == bucket.gpu_ns
    verify = timed[timed["bucket"] == "verify"]
    per_round = (verify["end_ns"] - verify["start_ns"]).groupby(verify["round"]).sum()
    assert per_round.tolist() == [r.verify_ns for r in small.per_round]


class Balanced(HTMLParser):
    """Fails on tags that do not close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def html_of(value: object) -> str:
    text: str = value._repr_html_()  # type: ignore[attr-defined]
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    return text


def test_accounts_show_as_tables(small: Account) -> None:
    text = html_of(small)
    assert "10 rounds" in text and f"{small.bucket('verify').gpu_ns / 1e6:.3f}" in text
    assert "exclusive" in text and "residual" in text and "Balanced" not in text
    assert "10 rounds" in html_of(small.rounds)
    assert html_of(small.per_round[0]).count("<tr>") == 2
    assert small.blind_spots[0].remedy.split()[0] in html_of(small.blind_spots[0])
    assert html_of(small.processes[0])


def test_numbers_stand_right_and_words_left(small: Account) -> None:
    """A sentence that begins with a figure is no number."""
    spot = BlindSpot(kind="lost", severity="fatal", hidden_ns=5_000_000, basis=None,
                     detail="525 ids are missing", remedy="1 more capture")  # fmt: skip
    text = html_of(spot)
    assert "text-align:left'>525 ids are missing<" in text
    assert "text-align:left'>1 more capture<" in text
    assert "text-align:right'>5.000<" in text and "text-align:right'>hidden ms<" in text
    verify = html_of(small.bucket("verify"))
    assert f"text-align:right'>{small.bucket('verify').gpu_ns / 1e6:.3f}<" in verify
    assert "measured: 4.416 exclusive + 0.519 positional" in verify


def test_texts_of_a_trace_are_escaped(small: Account) -> None:
    evil = "<script>alert(1)</script>&\"'"
    trace = msgspec.structs.replace(small.trace, name=evil)
    spot = BlindSpot(kind=evil, severity="info", hidden_ns=None, basis=None, detail=evil, remedy="")
    row = RoundRow(
        index=0, start_ns=0, end_ns=1, wall_ns=1, draft_ns=0, verify_ns=0, replay_ns=0,
        residual_ns=1, launches=0, flags=[evil],
    )  # fmt: skip
    marked = msgspec.structs.replace(small, trace=trace, blind_spots=[spot], per_round=[row])
    assert "<script" not in html_of(marked)
    assert "&lt;script&gt;" in html_of(marked)


@pytest.mark.parametrize(
    ("module", "extra", "use"),
    [
        ("pandas", "pandas", "na.frames.buckets(a)"),
        ("matplotlib", "plot", "na.plots.split(a)"),
        ("jinja2", "report", "from nsysacct.report import report_html; report_html(a)"),
        ("sqlite_utils", "history",
         "from nsysacct.annotate import annotate; annotate(sys.argv[1], 'x')"),
    ],
)  # fmt: skip
def test_a_missing_extra_is_one_line_with_the_command(
    trace_file: TraceFile, module: str, extra: str, use: str
) -> None:
    code = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "import nsysacct as na\n"
        f"a = na.split(sys.argv[1])\ntry:\n    {use}\n"
        "except na.NsysacctError as error:\n    print(error, error.exit_code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, trace_file("small_graph")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"pip install 'nsysacct[{extra}]'" in done.stdout and done.stdout.count("\n") == 1
