"""Placing the events of a trace: timelines, what names and ranges say of them, structure, attribution."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from nsysacct import blindspots, evidence, losses, nvtx, perround, structure, timeline
from nsysacct.attribution import Attribution, attribute
from nsysacct.errors import TraceError, UsageError
from nsysacct.evidence import Code
from nsysacct.model import Semantics
from nsysacct.options import Options
from nsysacct.registry import EngineSpec
from nsysacct.structure import Structure
from nsysacct.timeline import Timeline
from nsysacct.trace import Trace

I32 = npt.NDArray[np.int32]

PLACING = "placing events"
"""What is done, as progress tells it."""
STAGES = 3
"""Stages of it that take about as long: launch order, structure and place, sums."""
MOST_PAIRS = 1_000
"""(process, GPU) pairs of one capture beyond which its process ids cannot be right."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One timeline, with what the rows of the trace say of it.

    Attributes
    ----------
    line : Timeline
    names : NameEvidence
        What kernel names say of its events.
    unseen : Unseen
        What the trace does not show.
    """

    line: Timeline
    names: evidence.NameEvidence
    unseen: blindspots.Unseen


def lines_of(trace: Trace, spec: EngineSpec | None, options: Options) -> list[Seen]:
    """Timelines of all (process, GPU) pairs; blind launches go to a process's first GPU.

    All that needs the rows of the trace is read here: then they are let go, as the timelines hold
    the same again.
    """
    pairs = timeline.accounts_of(trace)
    if len(pairs) > MOST_PAIRS:
        raise TraceError(
            trace.name,
            f"GPU work of {len(pairs)} pairs of process and GPU, more than any machine runs",
            "the columns that name processes are damaged: export the report again",
        )
    first_gpu = dict(reversed(pairs))
    lines: list[Seen] = []
    rows = len(trace.kernels) + len(trace.memops) + len(trace.graph_runs)
    trace.tell(PLACING, 0, rows)
    stocks = {process: losses.take_stock(trace, process) for process in first_gpu}
    for process, gpu in pairs:
        line = timeline.build(trace, process, gpu, with_blind=first_gpu[process] == gpu)
        names = evidence.read_names(line, trace, spec, exclusive="exclusive" not in options.ignore)
        lines.append(Seen(line, names, blindspots.look(trace, line, stocks[process])))
        trace.tell(PLACING, rows * len(lines) // (STAGES * len(pairs)), rows)
    trace.release()
    return lines


@dataclass(frozen=True, slots=True)
class Placed:
    """Structure and attribution of one timeline.

    Attributes
    ----------
    options : Options
        Those that fit it.
    clash : UsageError or None
        What of the options given does not.
    marks : Projection
        What NVTX says of its events.
    found : Structure
    placed : Attribution
    round_of : int32, one per event
        Round; NONE outside the rounds.
    """

    options: Options
    clash: UsageError | None
    marks: nvtx.Projection
    found: Structure
    placed: Attribution
    round_of: I32


def place(trace: Trace, seen: Seen, spec: EngineSpec | None, options: Options) -> Placed:
    """Read the structure of one timeline and place its events.

    A k that this timeline contradicts may be meant for another one: it is read without.
    """
    line, names = seen.line, seen.names
    marks = _nvtx(line, trace, spec, options)
    semantics = spec.semantics if spec else Semantics()
    found = structure.read(
        line,
        names,
        semantics=semantics,
        streams=spec.streams if spec else "",
        known_engine=spec is not None
        and spec.shows_every_verify(opaque_graphs=line.has_opaque_graphs),
        plan=options.plan,
        k=options.k,
        n_ok=options.n_ok or options.printed_histogram,
        overrides=options.graph_roles,
        marks=marks,
        brought_bytes=trace.memops.bytes[line.source[line.copies_in]],
    )
    clash = _clash(found, semantics, options)
    if clash is not None:
        own = place(trace, seen, spec, replace(options, k=None, n_ok=None))
        return replace(own, clash=clash)
    placed = attribute(
        line,
        names,
        marks.code,
        found.passes.pass_of,
        found.layout.code,
        found.layout.basis,
        options.ignore,
    )
    round_of = perround.round_of_events(line, found, placed)
    return Placed(options, None, marks, found, placed, round_of)


def _nvtx(
    line: Timeline, trace: Trace, spec: EngineSpec | None, options: Options
) -> nvtx.Projection:
    if "nvtx" in options.ignore or not len(trace.nvtx.start):
        return nvtx.nothing(len(line))
    shipped = spec.nvtx if spec else ()
    rules = [*options.nvtx, *(nvtx.Rule(r.pattern, Code[r.bucket.upper()]) for r in shipped)]
    steps = spec.steps if spec else ()
    return nvtx.project(line, trace, rules, defaults=True, steps=steps)


def _clash(found: Structure, semantics: Semantics, options: Options) -> UsageError | None:
    """What a k or a histogram says that the verify kernels contradict."""
    seen = None
    if found.width is not None:
        seen = found.width if semantics.verify_width == "k" else found.width - 1
    given = options.k
    if options.n_ok is not None:
        from_histogram = len(options.n_ok) - 1
        if given is not None and given != from_histogram:
            raise UsageError(
                "--n-ok",
                f"{len(options.n_ok)} counts mean k = {from_histogram}, but --k says {given}",
                "fix one of them",
            )
        given = from_histogram
    if given is None or seen is None or given == seen:
        return None
    return UsageError(
        f"k = {given}",
        f"does not fit: verify kernels run on {found.width} rows, which is k = {seen} here",
        f"give --k {seen}, or a histogram of {seen + 1} counts",
    )
