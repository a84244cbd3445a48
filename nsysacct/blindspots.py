"""What the trace does not show, named, priced where it can be, and how to capture it.

A graph launch is expanded (kernels with a graphNodeId), timed (a GRAPH_TRACE row) or blind (neither).
Blind launches are priced by arithmetic (steps x the wall of one step), else bounded by the host (from
the launch call to the end of the next synchronisation), else left open: never zero in silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nsysacct import losses, perround
from nsysacct.evidence import Code
from nsysacct.groups import counts
from nsysacct.layout import count
from nsysacct.model import BlindSpot, Finding, GraphInfo
from nsysacct.structure import Structure
from nsysacct.timeline import Kind, Timeline
from nsysacct.trace import ApiKind, Trace

if TYPE_CHECKING:
    from nsysacct.account import Options

NODE = "--cuda-graph-trace=node"
RECENT = "nsys 2024.2 or later writes whole-graph times"


@dataclass(slots=True)
class Shown:
    """Blind spots, findings, and what invisible work was priced at: bucket -> basis -> ns."""

    spots: list[BlindSpot] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    priced: dict[str, dict[str, int]] = field(default_factory=dict)

    def hide(
        self,
        kind: str,
        severity: str,
        count: int,
        detail: str,
        remedy: str,
        *,
        hidden_ns: int | None = None,
        basis: str | None = None,
        bucket: str | None = None,
    ) -> None:
        """Add a blind spot; its hidden time is open unless given."""
        self.spots.append(
            BlindSpot(
                kind=kind,
                severity=severity,
                hidden_ns=hidden_ns,
                basis=basis,
                bucket=bucket,
                count=count,
                detail=detail,
                remedy=remedy,
            )
        )


@dataclass(frozen=True, slots=True)
class Unseen:
    """What only the rows of the trace tell of one timeline.

    Attributes
    ----------
    lost : list of BlindSpot
        Events that the collector lost.
    said : list of Finding
        What the collector says of it.
    untraced : list of BlindSpot
        Processes without GPU rows.
    host_bounds : int64 array or None
        Of each blind launch, from its call to the end of the process's next synchronisation, ns;
        None without synchronisations.
    """

    lost: list[BlindSpot]
    said: list[Finding]
    untraced: list[BlindSpot]
    host_bounds: npt.NDArray[np.int64] | None


def look(trace: Trace, line: Timeline, stock: losses.Stock) -> Unseen:
    """Take down what needs the rows of the trace, before they are let go."""
    lost, said = losses.find(trace, line, stock)
    blind = np.flatnonzero(line.kind == Kind.BLIND)
    bounds = _host_bounds(trace, line, blind) if len(blind) else None
    return Unseen(lost, said, _untraced(trace), bounds)


def find(
    trace: Trace,
    line: Timeline,
    unseen: Unseen,
    found: Structure,
    graphs: Sequence[GraphInfo],
    options: Options,
) -> Shown:
    """Look for everything that the trace hides in one timeline."""
    shown = Shown()
    _blind_graphs(line, unseen.host_bounds, found, options, shown)
    _opaque_graphs(graphs, shown)
    if found.layout.reconciled:
        shown.findings.append(
            Finding(kind="graph-launches", severity="info", detail=found.layout.reconciled)
        )
    shown.spots += unseen.lost
    shown.findings += unseen.said
    _nameless(trace, shown)
    shown.spots += unseen.untraced
    _rejected(trace, shown)
    _cut_edges(found, shown)
    return shown


# --- graphs ----------------------------------------------------------------------------------------


def _blind_graphs(
    line: Timeline,
    bounds: npt.NDArray[np.int64] | None,
    found: Structure,
    options: Options,
    shown: Shown,
) -> None:
    """Graph launches without kernels and without a time."""
    blind = np.flatnonzero(line.kind == Kind.BLIND)
    if not len(blind):
        return
    code = found.layout.code[found.passes.pass_of[blind]]
    counts = {
        Code(int(c)): int(n) for c, n in zip(*np.unique(code, return_counts=True), strict=True)
    }
    proof = _below_wall(line, blind, bounds, code)
    for phase, launches in sorted(counts.items()):
        mine = code == phase
        bucket = phase.name.lower() if phase != Code.UNKNOWN else "unattributed"
        bucket = "unattributed" if phase in (Code.TARGET, Code.MODEL, Code.SHARED) else bucket
        hidden, basis = None, None
        if options.step_ns is not None and phase in _STEPS:
            hidden, basis = launches * options.step_ns, "arithmetic"
            how = f"{launches} x {options.step_ns / 1e6:.3f} ms a step"
        elif bounds is not None:
            hidden, basis = int(bounds[mine].sum()), "bound"
            how = "at most: from each launch to the end of the next synchronisation of the host"
        else:
            how = "no time known: give --step-ms to price it"
        if hidden is not None and basis is not None:
            shown.priced.setdefault(bucket, {})[basis] = hidden
        severe = (
            "warning"
            if hidden is not None or phase in (Code.PLAIN, Code.PREFILL, Code.DECODE)
            else "fatal"
        )
        shown.hide(
            "graph-blind",
            severe,
            launches,
            f"{launches} graph launches ({bucket}) left neither kernels nor a graph time; {how}",
            f"capture again with {NODE} (names and times) or a newer nsys ({RECENT})",
            hidden_ns=hidden,
            basis=basis,
            bucket=bucket,
        )
    if proof:
        shown.findings.append(Finding(kind="kernel-time-below-wall", severity="info", detail=proof))


_STEPS = (Code.REPLAY, Code.PREFILL, Code.DECODE, Code.PLAIN, Code.TARGET)
"""Phases whose passes are one-row target steps, so that a step time prices them."""


def _host_bounds(
    trace: Trace, line: Timeline, events: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64] | None:
    """Launch call to the end of the process's next synchronisation, ns per event; None without syncs."""
    api = trace.api
    syncs = np.flatnonzero((api.process == line.process) & (api.kind == ApiKind.SYNC))
    if not len(syncs):
        return None
    syncs = syncs[np.argsort(api.start[syncs], kind="stable")]
    at = np.searchsorted(api.start[syncs], line.launch[events])
    inside = at < len(syncs)
    until = np.where(inside, api.end_of(syncs[np.minimum(at, len(syncs) - 1)]), line.launch[events])
    return np.asarray(np.maximum(until - line.launch[events], 0))


