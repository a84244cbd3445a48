"""Many traces on a Dask cluster: processes of this machine, or a scheduler that is given.

Workers read traces and give back account JSON; only this side writes. One trace at a time in each
worker process, a few waiting, so memory does not grow with the number of traces. What goes wrong
with one trace is that trace's answer. A worker that dies is replaced and its trace tried again; one
that dies with every worker is tried once more by itself at the end, since it may have been another
trace's fault, and is then given up with the reason.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import logging
import os
import socket
import tempfile
import threading
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

from nsysacct.batch_store import Store, identity
from nsysacct.bottleneck import parse_bytes
from nsysacct.errors import NsysacctError, UsageError
from nsysacct.extras import need
from nsysacct.model import Account
from nsysacct.nsysrep import SUFFIXES, resolve
from nsysacct.options import Options
from nsysacct.registry import Registry, load_registry
from nsysacct.trace import read_trace
from nsysacct.wire import dump_account, load_account

PURPOSE = "batch"
DEATHS = 2
"""Workers that a trace may lose before it is set aside (local clusters)."""
_WAIT_S = 30
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one trace.

    Attributes
    ----------
    source : Path
    state : str
        ``"done"``, ``"kept"`` (made by an earlier run, nothing changed since) or ``"failed"``.
    output : Path or None
        The account's file; None when it failed.
    account : Account or None
    reason : str
        Why it failed, one line.
    """

    source: Path
    state: str
    output: Path | None = None
    account: Account | None = None
    reason: str = ""


MOST_WORKERS = 512
LEAST_MEMORY = 256_000_000
"""Bytes that a worker process needs before it has read a trace."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where to run.

    Attributes
    ----------
    scheduler : str or None
        Address of a Dask scheduler; None starts worker processes here.
    workers : int or None
        Worker processes to start here; None: one a core, not more than traces.
    memory : str
        What a worker process started here may take, e.g. ``"4GB"``; beyond it is killed.
        ``"auto"``: its share of the machine.

    Raises
    ------
    UsageError
        A number of workers or a memory that no machine can mean.
    """

    scheduler: str | None = None
    workers: int | None = None
    memory: str = "auto"

    def __post_init__(self) -> None:
        """Refuse what Dask would answer with a traceback, or by starting processes without end."""
        if self.workers is not None and not 1 <= self.workers <= MOST_WORKERS:
            raise UsageError(
                "--workers", f"{self.workers} is not 1 to {MOST_WORKERS}", "give one a core at most"
            )
        if self.memory == "auto":
            return
        try:
            size = parse_bytes(self.memory)
        except UsageError as error:
            raise UsageError(
                "--memory", f"{self.memory!r} is no size", "write 4GB, or auto"
            ) from error
        if size < LEAST_MEMORY:
            raise UsageError(
                "--memory", f"{self.memory} is less than a worker takes", "give 256MB or more"
            )


def find_sources(patterns: Iterable[str]) -> list[Path]:
    """Traces that patterns name: files, glob patterns (``**`` too), and folders of them.

    Of a folder, every ``.sqlite``, and every report without one beside it.

    Raises
    ------
    UsageError
        A pattern that matches nothing.
    """
    found: dict[Path, None] = {}
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            matches = _in_folder(path)
        elif path.exists() or not glob.has_magic(pattern):
            matches = [path]  # a missing file is that trace's failure, not the batch's
        else:
            matches = sorted(
                p for p in map(Path, glob.glob(pattern, recursive=True)) if p.is_file()
            )
        if not matches:
            raise UsageError(pattern, "matches no trace", "check the pattern")
        found.update(dict.fromkeys(matches))
    return list(found)


def _in_folder(folder: Path) -> list[Path]:
    exports = sorted(folder.rglob("*.sqlite"))
    beside = {p.with_suffix("") for p in exports}
    reports = [
        p for s in SUFFIXES for p in folder.rglob(f"*{s}") if p.with_suffix("") not in beside
    ]
    return sorted(exports + reports)


