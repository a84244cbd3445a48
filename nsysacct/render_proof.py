"""What the account rests on, as text: kernels counted, witnesses, CUDA graphs and their roles."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nsysacct.layout import Style, count, ms, share
from nsysacct.model import GraphInfo, Rounds, SignatureCount


def counting(rounds: Rounds, style: Style, detail: bool) -> str:
    """Signatures and witnesses: why the number of rounds is to be believed."""
    if not rounds.signatures and not rounds.witnesses:
        return ""
    lines = [style("counted: instances = rounds x (a layer x layers + a round)", "bold")]
    shown = rounds.signatures if detail else _grouped(rounds.signatures)
    lines += ["  " + _signature(s) for s in shown]
    for w in rounds.witnesses:
        mark = (
            "agrees"
            if w.agrees
            else style(f"differs by {abs((w.rounds or 0) - (rounds.value or 0))}", "bad")
        )
        lines.append(f"  {w.rounds} by {w.name}{' (' + w.detail + ')' if w.detail else ''}: {mark}")
    return "\n".join(lines)


def _grouped(signatures: Sequence[SignatureCount]) -> list[SignatureCount]:
    """Signatures with the same count and structure as one line (six GDN kernels read as one)."""
    result: list[SignatureCount] = []
    seen: dict[tuple[object, ...], list[SignatureCount]] = {}
    for s in signatures:
        seen.setdefault(
            (s.instances, s.kind, s.per_layer, s.per_round, s.rounds, s.verdict, s.detail), []
        ).append(s)
    for group in seen.values():
        first = group[0]
        name = first.pattern if len(group) == 1 else f"{len(group)} kernels like {first.pattern}"
        gpu_ns = sum(s.gpu_ns for s in group)
        result.append(msgspec.structs.replace(first, pattern=name, gpu_ns=gpu_ns))
    return result


def _signature(s: SignatureCount) -> str:
    if s.rounds is None:
        return f"{s.instances} of {s.pattern}: not whole{' (' + s.detail + ')' if s.detail else ''}"
    if s.kind == "draft-step":
        return f"{s.instances} of {s.pattern} = {s.per_layer} x {s.layers} draft steps"
    parts = []
    if s.per_layer and s.layers:
        kind = "layers" if s.kind == "all" else f"{s.kind} layers"
        parts.append(
            f"{s.per_layer} x {s.layers} {kind}" if s.per_layer > 1 else f"{s.layers} {kind}"
        )
    if s.per_round:
        parts.append(f"{s.per_round} a round")
    return f"{s.instances} of {s.pattern} = {s.rounds} x ({' + '.join(parts)})"


def graphs(found: Sequence[GraphInfo], detail: bool) -> str:
    """Launches by executable graph: how they are timed, where they belong, and why."""
    if not found:
        return ""
    launches = sum(g.launches for g in found)
    states = {
        s: sum(g.launches for g in found if g.state == s) for s in ("expanded", "timed", "blind")
    }
    head = ", ".join(f"{n} {s}" for s, n in states.items() if n)
    of = f"{count(launches, 'launch')} of {count(len(found), 'executable graph')}"
    lines = [f"CUDA graphs: {of} ({head})"]
    shown = found if detail else found[:6]
    for g in shown:
        name = "unknown graph" if g.graph_exec_id is None else f"graph {g.graph_exec_id}"
        places = ", ".join(
            f"{n} {b}" for b, n in sorted(g.buckets.items(), key=lambda item: -item[1])
        )
        time = f"{ms(g.gpu_ns)} ms" if g.gpu_ns is not None else "no time"
        if g.busy_ns is not None and g.gpu_ns is not None and g.busy_ns < 0.99 * g.gpu_ns:
            time += f" summed, {ms(g.busy_ns)} ms as union"
        sure = ""
        if g.confidence is not None and g.confidence < 1:
            sure = f", {share(g.confidence, 0)} sure"
        reason = f" ({g.reason}{sure})" if g.reason else ""
        lines.append(
            f"  {name}: {count(g.launches, 'launch')}, {time}: {places or 'no role'}{reason}"
        )
    if len(found) > len(shown):
        lines.append(f"  and {len(found) - len(shown)} more (--detail lists all)")
    return "\n".join(lines)
