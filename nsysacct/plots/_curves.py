"""Verify cost against width, acceptance, and figures over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nsysacct.curve import Curve
from nsysacct.errors import UsageError
from nsysacct.history import Trend
from nsysacct.model import ProcessAccount
from nsysacct.plots._style import COLOURS, EDGE, NS_PER_MS, axes_for, plain_text, tidy, whole_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def curve(points: Curve, *, ax: Axes | None = None) -> Axes:
    """Mean target pass against rows verified, with the mean slope and, right, beta over width 1.

    Parameters
    ----------
    points : Curve
        Of `nsysacct.curve.curve`.
    ax : matplotlib Axes, optional

    Raises
    ------
    UsageError
        No point.
    """
    if not points.points:
        raise UsageError("curve", "no pass of a known width", "give accounts of several k")
    ax = axes_for(ax)
    widths = [p.width for p in points.points]
    times = [p.ms for p in points.points]
    ax.plot(widths, times, "o-", color=COLOURS["verify"], linewidth=1.2, markersize=5)
    for p in points.points:
        if p.step:
            ax.annotate(
                plain_text(p.step, 24), (p.width, p.ms), xytext=(0, 9), fontsize=7, ha="center",
                textcoords="offset points",
            )  # fmt: skip
    ax.set_ylim(0, max(times) * 1.2)
    ax.set_xlim(min(widths) - 0.5, max(widths) + 0.5)
    ax.set_xlabel("rows verified in a pass")
    ax.set_ylabel("ms a pass")
    tidy(ax)
    whole_ticks(ax)
    one = next((p.ms for p in points.points if p.width == 1), None)
    if one:
        right = ax.secondary_yaxis("right", functions=_scaled(one))
        right.set_ylabel("plain passes", fontsize=9)
        right.tick_params(labelsize=8)
        ax.axhline(one, color=EDGE, linewidth=0.8, linestyle=":")
    if points.slope_ms_per_row is not None:
        ax.text(
            0.02, 0.04, f"{points.slope_ms_per_row:+.4f} ms a row (least squares)",
            transform=ax.transAxes, fontsize=8,
        )  # fmt: skip
    return ax


def _scaled(one: float) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Milliseconds to plain passes, and back."""
    return lambda ms: ms / one, lambda passes: passes * one


def acceptance(account: ProcessAccount, *, ax: Axes | None = None) -> Axes:
    """Histogram of n_ok: rounds that accepted 0, 1, ... k drafts, with their share.

    Parameters
    ----------
    account : ProcessAccount
        With an acceptance; of one without a histogram the rate by position is drawn.
    ax : matplotlib Axes, optional

    Raises
    ------
    UsageError
        The account knows nothing of acceptance.
    """
    known = account.acceptance
    if known is None or not (known.n_ok or known.per_position):
        raise UsageError(
            "acceptance", "the account does not know it", "split with --n-ok or the run log"
        )
    ax = axes_for(ax)
    if known.n_ok:
        heights, total = [float(c) for c in known.n_ok], sum(known.n_ok) or 1
        places = list(range(len(heights)))
        notes = [f"{c}\n{c / total:.0%}" for c in known.n_ok]
        mean = sum(n * c for n, c in enumerate(known.n_ok)) / total
        ax.set_xlabel(f"drafts accepted in a round, n_ok\nmean {mean:.3f} ({known.source})")
        ax.set_ylabel("rounds")
    else:
        heights = list(known.per_position or [])
        places = list(range(1, len(heights) + 1))
        notes = [f"{p:.0%}" for p in heights]
        ax.set_xlabel(f"position of the draft ({known.source})")
        ax.set_ylabel("share of rounds that accept it")
    ax.bar(places, heights, width=0.7, color=COLOURS["draft"], edgecolor=EDGE, linewidth=0.5)
    for place, height, note in zip(places, heights, notes, strict=True):
        ax.annotate(
            note, (place, height), xytext=(0, 2), textcoords="offset points", ha="center",
            va="bottom", fontsize=8,
        )  # fmt: skip
    ax.set_ylim(0, max(heights) * 1.25 or 1)
    ax.set_xticks(places)
    tidy(ax)
    return ax


def trend(points: Trend, *, ax: Axes | None = None) -> Axes:
    """A figure over the captures of a series, with a dashed line where its level steps.

    Parameters
    ----------
    points : Trend
        Of `nsysacct.history.History.trend`.
    ax : matplotlib Axes, optional

    Raises
    ------
    UsageError
        No capture has the figure.
    """
    if not points.points:
        raise UsageError("trend", f"no capture has {points.metric}", "see nsysacct history list")
    ax = axes_for(ax)
    scale, unit = (NS_PER_MS, "ms") if points.unit == "ns" else (1.0, points.unit)
    values = [p.value / scale for p in points.points]
    ax.plot(range(1, len(values) + 1), values, "o-", color=COLOURS["verify"], linewidth=1.2,
            markersize=4)  # fmt: skip
    low, high = min(values), max(values)
    room = (high - low) or abs(high) * 0.05 or 1.0
    ax.set_ylim(low - 0.15 * room, high + 0.3 * room)
    ax.set_xlim(0.5, len(values) + 0.5)
    for place, p in enumerate(points.points):
        if p.step:
            ax.axvline(place + 0.5, linestyle="--", color=COLOURS["replay"], linewidth=1)
            right = place > len(values) / 2
            ax.annotate(
                plain_text((p.capture.commit_id or p.capture.name)[:14]),
                (place + 0.5, 1), xycoords=("data", "axes fraction"),
                xytext=(-3 if right else 3, -3), textcoords="offset points",
                ha="right" if right else "left", va="top", fontsize=8,
            )  # fmt: skip
    ax.set_xlabel("capture" + (f" ({points.left_out} left out)" if points.left_out else ""))
    ax.set_ylabel(f"{points.metric.replace('ns_per', 'per')}, {unit}")
    tidy(ax)
    whole_ticks(ax)
    return ax
