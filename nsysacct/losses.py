"""Events that the collector lost: what the trace itself lets one prove.

Three witnesses. Launch calls without a kernel row (launches that only build a graph aside). Jumps in
the correlation ids, which CUPTI hands out one by one: ids of calls that were never delivered. NVTX
ranges of a phase that go on after the last GPU event. What the collector says (DIAGNOSTIC_EVENT) is
quoted, but ranged captures say it although nothing is missing, so it proves nothing by itself.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from nsysacct.model import BlindSpot, Finding
from nsysacct.nvtx import default_code
from nsysacct.timeline import Kind, Timeline
from nsysacct.trace import NONE, ApiKind, Trace
from nsysacct.trace.join import ById

I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

SAID = re.compile(
    r"events? m(?:ay|ight) (?:be missing|have been lost|not)|might have been collected|CUPTI dropped"
    r"|allocate CUPTI buf|incomplete CUPTI events|will likely be truncated|size limit on recording",
    re.IGNORECASE,
)
"""Collector texts that speak of lost events (DIAGNOSTIC_EVENT.text)."""

EDGE = 0.002
"""Launches without kernels up to this share are capture edges, not a loss."""

JUMP = 2000
"""Correlation ids skipped at once that no start-up code explains (about 1,000 were seen there)."""

LATE_NS = 10_000_000
"""A marked phase may end this long after the last GPU event, or 5 % of the capture."""

REMEDY = (
    "capture a shorter part (-c cudaProfilerApi, or --duration), flush more often "
    "(--cuda-flush-interval=100), or use an nsys that matches the driver"
)


def find(trace: Trace, line: Timeline) -> tuple[list[BlindSpot], list[Finding]]:
    """Losses of one timeline, and the collector's own words where nothing is lost."""
    seen = line.end_of(line.kind != Kind.BLIND)
    last = int(seen.max()) if len(seen) else None
    spots = [
        spot
        for spot in (
            _launches(trace, line, last),
            _jumps(trace, line, last),
            _late_marks(trace, line, last),
        )
        if spot is not None
    ]
    said = [d.text.strip() for d in trace.diagnostics if SAID.search(d.text)]
    if not said:
        return spots, []
    proof = "the trace shows what is missing" if spots else "but every launch has its kernel"
    return spots, [
        Finding(
            kind="collector-warning",
            severity="warning" if spots else "info",
            detail=f"the collector says {said[0]!r}; {proof}",
        )
    ]


def _launches(trace: Trace, line: Timeline, last: int | None) -> BlindSpot | None:
    """Launch calls whose kernel is not in the trace."""
    api, kernels = trace.api, trace.kernels
    launching = (api.kind == ApiKind.KERNEL_LAUNCH) & (api.process == line.process)
    launching &= api.return_value == 0
    mine = kernels.process == line.process
    shown = ById.of(kernels.correlation if mine.all() else kernels.correlation[mine])
    without = np.flatnonzero(launching & (shown.rows(api.correlation) == NONE))
    missing = without[~_while_capturing(trace, without)]
    if not len(missing):
        return None
    launches = int(np.count_nonzero(launching))
    launches -= int(np.count_nonzero(_while_capturing(trace, np.flatnonzero(launching))))
    share = len(missing) / launches
    if share <= EDGE:
        return None
    tail = last is not None and float((api.start[missing] > last).mean()) > 0.5
    where = (
        f"nearly all after {_s(last)}, the last trustworthy time"
        if tail
        else "spread over the capture"
    )
    return BlindSpot(
        kind="lost-tail" if tail else "lost-events",
        severity="fatal" if share > 0.01 else "warning",
        hidden_ns=None,
        hidden_max_ns=int(api.end_of(missing).max() - api.start[missing].min()),
        basis=None,
        count=len(missing),
        detail=f"{len(missing)} of {launches} kernel launches ({share:.1%}) have no kernel row, {where}",
        remedy=REMEDY,
    )


