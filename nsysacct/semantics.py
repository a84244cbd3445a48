"""Round semantics of engines: a small closed set of named rules, chosen in the registry.

An engine's round proposes k drafts, verifies ``verify_width(k)`` rows, accepts ``n_ok`` of them,
emits ``tokens(n_ok)`` tokens and may need ``replay_steps(n_ok, k)`` further target passes.
Source of the table: engines' own source code; see docs/method.md.
"""

from __future__ import annotations

from collections.abc import Callable

VERIFY_WIDTH: dict[str, Callable[[int], int]] = {
    "k": lambda k: k,
    "k+1": lambda k: k + 1,
}
"""Rows that the verify pass runs, from k."""

TOKENS: dict[str, Callable[[int], int]] = {
    "n_ok+1": lambda n_ok: n_ok + 1,
    "max(n_ok,1)": lambda n_ok: max(n_ok, 1),
}
"""Tokens that a round emits, from n_ok."""

REPLAY_STEPS: dict[str, Callable[[int, int], int]] = {
    "none": lambda n_ok, k: 0,
    # kestrel: everything kept -> nothing; nothing accepted -> one step; else one step an accepted row
    "closing-steps": lambda n_ok, k: 0 if n_ok >= k else max(n_ok, 1),
    # llama.cpp with checkpoints: any rejection -> restore and one more pass (of n_ok + 2 rows)
    "checkpoint": lambda n_ok, k: 0 if n_ok >= k else 1,
}
"""Target passes after a rejection, from (n_ok, k)."""




def n_ok_from_replay(rule: str, steps: int, k: int) -> tuple[int, ...]:
    """All n_ok in 0..k that make `steps` replay passes under `rule`.

    Examples
    --------
    >>> n_ok_from_replay("closing-steps", 2, 3)
    (2,)
    >>> n_ok_from_replay("closing-steps", 1, 3)
    (0, 1)
    """
    return tuple(n for n in range(k + 1) if REPLAY_STEPS[rule](n, k) == steps)
