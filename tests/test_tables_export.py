from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from fixtures.builder import TraceBuilder
from nsysacct.errors import NsysacctError, UsageError
from nsysacct.tables_export import NAMES, to_arrow, to_pandas, write_parquet
from nsysacct.trace import Trace, read_trace


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    builder = TraceBuilder()
    builder.kernel("k_a<(int)4>(int)", 10_000, 12_000, stream=7, grid=(2, 3, 4), block=(32, 2, 1))
    builder.graph_launch(5, 20_000, nodes=[("k_node", 20_000, 21_000)])
    builder.process(77, name="rank 1")
    builder.memcpy(14_000, 15_000, kind=2, size=64)
    builder.memset(15_000, 15_100, size=32)
    builder.graph_launch(9, 30_000, 40_000, graph=8)
    builder.nvtx("draft \N{GREEK SMALL LETTER MU}", 1_000, None)
    builder.nvtx("here", 2_000, None, event_type=34)
    return read_trace(builder.write(tmp_path / "t.sqlite"))


def rows(trace: Trace, name: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = to_arrow(trace, name).to_pylist()
    return found


def test_kernels_have_names_places_and_geometry(trace: Trace) -> None:
    one, two = rows(trace, "kernels")
    assert one == {
        "pid": 1000, "gpu": 0, "stream": 7, "context": 1, "start_ns": 10_000, "end_ns": 12_000,
        "name": "k_a<(int)4>(int)", "correlation": 1, "graph_exec": None, "graph_node": None,
        "grid_x": 2, "grid_y": 3, "grid_z": 4, "block_x": 32, "block_y": 2, "block_z": 1,
    }  # fmt: skip
    assert (two["name"], two["graph_exec"], two["graph_node"]) == ("k_node", 5, 5 << 32)


def test_the_other_tables(trace: Trace) -> None:
    copy, fill = rows(trace, "memops")
    assert (copy["pid"], copy["kind"], copy["copy"], copy["bytes"]) == (
        77,
        "memcpy",
        "device to host",
        64,
    )
    assert (fill["kind"], fill["copy"], fill["bytes"]) == ("memset", None, 32)
    (run,) = rows(trace, "graph_runs")
    assert (run["graph"], run["graph_exec"], run["timed"]) == (8, 9, True)
    kinds = [(r["pid"], r["kind"]) for r in rows(trace, "api")]
    assert kinds == [
        (1000, "kernel_launch"),
        (1000, "graph_launch"),
        (77, "memcpy"),
        (77, "memset"),
        (77, "graph_launch"),
    ]
    draft, mark = rows(trace, "nvtx")
    assert (draft["text"], draft["end_ns"], draft["kind"]) == ("draft μ", None, "push_pop")
    assert (mark["text"], mark["end_ns"], mark["kind"]) == ("here", 2_000, "mark")


@pytest.mark.parametrize("name", NAMES)
def test_a_table_without_rows_has_its_columns(name: str, tmp_path: Path, trace: Trace) -> None:
    builder = TraceBuilder()
    builder.kernel("k", 10_000, 11_000, correlation=1)
    bare = read_trace(builder.write(tmp_path / "bare.sqlite"))
    assert to_arrow(bare, name).schema == to_arrow(trace, name).schema
    assert to_arrow(bare, name).num_rows == (1 if name == "kernels" else 0)


def test_pandas_keeps_integers_with_gaps(trace: Trace) -> None:
    frame = to_pandas(trace, "kernels")
    assert str(frame["graph_node"].dtype) == "Int64"
    assert frame["graph_node"].iloc[1] == 5 << 32
    assert str(frame["name"].dtype) == "category"
    assert (frame["end_ns"] - frame["start_ns"]).sum() == 3_000


@pytest.mark.parametrize("name", NAMES)
def test_every_table_of_a_capture_becomes_a_frame(
    name: str, trace_file: Callable[[str], Path]
) -> None:
    trace = read_trace(trace_file("small_nvtx"))
    frame, table = to_pandas(trace, name), to_arrow(trace, name)
    assert list(frame) == table.column_names
    assert len(frame) == table.num_rows > 0


def test_words_that_look_alike_are_one_category(tmp_path: Path) -> None:
    """Two kinds of copy have no name of their own; two names are no UTF-8."""
    builder = TraceBuilder()
    for kind in (0, 2, 77):
        builder.memcpy(14_000 + kind, 15_000 + kind, kind=kind, size=64)
    builder.kernel(b"k_\xff", 20_000, 21_000)
    builder.kernel(b"k_\xfe", 21_000, 22_000)
    trace = read_trace(builder.write(tmp_path / "t.sqlite"))
    assert list(to_pandas(trace, "memops")["copy"]) == ["other", "device to host", "other"]
    assert to_pandas(trace, "kernels")["name"].value_counts().tolist() == [2]


def test_sums_are_the_account_s(trace_file: Callable[[str], Path]) -> None:
    from nsysacct.account import account

    trace = read_trace(trace_file("small_graph"))
    total = account(trace).total_gpu_ns
    timed = to_pandas(trace, "graph_runs").query("timed")
    kernels = to_pandas(trace, "kernels")
    assert sum(int((t["end_ns"] - t["start_ns"]).sum()) for t in (kernels, timed)) == total


def test_duckdb_reads_the_parquet_files(trace: Trace, tmp_path: Path) -> None:
    files = write_parquet(trace, tmp_path / "tables")
    assert [f.name for f in files] == [f"{name}.parquet" for name in NAMES]
    assert sorted(p.name for p in (tmp_path / "tables").iterdir()) == sorted(f.name for f in files)
    assert parquet.read_table(files[0]).to_pylist() == rows(trace, "kernels")
    duckdb = pytest.importorskip("duckdb")
    found = duckdb.sql(
        f"select name, sum(end_ns - start_ns) from '{files[0]}' group by name order by name"
    )
    assert found.fetchall() == [("k_a<(int)4>(int)", 2_000), ("k_node", 1_000)]


def test_names_that_are_no_utf8_can_be_written(tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.kernel(b"k_\xff\xfe", 10_000, 11_000)
    trace = read_trace(builder.write(tmp_path / "t.sqlite"))
    (file,) = write_parquet(trace, tmp_path, ["kernels"])
    assert pa.types.is_dictionary(parquet.read_table(file).schema.field("name").type)


def test_what_cannot_be(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="use one of kernels"):
        to_arrow(trace, "kernel")
    (tmp_path / "file").touch()
    with pytest.raises(NsysacctError, match="name a folder"):
        write_parquet(trace, tmp_path / "file", ["kernels"])
