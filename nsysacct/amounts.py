"""Sums of an attribution: buckets, kernels by signature, graphs, steps, and the wall they make up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from nsysacct import evidence, structure
from nsysacct.attribution import BASES, NO_BASIS, Attribution
from nsysacct.evidence import Code
from nsysacct.groups import Groups
from nsysacct.intervals import union_ns
from nsysacct.model import (
    BUCKETS,
    IN_ROUNDS,
    Bucket,
    GraphInfo,
    KernelRow,
    RoundRow,
    StepCost,
    Window,
)
from nsysacct.options import Options
from nsysacct.structure import Structure
from nsysacct.timeline import Kind, Timeline
from nsysacct.trace import NONE, Trace
from nsysacct.trace.encoding import distinct

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]


def buckets(line: Timeline, placed: Attribution) -> list[Bucket]:
    """Sums of every bucket, in report order."""
    gpu, duration = line.is_gpu_time, line.duration
    bases = len(BASES) + 1
    cell = placed.bucket.astype(np.int32) * np.int32(bases) + placed.basis
    cell, spent = (cell, duration) if gpu.all() else (cell[gpu], duration[gpu])
    rows = np.bincount(cell, minlength=len(BUCKETS) * bases).reshape(len(BUCKETS), bases)
    gpu_ns = _sums(cell, spent, rows.size).reshape(rows.shape)
    memory = np.flatnonzero(line.is_memory)
    mem_ns = _sums(placed.bucket[memory], duration[memory], len(BUCKETS))
    blind = line.kind == Kind.BLIND
    launch = (line.graph != NONE) | blind
    launch[1:] &= line.unit[1:] != line.unit[:-1]
    launches = np.bincount(placed.bucket[launch], minlength=len(BUCKETS))
    events = np.bincount(placed.bucket[~blind], minlength=len(BUCKETS))
    return [
        Bucket(
            bucket=name,
            gpu_ns=int(gpu_ns[i].sum()),
            mem_ns=int(mem_ns[i]),
            busy_ns=line.busy_ns(placed.bucket == i) if events[i] else 0,
            events=int(events[i]),
            graph_launches=int(launches[i]),
            by_basis={basis: int(gpu_ns[i, b]) for b, basis in enumerate(BASES) if rows[i, b]},
        )
        for i, name in enumerate(BUCKETS)
    ]


def _sums(cell: npt.NDArray[np.integer[Any]], values: I64, cells: int) -> I64:
    """Exact integer sums of `values` by cell."""
    total = np.zeros(cells, np.int64)
    np.add.at(total, cell, values)
    return total


def with_computed(
    found: Sequence[Bucket],
    priced: Mapping[str, Mapping[str, int]],
    rows: Sequence[RoundRow],
) -> list[Bucket]:
    """Add priced but invisible work to ``by_basis``, and the mean a round.

    Priced work stays out of ``gpu_ns``. Rounds that the capture cut are left out of the mean.
    """
    whole = [r for r in rows if "partial" not in r.flags] or rows
    result = []
    for b in found:
        extra = dict(priced.get(b.bucket, {}))
        per_round = None
        if rows and b.bucket in IN_ROUNDS:
            shown: int = sum(getattr(r, f"{b.bucket}_ns") for r in whole)
            per_round = shown / len(whole) + sum(extra.values()) / len(rows)
        result.append(
            msgspec.structs.replace(b, by_basis={**b.by_basis, **extra}, ns_per_round=per_round)
        )
    return result


def wall(
    window: Window,
    found: Sequence[Bucket],
    priced: Mapping[str, Mapping[str, int]],
    options: Options,
) -> Window:
    """Put what was priced but not seen, and the user's own wall, into the window."""
    computed = sum(sum(priced.get(name, {}).values()) for name in IN_ROUNDS)
    if options.wall_ns is None:
        if not computed:
            return window
        return msgspec.structs.replace(
            window,
            computed_ns=computed,
            residual_low_ns=max(0, window.residual_ns - computed),
            residual_high_ns=window.residual_ns,
        )
    inside = sum(b.busy_ns for b in found if b.bucket in IN_ROUNDS)
    # kernels that no phase claims may or may not have run inside the user's wall
    loose = sum(b.gpu_ns for b in found if b.bucket in ("plain", "unattributed"))
    loose -= sum(b.by_basis.get("graph", 0) for b in found if b.bucket == "plain")
    high = options.wall_ns - inside - computed
    return msgspec.structs.replace(
        window,
        wall_ns=options.wall_ns,
        busy_ns=inside,
        residual_ns=options.wall_ns - inside,
        wall_how="given",
        computed_ns=computed,
        residual_low_ns=high - loose,
        residual_high_ns=high,
    )


