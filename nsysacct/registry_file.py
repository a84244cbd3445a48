"""One registry file: strict reading of TOML into the signatures of an engine.

Format 1, one file an engine, data only; `registry_tables` has its keys.
An unknown key is an error that names file, table and key. A new optional key is one more field of a
table's class there.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from nsysacct import registry_tables as tables
from nsysacct.conditions import NumberPredicate
from nsysacct.errors import NsysacctError, RegistryError
from nsysacct.model import BUCKETS, Semantics
from nsysacct.registry_tables import Table
from nsysacct.semantics import REPLAY_STEPS, TOKENS, VERIFY_WIDTH
from nsysacct.signatures import Pattern
from nsysacct.specs import EngineSpec, NvtxRule, Signature, Variant
from nsysacct.strict import convert, guess

FORMAT = 1
"""Version of the file format that this release reads."""

GEOMETRY = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
"""Launch dimensions (CUPTI_ACTIVITY_KIND_KERNEL.gridX .. blockZ)."""

SIGNATURE_BUCKETS = (*(b for b in BUCKETS if b != "unattributed"), "shared", "target", "model")
"""What a signature may say of its kernel's phase."""

NVTX_BUCKETS = (*(b for b in BUCKETS if b != "unattributed"), "target", "shared")
"""What an NVTX rule may say of the work that its ranges launch."""

EVIDENCE = ("names", "nodes", "some", "nvtx")
"""What tells the phases of an engine apart.

``names``: kernel names; a capture without verify kernels is one without speculation. ``nodes``: kernel
names too, but the engine may run a whole round in one CUDA graph, so only where graphs are expanded.
``some``: kernel names, but perhaps not all: what they do not show proves nothing. ``nvtx``: no name tells
anything, only NVTX ranges do.
"""

MARKERS = ("accept", "sampled", "draft-start", "draft-step", "pass-end")
"""What a kernel that runs once a step, or once a pass, may mark; see `steps` and `passes`."""

_VERSIONS = re.compile(
    r"\*|(?:>=|<=|==|!=|<|>)\s*[\w.+-]+(?:\s*,\s*(?:>=|<=|==|!=|<|>)\s*[\w.+-]+)*"
)

T = TypeVar("T", bound=Table)


