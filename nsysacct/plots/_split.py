"""The split as stacked bars, one bar an account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsysacct.account_tables import split_parts
from nsysacct.model import BUCKETS, Account, ProcessAccount
from nsysacct.plots._style import (
    EDGE,
    HATCHES,
    NS_PER_MS,
    axes_for,
    fitting,
    inches,
    ink,
    legend,
    patch,
    settle,
    short_ms,
    spread,
    text_inches,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

MARK = "#000000"
"""Colour of the mark at the wall."""

SMALL = 6
"""Points of texts where rows are low."""

CRAMPED_INCHES = 0.38
"""Height of a row below which a bar has no room for texts above and below it."""


@dataclass(frozen=True, slots=True)
class Bar:
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
        x in ms (a round, or in all), bar number `i` at y = i. Computed amounts are dotted,
        estimated ones striped. The end of a bar lies beyond its wall mark where streams overlap.
    """
    several = [accounts] if isinstance(accounts, Account) else list(accounts)
    names = list(labels) if labels is not None else [a.trace.name for a in several]
    ax = axes_for(ax, height=split_height(len(several)))
    per_round = all(a.rounds.value for a in several)
    bars = [_bar(a, per_round=per_round) for a in several]
    walls = [_wall(a, per_round=per_round) for a in several]
    longest = max([sum(p.ms for p in bar) for bar in bars] + [w or 0.0 for w in walls]) or 1.0
    ax.set_xlim(0, longest * 1.01)
    ax.set_ylim(len(bars) - 0.5, -0.5)
    ax.set_yticks([])
    ax.set_xlabel("ms a round" if per_round else "ms")
    tidy(ax, grid="x")
    ax.spines["left"].set_visible(False)  # it would cross the texts
    shown = {p.bucket for bar in bars for p in bar}
    ways = {p.provenance for bar in bars for p in bar}
    legend(
        ax,
        [b for b in (*BUCKETS, "residual") if b in shown],
        [w for w in HATCHES if w in ways],
        more=_wall_handle() if any(walls) else (),
    )
    settle(ax)
    if _row_inches(ax) < CRAMPED_INCHES:
        short = [fitting(name, SMALL, inches(ax)[0] / 3) for name in names]
        ax.set_yticks(range(len(bars)), short, fontsize=SMALL)
        ax.tick_params(axis="y", length=0)
        settle(ax)
    for row, (name, bar, wall) in enumerate(zip(names, bars, walls, strict=True)):
        _draw(ax, row, name, bar, wall)
    return ax


def _row_inches(ax: Axes) -> float:
    low, high = ax.get_ylim()
    return inches(ax)[1] / abs(high - low)


def split_height(bars: int) -> float:
    """Height of a figure of `bars` bars, inches, in which all their texts have room."""
    return 1.2 + 0.72 * bars


def _wall(account: ProcessAccount, *, per_round: bool) -> float | None:
    """Wall of a bar, ms; None where the bar shows more than the window of the rounds."""
    if account.rounds.value and not per_round:
        return None
    return account.window.wall_ns / NS_PER_MS / (account.rounds.value or 1)


def _wall_handle() -> list[Line2D]:
    from matplotlib.lines import Line2D

    return [Line2D([], [], color=MARK, linewidth=1.6, marker="|", markersize=9, linestyle="none",
                   markeredgewidth=1.6, label="wall")]  # fmt: skip


def _bar(account: ProcessAccount, *, per_round: bool) -> list[Bar]:
    """Areas of a bar, ms a round or in all."""
    count = (account.rounds.value or 1) if per_round else 1
    parts = split_parts(account, in_rounds=per_round)
    return [Bar(p.bucket, p.provenance, p.ns / NS_PER_MS / count) for p in parts]


def _draw(ax: Axes, row: int, name: str, bar: Sequence[Bar], wall: float | None) -> None:
    """One bar: its name above, amounts in its areas, or below where an area is too narrow.

    In a cramped figure the names are at the side, and what does not fit is not written.
    """
    width, height = inches(ax)[0], _row_inches(ax)
    cramped = height < CRAMPED_INCHES
    size = 8 if height > 0.5 else SMALL
    line = size * 1.35 / 72  # inches of a line of text
    thick = 0.7 * height if cramped else min(max(height - 2.4 * line, 0.25 * height), 0.7)
    top, bottom = row - thick / 2 / height, row + thick / 2 / height
    per_inch = ax.get_xlim()[1] / width
    left, narrow = 0.0, []
    for part in bar:
        ax.barh(row, part.ms, left=left, height=bottom - top, **patch(part.bucket, part.provenance))
        label = short_ms(part.ms)
        middle = left + part.ms / 2
        left += part.ms
        if text_inches(label, size) + 0.08 > part.ms / per_inch:
            narrow.append((part.bucket, label, middle))
            continue
        on_hatch = bool(HATCHES[part.provenance])
        ax.text(
            middle, row, label, ha="center", va="center", fontsize=size,
            color=EDGE if on_hatch else ink(part.bucket),
            bbox={"facecolor": "#ffffff", "edgecolor": "none", "pad": 1} if on_hatch else None,
        )  # fmt: skip
    if wall is not None:
        reach = 0.025 / height
        ax.plot([wall, wall], [top - reach, bottom + reach], color=MARK, linewidth=1.6)
    if not cramped:
        ax.text(0, top - 0.03 / height, fitting(name, size, width), fontsize=size, va="bottom")
        _below(ax, narrow, bottom, size, 0.06 / height, per_inch)


def _below(
    ax: Axes,
    narrow: Sequence[tuple[str, str, float]],
    bottom: float,
    size: float,
    drop: float,
    per_inch: float,
) -> None:
    """Amounts of areas too narrow for them, side by side below the bar, each with a line to it."""
    width = inches(ax)[0]
    for texts in ([f"{b} {t}" for b, t, _ in narrow], [t for _, t, _ in narrow]):
        sizes = [text_inches(t, size) + 0.1 for t in texts]
        if sum(sizes) <= width:
            break  # with their names where these fit
    places = spread([m / per_inch for _, _, m in narrow], sizes, -0.05, width + 0.05)
    for text, place, (_, _, middle) in zip(texts, places, narrow, strict=True):
        ax.annotate(
            text, (middle, bottom), (place * per_inch, bottom + drop), ha="center", va="top",
            fontsize=size, arrowprops={"arrowstyle": "-", "linewidth": 0.6, "color": EDGE,
                                       "shrinkA": 0, "shrinkB": 0, "relpos": (0.5, 1)},
        )  # fmt: skip