def kernel_rows(
    line: Timeline, trace: Trace, names: evidence.NameEvidence, placed: Attribution
) -> list[KernelRow]:
    """GPU time by bucket, family and signature; graphs timed as a whole are a family of their own."""
    gpu = np.flatnonzero(line.is_gpu_time)
    whole_graph = len(trace.kernel_names) + len(names.signatures)
    slots = line.name[gpu].astype(np.int64)
    signature = names.signature[gpu]
    taken = signature != NONE
    slots[taken] = len(trace.kernel_names) + signature[taken]
    slots[line.kind[gpu] == Kind.GRAPH] = whole_graph
    key = (placed.bucket[gpu] * np.int64(whole_graph + 1) + slots) * (NO_BASIS + 1)
    key += placed.basis[gpu]
    keys, inverse = distinct(key)
    count = np.bincount(inverse, minlength=len(keys))
    total = _sums(inverse, line.duration[gpu], len(keys))
    rows: dict[tuple[str, str, str], tuple[int, int, dict[str, int]]] = {}
    for code, n, ns in zip(keys.tolist(), count.tolist(), total.tolist(), strict=True):
        rest, basis = divmod(code, NO_BASIS + 1)
        bucket, slot = divmod(rest, whole_graph + 1)
        where = (BUCKETS[bucket], *_label(slot, trace, names))
        old_n, old_ns, bases = rows.get(where, (0, 0, {}))
        if basis != NO_BASIS:
            bases = {**bases, BASES[basis]: bases.get(BASES[basis], 0) + ns}
        rows[where] = (old_n + n, old_ns + ns, bases)
    order = sorted(rows.items(), key=lambda r: (BUCKETS.index(r[0][0]), -r[1][1], r[0][1], r[0][2]))
    return [
        KernelRow(bucket=b, family=f, signature=s, instances=n, gpu_ns=ns, by_basis=bases)
        for (b, f, s), (n, ns, bases) in order
    ]


def _label(slot: int, trace: Trace, names: evidence.NameEvidence) -> tuple[str, str]:
    """Family and label of a slot: kernel names come first, then signatures, then whole graphs."""
    from nsysacct.names import parse

    if slot < len(trace.kernel_names):
        label = parse(trace.kernel_names[slot]).qualified
        return evidence.family_of(label), label
    signature = slot - len(trace.kernel_names)
    if signature < len(names.signatures):
        return names.signatures[signature].family, names.signatures[signature].pattern
    return "graph", "(whole graph)"


def graphs(line: Timeline, found: Structure, placed: Attribution) -> list[GraphInfo]:
    """Launches of each executable graph, with their state, role and price."""
    result = []
    in_graph = np.flatnonzero((line.graph != NONE) | (line.kind == Kind.BLIND))
    ids, of_event = distinct(line.graph[in_graph])
    members = Groups.of(of_event, len(ids)).members()
    for graph, inside in zip(ids.tolist(), members, strict=True):
        mine = in_graph[inside]
        kinds = set(np.flatnonzero(np.bincount(line.kind[mine])).tolist())
        state = "timed" if Kind.GRAPH in kinds else "blind" if kinds == {Kind.BLIND} else "expanded"
        unit = line.unit[mine]
        unit_first = mine[np.concatenate([[True], unit[1:] != unit[:-1]])]
        places = {
            BUCKETS[b]: int(n)
            for b, n in zip(*np.unique(placed.bucket[unit_first], return_counts=True), strict=True)
        }
        if state == "blind":
            codes = found.layout.code[found.passes.pass_of[unit_first]]
            places = {
                Code(int(c)).name.lower(): int(n)
                for c, n in zip(*np.unique(codes, return_counts=True), strict=True)
            }
        main = max(places, key=lambda b: places[b])
        role = found.graphs.get(graph)
        bases = placed.basis[unit_first]
        basis = int(np.bincount(bases, minlength=NO_BASIS + 1).argmax())
        start, end = line.start[mine], line.end_of(mine)
        counts = (line.kind[mine] == Kind.KERNEL) | (line.kind[mine] == Kind.GRAPH)
        result.append(
            GraphInfo(
                graph_exec_id=structure.or_none(graph),
                launches=len(unit_first),
                state=state,
                role=None if main == "unattributed" else main,
                gpu_ns=None if state == "blind" else int((end - start)[counts].sum()),
                busy_ns=union_ns(start, end) if state == "expanded" else None,
                basis=None if basis == NO_BASIS else BASES[basis],
                confidence=role.confidence if role else None,
                reason=role.reason if role else "",
                buckets=places,
            )
        )
    return sorted(result, key=lambda g: (-(g.gpu_ns or 0), -g.launches, g.graph_exec_id or 0))


def steps(line: Timeline, found: Structure) -> list[StepCost]:
    """Cost of one pass of each kind; the wall of a plain step is what speculation is measured against."""
    layout, p = found.layout, found.passes
    result = []
    code_of = np.append(layout.code, np.uint8(Code.UNKNOWN))[p.pass_of]
    for code in (Code.PREFILL, Code.DECODE, Code.PLAIN, Code.DRAFT, Code.VERIFY, Code.REPLAY):
        mine = np.flatnonzero(layout.code == code)
        if not len(mine):
            continue
        neighbours = mine[:-1][np.diff(mine) == 1]
        walls = p.start[neighbours + 1] - p.start[neighbours]
        shown = ~p.is_blind[mine].all()
        result.append(
            StepCost(
                role=code.name.lower(),
                count=len(mine),
                gpu_ns=int(p.gpu_ns[mine].sum()),
                busy_ns=line.busy_ns(code_of == code),
                wall_ns=float(np.median(walls)) if len(walls) and shown else None,
                width=structure.usual(p.width[mine][p.width[mine] > 0]),
                basis=str(layout.basis[mine[0]]),
            )
        )
    return result
