"""From a trace to an account: every GPU nanosecond of one process on one GPU in a bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from nsysacct import blindspots, evidence, nvtx, structure, timeline, witnesses
from nsysacct.attribution import BASES, NO_BASIS, Attribution, attribute
from nsysacct.errors import TraceError, UsageError
from nsysacct.evidence import Code
from nsysacct.grammar import Plan
from nsysacct.intervals import clip, covered_ns, merge, union_ns
from nsysacct.model import (
    BUCKETS,
    Acceptance,
    Account,
    Bucket,
    EngineInfo,
    Finding,
    GraphInfo,
    KernelRow,
    ProcessAccount,
    RoundRow,
    Semantics,
    StepCost,
    TraceInfo,
    Window,
)
from nsysacct.registry import EngineSpec, Registry, load_registry
from nsysacct.semantics import REPLAY_STEPS, TOKENS, n_ok_from_replay
from nsysacct.structure import Structure
from nsysacct.timeline import Kind, Timeline
from nsysacct.trace import NONE, Trace

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]

IN_ROUNDS = ("draft", "verify", "replay")
"""Buckets whose events all belong to a round."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user tells the tool; everything is optional.

    Attributes
    ----------
    engine : str or None
        Registry to use; None recognises it from the kernels.
    layers : mapping
        Layer kind -> count ("all" for the model's layers).
    k : int or None
        Drafts a round.
    n_ok : tuple of int or None
        Histogram: rounds that accepted 0, 1, ... k drafts.
    plan : Plan
        Target steps around the rounds.
    step_ns : int or None
        Wall of one plain step, to price work that the trace does not time.
    wall_ns : int or None
        Wall of the speculative part as the run measured it.
    ignore : frozenset of str
        Bases that may not be used.
    nvtx : tuple of nvtx.Rule
        Range text -> phase, before the registry's and the defaults.
    graph_roles : mapping
        Executable graph -> phase.
    pid, gpu : int or None
        Process (decimal, as the OS has it) and GPU that the top level shows.
    labels : mapping
        What the run was: model, quantisation, prompt...
    registry_paths : tuple of str
        Further registry files.
    """

    engine: str | None = None
    layers: Mapping[str, int] = field(default_factory=dict)
    k: int | None = None
    n_ok: tuple[int, ...] | None = None
    plan: Plan = Plan()
    step_ns: int | None = None
    wall_ns: int | None = None
    ignore: frozenset[str] = frozenset()
    nvtx: tuple[nvtx.Rule, ...] = ()
    graph_roles: Mapping[int, Code] = field(default_factory=dict)
    pid: int | None = None
    gpu: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    registry_paths: tuple[str, ...] = ()

    def recorded(self) -> dict[str, object]:
        """Options that figures rest on, for the account (JSON types only)."""
        plan = [[code.name.lower(), count] for code, count in self.plan.before]
        candidates: dict[str, object] = {
            "layers": dict(self.layers),
            "k": self.k,
            "n_ok": list(self.n_ok) if self.n_ok else None,
            "plan": plan,
            "closing": self.plan.closing,
            "step_ns": self.step_ns,
            "wall_ns": self.wall_ns,
            "ignore": sorted(self.ignore),
            "graph_roles": {str(g): c.name.lower() for g, c in self.graph_roles.items()},
            "nvtx": [[rule.pattern, rule.code.name.lower()] for rule in self.nvtx],
        }
        return {key: value for key, value in candidates.items() if value or value == 0}


def account(trace: Trace, options: Options | None = None, registry: Registry | None = None) -> Account:
    """Account for a trace.

    Parameters
    ----------
    trace : Trace
    options : Options, optional
    registry : Registry, optional
        Loaded already; otherwise the shipped one with ``options.registry_paths``.

    Returns
    -------
    Account
        The (pid, gpu) with most GPU time in rounds at the top level, all of them in ``processes``.

    Raises
    ------
    TraceError
        When the trace has no GPU work to account for.
    UsageError
        When an option does not fit the trace (unknown pid, k that does not fit).
    """
    options = options or Options()
    registry = registry or load_registry(options.registry_paths)
    spec, how, detail = _engine(trace, registry, options.engine)
    parts = [_one(trace, line, spec, options) for line in _timelines(trace)]
    if not parts:
        raise TraceError(trace.name, "no GPU work in it", "capture the run with nsys profile -t cuda,nvtx")
    chosen, selection = _choose(trace, parts, options)
    witnesses.refuse_wrong_layers(chosen.rounds, trace.name, options)
    return Account(
        **{name: getattr(chosen, name) for name in ProcessAccount.__struct_fields__},
        tool=_tool(),
        trace=_trace_info(trace, chosen),
        engine=EngineInfo(
            name=spec.name if spec else "unknown",
            how=how,
            detail=detail,
            registry_digest=spec.digest if spec else "",
            semantics=_semantics(spec),
        ),
        labels=dict(options.labels),
        options=options.recorded(),
        selection=selection,
        processes=parts,
    )


def _tool() -> str:
    from nsysacct import __version__

    return f"nsysacct {__version__}"


def _engine(
    trace: Trace, registry: Registry, wanted: str | None
) -> tuple[EngineSpec | None, str, str]:
    if wanted is not None:
        return registry.engine(wanted), "given", ""
    spec, detail = registry.recognise(trace.kernel_names)
    return spec, "recognised" if spec else "none", detail


def _semantics(spec: EngineSpec | None) -> Semantics:
    return spec.semantics if spec else Semantics()


def _trace_info(trace: Trace, chosen: ProcessAccount) -> TraceInfo:
    """Facts of the file, with the GPU that the chosen account ran on."""
    gpu = next((g for g in trace.gpus if g.index == chosen.gpu), None)
    if gpu is None:
        return trace.info
    return msgspec.structs.replace(
        trace.info,
        gpu=gpu.name,
        gpu_memory_bandwidth_bytes_per_s=gpu.memory_bandwidth,
        gpu_memory_bytes=gpu.memory,
        gpu_sm_count=gpu.sm_count,
    )


def _choose(
    trace: Trace, parts: Sequence[ProcessAccount], options: Options
) -> tuple[ProcessAccount, str]:
    """The account to show first, and why."""
    fitting = [
        p
        for p in parts
        if (options.pid is None or p.pid == options.pid) and (options.gpu is None or p.gpu == options.gpu)
    ]
    if not fitting:
        have = ", ".join(f"pid {p.pid} on GPU {p.gpu}" for p in parts)
        wanted = " ".join(
            f"--{name} {value}" for name, value in (("pid", options.pid), ("gpu", options.gpu)) if value is not None
        )
        raise UsageError(wanted, "not in this trace", f"it has {have}")
    best = max(fitting, key=lambda p: (_in_rounds(p), p.total_gpu_ns))
    if len(parts) == 1:
        return best, ""
    why = "as asked" if options.pid is not None or options.gpu is not None else "most GPU time in rounds"
    return best, f"pid {best.pid} on GPU {best.gpu} of {len(parts)} (process, GPU) pairs: {why}"


def _in_rounds(part: ProcessAccount) -> int:
    return sum(b.gpu_ns for b in part.buckets if b.bucket in IN_ROUNDS) if part.rounds.value else 0


@dataclass(frozen=True, slots=True)
class Events:
    """Where every event of one process on one GPU was placed, one array element an event.

    Attributes
    ----------
    pid, gpu : int
        Process (decimal, as the OS has it) and GPU.
    line : Timeline
        The events, in launch order.
    bucket, basis : uint8
        Indices into `model.BUCKETS` and `attribution.BASES` (one beyond its end: no basis).
    round_of : int32
        Round that the event was launched in, from 0; NONE outside the rounds.
    """

    pid: int | None
    gpu: int
    line: Timeline
    bucket: npt.NDArray[np.uint8]
    basis: npt.NDArray[np.uint8]
    round_of: I32


def events(
    trace: Trace, options: Options | None = None, registry: Registry | None = None
) -> list[Events]:
    """Attribution of every single event: what the account sums up.

    Parameters
    ----------
    trace, options, registry
        As for `account`; ``options.pid`` and ``options.gpu`` do not leave anything out.

    Returns
    -------
    list of Events
        One a (process, GPU), in the order of ``Account.processes``.
    """
    options = options or Options()
    registry = registry or load_registry(options.registry_paths)
    spec = _engine(trace, registry, options.engine)[0]
    result = []
    for line in _timelines(trace):
        parts = _place(trace, line, spec, options)
        pid = trace.processes[line.process].pid
        placed = parts.placed
        result.append(Events(pid, line.gpu, line, placed.bucket, placed.basis, parts.round_of))
    return result


def _timelines(trace: Trace) -> list[Timeline]:
    """Timelines of all (process, GPU) pairs; blind launches go to a process's first GPU."""
    pairs = timeline.accounts_of(trace)
    first_gpu = {process: gpu for process, gpu in reversed(pairs)}
    return [timeline.build(trace, p, g, with_blind=first_gpu[p] == g) for p, g in pairs]


# --- one process on one GPU ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Placed:
    """Evidence, structure and attribution of one timeline."""

    names: evidence.NameEvidence
    marks: nvtx.Projection
    found: Structure
    placed: Attribution
    round_of: I32


def _place(trace: Trace, line: Timeline, spec: EngineSpec | None, options: Options) -> _Placed:
    """Read the structure of one timeline and place its events."""
    names = evidence.read_names(line, trace, spec, exclusive="exclusive" not in options.ignore)
    marks = _nvtx(line, trace, spec, options)
    semantics = _semantics(spec)
    found = structure.read(
        line,
        names,
        semantics=semantics,
        streams=spec.streams if spec else "",
        known_engine=spec is not None,
        plan=options.plan,
        k=options.k,
        n_ok=options.n_ok,
        overrides=options.graph_roles,
        marks=marks,
    )
    _check_k(found, semantics, options)
    placed = attribute(
        line, names, marks.code, found.passes.pass_of, found.layout.code, found.layout.basis, options.ignore
    )
    return _Placed(names, marks, found, placed, _round_of_events(line, found, placed))


def _one(trace: Trace, line: Timeline, spec: EngineSpec | None, options: Options) -> ProcessAccount:
    """Account for one timeline."""
    semantics = _semantics(spec)
    parts = _place(trace, line, spec, options)
    names, marks, found, placed, round_of = (
        parts.names, parts.marks, parts.found, parts.placed, parts.round_of
    )
    rows, window = _rounds_and_window(line, found, placed, round_of, semantics)
    buckets = _buckets(line, placed, round_of, found.layout.rounds)
    kernels = _kernel_rows(line, trace, names, placed)
    rounds = witnesses.judge(line, trace, names, found, placed, marks, semantics, options)
    acceptance = _acceptance(options, semantics, found)
    graphs = _graphs(line, found, placed)
    shown = blindspots.find(trace, line, found, graphs, options)
    buckets = _with_computed(buckets, shown.priced, found.layout.rounds)
    process = trace.processes[line.process]
    return ProcessAccount(
        pid=process.pid,
        gpu=line.gpu,
        rounds=witnesses.without_losses(rounds, shown.spots),
        window=_wall(window, buckets, shown.priced, options),
        buckets=buckets,
        graphs=graphs,
        blind_spots=shown.spots,
        kernels=kernels,
        per_round=rows,
        steps=_steps(line, found),
        findings=[*found.layout.findings, *placed.findings, *shown.findings, *_notes(found)],
        acceptance=acceptance,
        total_gpu_ns=int(line.duration[line.is_gpu_time].sum()),
        total_mem_ns=int(line.duration[line.is_memory].sum()),
    )


def _notes(found: Structure) -> list[Finding]:
    return [Finding(kind="roles", severity="info", detail=note) for note in found.notes]


def _nvtx(line: Timeline, trace: Trace, spec: EngineSpec | None, options: Options) -> nvtx.Projection:
    if "nvtx" in options.ignore or not len(trace.nvtx.start):
        return nvtx.nothing(len(line))
    shipped = spec.nvtx if spec else ()
    rules = [*options.nvtx, *(nvtx.Rule(r.pattern, Code[r.bucket.upper()]) for r in shipped)]
    return nvtx.project(line, trace, rules, defaults=True)


def _check_k(found: Structure, semantics: Semantics, options: Options) -> None:
    """Refuse a k or a histogram that the verify kernels contradict."""
    seen = None
    if found.width is not None:
        seen = found.width if semantics.verify_width == "k" else found.width - 1
    given = options.k
    if options.n_ok is not None:
        from_histogram = len(options.n_ok) - 1
        if given is not None and given != from_histogram:
            raise UsageError(
                "--n-ok", f"{len(options.n_ok)} counts mean k = {from_histogram}, but --k says {given}", "fix one of them"
            )
        given = from_histogram
    if given is not None and seen is not None and given != seen:
        raise UsageError(
            f"k = {given}",
            f"does not fit: verify kernels run on {found.width} rows, which is k = {seen} here",
            f"give --k {seen}, or a histogram of {seen + 1} counts",
        )


def _round_of_events(line: Timeline, found: Structure, placed: Attribution) -> I32:
    """Round of each event by launch time; draft, verify and replay always have one."""
    rounds = found.layout.rounds
    if not rounds:
        return np.full(len(line), NONE, np.int32)
    starts = structure.round_starts(found)
    index = (np.searchsorted(starts, line.launch, side="right") - 1).astype(np.int32)
    inside = np.isin(placed.bucket, [BUCKETS.index(b) for b in IN_ROUNDS])
    index[inside] = np.maximum(index[inside], 0)
    end = line.launch[inside].max(initial=starts[-1])
    index[(line.launch > end) & ~inside] = NONE
    return index


def _rounds_and_window(
    line: Timeline,
    found: Structure,
    placed: Attribution,
    round_of: I32,
    semantics: Semantics,
) -> tuple[list[RoundRow], Window]:
    """Per-round rows and the wall window of all rounds."""
    shown = line.kind != Kind.BLIND
    rounds = found.layout.rounds
    if not rounds:
        if not shown.any():
            return [], Window(start_ns=0, end_ns=0, wall_ns=0, busy_ns=0, residual_ns=0)
        low, high = int(line.start[shown].min()), int(line.end[shown].max())
        busy = union_ns(line.start[shown], line.end[shown])
        return [], Window(
            start_ns=low, end_ns=high, wall_ns=high - low, busy_ns=busy, residual_ns=high - low - busy
        )
    in_rounds = np.isin(placed.bucket, [BUCKETS.index(b) for b in IN_ROUNDS])
    mine = in_rounds & (round_of != NONE)
    big = np.iinfo(np.int64).max
    start = np.full(rounds, big)
    np.minimum.at(start, round_of[mine], line.start[mine])
    end = np.full(rounds, -big)
    np.maximum.at(end, round_of[mine], line.end[mine])
    # a pass of blind launches has no GPU time: its host time stands in
    empty = start == big
    start[empty] = structure.round_starts(found)[empty]
    end[empty] = start[empty]
    start = np.maximum.accumulate(start)
    close = np.append(start[1:], max(int(end[-1]), int(start[-1])))
    low, high = int(start[0]), int(close[-1])
    cover = merge(*clip(line.start[shown], line.end[shown], low, high))
    busy = covered_ns(cover, start, close)
    sums = {name: _per_round(line, placed, round_of, rounds, name) for name in IN_ROUNDS}
    other = _per_round_rest(line, placed, round_of, rounds)
    memory = np.zeros(rounds, np.int64)
    copies = line.is_memory & (round_of != NONE)
    np.add.at(memory, round_of[copies], line.duration[copies])
    unit_first = np.concatenate([[True], line.unit[1:] != line.unit[:-1]]) & ~line.is_memory
    launches = np.bincount(round_of[unit_first & (round_of != NONE)], minlength=rounds)
    layout = found.layout
    flags = _flags(close - start, found)
    rows = []
    for i in range(rounds):
        fits = _fitting_n_ok(semantics, int(layout.replay_steps[i]), found.k, i == rounds - 1 and bool(layout.findings))
        rows.append(
            RoundRow(
                index=i,
                start_ns=int(start[i]),
                end_ns=int(close[i]),
                wall_ns=int(close[i] - start[i]),
                draft_ns=int(sums["draft"][i]),
                verify_ns=int(sums["verify"][i]),
                replay_ns=int(sums["replay"][i]),
                residual_ns=int(close[i] - start[i] - busy[i]),
                launches=int(launches[i]),
                other_ns=int(other[i]),
                mem_ns=int(memory[i]),
                width=_or_none(int(found.passes.width[layout.verify[i]])),
                draft_steps=int(layout.draft_passes[i]),
                replay_steps=int(layout.replay_steps[i]),
                n_ok=fits[0] if len(fits) == 1 else None,
                n_ok_basis="arithmetic" if len(fits) == 1 else None,
                flags=flags[i],
            )
        )
    total = int(busy.sum())
    return rows, Window(
        start_ns=low, end_ns=high, wall_ns=high - low, busy_ns=total, residual_ns=high - low - total
    )


def _or_none(value: int) -> int | None:
    return None if value == NONE else value


def _fitting_n_ok(semantics: Semantics, steps: int, k: int | None, unsure: bool) -> tuple[int, ...]:
    """n_ok that explain a number of replay steps; none when the rule says nothing."""
    if semantics.replay != "closing-steps" or k is None or unsure:
        return ()
    return n_ok_from_replay(semantics.replay, steps, k)


def _per_round(line: Timeline, placed: Attribution, round_of: I32, rounds: int, bucket: str) -> I64:
    mine = (placed.bucket == BUCKETS.index(bucket)) & line.is_gpu_time & (round_of != NONE)
    total = np.zeros(rounds, np.int64)
    np.add.at(total, round_of[mine], line.duration[mine])
    return total


def _per_round_rest(line: Timeline, placed: Attribution, round_of: I32, rounds: int) -> I64:
    outside = np.isin(placed.bucket, [BUCKETS.index(b) for b in IN_ROUNDS], invert=True)
    mine = outside & line.is_gpu_time & (round_of != NONE)
    total = np.zeros(rounds, np.int64)
    np.add.at(total, round_of[mine], line.duration[mine])
    return total


OUTLIER = 3.5
"""Modified z-score (median absolute deviation) beyond which a round's wall is an outlier."""


def _flags(wall: I64, found: Structure) -> list[list[str]]:
    """Warm-up and outlier flags of rounds (Iglewicz and Hoaglin's modified z-score)."""
    flags: list[list[str]] = [[] for _ in wall]
    if len(wall) < 4:
        return flags
    median = float(np.median(wall))
    spread = float(np.median(np.abs(wall - median)))
    # a spread of zero would call every other round an outlier: ask for 1 % at least
    scale = max(spread / 0.6745, 0.01 * median / OUTLIER)
    for i, value in enumerate(wall):
        if abs(float(value) - median) > OUTLIER * scale:
            early = value > median and all(f for f in flags[:i])
            flags[i].append("warm-up" if early else "outlier")
    return flags


# --- sums ------------------------------------------------------------------------------------------


def _buckets(line: Timeline, placed: Attribution, round_of: I32, rounds: int) -> list[Bucket]:
    gpu, memory = line.is_gpu_time, line.is_memory
    duration = line.duration
    result = []
    graph_unit = (line.graph != NONE) | (line.kind == Kind.BLIND)
    first_of_unit = np.concatenate([[True], line.unit[1:] != line.unit[:-1]]) if len(line) else gpu
    for i, name in enumerate(BUCKETS):
        mine = placed.bucket == i
        kernels = mine & gpu
        by_basis = {
            BASES[b]: int(duration[kernels & (placed.basis == b)].sum())
            for b in np.unique(placed.basis[kernels])
            if b != NO_BASIS
        }
        total = int(duration[kernels].sum())
        result.append(
            Bucket(
                bucket=name,
                gpu_ns=total,
                mem_ns=int(duration[mine & memory].sum()),
                busy_ns=line.busy_ns(mine),
                events=int((mine & (line.kind != Kind.BLIND)).sum()),
                graph_launches=int((mine & graph_unit & first_of_unit).sum()),
                by_basis=by_basis,
                ns_per_round=total / rounds if rounds and name in IN_ROUNDS else None,
            )
        )
    return result


def _with_computed(buckets: list[Bucket], priced: Mapping[str, Mapping[str, int]], rounds: int) -> list[Bucket]:
    """Add priced but invisible work to ``by_basis``; it stays out of ``gpu_ns``."""
    result = []
    for b in buckets:
        extra = dict(priced.get(b.bucket, {}))
        total = b.gpu_ns + sum(extra.values())
        result.append(
            Bucket(
                bucket=b.bucket,
                gpu_ns=b.gpu_ns,
                mem_ns=b.mem_ns,
                busy_ns=b.busy_ns,
                events=b.events,
                graph_launches=b.graph_launches,
                by_basis={**b.by_basis, **extra},
                ns_per_round=total / rounds if rounds and b.bucket in IN_ROUNDS else None,
            )
        )
    return result


def _wall(
    window: Window, buckets: Sequence[Bucket], priced: Mapping[str, Mapping[str, int]], options: Options
) -> Window:
    """The window with what was priced but not seen, and with the user's wall when there is one."""
    computed = sum(sum(priced.get(name, {}).values()) for name in IN_ROUNDS)
    if options.wall_ns is None:
        low = max(0, window.residual_ns - computed)
        return Window(
            start_ns=window.start_ns,
            end_ns=window.end_ns,
            wall_ns=window.wall_ns,
            busy_ns=window.busy_ns,
            residual_ns=window.residual_ns,
            computed_ns=computed,
            residual_low_ns=low if computed else None,
            residual_high_ns=window.residual_ns if computed else None,
        )
    inside = sum(b.busy_ns for b in buckets if b.bucket in IN_ROUNDS)
    loose = sum(b.gpu_ns for b in buckets if b.bucket in ("plain", "unattributed"))
    loose -= sum(b.by_basis.get("graph", 0) for b in buckets if b.bucket == "plain")
    high = options.wall_ns - inside - computed
    return Window(
        start_ns=window.start_ns,
        end_ns=window.end_ns,
        wall_ns=options.wall_ns,
        busy_ns=inside,
        residual_ns=options.wall_ns - inside,
        wall_how="given",
        computed_ns=computed,
        residual_low_ns=high - loose,
        residual_high_ns=high,
    )


def _kernel_rows(
    line: Timeline, trace: Trace, names: evidence.NameEvidence, placed: Attribution
) -> list[KernelRow]:
    """GPU time by bucket, family and signature; graphs timed as a whole are a family of their own."""
    gpu = np.flatnonzero(line.is_gpu_time)
    labels, families = _labels(trace, names)
    slots = np.where(
        line.kind[gpu] == Kind.GRAPH,
        len(labels) - 1,
        np.where(
            names.signature[gpu] != NONE,
            len(trace.kernel_names) + names.signature[gpu],
            line.name[gpu],
        ),
    ).astype(np.int64)
    key = (placed.bucket[gpu].astype(np.int64) * len(labels) + slots) * (NO_BASIS + 1) + placed.basis[gpu]
    distinct, inverse = np.unique(key, return_inverse=True)
    count = np.bincount(inverse, minlength=len(distinct))
    total = np.zeros(len(distinct), np.int64)
    np.add.at(total, inverse, line.duration[gpu])
    rows: dict[tuple[str, str, str], tuple[int, int, dict[str, int]]] = {}
    for code, n, ns in zip(distinct.tolist(), count.tolist(), total.tolist(), strict=True):
        rest, basis = divmod(code, NO_BASIS + 1)
        bucket, slot = divmod(rest, len(labels))
        where = (BUCKETS[bucket], families[slot], labels[slot])
        old_n, old_ns, bases = rows.get(where, (0, 0, {}))
        if basis != NO_BASIS:
            bases = {**bases, BASES[basis]: bases.get(BASES[basis], 0) + ns}
        rows[where] = (old_n + n, old_ns + ns, bases)
    order = sorted(rows.items(), key=lambda r: (BUCKETS.index(r[0][0]), -r[1][1], r[0][1], r[0][2]))
    return [
        KernelRow(bucket=b, family=f, signature=s, instances=n, gpu_ns=ns, by_basis=bases)
        for (b, f, s), (n, ns, bases) in order
    ]


def _labels(trace: Trace, names: evidence.NameEvidence) -> tuple[list[str], list[str]]:
    """Label and family of each slot: kernel names, then signatures, then whole graphs."""
    from nsysacct.names import parse

    labels = [parse(name).qualified for name in trace.kernel_names]
    families = [evidence.family_of(label) for label in labels]
    labels += [s.pattern for s in names.signatures] + ["(whole graph)"]
    families += [s.family for s in names.signatures] + ["graph"]
    return labels, families


def _graphs(line: Timeline, found: Structure, placed: Attribution) -> list[GraphInfo]:
    """Launches of each executable graph, with their state, role and price."""
    result = []
    in_graph = (line.graph != NONE) | (line.kind == Kind.BLIND)
    for graph in np.unique(line.graph[in_graph]):
        mine = in_graph & (line.graph == graph)
        kinds = set(np.unique(line.kind[mine]).tolist())
        state = "timed" if Kind.GRAPH in kinds else "blind" if kinds == {Kind.BLIND} else "expanded"
        unit_first = np.flatnonzero(mine)[np.unique(line.unit[mine], return_index=True)[1]]
        places = {
            BUCKETS[b]: int(n)
            for b, n in zip(*np.unique(placed.bucket[unit_first], return_counts=True), strict=True)
        }
        if state == "blind":
            codes = found.layout.code[found.passes.pass_of[unit_first]]
            places = {
                Code(int(c)).name.lower(): int(n) for c, n in zip(*np.unique(codes, return_counts=True), strict=True)
            }
        main = max(places, key=lambda b: places[b])
        role = found.graphs.get(int(graph))
        bases = placed.basis[unit_first]
        basis = int(np.bincount(bases, minlength=NO_BASIS + 1).argmax())
        gpu = mine & line.is_gpu_time
        result.append(
            GraphInfo(
                graph_exec_id=_or_none(int(graph)),
                launches=len(unit_first),
                state=state,
                role=None if main == "unattributed" else main,
                gpu_ns=None if state == "blind" else int(line.duration[gpu].sum()),
                busy_ns=line.busy_ns(mine) if state == "expanded" else None,
                basis=None if basis == NO_BASIS else BASES[basis],
                confidence=role.confidence if role else None,
                reason=role.reason if role else "",
                buckets=places,
            )
        )
    return sorted(result, key=lambda g: (-(g.gpu_ns or 0), -g.launches, g.graph_exec_id or 0))


def _steps(line: Timeline, found: Structure) -> list[StepCost]:
    """Cost of one pass of each kind; the wall of a plain step is what speculation is measured against."""
    layout, p = found.layout, found.passes
    result = []
    for code in (Code.PREFILL, Code.DECODE, Code.PLAIN, Code.DRAFT, Code.VERIFY, Code.REPLAY):
        mine = np.flatnonzero(layout.code == code)
        if not len(mine):
            continue
        events = np.isin(p.pass_of, mine)
        neighbours = mine[:-1][np.diff(mine) == 1]
        walls = p.start[neighbours + 1] - p.start[neighbours]
        shown = ~p.is_blind[mine].all()
        result.append(
            StepCost(
                role=code.name.lower(),
                count=len(mine),
                gpu_ns=int(p.gpu_ns[mine].sum()),
                busy_ns=line.busy_ns(events),
                wall_ns=float(np.median(walls)) if len(walls) and shown else None,
                width=structure.usual(p.width[mine][p.width[mine] > 0]),
                basis=str(layout.basis[mine[0]]),
            )
        )
    return result


def _acceptance(options: Options, semantics: Semantics, found: Structure) -> Acceptance | None:
    """Acceptance as given, or as the replay steps of each round tell it."""
    if options.n_ok is not None:
        counts = list(options.n_ok)
        k, rounds = len(counts) - 1, sum(counts)
        accepted = sum(n * c for n, c in enumerate(counts))
        return Acceptance(
            source="given",
            rounds=rounds,
            k=k,
            n_ok=counts,
            accepted=accepted,
            drafted=rounds * k,
            per_position=[sum(counts[j:]) / rounds for j in range(1, k + 1)] if rounds else None,
            tokens=sum(TOKENS[semantics.tokens](n) * c for n, c in enumerate(counts)),
        )
    return None


def replay_total(options: Options, semantics: Semantics) -> int | None:
    """Replay steps that the histogram means under the engine's rule; None without a histogram."""
    if options.n_ok is None:
        return None
    k = len(options.n_ok) - 1
    return sum(c * REPLAY_STEPS[semantics.replay](n, k) for n, c in enumerate(options.n_ok))
