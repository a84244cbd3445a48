"""An account as a trace for ui.perfetto.dev (Chrome's JSON trace events).

Rounds are slices with their n_ok and costs; each bucket has a track a stream, and further ones
where work of a stream overlaps, since readers drop slices of a track that cross. Blind launches
and blind spots are instants. Times are from the first event, in microseconds with ns digits.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nsysacct.account import Events
from nsysacct.attribution import BASES
from nsysacct.errors import UsageError
from nsysacct.model import BUCKETS, Account, ProcessAccount
from nsysacct.timeline import Kind

FIRST_PROCESS = 1000
"""Above the tracks: a track of the same number would be called the main thread."""
ROUNDS_TRACK = 1
SPOTS_TRACK = 2
FIRST_WORK_TRACK = 100
LONGEST_NAME = 300
"""Characters of a kernel's name; templates can have thousands."""
ROWS_AT_ONCE = 50_000

Event = dict[str, Any]


def write_perfetto(
    path: str | Path,
    account: Account,
    events: Sequence[Events] = (),
    kernel_names: Sequence[str] = (),
    *,
    rounds: tuple[int, int] | None = None,
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
    rounds : (first, last), optional
        Rounds, both ends included, whose GPU work is written; all of it when left out. A browser
        opens some millions of events at most.

    Returns
    -------
    int
        Number of trace events. Same account, same bytes.

    Raises
    ------
    UsageError
        No such rounds.
    """
    parts: Sequence[ProcessAccount] = account.processes or [account]
    if rounds is not None:
        _check_rounds(parts, rounds)
    about = {"tool": account.tool, "trace": account.trace.name}
    count = 0
    with Path(path).open("wb") as raw:
        packed = str(path).endswith(".gz")
        # no name and no time in the header: the bytes depend on the account alone
        binary = gzip.GzipFile("", "wb", 5, raw, mtime=0) if packed else raw
        with io.TextIOWrapper(binary, "ascii", newline="\n") as text:
            text.write(f'{{"displayTimeUnit":"ns","otherData":{_json(about)},"traceEvents":[\n')
            for lines in _blocks(account.trace.name, parts, events, kernel_names, rounds):
                if not lines:
                    continue
                text.write(",\n" if count else "")
                text.write(",\n".join(lines))
                count += len(lines)
            text.write("\n]}\n")
    return count


def _check_rounds(parts: Sequence[ProcessAccount], rounds: tuple[int, int]) -> None:
    highest = max((p.per_round[-1].index for p in parts if p.per_round), default=None)
    if highest is None:
        raise UsageError("rounds", "the account has none", "see the reasons that split prints")
    if not 0 <= rounds[0] <= min(rounds[1], highest):
        raise UsageError(
            "rounds", f"no rounds {rounds[0]} to {rounds[1]}", f"there are 0 to {highest}"
        )


def _blocks(
    title: str,
    parts: Sequence[ProcessAccount],
    events: Sequence[Events],
    kernel_names: Sequence[str],
    rounds: tuple[int, int] | None,
) -> Iterator[list[str]]:
    """Lines of JSON, some at a time: metadata, rounds, blind spots, GPU work."""
    zero = _zero(parts, events)
    by_pair = {(e.pid, e.gpu): e for e in events}
    for number, part in enumerate(parts, FIRST_PROCESS):
        named = [_named("process_name", number, 0, f"pid {part.pid} on GPU {part.gpu}: {title}")]
        yield [
            _json(e) for e in (*named, *_rounds(part, number, zero), *_spots(part, number, zero))
        ]
        mine = by_pair.get((part.pid, part.gpu or 0))
        if mine is not None:
            yield from _work(mine, _chosen(mine, part, rounds), kernel_names, number, zero)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


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


def _track(process: int, track: int, name: str) -> list[Event]:
    """Name of a track, and its place among the others."""
    order = {
        "ph": "M", "name": "thread_sort_index", "pid": process, "tid": track,
        "args": {"sort_index": track},
    }  # fmt: skip
    return [_named("thread_name", process, track, name), order]


def _rounds(part: ProcessAccount, process: int, zero: int) -> Iterator[Event]:
    if not part.per_round:
        return
    yield from _track(process, ROUNDS_TRACK, "rounds")
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
    yield from _track(process, SPOTS_TRACK, "blind spots")
    for s in part.blind_spots:
        yield {
            "ph": "i", "s": "t", "name": f"{s.severity}: {s.kind}", "cat": "blind spot",
            "pid": process, "tid": SPOTS_TRACK, "ts": _us(part.window.start_ns - zero),
            "args": {"hidden_ns": s.hidden_ns, "basis": s.basis, "detail": s.detail,
                     "remedy": s.remedy},
        }  # fmt: skip


def _chosen(
    events: Events, part: ProcessAccount, rounds: tuple[int, int] | None
) -> npt.NDArray[np.intp]:
    """Events to write, by the time at which they begin."""
    line = events.line
    begin = np.where(line.kind == Kind.BLIND, line.launch, line.start)
    order = np.lexsort((line.end, begin))
    if rounds is None:
        return order
    within = [r for r in part.per_round if rounds[0] <= r.index <= rounds[1]]
    if not within:
        return order[:0]
    low, high = within[0].start_ns, within[-1].end_ns
    return order[(begin[order] >= low) & (begin[order] < high)]


def _work(
    events: Events,
    chosen: npt.NDArray[np.intp],
    kernel_names: Sequence[str],
    process: int,
    zero: int,
) -> Iterator[list[str]]:
    """GPU work in lines of JSON. Texts are made once each, and joined a line an event."""
    line = events.line
    is_blind = line.kind[chosen] == Kind.BLIND
    timed, blind = chosen[~is_blind], chosen[is_blind]
    tracks, place = _tracks(events, timed)
    yield [
        _json(e)
        for track, name in tracks.items()
        for e in _track(process, track, name)
    ]  # fmt: skip
    heads = {t: f'{{"ph":"X","pid":{process},"tid":{t},"ts":' for t in tracks}
    names, name_of = _names(events, timed, kernel_names)
    tails, tail_of = _tails(events, timed)
    start = line.start[timed] - zero
    length = line.duration[timed]
    rounds = events.round_of[timed]
    # the last one is for -1, outside of all rounds
    ends = [*(f',"round":{r}}}}}' for r in range(int(rounds.max(initial=-1)) + 1)), "}}"]
    for first in range(0, len(timed), ROWS_AT_ONCE):
        columns = (
            column[first : first + ROWS_AT_ONCE].tolist()
            for column in (place, start, length, name_of, tail_of, rounds)
        )
        yield [
            f'{heads[t]}{s // 1000}.{s % 1000:03d},"dur":{d // 1000}.{d % 1000:03d},'
            f"{names[n]}{tails[a]}{ends[r]}"
            for t, s, d, n, a, r in zip(*columns, strict=True)
        ]
    yield [_json(_blind(events, i, process, zero)) for i in blind.tolist()]


def _blind(events: Events, i: int, process: int, zero: int) -> Event:
    """A graph launch of which there is only the call."""
    graph = int(events.line.graph[i])
    return {
        "ph": "i", "s": "t", "name": "graph launch that left no time", "cat": "blind launch",
        "pid": process, "tid": SPOTS_TRACK, "ts": _us(int(events.line.launch[i]) - zero),
        "args": {"bucket": BUCKETS[events.bucket[i]], "graph": graph if graph >= 0 else None},
    }  # fmt: skip


def _tracks(
    events: Events, index: npt.NDArray[np.intp]
) -> tuple[dict[int, str], npt.NDArray[np.int64]]:
    """Tracks by their number, and the number of each event's: a bucket, a stream and a lane."""
    line = events.line
    streams, stream_of = np.unique(line.stream[index], return_inverse=True)
    pair = events.bucket[index].astype(np.int64) * len(streams) + stream_of
    lane = np.zeros(len(index), np.int64)
    order = np.argsort(pair, kind="stable")  # `index` is in order of time
    borders = np.flatnonzero(np.diff(pair[order])) + 1
    for rows in np.split(order, borders):
        lane[rows] = _lanes(line.start[index[rows]], line.end_of(index[rows]))
    lanes = int(lane.max(initial=0)) + 1
    found, place = np.unique(pair * lanes + lane, return_inverse=True)
    tracks = {}
    for number, key in enumerate(found.tolist(), FIRST_WORK_TRACK):
        bucket, stream = divmod(key // lanes, len(streams))
        more = f" ({key % lanes + 1})" if key % lanes else ""
        tracks[number] = f"{BUCKETS[bucket]}, stream {streams[stream]}{more}"
    return tracks, place.astype(np.int64) + FIRST_WORK_TRACK


def _lanes(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Lane of each interval, in order of time, so that intervals of one do not overlap."""
    lanes = np.zeros(len(start), np.int64)
    if not (start[1:] < np.maximum.accumulate(end)[:-1]).any():
        return lanes
    free: list[int] = []  # when each lane is free again
    for i, (s, e) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        lane = next((n for n, until in enumerate(free) if until <= s), len(free))
        if lane == len(free):
            free.append(e)
        free[lane] = e
        lanes[i] = lane
    return lanes


def _names(
    events: Events, index: npt.NDArray[np.intp], kernel_names: Sequence[str]
) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Members `name` of the JSON, and which each event has."""
    line = events.line
    graphs, graph_of = np.unique(line.graph[index], return_inverse=True)
    kinds = [kind.name.lower() for kind in Kind]
    texts = [
        *(name[:LONGEST_NAME] for name in kernel_names), "kernel without a name",
        *kinds, *(f"graph {g}" for g in graphs.tolist()),
    ]  # fmt: skip
    kind, name = line.kind[index], line.name[index].astype(np.int64)
    nameless = len(kernel_names)
    found = np.where(name >= 0, name, nameless)
    found = np.where(kind == Kind.KERNEL, found, nameless + 1 + kind.astype(np.int64))
    of_graphs = nameless + 1 + len(kinds) + graph_of
    return (
        [f'"name":{_json(text)}' for text in texts],
        np.where(kind == Kind.GRAPH, of_graphs, found),
    )


def _tails(events: Events, index: npt.NDArray[np.intp]) -> tuple[list[str], npt.NDArray[np.intp]]:
    """What follows the name up to the round: bucket, basis and graph; which each event has."""
    line = events.line
    rows = np.stack([events.bucket[index], events.basis[index], line.graph[index]]).astype(np.int64)
    found, of = np.unique(rows, axis=1, return_inverse=True)
    texts = []
    for bucket, basis, graph in found.T.tolist():
        arguments: Event = {"basis": BASES[basis] if basis < len(BASES) else None}
        if graph >= 0:
            arguments["graph"] = graph
        texts.append(f',"cat":"{BUCKETS[bucket]}","args":{_json(arguments)[:-1]}')
    return texts, of.reshape(-1)
