"""From a trace to an account: every GPU nanosecond of one process on one GPU in a bucket."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsysacct import (
    amounts,
    blindspots,
    census,
    hardware,
    perround,
    placement,
    sharing,
    witnesses,
)
from nsysacct.errors import TraceError, UsageError
from nsysacct.model import (
    IN_ROUNDS,
    Acceptance,
    Account,
    EngineInfo,
    Finding,
    ProcessAccount,
    Semantics,
)
from nsysacct.options import Options
from nsysacct.placement import Placed, Seen
from nsysacct.registry import Choice, EngineSpec, Registry, load_registry
from nsysacct.semantics import tokens_of
from nsysacct.structure import Structure
from nsysacct.timeline import Timeline
from nsysacct.trace import Trace
from nsysacct.workers import submit

I32 = npt.NDArray[np.int32]

MANY_GRAPHS = 8
"""Executable graphs that a message names before it stops."""

__all__ = ["Events", "Options", "account", "events"]


def account(
    trace: Trace, options: Options | None = None, registry: Registry | None = None
) -> Account:
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
    return account_and_events(trace, options, registry)[0]


def account_and_events(
    trace: Trace, options: Options | None = None, registry: Registry | None = None
) -> tuple[Account, list[Events]]:
    """Account for a trace, and tell where each of its events was placed.

    Parameters
    ----------
    trace, options, registry
        As for `account`.

    Returns
    -------
    (Account, list of Events)
        Events of every (process, GPU), in the order of ``Account.processes``.

    Raises
    ------
    NsysacctError
        As for `account`.
    """
    options = options or Options()
    registry = registry or load_registry(options.registry_paths)
    engine = registry.choose(trace.kernel_names, options.engine)
    lines = placement.lines_of(trace, engine.spec, options)
    shared = sharing.findings(trace, [one.line for one in lines])
    places: list[Placed] = []
    parts: list[ProcessAccount] = []
    events = sum(len(one.line) for one in lines)

    def tell() -> None:
        done = len(lines) + len(places) + len(parts)
        trace.tell(placement.PLACING, events * done // (placement.STAGES * len(lines)), events)

    for line in lines:
        places.append(placement.place(trace, line, engine.spec, options))
        tell()
    for line, place, told in zip(lines, places, shared, strict=True):
        parts.append(_one(trace, line, place, engine, told))
        tell()
    if not parts:
        raise TraceError(
            trace.name, "no GPU work in it", "capture the run with nsys profile -t cuda,nvtx"
        )
    _check_graph_roles(parts, options)
    chosen, selection = _choose(trace, parts, options)
    _refuse_clash(
        [place for part, place in zip(parts, places, strict=True) if part is chosen] or places
    )
    spec = _as_seen(
        engine.spec, replays=any(b.bucket == "replay" and b.gpu_ns for b in chosen.buckets)
    )
    witnesses.refuse_wrong_layers(chosen.rounds, trace.name, options)
    _refuse_short_wall(chosen)
    if options.log is not None:
        from nsysacct.runlog import with_log

        logged = with_log(chosen, options.log)
        parts = [logged if p is chosen else p for p in parts]
        chosen = logged
    result = Account(
        **{name: getattr(chosen, name) for name in ProcessAccount.__struct_fields__},
        tool=_tool(),
        trace=hardware.described(trace, chosen),
        engine=EngineInfo(
            name=engine.name,
            how=engine.how,
            variant=spec.variant if spec else "",
            detail=engine.detail,
            registry_digest=spec.digest if spec else "",
            semantics=_semantics(spec),
        ),
        labels=dict(options.labels),
        options=options.recorded(),
        selection=selection,
        gpu_busy_ns=sharing.busy_by_gpu([one.line for one in lines]) if len(lines) > 1 else {},
        processes=parts,
    )
    return result, [
        Events(
            part.pid,
            seen.line.gpu,
            seen.line,
            place.placed.bucket,
            place.placed.basis,
            place.round_of,
        )
        for part, seen, place in zip(parts, lines, places, strict=True)
    ]


def _refuse_short_wall(part: ProcessAccount) -> None:
    """Stop at a wall in which the rounds' own GPU work does not fit."""
    high = part.window.residual_high_ns
    if part.window.wall_how == "given" and high is not None and high < 0:
        needed = (part.window.wall_ns - high) / 1e6
        raise UsageError(
            "--wall-ms",
            f"{part.window.wall_ns / 1e6:g} ms is less than the {needed:.2f} ms of work in the rounds",
            "give the wall of the speculative part",
        )


def _tool() -> str:
    from nsysacct import __version__

    return f"nsysacct {__version__}"


def _as_seen(spec: EngineSpec | None, *, replays: bool) -> EngineSpec | None:
    """The engine in the variant that the trace shows."""
    return spec.as_replaying() if spec is not None and replays else spec


