"""Cost of each round over time, with the drafts it accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nsysacct.errors import UsageError
from nsysacct.model import PROVENANCE, ProcessAccount, RoundRow
from nsysacct.plots._style import (
    NS_PER_MS,
    WAYS,
    axes_for,
    inches,
    legend,
    patch,
    settle,
    short_ms,
    text_inches,
    tidy,
    whole_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

PARTS = ("verify", "draft", "replay", "residual")
"""From the bottom up: what hardly varies first, so that the rest can be compared."""

MOST_BARS = 400
"""More rounds than this are drawn as means of neighbours."""

FEW_ROUNDS = 60
"""Up to here the bars have outlines."""


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
        x = round, y = ms. Beyond 400 rounds a step is the mean of neighbours. A bar far above the
        others is cut and its amount written. A part most of which is estimated or computed has that
        hatch. Where no round's n_ok is known there is no strip; a round without a mark is one
        whose n_ok is not known.

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
    shown = [p for p in PARTS if any(getattr(r, f"{p}_ns") for r in rows)]
    ways = {part: _mostly(account, part) for part in shown}
    base = np.zeros(len(edges) - 1)
    for part in shown:
        top = base + _means(rows, part, size)
        area = patch(part, ways[part]) | {"linewidth": 0.4}
        if len(rows) > FEW_ROUNDS and not area["hatch"]:
            area["edgecolor"] = "none"
        ax.stairs(top, edges, baseline=base, fill=True, **area)
        base = top
    ceiling = _ceiling(base)
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(0, ceiling)
    ax.set_xlabel("round" if size == 1 else f"round (means of {size})")
    ax.set_ylabel("ms")
    tidy(ax)
    whole_ticks(ax)
    flags = _flags(ax, rows, base, size, ceiling)
    known = [r for r in rows if r.n_ok is not None]
    if known:
        _strip(ax, account, known)
        if len(known) < len(rows):
            ax.set_xlabel(f"{ax.get_xlabel()}; n_ok known of {len(known)} of {len(rows)}")
    legend(ax, shown, [w for w in WAYS if w in ways.values()], more=flags)
    if known:  # above the strip
        above: Any = ax.get_legend()
        above.set_bbox_to_anchor((0, 1.25), transform=ax.transAxes)
    settle(ax)
    _cut(ax, base, edges, ceiling)
    return ax


def _mostly(account: ProcessAccount, part: str) -> str:
    """Provenance of the larger share of a part's time."""
    if part == "residual":
        return "measured"
    amounts = dict.fromkeys(WAYS, 0)
    for basis, ns in account.bucket(part).by_basis.items():
        amounts[PROVENANCE[basis]] += ns
    return max(amounts, key=lambda way: amounts[way])


def _ceiling(tops: npt.NDArray[np.float64]) -> float:
    """End of the scale, ms: a few far outliers are cut, so that the others can be read."""
    highest = float(tops.max())
    usual = float(np.quantile(tops, 0.95))
    return (usual * 1.5 if highest > 3 * usual > 0 else highest * 1.05) or 1.0


def _cut(
    ax: Axes, tops: npt.NDArray[np.float64], edges: npt.NDArray[np.float64], ceiling: float
) -> None:
    """Write the amount of each bar that the scale cuts at its top, where there is room."""
    per_inch = (edges[-1] - edges[0]) / inches(ax)[0]
    free = edges[0]
    for i in np.flatnonzero(tops > ceiling).tolist():
        text = f"{short_ms(float(tops[i]))} \N{UPWARDS ARROW}"
        width = (text_inches(text, 7) + 0.05) * per_inch
        left = max(min(float(edges[i]), edges[-1] - width), free)
        if left > edges[i + 1]:
            continue
        ax.annotate(
            text, (left, 1), xycoords=("data", "axes fraction"), xytext=(2, -6),
            textcoords="offset points", fontsize=7, va="top",
            bbox={"facecolor": "#ffffff", "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip
        free = left + width


def _means(rows: list[RoundRow], part: str, size: int) -> npt.NDArray[np.float64]:
    values = np.array([getattr(r, f"{part}_ns") for r in rows], np.float64) / NS_PER_MS
    starts = np.arange(0, len(values), size)
    counts = np.diff(np.append(starts, len(values)))
    means: npt.NDArray[np.float64] = np.add.reduceat(values, starts) / counts
    return means


def _flags(
    ax: Axes,
    rows: list[RoundRow],
    top: npt.NDArray[np.float64],
    size: int,
    ceiling: float,
) -> list[Line2D]:
    """Mark warm-up, outlier and partial rounds by a triangle on their bar; what the marks mean."""
    flagged = [i for i, r in enumerate(rows) if r.flags]
    if not flagged:
        return []
    return ax.plot(
        [rows[i].index for i in flagged], [min(top[i // size], ceiling) for i in flagged], "v",
        color="#000000", markersize=4, clip_on=False,
        label=", ".join(dict.fromkeys(f for i in flagged for f in rows[i].flags)),
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
