"""Accounts as HTML for notebooks: tables that need no script and read well in light and dark.

Importing this module gives the structures of `model` their ``_repr_html_``. Every text of a trace
is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from nsysacct.model import (
    PROVENANCE,
    Account,
    BlindSpot,
    Bucket,
    ProcessAccount,
    RoundRow,
    Rounds,
)

NS_PER_MS = 1e6
MOST_ROUNDS = 12
"""Rounds that an account shows; `frames.rounds` has all."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """HTML table; the first column is the row's heading, the others are right-aligned."""
    title = f"<caption style='text-align:left'>{escape(caption)}</caption>" if caption else ""
    top = "".join(f"<th scope='col' style='text-align:left'>{escape(h)}</th>" for h in head)
    body = "".join(
        f"<tr><th scope='row' style='text-align:left'>{escape(first)}</th>"
        + "".join(f"<td style='text-align:{_side(cell)}'>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return f"<table>{title}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _side(cell: str) -> str:
    return "right" if cell[:1].isdigit() or cell[:1] == "-" else "left"


def _ms(ns: float | None) -> str:
    return "" if ns is None else f"{ns / NS_PER_MS:.3f}"


def _how(bucket: Bucket) -> str:
    """Amounts by basis, strongest first, each with its provenance."""
    parts = [
        f"{PROVENANCE[basis]} {_ms(bucket.by_basis[basis])} {basis}"
        for basis in PROVENANCE
        if bucket.by_basis.get(basis)
    ]
    return " + ".join(parts)


def buckets_html(account: ProcessAccount) -> str:
    """The split: GPU time of each bucket that has some, the residual, and the wall."""
    wall = account.window.wall_ns
    rows = [
        [
            b.bucket,
            _ms(b.total_ns),
            _ms(b.ns_per_round),
            f"{b.total_ns / wall:.1%}" if wall and b.ns_per_round is not None else "",
            _how(b),
        ]
        for b in account.buckets
        if b.total_ns
    ]
    window, count = account.window, account.rounds.value
    for name, ns in (("residual", window.residual_ns), ("wall", wall)):
        share = f"{ns / wall:.1%}" if wall and name == "residual" else ""
        how = "wall minus union of GPU work" if name == "residual" else window.wall_how
        rows.append([name, _ms(ns), _ms(ns / count) if count else "", share, how])
    return table(["bucket", "ms", "ms a round", "of wall", "how it is known"], rows)


def rounds_html(rounds: Rounds) -> str:
    """The count, its verdict, and what it rests on."""
    count = "no" if rounds.value is None else str(rounds.value)
    shape = ", ".join(
        f"{name} = {value}" for name, value in (("k", rounds.k), ("rows", rounds.width)) if value
    )
    head = f"<p><b>{count} rounds</b>, {escape(rounds.verdict)}{', ' + shape if shape else ''}</p>"
    why = "".join(f"<p>{escape(reason)}</p>" for reason in rounds.reasons)
    counted = [
        [s.pattern, str(s.instances), s.kind, _text(s.per_layer), _text(s.per_round),
         _text(s.rounds), s.verdict]
        for s in rounds.signatures
    ]  # fmt: skip
    seen = [
        [w.name, _text(w.rounds), "agrees" if w.agrees else "differs", w.detail]
        for w in rounds.witnesses
    ]
    head += why
    if counted:
        columns = ["pattern", "instances", "layers", "a layer", "a round", "rounds", "verdict"]
        head += table(columns, counted, "counted")
    if seen:
        head += table(["witness", "rounds", "", ""], seen, "witnesses")
    return head


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def blind_spots_html(spots: Sequence[BlindSpot]) -> str:
    """What the trace does not show, and how to capture it."""
    rows = [
        [s.kind, s.severity, "open" if s.hidden_ns is None else _ms(s.hidden_ns), s.detail,
         s.remedy]
        for s in spots
    ]  # fmt: skip
    return table(["blind spot", "severity", "hidden ms", "detail", "remedy"], rows)


def round_rows_html(rows: Sequence[RoundRow]) -> str:
    """One line a round, times in ms."""
    cells = [
        [str(r.index), _ms(r.wall_ns), _ms(r.draft_ns), _ms(r.verify_ns), _ms(r.replay_ns),
         _ms(r.residual_ns), _text(r.n_ok), " ".join(r.flags)]
        for r in rows
    ]  # fmt: skip
    head = ["round", "wall", "draft", "verify", "replay", "residual", "n_ok", "flags"]
    return table(head, cells, "rounds, ms")


def account_html(account: Account) -> str:
    """Whole account: source, rounds, split, blind spots, findings, first rounds."""
    source = " | ".join(
        t for t in (account.trace.name, account.trace.gpu, f"engine {account.engine.name}") if t
    )
    parts = [f"<p>{escape(source)}</p>", buckets_html(account), rounds_html(account.rounds)]
    if account.blind_spots:
        parts.append(blind_spots_html(account.blind_spots))
    if account.findings:
        cells = [[f.kind, f.severity, f.detail] for f in account.findings]
        parts.append(table(["finding", "severity", "detail"], cells))
    if account.per_round:
        more = len(account.per_round) - MOST_ROUNDS
        tail = f"<p>{more} more: nsysacct.frames.rounds(account)</p>" if more > 0 else ""
        shown = round_rows_html(account.per_round[:MOST_ROUNDS])
        parts.append(f"<details><summary>rounds</summary>{shown}{tail}</details>")
    return "".join(parts)


_HTML: dict[type, Callable[[Any], str]] = {
    ProcessAccount: buckets_html,
    Account: account_html,
    Rounds: rounds_html,
    BlindSpot: lambda spot: blind_spots_html([spot]),
    RoundRow: lambda row: round_rows_html([row]),
}
for _kind, _function in _HTML.items():
    _kind._repr_html_ = _function  # type: ignore[attr-defined]
