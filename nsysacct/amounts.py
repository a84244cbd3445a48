"""Sums of an attribution: buckets, kernels by signature, graphs, steps, and the wall they make up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from nsysacct import census, evidence, structure
from nsysacct.attribution import BASES, NO_BASIS, Attribution
from nsysacct.evidence import Code
from nsysacct.groups import Groups, blocks, counts, sums
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


def buckets(line: Timeline, placed: Attribution, counted: Sequence[census.Row]) -> list[Bucket]:
    """Sums of every bucket, in report order."""
    by_basis: list[dict[str, int]] = [{} for _ in BUCKETS]
    gpu_ns = [0] * len(BUCKETS)
    for row in counted:
        gpu_ns[row.bucket] += row.gpu_ns
        if row.basis != NO_BASIS:
            known = by_basis[row.bucket]
            known[BASES[row.basis]] = known.get(BASES[row.basis], 0) + row.gpu_ns
    memory = np.flatnonzero(line.is_memory)
    mem_ns = sums(placed.bucket[memory], line.duration[memory], len(BUCKETS))
    blind = line.kind == Kind.BLIND
    launch = (line.graph != NONE) | blind
    launch[1:] &= line.unit[1:] != line.unit[:-1]
    launches = counts(placed.bucket[launch], len(BUCKETS))
    events = counts(placed.bucket, len(BUCKETS)) - counts(placed.bucket[blind], len(BUCKETS))
    busy = line.busy_ns(placed.bucket, len(BUCKETS))
    return [
        Bucket(
            bucket=name,
            gpu_ns=gpu_ns[i],
            mem_ns=int(mem_ns[i]),
            busy_ns=int(busy[i]),
            events=int(events[i]),
            graph_launches=int(launches[i]),
            by_basis={basis: by_basis[i][basis] for basis in BASES if basis in by_basis[i]},
        )
        for i, name in enumerate(BUCKETS)
    ]


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
    trace: Trace, names: evidence.NameEvidence, counted: Sequence[census.Row]
) -> list[KernelRow]:
    """GPU time by bucket, family and signature; graphs timed as a whole are a family of their own."""
    rows: dict[tuple[str, str, str], KernelRow] = {}
    for one in counted:
        bucket = BUCKETS[one.bucket]
        family, signature = _label(one, trace, names)
        old = rows.get((bucket, family, signature)) or KernelRow(
            bucket=bucket, family=family, signature=signature, instances=0, gpu_ns=0
        )
        bases = old.by_basis
        if one.basis != NO_BASIS:
            basis = BASES[one.basis]
            bases = {**bases, basis: bases.get(basis, 0) + one.gpu_ns}
        rows[bucket, family, signature] = msgspec.structs.replace(
            old,
            instances=old.instances + one.instances,
            gpu_ns=old.gpu_ns + one.gpu_ns,
            by_basis=bases,
        )
    return sorted(
        rows.values(), key=lambda r: (BUCKETS.index(r.bucket), -r.gpu_ns, r.family, r.signature)
    )


def _label(one: census.Row, trace: Trace, names: evidence.NameEvidence) -> tuple[str, str]:
    """Family and label: of the signature, else of the name; whole graphs are one."""
    from nsysacct.names import parse

    if one.is_graph:
        return "graph", "(whole graph)"
    if one.signature != NONE:
        return names.signatures[one.signature].family, names.signatures[one.signature].pattern
    label = parse(trace.kernel_names[one.name]).qualified
    return evidence.family_of(label), label


def graphs(line: Timeline, found: Structure, placed: Attribution) -> list[GraphInfo]:
    """Launches of each executable graph, with their state, role and price."""
    blind = line.kind == Kind.BLIND
    in_graph = (line.graph != NONE) | blind
    if not in_graph.any():
        return []
    ids, graph_of = distinct(line.graph)
    launched = _launched(line, in_graph)
    launches = Groups.of(graph_of[launched], len(ids))
    inside = in_graph & line.is_gpu_time
    timed = counts(graph_of[line.kind == Kind.GRAPH], len(ids))
    blinds = counts(graph_of[blind], len(ids))
    members = counts(graph_of[in_graph], len(ids))
    gpu_ns = sums(graph_of[inside], line.duration[inside], len(ids))
    busy = line.busy_ns(np.where(in_graph, graph_of, NONE), len(ids))
    result = []
    for i, mine in enumerate(launches.members()):
        if not members[i]:
            continue
        state = "timed" if timed[i] else "blind" if blinds[i] == members[i] else "expanded"
        first = launched[mine]
        if state == "blind":
            places = _tally(found.layout.code[found.passes.pass_of[first]], _PHASES)
        else:
            places = _tally(placed.bucket[first], BUCKETS)
        main = max(places, key=lambda b: places[b])
        role = found.graphs.get(int(ids[i]))
        basis = int(np.bincount(placed.basis[first], minlength=NO_BASIS + 1).argmax())
        result.append(
            GraphInfo(
                graph_exec_id=structure.or_none(int(ids[i])),
                launches=len(first),
                state=state,
                role=None if main == "unattributed" else main,
                gpu_ns=None if state == "blind" else int(gpu_ns[i]),
                busy_ns=int(busy[i]) if state == "expanded" else None,
                basis=None if basis == NO_BASIS else BASES[basis],
                confidence=role.confidence if role else None,
                reason=role.reason if role else "",
                buckets=places,
            )
        )
    return sorted(result, key=lambda g: (-(g.gpu_ns or 0), -g.launches, g.graph_exec_id or 0))


_PHASES = tuple(code.name.lower() for code in Code)


def _tally(values: npt.NDArray[np.uint8], names: Sequence[str]) -> dict[str, int]:
    """How often each name occurs, by the index of each; names that do not occur left out."""
    found = np.bincount(values)
    return {names[i]: int(found[i]) for i in np.flatnonzero(found).tolist()}


def _launched(line: Timeline, in_graph: npt.NDArray[np.bool_]) -> I64:
    """First event of each graph launch."""
    parts = []
    unit, graph = NONE, NONE
    for block in blocks(len(line)):
        events = np.flatnonzero(in_graph[block]) + block.start
        if not len(events):
            continue
        units = np.append(np.int32(unit), line.unit[events])
        graphs = np.append(line.graph.dtype.type(graph), line.graph[events])
        parts.append(events[(units[1:] != units[:-1]) | (graphs[1:] != graphs[:-1])])
        unit, graph = units[-1], graphs[-1]
    return np.concatenate(parts)


def steps(line: Timeline, found: Structure) -> list[StepCost]:
    """Cost of one pass of each kind; the wall of a plain step is what speculation is measured against."""
    layout, p = found.layout, found.passes
    result = []
    busy = line.busy_ns(np.append(layout.code, np.uint8(Code.UNKNOWN))[p.pass_of], len(Code))
    for code in (Code.PREFILL, Code.DECODE, Code.PLAIN, Code.DRAFT, Code.VERIFY, Code.REPLAY):
        mine = np.flatnonzero((layout.code == code) & ~layout.adopted)
        if not len(mine):
            continue
        neighbours = mine[:-1][np.diff(mine) == 1]
        walls = p.start[neighbours + 1] - p.start[neighbours]
        shown = ~p.is_blind[mine].all()
        result.append(
            StepCost(
                role=code.name.lower(),
                count=len(mine),
                gpu_ns=int(p.gpu_ns[layout.code == code].sum()),
                busy_ns=int(busy[code]),
                wall_ns=float(np.median(walls)) if len(walls) and shown else None,
                width=structure.usual(p.width[mine][p.width[mine] > 0]),
                basis=str(layout.basis[mine[0]]),
            )
        )
    return result
