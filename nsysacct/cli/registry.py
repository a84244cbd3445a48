"""``nsysacct registry``: what is known about kernels, and whether it holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsysacct.cli._base import (
    FILE,
    echo_text,
    force_option,
    judged_failed,
    output_option,
    terminal_width,
    write_output,
)
from nsysacct.cli._help import JudgingPage, Pages
from nsysacct.layout import fold, table

if TYPE_CHECKING:
    from nsysacct.model import Semantics
    from nsysacct.names import KernelName
    from nsysacct.registry import EngineSpec, Explanation, Match, Registry, Signature

_paths = click.option(
    "--registry",
    "paths",
    metavar="PATH",
    type=FILE,
    multiple=True,
    help="Further registry file or folder.",
)
_format = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="How to print it.",
)  # fmt: skip


@click.group("registry", cls=Pages)
def command() -> None:
    """List, check, explain and suggest kernel signatures.

    Shipped files are extended by NSYSACCT_REGISTRY (paths separated like PATH), by the project's
    nsysacct.toml, and by --registry.

    \b
    Examples:
      nsysacct registry list kestrel
      nsysacct registry check --registry own.toml
      nsysacct registry explain "void k_rq_q4_gemv_mr<(int)4, (int)3>(float *)"
      nsysacct registry suggest trace.sqlite --name mine -o mine.toml
    """


@command.command("list")
@click.argument("engine", required=False)
@_paths
@_format
def list_(engine: str | None, paths: tuple[str, ...], form: str) -> None:
    """List the engines, or the signatures of ENGINE.

    \b
    Examples:
      nsysacct registry list
      nsysacct registry list vllm --format json
    """
    registry = _load(paths)
    engines = [registry.engine(engine)] if engine else list(registry.engines)
    if form == "json":
        _echo_json({"engines": [_engine_document(spec) for spec in engines]})
    elif engine:
        echo_text("\n".join(_signature_lines(engines[0])))
    else:
        echo_text("\n".join(_engine_lines(engines)))


@command.command("check", cls=JudgingPage)
@_paths
def check(paths: tuple[str, ...]) -> None:
    """Run every example of every file through all signatures of its engine.

    Exit code 0: all hold. 1: some do not, one line each. 3: a file is not valid.

    \b
    Example:
      nsysacct registry check --registry own.toml
    """
    registry = _load(paths)
    problems = registry.check()
    for problem in problems:
        echo_text(str(problem))
    signatures = [s for spec in registry.engines for s in spec.signatures]
    examples = sum(len(s.matches) + len(s.rejects) for s in signatures)
    counted = f"{len(registry.engines)} engines, {len(signatures)} signatures, {examples} examples"
    if problems:
        echo_text(f"{counted}: {len(problems)} do not hold")
        judged_failed()
    echo_text(f"{counted}: all hold")


@command.command("explain")
@click.argument("name")
@click.option("--engine", metavar="NAME", help="Only this engine (default: all).")
@_paths
@_format
def explain(name: str, engine: str | None, paths: tuple[str, ...], form: str) -> None:
    """Say how the kernel NAME is read, which signature takes it, and which nearly do.

    \b
    Examples:
      nsysacct registry explain "void k_rq_q4_gemv_mr<(int)4, (int)3>(float *)"
      nsysacct registry explain k_argmax --engine kestrel
    """
    from nsysacct.registry import Registry

    registry = _load(paths)
    if engine:
        registry = Registry((registry.engine(engine),))
    parsed, found = registry.explain(name)
    if form == "json":
        _echo_json(
            {
                "name": _name_document(parsed),
                "engines": [_explanation_document(e) for e in found],
            }
        )
    else:
        echo_text("\n".join([*_name_lines(parsed), "", *_explanation_lines(found, registry)]))


@command.command("suggest")
@click.argument("trace", type=FILE)
@click.option(
    "--name", metavar="NAME", default="unnamed", show_default=True, help="Name of the engine."
)
@output_option
@force_option
def suggest(trace: str, name: str, output: str | None, force: bool) -> None:
    """Propose a registry file for the engine that TRACE is of, to be corrected and completed.

    It groups the kernels by what launches with what, and writes each group as a signature with the
    evidence beside it. The file loads as it is, but recognises no capture before it was edited.

    \b
    Example:
      nsysacct registry suggest trace.sqlite --name mine -o mine.toml
    """
    from nsysacct.nsysrep import resolve
    from nsysacct.suggest import investigate
    from nsysacct.suggest_toml import suggestion
    from nsysacct.trace import read_trace

    found = investigate(read_trace(resolve(Path(trace))))
    write_output(output, suggestion(found, name=name), force=force, data=True)


def _load(paths: tuple[str, ...]) -> Registry:
    from nsysacct.cli._project import project
    from nsysacct.registry import load_registry

    return load_registry((*project().registry, *paths))


# ---------------------------------------------------------------- text


def _engine_lines(engines: list[EngineSpec]) -> list[str]:
    rows = [("engine", "versions", "signatures", "file", "sha256")]
    rows += [
        (e.name, e.versions, str(len(e.signatures)), Path(e.file).name, _short_digest(e))
        for e in engines
    ]
    return table(rows, terminal_width())


def _signature_lines(spec: EngineSpec) -> list[str]:
    width = terminal_width()
    facts = [
        f"versions {spec.versions}, {Path(spec.file).name}, sha256 {_short_digest(spec)}",
        f"a round {_rules(spec.semantics)}",
        *(f"variant {spec.name}/{v.name}: a round {_rules(v.semantics)}" for v in spec.variants),
    ]
    lines = [fold(f"{spec.name}: {spec.title}", width, hang=2)]
    lines += [fold(fact, width, indent=2, hang=4) for fact in facts]
    lines.append("")
    rows = [("bucket", "family", "layer", "pattern", "conditions")]
    rows += [(s.bucket, s.family, s.layer, s.pattern, _conditions(s)) for s in spec.signatures]
    return lines + table(rows, width)


def _rules(rules: Semantics) -> str:
    width, tokens = rules.verify_width, rules.tokens
    return f"verifies {width} rows, emits {tokens} tokens, replay: {rules.replay}"


def _conditions(signature: Signature) -> str:
    both = [*signature.where.items(), *signature.geometry.items()]
    parts = [f"{key} {condition.text}" for key, condition in both]
    return ", ".join(parts + ([f"marks {signature.marker}"] if signature.marker else []))


def _short_digest(spec: EngineSpec) -> str:
    return spec.digest.removeprefix("sha256:")[:12]


def _name_lines(name: KernelName) -> list[str]:
    parts = [("base", str(name.base))]
    if name.opaque:
        parts.append(("", "(not a function name: taken as it is)"))
    else:
        if name.scope:
            parts.append(("scope", "::".join(map(str, name.scope))))
        for label, items in (("argument", name.args), ("parameter", name.params)):
            if items is not None:
                parts += [(f"{label} {i}", str(item)) for i, item in enumerate(items, 1)]
                parts += [] if items else [(f"{label}s", "none")]
        if name.return_type:
            parts.append(("returns", str(name.return_type)))
    return [fold(f"{label:12} {said}", terminal_width(), hang=13) for label, said in parts]


def _explanation_lines(found: list[Explanation], registry: Registry) -> list[str]:
    said: list[str] = []
    for e in found:
        match = e.match
        while match is not None:
            said.append(f"{e.engine.name}: {_taken(match)}")
            match = match.otherwise
        said += [
            f"{e.engine.name}: not {miss.signature.id} ({miss.signature.pattern}): {miss.reason}"
            for miss in e.near
        ]
    if not any(e.match for e in found):
        engines = ", ".join(spec.name for spec in registry.engines)
        said.append(
            f"no signature takes it ({engines}); nsysacct registry suggest TRACE proposes some"
        )
    return [fold(line, terminal_width(), hang=4) for line in said]


def _taken(match: Match) -> str:
    s = match.signature
    facts = [f"{key} = {value}" for key, value in match.captures.items()]
    facts += [f"if {key} {condition.text}" for key, condition in s.geometry.items()]
    if match.width is not None:
        facts.append(f"width {match.width}")
    elif s.width:
        facts.append(f"width is {s.width}")
    if s.marker:
        facts.append(f"marks {s.marker}")
    told = f" [{', '.join(facts)}]" if facts else ""
    return f"taken by {s.id} ({s.pattern}) as {s.bucket}, {s.family}{told}"


# ---------------------------------------------------------------- JSON


def _echo_json(body: dict[str, Any]) -> None:
    document = {"schema": {"kind": "nsysacct/registry", "version": 1}, **body}
    echo_text(json.dumps(document, indent=1, ensure_ascii=False), data=True)


def _engine_document(spec: EngineSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "title": spec.title,
        "aliases": list(spec.aliases),
        "versions": spec.versions,
        "file": Path(spec.file).name,
        "digest": spec.digest,
        "semantics": _semantics_document(spec.semantics),
        "variants": [
            {"name": v.name, "semantics": _semantics_document(v.semantics), "source": v.source}
            for v in spec.variants
        ],
        "signatures": [_signature_document(s) for s in spec.signatures],
        "nvtx": [{"pattern": r.pattern, "bucket": r.bucket, "source": r.source} for r in spec.nvtx],
    }


def _semantics_document(rules: Semantics) -> dict[str, str]:
    return {
        "verify_width": rules.verify_width,
        "tokens": rules.tokens,
        "replay": rules.replay,
    }


def _signature_document(s: Signature) -> dict[str, Any]:
    return {
        "id": s.id,
        "pattern": s.pattern,
        "bucket": s.bucket,
        "family": s.family,
        "where": {key: condition.text for key, condition in s.where.items()},
        "geometry": {key: condition.text for key, condition in s.geometry.items()},
        "width": s.width or None,
        "layer": s.layer,
        "per_layer": s.per_layer,
        "per_round": s.per_round,
        "per_step": s.per_step,
        "marker": s.marker or None,
        "source": s.source,
    }


def _name_document(name: KernelName) -> dict[str, Any]:
    return {
        "text": str(name),
        "base": name.base,
        "scope": [str(c) for c in name.scope],
        "args": name.args,
        "params": name.params,
        "return_type": name.return_type,
        "opaque": name.opaque,
    }


def _explanation_document(e: Explanation) -> dict[str, Any]:
    taken = []
    match = e.match
    while match is not None:
        taken.append(
            {
                **_signature_document(match.signature),
                "captures": match.captures,
                "width_value": match.width,
            }
        )
        match = match.otherwise
    return {
        "engine": e.engine.name,
        "taken_by": taken,
        "near": [
            {"id": m.signature.id, "pattern": m.signature.pattern, "reason": m.reason}
            for m in e.near
        ],
    }
