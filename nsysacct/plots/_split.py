"""The split as stacked bars, one bar an account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsysacct.model import BUCKETS, PROVENANCE, Account, ProcessAccount
from nsysacct.plots._style import (
    EDGE,
    HATCHES,
    NS_PER_MS,
    axes_for,
    ink,
    legend,
    patch,
    plain_text,
    short_ms,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

IN_ROUNDS = ("draft", "verify", "replay")


@dataclass(frozen=True, slots=True)
class Part:
    """One area of a bar."""

    bucket: str
    provenance: str
    ms: float


def split(
    accounts: Account | Sequence[Account],
    *,
    labels: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Stacked bars: GPU time of the phases a round, then the residual; a mark at the wall.

    Parameters
    ----------
    accounts : Account or sequence of Account
        One bar each. Where one of them has no rounds: all buckets in ms, and neither residual nor
        wall for those with rounds, whose window is only a part.
    labels : sequence of str, optional
        Names of the bars; the trace names when left out.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        x in ms (a round, or in all). Computed amounts are dotted, estimated ones striped. The end
        of a bar lies beyond its wall mark where streams overlap.
    """
    several = [accounts] if isinstance(accounts, Account) else list(accounts)
    names = list(labels) if labels is not None else [a.trace.name for a in several]
    ax = axes_for(ax, height=1.5 + 0.6 * len(several))
    per_round = all(a.rounds.value for a in several)
    bars = [parts_of(a, per_round=per_round) for a in several]
    longest = max((sum(p.ms for p in bar) for bar in bars), default=0.0) or 1.0
    ax.set_xlim(0, longest * 1.02)
    ax.set_ylim(len(bars) - 0.4, -0.6)
    for row, (bar, account) in enumerate(zip(bars, several, strict=True)):
        _draw(ax, row, bar, longest)
        if per_round or not account.rounds.value:
            wall = account.window.wall_ns / NS_PER_MS / (account.rounds.value or 1)
            ax.plot([wall, wall], [row - 0.42, row + 0.42], color="#000000", linewidth=1.6)
    ax.set_yticks(range(len(bars)), [plain_text(n, 34) for n in names])
    ax.set_xlabel("ms a round (black mark: wall)" if per_round else "ms (black mark: wall)")
    tidy(ax, grid="x")
    shown = {p.bucket for bar in bars for p in bar}
    ways = {p.provenance for bar in bars for p in bar}
    legend(
        ax,
        [b for b in (*BUCKETS, "residual") if b in shown],
        [w for w in HATCHES if w in ways],
    )
    return ax


def parts_of(account: ProcessAccount, *, per_round: bool) -> list[Part]:
    """Areas of a bar in report order, residual last; ms a round or in all."""
    count = (account.rounds.value or 1) if per_round else 1
    wanted = IN_ROUNDS if per_round else BUCKETS
    found = []
    for bucket in (b for b in account.buckets if b.bucket in wanted):
        by_way = dict.fromkeys(HATCHES, 0)
        for basis, ns in bucket.by_basis.items():
            by_way[PROVENANCE[basis]] += ns
        if bucket.bucket == "unattributed":
            by_way["measured"] += bucket.gpu_ns - sum(bucket.by_basis.values())
        found += [
            Part(bucket.bucket, way, ns / NS_PER_MS / count) for way, ns in by_way.items() if ns
        ]
    if account.rounds.value and not per_round:
        return found
    window = account.window
    rest = window.residual_ns if window.residual_high_ns is None else window.residual_high_ns
    return [*found, Part("residual", "measured", max(0, rest) / NS_PER_MS / count)]


def _draw(ax: Axes, row: int, bar: Sequence[Part], longest: float) -> None:
    left = 0.0
    width_inches = ax.get_window_extent().width / ax.figure.dpi
    for part in bar:
        ax.barh(row, part.ms, left=left, height=0.6, **patch(part.bucket, part.provenance))
        label = short_ms(part.ms)
        room = part.ms / longest * width_inches * 0.8  # the axes shrink for labels
        if room > 0.085 * len(label):
            on_hatch = bool(HATCHES[part.provenance])
            ax.text(
                left + part.ms / 2, row, label, ha="center", va="center", fontsize=8,
                color=EDGE if on_hatch else ink(part.bucket),
                bbox={"facecolor": "#ffffff", "edgecolor": "none", "pad": 1} if on_hatch else None,
            )  # fmt: skip
        left += part.ms