def _semantics(spec: EngineSpec | None) -> Semantics:
    return spec.semantics if spec else Semantics()


def _check_graph_roles(parts: Sequence[ProcessAccount], options: Options) -> None:
    """Refuse roles of executable graphs that no process launches: nothing would come of them."""
    have = sorted({g.graph_exec_id for p in parts for g in p.graphs if g.graph_exec_id is not None})
    for graph in sorted(set(options.graph_roles) - set(have)):
        some = ", ".join(map(str, have[:MANY_GRAPHS])) + (" ..." if len(have) > MANY_GRAPHS else "")
        todo = f"it launches {some}" if have else "it launches none"
        raise UsageError(f"--graph-role {graph}", "no such executable graph in this trace", todo)


def _choose(
    trace: Trace, parts: Sequence[ProcessAccount], options: Options
) -> tuple[ProcessAccount, str]:
    """The account to show first, and why."""
    fitting = [
        p
        for p in parts
        if (options.pid is None or p.pid == options.pid)
        and (options.gpu is None or p.gpu == options.gpu)
    ]
    if not fitting:
        have = ", ".join(f"pid {p.pid} on GPU {p.gpu}" for p in parts)
        wanted = " ".join(
            f"--{name} {value}"
            for name, value in (("pid", options.pid), ("gpu", options.gpu))
            if value is not None
        )
        raise UsageError(wanted, "not in this trace", f"it has {have}")
    if options.all_pids and len(fitting) > 1:
        from nsysacct.ranks import summed

        return summed(fitting), f"sum over {len(fitting)} (process, GPU) pairs, as asked"
    best = max(fitting, key=lambda p: (_in_rounds(p), p.total_gpu_ns))
    if len(parts) == 1:
        return best, ""
    why = (
        "as asked"
        if options.pid is not None or options.gpu is not None
        else "most GPU time in rounds"
    )
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
    return account_and_events(trace, options, registry)[1]


def _one(
    trace: Trace, seen: Seen, place: Placed, engine: Choice, told: Sequence[Finding]
) -> ProcessAccount:
    """Account for one timeline."""
    line, names, options = seen.line, seen.names, place.options
    marks, found, placed, round_of = place.marks, place.found, place.placed, place.round_of
    replays = bool(found.layout.replay_steps.any())
    semantics = _semantics(_as_seen(engine.spec, replays=replays))
    with ThreadPoolExecutor(4, thread_name_prefix="nsysacct-sum") as pool:
        # passes over all events that do not wait for each other; numpy lets go of the interpreter
        in_rounds = submit(
            pool, perround.rounds_and_window, line, found, placed, round_of, semantics
        )
        in_graphs = submit(pool, amounts.graphs, line, found, placed)
        in_steps = submit(pool, amounts.steps, line, found)
        counted = census.take(line, names, found, placed)
        buckets = amounts.buckets(line, placed, counted)
        rows, window = in_rounds.result()
        graphs, steps = in_graphs.result(), in_steps.result()
    kernels = amounts.kernel_rows(trace, names, counted)
    rounds = witnesses.judge(line, trace, names, found, placed, counted, marks, options)
    acceptance = _acceptance(options, semantics, found)
    shown = blindspots.find(trace, line, seen.unseen, found, graphs, options)
    buckets = amounts.with_computed(buckets, shown.priced, rows)
    process = trace.processes[line.process]
    return ProcessAccount(
        pid=process.pid,
        gpu=line.gpu,
        rounds=witnesses.without_losses(rounds, shown.spots),
        window=amounts.wall(window, buckets, shown.priced, options),
        buckets=buckets,
        graphs=graphs,
        blind_spots=shown.spots,
        kernels=kernels,
        per_round=rows,
        steps=hardware.with_dram(steps, trace, line.gpu, found),
        findings=[
            *engine.findings,
            *told,
            *found.layout.findings,
            *placed.findings,
            *witnesses.findings(rounds),
            *shown.findings,
            *_notes(found),
        ],
        acceptance=acceptance,
        total_gpu_ns=line.spent_ns(line.is_gpu_time),
        total_mem_ns=line.spent_ns(line.is_memory),
    )


def _notes(found: Structure) -> list[Finding]:
    if not found.layout.rounds:
        return []  # they are reasons of the verdict then
    return [Finding(kind="roles", severity="info", detail=note) for note in found.notes]


def _refuse_clash(places: Sequence[Placed]) -> None:
    """Stop at a k or a histogram that does not fit any of these timelines."""
    clashes = [place.clash for place in places if place.clash is not None]
    if clashes and len(clashes) == len(places):
        raise clashes[0]


# --- sums ------------------------------------------------------------------------------------------


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
            tokens=tokens_of(counts, semantics.tokens),
        )
    return None
