"""The account as a text that a person reads in ten seconds: verdict, split, doubts, what to do next."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence

from nsysacct import ranks
from nsysacct.checkup import lost_events, no_split, ranks_differ
from nsysacct.model import (
    PROVENANCE,
    Account,
    BlindSpot,
    Bucket,
    GraphInfo,
    KernelRow,
    ProcessAccount,
    Rounds,
    SignatureCount,
)

Style = Callable[[str, str], str]
"""Colours a text: (text, style name) -> text; styles are "good", "bad", "warn", "dim", "bold"."""

IN_ROUNDS = ("draft", "verify", "replay")


def plain(text: str, style: str) -> str:
    """No colour."""
    del style
    return text


_CODES = {"good": "32", "bad": "31", "warn": "33", "dim": "2", "bold": "1"}


_CODE = re.compile(r"\x1b\[[0-9;]*m")


def ansi(text: str, style: str) -> str:
    """Colour for a terminal."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def text(
    account: Account,
    *,
    width: int = 80,
    style: Style = plain,
    detail: bool = False,
) -> str:
    """The report of ``nsysacct split``.

    Parameters
    ----------
    account : Account
    width : int
        Columns to wrap at.
    style : Style
        Colouring.
    detail : bool
        Whether all signatures, graphs and kernels are listed.
    """
    blocks = [
        _head(account, style),
        _verdict(account, style),
        _split_table(account, style),
        _families(account),
        _counting(account.rounds, style, detail),
        _graphs(account.graphs, account, detail),
        _blind(account.blind_spots, width, style),
        _findings(account, width),
        _others(account, style),
        _next(account, width),
    ]
    return "\n\n".join(_fit(b, width) for b in blocks if b) + "\n"


_COLUMN = re.compile(
    r"^( *\S.*\S {2,})(?=(?:measured|estimated|computed|wall minus|first to|given|walls|copies)\b)"
)
"""The part of a table row in front of its last column, which may run on in the next line."""


def _fit(block: str, width: int) -> str:
    """Wrap the lines of a block that are too long, under their own last column or indent."""
    lines = []
    for line in block.split("\n"):
        if len(_CODE.sub("", line)) <= width:
            lines.append(line)
            continue
        column = _COLUMN.match(line)
        indent = len(column[1]) if column else len(line) - len(line.lstrip()) + 4
        if indent > width // 2:
            indent = 6
        lines += textwrap.wrap(
            line.replace(" %", "\0%"),  # a number keeps its sign
            width=width,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
            replace_whitespace=False,
        )
    return "\n".join(lines).replace("\0", " ")


def ms(ns: float | None) -> str:
    """Milliseconds with as many digits as are worth reading; "open" when unknown."""
    if ns is None:
        return "open"
    value = ns / 1e6
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.3f}"


def percent(part: float, whole: float) -> str:
    """Share in percent; empty when there is no whole."""
    return f"{100 * part / whole:.1f} %" if whole else ""


def _head(account: Account, style: Style) -> str:
    t, e = account.trace, account.engine
    facts = [
        t.name,
        f"nsys {t.nsys_version}" if t.nsys_version else None,
        f"schema {t.export_schema}" if t.export_schema else "no schema version",
        t.gpu,
        f"graph granularity: {t.graph_trace}" if t.graph_trace else None,
    ]
    lines = [style(" | ".join(f for f in facts if f), "dim")]
    engine = f"engine {e.name} ({e.how}{': ' + e.detail if e.detail else ''})"
    lines.append(style(engine, "dim"))
    if account.selection:
        lines.append(style(account.selection, "dim"))
    return "\n".join(lines)


