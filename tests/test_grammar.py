"""Rounds read from passes spelled as letters: D draft, V verify, T target step, O other, ? unknown."""

import re

import numpy as np
import pytest

from nsysacct.errors import UsageError
from nsysacct.evidence import Code
from nsysacct.grammar import Layout, Plan, read_rounds
from nsysacct.model import Semantics

KESTREL = Semantics(verify_width="k", tokens="max(n_ok,1)", replay="closing-steps")
NO_REPLAY = Semantics()
CHECKPOINT = Semantics(replay="checkpoint")
LETTERS = {
    "D": Code.DRAFT,
    "V": Code.VERIFY,
    "T": Code.TARGET,
    "R": Code.REPLAY,
    "O": Code.OTHER,
    "?": Code.UNKNOWN,
}


def read(word: str, semantics: Semantics = KESTREL, **options: object) -> Layout:
    """Read passes; ``*`` behind one stands for results copied back after it."""
    word = word.replace(" ", "")
    returned = [
        4 * (after == "*") for c, after in zip(word, word[1:] + " ", strict=True) if c != "*"
    ]
    word = word.replace("*", "")
    code = np.array([LETTERS[c] for c in word], np.uint8)
    n = len(word)
    settings: dict = {"k": 3, "plan": Plan(), "n_ok": None, **options}
    return read_rounds(
        code,
        np.full(n, "positional", object),
        np.arange(n, dtype=np.int32),
        np.full(n, -1, np.int32),
        np.array([c == "T" for c in word]),
        semantics=semantics,
        returned=np.array(returned, np.int64),
        **settings,
    )


def spelled(layout: Layout) -> str:
    names = {Code.DRAFT: "D", Code.VERIFY: "V", Code.REPLAY: "R", Code.PLAIN: "p", Code.PREFILL: "f",
             Code.DECODE: "d", Code.OTHER: "O", Code.UNKNOWN: "?"}  # fmt: skip
    return "".join(names[Code(int(c))] for c in layout.code)


def test_steps_are_named_by_where_they_stand() -> None:
    layout = read("O TTTT DDDV T DDDV DDDV TT DDDV TTT", plan=Plan(closing=2))
    assert spelled(layout) == "OppppDDDVRDDDVDDDVRRDDDVRpp"
    assert layout.rounds == 4
    assert layout.replay_steps.tolist() == [1, 0, 2, 1]
    assert layout.draft_passes.tolist() == [3, 3, 3, 3]
    assert not layout.findings


def test_without_closing_the_tail_is_a_finding_not_a_guess_in_silence() -> None:
    layout = read("DDDV T DDDV TTTT")
    assert spelled(layout) == "DDDVRDDDVRRpp"
    assert [f.kind for f in layout.findings] == ["closing"]
    assert set(layout.basis[[9, 10]]) == {"pattern"}


ENDED = "DDDV T* DDDV* DDDV TT* DDDV T*"  # each round ends with its one copy


@pytest.mark.parametrize(
    ("tail", "named"),
    [("T* TT", "Rpp"), ("* TTTT", "pppp"), ("TT* T* T*", "RRpp"), ("TT*", "RR")],
)
def test_the_copy_of_a_rounds_results_tells_closing_from_replay(tail: str, named: str) -> None:
    layout = read(f"{ENDED} DDDV {tail}")
    assert spelled(layout) == "DDDVRDDDVDDDVRRDDDVRDDDV" + named
    closing = named.count("p")
    assert [(f.kind, f.severity) for f in layout.findings] == [("closing", "info")] * bool(closing)
    assert set(layout.basis) == {"positional"}
    if closing:
        assert layout.findings[0].detail.startswith(f"{closing} target steps follow the copy")


@pytest.mark.parametrize(
    "run",
    [
        "DDDV T* DDDV T* DDDV T*T",  # too few rounds to call it a habit
        f"{ENDED} DDDV* T DDDV T* TT",  # one round copied earlier
        f"{ENDED} DDDV T*T* DDDV T* TT",  # one copied twice
        f"{ENDED} DDDV DDDV T* TT",  # one not at all
        f"{ENDED} DDDV TTT",  # the last one not
    ],
)
def test_without_a_habit_of_copying_the_tail_stays_a_guess(run: str) -> None:
    layout = read(run)
    (finding,) = layout.findings
    assert (finding.kind, finding.severity) == ("closing", "warning")
    assert "--closing" in finding.remedy


