"""Events that the collector lost: what the trace itself lets one prove.

Three witnesses. Launch calls without a kernel row (launches that only build a graph aside). Jumps in
the correlation ids, which CUPTI hands out one by one: ids of calls that were never delivered. NVTX
ranges of a phase that go on after the last GPU event. What the collector says (DIAGNOSTIC_EVENT) is
quoted, but ranged captures say it although nothing is missing, so it proves nothing by itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsysacct.model import BlindSpot, Finding
from nsysacct.nvtx import default_code
from nsysacct.timeline import Timeline
from nsysacct.trace import NONE, ApiKind, Trace
from nsysacct.trace.join import occur

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


@dataclass(frozen=True, slots=True)
class Stock:
    """What the API rows of one process tell of events that were lost.

    Attributes
    ----------
    launches : int
        Kernel launches that should have left a kernel row.
    missing : (start, end), int64 arrays
        Host times of those that have none, ns.
    calls : int
        Calls with a correlation id.
    skipped, jumps : int
        Correlation ids that were never delivered, and in how many jumps.
    until : int or None
        Host end of the last call before the first jump, ns.
    """

    launches: int
    missing: tuple[I64, I64]
    calls: int
    skipped: int
    jumps: int
    until: int | None


def take_stock(trace: Trace, process: int) -> Stock:
    """Count launches without kernels and ids without calls.

    Parameters
    ----------
    process : int
        Index into ``trace.processes``.
    """
    api, kernels = trace.api, trace.kernels
    launching = (api.kind == ApiKind.KERNEL_LAUNCH) & (api.process == process)
    launching &= api.return_value == 0
    mine = kernels.process == process
    ids = kernels.correlation if mine.all() else kernels.correlation[mine]
    missing = np.flatnonzero(launching & ~occur(api.correlation, ids))
    launches = int(np.count_nonzero(launching))
    if len(missing):
        missing = missing[~_while_capturing(trace, missing)]
        launches -= int(np.count_nonzero(_while_capturing(trace, np.flatnonzero(launching))))
    return Stock(launches, (api.start[missing], api.end_of(missing)), *_skipped(trace, process))


def _skipped(trace: Trace, process: int) -> tuple[int, int, int, int | None]:
    """Calls, ids skipped at once by the thousand, in how many jumps, and the end of the call before."""
    api = trace.api
    valid = (api.process == process) & (api.correlation > 0)
    calls = int(np.count_nonzero(valid))
    if calls < 2:
        return calls, 0, 0, None
    ids = api.correlation if valid.all() else api.correlation[valid]
    ids = ids if (ids[1:] >= ids[:-1]).all() else np.sort(ids)
    steps = np.diff(ids)
    steps -= 1
    if int(steps.max()) < JUMP:
        return calls, 0, 0, None
    # a library that calls untraced functions skips a few ids all the time; a loss skips thousands
    usual = float(np.percentile(steps, 99))
    lost = np.flatnonzero(steps >= max(JUMP, 20 * usual))
    if not len(lost):
        return calls, 0, 0, None
    before = np.flatnonzero(valid & (api.correlation == ids[lost[0]]))
    return calls, int(steps[lost].sum(dtype=np.int64)), len(lost), int(api.end_of(before)[-1])


def find(trace: Trace, line: Timeline, stock: Stock) -> tuple[list[BlindSpot], list[Finding]]:
    """Losses of one timeline, and what the export and its collector say that may mean some.

    Parameters
    ----------
    stock : Stock
        Of the timeline's process.
    """
    last = line.last_end()
    spots = [
        spot
        for spot in (_launches(stock, last), _jumps(stock, last), _late_marks(trace, line, last))
        if spot is not None
    ]
    findings = []
    if trace.versions.newer_than_known:
        findings.append(
            Finding(
                kind="newer-schema",
                severity="info",
                detail=f"export schema {trace.versions.schema} is newer than those known here: what "
                "it moved or renamed is not read",
            )
        )
    said = [d.text.strip() for d in trace.diagnostics if SAID.search(d.text)]
    if said:
        proof = "the trace shows what is missing" if spots else "but every launch has its kernel"
        findings.append(
            Finding(
                kind="collector-warning",
                severity="warning" if spots else "info",
                detail=f"the collector says {said[0]!r}; {proof}",
            )
        )
    return spots, findings


def _launches(stock: Stock, last: int | None) -> BlindSpot | None:
    """Launch calls whose kernel is not in the trace."""
    start, end = stock.missing
    share = len(start) / max(stock.launches, 1)
    if share <= EDGE:
        return None
    tail = last is not None and float((start > last).mean()) > 0.5
    where = (
        f"nearly all after {_s(last)}, the last trustworthy time"
        if tail
        else "spread over the capture"
    )
    return BlindSpot(
        kind="lost-tail" if tail else "lost-events",
        severity="fatal" if share > 0.01 else "warning",
        hidden_ns=None,
        hidden_max_ns=int(end.max() - start.min()),
        basis=None,
        count=len(start),
        detail=f"{len(start)} of {stock.launches} kernel launches ({share:.1%}) have no kernel row, {where}",
        remedy=REMEDY,
    )


def _jumps(stock: Stock, last: int | None) -> BlindSpot | None:
    """Correlation ids that were handed out and never delivered."""
    if not stock.jumps:
        return None
    ends = "" if last is None else f"; the last GPU event is at {_s(last)}"
    return BlindSpot(
        kind="lost-events",
        severity="fatal" if stock.skipped > 0.01 * stock.calls else "warning",
        hidden_ns=None,
        basis=None,
        count=stock.skipped,
        detail=f"{stock.skipped} correlation ids are missing in {stock.jumps} jumps, {stock.calls} calls are "
        "there: whole stretches of calls and their kernels were not delivered; trustworthy up to "
        f"{_s(stock.until)}, before the first jump{ends}",
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
