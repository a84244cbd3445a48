"""Round rules: the whole table, and sums over histograms."""

import pytest

from nsysacct.errors import UsageError
from nsysacct.model import Semantics
from nsysacct.semantics import (
    REPLAY_STEPS,
    REPLAY_WIDTH,
    TOKENS,
    VERIFY_WIDTH,
    n_ok_from_replay,
    replay_steps_of,
    tokens_of,
)

ARTICLE = [27, 2, 6, 7]


@pytest.mark.parametrize(
    ("table", "rule", "arguments", "expected"),
    [
        (VERIFY_WIDTH, "k", [(3,), (1,)], [3, 1]),
        (VERIFY_WIDTH, "k+1", [(3,), (1,)], [4, 2]),
        (TOKENS, "n_ok+1", [(0, 3), (1, 3), (3, 3)], [1, 2, 4]),
        (TOKENS, "max(n_ok,1)", [(0, 3), (1, 3), (3, 3)], [1, 1, 3]),
        (TOKENS, "min(n_ok+2,k+1)", [(n, 3) for n in range(4)], [2, 3, 4, 4]),
        (REPLAY_STEPS, "none", [(0, 3), (2, 3), (3, 3)], [0, 0, 0]),
        (REPLAY_STEPS, "closing-steps", [(n, 3) for n in range(4)], [1, 1, 2, 0]),
        (REPLAY_STEPS, "closing-steps", [(0, 1), (1, 1)], [1, 0]),
        (REPLAY_STEPS, "checkpoint", [(n, 3) for n in range(4)], [1, 1, 1, 0]),
        (REPLAY_WIDTH, "closing-steps", [(0,), (2,)], [1, 1]),
        (REPLAY_WIDTH, "checkpoint", [(0,), (2,)], [2, 4]),
    ],
)
def test_table(table, rule, arguments, expected):
    assert [table[rule](*a) for a in arguments] == expected


def test_every_rule_is_tested_above():
    tested = {(id(table), rule) for table, rule, *_ in test_table.pytestmark[0].args[1]}
    tables = (VERIFY_WIDTH, TOKENS, REPLAY_STEPS, REPLAY_WIDTH)
    assert tested == {(id(table), rule) for table in tables for rule in table}


def test_default_semantics_are_known_rules():
    default = Semantics()
    assert default.verify_width in VERIFY_WIDTH
    assert default.tokens in TOKENS
    assert default.replay in REPLAY_STEPS
    assert set(REPLAY_WIDTH) == set(REPLAY_STEPS) - {"none"}


@pytest.mark.parametrize("rule", REPLAY_STEPS)
@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_n_ok_from_replay_inverts_the_rule(rule, k):
    for n in range(k + 1):
        assert n in n_ok_from_replay(rule, REPLAY_STEPS[rule](n, k), k)
    every = [n_ok_from_replay(rule, steps, k) for steps in range(k + 2)]
    assert sorted(n for found in every for n in found) == list(range(k + 1))


def test_n_ok_from_replay_of_closing_steps():
    assert n_ok_from_replay("closing-steps", 0, 3) == (3,)
    assert n_ok_from_replay("closing-steps", 1, 3) == (0, 1)
    assert n_ok_from_replay("closing-steps", 2, 3) == (2,)
    assert n_ok_from_replay("closing-steps", 3, 3) == ()
    assert n_ok_from_replay("checkpoint", 1, 2) == (0, 1)


def test_the_published_run_fits_kestrels_rules_only():
    assert tokens_of(ARTICLE, "max(n_ok,1)") == 62  # and 2 closing steps: the 64 tokens asked for
    assert tokens_of(ARTICLE, "n_ok+1") == 77
    assert replay_steps_of(ARTICLE, "closing-steps") == 41
    assert replay_steps_of(ARTICLE, "checkpoint") == 35
    assert replay_steps_of(ARTICLE, "none") == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: n_ok_from_replay("rollback", 1, 3),
        lambda: tokens_of(ARTICLE, "n_ok"),
        lambda: replay_steps_of(ARTICLE, "all"),
    ],
)
def test_unknown_rules_name_the_known_ones(call):
    with pytest.raises(UsageError, match="use one of"):
        call()
