"""``nsysacct model``: what theory promises, before any capture."""

from __future__ import annotations

import click

from nsysacct.cli._econ import Page, Table, cell, emit, format_option, numbers
from nsysacct.cli._help import page
from nsysacct.cli._numbers import Finite
from nsysacct.errors import UsageError
from nsysacct.theory import expected_tokens, expert_ratio, improvement_factor, optimal_gamma


@page("model")
@click.option(
    "--alpha",
    metavar="A,B,..",
    default="0.4,0.6,0.75,0.9",
    show_default=True,
    help="Acceptance rates.",
)
@click.option(
    "--c",
    "cost",
    metavar="A,B,..",
    default="0.05,0.25",
    show_default=True,
    help="Draft step / plain step.",
)
@click.option(
    "--beta", metavar="A,B,..", default="1,1.6", show_default=True, help="Verify pass / plain step."
)
@click.option(
    "--gamma",
    metavar="N",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Drafts (k).",
)
@click.option(
    "--extra",
    type=Finite(),
    metavar="STEPS",
    default=0.0,
    show_default=True,
    help="Replay and host, plain steps a round.",
)
@click.option("--experts", metavar="N", type=click.IntRange(min=1), help="Experts of a MoE layer.")
@click.option(
    "--experts-per-token", metavar="N", type=click.IntRange(min=1), help="Experts a token uses."
)
@format_option
def command(
    alpha: str,
    cost: str,
    beta: str,
    gamma: int,
    extra: float,
    experts: int | None,
    experts_per_token: int | None,
    fmt: str,
    output: str | None,
    force: bool,
) -> None:
    """Print the speed-up over acceptance rate, draft cost and verify cost.

    Tokens a round over beta + c gamma + extra; with beta = 1 and extra = 0 this is Theorem 3.8 of
    Leviathan et al. 2023.

    \b
    Examples:
      nsysacct model --alpha 0.5,0.7 --c 0.05 --gamma 3
      nsysacct model --experts 128 --experts-per-token 8 --beta 1,2
    """
    if (experts is None) != (experts_per_token is None):
        raise UsageError("--experts", "needs both counts", "give --experts and --experts-per-token")
    alphas = numbers("--alpha", alpha)
    pairs = [(c, b) for b in numbers("--beta", beta) for c in numbers("--c", cost)]
    cells = [
        {
            "alpha": a,
            "c": c,
            "beta": b,
            "speedup": improvement_factor(a, gamma, c, b, extra),
            "best_gamma": optimal_gamma(a, c, b),
        }
        for a in alphas
        for c, b in pairs
    ]
    rows = [
        [
            f"{a:g}",
            cell(expected_tokens(a, gamma)),
            *(
                f"{x['speedup']:.2f}x (k {x['best_gamma']})"
                for x in cells[i * len(pairs) : (i + 1) * len(pairs)]
            ),
        ]
        for i, a in enumerate(alphas)
    ]
    columns = ["alpha", "tokens", *(f"c {c:g} b {b:g}" for c, b in pairs)]
    notes = [
        "tokens a round; c: a draft step, b: a verify pass (beta), over a plain step",
        "in brackets: the k that is best at these costs, 0 = do not speculate",
    ]
    ratio = None
    if experts is not None and experts_per_token is not None:
        ratio = expert_ratio(experts, experts_per_token, gamma + 1)
        notes.append(
            f"{gamma + 1} rows read up to {ratio:.3f} times the expert weights of one "
            "(uniform routing)"
        )
    document = {"gamma": gamma, "extra": extra, "cells": cells, "expert_ratio": ratio}
    table = Table(f"Speed-up, {gamma} drafts a round", columns, rows)
    emit(Page("model", document, [table], notes=notes), fmt, output, force)
