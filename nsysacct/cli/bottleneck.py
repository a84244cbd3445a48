"""``nsysacct bottleneck``: what limits a plain step, and the levers by time at stake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nsysacct.bottleneck import Stake, bottleneck, parse_bytes
from nsysacct.cli._econ import (
    Page,
    Table,
    account_argument,
    cell,
    emit,
    format_option,
    plain_option,
    wrapped,
)
from nsysacct.cli._help import page
from nsysacct.cli._inputs import account_of
from nsysacct.cli._numbers import Finite
from nsysacct.cli._options import trace_options
from nsysacct.economics import Costs, costs_of
from nsysacct.errors import NsysacctError
from nsysacct.layout import share as share_text

if TYPE_CHECKING:
    from nsysacct.account import Options
    from nsysacct.model import Account


@page("bottleneck")
@account_argument
@click.option("--weight-bytes", metavar="SIZE", help="Weights a plain step reads, e.g. 14.4GB.")
@click.option("--active-bytes", metavar="SIZE", help="Of a MoE: what one token reads.")
@click.option(
    "--dram-share",
    type=Finite(0, 1),
    metavar="SHARE",
    help="DRAM throughput over its peak, from GPU metrics.",
)
@plain_option
@trace_options
@format_option
def command(
    account: str,
    weight_bytes: str | None,
    active_bytes: str | None,
    dram_share: float | None,
    plain_ms: float | None,
    plain_from: Account | None,
    options: Options,
    fmt: str,
    output: str | None,
    force: bool,
) -> None:
    """Say whether a plain step is memory-bound, launch-bound or compute-bound.

    Then list verify, draft, replay, acceptance and host work by the milliseconds at stake. Where
    the capture has GPU metrics, the DRAM throughput is measured, not computed.

    \b
    Examples:
      nsysacct bottleneck run.json --weight-bytes 14.4GB
      nsysacct bottleneck spec.sqlite --plain-from plain.sqlite
      nsysacct bottleneck moe.json --active-bytes 3.3GB --plain-ms 2.04
    """
    loaded = account_of(account, options)
    costs: Costs | None = None
    notes = []
    try:
        costs = costs_of(loaded, plain_ms=plain_ms, plain_from=plain_from)
    except NsysacctError as error:
        notes.append(f"no time at stake: {error}")
    found = bottleneck(
        loaded,
        weight_bytes=parse_bytes(weight_bytes) if weight_bytes else None,
        active_bytes=parse_bytes(active_bytes) if active_bytes else None,
        dram_share=dram_share,
        plain_ms=plain_ms,
        plain_from=plain_from,
        costs=costs,
    )

    def giga(value: float | None) -> float | None:
        return None if value is None else value / 1e9

    impossible = ", impossible" if (found.bandwidth_share or 0) > 1 else ""
    shares = Table(
        "What a plain step does",
        ["figure", "value"],
        [
            ["plain step, ms", cell(found.plain_ms)],
            ["bytes read, GB", cell(giga(found.bytes_per_step), 2)],
            ["achieved, GB/s", cell(giga(found.achieved_bytes_per_s), 0)],
            ["card, GB/s", cell(giga(found.card_bytes_per_s), 0)],
            [f"share of bandwidth{impossible}", cell(found.bandwidth_share)],
            ["share of wall without GPU work", cell(found.idle_share)],
            ["a verified row more, plain steps", cell(found.row_cost_plain_steps)],
        ],
    )
    stakes = Table(
        "At stake, at most",
        ["lever", "ms", "share of wall", "basis", "what"],
        [
            [s.lever, cell(s.at_stake_ms, 2), share_text(s.share_of_wall), s.basis, s.detail]
            for s in found.stakes
        ],
        _at_stake(found.stakes),
    )
    head = [f"{found.verdict}: {found.reasons[0]}"]
    tables = [shares, stakes] if found.stakes else [shares]
    emit(Page("bottleneck", found, tables, head, [*found.reasons[1:], *notes]), fmt, output, force)


def _at_stake(stakes: list[Stake]) -> str:
    """Levers by time, each with what would have to happen and how the time is known."""
    lines = [f"{'At stake, at most':18}  {'ms':>9}  {'of wall':>7}"]
    for stake in stakes:
        share = share_text(stake.share_of_wall)
        lines.append(f"{stake.lever:18}  {stake.at_stake_ms:9.2f}  {share:>7}")
        lines.append(wrapped(f"{stake.detail} [{stake.basis}]", indent=4, hang=4))
    return "\n".join(lines)