def test_the_copy_keeps_the_replay_of_a_request_that_another_follows() -> None:
    layout = read(f"{ENDED} DDDV TT* TTTTTTTT {ENDED} T")
    word = spelled(layout)
    assert word == "DDDVRDDDVDDDVRRDDDVR" + "DDDVRR" + "pppppppp" + "DDDVRDDDVDDDVRRDDDVR" + "p"
    assert layout.replay_steps.tolist() == [1, 0, 2, 1, 2, 1, 0, 2, 1]
    assert [(f.kind, f.severity) for f in layout.findings] == [
        ("another-request", "info"),
        ("closing", "info"),
    ]
    assert layout.findings[0].detail.startswith("8 target steps follow the copy")
    # rounds count from 0: four before the one that another request follows, nine in all
    assert [int(re.findall(r"round (\d+)", f.detail)[0]) for f in layout.findings] == [4, 8]


def test_many_requests_are_one_finding() -> None:
    layout = read(" ".join(f"{ENDED} DDDV TT* {'T' * (7 + i)}" for i in range(7)) + f" {ENDED}")
    (finding,) = layout.findings
    assert finding.kind == "another-request"
    assert finding.detail.startswith(
        "7 to 13 target steps follow the copies of the results of each of 7 rounds (4, 9, 14, 19, 24, ...)"
    )
    two = read(" ".join(f"{ENDED} DDDV TT* TTTTTTTT" for _ in range(2)) + f" {ENDED}")
    assert "8 target steps follow the copies of the results of each of the rounds 4, 9," in (
        two.findings[0].detail
    )


def test_a_closing_that_the_copy_contradicts_is_used_and_warned_of() -> None:
    layout = read(f"{ENDED} DDDV T* TT", plan=Plan(closing=1))
    assert spelled(layout).endswith("DDDVRRp")
    assert [(f.kind, f.severity) for f in layout.findings] == [("closing", "warning")]
    assert "2 would agree" in layout.findings[0].remedy
    assert not read(f"{ENDED} DDDV T* TT", plan=Plan(closing=2)).findings


def test_where_the_run_names_its_replay_other_steps_are_none() -> None:
    layout = read("DDDV R DDDV RR DDDV T DDDV R TT")
    assert spelled(layout) == "DDDVRDDDVRRDDDVpDDDVRpp"
    assert not layout.findings


def test_the_histogram_settles_the_tail() -> None:
    layout = read("DDDV T DDDV TTT", n_ok=(2, 0, 0, 0))
    assert spelled(layout) == "DDDVRDDDVRpp"
    assert not layout.findings


def test_more_steps_than_any_replay_are_another_request() -> None:
    layout = read("DDDV TTTTTTTT DDDV")
    assert spelled(layout) == "DDDVppppppppDDDV"
    assert layout.findings[0].kind == "long-replay"
    assert "8 target steps follow round 0, " in layout.findings[0].detail


def test_an_engine_without_replay_has_none() -> None:
    assert spelled(read("T DDDV T DDDV T", NO_REPLAY)) == "pDDDVpDDDVp"


def test_single_row_steps_are_no_replay_of_an_engine_that_replays_in_one_wider_pass() -> None:
    layout = read("DDDV T DDDV R T DDDV T", CHECKPOINT)
    assert spelled(layout) == "DDDVpDDDVRpDDDVp"
    assert layout.replay_steps.tolist() == [0, 1, 0]


def test_drafts_on_the_cpu_leave_rounds_without_drafts() -> None:
    layout = read("T V V T V", NO_REPLAY)
    assert layout.rounds == 3
    assert layout.draft_passes.tolist() == [0, 0, 0]


def test_plan_names_prompt_and_decode_and_the_launches_reconcile() -> None:
    plan = Plan.parse("prefill=2 decode=1 prefill=1 rounds closing=1")
    layout = read("TTTT DDDV T DDDV T", plan=plan)
    assert spelled(layout) == "ffdfDDDVRDDDVp"
    assert layout.reconciled == "6 = 2 prefill + 1 decode + 1 prefill + 1 replay + 1 closing"


def test_a_plan_that_does_not_fit_is_a_finding() -> None:
    layout = read("TTT DDDV", plan=Plan.parse("prefill=5 rounds"))
    assert spelled(layout) == "pppDDDV"
    assert "5 target steps before the rounds, the trace has 3" in layout.findings[0].detail


@pytest.mark.parametrize("text", ["prefil=3", "prefill", "rounds decode=3", "closing=x"])
def test_plans_that_cannot_be_read(text: str) -> None:
    with pytest.raises(UsageError, match="--plan"):
        Plan.parse(text)


def test_no_rounds_at_all() -> None:
    layout = read("TTTT")
    assert layout.rounds == 0
    assert spelled(layout) == "pppp"
