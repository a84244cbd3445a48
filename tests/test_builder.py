from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from fixtures import article
from fixtures.builder import PRODUCT, TraceBuilder
from nsysacct.trace import ApiKind, Trace, read_trace

MS = 1e-6


def tables(path: Path) -> dict[str, list[str]]:
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(
            "SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p"
        ).fetchall()
    finally:
        connection.close()
    found: dict[str, list[str]] = {}
    for table, column in rows:
        found.setdefault(table, []).append(column)
    return found


@pytest.mark.parametrize(
    ("schema", "metadata", "graph_trace", "graph_id"),
    [
        ("none", None, False, False),
        ("2.9.1", "EXPORT_META_DATA", False, False),
        ("3.1.7", "EXPORT_META_DATA", False, False),
        ("3.7.2", "META_DATA_EXPORT", False, False),
        ("3.20.3", "META_DATA_EXPORT", True, False),
        ("3.25.0", "META_DATA_EXPORT", True, True),
    ],
)
def test_each_schema_version_has_its_tables_and_columns(
    tmp_path: Path, schema: str, metadata: str | None, graph_trace: bool, graph_id: bool
) -> None:
    builder = TraceBuilder(schema)
    builder.kernel("k_a(int)", 1_000, 2_000)
    builder.graph_launch(2, 3_000, 4_000)
    found = tables(builder.write(tmp_path / "t.sqlite"))
    assert [t for t in ("EXPORT_META_DATA", "META_DATA_EXPORT") if t in found] == (
        [metadata] if metadata else []
    )
    assert ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE" in found) is graph_trace
    kernel = found["CUPTI_ACTIVITY_KIND_KERNEL"]
    assert ("graphId" in kernel) is graph_id
    assert ("mangledName" in kernel) is (schema != "none")
    assert "NVTX_EVENTS" not in found  # tables without rows are left out, as nsys does


def test_rows_of_one_process_share_its_ids_and_start_again_in_the_next() -> None:
    builder = TraceBuilder()
    builder.process(10)
    first = [builder.kernel("k", 1_000, 2_000), builder.kernel("k", 3_000, 4_000)]
    builder.process(11)
    assert builder.kernel("k", 1_000, 2_000) == first[0] != first[1]


def test_a_kernel_of_a_graph_adds_no_call_of_its_own() -> None:
    builder = TraceBuilder(graph_trace="Node")
    builder.graph_launch(9, 10_000, nodes=[("a", 10_000, 11_000), ("b", 11_000, 12_000)])
    assert len(builder.rows("CUPTI_ACTIVITY_KIND_RUNTIME")) == 1
    nodes = [row["graphNodeId"] for row in builder.rows("CUPTI_ACTIVITY_KIND_KERNEL")]
    assert nodes == [9 << 32, (9 << 32) + 1]


def test_writing_twice_replaces_the_file(tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.kernel("k", 1_000, 2_000)
    path = builder.write(tmp_path / "t.sqlite")
    builder.write(path)
    assert len(read_trace(path).kernels) == 1


def test_known_schema_versions_name_their_product(tmp_path: Path) -> None:
    for schema, product in PRODUCT.items():
        builder = TraceBuilder(schema)
        builder.kernel("k", 1_000, 2_000)
        versions = read_trace(builder.write(tmp_path / f"{schema}.sqlite")).versions
        assert (versions.schema, versions.nsys) == (schema, product)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return read_trace(article.write(tmp_path_factory.mktemp("article") / "article.sqlite"))


def kernel_ms(trace: Trace) -> Counter[str]:
    kernels = trace.kernels
    total: Counter[str] = Counter()
    for name, ns in zip(kernels.name.tolist(), (kernels.end - kernels.start).tolist(), strict=True):
        total[trace.kernel_names[name]] += ns
    return total


def test_article_kernel_times_are_the_published_ones(published: Trace) -> None:
    ns = kernel_ms(published)
    figures = {
        "gemv M=3": (ns[article.WIDE] + ns[article.NARROW], 586.79),
        "gdn": (sum(ns[name] for name in article.GDN), 85.51),
        "draft": (ns[article.DRAFT], 71.85),
        "gemv3": (ns[article.GEMV3], 19.12),
        "all": (sum(ns.values()), 815.24),
        "shared": (
            sum(
                ns[name]
                for name in (article.RMSNORM, article.ADD, article.ATTENTION, article.ARGMAX)
            ),
            39.70 + 12.27,
        ),
    }
    for what, (total, published_ms) in figures.items():
        assert total * MS == pytest.approx(published_ms, abs=0.005), what


def test_article_instances_are_the_published_ones(published: Trace) -> None:
    counts = Counter(published.kernel_names[i] for i in published.kernels.name.tolist())
    assert counts[article.WIDE] == 42 * 64 * 3
    assert counts[article.NARROW] == 42 * (64 + 1)
    assert {counts[name] for name in article.GDN} == {42 * 48}
    assert counts[article.DRAFT] == 126 * 5 + 3
    assert counts[article.GEMV3] == 126 * 3 + 2
    assert len(published.gpus) == len(published.processes) == 1


def test_article_graph_launches_leave_only_calls(published: Trace) -> None:
    launches = published.api.kind == ApiKind.GRAPH_LAUNCH
    assert launches.sum() == 299 == 96 + 64 + 96 + 41 + 2
    assert not published.has_graph_trace_table
    assert len(published.graph_runs) == 0
    assert published.versions.schema == "3.7.2"


def test_article_rounds_take_the_published_wall_time(published: Trace) -> None:
    launches = published.api.kind == ApiKind.GRAPH_LAUNCH
    start = published.api.start[launches]
    before, closing = article.PREFILL + article.DECODE + article.PREFILL, article.CLOSING
    plain_end = start[before - 1] + article.STEP_NS
    assert start[-closing] - plain_end == 1_508_030_000
    decode = start[article.PREFILL : article.PREFILL + article.DECODE]
    assert (decode[-1] - decode[0] + article.STEP_NS) * MS == pytest.approx(846.8, abs=0.1)


def test_article_replays_follow_the_accepted_drafts() -> None:
    accepted = article.n_ok_in_order()
    assert Counter(accepted) == {0: 27, 1: 2, 2: 6, 3: 7}
    assert [article.replay_steps(n) for n in (0, 1, 2, 3)] == [1, 1, 2, 0]
    assert sum(map(article.replay_steps, accepted)) == 41