def run(
    sources: Sequence[Path],
    folder: str | Path,
    options: Options | None = None,
    cluster: Cluster | None = None,
    *,
    force: bool = False,
) -> Iterator[Outcome]:
    """Account for many traces; outcomes come as they are ready.

    Parameters
    ----------
    sources : sequence of Path
        As `find_sources` gives them. With a scheduler elsewhere, its workers read the same paths.
    folder : path
        Gets one account JSON a trace. Those that an earlier run made from unchanged traces with
        the same options are kept.
    options : Options, optional
        Apply to all.
    cluster : Cluster, optional
    force : bool
        Overwrite files in `folder` that no batch made.

    Yields
    ------
    Outcome
        One a source: kept ones first, then in the order in which they are done.

    Raises
    ------
    NsysacctError
        `distributed` is missing, the scheduler does not answer, or the folder cannot be written.
    UsageError
        A file in `folder` is in the way.
    """
    options = options or Options()
    registry = load_registry(options.registry_paths)
    if options.engine is not None:
        registry.engine(options.engine)  # a wrong name fails once, not once a trace
    need("distributed", PURPOSE)  # before a folder is made
    store = Store(folder, settings_digest(options, registry), force=force)
    outputs = store.outputs(sources)
    waiting: list[Path] = []
    for source in outputs:
        kept = _kept(store, source)
        if kept is None:
            waiting.append(source)
        else:
            yield kept
    if not waiting:
        return
    before = {source: identity(source) for source in waiting}
    task = _Task(replace(options, registry_paths=()), registry)
    with _connect(cluster or Cluster(), len(waiting)) as client:
        for source, text, reason in _answers(client, waiting, task):
            if text is None:
                yield Outcome(source, "failed", reason=reason)
                continue
            store.save(source, before[source], outputs[source], text)
            yield Outcome(source, "done", outputs[source], load_account(text))


def _kept(store: Store, source: Path) -> Outcome | None:
    target = store.finished(source)
    if target is None:
        return None
    return Outcome(source, "kept", target, load_account(target))


def settings_digest(options: Options, registry: Registry) -> str:
    """Digest of what accounts depend on besides the traces: options, registry, version."""
    from nsysacct import __version__

    told: dict[str, object] = {f.name: getattr(options, f.name) for f in fields(options)}
    told["ignore"] = sorted(options.ignore)  # a set has no order
    del told["registry_paths"]
    engines = [(e.name, e.versions, e.digest) for e in registry.engines]
    return hashlib.sha256(repr((__version__, told, engines)).encode()).hexdigest()


# On the workers


@dataclass(frozen=True, slots=True)
class _Task:
    """Everything but the trace; the registry travels, so that workers need no files of it."""

    options: Options
    registry: Registry

    def __call__(self, path: str) -> tuple[str | None, str]:
        """Account JSON, or None and why not in one line."""
        from nsysacct.account import account

        name = Path(path).name
        with _ONE_AT_A_TIME:  # workers of other people's clusters have several threads
            try:
                trace = read_trace(resolve(path))
                return dump_account(account(trace, self.options, self.registry)), ""
            except NsysacctError as error:
                return None, " ".join(str(error).split())
            except MemoryError:
                return None, f"{name}: out of memory; give workers more, or capture less"
            except Exception as error:
                what = " ".join(f"{type(error).__name__}: {error}".split())
                return None, (
                    f"{name}: internal error: {what}; run 'nsysacct --debug split' on it and report it"
                )


def _version() -> str:
    from nsysacct import __version__

    return __version__


# On this side


@contextlib.contextmanager
def _connect(cluster: Cluster, traces: int) -> Iterator[Any]:
    """Open a client of the cluster, which is started and ended here unless one is given."""
    distributed = need("distributed", PURPOSE)
    if cluster.scheduler is not None:
        with _client(distributed, cluster.scheduler) as client:
            yield client
        return
    import dask

    workers = min(cluster.workers or _cores(), traces)
    quiet = {"distributed.scheduler.allowed-failures": DEATHS, "distributed.admin.tick.limit": "1h"}
    with (
        tempfile.TemporaryDirectory(prefix="nsysacct-", ignore_cleanup_errors=True) as scratch,
        dask.config.set(quiet),
        _started(distributed, workers, cluster.memory, scratch) as local,
        _client(distributed, local) as client,
    ):
        yield client


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


