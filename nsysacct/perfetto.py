"""An account as a trace for ui.perfetto.dev (Chrome's JSON trace events).

Rounds are slices with their n_ok and costs, each bucket has a track a stream, blind launches and
blind spots are instants. Times are from the first event, in microseconds with ns digits.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nsysacct.account import Events
from nsysacct.attribution import BASES
from nsysacct.model import BUCKETS, Account, ProcessAccount
from nsysacct.timeline import Kind

ROUNDS_TRACK = 1
SPOTS_TRACK = 2
FIRST_STREAM_TRACK = 100
STREAMS_OF_A_BUCKET = 10_000

Event = dict[str, Any]


def write_perfetto(
    path: str | Path,
    account: Account,
    events: Sequence[Events] = (),
    kernel_names: Sequence[str] = (),
) -> int:
    """Write the trace; gzip-compressed when `path` ends in ``.gz``.

    Parameters
    ----------
    path : str or Path
    account : Account
        All its (process, GPU) pairs are written.
    events : sequence of Events, optional
        Of `nsysacct.account.events`; without them there are rounds and blind spots only.
    kernel_names : sequence of str
        ``Trace.kernel_names``, for the events.

    Returns
    -------
    int
        Number of trace events. Same account, same bytes.
    """
    count = 0
    with Path(path).open("wb") as raw:
        packed = str(path).endswith(".gz")
        # no name and no time in the header: the bytes depend on the account alone
        binary = gzip.GzipFile("", "wb", 6, raw, mtime=0) if packed else raw
        with io.TextIOWrapper(binary, "utf-8", newline="\n") as text:
            text.write('{"displayTimeUnit":"ns","traceEvents":[\n')
            for event in trace_events(account, events, kernel_names):
                text.write(",\n" if count else "")
                text.write(json.dumps(event, separators=(",", ":")))
                count += 1
            text.write("\n]}\n")
    return count


def trace_events(
    account: Account, events: Sequence[Events], kernel_names: Sequence[str]
) -> Iterator[Event]:
    """Yield Chrome trace events: metadata, rounds, blind spots, GPU work."""
    parts: Sequence[ProcessAccount] = account.processes or [account]
    zero = _zero(parts, events)
    by_pair = {(e.pid, e.gpu): e for e in events}
    for number, part in enumerate(parts, 1):
        title = f"pid {part.pid} on GPU {part.gpu}: {account.trace.name}"
        yield _named("process_name", number, 0, title)
        yield from _rounds(part, number, zero)
        yield from _spots(part, number, zero)
        mine = by_pair.get((part.pid, part.gpu or 0))
        if mine is not None:
            yield from _work(mine, kernel_names, number, zero)


def _zero(parts: Iterable[ProcessAccount], events: Iterable[Events]) -> int:
    """Earliest time, which becomes 0: the format's readers dislike negative times."""
    times = [p.window.start_ns for p in parts]
    for e in events:
        if len(e.line):
            times += [int(e.line.start.min()), int(e.line.launch.min())]
    return min(times, default=0)


def _us(ns: int) -> float:
    """Microseconds; exact to the ns below 2**53 ns (104 days)."""
    return ns / 1000


def _named(kind: str, process: int, track: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}


def _order(process: int, track: int) -> Event:
    return {
        "ph": "M", "name": "thread_sort_index", "pid": process, "tid": track,
        "args": {"sort_index": track},
    }  # fmt: skip


def _rounds(part: ProcessAccount, process: int, zero: int) -> Iterator[Event]:
    if not part.per_round:
        return
    yield _named("thread_name", process, ROUNDS_TRACK, "rounds")
    yield _order(process, ROUNDS_TRACK)
    for r in part.per_round:
        costs = {
            f"{name}_ms": getattr(r, f"{name}_ns") / 1e6
            for name in ("wall", "draft", "verify", "replay", "residual")
        }
        yield {
            "ph": "X", "name": f"round {r.index}", "cat": "round", "pid": process,
            "tid": ROUNDS_TRACK, "ts": _us(r.start_ns - zero), "dur": _us(r.wall_ns),
            "args": {"n_ok": r.n_ok, "n_ok_basis": r.n_ok_basis, **costs, "launches": r.launches,
                     "flags": " ".join(r.flags)},
        }  # fmt: skip


def _spots(part: ProcessAccount, process: int, zero: int) -> Iterator[Event]:
    """Blind spots as instants where the window begins: they are of the run, not of a moment."""
    if not part.blind_spots:
        return
    yield _named("thread_name", process, SPOTS_TRACK, "blind spots")
    yield _order(process, SPOTS_TRACK)
    for s in part.blind_spots:
        yield {
            "ph": "i", "s": "p", "name": f"{s.severity}: {s.kind}", "cat": "blind spot",
            "pid": process, "tid": SPOTS_TRACK, "ts": _us(part.window.start_ns - zero),
            "args": {"hidden_ns": s.hidden_ns, "basis": s.basis, "detail": s.detail,
                     "remedy": s.remedy},
        }  # fmt: skip


def _work(events: Events, kernel_names: Sequence[str], process: int, zero: int) -> Iterator[Event]:
    """One track a bucket and stream, since slices of one track must not cross."""
    line = events.line
    track = (
        FIRST_STREAM_TRACK
        + events.bucket.astype(np.int64) * STREAMS_OF_A_BUCKET
        + np.unique(line.stream, return_inverse=True)[1]
    )
    shown = line.kind != Kind.BLIND
    for number in np.unique(track[shown]).tolist():
        one = int(np.flatnonzero(shown & (track == number))[0])
        name = f"{BUCKETS[events.bucket[one]]}, stream {line.stream[one]}"
        yield _named("thread_name", process, number, name)
        yield _order(process, number)
    for i in np.lexsort((line.end, line.start)).tolist():
        yield _slice(events, i, int(track[i]), kernel_names, process, zero)


def _slice(
    events: Events, i: int, track: int, kernel_names: Sequence[str], process: int, zero: int
) -> Event:
    line, kind = events.line, Kind(int(events.line.kind[i]))
    basis = int(events.basis[i])
    arguments = {
        "bucket": BUCKETS[events.bucket[i]],
        "basis": BASES[basis] if basis < len(BASES) else None,
        "round": int(events.round_of[i]) if events.round_of[i] >= 0 else None,
        "stream": int(line.stream[i]),
    }
    if line.graph[i] >= 0:
        arguments["graph"] = int(line.graph[i])
    if kind == Kind.BLIND:
        return {
            "ph": "i", "s": "p", "name": "graph launch that left no time", "cat": "blind launch",
            "pid": process, "tid": SPOTS_TRACK, "ts": _us(int(line.launch[i]) - zero),
            "args": arguments,
        }  # fmt: skip
    name = f"graph {line.graph[i]}" if kind == Kind.GRAPH else kind.name.lower()
    if kind == Kind.KERNEL:
        name = kernel_names[line.name[i]] if line.name[i] >= 0 else "kernel without a name"
    return {
        "ph": "X", "name": name[:300], "cat": arguments["bucket"], "pid": process, "tid": track,
        "ts": _us(int(line.start[i]) - zero), "dur": _us(int(line.duration[i])),
        "args": arguments,
    }  # fmt: skip