def _jumps(trace: Trace, line: Timeline, last: int | None) -> BlindSpot | None:
    """Correlation ids that were handed out and never delivered."""
    api = trace.api
    valid = (api.process == line.process) & (api.correlation > 0)
    count = int(np.count_nonzero(valid))
    if count < 2:
        return None
    ids = api.correlation if valid.all() else api.correlation[valid]
    ids = ids if (ids[1:] >= ids[:-1]).all() else np.sort(ids)
    skipped = np.diff(ids)
    skipped -= 1
    if int(skipped.max()) < JUMP:
        return None
    # a library that calls untraced functions skips a few ids all the time; a loss skips thousands
    usual = float(np.percentile(skipped, 99))
    lost = np.flatnonzero(skipped >= max(JUMP, 20 * usual))
    if not len(lost):
        return None
    before = np.flatnonzero(valid & (api.correlation == ids[lost[0]]))
    first = int(api.end_of(before)[-1])
    total = int(skipped[lost].sum())
    ends = "" if last is None else f"; the last GPU event is at {_s(last)}"
    return BlindSpot(
        kind="lost-events",
        severity="fatal" if total > 0.01 * count else "warning",
        hidden_ns=None,
        basis=None,
        count=total,
        detail=f"{total} correlation ids are missing in {len(lost)} jumps, {count} calls are there: whole "
        "stretches of calls and their kernels were not delivered; trustworthy up to "
        f"{_s(first)}, before the first jump{ends}",
        remedy=REMEDY,
    )


def _late_marks(trace: Trace, line: Timeline, last: int | None) -> BlindSpot | None:
    """A phase that NVTX marks long after the last GPU event."""
    ranges = trace.nvtx
    if last is None or not len(ranges.start):
        return None
    phases = np.array([default_code(t) is not None for t in trace.nvtx_names] or [False], bool)
    mine = np.flatnonzero((ranges.process == line.process) & phases[ranges.text])
    if not len(mine):
        return None
    end = np.where(ranges.end[mine] == NONE, trace.info.duration_ns or last, ranges.end[mine])
    latest = int(np.argmax(end))
    begin = int(min(line.launch.min(), ranges.start[mine].min()))
    late = int(end[latest]) - last
    if late <= max(LATE_NS, (last - begin) // 20):
        return None
    text = trace.nvtx_names[int(ranges.text[mine[latest]])]
    return BlindSpot(
        kind="lost-tail",
        severity="fatal",
        hidden_ns=None,
        hidden_max_ns=late,
        basis=None,
        count=None,
        detail=f"the NVTX range {text!r} goes on for {late / 1e6:.1f} ms after {_s(last)}, "
        "the last GPU event in the trace",
        remedy=REMEDY,
    )


def _s(ns: int | None) -> str:
    return "?" if ns is None else f"{ns / 1e9:.3f} s"


def _while_capturing(trace: Trace, launches: I64) -> Bool:
    """Launches between BeginCapture and EndCapture of their thread: they build a graph, nothing runs."""
    api = trace.api
    begins = np.array(["StreamBeginCapture" in n for n in trace.api_names] or [False], bool)
    ends = np.array(["StreamEndCapture" in n for n in trace.api_names] or [False], bool)
    inside = np.zeros(len(launches), bool)
    if not begins.any() or not len(launches):
        return inside
    opened, closed = np.flatnonzero(begins[api.name]), np.flatnonzero(ends[api.name])

    def of_thread(calls: I64, process: int, thread: int) -> Bool:
        return np.asarray((api.process[calls] == process) & (api.thread[calls] == thread))

    threads = {*zip(api.process[opened].tolist(), api.thread[opened].tolist(), strict=True)}
    for one in threads:
        mine = np.flatnonzero(of_thread(launches, *one))
        at = api.start[launches[mine]]
        started = np.searchsorted(np.sort(api.start[opened[of_thread(opened, *one)]]), at)
        ended = np.searchsorted(np.sort(api.start[closed[of_thread(closed, *one)]]), at)
        inside[mine] = started > ended
    return inside