def _verdict(account: ProcessAccount, style: Style) -> str:
    rounds = account.rounds
    words = {
        "exact": ("proven by counting", "good"),
        "inferred": ("inferred, not proven", "warn"),
        "inconsistent": ("INCONSISTENT: the counts contradict each other", "bad"),
    }
    if rounds.value is None:
        title = style(f"no split: {no_split(account)}", "bad")
        return "\n".join([title, *(f"  {r}" for r in rounds.reasons)])
    if not rounds.value:
        return "\n".join(
            [
                style("0 rounds: no speculation in this trace", "warn"),
                *(f"  {r}" for r in rounds.reasons),
            ]
        )
    how, colour = words.get(rounds.verdict, (rounds.verdict, "warn"))
    facts = [
        f"k = {rounds.k}" if rounds.k else "",
        f"{rounds.width} rows verified" if rounds.width else "",
    ]
    layers = ", ".join(
        f"{n} layers" if kind == "all" else f"{n} {kind}" for kind, n in rounds.layers.items()
    )
    facts.append(f"{layers} ({rounds.layers_how})" if layers and rounds.layers_how else layers)
    line = f"{rounds.value} rounds, {how}"
    known = ", ".join(f for f in facts if f)
    return "\n".join(
        [
            style(line, colour) + (f"; {known}" if known else ""),
            *(f"  {r}" for r in rounds.reasons),
        ]
    )


def _how(bucket: Bucket) -> str:
    """Bases of a bucket with their provenance, e.g. ``measured 672.30 exclusive + 39.70 positional``."""
    groups: dict[str, list[str]] = {}
    for basis, provenance in PROVENANCE.items():
        if bucket.by_basis.get(basis):
            groups.setdefault(provenance, []).append(f"{ms(bucket.by_basis[basis])} {basis}")
    return "; ".join(f"{p}: {' + '.join(parts)}" for p, parts in groups.items())


def _split_table(account: ProcessAccount, style: Style) -> str:
    wall = account.window.wall_ns
    rounds = account.rounds.value or 0
    if not rounds:
        return _totals_table(account, style)
    rows = [("", "GPU ms", "ms/round", "of wall", "how it is known")]
    inside = [b for b in account.buckets if b.bucket in IN_ROUNDS]
    outside = [
        b for b in account.buckets if b not in inside and (b.gpu_ns or b.computed_ns or b.mem_ns)
    ]
    for b in inside:
        per = ms(b.ns_per_round) if b.ns_per_round is not None else ""
        how = _how(b) + _steps_priced(b, account)
        rows.append((b.bucket, ms(b.total_ns), per, percent(b.total_ns, wall), how))
    rows.append(_residual_row(account, rounds))
    rows.append(("wall", ms(wall), ms(wall / rounds), "", _wall_how(account)))
    rows += [(b.bucket, ms(b.total_ns), "", "", _how(b) or _memory_only(b)) for b in outside]
    widths = [max(len(r[i]) for r in rows) for i in range(4)]
    lines = []
    for i, r in enumerate(rows):
        cells = [r[0].ljust(widths[0]), *(r[j].rjust(widths[j]) for j in (1, 2, 3)), r[4]]
        line = "  ".join(cells).rstrip()
        lines.append(style(line, "bold") if i == 0 else line)
        if r[0] == "wall" and outside:
            lines.append(style("outside the rounds, or not placed:", "dim"))
    return "\n".join(lines)


def _steps_priced(bucket: Bucket, account: ProcessAccount) -> str:
    """How many steps an arithmetic amount stands for."""
    step = account.options.get("step_ns") if isinstance(account, Account) else None
    amount = bucket.by_basis.get("arithmetic")
    return f" ({amount // step} steps x {step / 1e6:g} ms)" if step and amount else ""


def _totals_table(account: ProcessAccount, style: Style) -> str:
    """GPU time by bucket where there are no rounds to measure by."""
    shown = [b for b in account.buckets if b.gpu_ns or b.computed_ns or b.mem_ns]
    total = sum(b.total_ns for b in shown)
    rows = [("", "GPU ms", "share", "how it is known")]
    rows += [
        (b.bucket, ms(b.total_ns), percent(b.total_ns, total), _how(b) or _memory_only(b))
        for b in shown
    ]
    widths = [max(len(r[i]) for r in rows) for i in range(3)]
    lines = [
        f"{r[0]:<{widths[0]}}  {r[1]:>{widths[1]}}  {r[2]:>{widths[2]}}  {r[3]}".rstrip()
        for r in rows
    ]
    return "\n".join([style(lines[0], "bold"), *lines[1:]])


def _memory_only(b: Bucket) -> str:
    return f"copies and sets only: {ms(b.mem_ns)} ms" if b.mem_ns and not b.gpu_ns else ""


