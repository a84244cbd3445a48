"""Cost of each round over time, with the drafts it accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nsysacct.errors import UsageError
from nsysacct.model import ProcessAccount, RoundRow
from nsysacct.plots._style import COLOURS, EDGE, NS_PER_MS, axes_for, legend, tidy, whole_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = ("verify", "draft", "replay", "residual")
"""From the bottom up: what hardly varies first, so that the rest can be compared."""

MOST_BARS = 400
"""More rounds than this are drawn as means of neighbours."""


def rounds(account: ProcessAccount, *, ax: Axes | None = None) -> Axes:
    """Verify, draft, replay and residual of each round in order; n_ok in a strip above.

    Parameters
    ----------
    account : ProcessAccount
        With a per-round series.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        x = round, y = ms. Beyond 400 rounds a step is the mean of neighbours. Where no round's
        n_ok is known there is no strip; a round without a mark is one whose n_ok is not known.

    Raises
    ------
    UsageError
        The account has no rounds.
    """
    rows = account.per_round
    if not rows:
        raise UsageError("rounds", "the account has none", "see the reasons that split prints")
    ax = axes_for(ax)
    size = -(-len(rows) // MOST_BARS)
    edges = np.append(np.arange(0, len(rows), size), len(rows)) + rows[0].index - 0.5
    base = np.zeros(len(edges) - 1)
    for part in PARTS:
        top = base + _means(rows, part, size)
        ax.stairs(
            top, edges, baseline=base, fill=True, facecolor=COLOURS[part],
            edgecolor=EDGE if len(rows) <= 60 else "none", linewidth=0.4,
        )  # fmt: skip
        base = top
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(0, float(base.max()) * 1.03 or 1.0)
    ax.set_xlabel("round" if size == 1 else f"round (means of {size})")
    ax.set_ylabel("ms")
    tidy(ax)
    whole_ticks(ax)
    _flags(ax, rows, base, size)
    known = [r for r in rows if r.n_ok is not None]
    if known:
        _strip(ax, account, known)
    _legend_beside(ax, [p for p in PARTS if any(getattr(r, f"{p}_ns") for r in rows)])
    return ax


def _means(rows: list[RoundRow], part: str, size: int) -> npt.NDArray[np.float64]:
    values = np.array([getattr(r, f"{part}_ns") for r in rows], np.float64) / NS_PER_MS
    starts = np.arange(0, len(values), size)
    counts = np.diff(np.append(starts, len(values)))
    means: npt.NDArray[np.float64] = np.add.reduceat(values, starts) / counts
    return means


def _flags(ax: Axes, rows: list[RoundRow], top: npt.NDArray[np.float64], size: int) -> None:
    """Mark warm-up, outlier and partial rounds by a triangle above their bar."""
    flagged = [i for i, r in enumerate(rows) if r.flags]
    if flagged:
        ax.plot(
            [rows[i].index for i in flagged], [top[i // size] for i in flagged], "v",
            color="#000000", markersize=4, clip_on=False,
        )  # fmt: skip


def _strip(ax: Axes, account: ProcessAccount, known: list[RoundRow]) -> None:
    """n_ok of the rounds as dots on a scale of their own above the bars."""
    k = account.rounds.k or max(r.n_ok or 0 for r in known)
    strip = ax.inset_axes((0, 1.03, 1, 0.2), sharex=ax)
    strip.plot(
        [r.index for r in known], [float(r.n_ok or 0) for r in known], "o", color="#000000",
        markersize=3 if len(known) <= 120 else 1.2,
    )  # fmt: skip
    strip.set_ylim(-0.5, k + 0.5)
    strip.set_yticks([0, k])
    strip.set_ylabel("n_ok", fontsize=8, rotation=0, ha="right", va="center")
    strip.tick_params(labelsize=7, labelbottom=False, length=2)
    strip.grid(visible=True, axis="y", color="#e6e6e6", linewidth=0.5)
    strip.spines[["top", "right"]].set_visible(False)


def _legend_beside(ax: Axes, parts: list[str]) -> None:
    legend(ax, parts)
    shown: Any = ax.get_legend()
    if ax.child_axes:  # above the strip
        shown.set_bbox_to_anchor((0, 1.25), transform=ax.transAxes)
