"""The page: whole without a network, safe with any text, small, and right in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

import nsysacct as na
from nsysacct.model import Account, BlindSpot, Finding, KernelRow, RoundRow
from nsysacct.whatif import Levers, Row, what_if

pytest.importorskip("jinja2")
from nsysacct.report import report_html
from nsysacct.report._data import points_of, script_json
from nsysacct.report._tables import page_tables

TraceFile = Callable[[str], Path]
PLAIN_MS = 0.3
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="module")
def small(trace_file: TraceFile) -> Account:
    return na.split(trace_file("small_graph"), layers=8, closing=2, n_ok=[5, 1, 2, 2])


class Page(HTMLParser):
    """Tags, ids, texts of tables and everything that could fetch something."""

    VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.labels: list[str] = []
        self.links: list[str] = []
        self.rows = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), "no inline handlers"
            if name == "id":
                self.ids.append(str(value))
            elif name in ("src", "href", "action"):
                self.links.append(str(value))
            elif name == "for" and tag == "label":
                self.labels.append(str(value))
        self.rows += tag == "tr"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_asks_for_nothing(small: Account) -> None:
    text = report_html(small, plain_ms=PLAIN_MS)
    page = Page(text)
    assert page.open == [] and len(page.ids) == len(set(page.ids))
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert {link[1:] for link in page.links if link[0] == "#"} <= set(page.ids)
    assert set(page.labels) <= set(page.ids)
    assert "default-src 'none'" in text and 'lang="en"' in text
    assert text == report_html(small, plain_ms=PLAIN_MS)


def test_it_says_what_the_account_says(small: Account) -> None:
    text = report_html(small, plain_ms=PLAIN_MS)
    assert "10 rounds, proven by counting" in text
    for name in ("draft", "verify", "replay"):
        assert f"{small.bucket(name).total_ns / 1e6:.3f}" in text
    assert f"{small.window.residual_ns / 1e6:.3f}" in text
    for spot in small.blind_spots:
        assert spot.remedy.replace("'", "&#39;") in text
    for signature in small.rounds.signatures:
        assert signature.pattern.replace("<", "&lt;").replace(">", "&gt;") in text


def priced(account: Account) -> Account:
    """Half of the residual is work without a time, which a step time prices."""
    w = account.window
    low, high = w.residual_ns // 2 - 10**6, w.residual_ns // 2
    buckets = [
        msgspec.structs.replace(b, by_basis=b.by_basis | {"arithmetic": high})
        if b.bucket == "replay" else b
        for b in account.buckets
    ]  # fmt: skip
    window = msgspec.structs.replace(
        w, computed_ns=high, residual_low_ns=low, residual_high_ns=high
    )
    return msgspec.structs.replace(account, buckets=buckets, window=window)


def test_priced_work_is_not_in_the_residual_as_well(small: Account) -> None:
    account = priced(small)
    tables = page_tables(account)
    (residual,) = (row for row in tables.split.rows if row[0] == "residual")
    w = account.window
    assert residual[1] == f"{w.residual_low_ns / 1e6:.3f}..{w.residual_high_ns / 1e6:.3f}"  # type: ignore[operator]
    assert "priced" in residual[-1]
    assert sum(float(part.ms) for part in tables.bar) == pytest.approx(w.wall_ns / 1e6, rel=0.02)
    assert ("computed", "replay") in [(p.provenance, p.bucket) for p in tables.bar]
    assert f"({w.computed_ns / 1e6:.3f} ms in all)" in report_html(account)
    assert residual[1] in account._repr_html_()  # type: ignore[attr-defined]


def test_columns_without_anything_are_left_out(small: Account) -> None:
    bare = msgspec.structs.replace(
        small, per_round=[msgspec.structs.replace(r, n_ok=None, flags=[]) for r in small.per_round]
    )
    for account, known in ((small, True), (bare, False)):
        (rounds,) = (t for t in page_tables(account).more if t.name == "rounds")
        assert ("n_ok" in rounds.columns) is known
        assert all(len(row) == len(rounds.columns) for row in rounds.rows)
        assert rounds.columns[max(rounds.numeric)] == "launches"


def test_the_bar_says_its_amounts_and_columns_have_names(small: Account) -> None:
    text = report_html(small)
    ms = f"{small.bucket('verify').total_ns / 1e6:.3f}"
    assert f">{ms}</b></span>" in text
    assert "></th>" not in text
    labels = re.findall(r'aria-label="([^"]*), table"', text)
    assert len(labels) == len(set(labels)) > 5


def test_many_findings_fold(small: Account) -> None:
    many = [Finding(kind="k", severity="info", detail=f"detail {i}") for i in range(30)]
    text = report_html(msgspec.structs.replace(small, findings=many))
    assert Page(text).open == []
    shown, folded = text.split("18 more findings")
    assert "detail 11<" in shown and "detail 12<" not in shown and "detail 29<" in folded


def test_any_text_of_a_trace_is_only_text(small: Account) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>&\"'"
    spot = BlindSpot(kind=evil, severity="info", hidden_ns=None, basis=None, detail=evil,
                     remedy=evil)  # fmt: skip
    kernel = KernelRow(bucket="other", family=evil, signature=evil, instances=1, gpu_ns=1)
    trace = msgspec.structs.replace(small.trace, name=evil, gpu=evil)
    rows = [msgspec.structs.replace(r, flags=[evil]) for r in small.per_round]
    marked = msgspec.structs.replace(
        small, trace=trace, blind_spots=[spot], kernels=[kernel], per_round=rows,
        labels={evil: evil}, options={"note": evil}, selection=evil,
    )  # fmt: skip
    text = report_html(marked)
    assert text.count("<script") == 2 and "<img" not in text
    assert Page(text).open == []
    assert json.loads(script_json({"a": evil})) == {"a": evil}


def rows_of(count: int) -> list[RoundRow]:
    return [
        RoundRow(
            index=i, start_ns=i * 10**7, end_ns=i * 10**7 + 8_345_678, wall_ns=8_345_678,
            draft_ns=126_543, verify_ns=3_725_000 + i % 977, replay_ns=2_114_321,
            residual_ns=2_379_814 - i % 977, launches=900, n_ok=i % 4, flags=[],
        )
        for i in range(count)
    ]  # fmt: skip


def test_a_long_run_stays_below_two_megabytes(small: Account) -> None:
    name = "void cutlass::Kernel<" + "cutlass::gemm::Shape<128, 128>, " * 90 + ">(Params)"
    kernels = [
        KernelRow(bucket="other", family="gemm", signature=f"{i}{name}", instances=9, gpu_ns=99)
        for i in range(2500)
    ]
    long = msgspec.structs.replace(small, per_round=rows_of(120_000), kernels=kernels)
    text = report_html(long)
    assert len(text.encode()) < 2_000_000
    assert "1000 more rows are left out" in text and "118500 more rows" in text
    assert "mean of 40 rounds" in text


def test_joined_rounds_keep_the_sum() -> None:
    rows = rows_of(1000)
    points = points_of(rows, 10)
    assert sum(points["verify"]) * 10 == pytest.approx(sum(r.verify_ns for r in rows), rel=1e-6)
    assert points["index"][:3] == [0, 10, 20] and len(points["index"]) == 100


def test_without_rounds_it_says_why(trace_file: TraceFile) -> None:
    account = na.split(trace_file("llama_A_servernospec_graph"))
    text = report_html(account)
    assert Page(text).open == []
    assert "no speculation" in text or "No split" in text
    assert "Open: " in text and 'id="levers"' not in text


Run = Callable[..., subprocess.CompletedProcess[str]]


def test_the_command_writes_the_page(run_cli: Run, trace_file: TraceFile, tmp_path: Path) -> None:
    words = ["report", trace_file("small_graph"), "--layers", "8", "-o", "page.html"]
    done = run_cli(*words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "page.html").read_text("utf-8").startswith("<!doctype html>")
    assert run_cli(*words).returncode == 2


# --- in a browser --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("no Chromium is installed")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def opened(browser: Any, small: Account, tmp_path: Path) -> Iterator[Any]:
    """The page in a browser; any console message, error or request fails the test."""
    path = tmp_path / "page.html"
    path.write_text(report_html(small, plain_ms=PLAIN_MS), "utf-8")
    # a page that still glides to where the test went has its parts elsewhere
    context = browser.new_context(viewport={"width": 1200, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None if request.url.startswith(("file:", "data:")) else wrong.append(request.url)
        ),
    )
    page.goto(path.as_uri())
    yield page
    context.close()
    assert wrong == []


def span(low: float | None, high: float | None, unit: str = "") -> str:
    from nsysacct.cli._econ import span as printed

    return printed(low, high, unit=unit)


def move(page: Any, **levers: float) -> None:
    page.click("button[type=reset]")
    page.wait_for_timeout(30)
    for name, value in levers.items():
        page.evaluate(
            "([id, value]) => { const s = document.getElementById(id); s.value = value;"
            " s.dispatchEvent(new Event('input', {bubbles: true})); }",
            [f"lever-{name}", value],
        )


def expected(account: Account, **levers: Any) -> Row:
    values = {k: Fraction(str(v)) if k == "acceptance" else v for k, v in levers.items()}
    return what_if(na.costs_of(account, plain_ms=PLAIN_MS), Levers(**values)).rows[-1]


CASES: list[dict[str, Any]] = [
    {},
    {"acceptance": 2.25},
    {"acceptance": 0},
    {"acceptance": 3},
    {"verify_ms": 0.3},
    {"replay_ms": 0.0},
    {"draft_ms": 0.2, "replay_ms": 0.1},
    {"k": 1},
    {"k": 6},
    {"k": 5, "verify_slope_ms": 0.05},
    {"acceptance": 1.5, "k": 2},
    {"acceptance": 1.9, "verify_ms": 0.4, "draft_ms": 0.1, "replay_ms": 0.05},
]


@pytest.mark.slow
@pytest.mark.parametrize("levers", CASES, ids=str)
def test_sliders_compute_what_whatif_prints(
    opened: Any, small: Account, levers: dict[str, Any]
) -> None:
    move(opened, **levers)
    row = expected(small, **levers)
    assert opened.inner_text("#speedup") == span(row.low, row.high, "x")
    assert opened.inner_text("#per-token") == span(row.low_ms_per_token, row.high_ms_per_token)
    assert opened.inner_text("#any-histogram") == span(row.any_low, row.any_high, "x")


@pytest.mark.slow
def test_the_residual_box_and_the_plain_step_count(opened: Any, small: Account) -> None:
    opened.check("#lever-no_residual")
    row = expected(small, no_residual=True)
    assert opened.inner_text("#speedup") == span(row.low, row.high, "x")
    assert "--no-residual" in opened.inner_text("#command")
    opened.uncheck("#lever-no_residual")
    opened.fill("#lever-plain", "3")
    costs = na.costs_of(small, plain_ms=3.0)
    assert opened.inner_text("#speedup") == span(costs.speedup, costs.speedup, "x")
    assert opened.inner_text("#pays") == "pays"


@pytest.mark.slow
def test_the_command_shown_prints_the_same(
    opened: Any, run_cli: Run, small: Account, tmp_path: Path
) -> None:
    move(opened, acceptance=2.25, k=2)
    words = opened.inner_text("#command").split()[1:]
    assert words[:2] == ["whatif", "small_graph.json"]  # the trace alone holds no acceptance
    (tmp_path / words[1]).write_text(na.dump_account(small), "utf-8")
    done = run_cli(*words, "--format", "json")
    row = json.loads(done.stdout)["rows"][-1]
    assert opened.inner_text("#speedup") == span(row["low"], row["high"], "x")


@pytest.mark.slow
def test_sliders_answer_to_the_keyboard(opened: Any) -> None:
    before = opened.inner_text("#speedup")
    opened.focus("#lever-verify_ms")
    opened.keyboard.press("Home")
    assert opened.inner_text("#speedup") != before
    assert "0.000" in opened.get_attribute("#lever-verify_ms", "aria-valuetext")


@pytest.mark.slow
def test_tables_sort_and_filter(opened: Any, small: Account) -> None:
    table = opened.locator("#table-kernels")
    times = [float(t) for t in table.locator("tbody tr td:nth-child(5)").all_inner_texts()]
    assert times == sorted(times, reverse=True)
    head = table.locator("th", has_text="GPU ms")
    head.locator("button").focus()
    opened.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    opened.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    times = [float(t) for t in table.locator("tbody tr td:nth-child(5)").all_inner_texts()]
    assert times == sorted(times)
    opened.get_by_label("Filter Kernels").fill("gdn verify")
    left = table.locator("tbody tr:visible")
    wanted = [k for k in small.kernels if k.family == "gdn" and k.bucket == "verify"]
    assert left.count() == len(wanted) > 0
    assert opened.get_by_text(re.compile(rf"^{len(wanted)} of \d+ rows$")).count() == 1


@pytest.mark.slow
def test_the_chart_zooms_and_tells_each_round(opened: Any, small: Account) -> None:
    chart = opened.locator("#chart svg")
    bars = chart.locator("rect.verify")
    assert bars.count() == len(small.per_round)
    chart.focus()
    opened.keyboard.press("ArrowRight")
    first = small.per_round[0]
    assert f"round 0: wall {first.wall_ns / 1e6:.3f} ms" in opened.inner_text("#chart-said")
    opened.keyboard.press("End")
    assert "round 9:" in opened.inner_text("#chart-said")
    opened.click("[data-zoom=in]")
    assert bars.count() == 5
    opened.click("[data-zoom=all]")
    assert bars.count() == 10
    box = chart.bounding_box()
    opened.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 150)
    opened.mouse.down()
    opened.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 150)
    opened.mouse.up()
    assert bars.count() < 10


@pytest.mark.slow
def test_a_far_outlier_is_cut_until_one_zooms(browser: Any, small: Account, tmp_path: Path) -> None:
    far = rows_of(40)
    far[3] = msgspec.structs.replace(far[3], residual_ns=400_000_000)
    path = tmp_path / "page.html"
    path.write_text(report_html(msgspec.structs.replace(small, per_round=far)), "utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    chart = page.locator("#chart svg")
    assert chart.locator("text.cut").all_text_contents() == ["406.0 ↑"]
    high = max(float(t) for t in chart.locator("text.end").all_text_contents() if t[0].isdigit())
    assert high < 20
    page.close()


@pytest.mark.slow
def test_the_keyboard_reaches_everything_in_order_and_shows_where_it_is(opened: Any) -> None:
    controls = "a[href], button, input, summary, [tabindex='0']"
    wanted = opened.evaluate(
        "(what) => [...document.querySelectorAll(what)].filter((e) => e.checkVisibility())"
        ".map((e, i) => { e.dataset.place = i; return i; })",
        controls,
    )
    seen = []
    for _ in wanted:
        opened.keyboard.press("Tab")
        place, outline = opened.evaluate(
            "(() => { const e = document.activeElement;"
            " return [Number(e.dataset.place), getComputedStyle(e).outlineStyle]; })()"
        )
        seen.append(place)
        assert outline == "solid"
    assert seen == wanted


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 800, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out_at_any_size(
    browser: Any, small: Account, tmp_path: Path, width: int, scheme: str
) -> None:
    path = tmp_path / "page.html"
    path.write_text(report_html(small, plain_ms=PLAIN_MS), "utf-8")
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == width
    ink, paper = page.evaluate(
        "(() => { const s = getComputedStyle(document.body); return [s.color, s.backgroundColor] })()"
    )
    dark = [sum(map(int, re.findall(r"\d+", c)[:3])) < 384 for c in (ink, paper)]
    assert dark == [scheme == "light", scheme == "dark"]
    page.emulate_media(media="print")
    assert not page.is_visible("nav") and page.is_visible("#table-split")
    context.close()
