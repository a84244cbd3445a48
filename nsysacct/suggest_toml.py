"""Writing what `suggest` found as a registry file: valid TOML, every line of doubt commented.

The file loads as it is, but it recognises nothing until its ``recognise`` line is uncommented, so that a
suggestion is never applied unseen. Used unedited it makes no account worse: what verifies is said only by
names that carry the rows which the rhythm of passes asks for; else every name is ``shared``, and what it may
be stands in a comment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from nsysacct.evidence import family_of
from nsysacct.names import KernelName, parse
from nsysacct.signatures import Pattern
from nsysacct.suggest import Findings, NameFacts, PassKind, width_place

_PLAIN = re.compile(r"[A-Za-z_]\w*")
_LONG = 240
"""Characters up to which a kernel name is an example as it is."""

_NOISE = 0.0005
"""Share of the GPU time below which names that are of no one phase are left out."""

_ACCEPTING = re.compile(r"reject|accept|verify|resample", re.IGNORECASE)
_DRAFTING = re.compile(r"draft|eagle|propos|medusa|mtp|ngram|speculat", re.IGNORECASE)

_BUCKET = {
    "verify": "verify",
    "draft": "draft",
    "target": "target",
    "early": "shared",
    "shared": "shared",
}


@dataclass(slots=True)
class _Block:
    """One signature to be written: names of one role that one pattern takes."""

    role: str
    pattern: str
    facts: list[NameFacts]
    width: int | None = None
    contrasted: bool = False  # other passes run the same base name on other rows


def suggestion(found: Findings, *, name: str = "unnamed") -> str:
    """Text of a registry file for what was found.

    Parameters
    ----------
    found : Findings
    name : str
        Engine name to write.

    Returns
    -------
    str
        Valid TOML in format 1, with comments that say what to check and why.

    Examples
    --------
    >>> text = suggestion(Findings("x.sqlite", [], None, [], [], (0, [])), name="mine")
    >>> text.splitlines()[0]
    '# Suggested by nsysacct from x.sqlite. Nothing here is known: each CHECK is yours to settle.'
    """
    blocks = _blocks(found)
    lines = [*_head(found, name, blocks), *_passes(found), *_semantics(found, blocks)]
    for number, block in enumerate(blocks, 1):
        lines += _signature(block, found, number, blocks)
    lines += _ranges(found)
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- groups


def _blocks(found: Findings) -> list[_Block]:
    """Signatures: by role and base name, those of one role and count together."""
    total = sum(f.gpu_ns for f in found.names) or 1
    kept = [
        f
        for f in found.names
        if f.role in ("verify", "draft", "target") or f.gpu_ns >= _NOISE * total or _hinted(f)
    ]
    by_base: dict[str, list[NameFacts]] = {}
    for facts in kept:
        by_base.setdefault(facts.name.qualified, []).append(facts)
    blocks: list[_Block] = []
    together: dict[tuple[str, int], _Block] = {}
    for group in by_base.values():
        roles = {f.role for f in group}
        if len(roles) > 1:
            blocks += _split_base(group, [f for f in kept if f not in group])
            continue
        role, simple = roles.pop(), _PLAIN.fullmatch(group[0].name.qualified) is not None
        placed = _with_width(group, []) if role == "verify" else None
        if placed is not None:
            blocks.append(placed)
        elif simple and len(group) == 1 and (role, group[0].instances) in together:
            together[role, group[0].instances].facts += group
        else:
            block = _Block(role, _base_pattern(group[0].name), list(group))
            blocks.append(block)
            if simple and len(group) == 1:
                together[role, group[0].instances] = block
    for block in together.values():
        if len(block.facts) > 1:
            block.pattern = "{" + ",".join(f.name.base for f in block.facts) + "}"
    order = list(_BUCKET)
    return sorted(blocks, key=lambda b: (order.index(b.role), -sum(f.gpu_ns for f in b.facts)))


def _hinted(facts: NameFacts) -> bool:
    return bool(_ACCEPTING.search(facts.name.base) or _DRAFTING.search(facts.name.base))


def _base_pattern(name: KernelName) -> str:
    """Pattern for all instantiations of a base name; the name spelled out where it is no plain word."""
    if _PLAIN.fullmatch(name.base) and not name.opaque:
        return name.base
    return Pattern.of(name).text


def _split_base(group: Sequence[NameFacts], rest: Sequence[NameFacts]) -> list[_Block]:
    """One base name whose instantiations have several roles: told apart by template arguments."""
    mine = [f for f in group if f.role == "verify"]
    others = [f for f in group if f.role != "verify"]
    block = _with_width(mine, others) if mine else None
    exact = others if block is not None else list(group)
    return [
        *([block] if block is not None else []),
        *(_Block(f.role, Pattern.of(f.name).text, [f]) for f in exact),
    ]


def _with_width(mine: Sequence[NameFacts], others: Sequence[NameFacts]) -> _Block | None:
    """Signature with the rows as a captured argument, when one argument is the rows."""
    place = width_place([f.name for f in mine], [f.name for f in others])
    if place is None or not _PLAIN.fullmatch(mine[0].name.base):
        return None
    position, rows = place
    arguments = ["*"] * len(mine[0].name.args or ())
    arguments[position] = "M"
    pattern = f"{mine[0].name.base}<{', '.join(arguments)}>"
    compiled = Pattern.compile(pattern, ["M"])
    taken = [f for f in others if _rows(compiled, f.name) >= 2]
    if taken:
        return None
    return _Block("verify", pattern, list(mine), width=rows, contrasted=bool(others))


def _rows(pattern: Pattern, name: KernelName) -> int:
    """Captured M as a number, 0 when there is none."""
    bound = (pattern.match(name) or {}).get("M", "")
    return int(bound) if bound.isdecimal() else 0


# ---------------------------------------------------------------- the tables


def _head(found: Findings, name: str, blocks: Sequence[_Block]) -> list[str]:
    own = [f for b in blocks if b.role in ("verify", "draft") for f in b.facts]
    own = own or [f for b in blocks for f in b.facts if _hinted(f)]
    patterns = list(dict.fromkeys(_base_pattern(f.name) for f in own))[:8]
    lines = [
        f"# Suggested by nsysacct from {_comment(found.trace)}. Nothing here is known: each CHECK is yours to settle.",
        "# When it is settled: uncomment recognise, and add the file with --registry FILE or NSYSACCT_REGISTRY.",
        "# docs/registry.md explains every key; 'nsysacct registry check --registry FILE' runs the examples.",
        "format = 1",
        "",
        "[engine]",
        f"name = {_string(name)}  # CHECK: what --engine takes",
        'source = "suggested from a capture"  # CHECK: where the facts come from, when you know',
        'evidence = "some"  # CHECK: delete it when every kernel that only verify passes run is here',
        "# CHECK: names that only this engine has; uncomment to let captures be recognised by them",
    ]
    return [
        *lines,
        f"# recognise = [{', '.join(_string(p) for p in patterns)}]",
        "recognise = []  # CHECK: delete this line when you uncomment the one above",
        "",
    ]


def _passes(found: Findings) -> list[str]:
    """What the launches look like, as comments."""
    lines = ["# Kinds of passes between two waits of the host, by GPU time:"]
    shown = sorted(found.kinds, key=lambda kind: -kind.gpu_ns * kind.count)[:12]
    lines += [f"#   {_describe(kind)}" for kind in shown]
    if found.rhythm is None:
        count, names = found.common
        listed = _comment(", ".join(names[:6]))
        lines += [
            "# No kind of pass follows a steady number of cheaper ones: no name is a candidate for a phase.",
            f"# {len(names)} names have {count} instances each, which may be the rounds: {listed}",
            '# A kernel that accepts drafts, once a verify step, is bucket = "verify", marker = "accept",',
            "# per_layer = 0.",
        ]
        return [*lines, ""]
    r = found.rhythm
    lines += [
        f"# {r.rounds} times {_short(found.kinds[r.verify])} follows {r.k} of {_short(found.kinds[r.draft])} "
        f"({r.steady:.0%} of the times): verifying after drafting looks so.",
    ]
    if r.k == 1:
        lines.append(
            "# CHECK: one cheap pass before each dear one may be preparation or sampling of plain steps."
        )
    for kind, counts in r.after.items():
        told = ", ".join(f"{n} in {times} rounds" for n, times in sorted(counts.items()))
        lines.append(f"# Between them runs {_short(found.kinds[kind])}: {told}.")
    if found.hides_target_passes:
        lines += [
            "# Graphs whose kernels are not shown run outside the two: a name below may run there as well. A capture",
            "# with --cuda-graph-trace=node shows it.",
        ]
    return [*lines, ""]


def _describe(kind: PassKind) -> str:
    what = "not shown" if kind.opaque else f"{kind.kernels} kernels of {len(kind.names)} names"
    return f"{kind.count} x {_short(kind)}: {what}, {kind.gpu_ns / 1e6:.3f} ms each"


def _short(kind: PassKind) -> str:
    if kind.graph is not None:
        return f"graph {kind.graph}"
    return f"eager passes of {kind.kernels} kernels"


def _semantics(found: Findings, blocks: Sequence[_Block]) -> list[str]:
    """Round rules, as far as the launches show them."""
    r = found.rhythm
    rows = next((b.width for b in blocks if b.width), None)
    width, why = "k+1", "most engines verify the last token and k drafts"
    if r is not None and rows in (r.k, r.k + 1):
        width = "k" if rows == r.k else "k+1"
        why = f"{rows} rows after {r.k} draft passes"
    after = [n for counts in r.after.values() for n in counts if n] if r is not None else []
    replay = "closing-steps" if after and _sure(found, blocks) else "none"
    reason = (
        "passes follow some verify passes and not others"
        if after
        else "nothing runs after a verify pass"
    )
    if r is None:
        reason = "unknown"
    return [
        "[semantics]",
        f'verify_width = "{width}"  # CHECK: {why}; "k" or "k+1"',
        'tokens = "n_ok+1"  # CHECK: not in a capture; "n_ok+1" or "max(n_ok,1)"',
        f'replay = "{replay}"  # CHECK: {reason}; "none", "closing-steps" or "checkpoint"',
        "",
    ]


def _signature(block: _Block, found: Findings, number: int, blocks: Sequence[_Block]) -> list[str]:
    facts = block.facts
    sure = _sure(found, blocks)
    bucket, doubt = _bucket(block, found, sure=sure)
    lines = [f"# {line}" for line in (*_numbers(block, found), *_geometry(block))]
    first = _PLAIN.match(facts[0].name.base)
    lines += [
        "[[signature]]",
        f'id = "{(first.group() if first else "kernel")[:40]}-{number}"',
        f"pattern = {_string(block.pattern)}",
    ]
    if block.width is not None:
        lines += ['capture = ["M"]', 'where = { M = ">=2" }']
        lines.append('width = "M"' if sure else '# width = "M"  # CHECK: uncomment, if M is rows')
    lines.append(f'bucket = "{bucket}"  # CHECK: {doubt}')
    lines.append(f'family = "{family_of(facts[0].name.base)}"')
    once = found.rhythm is not None and facts[0].instances == found.rhythm.rounds
    if bucket == "verify" and once:
        lines += ["per_layer = 0", "per_round = 1  # CHECK: once a round, whatever the layers"]
    lines += [
        f"matches = [{', '.join(_string(_example(f.name)) for f in facts[:3])}]",
        f"rejects = [{_string(_counterexample(block, blocks))}]",
        'source = "suggested from a capture"',
        "",
    ]
    return lines


def _sure(found: Findings, blocks: Sequence[_Block]) -> bool:
    """Whether names carry the rows that the rhythm asks a verify pass of k drafts to have.

    A template argument of that value may be anything, unless other passes run the kernel with another.
    """
    rows = {b.width for b in blocks if b.contrasted}
    return found.rhythm is not None and bool(rows & {found.rhythm.k, found.rhythm.k + 1})


def _bucket(block: _Block, found: Findings, *, sure: bool) -> tuple[str, str]:
    """Bucket to write, and what to check about it."""
    hidden = found.hides_target_passes
    if block.role == "verify" and hidden and block.width is None:
        return "shared", '"verify", if no single-token pass runs it (only seen in verify passes)'
    told = {
        "verify": "only verify passes run it",
        "draft": 'only draft passes run it; "shared", if the target runs it too',
        "target": 'passes that neither draft nor verify run it; "shared", if unsure',
        "early": 'only before the rounds: "other", if it sets up; "prefill", if it reads the prompt',
        "shared": "runs in several kinds of passes",
    }
    names = " ".join(f.name.base for f in block.facts)
    hints = [
        *(["its name speaks of accepting: verify?"] if _ACCEPTING.search(names) else []),
        *(["its name speaks of drafting: draft?"] if _DRAFTING.search(names) else []),
    ]
    if found.rhythm is None:
        return "shared", "; ".join(["no rhythm of passes tells", *hints])
    if not sure and _BUCKET[block.role] != "shared":
        return "shared", "; ".join([f'"{block.role}"? {told[block.role]}', *hints])
    return _BUCKET[block.role], told[block.role]


def _numbers(block: _Block, found: Findings) -> list[str]:
    """Counts of a group, divided by what they divide by."""
    r = found.rhythm
    steps = r.rounds * r.k if r else 0
    lines = []
    for facts in block.facts[:8]:
        text = f"{facts.instances} x {_comment(facts.name.short())}, {facts.gpu_ns / 1e6:.3f} ms"
        if r and block.role == "verify" and facts.instances % r.rounds == 0:
            text += f": {facts.instances // r.rounds} a round"
        elif steps and block.role == "draft" and facts.instances % steps == 0:
            text += f": {facts.instances // steps} a draft pass"
        lines.append(text)
    if len(block.facts) > 8:
        lines.append(f"and {len(block.facts) - 8} more")
    return lines


def _geometry(block: _Block) -> list[str]:
    """Launch dimensions that may be the width of a pass."""
    if block.width is not None:
        return [f"argument M is {block.width} in all verify passes"]
    lines = []
    for dimension, values in block.facts[0].geometry.items():
        if min(values) <= 8:
            told = ", ".join(map(str, values))
            lines.append(
                f'{dimension} is {told}: width = "{dimension}", if these are rows of a pass'
            )
    return lines


def _ranges(found: Findings) -> list[str]:
    if not found.ranges:
        return ["# The capture has no NVTX ranges."]
    lines = ["# NVTX ranges; uncomment those that enclose one phase."]
    for text, times, phase in found.ranges:
        known = f' (understood as it is: "{phase}")' if phase else ""
        lines += [
            f"# {times} x {_comment(text)}{known}",
            "# [[nvtx]]",
            f"# pattern = {_string(text)}",
            f'# bucket = "{phase or "target"}"',
            '# source = "ranges seen in a capture"',
        ]
    return lines


# ---------------------------------------------------------------- texts


def _example(name: KernelName) -> str:
    full = str(name)
    if len(full) <= _LONG:
        return full
    return name.signature


def _counterexample(block: _Block, blocks: Sequence[_Block]) -> str:
    """A name that the pattern must not take: of its own base name, or else of another group."""
    base = block.facts[0].name.base
    others = [f.name for b in blocks if b is not block for f in b.facts]
    mine = Pattern.compile(block.pattern, ["M"] if block.width is not None else [])
    for name in sorted(others, key=lambda n: n.base != base):
        if mine.match(name) is None or (block.width is not None and _rows(mine, name) < 2):
            return _example(name)
    return _example(parse(f"not_{base}" if _PLAIN.fullmatch(base) else "another_kernel"))


def _string(text: str) -> str:
    """TOML basic string; JSON's escapes are TOML's but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(text: str) -> str:
    """Text that can stand in a comment: control characters would end it or be refused."""
    return "".join(c if c.isprintable() else "?" for c in text)[:160]
