"""Tables of a trace for other tools: arrow, pandas, Parquet (which DuckDB and Polars read).

Ids of the export are resolved: processes by their pid, kernels and calls by their names, GPUs by
their physical index. Names and kinds are dictionary columns, so a table of millions of rows stays
small. Unknown is NULL. Times are ns on the trace's own clock.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nsysacct.errors import NsysacctError, UsageError
from nsysacct.extras import need
from nsysacct.trace import NONE, ApiKind, MemKind, NvtxKind, Trace

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

NAMES = ("kernels", "memops", "graph_runs", "api", "nvtx")
"""Tables that `to_arrow` knows."""

_COPY_KINDS = {
    1: "host to device",
    2: "device to host",
    3: "host to array",
    4: "array to host",
    5: "array to array",
    6: "array to device",
    7: "device to array",
    8: "device to device",
    9: "host to host",
    10: "peer to peer",
}


def to_arrow(trace: Trace, name: str) -> pa.Table:
    """One table of a trace.

    Parameters
    ----------
    trace : Trace
        Of `nsysacct.read_trace`.
    name : str
        ``kernels`` (CUPTI_ACTIVITY_KIND_KERNEL):
            pid gpu stream context start_ns end_ns name correlation graph_exec graph_node grid_x
            grid_y grid_z block_x block_y block_z
        ``memops`` (.._MEMCPY and .._MEMSET):
            pid gpu stream context start_ns end_ns kind copy bytes correlation graph_node
        ``graph_runs`` (.._GRAPH_TRACE, graphs timed as a whole):
            pid gpu stream context start_ns end_ns graph graph_exec correlation timed
        ``api`` (.._RUNTIME, host time):
            pid thread start_ns end_ns name kind correlation return_value
        ``nvtx`` (NVTX_EVENTS, host time; ranges and marks):
            pid thread start_ns end_ns text domain kind; ``end_ns`` is NULL for ranges still open

    Returns
    -------
    pyarrow.Table
        Rows in file order; damaged rows are left out, as in the account (``Trace.rejected``).

    Raises
    ------
    UsageError
        No table is called so.
    TraceError
        It cannot be read to its end.
    """
    import pyarrow as pa

    if name not in NAMES:
        raise UsageError(f"table {name!r}", "is not known", f"use one of {', '.join(NAMES)}")
    columns: dict[str, Any] = _COLUMNS[name](trace)
    return pa.table(columns)


def to_pandas(trace: Trace, name: str) -> pd.DataFrame:
    """As `to_arrow`, as a DataFrame: names are categories, numbers nullable integers."""
    return frame_of(to_arrow(trace, name))


def frame_of(table: pa.Table) -> pd.DataFrame:
    """DataFrame of a table, of the same types whether or not something is unknown."""
    pandas = need("pandas", "DataFrames")
    frame: pd.DataFrame = table.to_pandas(types_mapper=_nullable(pandas).get)
    return frame


def write_parquet(
    trace: Trace, folder: str | os.PathLike[str], names: Sequence[str] = NAMES
) -> list[Path]:
    """Write tables as ``FOLDER/NAME.parquet``, each whole or not at all; older ones are replaced.

    Returns
    -------
    list of Path
        The files, in the order of `names`.

    Raises
    ------
    UsageError
        No table is called so.
    NsysacctError
        The folder cannot be written.
    """
    from pyarrow import parquet

    made = []
    for name in names:
        table = to_arrow(trace, name)
        target = Path(folder) / f"{name}.parquet"
        part = target.with_suffix(f".{os.getpid()}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            parquet.write_table(table, part, compression="zstd")
            os.replace(part, target)
        except OSError as failure:
            what = failure.strerror or str(failure)
            raise NsysacctError(str(folder), what, "name a folder that can be written") from failure
        finally:
            with contextlib.suppress(OSError):
                part.unlink()
        made.append(target)
    return made


def _nullable(pandas: Any) -> dict[Any, Any]:
    import pyarrow as pa

    return {pa.int64(): pandas.Int64Dtype(), pa.int32(): pandas.Int32Dtype()}


def _kernels(trace: Trace) -> dict[str, Any]:
    k = trace.kernels
    grid, block = k.grid, k.block
    return {
        **_place(trace, k),
        "name": _words(k.name, trace.kernel_names),
        "correlation": _known(k.correlation),
        "graph_exec": _known(k.graph),
        "graph_node": _known(k.graph_node),
        **{f"grid_{axis}": _known(grid[:, i], np.int32) for i, axis in enumerate("xyz")},
        **{f"block_{axis}": _known(block[:, i], np.int32) for i, axis in enumerate("xyz")},
    }


def _memops(trace: Trace) -> dict[str, Any]:
    m = trace.memops
    copies = [_COPY_KINDS.get(i, "other") for i in range(max(_COPY_KINDS) + 2)]
    copy = np.where(m.copy_kind == NONE, NONE, np.clip(m.copy_kind, 0, len(copies) - 1))
    return {
        **_place(trace, m),
        "kind": _words(m.kind, [kind.name.lower() for kind in MemKind]),
        "copy": _words(copy, copies),
        "bytes": _known(m.bytes, unknown=None),
        "correlation": _known(m.correlation),
        "graph_node": _known(m.graph_node),
    }


def _graph_runs(trace: Trace) -> dict[str, Any]:
    import pyarrow as pa

    g = trace.graph_runs
    return {
        **_place(trace, g),
        "graph": _known(g.graph),
        "graph_exec": _known(g.graph_exec),
        "correlation": _known(g.correlation),
        "timed": pa.array(g.timed),
    }


def _api(trace: Trace) -> dict[str, Any]:
    a = trace.api
    return {
        "pid": _pids(trace, a.process),
        "thread": _known(a.thread, np.int32),
        "start_ns": _known(a.start, unknown=None),
        "end_ns": _known(a.end, unknown=None),
        "name": _words(a.name, trace.api_names),
        "kind": _words(a.kind, [kind.name.lower() for kind in ApiKind]),
        "correlation": _known(a.correlation),
        "return_value": _known(a.return_value, np.int32),
    }


def _nvtx(trace: Trace) -> dict[str, Any]:
    parts = (trace.nvtx, trace.nvtx_marks)

    def both(column: str) -> npt.NDArray[Any]:
        return np.concatenate([getattr(part, column) for part in parts])

    return {
        "pid": _pids(trace, both("process")),
        "thread": _known(both("thread"), np.int32),
        "start_ns": _known(both("start"), unknown=None),
        "end_ns": _known(both("end")),
        "text": _words(both("text"), trace.nvtx_names),
        "domain": _words(both("domain"), trace.nvtx_domains),
        "kind": _words(both("kind"), [kind.name.lower() for kind in NvtxKind]),
    }


_COLUMNS = {
    "kernels": _kernels,
    "memops": _memops,
    "graph_runs": _graph_runs,
    "api": _api,
    "nvtx": _nvtx,
}


def _place(trace: Trace, rows: Any) -> dict[str, Any]:
    gpus = np.array([gpu.index for gpu in trace.gpus], np.int64)
    return {
        "pid": _pids(trace, rows.process),
        "gpu": _known(gpus[rows.gpu], unknown=None),
        "stream": _known(rows.stream, np.int32),
        "context": _known(rows.context, np.int32),
        "start_ns": _known(rows.start, unknown=None),
        "end_ns": _known(rows.end, unknown=None),
    }


def _pids(trace: Trace, process: npt.NDArray[np.int32]) -> pa.Array:
    pids = np.array([*(p.pid for p in trace.processes), NONE], np.int64)
    return _known(pids[process])  # NONE is the last one


def _known(
    values: npt.NDArray[Any], kind: type[np.integer[Any]] = np.int64, *, unknown: int | None = NONE
) -> pa.Array:
    """Integers of one type, whatever the type they are kept in; NULL where they equal `unknown`."""
    import pyarrow as pa

    data = np.ascontiguousarray(values, kind)
    return pa.array(data, mask=None if unknown is None else data == unknown)


def _words(index: npt.NDArray[Any], words: Sequence[str]) -> pa.Array:
    """Dictionary column; NULL where the index is NONE.

    Each word is in the dictionary once, as pandas wants it: several kinds of copy are "other", and
    names that are no UTF-8 may look alike.
    """
    import pyarrow as pa

    code_of: dict[str, int] = {}
    clean = (word.encode("utf-8", "replace").decode() for word in words)
    codes = [code_of.setdefault(word, len(code_of)) for word in clean]
    index = np.array([*codes, NONE], np.int32)[index]  # NONE is the last one
    return pa.DictionaryArray.from_arrays(
        pa.array(index, mask=index == NONE), pa.array(list(code_of), pa.string())
    )
