"""What text, page and notebook say in the same words: the rounds found, and how amounts are known."""

from __future__ import annotations

from collections.abc import Callable

from nsysacct.checkup import no_split, rounds_found
from nsysacct.layout import count
from nsysacct.model import PROVENANCE, Bucket, ProcessAccount

RESIDUAL = "wall minus union of GPU work: launch gaps, host work"
RESIDUAL_OF_PRICED = "wall minus all that is seen or priced; host work, gaps"
"""How the residual is known where some work has a price and no time of its own."""


def headline(account: ProcessAccount) -> str:
    """How many rounds ran, how sure that is, and their shape; or why there is no split."""
    if account.rounds.value is None:
        return f"no split: {no_split(account)}"
    if not account.rounds.value:
        return "0 rounds: no speculation in this trace"
    form = shape(account)
    return rounds_found(account.rounds) + (f"; {form}" if form else "")


def shape(account: ProcessAccount) -> str:
    """Drafts and rows of a round, and the model's layers."""
    rounds = account.rounds
    layers = ", ".join(
        count(n, "layer") if kind == "all" else f"{n} {kind}" for kind, n in rounds.layers.items()
    )
    facts = [
        f"k = {rounds.k}" if rounds.k else "",
        f"{count(rounds.width, 'row')} verified" if rounds.width else "",
        f"{layers} ({rounds.layers_how})" if layers and rounds.layers_how else layers,
    ]
    return ", ".join(fact for fact in facts if fact)


def how_known(bucket: Bucket, ms: Callable[[int], str]) -> str:
    """Amounts of a bucket by provenance and basis, strongest first; `ms` writes milliseconds.

    Such as ``measured: 672.30 exclusive + 39.70 positional``.
    """
    groups: dict[str, list[str]] = {}
    for basis, provenance in PROVENANCE.items():
        if bucket.by_basis.get(basis):
            groups.setdefault(provenance, []).append(f"{ms(bucket.by_basis[basis])} {basis}")
    if not groups and bucket.mem_ns and not bucket.gpu_ns:
        return f"copies and sets only: {ms(bucket.mem_ns)} ms"
    if bucket.bucket == "unattributed":
        return "no evidence places it"
    return "; ".join(f"{name}: {' + '.join(parts)}" for name, parts in groups.items())


def wall_known(account: ProcessAccount) -> str:
    """What the wall is of."""
    known = {"given": "given with --wall-ms", "summed": "walls of all ranks added up"}
    of = "the rounds" if account.rounds.value else "the trace"
    return known.get(account.window.wall_how, f"first to last GPU event of {of}")
