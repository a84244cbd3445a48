"""Figures as files: same account, same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsysacct.errors import UsageError
from nsysacct.extras import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "svg", "pdf")

SETTINGS = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine has it
    "svg.hashsalt": "nsysacct",
    "svg.fonttype": "path",
    "hatch.linewidth": 0.8,
}
"""Matplotlib settings that make files the same everywhere."""

_NO_DATE: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def new_axes(width: float = 6.4, height: float = 3.6) -> Axes:
    """Axes of a new figure outside pyplot, `width` by `height` inches, for writing to a file."""
    matplotlib = need("matplotlib", "plots")
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):
        return Figure(figsize=(width, height), layout="constrained").subplots()


def save(ax: Axes, path: str | Path, *, dpi: int = 150) -> None:
    """Write the figure of `ax`, without dates.

    Parameters
    ----------
    ax : matplotlib Axes
    path : str or Path
        The ending says the format, one of `FORMATS`.
    dpi : int
        Of PNG.

    Raises
    ------
    UsageError
        Another ending.
    """
    matplotlib = need("matplotlib", "plots")
    form = Path(path).suffix.lower().lstrip(".")
    if form not in FORMATS:
        raise UsageError(str(path), "no picture format by its ending", "use .png, .svg or .pdf")
    with matplotlib.rc_context(SETTINGS):
        figure = ax.get_figure(root=True)
        assert figure is not None  # Axes always have one
        figure.savefig(path, format=form, dpi=dpi, metadata=_NO_DATE[form])
