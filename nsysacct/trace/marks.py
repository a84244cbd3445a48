"""NVTX ranges and marks: texts from two columns, domains, threads. Source: NVTX_EVENTS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsysacct.trace import schema
from nsysacct.trace.assembly import Table
from nsysacct.trace.column import NONE
from nsysacct.trace.columns import read_texts
from nsysacct.trace.encoding import absurd, distinct, relabel
from nsysacct.trace.loading import Loader
from nsysacct.trace.tables import I32, I64, Bool, NvtxKind, NvtxRanges

_MARK, _PUSH_POP, _START_END, _DOMAIN = 34, 59, 60, 75
_TEXT_FILE_RANGES = (70, 71)
_KINDS = {
    _MARK: NvtxKind.MARK,
    _PUSH_POP: NvtxKind.PUSH_POP,
    _START_END: NvtxKind.START_END,
    **dict.fromkeys(_TEXT_FILE_RANGES, NvtxKind.START_END),
}
_WANTED = f"eventType IN ({', '.join(map(str, _KINDS))})"
_CREATIONS = f"eventType = {_DOMAIN}"


@dataclass(frozen=True, slots=True)
class Marks:
    """What accounting uses of NVTX: ranges, marks, their texts and the names of domains."""

    ranges: NvtxRanges
    marks: NvtxRanges
    names: list[str]
    domains: list[str]


def load_marks(loader: Loader) -> Marks:
    """Read ranges and marks of all processes."""
    table = loader.read(schema.NVTX, schema.NVTX_COLUMNS, where=_WANTED)
    a = table.arrays
    loader.drop(schema.NVTX, table, "time out of range", absurd(a["start"], a["end"]))
    reversed_ = (a["end"] < a["start"]) & (a["end"] != NONE)
    loader.drop(schema.NVTX, table, "ends before it starts", reversed_)
    text, names = _texts(loader, table, _WANTED)
    process, thread = loader.threads(a["globalTid"])
    _, end_thread = loader.threads(a["endGlobalTid"])
    domain, domains = _domains(loader, process, a["domainId"])
    types, codes = distinct(a["eventType"])
    kind = np.array([_KINDS[t] for t in types.tolist()], np.uint8)[codes]
    rowids = table.rowids()
    is_mark = kind == NvtxKind.MARK

    def chosen(rows: Bool, end: I64) -> NvtxRanges:
        return NvtxRanges(
            start=a["start"][rows],
            end=end[rows],
            process=process[rows],
            thread=thread[rows],
            end_thread=end_thread[rows],
            domain=domain[rows],
            text=text[rows],
            kind=kind[rows],
            rowids=lambda: rowids[rows],
        )

    return Marks(chosen(~is_mark, a["end"]), chosen(is_mark, a["start"]), names, domains)


def _texts(loader: Loader, table: Table, wanted: str) -> tuple[I32, list[str]]:
    """Text of each row: StringIds[textId], else the text column, else empty."""
    ids, codes = distinct(table.arrays["textId"])
    texts = ["" if i == NONE else t for i, t in zip(ids, loader.database.strings(ids), strict=True)]
    index: dict[str, int] = {}
    of_id = np.array([index.setdefault(text, len(index)) for text in texts], np.int32)
    text = np.array(relabel(codes, of_id))
    if "text" in loader.columns(schema.NVTX):
        if "textId" in loader.columns(schema.NVTX):
            wanted += " AND textId IS NULL"
        rows, inline_codes, inline = read_texts(loader.database, schema.NVTX, "text", wanted)
        new = np.array([index.setdefault(t, len(index)) for t in inline], np.int32)
        kept = table.rowids()
        here = np.isin(rows, kept)
        text[np.searchsorted(kept, rows[here])] = new[inline_codes[here]]
    every = list(index)
    used, codes = distinct(text)
    return codes, [every[i] for i in used]


def _domains(loader: Loader, process: I32, domain_ids: I32) -> tuple[I32, list[str]]:
    """Index of each row's domain among domain names; ids are only unique within a process.

    Names come from the rows that create a domain; 0 and NULL are the default domain.
    """
    created: dict[tuple[int, int], str] = {}
    table = loader.read(schema.NVTX, schema.NVTX_COLUMNS, where=_CREATIONS)
    if table.size:
        text, names = _texts(loader, table, _CREATIONS)
        owner, _ = loader.threads(table.arrays["globalTid"])
        pairs = zip(owner.tolist(), table.arrays["domainId"].tolist(), strict=True)
        created = {pair: names[code] for pair, code in zip(pairs, text.tolist(), strict=True)}
    domains: dict[str, int] = {"": 0}
    both = process.astype(np.int64) * (1 << 32) + domain_ids
    found, codes = distinct(both)
    new = []
    for value in found.tolist():
        owner_of, domain = (value + (1 << 31)) >> 32, (value + (1 << 31)) % (1 << 32) - (1 << 31)
        default = "" if domain in (0, NONE) else f"domain {domain}"
        name = created.get((owner_of, domain)) or default
        new.append(domains.setdefault(name, len(domains)))
    return relabel(codes, np.array(new, np.int32)), list(domains)
