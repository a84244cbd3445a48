"""What a notebook calls: a trace to an account in one line."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import update_wrapper
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeAlias

from nsysacct import notebook  # noqa: F401  (gives accounts their HTML)
from nsysacct.account import Options, account
from nsysacct.errors import UsageError
from nsysacct.evidence import Code
from nsysacct.grammar import Plan
from nsysacct.logs import read_log_of
from nsysacct.model import BUCKETS, PROVENANCE, Account
from nsysacct.nsysrep import resolve
from nsysacct.nvtx import Rule
from nsysacct.options import check_layer_kinds
from nsysacct.trace import read_trace
from nsysacct.wire import is_account_text, load_account

if TYPE_CHECKING:
    from nsysacct.trace import Trace

NS_PER_MS = 1_000_000

P = ParamSpec("P")
Source: TypeAlias = "str | os.PathLike[str] | Trace"


def make_options(
    *,
    engine: str | None = None,
    layers: int | Mapping[str, int] | None = None,
    k: int | None = None,
    n_ok: Sequence[int] | None = None,
    plan: str | None = None,
    closing: int | None = None,
    step_ms: float | None = None,
    wall_ms: float | None = None,
    ignore: Collection[str] = (),
    nvtx: Mapping[str, str] | None = None,
    graph_roles: Mapping[int, str] | None = None,
    log: str | os.PathLike[str] | None = None,
    pid: int | None = None,
    gpu: int | None = None,
    labels: Mapping[str, str] | None = None,
    registry: str | Sequence[str] = (),
) -> Options:
    """`Options` from plain Python values.

    Parameters
    ----------
    engine : str, optional
        Engine whose registry to use; recognised from the kernels when left out.
    layers : int or mapping, optional
        Model layers: 64, or by kind ``{"all": 64, "gdn": 48}``.
    k : int, optional
        Draft tokens proposed a round.
    n_ok : sequence of int, optional
        Rounds that accepted 0, 1, ... k drafts.
    plan : str, optional
        What surrounds the rounds, e.g. ``"prefill=96 decode=64 rounds closing=2"``.
    closing : int, optional
        Plain steps after the last round.
    step_ms, wall_ms : float, optional
        Wall of one plain step, and of the speculative part, ms.
    ignore : collection of str
        Bases not to use: exclusive, nvtx, graph, positional, pattern.
    nvtx : mapping, optional
        Bucket -> pattern of NVTX range texts, e.g. ``{"verify": "Target*"}``.
    graph_roles : mapping, optional
        Id of an executable graph -> bucket.
    log : path, optional
        The run's own log: acceptance, and a witness for the rounds.
    pid, gpu : int, optional
        Process and GPU to show at the top level.
    labels : mapping, optional
        What the run was; travels in the account.
    registry : str or sequence of str
        Further registry files or folders.

    Raises
    ------
    UsageError
        A value that cannot be right, named by its parameter.

    Examples
    --------
    >>> import nsysacct as na
    >>> options = na.make_options(layers=8, closing=2)
    >>> trace = na.read_trace("small_graph.sqlite")
    >>> len(na.frames.events(trace, options))
    1390
    """
    for basis in ignore:
        if basis not in PROVENANCE:
            raise UsageError("ignore", f"{basis!r} is no basis", f"use {', '.join(PROVENANCE)}")
    if n_ok is not None and (len(n_ok) < 2 or min(n_ok) < 0 or not sum(n_ok)):
        raise UsageError("n_ok", "is no histogram", "give rounds that accepted 0, 1, .. k drafts")
    paths = (registry,) if isinstance(registry, str) else tuple(registry)
    return Options(
        engine=engine,
        layers=_layers(layers, paths),
        k=k,
        n_ok=None if n_ok is None else tuple(map(int, n_ok)),
        plan=_plan(plan, closing),
        step_ns=_ns("step_ms", step_ms),
        wall_ns=_ns("wall_ms", wall_ms),
        ignore=frozenset(ignore),
        nvtx=tuple(Rule(glob, _code("nvtx", bucket)) for bucket, glob in (nvtx or {}).items()),
        graph_roles={g: _code("graph_roles", b) for g, b in (graph_roles or {}).items()},
        log=None if log is None else read_log_of(engine, Path(log)),
        pid=pid,
        gpu=gpu,
        labels=dict(labels or {}),
        registry_paths=paths,
    )


def _taking(
    make: Callable[P, Options],
) -> Callable[[Callable[[Source, Options], Account]], Callable[Concatenate[Source, P], Account]]:
    """Give a function of a source and options the keywords of `make` in place of the options.

    So the list of keywords is written once, and type checkers, completion and help know it.
    """

    def decorate(
        function: Callable[[Source, Options], Account],
    ) -> Callable[Concatenate[Source, P], Account]:
        def wrapped(source: Source, /, *args: P.args, **keywords: P.kwargs) -> Account:
            return function(source, make(*args, **keywords))

        update_wrapper(wrapped, function)
        own = signature(function)
        first = own.parameters["source"].replace(kind=Parameter.POSITIONAL_ONLY)
        shown = [first, *signature(make).parameters.values()]
        wrapped.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
        return wrapped

    return decorate


@_taking(make_options)
def split(source: str | os.PathLike[str] | Trace, options: Options) -> Account:
    """Account for a trace; the same as ``nsysacct split``.

    Parameters
    ----------
    source : path or Trace
        An nsys export (.sqlite), a report (.nsys-rep, where nsys is on PATH), the JSON of an
        account (options do not apply then), or what `read_trace` returned.
    engine, layers, k, n_ok, plan, closing, step_ms, wall_ms, ignore, nvtx, graph_roles, log, pid,
    gpu, labels, registry
        As for `make_options`.

    Returns
    -------
    Account
        Shown as tables in a notebook; `frames` and `plots` take it from here.

    Raises
    ------
    NsysacctError
        An unreadable source, or an option that does not fit the trace.

    Examples
    --------
    >>> import nsysacct as na
    >>> account = na.split("small_graph.sqlite", layers=8, closing=2)
    >>> account.rounds.value, account.rounds.verdict
    (10, 'exact')
    >>> account.bucket("verify").gpu_ns
    4934344
    """
    if not isinstance(source, str | os.PathLike):
        return account(source, options)
    path = Path(source)
    if _is_account(path):
        return load_account(path)
    return account(read_trace(resolve(path)), options)


def _is_account(path: Path) -> bool:
    try:
        if not path.is_file():
            return False  # opening a pipe waits for its writer
        with path.open("rb") as file:
            return is_account_text(file.read(64))
    except OSError:
        return False  # the reader of traces says what is wrong


def _layers(
    layers: int | Mapping[str, int] | None, registry_paths: tuple[str, ...]
) -> dict[str, int]:
    found = {} if layers is None else {"all": layers} if isinstance(layers, int) else dict(layers)
    for kind, count in found.items():
        if count < 1 or count > found.get("all", count):
            raise UsageError("layers", f"{count} {kind} layers cannot be", "see nsysacct split -h")
    check_layer_kinds("layers", found, registry_paths)
    return found


def _plan(text: str | None, closing: int | None) -> Plan:
    from dataclasses import replace

    plan = Plan.parse(text) if text else Plan()
    return plan if closing is None else replace(plan, closing=closing)


def _ns(name: str, ms: float | None) -> int | None:
    """Milliseconds -> ns through the decimal that was written (13.232 is 13232000)."""
    from decimal import Decimal

    if ms is None:
        return None
    if not 0 < ms < float("inf"):
        raise UsageError(name, f"{ms} is not a time", "give milliseconds above 0")
    return int((Decimal(repr(float(ms))) * NS_PER_MS).to_integral_value())


def _code(name: str, bucket: str) -> Code:
    if bucket not in BUCKETS or bucket == "unattributed":
        raise UsageError(name, f"{bucket!r} is no bucket", f"use {', '.join(BUCKETS[:-1])}")
    return Code[bucket.upper()]
