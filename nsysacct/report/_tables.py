"""Tables of the page, as texts: the template only lays them out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nsysacct.model import BUCKETS, PROVENANCE, Account, Bucket, ProcessAccount

NS_PER_MS = 1e6
MOST_ROWS = 1500
"""Rows of one table; what is left out is said."""
LONG = 240
"""Characters of a name that are shown; templates can have thousands."""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as they are shown. ``numeric`` holds the columns that sort as numbers."""

    name: str
    title: str
    columns: list[str]
    rows: list[list[str]]
    numeric: frozenset[int] = frozenset()
    left_out: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of the bar of the split."""

    bucket: str
    provenance: str
    ms: str
    percent: float


@dataclass(frozen=True, slots=True)
class Tables:
    """All of the page's tables. ``bar`` is the split as shares of its own sum."""

    split: Table
    bar: list[Segment]
    more: list[Table] = field(default_factory=list)


def page_tables(account: Account) -> Tables:
    """Tables of an account; those without rows are left out."""
    tables = [
        _signatures(account),
        _witnesses(account),
        _graphs(account),
        _kernels(account),
        _steps(account),
        _rounds(account),
        _processes(account),
    ]
    return Tables(_split(account), _bar(account), [t for t in tables if t.rows])


def ways_to_explain(tables: Tables) -> list[str]:
    """Provenances of the bar, when not all of it is measured."""
    found = {p.provenance for p in tables.bar}
    ways: list[str] = [w for w in ("measured", "estimated", "computed") if w in found]
    return ways if ways != ["measured"] else []


def _ms(ns: float | None, digits: int = 3) -> str:
    return "" if ns is None else f"{ns / NS_PER_MS:.{digits}f}"


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _short(name: str) -> str:
    return name if len(name) <= LONG else f"{name[: LONG - 60]} … {name[-40:]}"


def _table(
    name: str, title: str, columns: Sequence[str], rows: Iterable[list[str]], numeric: str = "",
    note: str = "",
) -> Table:  # fmt: skip
    """Table with its first `MOST_ROWS` rows; `numeric` has an "n" for each numeric column.

    Columns in which nothing is known, and nothing to be said, are left out.
    """
    every = list(rows)
    used = [i for i in range(len(columns)) if any(row[i] for row in every)]
    return Table(
        name, title, [columns[i] for i in used],
        [[row[i] for i in used] for row in every[:MOST_ROWS]],
        frozenset(place for place, i in enumerate(used) if numeric[i] == "n"),
        max(0, len(every) - MOST_ROWS), note,
    )  # fmt: skip


def how_known(bucket: Bucket) -> str:
    """Amounts by provenance and basis, strongest first."""
    groups: dict[str, list[str]] = {}
    for basis, provenance in PROVENANCE.items():
        if bucket.by_basis.get(basis):
            groups.setdefault(provenance, []).append(f"{_ms(bucket.by_basis[basis])} {basis}")
    return "; ".join(f"{name}: {' + '.join(parts)}" for name, parts in groups.items())


def _split(account: ProcessAccount) -> Table:
    wall, count = account.window.wall_ns, account.rounds.value
    rows = []
    for name in BUCKETS:
        b = account.bucket(name)
        in_rounds = b.ns_per_round is not None
        if b.total_ns or b.mem_ns or in_rounds:
            share = f"{100 * b.total_ns / wall:.1f}" if wall and in_rounds else ""
            rows.append(
                [name, _ms(b.total_ns), _ms(b.ns_per_round), share, _ms(b.mem_ns), str(b.events),
                 how_known(b)]
            )  # fmt: skip
    w = account.window
    residual = f"{100 * w.residual_ns / wall:.1f}" if wall else ""
    how = "wall minus the union of GPU work: launch gaps, host work"
    if w.residual_low_ns is not None and w.residual_high_ns is not None:
        how = f"between {_ms(w.residual_low_ns)} and {_ms(w.residual_high_ns)} ms: {how}"
    rows.append(["residual", _ms(w.residual_ns), _per(w.residual_ns, count), residual, "", "", how])
    where = "of the rounds, from first to last GPU event" if count else "of all GPU work"
    rows.append(
        ["wall", _ms(wall), _per(wall, count), "", "", "",
         "as given" if w.wall_how == "given" else where]
    )  # fmt: skip
    columns = ["bucket", "GPU ms", "ms a round", "% of wall", "copies ms", "events",
               "how it is known"]  # fmt: skip
    return _table("split", "Split", columns, rows, " nnnnn ")


def _per(ns: int, count: int | None) -> str:
    return _ms(ns / count) if count else ""


