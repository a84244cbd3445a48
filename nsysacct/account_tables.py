"""An account as tables of texts, which page and notebook lay out. Times are in ms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nsysacct.model import (
    BUCKETS,
    PROVENANCE,
    Account,
    BlindSpot,
    Bucket,
    Finding,
    ProcessAccount,
    RoundRow,
    Rounds,
)
from nsysacct.wording import RESIDUAL, RESIDUAL_OF_PRICED, how_known, wall_known

NS_PER_MS = 1e6
MOST_ROWS = 1500
"""Rows of one table; what is left out is said."""
LONG = 240
"""Characters of a name that are shown; templates can have thousands."""
IN_ROUNDS = ("draft", "verify", "replay")
WAYS = ("measured", "estimated", "computed")
_SPLIT = ("bucket", "GPU ms", "ms a round", "% of wall", "copies ms", "events", "how it is known")


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
class Part:
    """One area of a bar of the split."""

    bucket: str
    provenance: str
    ns: int


def _ms(ns: float | None, digits: int = 3) -> str:
    return "" if ns is None else f"{ns / NS_PER_MS:.{digits}f}"


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _short(name: str) -> str:
    return name if len(name) <= LONG else f"{name[: LONG - 60]} … {name[-40:]}"


def table(
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


def split_parts(account: ProcessAccount, *, in_rounds: bool) -> list[Part]:
    """Areas of a bar of the split in report order, the residual last.

    Of the rounds, or of all buckets; then without a residual where there are rounds, whose window
    is only a part.
    """
    found = []
    for name in IN_ROUNDS if in_rounds else BUCKETS:
        bucket = account.bucket(name)
        by_way = dict.fromkeys(WAYS, 0)
        for basis, ns in bucket.by_basis.items():
            by_way[PROVENANCE[basis]] += ns
        if name == "unattributed":
            by_way["measured"] += bucket.gpu_ns - sum(bucket.by_basis.values())
        found += [Part(name, way, ns) for way, ns in by_way.items() if ns > 0]
    if account.rounds.value and not in_rounds:
        return found
    window = account.window
    # where hidden work has a price, only the wall that is neither seen nor priced is left
    rest = window.residual_ns if window.residual_high_ns is None else window.residual_high_ns
    return [*found, Part("residual", "measured", max(0, rest))]


def split(account: ProcessAccount) -> Table:
    """GPU time of each bucket that has some, the residual and the wall."""
    wall, count = account.window.wall_ns, account.rounds.value
    shown = [account.bucket(name) for name in BUCKETS]
    rows = [_bucket(b, wall) for b in shown if b.total_ns or b.mem_ns or b.ns_per_round is not None]
    rows.append(["residual", *_residual(account)])
    per_round = _ms(wall / count) if count else ""
    rows.append(["wall", _ms(wall), per_round, "", "", "", wall_known(account)])
    return table("split", "Split", _SPLIT, rows, " nnnnn ")


def buckets(records: Sequence[Bucket]) -> Table:
    """Some buckets as `split` shows them, without shares."""
    return table("buckets", "Buckets", _SPLIT, [_bucket(b, 0) for b in records], " nnnnn ")


def _bucket(b: Bucket, wall: int) -> list[str]:
    share = f"{100 * b.total_ns / wall:.1f}" if wall and b.ns_per_round is not None else ""
    return [b.bucket, _ms(b.total_ns), _ms(b.ns_per_round), share, _ms(b.mem_ns), str(b.events),
            how_known(b, _ms)]  # fmt: skip


def _residual(account: ProcessAccount) -> list[str]:
    """Cells after the name: a range where work without a time of its own has a price."""
    w, count = account.window, account.rounds.value
    ends, how = [w.residual_ns], RESIDUAL
    if w.residual_low_ns is not None and w.residual_high_ns is not None:
        ends, how = [w.residual_low_ns, w.residual_high_ns], RESIDUAL_OF_PRICED

    def span(values: Iterable[str]) -> str:
        return "..".join(dict.fromkeys(values))

    each = span(_ms(ns / count) for ns in ends) if count else ""
    share = span(f"{100 * ns / w.wall_ns:.1f}" for ns in ends) if w.wall_ns else ""
    return [span(map(_ms, ends)), each, share, "", "", how]


def signatures(rounds: Rounds) -> Table:
    """Verify-only signatures and their count of rounds."""
    rows = [
        [_short(s.pattern), str(s.instances), s.kind, _text(s.layers), _text(s.per_layer),
         _text(s.per_round), _text(s.rounds), _ms(s.gpu_ns), s.verdict, s.detail]
        for s in rounds.signatures
    ]  # fmt: skip
    columns = ["signature", "instances", "layer kind", "layers", "a layer", "a round", "rounds",
               "GPU ms", "verdict", "detail"]  # fmt: skip
    note = "instances = rounds × (a layer × layers + a round), each verify-only signature by itself"
    return table("signatures", "Signatures counted", columns, rows, " n nnnnn  ", note)


def witnesses(rounds: Rounds) -> Table:
    """Other counts of rounds, and whether they agree."""
    rows = [
        [w.name, _text(w.rounds), "agrees" if w.agrees else "differs", w.detail]
        for w in rounds.witnesses
    ]
    columns = ["witness", "rounds", "verdict", "detail"]
    return table("witnesses", "Other counts of rounds", columns, rows, " n  ")


def blind_spots(spots: Sequence[BlindSpot]) -> Table:
    """What the trace does not show, and how to capture it."""
    rows = [
        [s.kind, s.severity, "open" if s.hidden_ns is None else _ms(s.hidden_ns), s.detail,
         s.remedy]
        for s in spots
    ]  # fmt: skip
    columns = ["blind spot", "severity", "hidden ms", "detail", "remedy"]
    return table("blind", "Blind spots", columns, rows, "  n  ")


def findings(records: Sequence[Finding]) -> Table:
    """What else was noticed."""
    rows = [[f.kind, f.severity, f.detail, f.remedy] for f in records]
    return table("findings", "Findings", ["finding", "severity", "detail", "remedy"], rows, "    ")


def graphs(account: ProcessAccount) -> Table:
    """Executable graphs: launches, role, time."""
    rows = [
        [_text(g.graph_exec_id), str(g.launches), g.state, g.role or "unknown", _ms(g.gpu_ns),
         g.basis or "", ", ".join(f"{n} {b}" for b, n in g.buckets.items()), g.reason]
        for g in account.graphs
    ]  # fmt: skip
    columns = ["graph", "launches", "state", "role", "GPU ms", "basis", "launches by bucket",
               "why"]  # fmt: skip
    return table("graphs", "CUDA graphs", columns, rows, "nn  n   ")


def kernels(account: ProcessAccount) -> Table:
    """GPU time by signature, most first."""
    total = account.total_gpu_ns or 1
    rows = [
        [_short(k.signature), k.family, k.bucket, str(k.instances), _ms(k.gpu_ns),
         f"{100 * k.gpu_ns / total:.2f}"]
        for k in sorted(account.kernels, key=lambda k: -k.gpu_ns)
    ]  # fmt: skip
    columns = ["signature or kernel", "family", "bucket", "instances", "GPU ms", "% of GPU"]
    return table("kernels", "Kernels", columns, rows, "   nnn")


def steps(account: ProcessAccount) -> Table:
    """Cost of each kind of model pass."""
    rows = [
        [s.role, str(s.count), _text(s.width), _ms(s.gpu_ns / s.count if s.count else None),
         _ms(s.wall_ns), s.basis]
        for s in account.steps
    ]  # fmt: skip
    columns = ["pass", "count", "rows", "GPU ms each", "wall ms each", "basis"]
    return table("steps", "Model passes", columns, rows, " nnnn ")


def rounds(rows: Sequence[RoundRow]) -> Table:
    """What each round cost."""
    cells = [
        [str(r.index), _ms(r.wall_ns), _ms(r.draft_ns), _ms(r.verify_ns), _ms(r.replay_ns),
         _ms(r.residual_ns), _text(r.n_ok), str(r.launches), " ".join(r.flags)]
        for r in rows
    ]  # fmt: skip
    columns = ["round", "wall ms", "draft ms", "verify ms", "replay ms", "residual ms", "n_ok",
               "launches", "flags"]  # fmt: skip
    return table("rounds", "Rounds", columns, cells, "nnnnnnnn ")


def processes(account: Account) -> Table:
    """The (process, GPU) pairs, where there are several."""
    several = account.processes if len(account.processes) > 1 else []
    rows = [
        [_text(p.pid), _text(p.gpu), _text(p.rounds.value), p.rounds.verdict,
         _ms(p.total_gpu_ns), *(_ms(p.bucket(b).total_ns) for b in ("draft", "verify", "replay"))]
        for p in several
    ]  # fmt: skip
    columns = ["pid", "GPU", "rounds", "verdict", "GPU ms", "draft ms", "verify ms", "replay ms"]
    return table("processes", "Processes and GPUs", columns, rows, "nnn nnnn")