def _residual_row(account: ProcessAccount, rounds: int) -> tuple[str, str, str, str, str]:
    w = account.window
    if w.residual_low_ns is not None and w.residual_high_ns is not None:
        low, high = w.residual_low_ns, w.residual_high_ns
        amount = f"{low / 1e6:.1f}..{high / 1e6:.1f}"
        per = f"{low / rounds / 1e6:.2f}..{high / rounds / 1e6:.2f}"
        share = f"{100 * low / w.wall_ns:.1f}..{100 * high / w.wall_ns:.1f} %" if w.wall_ns else ""
        return (
            "residual",
            amount,
            per,
            share,
            "wall minus all that is seen or priced; host work, gaps",
        )
    return (
        "residual",
        ms(w.residual_ns),
        ms(w.residual_ns / rounds),
        percent(w.residual_ns, w.wall_ns),
        "wall minus union of GPU work: launch gaps, host work",
    )


def _wall_how(account: ProcessAccount) -> str:
    if account.window.wall_how == "given":
        return "given with --wall-ms"
    if account.window.wall_how == "summed":
        return "walls of all ranks added up"
    return "first to last GPU event of the rounds"


def _families(account: ProcessAccount) -> str:
    """Families within each phase of the rounds."""
    lines = []
    for name in IN_ROUNDS:
        rows = [k for k in account.kernels if k.bucket == name]
        total = sum(k.gpu_ns for k in rows)
        if not account.rounds.value:
            continue
        families = _by_family(rows)
        if not total or len(families) < 2:
            continue
        shares = [f"{f} {100 * ns / total:.1f} %" for f, ns in families[:6]]
        wall = account.window.wall_ns
        lines.append(f"{name} is {', '.join(shares)}")
        if name == "verify" and wall:
            first = [f"{f} {100 * ns / wall:.2f} %" for f, ns in families[:3]]
            lines.append(f"  of the wall: {', '.join(first)}")
    return "\n".join(lines)


def _by_family(rows: Iterable[KernelRow]) -> list[tuple[str, int]]:
    total: dict[str, int] = {}
    for k in rows:
        total[k.family] = total.get(k.family, 0) + k.gpu_ns
    return sorted(total.items(), key=lambda item: -item[1])


def _counting(rounds: Rounds, style: Style, detail: bool) -> str:
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
        result.append(
            SignatureCount(
                pattern=name,
                instances=first.instances,
                kind=first.kind,
                layers=first.layers,
                per_layer=first.per_layer,
                per_round=first.per_round,
                rounds=first.rounds,
                verdict=first.verdict,
                detail=first.detail,
            )
        )
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


def _graphs(graphs: Sequence[GraphInfo], account: ProcessAccount, detail: bool) -> str:
    if not graphs:
        return ""
    launches = sum(g.launches for g in graphs)
    states = {
        s: sum(g.launches for g in graphs if g.state == s) for s in ("expanded", "timed", "blind")
    }
    head = ", ".join(f"{n} {s}" for s, n in states.items() if n)
    lines = [f"CUDA graphs: {launches} launches of {len(graphs)} executable graphs ({head})"]
    shown = graphs if detail else graphs[:6]
    for g in shown:
        name = "unknown graph" if g.graph_exec_id is None else f"graph {g.graph_exec_id}"
        places = ", ".join(
            f"{n} {b}" for b, n in sorted(g.buckets.items(), key=lambda item: -item[1])
        )
        time = f"{ms(g.gpu_ns)} ms" if g.gpu_ns is not None else "no time"
        if g.busy_ns is not None and g.gpu_ns is not None and g.busy_ns < 0.99 * g.gpu_ns:
            time += f" summed, {ms(g.busy_ns)} ms as union"
        sure = f", {g.confidence:.0%} sure" if g.confidence is not None and g.confidence < 1 else ""
        reason = f" ({g.reason}{sure})" if g.reason else ""
        lines.append(f"  {name}: {g.launches} launches, {time}: {places or 'no role'}{reason}")
    if len(graphs) > len(shown):
        lines.append(f"  and {len(graphs) - len(shown)} more (--detail lists all)")
    del account
    return "\n".join(lines)


def _wrap(body: str, width: int, first: str, rest: str) -> str:
    return textwrap.fill(
        body,
        width=max(width, 40),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
    )


