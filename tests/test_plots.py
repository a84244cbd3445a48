"""Figures: the right amounts, labels that do not collide, the same bytes every time."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import nsysacct as na
from nsysacct.account import events
from nsysacct.curve import Curve, Point, curve, samples_of
from nsysacct.history import Trend
from nsysacct.model import Acceptance, Account, RoundRow

plots = pytest.importorskip("nsysacct.plots", exc_type=ImportError)
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.colors import to_rgb  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402
from matplotlib.text import Text  # noqa: E402

from nsysacct.plots._style import COLOURS, plain_text, short_ms  # noqa: E402

TraceFile = Callable[[str], Path]
OPTIONS = {"layers": 8, "closing": 2, "n_ok": [5, 1, 2, 2]}
SIZES = [(6.4, 3.6), (3.3, 2.6)]


@pytest.fixture(scope="module")
def small(trace_file: TraceFile) -> Account:
    return na.split(trace_file("small_graph"), **OPTIONS)  # type: ignore[arg-type]


def texts(ax: Axes) -> list[Text]:
    legend = ax.get_legend()
    ticks = []
    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(axis.get_view_interval())
        ticks += [t.label1 for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
    found = [*ax.texts, *ticks, ax.xaxis.label]
    found += list(legend.get_texts()) if legend else []
    return [t for t in found if t.get_visible() and t.get_text()]


def assert_no_collisions(ax: Axes) -> None:
    figure = ax.get_figure(root=True)
    assert figure is not None
    FigureCanvasAgg(figure).draw()
    whole = figure.bbox
    boxes = []
    for text in texts(ax):
        box = Text.get_window_extent(text)  # of an annotation: without its line
        label = text.get_text()
        assert box.x0 >= whole.x0 - 1 and box.x1 <= whole.x1 + 1, f"{label!r} is cut"
        assert box.y0 >= whole.y0 - 1 and box.y1 <= whole.y1 + 1, f"{label!r} is cut"
        if text.get_rotation() in (
            0.0,
            90.0,
        ):  # boxes of slanted texts overlap where the texts do not
            boxes.append((label, box.shrunk(0.9, 0.9)))
    for (one, a), (two, b) in itertools.combinations(boxes, 2):
        assert not a.overlaps(b), f"{one!r} lies on {two!r}"


def draw(kind: str, account: Account, trace: Path, ax: Axes | None) -> Axes:
    if kind == "timeline":
        placed = events(na.read_trace(trace), na.make_options(**OPTIONS))  # type: ignore[arg-type]
        return plots.timeline(account, placed, (0, 2), ax=ax)
    if kind == "waterfall":
        return plots.waterfall(na.costs_of(account, plain_ms=0.3), ax=ax)
    if kind == "curve":
        return plots.curve(curve(samples_of(account)), ax=ax)
    if kind == "split":
        return plots.split([account, account], labels=["before", "after"], ax=ax)
    return getattr(plots, kind)(account, ax=ax)


KINDS = ("split", "rounds", "timeline", "waterfall", "curve", "acceptance")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_figures_draw_into_given_axes_and_labels_stay_apart(
    kind: str, size: tuple[float, float], small: Account, trace_file: TraceFile
) -> None:
    ax = plots.new_axes(*size)
    assert draw(kind, small, trace_file("small_graph"), ax) is ax
    assert_no_collisions(ax)
    assert ax.get_xlabel() or kind == "waterfall"


def test_without_axes_a_pyplot_figure_is_made(small: Account) -> None:
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("agg")
    before = pyplot.get_fignums()
    ax = plots.acceptance(small)
    assert len(pyplot.get_fignums()) == len(before) + 1
    pyplot.close(ax.get_figure())


LONG_NAME = "a_model_with_a_long_name_and_its_quantisation_graph_granularity.sqlite"


def written(ax: Axes) -> set[str]:
    """Last words of the texts in the axes: amounts."""
    return {t.get_text().split()[-1] for t in ax.texts}


@pytest.mark.parametrize("size", [(6.4, 1.9), (3.3, 2.4), (11, 6)])
def test_every_amount_of_the_split_is_written(size: tuple[float, float], small: Account) -> None:
    ax = plots.split(small, labels=[LONG_NAME], ax=plots.new_axes(*size))
    assert_no_collisions(ax)
    amounts = [small.bucket(b).total_ns for b in ("draft", "verify", "replay")]
    amounts.append(small.window.residual_ns)
    assert {short_ms(ns / 1e7) for ns in amounts} <= written(ax)


def test_slivers_of_a_bar_are_named_side_by_side(small: Account) -> None:
    """A bar of all buckets, most of them too narrow for their amounts."""
    thin = [
        msgspec.structs.replace(b, gpu_ns=ns, by_basis={"exclusive": ns} if ns else {})
        for b, ns in zip(small.buckets, (3000, 2000, 10**6, 0, 0, 0, 70, 0), strict=True)
    ]
    window = msgspec.structs.replace(small.window, wall_ns=10**9, residual_ns=10**9)
    rounds = msgspec.structs.replace(small.rounds, value=None)
    bare = msgspec.structs.replace(small, buckets=thin, window=window, rounds=rounds)
    ax = plots.split(bare, ax=plots.new_axes(6.4, 1.9))
    assert_no_collisions(ax)
    found = {t.get_text() for t in ax.texts}
    assert {"draft 0.003", "verify 0.002", "replay 1.00", "other 0.000"} <= found
    ax = plots.split([bare] * 6, ax=plots.new_axes(3.3, 2.4))  # no room: names alone
    assert_no_collisions(ax)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["small_graph.sqlite"] * 6


def test_the_wall_is_in_the_figure_also_beyond_the_bar(small: Account) -> None:
    window = msgspec.structs.replace(small.window, wall_ns=3 * small.window.wall_ns)
    ax = plots.split(msgspec.structs.replace(small, window=window), ax=plots.new_axes())
    (mark,) = ax.lines
    assert mark.get_xdata()[0] == pytest.approx(window.wall_ns / 1e7)  # type: ignore[index]
    assert ax.get_xlim()[1] > window.wall_ns / 1e7


def lengths(ax: Axes, colour: str) -> float:
    bars = [p for p in ax.patches if isinstance(p, Rectangle)]
    return sum(b.get_width() for b in bars if to_rgb(b.get_facecolor()) == to_rgb(colour))


def test_split_bars_are_the_accounts_amounts(small: Account) -> None:
    ax = plots.split(small, ax=plots.new_axes())
    for name in ("draft", "verify", "replay"):
        expected = small.bucket(name).total_ns / 1e6 / 10
        assert lengths(ax, COLOURS[name]) == pytest.approx(expected)
    assert lengths(ax, COLOURS["residual"]) == pytest.approx(small.window.residual_ns / 1e7)
    (mark,) = ax.lines
    assert mark.get_xdata()[0] == pytest.approx(small.window.wall_ns / 1e7)  # type: ignore[index]


def test_hatches_tell_how_a_time_is_known(small: Account) -> None:
    buckets = [
        msgspec.structs.replace(b, by_basis={"pattern": b.gpu_ns // 2,
                                             "exclusive": b.gpu_ns - b.gpu_ns // 2,
                                             "arithmetic": 5_000_000})
        if b.bucket == "verify" else b
        for b in small.buckets
    ]  # fmt: skip
    ax = plots.split(msgspec.structs.replace(small, buckets=buckets), ax=plots.new_axes())
    verify = [p for p in ax.patches if to_rgb(p.get_facecolor()) == to_rgb(COLOURS["verify"])]
    assert [p.get_hatch() for p in verify] == [None, "////", "...."]
    legend = ax.get_legend()
    assert legend is not None
    said = {t.get_text() for t in legend.get_texts()}
    assert {"solid: measured", "striped: estimated", "dotted: computed", "wall"} <= said


def test_grey_keeps_neighbours_apart() -> None:
    grey = {n: sum(w * c for w, c in zip((0.299, 0.587, 0.114), to_rgb(COLOURS[n]), strict=True))
            for n in ("verify", "draft", "replay", "residual")}  # fmt: skip
    for one, two in itertools.combinations(grey, 2):
        assert abs(grey[one] - grey[two]) > 0.15, (one, two)


def test_rounds_stack_to_each_rounds_cost(small: Account) -> None:
    ax = plots.rounds(small, ax=plots.new_axes())
    top = ax.patches[-1].get_data().values  # type: ignore[attr-defined]
    parts = ("verify", "draft", "replay", "residual")
    expected = [sum(getattr(r, f"{p}_ns") for p in parts) / 1e6 for r in small.per_round]
    assert top.tolist() == pytest.approx(expected)
    (strip,) = ax.child_axes
    known = [float(r.n_ok) for r in small.per_round if r.n_ok is not None]
    assert list(strip.lines[0].get_ydata()) == known


def test_a_far_outlier_is_cut_and_its_amount_written(small: Account) -> None:
    first, *others = small.per_round
    far = msgspec.structs.replace(first, residual_ns=first.residual_ns + 123_000_000)
    more = [msgspec.structs.replace(r, index=r.index + 10 * i) for i in range(3) for r in others]
    ax = plots.rounds(msgspec.structs.replace(small, per_round=[far, *more]), ax=plots.new_axes())
    assert ax.get_ylim()[1] < 5
    parts = ("verify", "draft", "replay", "residual")
    whole = sum(getattr(far, f"{part}_ns") for part in parts) / 1e6
    assert [t.get_text() for t in ax.texts] == [f"{whole:.0f} \N{UPWARDS ARROW}"]
    assert_no_collisions(ax)


def test_rounds_hatch_what_is_mostly_estimated_and_explain_marks(small: Account) -> None:
    buckets = [
        msgspec.structs.replace(b, by_basis={"pattern": b.gpu_ns - 1, "exclusive": 1})
        if b.bucket == "verify" else b
        for b in small.buckets
    ]  # fmt: skip
    rows = [msgspec.structs.replace(r, flags=["outlier"] if r.index == 2 else [])
            for r in small.per_round]  # fmt: skip
    marked = msgspec.structs.replace(small, buckets=buckets, per_round=rows)
    ax = plots.rounds(marked, ax=plots.new_axes())
    hatches = [p.get_hatch() for p in ax.patches]
    assert hatches == ["////", None, None, None]
    legend = ax.get_legend()
    assert legend is not None
    said = [t.get_text() for t in legend.get_texts()]
    assert said[-3:] == ["solid: measured", "striped: estimated", "outlier"]


def many_rounds(account: Account, count: int) -> Account:
    rows = [
        RoundRow(index=i, start_ns=i * 1000, end_ns=i * 1000 + 1000, wall_ns=1000, draft_ns=100,
                 verify_ns=500 + i % 7, replay_ns=0, residual_ns=400 - i % 7, launches=3)
        for i in range(count)
    ]  # fmt: skip
    return msgspec.structs.replace(account, per_round=rows)


def test_many_rounds_become_means_of_neighbours(small: Account) -> None:
    ax = plots.rounds(many_rounds(small, 10_001), ax=plots.new_axes())
    values = ax.patches[0].get_data().values  # type: ignore[attr-defined]
    assert len(values) <= 400
    assert values.mean() == pytest.approx(503e-6, rel=1e-3)
    assert "means of 26" in ax.get_xlabel()


def test_waterfall_ends_at_the_measured_cost_of_a_token(small: Account) -> None:
    costs = na.costs_of(small, plain_ms=0.3)
    from nsysacct.plots._waterfall import steps_of

    steps = steps_of(costs)
    assert steps[0].end == 0.3
    assert steps[4].end == pytest.approx(costs.wall_ns / 1e7)  # all parts: one round
    assert steps[-1].end == pytest.approx(costs.wall_ns / costs.tokens / 1e6)
    assert costs.speedup == pytest.approx(0.3 / steps[-1].end)


def test_waterfall_signs_what_falls_and_leaves_out_what_is_not_there(small: Account) -> None:
    costs = msgspec.structs.replace(na.costs_of(small, plain_ms=0.6), replay_ns=0)
    ax = plots.waterfall(costs, ax=plots.new_axes(6.4, 4.0))
    ticks = [t.get_text() for t in ax.get_xticklabels()]
    assert "replay" not in ticks and "no replay" not in ticks
    fall = short_ms(0.6 - costs.verify_ns / 1e7)
    assert f"\N{MINUS SIGN}{fall}" in [t.get_text() for t in ax.texts]
    assert_no_collisions(ax)


def test_curve_and_trend_mark_their_steps() -> None:
    points = [
        Point(width=w, ms=m, count=3, sources=["a"], step=s)
        for w, m, s in ((1, 1.0, ""), (2, 1.1, ""), (4, 2.0, "jump"))
    ]
    ax = plots.curve(Curve(points=points, slope_ms_per_row=0.3), ax=plots.new_axes())
    assert ax.lines[0].get_ydata().tolist() == [1.0, 1.1, 2.0]  # type: ignore[union-attr]
    assert "jump" in [t.get_text() for t in ax.texts]
    one = Curve(points=points[2:], slope_ms_per_row=None)
    ax = plots.curve(one, ax=plots.new_axes(3.3, 2.4))
    assert [t for t in ax.get_xticks() if 3.5 <= t <= 4.5] == [4]
    empty = Trend(metric="verify.ns_per_round", unit="ns", points=(), left_out=0)
    with pytest.raises(na.NsysacctError, match="trend"):
        plots.trend(empty, ax=plots.new_axes())


def test_acceptance_without_a_histogram_draws_the_rates(small: Account) -> None:
    known = Acceptance(source="log", per_position=[0.8, 0.5])
    ax = plots.acceptance(msgspec.structs.replace(small, acceptance=known), ax=plots.new_axes())
    assert [p.get_height() for p in ax.patches] == [0.8, 0.5]


@pytest.mark.parametrize("kind", ["rounds", "timeline", "acceptance"])
def test_what_cannot_be_drawn_is_said(kind: str, small: Account, trace_file: TraceFile) -> None:
    bare = msgspec.structs.replace(small, per_round=[], acceptance=None)
    with pytest.raises(na.NsysacctError):
        draw(kind, bare, trace_file("small_graph"), plots.new_axes())


def test_names_cannot_be_mathematics() -> None:
    assert plain_text("a$x^2$\n") == r"a\$x^2\$?"
    assert len(plain_text("n" * 500)) <= 60


@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_same_account_same_bytes(form: str, small: Account, tmp_path: Path) -> None:
    for name in ("one", "two"):
        plots.save(plots.split(small, ax=plots.new_axes()), tmp_path / f"{name}.{form}")
    one, two = ((tmp_path / f"{n}.{form}").read_bytes() for n in ("one", "two"))
    assert one == two and len(one) > 1000


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("kind", ["split", "timeline"])
def test_the_command_writes_a_picture(
    kind: str, run_cli: Run, trace_file: TraceFile, tmp_path: Path
) -> None:
    words = ["plot", kind, trace_file("small_graph"), "--layers", "8", "-o", "x.png"]
    done = run_cli(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    again = run_cli(*words)
    assert again.returncode == 2 and "--force" in again.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["split", "T", "-o", "x.bmp"], ".png, .svg or .pdf"),
        (["rounds", "T", "T", "-o", "x.png"], "draws one TRACE"),
        (["split", "T", "-o", "x.png", "--size", "big"], "--size"),
        (["split", *["T"] * 9, "-o", "x.png", "--size", "2x1"], "give more inches"),
        (["timeline", "T", "-o", "x.png", "--rounds", "90-99"], "there are 0 to 9"),
        (["timeline", "T", "-o", "x.png", "--rounds", "a"], "--rounds"),
        (["waterfall", "T", "-o", "x.png"], "n-ok"),
    ],
)
def test_wrong_usage_of_plot(
    words: list[str], message: str, run_cli: Run, trace_file: TraceFile, tmp_path: Path
) -> None:
    path = str(trace_file("small_graph"))
    done = run_cli("plot", *(path if w == "T" else w for w in words))
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("*x.*"))