def _bar(account: ProcessAccount) -> list[Segment]:
    """Phases and residual where there are rounds, else all buckets."""
    wanted = ("draft", "verify", "replay") if account.rounds.value else BUCKETS
    parts: list[tuple[str, str, int]] = []
    for name in wanted:
        b = account.bucket(name)
        amounts: dict[str, int] = {}
        for basis, ns in b.by_basis.items():
            way = PROVENANCE[basis]
            amounts[way] = amounts.get(way, 0) + ns
        if name == "unattributed":
            amounts = {"measured": b.gpu_ns}
        parts += [(name, way, ns) for way, ns in amounts.items() if ns > 0]
    parts.append(("residual", "measured", max(0, account.window.residual_ns)))
    whole = sum(ns for _, _, ns in parts) or 1
    return [
        Segment(name, way, _ms(ns), round(100 * ns / whole, 4)) for name, way, ns in parts if ns
    ]


def _signatures(account: ProcessAccount) -> Table:
    rows = [
        [_short(s.pattern), str(s.instances), s.kind, _text(s.layers), _text(s.per_layer),
         _text(s.per_round), _text(s.rounds), _ms(s.gpu_ns), s.verdict, s.detail]
        for s in account.rounds.signatures
    ]  # fmt: skip
    columns = ["signature", "instances", "layer kind", "layers", "a layer", "a round", "rounds",
               "GPU ms", "verdict", "detail"]  # fmt: skip
    note = "instances = rounds × (a layer × layers + a round), each verify-only signature by itself"
    return _table("signatures", "Signatures counted", columns, rows, " n nnnnn  ", note)


def _witnesses(account: ProcessAccount) -> Table:
    rows = [
        [w.name, _text(w.rounds), "agrees" if w.agrees else "differs", w.detail]
        for w in account.rounds.witnesses
    ]
    return _table("witnesses", "Other counts of rounds", ["witness", "rounds", "verdict", "detail"], rows,
                  " n  ")  # fmt: skip


def _graphs(account: ProcessAccount) -> Table:
    rows = [
        [_text(g.graph_exec_id), str(g.launches), g.state, g.role or "unknown", _ms(g.gpu_ns),
         g.basis or "", ", ".join(f"{n} {b}" for b, n in g.buckets.items()), g.reason]
        for g in account.graphs
    ]  # fmt: skip
    columns = ["graph", "launches", "state", "role", "GPU ms", "basis", "launches by bucket",
               "why"]  # fmt: skip
    return _table("graphs", "CUDA graphs", columns, rows, "nn  n   ")


def _kernels(account: ProcessAccount) -> Table:
    total = account.total_gpu_ns or 1
    rows = [
        [_short(k.signature), k.family, k.bucket, str(k.instances), _ms(k.gpu_ns),
         f"{100 * k.gpu_ns / total:.2f}"]
        for k in sorted(account.kernels, key=lambda k: -k.gpu_ns)
    ]  # fmt: skip
    columns = ["signature or kernel", "family", "bucket", "instances", "GPU ms", "% of GPU"]
    return _table("kernels", "Kernels", columns, rows, "   nnn")


def _steps(account: ProcessAccount) -> Table:
    rows = [
        [s.role, str(s.count), _text(s.width), _ms(s.gpu_ns / s.count if s.count else None),
         _ms(s.wall_ns), s.basis]
        for s in account.steps
    ]  # fmt: skip
    columns = ["pass", "count", "rows", "GPU ms each", "wall ms each", "basis"]
    return _table("steps", "Model passes", columns, rows, " nnnn ")


def _rounds(account: ProcessAccount) -> Table:
    rows = [
        [str(r.index), _ms(r.wall_ns), _ms(r.draft_ns), _ms(r.verify_ns), _ms(r.replay_ns),
         _ms(r.residual_ns), _text(r.n_ok), str(r.launches), " ".join(r.flags)]
        for r in account.per_round
    ]  # fmt: skip
    columns = ["round", "wall ms", "draft ms", "verify ms", "replay ms", "residual ms", "n_ok",
               "launches", "flags"]  # fmt: skip
    return _table("rounds", "Rounds", columns, rows, "nnnnnnnn ")


def _processes(account: Account) -> Table:
    several = account.processes if len(account.processes) > 1 else []
    rows = [
        [_text(p.pid), _text(p.gpu), _text(p.rounds.value), p.rounds.verdict,
         _ms(p.total_gpu_ns), *(_ms(p.bucket(b).total_ns) for b in ("draft", "verify", "replay"))]
        for p in several
    ]  # fmt: skip
    columns = ["pid", "GPU", "rounds", "verdict", "GPU ms", "draft ms", "verify ms", "replay ms"]
    return _table("processes", "Processes and GPUs", columns, rows, "nnn nnnn")
