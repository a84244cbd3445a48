"""Round semantics of engines: a small closed set of named rules, chosen in the registry.

An engine's round proposes k drafts, verifies ``verify_width(k)`` rows, accepts ``n_ok`` of them,
emits ``tokens(n_ok, k)`` tokens and may need ``replay_steps(n_ok, k)`` further target passes.
Sources of the rules: each engine's own source code, and for kestrel its published account, whose
tokens fit ``max(n_ok, 1)`` and no other rule (docs/article.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nsysacct.errors import UsageError

VERIFY_WIDTH: dict[str, Callable[[int], int]] = {
    # kestrel: the k drafts alone; the token before them was verified by the round before
    "k": lambda k: k,
    # llama.cpp, vLLM, SGLang, TensorRT-LLM, transformers: the last token and the k drafts
    "k+1": lambda k: k + 1,
}
"""Rows that the verify pass runs, from k."""

TOKENS: dict[str, Callable[[int, int], int]] = {
    # the accepted drafts and the target's own next token
    "n_ok+1": lambda n_ok, k: n_ok + 1,
    # kestrel: no token beyond the accepted ones, and one from the closing step when none was
    "max(n_ok,1)": lambda n_ok, k: max(n_ok, 1),
    # llama.cpp with checkpoints: the second pass verifies the target's token too, and adds its own
    "min(n_ok+2,k+1)": lambda n_ok, k: min(n_ok + 2, k + 1),
}
"""Tokens that a round emits, from (n_ok, k)."""

REPLAY_STEPS: dict[str, Callable[[int, int], int]] = {
    "none": lambda n_ok, k: 0,
    # kestrel: all kept -> nothing; nothing accepted -> one step; else one step an accepted row
    "closing-steps": lambda n_ok, k: 0 if n_ok >= k else max(n_ok, 1),
    # llama.cpp with checkpoints: any rejection -> restore and one more pass (of n_ok + 2 rows)
    "checkpoint": lambda n_ok, k: 0 if n_ok >= k else 1,
}
"""Target passes after a rejection, from (n_ok, k)."""

REPLAY_WIDTH: dict[str, Callable[[int], int]] = {
    "closing-steps": lambda n_ok: 1,
    # the last token, the accepted drafts and the target's token in place of the rejected one
    "checkpoint": lambda n_ok: n_ok + 2,
}
"""Rows of each replay pass, from n_ok; rules without replay passes are not in it."""


def n_ok_from_replay(rule: str, steps: int, k: int) -> tuple[int, ...]:
    """All n_ok in 0..k that make `steps` replay passes under `rule`.

    Raises
    ------
    UsageError
        A rule that is not in `REPLAY_STEPS`.

    Examples
    --------
    >>> n_ok_from_replay("closing-steps", 2, 3)
    (2,)
    >>> n_ok_from_replay("closing-steps", 1, 3)
    (0, 1)
    """
    function = _rule(REPLAY_STEPS, "replay rule", rule)
    return tuple(n for n in range(k + 1) if function(n, k) == steps)


def tokens_of(n_ok: Sequence[int], rule: str) -> int:
    """Tokens that rounds emit under a `TOKENS` rule; ``n_ok[i]`` = rounds that accepted i of k.

    Raises
    ------
    UsageError
        A rule that is not in `TOKENS`.

    Examples
    --------
    >>> tokens_of([27, 2, 6, 7], "max(n_ok,1)")
    62
    """
    return _total(n_ok, _rule(TOKENS, "token rule", rule))


def replay_steps_of(n_ok: Sequence[int], rule: str) -> int:
    """Replay passes of all rounds under a `REPLAY_STEPS` rule; k is ``len(n_ok) - 1``.

    Raises
    ------
    UsageError
        A rule that is not in `REPLAY_STEPS`.

    Examples
    --------
    >>> replay_steps_of([27, 2, 6, 7], "closing-steps")
    41
    """
    return _total(n_ok, _rule(REPLAY_STEPS, "replay rule", rule))


def _total(n_ok: Sequence[int], function: Callable[[int, int], int]) -> int:
    """Sum of a rule over a histogram; k is one less than its length."""
    k = len(n_ok) - 1
    return sum(count * function(n, k) for n, count in enumerate(n_ok))


def _rule(rules: dict[str, Callable[..., int]], what: str, name: str) -> Callable[..., int]:
    if name not in rules:
        raise UsageError(what, f"{name!r} is not known", f"use one of {', '.join(rules)}")
    return rules[name]