@contextlib.contextmanager
def _started(distributed: Any, workers: int, memory: str, scratch: str) -> Iterator[Any]:
    try:
        with warnings.catch_warnings():
            # without a dashboard the port does not matter, and another batch may have it
            warnings.filterwarnings("ignore", message="Port .* is already in use")
            local = distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=memory,
                dashboard_address=None,
                local_directory=scratch,
                silence_logs=logging.CRITICAL,
            )
    except (OSError, RuntimeError, ValueError) as failure:
        what = " ".join(str(failure).split())[:200] or type(failure).__name__
        raise NsysacctError(
            PURPOSE, f"worker processes could not be started ({what})", "try --workers 1"
        ) from failure
    with local:
        yield local


@contextlib.contextmanager
def _client(distributed: Any, where: Any) -> Iterator[Any]:
    """Connect, and make sure that there are workers of this version."""
    name = where if isinstance(where, str) else PURPOSE
    if isinstance(where, str):
        _probe(where)
    try:
        client = distributed.Client(where, timeout=_WAIT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as failure:
        raise NsysacctError(
            name, "no Dask scheduler answers there", "check address and network"
        ) from failure
    with client:
        try:
            client.wait_for_workers(1, timeout=_WAIT_S)
        except TimeoutError as failure:
            raise NsysacctError(
                name, "the cluster has no workers", "start some: dask worker ADDRESS"
            ) from failure
        try:
            versions = set(client.run(_version).values())
        except Exception as failure:
            raise NsysacctError(
                name, "a worker cannot run nsysacct", "install it on every worker"
            ) from failure
        if versions != {_version()}:
            raise NsysacctError(
                name,
                f"workers have nsysacct {', '.join(sorted(versions))}, this is {_version()}",
                "install one version everywhere",
            )
        yield client


def _probe(address: str) -> None:
    """Make sure that something listens there: a client that finds nothing takes a minute to give up."""
    scheme, _, rest = address.rpartition("://")
    if scheme not in ("", "tcp", "tls"):
        return
    host, _, port = rest.rpartition(":")
    try:
        socket.create_connection(
            (host.strip("[]") or rest, int(port) if host else 8786), 10
        ).close()
    except (OSError, ValueError, OverflowError) as failure:
        raise NsysacctError(
            address, "no Dask scheduler answers there", "check address and network"
        ) from failure


Answer = tuple[Path, str | None, str]


def _answers(client: Any, sources: Sequence[Path], task: _Task) -> Iterator[Answer]:
    """Answers as they come; traces that took workers down with them last, one at a time."""
    suspects: list[Path] = []
    for source, answer in _stream(client, sources, task, lambda: 2 * _workers(client)):
        if answer is None:
            suspects.append(source)
        else:
            yield (source, *answer)
    for source, answer in _stream(client, suspects, task, lambda: 1):
        if answer is None:
            reason = (
                f"{source.name}: every worker that read it died, probably out of memory;"
                " give workers more (--memory), or capture less"
            )
            answer = (None, reason)
        yield (source, *answer)


def _stream(
    client: Any, sources: Sequence[Path], task: _Task, width: Callable[[], int]
) -> Iterator[tuple[Path, tuple[str | None, str] | None]]:
    """Keep `width` traces in the cluster and give answers as they come; None: its workers died."""
    distributed = need("distributed", PURPOSE)
    rest = iter(sources)
    sent: dict[str, Path] = {}
    coming = distributed.as_completed(loop=client.loop)

    def send(count: int) -> None:
        for source in islice(rest, max(count, 0)):
            key = f"nsysacct-{uuid.uuid4().hex}"
            sent[key] = source
            coming.add(client.submit(task, str(source.absolute()), key=key, pure=False))

    send(width())
    while sent:
        future = next(coming)
        source = sent.pop(future.key)
        answer = _answer(future, source)
        future.release()
        send(width() - len(sent))
        yield source, answer


def _answer(future: Any, source: Path) -> tuple[str | None, str] | None:
    distributed = need("distributed", PURPOSE)
    try:
        found: tuple[str | None, str] = future.result()
    except distributed.KilledWorker:
        return None
    except Exception as failure:  # the scheduler went away, or the answer could not be sent
        what = " ".join(f"{type(failure).__name__}: {failure}".split())[:200]
        return None, f"{source.name}: the cluster gave no answer ({what}); run the batch again"
    return found


def _workers(client: Any) -> int:
    return max(1, len(client.nthreads()))
