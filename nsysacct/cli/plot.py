"""``nsysacct plot``: a figure of accounts in a file."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsysacct.cli._base import FILE, atomic_file, force_option, refuse_existing
from nsysacct.cli._help import page
from nsysacct.cli._inputs import account_of, is_account_json
from nsysacct.cli._numbers import TIME_MS, rounds_span
from nsysacct.cli._options import trace_options
from nsysacct.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from nsysacct.account import Options

KINDS = {
    "split": "stacked bars of the split, one bar a TRACE",
    "rounds": "cost of each round over time, with n_ok",
    "timeline": "GPU work of some rounds, stream by stream",
    "waterfall": "from a plain step to the speculative run, and levers",
    "curve": "verify cost against width, over several TRACEs",
    "acceptance": "histogram of accepted drafts",
    "trend": "a figure over the captures of a history file",
}
"""Kind -> what it shows."""

HEIGHTS = {"waterfall": 4.0, "timeline": 2.4}


@page("plot")
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("traces", metavar="TRACE...", type=FILE, nargs=-1, required=True)
@trace_options
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=FILE,
    required=True,
    help="Picture to write: .png, .svg or .pdf.",
)
@force_option
@click.option(
    "--rounds",
    "chosen",
    metavar="A-B",
    default="0-2",
    show_default=True,
    help="Of timeline: rounds to show, from 0.",
)
@click.option(
    "--plain-ms", type=TIME_MS, metavar="MS", help="Of waterfall: wall of one plain step."
)
@click.option(
    "--metric",
    metavar="NAME",
    default="total.ns_per_round",
    show_default=True,
    help="Of trend: the figure, by its name.",
)
@click.option(
    "--series", metavar="NAME", default="main", show_default=True, help="Of trend: the series."
)
@click.option("--size", metavar="WxH", help="Inches, e.g. 3.3x2.4 for half a column.")
@click.option(
    "--dpi",
    metavar="N",
    type=click.IntRange(30, 1200),
    default=150,
    show_default=True,
    help="Of PNG: dots an inch.",
)
def command(
    kind: str,
    traces: tuple[str, ...],
    options: Options,
    output: str,
    force: bool,
    chosen: str,
    plain_ms: float | None,
    metric: str,
    series: str,
    size: str | None,
    dpi: int,
) -> None:
    """Draw a figure of TRACE (an export, a report, or the JSON of an account) into a file.

    \b
    Kinds:
      split       stacked bars of the split, one bar a TRACE
      rounds      cost of each round over time, with n_ok
      timeline    GPU work of some rounds, stream by stream
      waterfall   from a plain step to the speculative run, and levers
      curve       verify cost against width, over several TRACEs
      acceptance  histogram of accepted drafts
      trend       a figure over the captures of a history file

    \b
    Examples:
      nsysacct plot split trace.sqlite --layers 64 -o split.svg
      nsysacct plot split before.json after.json -o both.png
      nsysacct plot timeline trace.sqlite --rounds 3-5 -o rounds.pdf
      nsysacct plot waterfall trace.sqlite --n-ok 27,2,6,7 -o fall.png
      nsysacct plot trend history.db --metric verify.ns_per_round -o trend.svg
    """
    from nsysacct import plots

    if Path(output).suffix.lower().lstrip(".") not in plots.FORMATS:
        raise UsageError(output, "no picture format by its ending", "use .png, .svg or .pdf")
    refuse_existing(Path(output), force)
    if len(traces) > 1 and kind not in ("split", "curve"):
        raise UsageError(kind, f"draws one TRACE, not {len(traces)}", "draw each by itself")
    ax = plots.new_axes(*_size(size, kind, len(traces)))
    with _large_enough():
        if kind == "trend":
            _trend(traces[0], metric, series, ax)
        elif kind == "timeline":
            _timeline(traces[0], options, rounds_span(chosen), ax)
        else:
            _account_figure(kind, [account_of(t, options) for t in traces], plain_ms, ax)
        with atomic_file(output, force=force) as temporary:
            plots.save(ax, temporary, dpi=dpi)


@contextmanager
def _large_enough() -> Iterator[None]:
    """Refuse a size at which the texts around a figure leave nothing of it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "constrained_layout not applied", UserWarning)
        try:
            yield
        except UserWarning as small:
            raise UsageError("--size", "the texts leave no room", "give more inches") from small


def _account_figure(kind: str, accounts: list[Any], plain_ms: float | None, ax: Axes) -> None:
    from nsysacct import plots
    from nsysacct.curve import curve, samples_of
    from nsysacct.economics import costs_of

    if kind == "split":
        plots.split(accounts, ax=ax)
    elif kind == "rounds":
        plots.rounds(accounts[0], ax=ax)
    elif kind == "acceptance":
        plots.acceptance(accounts[0], ax=ax)
    elif kind == "waterfall":
        plots.waterfall(costs_of(accounts[0], plain_ms=plain_ms), ax=ax)
    else:
        plots.curve(curve([s for a in accounts for s in samples_of(a)]), ax=ax)


def _timeline(path: str, options: Options, rounds: tuple[int, int], ax: Axes) -> None:
    """Read the trace once for the account and for its events."""
    from nsysacct import plots
    from nsysacct.account import account_and_events
    from nsysacct.nsysrep import resolve
    from nsysacct.trace import read_trace

    if is_account_json(Path(path)):
        raise UsageError(path, "an account holds no single events", "give the export itself")
    trace = read_trace(resolve(path))
    plots.timeline(*account_and_events(trace, options), rounds, ax=ax)


def _trend(path: str, metric: str, series: str, ax: Axes) -> None:
    from nsysacct import plots
    from nsysacct.history import History

    with History(path, readonly=True) as history:
        plots.trend(history.trend(metric, series), ax=ax)


def _size(text: str | None, kind: str, count: int) -> tuple[float, float]:
    """Inches, width and height."""
    if text is None:
        from nsysacct.plots import split_height

        return 6.4, split_height(count) if kind == "split" else HEIGHTS.get(kind, 3.6)
    try:
        width, height = (float(part) for part in text.lower().split("x"))
    except ValueError:
        raise UsageError("--size", f"cannot read {text!r}", "write 6.4x3.6, in inches") from None
    if not (1 <= width <= 40 and 1 <= height <= 40):
        raise UsageError("--size", f"{text} is not between 1 and 40 inches", "write 6.4x3.6")
    return width, height
