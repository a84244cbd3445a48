"""Options that every command on traces shares, and their reading."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from nsysacct.cli._base import FILE
from nsysacct.cli._inputs import is_account_json
from nsysacct.cli._numbers import nanoseconds, whole
from nsysacct.errors import UsageError

if TYPE_CHECKING:
    from nsysacct.account import Options
    from nsysacct.logs import LogReading

_TRACE_OPTIONS = (
    click.option("--engine", metavar="NAME",
                 help="Engine whose registry to use, or ENGINE/VARIANT (default: recognised)."),
    click.option("--layers", metavar="N|KIND=N", multiple=True,
                 help="Model layers, e.g. 64, or gdn=48 for one kind; repeatable."),
    click.option("--k", metavar="N", type=click.IntRange(1, 64), help="Draft tokens proposed a round."),
    click.option("--n-ok", metavar="C0,C1,..", help="Rounds that accepted 0, 1, .. k drafts."),
    click.option("--plan", metavar="PLAN",
                 help='What surrounds the rounds: "prefill=96 decode=64 rounds closing=2".'),
    click.option("--closing", metavar="N", type=click.IntRange(0), help="Plain steps after the last round."),
    click.option("--step-ms", metavar="MS", help="Wall of one plain step, to price steps without a time."),
    click.option("--wall-ms", metavar="MS", help="Wall of the speculative part, as the run printed it."),
    click.option("--ignore", "ignored", metavar="BASIS", multiple=True,
                 help="Evidence not to use: exclusive, nvtx, graph, positional, pattern."),
    click.option("--nvtx", "ranges", metavar="BUCKET=GLOB", multiple=True,
                 help='NVTX ranges of a phase, e.g. verify="Target*"; repeatable.'),
    click.option("--graph-role", "graph_roles", metavar="ID=BUCKET", multiple=True,
                 help="Role of an executable graph, e.g. 7=verify."),
    click.option("--log", "log", metavar="FILE", type=FILE,
                 help="The run's own log ('-': stdin): acceptance, and a witness for the rounds."),
    click.option("--log-lines", metavar="A:B", help="Lines of the log that belong to the capture."),
    click.option("--pid", metavar="PID",
                 help="Process to show (decimal, as the OS has it); all: sum the ranks of one job."),
    click.option("--gpu", metavar="N", type=click.IntRange(0), help="GPU to show."),
    click.option("--label", "labels", metavar="KEY=VALUE", multiple=True,
                 help="What the run was (model=..., quant=...); travels in the account."),
    click.option("--registry", "registries", metavar="PATH", type=FILE, multiple=True,
                 help="Further registry file or folder."),
)  # fmt: skip


_NAMES = ("engine", "layers", "k", "n_ok", "plan", "closing", "step_ms", "wall_ms", "ignored",
          "ranges", "graph_roles", "log", "log_lines", "pid", "gpu", "labels", "registries")  # fmt: skip
"""Parameters of `read_options`, in the order of `_TRACE_OPTIONS`."""

_RUN_OPTIONS = {
    "k": click.option("--run-k", metavar="N", type=click.IntRange(1, 64), help="Draft tokens of the run itself."),
    "n_ok": click.option("--run-n-ok", metavar="C0,C1,..",
                         help="Rounds of the run itself by accepted drafts."),
}  # fmt: skip
"""What replaces an option whose name is a lever of the command."""


def trace_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the shared options to a command; it receives them as one keyword, ``options``."""
    return _with_options(command, {})


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Like `trace_options`, for a command whose own ``--k`` and ``--n-ok`` change the run."""
    return _with_options(command, _RUN_OPTIONS)


def _with_options(
    command: Callable[..., Any], replaced: Mapping[str, Callable[..., Any]]
) -> Callable[..., Any]:
    from functools import wraps

    taken = {name: f"run_{name}" if name in replaced else name for name in _NAMES}

    @wraps(command)
    def wrapped(**values: Any) -> Any:
        _refuse_for_accounts(frozenset(taken.values()))
        shared = {name: values.pop(given) for name, given in taken.items()}
        return command(options=read_options(**shared), **values)

    for name, option in reversed(list(zip(_NAMES, _TRACE_OPTIONS, strict=True))):
        wrapped = replaced.get(name, option)(wrapped)
    return wrapped


def _refuse_for_accounts(names: frozenset[str]) -> None:
    """Raise when an option on how to split is given and each input is an account: it does nothing."""
    context = click.get_current_context()
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in names
        and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]
    if not given:
        return
    read = [
        Path(word)
        for parameter in context.command.params
        if isinstance(parameter, click.Argument) or parameter.name in ("base_files", "head_files")
        for word in _words(context.params[parameter.name or ""])
        if Path(word).is_file()
    ]
    if read and all(map(is_account_json, read)):
        raise UsageError(
            given[0],
            f"is for splitting a trace, and {read[0].name} is an account already",
            "split the trace again with it",
        )


def _words(value: object) -> list[str]:
    words = value if isinstance(value, tuple) else (value,)
    return [word for word in words if isinstance(word, str)]


def read_options(
    *,
    engine: str | None = None,
    layers: tuple[str, ...] = (),
    k: int | None = None,
    n_ok: str | None = None,
    plan: str | None = None,
    closing: int | None = None,
    step_ms: str | None = None,
    wall_ms: str | None = None,
    ignored: tuple[str, ...] = (),
    ranges: tuple[str, ...] = (),
    graph_roles: tuple[str, ...] = (),
    log: str | None = None,
    log_lines: str | None = None,
    pid: str | None = None,
    gpu: int | None = None,
    labels: tuple[str, ...] = (),
    registries: tuple[str, ...] = (),
) -> Options:
    """Options of the account from their texts, and the project's defaults for what is not given.

    Raises
    ------
    UsageError
        Naming the option that cannot be read.
    """
    from dataclasses import replace

    from nsysacct.account import Options
    from nsysacct.cli._project import project
    from nsysacct.evidence import Code
    from nsysacct.grammar import Plan
    from nsysacct.model import BUCKETS, PROVENANCE
    from nsysacct.nvtx import Rule
    from nsysacct.options import check_layer_kinds

    given = {"--engine": engine, "--n-ok": n_ok, "--plan": plan, "--log": log, "--pid": pid}
    for option, text in given.items():
        if text is not None and not text.strip():
            raise UsageError(option, "is empty", "give a value, or leave the option out")
    if log_lines is not None and log is None:
        raise UsageError("--log-lines", "there is no --log", "name the log as well")
    defaults = project()
    engine = engine or defaults.engine
    read_plan = Plan.parse(plan) if plan else Plan()
    if closing is not None:
        read_plan = replace(read_plan, closing=closing)

    def bucket(option: str, word: str) -> Code:
        if word not in BUCKETS or word == "unattributed":
            raise UsageError(
                option, f"{word!r} is not a bucket", f"use one of {', '.join(BUCKETS[:-1])}"
            )
        return Code[word.upper()]

    for basis in ignored:
        if basis not in PROVENANCE:
            raise UsageError(
                "--ignore", f"{basis!r} is not a basis", f"use one of {', '.join(PROVENANCE)}"
            )
    pairs = [_pair("--nvtx", text) for text in ranges]
    roles: dict[int, Code] = {}
    for text in graph_roles:
        graph, word = _pair("--graph-role", text)
        roles[whole("--graph-role", graph)] = bucket("--graph-role", word)
    registry_paths = (*defaults.registry, *registries)
    counts = _layers(layers) or dict(defaults.layers)
    check_layer_kinds("--layers", counts, registry_paths)
    return Options(
        engine=engine,
        layers=counts,
        k=defaults.k if k is None and n_ok is None else k,
        n_ok=_histogram(n_ok) if n_ok else None,
        plan=read_plan,
        step_ns=nanoseconds("--step-ms", step_ms),
        wall_ns=nanoseconds("--wall-ms", wall_ms),
        ignore=frozenset(ignored),
        nvtx=tuple(Rule(glob, bucket("--nvtx", word)) for word, glob in pairs),
        graph_roles=roles,
        pid=None if pid in (None, "all") else whole("--pid", str(pid)),
        all_pids=pid == "all",
        log=_log(log, log_lines, engine) if log else None,
        gpu=gpu,
        labels={**defaults.labels, **dict(_pair("--label", text) for text in labels)},
        registry_paths=registry_paths,
    )


def _pair(option: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key or not value:
        raise UsageError(option, f"cannot read {text!r}", "write it like key=value")
    return key, value


def _layers(texts: tuple[str, ...]) -> Mapping[str, int]:
    """``("64", "gdn=48")`` -> ``{"all": 64, "gdn": 48}``; commas separate as well."""
    result: dict[str, int] = {}
    if texts and not any(part.strip() for t in texts for part in t.split(",")):
        raise UsageError("--layers", "is empty", "give the number of layers, e.g. 64")
    for text in (part for t in texts for part in t.split(",") if part):
        kind, equals, number = text.partition("=")
        if not equals:
            kind, number = "all", text
        count = whole("--layers", number.strip())
        if count < 1:
            raise UsageError(
                "--layers", f"{text!r}: a model has at least one layer", "give 1 or more"
            )
        result[kind.strip() or "all"] = count
    total = result.get("all")
    for kind, count in result.items():
        if total is not None and count > total:
            raise UsageError(
                "--layers", f"{count} {kind} layers of {total} in all", "fix one of them"
            )
    return result


def _histogram(text: str) -> tuple[int, ...]:
    counts = tuple(whole("--n-ok", part.strip()) for part in text.split(","))
    if len(counts) < 2 or not sum(counts):
        raise UsageError(
            "--n-ok", f"{text!r} is no histogram", "give rounds that accepted 0, 1, .. k drafts"
        )
    return counts


_RANGE = re.compile(r"(\d*):(\d*)")


def line_range(option: str, text: str | None) -> tuple[int, int | None] | None:
    """``"7:9"`` -> (7, 9), ``"120:"`` -> (120, None); lines count from 1, both ends included."""
    if text is None:
        return None
    match = _RANGE.fullmatch(text)
    if match is None or not (match[1] or match[2]):
        raise UsageError(option, f"cannot read {text!r}", "write it like 7:7 or 120:")
    first = whole(option, match[1] or "1")
    last = whole(option, match[2]) if match[2] else None
    if first < 1 or (last is not None and last < first):
        raise UsageError(option, f"{text} holds no line", "count from 1, first before last")
    return first, last


def _log(path: str, lines: str | None, engine: str | None) -> LogReading:
    from nsysacct.logs import read_log_of

    source = sys.stdin.buffer.read() if path == "-" else Path(path)
    return read_log_of(engine, source, lines=line_range("--log-lines", lines))