def read_file(path: Path) -> EngineSpec:
    """Read one registry file.

    Raises
    ------
    RegistryError
        The file cannot be read, is not TOML, or says something that the format does not allow; the
        message names the file, the table, the key and the remedy.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RegistryError(
            str(path), f"cannot be read ({error.strerror})", "check the path and its permissions"
        ) from None
    return read_bytes(content, str(path))


def read_bytes(content: bytes, file: str) -> EngineSpec:
    """Read the content of a registry file that is called `file` in messages."""
    raw = _parse(content, file)
    form = raw.get("format")
    if isinstance(form, int) and form != FORMAT:
        raise RegistryError(
            file, f"format {form} is not known", f"use format {FORMAT}, or a newer nsysacct"
        )
    top = _convert(raw, tables.File, file, "")
    engine = _convert(top.engine, tables.Engine, file, "[engine]")
    _choose(engine.evidence, EVIDENCE, file, "[engine]", "evidence")
    _check_versions(engine.versions, file, "[engine]")
    rules = _convert(top.semantics, tables.Semantics, file, "[semantics]")
    semantics = _checked(
        Semantics(verify_width=rules.verify_width, tokens=rules.tokens, replay=rules.replay),
        file,
        "[semantics]",
    )
    passes = _convert(top.passes, tables.Passes, file, "[passes]")
    signatures = [_read_signature(t, i, file) for i, t in enumerate(top.signature, 1)]
    _check_ids(signatures, file)
    return EngineSpec(
        name=engine.name,
        title=engine.title or engine.name,
        aliases=tuple(engine.aliases),
        versions=engine.versions,
        evidence=engine.evidence,
        source=engine.source,
        note=engine.note.strip(),
        file=file,
        digest=_digest(raw),
        semantics=semantics,
        variants=_read_variants(top.variant, semantics, file),
        streams=passes.streams,
        recognise=tuple(
            _pattern(p, (), file, f"[engine] key recognise, entry {i}")
            for i, p in enumerate(engine.recognise, 1)
        ),
        signatures=tuple(signatures),
        nvtx=tuple(_read_nvtx(t, i, file) for i, t in enumerate(top.nvtx, 1)),
        steps=tuple(_read_step(t, i, file) for i, t in enumerate(top.step, 1)),
    )


def _parse(content: bytes, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise RegistryError(file, "is not UTF-8 text", "save it as UTF-8 TOML") from None
    except ValueError as error:  # TOMLDecodeError, and a number too long for Python
        raise RegistryError(file, f"is not TOML: {error}", "correct that line") from None
    except RecursionError:
        raise RegistryError(file, "is nested too deeply", "use the tables of the format") from None


def _digest(raw: dict[str, Any]) -> str:
    """SHA-256 of the data: comments and layout do not change it.

    Dates become text: no key of the format is one, so such a file is refused later anyway.
    """
    canonical = msgspec.json.encode(raw, order="deterministic")
    return f"sha256:{hashlib.sha256(canonical).hexdigest()}"


# ---------------------------------------------------------------- tables


_RULES: dict[str, Mapping[str, Any]] = {
    "verify_width": VERIFY_WIDTH,
    "tokens": TOKENS,
    "replay": REPLAY_STEPS,
}


def _checked(semantics: Semantics, file: str, where: str) -> Semantics:
    for key, rules in _RULES.items():
        _choose(getattr(semantics, key), tuple(rules), file, where, key)
    return semantics


def _read_variants(
    rows: Sequence[Mapping[str, Any]], base: Semantics, file: str
) -> tuple[Variant, ...]:
    variants: list[Variant] = []
    for index, row in enumerate(rows, 1):
        where = f"[[variant]] {index}"
        found = _convert(row, tables.Variant, file, where)
        if not found.name or "/" in found.name or found.name in (v.name for v in variants):
            problem = f"{found.name!r} is no name of its own"
            raise _error(file, where, "name", problem, "choose another, without a slash")
        changes = {key: text for key in _RULES if (text := getattr(found, key))}
        semantics = _checked(msgspec.structs.replace(base, **changes), file, where)
        variants.append(Variant(found.name, semantics, found.source, found.note.strip()))
    return tuple(variants)


def _read_signature(table: Mapping[str, Any], index: int, file: str) -> Signature:
    where = f"[[signature]] {index}"
    if isinstance(table.get("id"), str):
        where += f" {table['id']!r}"
    found = _convert(table, tables.Signature, file, where)
    _choose(found.bucket, SIGNATURE_BUCKETS, file, where, "bucket")
    if found.versions:
        _check_versions(found.versions, file, where)
    for key in found.geometry:
        _choose(key, GEOMETRY, file, where, "geometry")
    if found.marker:
        _choose(found.marker, MARKERS, file, where, "marker")
    if found.requests:
        _choose(found.requests, GEOMETRY, file, where, "requests")
    for key, examples in (("matches", found.matches), ("rejects", found.rejects)):
        if not examples:
            raise _error(file, where, key, "is empty", "give at least one kernel name")
    for key, count in (
        ("per_layer", found.per_layer),
        ("per_round", found.per_round),
        ("per_step", found.per_step),
    ):
        if count is not None and count < 0:
            raise _error(file, where, key, f"is {count}", "give a count, or leave it out")
    pattern = _pattern(found.pattern, found.capture, file, f"{where} key pattern")
    for name in found.where:
        _choose(name, pattern.captures, file, where, "where")
    if found.width:
        _choose(found.width, (*pattern.captures, *GEOMETRY), file, where, "width")
    return Signature(
        id=found.id,
        pattern=found.pattern,
        compiled=pattern,
        bucket=found.bucket,
        family=found.family,
        where=_conditions(found.where, file, f"{where} key where"),
        geometry=_conditions(found.geometry, file, f"{where} key geometry"),
        width=found.width,
        requests=found.requests,
        layer=found.layer,
        per_layer=found.per_layer,
        per_round=found.per_round,
        per_step=found.per_step,
        marker=found.marker,
        wins=tuple(found.wins),
        versions=found.versions,
        matches=tuple(found.matches),
        rejects=tuple(found.rejects),
        source=found.source,
        note=found.note,
    )


def _read_nvtx(table: Mapping[str, Any], index: int, file: str) -> NvtxRule:
    where = f"[[nvtx]] {index}"
    found = _convert(table, tables.Nvtx, file, where)
    _choose(found.bucket, NVTX_BUCKETS, file, where, "bucket")
    return NvtxRule(found.pattern, found.bucket, found.source)


def _read_step(table: Mapping[str, Any], index: int, file: str) -> re.Pattern[str]:
    where = f"[[step]] {index}"
    found = _convert(table, tables.Step, file, where)
    for place in ("{requests}", "{rows}"):
        if found.text.count(place) != 1:
            raise _error(file, where, "text", f"has no single {place}", f"write {place} once")
    regex = re.escape(found.text).replace(r"\*", ".*?")
    for place in ("requests", "rows"):
        regex = regex.replace(rf"\{{{place}\}}", rf"(?P<{place}>\d{{1,9}})")
    return re.compile(regex, re.ASCII)


def _check_ids(signatures: Sequence[Signature], file: str) -> None:
    """Every id once; `wins` names other signatures of the file."""
    ids = [s.id for s in signatures]
    for index, signature in enumerate(signatures, 1):
        where = f"[[signature]] {index} {signature.id!r}"
        if ids.index(signature.id) != index - 1:
            first = ids.index(signature.id) + 1
            raise _error(file, where, "id", f"is that of signature {first} too", "choose another")
        for other in signature.wins:
            _choose(other, tuple(i for i in ids if i != signature.id), file, where, "wins")


# ---------------------------------------------------------------- values


def _check_versions(text: str, file: str, where: str) -> None:
    """Refuse a version range that is not ``*`` or comparisons separated by commas."""
    if not _VERSIONS.fullmatch(text.strip()):
        raise _error(
            file, where, "versions", f"{text!r} is not a range", 'write "*" or ">=0.26,<0.34"'
        )


def _pattern(text: str, captures: Sequence[str], file: str, where: str) -> Pattern:
    try:
        return Pattern.compile(text, captures)
    except NsysacctError as error:
        raise RegistryError(
            f"{file}: {where}", f"{error.subject}: {error.problem}", error.remedy
        ) from None


def _conditions(table: Mapping[str, str], file: str, where: str) -> dict[str, NumberPredicate]:
    try:
        return {key: NumberPredicate.compile(text) for key, text in table.items()}
    except NsysacctError as error:
        raise RegistryError(
            f"{file}: {where}", f"{error.subject} {error.problem}", error.remedy
        ) from None


def _choose(value: str, allowed: Sequence[str], file: str, where: str, key: str) -> None:
    """Refuse a value that is not one of `allowed`, with the closest one that is."""
    if value not in allowed:
        choices = ", ".join(allowed) or "nothing here"
        raise _error(
            file, where, key, f"{value!r} is not known", guess(value, allowed) or f"use {choices}"
        )


def _convert(table: Mapping[str, Any], kind: type[T], file: str, where: str) -> T:
    """Turn a table into its class; unknown, missing and mistyped keys are named."""
    return convert(table, kind, partial(_error, file, where))


def _error(file: str, where: str, key: str, problem: str, remedy: str) -> RegistryError:
    subject = ": ".join(part for part in (file, where) if part)
    return RegistryError(subject, f"key {key}: {problem}" if key else problem, remedy)
