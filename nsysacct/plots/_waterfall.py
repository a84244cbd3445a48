"""From a plain step to the speculative run, and what each lever would make of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nsysacct.economics import NS_PER_MS, Costs
from nsysacct.errors import UsageError
from nsysacct.plots._style import COLOURS, EDGE, axes_for, inches, legend, short_ms, tidy
from nsysacct.whatif import Levers, what_if

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

GAIN = "#ffffff"
RANGE = "xxxx"
"""Hatch of a range; stripes and dots mean something else in the other figures."""
WIDE_LABEL_IN = 0.38
"""Width of a bar, inches, below which its label stands upright."""


@dataclass(frozen=True, slots=True)
class Step:
    """One bar from `low` to `high` ms; `total` bars stand on the axis."""

    label: str
    low: float
    high: float
    colour: str
    total: bool = False
    end: float = 0.0


def waterfall(costs: Costs, *, ax: Axes | None = None) -> Axes:
    """Bars from a plain step over the parts of a round to the speculative run's ms a token.

    The plain step grows by what verifying more rows, drafting, replay and the rest add, which
    gives a round; the round's tokens share it, which gives the speculative figure. Right of the
    line, the levers: what a token would cost with that part gone, as a range.

    Parameters
    ----------
    costs : Costs
        Of `nsysacct.economics.costs_of`, with a plain step time.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        y = ms; the dotted line is plain decoding, so a speculative bar below it pays.

    Raises
    ------
    UsageError
        The plain step is not known.
    """
    if costs.plain_ns is None:
        raise UsageError("plain step", "is not known", "give --plain-ms")
    ax = axes_for(ax, height=4.0)
    steps = steps_of(costs)
    levers = levers_of(costs)
    top = max([s.high for s in steps] + [high for _, _, high in levers])
    # labels of narrow bars stand upright, so that neighbours do not collide
    upright = inches(ax)[0] / (len(steps) + len(levers) + 1) < WIDE_LABEL_IN
    legend(ax, (), more=_handles(costs))
    for place, step in enumerate(steps):
        _bar(ax, place, step, top, upright)
        if place + 1 < len(steps):
            ax.plot([place + 0.36, place + 0.64], [step.end] * 2, color=EDGE, linewidth=0.7)
    first = len(steps) + 0.5
    for place, (_, low, high) in enumerate(levers):
        _lever(ax, first + place, low, high, top, upright)
    ax.axhline(costs.plain_ns / NS_PER_MS, color=EDGE, linewidth=0.8, linestyle=":")
    ax.axvline(len(steps) - 0.25, color="#b0b0b0", linewidth=0.8)
    ax.text(
        len(steps) - 0.15, 0.99, "what if" if upright else "what if, ms a token", fontsize=8,
        va="top", ha="left", transform=ax.get_xaxis_transform(),
    )  # fmt: skip
    places = [*range(len(steps)), *(first + i for i in range(len(levers)))]
    ax.set_xticks(
        places, [s.label for s in steps] + [n for n, _, _ in levers],
        rotation=40, ha="right", rotation_mode="anchor",
    )  # fmt: skip
    ax.set_xlim(-0.6, places[-1] + 0.6)
    ax.set_ylim(0, top * (1.45 if upright else 1.2))
    ax.set_ylabel("ms")
    tidy(ax)
    return ax


def _handles(costs: Costs) -> list[Artist]:
    """What the dotted line and the stripes of the levers mean."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    plain = (costs.plain_ns or 0) / NS_PER_MS
    return [
        Line2D([], [], color=EDGE, linewidth=0.8, linestyle=":",
               label=f"a plain token, {short_ms(plain)} ms"),
        Patch(facecolor="#ffffff", edgecolor=EDGE, hatch=RANGE, linewidth=0.6,
              label="from lowest to highest"),
    ]  # fmt: skip


def steps_of(costs: Costs) -> list[Step]:
    """Bars of the build-up; each begins where the one before ends."""
    plain = (costs.plain_ns or 0) / NS_PER_MS
    verify, draft, replay, rest = (
        ns / NS_PER_MS / costs.rounds
        for ns in (costs.verify_ns, costs.draft_ns, costs.replay_ns, costs.rest_ns)
    )
    # tokens that the wall paid for, of one request: the same that the measured speed-up uses
    final = costs.wall_ns * costs.batch / costs.tokens / NS_PER_MS
    whole = costs.round_ns / NS_PER_MS
    parts = [
        (f"verify {costs.width} rows", verify - plain, COLOURS["verify"]),
        ("draft", draft, COLOURS["draft"]),
        ("replay", replay, COLOURS["replay"]),
        ("rest", rest, COLOURS["rest"]),
    ]
    parts = [part for part in parts if part[1]]
    steps = [Step("plain token", 0, plain, COLOURS["plain"], total=True, end=plain)]
    level = plain
    for label, size, colour in parts:
        after = level + size
        steps.append(Step(label, min(level, after), max(level, after), colour, end=after))
        level = after
    steps.append(Step("one round", 0, whole, "#c8c8c8", total=True, end=whole))
    shared = f"/ {costs.tokens / costs.batch / costs.rounds:.2f} tokens"
    steps.append(Step(shared, min(final, whole), max(final, whole), GAIN, end=final))
    steps.append(Step("spec. token", 0, final, COLOURS["verify"], total=True, end=final))
    return steps


def levers_of(costs: Costs) -> list[tuple[str, float, float]]:
    """(name, lowest, highest ms a token) with a part of the cost gone."""
    tried = {
        "no replay": Levers(no_replay=True) if costs.replay_ns else None,
        "free draft": Levers(draft_ms=0.0) if costs.draft_ns else None,
        "no rest": Levers(no_residual=True) if costs.rest_ns > 0 else None,
        "all accepted": Levers(n_ok=(0,) * costs.k + (costs.rounds,)),
    }
    found = []
    for name, levers in tried.items():
        if levers is not None:
            row = what_if(costs, levers).rows[-1]
            found.append((name, row.low_ms_per_token, row.high_ms_per_token))
    return found


def _bar(ax: Axes, place: int, step: Step, top: float, upright: bool) -> None:
    height = step.high - step.low
    label = short_ms(step.high if step.total else height)
    if not step.total and step.end == step.low:
        label = f"\N{MINUS SIGN}{label}"
    ax.bar(
        place, height, bottom=step.low, width=0.72, color=step.colour, edgecolor=EDGE,
        linewidth=0.6, linestyle="-" if step.colour != GAIN else "--",
    )  # fmt: skip
    ax.text(
        place, step.high + 0.015 * top, label,
        ha="center", va="bottom", fontsize=7 if upright else 8, rotation=90 if upright else 0,
        fontweight="bold" if step.total else "normal",
    )  # fmt: skip


def _lever(ax: Axes, place: float, low: float, high: float, top: float, upright: bool) -> None:
    ax.bar(place, low, width=0.72, color="#dfe8f2", edgecolor=EDGE, linewidth=0.6)
    ax.bar(
        place, high - low, bottom=low, width=0.72, color="#ffffff", edgecolor=EDGE,
        linewidth=0.6, hatch=RANGE,
    )  # fmt: skip
    ends = list(dict.fromkeys([short_ms(low), short_ms(high)]))
    ax.text(
        place, high + 0.015 * top, ("–" if upright else "\n– ").join(ends), ha="center",
        va="bottom", fontsize=7, rotation=90 if upright else 0,
    )  # fmt: skip
