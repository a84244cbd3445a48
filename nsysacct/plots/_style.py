"""What all figures share: colours, hatches, safe texts, axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    "prefill": "#bcdcd8",
    "decode": "#4b8785",
    "plain": "#8fc1bd",
    "other": "#a8a8a8",
    "unattributed": "#ffffff",
}
"""Bucket -> colour; draft, verify, replay and residual differ in lightness as well as in hue."""

HATCHES = {"measured": "", "estimated": "////", "computed": "...."}
"""Provenance -> hatch."""

WAYS = {"measured": "solid", "estimated": "striped", "computed": "dotted"}
"""Provenance -> what its hatch is called in a legend."""

DARK = {"verify", "replay", "decode"}
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
    ax: Axes, buckets: Iterable[str], provenances: Iterable[str] = (), *, more: Iterable[Any] = ()
) -> None:
    """Legend above the axes: buckets by colour, provenances by hatch where not all is measured.

    `more` are further handles, each with its label.
    """
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(label=name, **patch(name)) for name in buckets]
    ways = list(provenances)
    if set(ways) - {"measured"}:
        handles += [
            Patch(facecolor="#ffffff", edgecolor=EDGE, hatch=HATCHES[w] or None, linewidth=0.5,
                  label=f"{WAYS[w]}: {w}")
            for w in ways
        ]  # fmt: skip
    handles += more
    if not handles:
        return
    ax.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0),
        ncols=_columns([text_inches(h.get_label(), 8) + 0.35 for h in handles], inches(ax)[0]),
        frameon=False, borderaxespad=0.2, handlelength=1.4, columnspacing=1.0, fontsize=8,
        handletextpad=0.5, labelspacing=0.3,
    )  # fmt: skip


def _columns(widths: Sequence[float], room: float) -> int:
    """Most columns, filled one after the other as a legend does, that fit into `room`."""
    for rows in range(1, len(widths)):
        columns = [widths[i : i + rows] for i in range(0, len(widths), rows)]
        if sum(max(column) for column in columns) <= room:
            return len(columns)
    return 1


def inches(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes as they stand now; exact after `settle`."""
    box = ax.get_window_extent()
    return box.width / ax.figure.dpi, box.height / ax.figure.dpi


def settle(ax: Axes) -> None:
    """Let the layout of the figure take its place, so that texts can be fitted into it.

    A second time because ticks are chosen by the size that the first one finds.
    """
    figure = ax.get_figure(root=True)
    assert figure is not None  # Axes always have one
    for _ in range(2):
        figure.draw_without_rendering()


def text_inches(text: str, size: float) -> float:
    """Width of a text of one line in `size` points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), False)
    return float(width) / 72


def fitting(text: str, size: float, room: float) -> str:
    """`plain_text` as long as fits into `room` inches."""
    most = len(text)
    while most > 4 and text_inches(plain_text(text, most), size) > room:
        most -= 1
    return plain_text(text, most)


def spread(
    centres: Sequence[float], widths: Sequence[float], low: float, high: float
) -> list[float]:
    """Centres moved as little as is simple, so that boxes stay apart, in order and within limits."""
    found: list[float] = []
    edge = low
    for centre, width in zip(centres, widths, strict=True):
        found.append(max(centre, edge + width / 2))
        edge = found[-1] + width / 2
    edge = high
    for i in reversed(range(len(found))):
        found[i] = min(found[i], edge - widths[i] / 2)
        edge = found[i] - widths[i] / 2
    return found


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
    """Ticks of x at whole numbers only, also where there is but one."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