def _blind(spots: Sequence[BlindSpot], width: int, style: Style) -> str:
    if not spots:
        return "blind spots: none found"
    lines = [style("blind spots", "bold")]
    colours = {"fatal": "bad", "warning": "warn", "info": "dim"}
    for spot in spots:
        price = ""
        if spot.hidden_ns:
            price = f" [{ms(spot.hidden_ns)} ms, {PROVENANCE.get(spot.basis or '', 'open')}: {spot.basis}]"
        elif spot.hidden_ns is None:
            most = f", at most {ms(spot.hidden_max_ns)} ms" if spot.hidden_max_ns else ""
            price = f" [hidden time open{most}]"
        lines.append(
            _wrap(
                f"{spot.severity} {spot.kind}: {spot.detail}{price}", width, "  ", "    "
            ).replace(spot.severity, style(spot.severity, colours[spot.severity]), 1)
        )
        if spot.remedy:
            lines.append(_wrap(f"-> {spot.remedy}", width, "    ", "       "))
    return "\n".join(lines)


def _findings(account: ProcessAccount, width: int) -> str:
    rows = [f for f in account.findings if f.kind != "roles"]
    notes = [f for f in account.findings if f.kind == "roles"]
    lines = [
        _wrap(f"{f.kind}: {f.detail}{'; ' + f.remedy if f.remedy else ''}", width, "  ", "    ")
        for f in [*rows, *notes]
    ]
    return "\n".join(["findings", *lines]) if lines else ""


def _others(account: Account, style: Style) -> str:
    if len(account.processes) < 2:
        return ""
    lines = [style("all processes", "bold")]
    shared = {g for g in account.gpu_busy_ns if sum(str(p.gpu) == g for p in account.processes) > 1}
    lines += [
        f"  GPU {g} is shared: busy {ms(account.gpu_busy_ns[g])} ms, all its processes together"
        for g in sorted(shared)
    ]
    for p in account.processes:
        b = {x.bucket: x.gpu_ns for x in p.buckets}
        split = ", ".join(f"{name} {ms(b[name])}" for name in IN_ROUNDS if b[name])
        rounds = "?" if p.rounds.value is None else str(p.rounds.value)
        lines.append(
            f"  pid {p.pid} GPU {p.gpu}: {rounds} rounds, {ms(p.total_gpu_ns)} GPU ms{': ' + split if split else ''}"
        )
    lines += [
        f"  {skew.bucket} a round: {ms(skew.low_ns)} ms on the fastest rank, {ms(skew.high_ns)} on the slowest "
        f"({skew.ratio:.2f}x)"
        for skew in ranks.skews(account.processes)
    ]
    if ranks.skews(account.processes):
        lines.append("  " + style(_waiting(account.processes), "dim"))
    return "\n".join(lines)


def _waiting(parts: Sequence[ProcessAccount]) -> str:
    """Where time spent waiting in collectives is."""
    named = sum(ranks.collective_ns(p) for p in parts)
    whole = any(g.state == "timed" for p in parts for g in p.graphs)
    text = f"collectives that the trace names: {ms(named)} ms in all"
    return text + (
        "; those inside whole graphs count as the graph, waiting included" if whole else ""
    )


def _next(account: Account, width: int) -> str:
    """One or two things worth doing now."""
    tips = []
    lost = lost_events(account)
    if account.rounds.value is None and ranks_differ(account):
        tips.append("look at one process with --pid")
    elif account.rounds.value is None and lost is not None:
        tips.append(f"{lost.remedy}; nsysacct check prints the command")
    elif account.rounds.value is None:
        tips.append(
            'mark the phases in the engine with NVTX (ranges called "draft" and "verify"), capture with -t cuda,nvtx; '
            "or write a registry for it: nsysacct registry explain NAME shows how its kernels are read"
        )
    elif any(s.severity == "fatal" for s in account.blind_spots):
        tips.append("deal with the fatal blind spots first: the split is not complete")
    elif account.rounds.value:
        inside = {b.bucket: b.total_ns for b in account.buckets if b.bucket in IN_ROUNDS}
        inside["residual"] = account.window.residual_low_ns or account.window.residual_ns
        top = max(inside, key=lambda name: inside[name])
        tips.append(
            f"{top} is the largest part of a round ({percent(inside[top], account.window.wall_ns)} of the wall): "
            "nsysacct whatif shows what changing it would buy"
        )
    return "\n".join(_wrap(t, width, "next: ", "      ") for t in tips)