def _below_wall(
    line: Timeline,
    blind: npt.NDArray[np.int64],
    bounds: npt.NDArray[np.int64] | None,
    code: npt.NDArray[np.uint8],
) -> str:
    """The self-evident proof: all kernel time is less than the wall of a part that waited on the GPU."""
    total = line.spent_ns(line.is_gpu_time)
    if bounds is None:
        return ""
    outside = np.isin(code, [Code.PLAIN, Code.PREFILL, Code.DECODE])
    if not outside.any():
        return ""
    waited = int(bounds[outside].sum())
    if total >= waited:
        return (
            f"kernel time in the trace is {total / 1e6:.2f} ms; the host waited {waited / 1e6:.2f} ms on "
            f"{int(outside.sum())} graph launches before the rounds, none of it shown"
        )
    return (
        f"all kernels of the trace sum to {total / 1e6:.2f} ms, less than the {waited / 1e6:.2f} ms that the host "
        f"waited on {int(outside.sum())} graph launches alone: their kernels are not in the trace"
    )


def _opaque_graphs(graphs: Sequence[GraphInfo], shown: Shown) -> None:
    """Graphs timed as a whole: a measurement, but without names inside."""
    timed = [g for g in graphs if g.state == "timed"]
    if not timed:
        return
    total = sum(g.gpu_ns or 0 for g in timed)
    launches = sum(g.launches for g in timed)
    shown.hide(
        "graph-names",
        "info",
        launches,
        f"{count(launches, 'launch')} of {count(len(timed), 'graph')} are timed as a whole "
        f"({total / 1e6:.3f} ms): what runs inside, and the gaps between, are not shown",
        f"for proportions inside, a second capture with {NODE} (it slows graphs down)",
        hidden_ns=0,
        basis="graph",
    )


# --- rows and processes ------------------------------------------------------------------------------


def _nameless(trace: Trace, shown: Shown) -> None:
    nameless = [n for n in trace.kernel_names if n.startswith("<string id")]
    if nameless:
        shown.hide(
            "nameless-kernels",
            "fatal",
            len(nameless),
            f"{len(nameless)} kernel names are missing from the export",
            "export again without --tables, so that StringIds is complete",
        )


def _untraced(trace: Trace) -> list[BlindSpot]:
    """Processes that launched kernels of which the trace has none."""
    api, processes = trace.api, trace.processes
    launching = (api.process >= 0) & (api.kind == ApiKind.KERNEL_LAUNCH) & (api.return_value == 0)
    launches_of = counts(api.process[launching], len(processes)).tolist()
    kernels_of = counts(trace.kernels.process, len(processes)).tolist()
    return [
        BlindSpot(
            kind="process-not-traced",
            severity="warning",
            hidden_ns=None,
            basis=None,
            count=launches,
            detail=f"pid {process.pid} launched {launches} kernels, the trace has none of them",
            remedy="trace child processes (--trace-fork-before-exec=true; for vLLM "
            "VLLM_WORKER_MULTIPROC_METHOD=spawn)",
        )
        for process, launches, kernels in zip(processes, launches_of, kernels_of, strict=True)
        if launches and not kernels
    ]


def _rejected(trace: Trace, shown: Shown) -> None:
    for r in trace.rejected:
        shown.hide(
            "bad-rows",
            "warning",
            r.count,
            f"{r.count} rows of {r.table} left out: {r.reason}",
            "export again from the .nsys-rep; if they stay, capture again",
        )


def _cut_edges(found: Structure, shown: Shown) -> None:
    """Rounds that the start or the end of the capture cuts."""
    for index in perround.partial_rounds(found):
        where = "first" if index == 0 else "last"
        shown.hide(
            "cut-round",
            "info",
            1,
            f"the capture cuts the {where} round: it counts, but is left out of means per round",
            "capture whole requests",
        )
