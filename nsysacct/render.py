"""The account as a text that a person reads in ten seconds: verdict, split, doubts, what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from nsysacct import ranks, render_proof
from nsysacct.checkup import lost_events, no_split, ranks_differ, rounds_found
from nsysacct.layout import CODE, Style, fold, ms, plain, share
from nsysacct.model import PROVENANCE, Account, BlindSpot, Bucket, KernelRow, ProcessAccount
from nsysacct.wording import RESIDUAL, RESIDUAL_OF_PRICED, how_known, shape, wall_known

IN_ROUNDS = ("draft", "verify", "replay")


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
        _head(account, width, style),
        _verdict(account, style),
        _split_table(account, style),
        _families(account),
        render_proof.counting(account.rounds, style, detail),
        render_proof.graphs(account.graphs, detail),
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


LAST_COLUMN = 22
"""Columns that the words at the end of a table row need, to be folded beneath themselves."""


def _fit(block: str, width: int) -> str:
    """Wrap the lines of a block that are too long, under their own last column or indent."""
    lines = []
    for line in block.split("\n"):
        if len(CODE.sub("", line)) <= width:
            lines.append(line)
            continue
        column = _COLUMN.match(line)
        indent = len(line) - len(line.lstrip())
        hang = len(column[1]) if column and len(column[1]) <= width - LAST_COLUMN else indent + 4
        if column and len(column[1]) == hang:
            words = fold(line[hang:], width - hang).split("\n")
            lines += [line[:hang] + words[0], *(" " * hang + word for word in words[1:])]
        else:
            lines.append(fold(line.lstrip(), width, indent=indent, hang=hang))
    return "\n".join(lines)


def percent(part: float, whole: float) -> str:
    """Share in percent; empty when there is no whole."""
    return share(part / whole) if whole else ""


def _head(account: Account, width: int, style: Style) -> str:
    t, e = account.trace, account.engine
    facts = [
        t.name,
        f"nsys {t.nsys_version}" if t.nsys_version else None,
        f"schema {t.export_schema}" if t.export_schema else "no schema version",
        t.gpu,
        f"graph granularity: {t.graph_trace}" if t.graph_trace else None,
    ]
    lines = _joined([f for f in facts if f], width)
    lines.append(f"engine {e.name} ({e.how}{': ' + e.detail if e.detail else ''})")
    if account.selection:
        lines.append(account.selection)
    folded = [part for line in lines for part in fold(line, width, hang=4).split("\n")]
    return "\n".join(style(line, "dim") for line in folded)


def _joined(facts: Sequence[str], width: int) -> list[str]:
    """Facts beside each other, a new line before one that does not fit."""
    lines: list[str] = []
    for fact in facts:
        if lines and len(lines[-1]) + len(fact) + 3 <= width:
            lines[-1] += f" | {fact}"
        else:
            lines.append(fact)
    return lines


def _verdict(account: ProcessAccount, style: Style) -> str:
    rounds = account.rounds
    if rounds.value is None:
        title = style(f"no split: {no_split(account)}", "bad")
        return "\n".join([title, *(f"  {_once(r, account)}" for r in rounds.reasons)])
    if not rounds.value:
        return "\n".join(
            [
                style("0 rounds: no speculation in this trace", "warn"),
                *(f"  {r}" for r in rounds.reasons),
            ]
        )
    colour = {"exact": "good", "inconsistent": "bad"}.get(rounds.verdict, "warn")
    known = shape(account)
    return "\n".join(
        [
            style(rounds_found(rounds), colour) + (f"; {known}" if known else ""),
            *(f"  {r}" for r in rounds.reasons),
        ]
    )


def _once(reason: str, account: ProcessAccount) -> str:
    """A reason without what a blind spot says in full further down."""
    for spot in account.blind_spots:
        reason = reason.replace(spot.detail, "see the blind spots")
    return reason


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
        how = how_known(b, ms) + _steps_priced(b, account)
        rows.append((b.bucket, ms(b.total_ns), per, percent(b.total_ns, wall), how))
    rows.append(_residual_row(account, rounds))
    rows.append(("wall", ms(wall), ms(wall / rounds), "", wall_known(account)))
    rows += [(b.bucket, ms(b.total_ns), "", "", how_known(b, ms)) for b in outside]
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
        (b.bucket, ms(b.total_ns), percent(b.total_ns, total), how_known(b, ms)) for b in shown
    ]
    widths = [max(len(r[i]) for r in rows) for i in range(3)]
    lines = [
        f"{r[0]:<{widths[0]}}  {r[1]:>{widths[1]}}  {r[2]:>{widths[2]}}  {r[3]}".rstrip()
        for r in rows
    ]
    return "\n".join([style(lines[0], "bold"), *lines[1:]])


def _residual_row(account: ProcessAccount, rounds: int) -> tuple[str, str, str, str, str]:
    w = account.window
    if w.residual_low_ns is not None and w.residual_high_ns is not None:
        low, high = w.residual_low_ns, w.residual_high_ns
        amount = f"{low / 1e6:.1f}..{high / 1e6:.1f}"
        per = f"{low / rounds / 1e6:.2f}..{high / rounds / 1e6:.2f}"
        part = f"{100 * low / w.wall_ns:.1f}..{100 * high / w.wall_ns:.1f} %" if w.wall_ns else ""
        return (
            "residual",
            amount,
            per,
            part,
            RESIDUAL_OF_PRICED,
        )
    return (
        "residual",
        ms(w.residual_ns),
        ms(w.residual_ns / rounds),
        percent(w.residual_ns, w.wall_ns),
        RESIDUAL,
    )


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
            fold(
                f"{spot.severity} {spot.kind}: {spot.detail}{price}", width, indent=2, hang=4
            ).replace(spot.severity, style(spot.severity, colours[spot.severity]), 1)
        )
        if spot.remedy:
            lines.append(fold(f"-> {spot.remedy}", width, indent=4, hang=7))
    return "\n".join(lines)


def _findings(account: ProcessAccount, width: int) -> str:
    rows = [f for f in account.findings if f.kind != "roles"]
    notes = [f for f in account.findings if f.kind == "roles"]
    lines = [
        fold(f"{f.kind}: {f.detail}{'; ' + f.remedy if f.remedy else ''}", width, indent=2, hang=4)
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
            + (", with the acceptance (--log or --n-ok)" if account.acceptance is None else "")
        )
    else:
        tips.append(
            "as the plain side of a comparison this is complete (--plain-from of whatif, explain and "
            "bottleneck); else turn speculation on, and see in the engine's log that it drafts"
        )
    return "\n".join(fold(f"next: {t}", width, hang=6) for t in tips)
