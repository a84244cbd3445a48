"""What the trace does not show, named, priced where it can be, and how to capture it.

A graph launch is expanded (kernels with a graphNodeId), timed (a GRAPH_TRACE row) or blind (neither).
Blind launches are priced by arithmetic (steps x the wall of one step), else bounded by the host (from
the launch call to the end of the next synchronisation), else left open: never zero in silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from nsysacct.evidence import Code
from nsysacct.model import BlindSpot, Finding, GraphInfo, Window
from nsysacct.structure import Structure
from nsysacct.timeline import Kind, Timeline
from nsysacct.trace import ApiKind, Trace

if TYPE_CHECKING:
    from nsysacct.account import Options

NODE = "--cuda-graph-trace=node"
RECENT = "nsys 2024.2 or later writes whole-graph times"

LOSS = re.compile(
    r"events? m(?:ay|ight) (?:be missing|have been lost|not)|might have been collected|CUPTI dropped"
    r"|allocate CUPTI buf|incomplete CUPTI events|will likely be truncated|size limit on recording",
    re.IGNORECASE,
)
"""Collector texts that speak of lost events (DIAGNOSTIC_EVENT.text)."""


@dataclass(slots=True)
class Shown:
    """Blind spots, findings, and what invisible work was priced at: bucket -> basis -> ns."""

    spots: list[BlindSpot] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    priced: dict[str, dict[str, int]] = field(default_factory=dict)


def find(
    trace: Trace,
    line: Timeline,
    found: Structure,
    graphs: Sequence[GraphInfo],
    options: Options,
    window: Window,
) -> Shown:
    """Look for everything that the trace hides in one timeline."""
    shown = Shown()
    _blind_graphs(trace, line, found, options, shown)
    _opaque_graphs(graphs, shown)
    _lost(trace, line, shown)
    _nameless(trace, shown)
    _untraced(trace, shown)
    _rejected(trace, shown)
    _cut_edges(line, found, shown)
    del window
    return shown


# --- graphs ----------------------------------------------------------------------------------------


def _blind_graphs(
    trace: Trace, line: Timeline, found: Structure, options: Options, shown: Shown
) -> None:
    """Graph launches without kernels and without a time."""
    blind = np.flatnonzero(line.kind == Kind.BLIND)
    if not len(blind):
        return
    code = found.layout.code[found.passes.pass_of[blind]]
    counts = {Code(int(c)): int(n) for c, n in zip(*np.unique(code, return_counts=True), strict=True)}
    bounds = _host_bounds(trace, line, blind)
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
        severe = "warning" if hidden is not None or phase in (Code.PLAIN, Code.PREFILL, Code.DECODE) else "fatal"
        shown.spots.append(
            BlindSpot(
                kind="graph-blind",
                severity=severe,
                hidden_ns=hidden,
                basis=basis,
                bucket=bucket,
                count=launches,
                detail=f"{launches} graph launches ({bucket}) left neither kernels nor a graph time; {how}",
                remedy=f"capture again with {NODE} (names and times) or a newer nsys ({RECENT})",
            )
        )
    if proof:
        shown.findings.append(Finding(kind="kernel-time-below-wall", severity="info", detail=proof))
    if found.layout.reconciled:
        shown.findings.append(
            Finding(kind="graph-launches", severity="info", detail=found.layout.reconciled)
        )


_STEPS = (Code.REPLAY, Code.PREFILL, Code.DECODE, Code.PLAIN, Code.TARGET)
"""Phases whose passes are one-row target steps, so that a step time prices them."""


def _host_bounds(trace: Trace, line: Timeline, events: np.ndarray) -> np.ndarray | None:  # type: ignore[type-arg]
    """Launch call to the end of the process's next synchronisation, ns per event; None without syncs."""
    api = trace.api
    syncs = np.flatnonzero((api.process == line.process) & (api.kind == ApiKind.SYNC))
    if not len(syncs):
        return None
    syncs = syncs[np.argsort(api.start[syncs], kind="stable")]
    at = np.searchsorted(api.start[syncs], line.launch[events])
    inside = at < len(syncs)
    until = np.where(inside, api.end[syncs[np.minimum(at, len(syncs) - 1)]], line.launch[events])
    return np.asarray(np.maximum(until - line.launch[events], 0))


def _below_wall(line: Timeline, blind: np.ndarray, bounds: np.ndarray | None, code: np.ndarray) -> str:  # type: ignore[type-arg]
    """The self-evident proof: all kernel time is less than the wall of a part that waited on the GPU."""
    total = int(line.duration[line.is_gpu_time].sum())
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
    shown.spots.append(
        BlindSpot(
            kind="graph-names",
            severity="info",
            hidden_ns=0,
            basis="graph",
            count=launches,
            detail=f"{launches} launches of {len(timed)} graphs are timed as a whole ({total / 1e6:.3f} ms): "
            "what runs inside, and the gaps between, are not shown",
            remedy=f"for proportions inside, a second capture with {NODE} (it slows graphs down)",
        )
    )


# --- losses ----------------------------------------------------------------------------------------

EDGE = 0.002
"""Launches without kernels up to this share are capture edges, not a loss."""


