"""What all figures share: colours, hatches, safe texts, axes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from nsysacct.extras import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NS_PER_MS = 1e6

COLOURS = {
    "draft": "#ddaa33",
    "verify": "#004488",
    "replay": "#bb5566",
    "residual": "#e4e4e4",
    "rest": "#e4e4e4",
    "prefill": "#b8d8d8",
    "decode": "#5f9e9e",
    "plain": "#5f9e9e",
    "other": "#a8a8a8",
    "unattributed": "#ffffff",
}
"""Bucket -> colour; draft, verify, replay and residual differ in lightness as well as in hue."""

HATCHES = {"measured": "", "estimated": "////", "computed": "...."}
"""Provenance -> hatch."""

DARK = {"verify", "replay", "decode", "plain"}
"""Buckets on whose colour text is white."""

EDGE = "#333333"
GRID: dict[str, Any] = {"color": "#d0d0d0", "linewidth": 0.6}


def axes_for(ax: Axes | None, height: float = 3.6) -> Axes:
    """`ax`, or the Axes of a new pyplot figure `height` inches high."""
    if ax is not None:
        return ax
    pyplot = need("matplotlib.pyplot", "plots")
    _, made = pyplot.subplots(figsize=(6.4, height), layout="constrained")
    found: Axes = made
    return found


def plain_text(text: str, most: int = 60) -> str:
    """A name from a trace as matplotlib prints it: no mathematics, no control characters."""
    shown = "".join(c if c.isprintable() else "?" for c in text)
    if len(shown) > most:
        shown = shown[: most // 2 - 1] + "…" + shown[-(most // 2) :]
    return shown.replace("$", r"\$")


def patch(bucket: str, provenance: str = "measured") -> dict[str, Any]:
    """Face, edge and hatch of an area."""
    return {
        "facecolor": COLOURS[bucket],
        "edgecolor": EDGE if not HATCHES[provenance] or bucket not in DARK else "#ffffff",
        "hatch": HATCHES[provenance] or None,
        "linewidth": 0.5,
    }


def ink(bucket: str) -> str:
    """Colour of text on a bucket's colour."""
    return "#ffffff" if bucket in DARK else "#000000"


def legend(
    ax: Axes,
    buckets: Iterable[str],
    provenances: Iterable[str] = (),
    *,
    outline: str = "",
) -> None:
    """Legend above the axes: buckets by colour, provenances by hatch where not all is measured.

    `outline` names what a black outline stands for.
    """
    from matplotlib.patches import Patch

    handles = [Patch(label=name, **patch(name)) for name in buckets]
    ways = list(provenances)
    if set(ways) - {"measured"}:
        handles += [
            Patch(facecolor="#ffffff", edgecolor=EDGE, hatch=HATCHES[w] or None, linewidth=0.5,
                  label=w)
            for w in ways
        ]  # fmt: skip
    if outline:
        handles.append(Patch(facecolor="none", edgecolor="#000000", linewidth=1.0, label=outline))
    columns = min(len(handles), max(2, int(ax.get_window_extent().width / ax.figure.dpi / 1.15)))
    ax.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, frameon=False,
        borderaxespad=0.2, handlelength=1.4, columnspacing=1.0, fontsize=8,
    )  # fmt: skip


def tidy(ax: Axes, grid: str = "y") -> None:
    """Light grid behind the data, no box."""
    ax.set_axisbelow(True)
    ax.grid(visible=True, axis="x" if grid == "x" else "y", **GRID)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)
    ax.xaxis.label.set_fontsize(9)
    ax.yaxis.label.set_fontsize(9)


def short_ms(value: float) -> str:
    """Milliseconds with three significant digits."""
    digits = 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f}"


def whole_ticks(ax: Axes) -> None:
    """Ticks of x at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
