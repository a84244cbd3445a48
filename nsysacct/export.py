"""An account as Parquet tables, typed and with units in the column names."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from nsysacct.account import Events
from nsysacct.attribution import BASES
from nsysacct.model import (
    BUCKETS,
    PROVENANCE,
    Account,
    BlindSpot,
    Bucket,
    Finding,
    GraphInfo,
    KernelRow,
    ProcessAccount,
    Record,
    RoundRow,
    SignatureCount,
    StepCost,
)
from nsysacct.timeline import Kind

if TYPE_CHECKING:
    import pyarrow as pa


def tables_of(account: Account) -> dict[str, pa.Table]:
    """Tables of all (process, GPU) pairs, one row a record.

    Returns
    -------
    dict of str to pyarrow.Table
        ``buckets rounds kernels graphs signatures steps blind_spots findings``, each with the
        ``pid`` and ``gpu`` that a row is of. Amounts by basis are columns ``basis_exclusive_ns``
        and so on; unknown values are null.
    """
    import pyarrow as pa

    kinds: dict[str, tuple[type[Record], Callable[[ProcessAccount], Sequence[Record]]]] = {
        "buckets": (Bucket, lambda part: part.buckets),
        "rounds": (RoundRow, lambda part: part.per_round),
        "kernels": (KernelRow, lambda part: part.kernels),
        "graphs": (GraphInfo, lambda part: part.graphs),
        "signatures": (SignatureCount, lambda part: part.rounds.signatures),
        "steps": (StepCost, lambda part: part.steps),
        "blind_spots": (BlindSpot, lambda part: part.blind_spots),
        "findings": (Finding, lambda part: part.findings),
    }

    def of(part: ProcessAccount, kind: type[Record], records: Sequence[Record]) -> pa.Table:
        table = record_table(records, kind)
        for place, (name, value) in enumerate((("pid", part.pid), ("gpu", part.gpu))):
            table = table.add_column(place, name, pa.array([value] * len(records), pa.int64()))
        return table

    parts: Sequence[ProcessAccount] = account.processes or [account]
    return {
        name: pa.concat_tables([of(part, kind, take(part)) for part in parts])
        for name, (kind, take) in kinds.items()
    }


def record_table(records: Sequence[Record], kind: type[Record]) -> pa.Table:
    """One column a field of `kind`, typed by its annotation, also without any record."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    hints = typing.get_type_hints(kind)
    for name in kind.__struct_fields__:
        values = [getattr(r, name) for r in records]
        if name == "by_basis":
            for basis in PROVENANCE:
                amounts = [v.get(basis, 0) for v in values]
                columns[f"basis_{basis}_ns"] = pa.array(amounts, pa.int64())
            continue
        if typing.get_origin(hints[name]) is dict:
            values = [list(v.items()) for v in values]
        columns[name] = pa.array(values, _arrow_type(hints[name]))
    return pa.table(columns)


def _arrow_type(hint: Any) -> pa.DataType:
    import pyarrow as pa

    if isinstance(hint, types.UnionType):
        (hint,) = (part for part in hint.__args__ if part is not types.NoneType)
    simple = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
    if hint in simple:
        return simple[hint]
    inner = [_arrow_type(part) for part in typing.get_args(hint)]
    if typing.get_origin(hint) is list:
        return pa.list_(inner[0])
    if typing.get_origin(hint) is dict:
        return pa.map_(*inner)
    raise TypeError(f"no Arrow type for {hint}")


def events_table(events: Sequence[Events], kernel_names: Sequence[str]) -> pa.Table:
    """Every GPU event of all processes and GPUs, in launch order, with bucket, basis and round.

    Parameters
    ----------
    events : sequence of Events
        Of `nsysacct.account.events`.
    kernel_names : sequence of str
        ``Trace.kernel_names``.

    Returns
    -------
    pyarrow.Table
        ``pid gpu kind name stream graph launch_ns start_ns end_ns bucket basis round``; texts are
        dictionary-encoded. Launches that left no time have null ``start_ns`` and ``end_ns``.
    """
    import pyarrow as pa

    kinds = [kind.name.lower() for kind in Kind]
    parts = []
    for part in events:
        line = part.line
        blind = line.kind == Kind.BLIND
        parts.append(
            pa.table(
                {
                    "pid": pa.array(np.full(len(line), part.pid, np.int64)),
                    "gpu": pa.array(np.full(len(line), part.gpu, np.int32)),
                    "kind": _coded(line.kind, kinds),
                    "name": _coded(line.name, list(kernel_names)),
                    "stream": _known(line.stream, np.int32),
                    "graph": _known(line.graph, np.int64),
                    "launch_ns": line.launch,
                    "start_ns": pa.array(line.start, mask=blind),
                    "end_ns": pa.array(line.end, mask=blind),
                    "bucket": _coded(part.bucket, list(BUCKETS)),
                    "basis": _coded(part.basis, list(BASES)),
                    "round": _known(part.round_of, np.int32),
                }
            )
        )
    return pa.concat_tables(parts).unify_dictionaries()


def _known(values: Any, kind: type[np.integer[Any]]) -> pa.Array:
    """Ids of one type, whatever the type they are kept in; negative ones stand for none: null."""
    import pyarrow as pa

    return pa.array(values.astype(kind), mask=values < 0)


def _coded(index: Any, words: list[str]) -> pa.Array:
    """Words by index; an index outside of them is null."""
    import pyarrow as pa

    outside = (index < 0) | (index >= len(words))
    return pa.DictionaryArray.from_arrays(
        pa.array(index.astype(np.int32), mask=outside), pa.array(words, pa.string())
    )


def write_parquet(table: pa.Table, path: str, account: Account) -> None:
    """Write one table; its metadata says which tool and which trace it is from."""
    import pyarrow.parquet as pq

    origin = {"tool": account.tool, "trace": account.trace.name, "pid": account.pid,
              "gpu": account.gpu}  # fmt: skip
    about = {**(table.schema.metadata or {}), b"nsysacct": msgspec.json.encode(origin)}
    pq.write_table(table.replace_schema_metadata(about), path, compression="zstd")
