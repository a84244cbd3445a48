"""GPU work of chosen rounds: streams as rows, buckets as colours, graphs outlined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nsysacct.account import Events
from nsysacct.errors import UsageError
from nsysacct.model import BUCKETS, ProcessAccount, RoundRow
from nsysacct.plots._style import (
    COLOURS,
    EDGE,
    NS_PER_MS,
    axes_for,
    inches,
    legend,
    settle,
    text_inches,
    tidy,
)
from nsysacct.timeline import Kind

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

MOST_RECTANGLES = 20_000
"""More work than this in one figure is refused: it could not be told apart anyway."""

ROW = 0.72

NARROW_POINTS = 6.0
"""Width of a graph below which its outline is a thin one."""


def timeline(
    account: ProcessAccount,
    events: Events | Iterable[Events],
    rounds: Sequence[int] | int = (0, 2),
    *,
    ax: Axes | None = None,
) -> Axes:
    """Every GPU event of some rounds; white gaps are time in which the stream does nothing.

    Parameters
    ----------
    account : ProcessAccount
        With a per-round series.
    events : Events or list of Events
        Of `nsysacct.account.events` with the same options; of a list the account's own is taken.
    rounds : int or (first, last)
        Rounds to show, both ends included, from 0.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        x = ms from the start of the first round. Graphs (timed as a whole, or a launch's kernels)
        have a black outline. Copies and memory sets are thinner.

    Raises
    ------
    UsageError
        No such rounds, no events of this account, or too many events to draw.
    """
    chosen = _rows(account, rounds)
    mine = _events_of(account, events)
    line = mine.line
    low, high = chosen[0].start_ns, chosen[-1].end_ns
    inside = np.flatnonzero((line.end > low) & (line.start < high) & (line.kind != Kind.BLIND))
    if len(inside) > MOST_RECTANGLES:
        raise UsageError("rounds", f"{len(inside)} events are too many to draw", "show fewer")
    streams = sorted({int(s) for s in line.stream[inside]})
    ax = axes_for(ax, height=1.6 + 0.55 * len(streams))
    ax.set_xlim(0, (high - low) / NS_PER_MS)
    for row, stream in enumerate(streams):
        on_row = inside[line.stream[inside] == stream]
        _work(ax, mine, on_row, row, low)
        _outlines(ax, mine, on_row, row, low)
    _frame(ax, chosen, streams, low)
    present = {BUCKETS[b] for b in np.unique(mine.bucket[inside])}
    legend(ax, [b for b in BUCKETS if b in present], more=_handles(mine, inside))
    settle(ax)
    _captions(ax, chosen, low, high)
    return ax


def _handles(events: Events, inside: npt.NDArray[np.intp]) -> list[Artist]:
    """What outlines and thin bars mean, where there are some."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    line = events.line
    found: list[Artist] = []
    if (line.graph[inside] >= 0).any():
        found.append(Patch(facecolor="none", edgecolor="#000000", linewidth=1.0, label="graph"))
    if line.is_memory[inside].any():
        found.append(Line2D([], [], color="#808080", linewidth=2.5, label="copy"))
    return found


def _rows(account: ProcessAccount, rounds: Sequence[int] | int) -> list[RoundRow]:
    first, last = (rounds, rounds) if isinstance(rounds, int) else (rounds[0], rounds[-1])
    if not account.per_round:
        raise UsageError("rounds", "the account has none", "see the reasons that split prints")
    highest = account.per_round[-1].index
    chosen = [r for r in account.per_round if first <= r.index <= last]
    if not chosen or first < 0:
        raise UsageError("rounds", f"no rounds {first} to {last}", f"there are 0 to {highest}")
    return chosen


def _events_of(account: ProcessAccount, events: Events | Iterable[Events]) -> Events:
    candidates = [events] if isinstance(events, Events) else list(events)
    for one in candidates:
        if one.pid == account.pid and one.gpu == account.gpu:
            return one
    raise UsageError("events", "are of another process or GPU", "take them from the same trace")


def _work(ax: Axes, events: Events, index: npt.NDArray[np.intp], row: int, low: int) -> None:
    """Filled rectangles, one collection a bucket and height."""
    line = events.line
    for bucket in np.unique(events.bucket[index]):
        name = BUCKETS[bucket]
        for memory in (False, True):
            mine = index[(events.bucket[index] == bucket) & (line.is_memory[index] == memory)]
            if not len(mine):
                continue
            height = ROW * (0.4 if memory else 1.0)
            ax.broken_barh(
                _spans(line.start[mine], line.end_of(mine), low), (row - height / 2, height),
                facecolor=COLOURS[name], linewidth=0.3 if name != "unattributed" else 0.6,
                edgecolor=EDGE if name == "unattributed" else COLOURS[name],
            )  # fmt: skip


def _outlines(ax: Axes, events: Events, index: npt.NDArray[np.intp], row: int, low: int) -> None:
    """Black outline around each graph launch on this stream."""
    line = events.line
    inside = index[(line.graph[index] >= 0) | (line.kind[index] == Kind.GRAPH)]
    if not len(inside):
        return
    _, launch = np.unique(line.unit[inside], return_inverse=True)
    start = np.full(launch.max() + 1, np.iinfo(np.int64).max)
    end = np.zeros(launch.max() + 1, np.int64)
    np.minimum.at(start, launch, line.start[inside])
    np.maximum.at(end, launch, line.end_of(inside))
    points = (end - start) / (np.diff(ax.get_xlim())[0] * NS_PER_MS) * inches(ax)[0] * 72
    # outlines of narrow graphs would hide what they surround
    for these, weight in ((points >= NARROW_POINTS, 1.0), (points < NARROW_POINTS, 0.4)):
        ax.broken_barh(
            _spans(start[these], end[these], low), (row - ROW / 2 - 0.04, ROW + 0.08),
            facecolor="none", edgecolor="#000000", linewidth=weight,
        )  # fmt: skip


def _spans(
    start: npt.NDArray[np.int64], end: npt.NDArray[np.int64], low: int
) -> list[tuple[float, float]]:
    left = (start - low) / NS_PER_MS
    return list(zip(left.tolist(), ((end - start) / NS_PER_MS).tolist(), strict=True))


def _frame(ax: Axes, chosen: list[RoundRow], streams: list[int], low: int) -> None:
    """Limits, round borders, stream names."""
    ax.set_ylim(len(streams) - 0.45, -1.0)
    ax.set_yticks(range(len(streams)), [f"stream {s}" for s in streams])
    ax.set_xlabel(f"ms from the start of round {chosen[0].index}")
    tidy(ax, grid="x")
    ax.tick_params(axis="y", length=0)
    for r in chosen:
        ax.axvline((r.start_ns - low) / NS_PER_MS, color=EDGE, linewidth=0.8, linestyle="--")


def _captions(ax: Axes, chosen: list[RoundRow], low: int, high: int) -> None:
    """Number and n_ok of each round at its left border, as much of it as fits."""
    per_inch = (high - low) / NS_PER_MS / inches(ax)[0]
    for r in chosen:
        texts = [f"round {r.index}", f"{r.index}"]
        if r.n_ok is not None:
            texts.insert(0, f"round {r.index}, n_ok {r.n_ok}")
        room = r.wall_ns / NS_PER_MS / per_inch - 0.08
        text = next((t for t in texts if text_inches(t, 8) <= room), "")
        left = (r.start_ns - low) / NS_PER_MS + 0.04 * per_inch
        ax.text(left, -0.62, text, fontsize=8, va="center")