def _lost(trace: Trace, line: Timeline, shown: Shown) -> None:
    """Launches whose kernels are missing, and what the collector says of it."""
    api = trace.api
    launches = np.flatnonzero(
        (api.process == line.process) & (api.kind == ApiKind.KERNEL_LAUNCH) & (api.return_value == 0)
    )
    launches = launches[~_while_capturing(trace, launches)]
    said = [d for d in trace.diagnostics if LOSS.search(d.text)]
    if not len(launches):
        return
    kernels = trace.kernels
    joined = np.isin(api.correlation[launches], kernels.correlation[kernels.process == line.process])
    missing = launches[~joined]
    share = len(missing) / len(launches)
    if share <= EDGE:
        if said:
            shown.findings.append(
                Finding(
                    kind="collector-warning",
                    severity="info",
                    detail=f"the collector says {said[0].text.strip()!r}, but every launch has its kernel "
                    f"({len(launches) - len(missing)} of {len(launches)})",
                )
            )
        return
    seen = line.end[line.kind != Kind.BLIND]
    last = int(seen.max()) if len(seen) else None
    tail = bool(last is not None and (api.start[missing] > last).mean() > 0.5)
    window = _bounded_window(trace, line, missing)
    where = (
        f"nearly all after {last / 1e9:.3f} s, the last trustworthy time"
        if tail and last is not None
        else "spread over the capture"
    )
    note = f"; the collector says {said[0].text.strip()!r}" if said else ""
    shown.spots.append(
        BlindSpot(
            kind="lost-tail" if tail else "lost-events",
            severity="fatal" if share > 0.01 else "warning",
            hidden_ns=None,
            hidden_max_ns=window,
            basis=None,
            count=len(missing),
            detail=f"{len(missing)} of {len(launches)} kernel launches ({share:.1%}) have no kernel row, {where}{note}",
            remedy="capture a shorter part (-c cudaProfilerApi or --duration), flush more often "
            "(--cuda-flush-interval=100), or use an nsys that matches the driver",
        )
    )


def _while_capturing(trace: Trace, launches: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Launches between BeginCapture and EndCapture of their thread: they build a graph, nothing runs."""
    api = trace.api
    begins = np.array(["StreamBeginCapture" in n for n in trace.api_names] or [False], bool)
    ends = np.array(["StreamEndCapture" in n for n in trace.api_names] or [False], bool)
    inside = np.zeros(len(launches), bool)
    opened, closed = np.flatnonzero(begins[api.name]), np.flatnonzero(ends[api.name])
    lane = api.process.astype(np.int64) * (1 << 32) + api.thread
    for thread in np.unique(lane[opened]):
        mine = np.flatnonzero(lane[launches] == thread)
        at = api.start[launches[mine]]
        started = np.searchsorted(np.sort(api.start[opened[lane[opened] == thread]]), at)
        ended = np.searchsorted(np.sort(api.start[closed[lane[closed] == thread]]), at)
        inside[mine] = started > ended
    return inside


def _bounded_window(trace: Trace, line: Timeline, missing: np.ndarray) -> int | None:  # type: ignore[type-arg]
    """Host time from the first to the last launch without a kernel: no more than that is hidden."""
    api = trace.api
    if not len(missing):
        return None
    del line
    return int(api.end[missing].max() - api.start[missing].min())


def _nameless(trace: Trace, shown: Shown) -> None:
    nameless = [n for n in trace.kernel_names if n.startswith("<string id")]
    if nameless:
        shown.spots.append(
            BlindSpot(
                kind="nameless-kernels",
                severity="fatal",
                hidden_ns=None,
                basis=None,
                count=len(nameless),
                detail=f"{len(nameless)} kernel names are missing from the export",
                remedy="export again without --tables, so that StringIds is complete",
            )
        )


def _untraced(trace: Trace, shown: Shown) -> None:
    """Processes that launched kernels of which the trace has none."""
    api = trace.api
    for i, process in enumerate(trace.processes):
        launches = int(((api.process == i) & (api.kind == ApiKind.KERNEL_LAUNCH) & (api.return_value == 0)).sum())
        if launches and not (trace.kernels.process == i).any():
            shown.spots.append(
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
            )


def _rejected(trace: Trace, shown: Shown) -> None:
    for table, reason, count in trace.rejected:
        shown.spots.append(
            BlindSpot(
                kind="bad-rows",
                severity="warning",
                hidden_ns=None,
                basis=None,
                count=count,
                detail=f"{count} rows of {table} left out: {reason}",
                remedy="export again from the .nsys-rep; if they stay, capture again",
            )
        )


def _cut_edges(line: Timeline, found: Structure, shown: Shown) -> None:
    """Rounds that the start or the end of the capture cuts."""
    layout = found.layout
    if layout.rounds < 2:
        return
    drafts = layout.draft_passes
    usual = int(np.median(drafts))
    if usual and drafts[0] < usual and layout.code[: layout.verify[0]].size == drafts[0]:
        shown.spots.append(
            BlindSpot(
                kind="cut-round",
                severity="info",
                hidden_ns=None,
                basis=None,
                count=1,
                detail=f"the first round has {int(drafts[0])} draft passes of {usual}: the capture began inside it",
                remedy="start the capture before the request",
            )
        )
    del line


def summary(spots: Sequence[BlindSpot]) -> Mapping[str, int]:
    """Number of blind spots by severity."""
    return {s: sum(b.severity == s for b in spots) for s in ("fatal", "warning", "info")}
