"""Tables of the page in their order, and the bar of the split."""

from __future__ import annotations

from dataclasses import dataclass, field

from nsysacct import account_tables
from nsysacct.account_tables import NS_PER_MS, WAYS, Table, split_parts
from nsysacct.model import Account, ProcessAccount


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of the bar of the split."""

    bucket: str
    provenance: str
    ms: str
    percent: float


@dataclass(frozen=True, slots=True)
class Tables:
    """All of the page's tables. ``bar`` is the split as shares of its own sum."""

    split: Table
    bar: list[Segment]
    more: list[Table] = field(default_factory=list)


def page_tables(account: Account) -> Tables:
    """Tables of an account; those without rows are left out."""
    tables = [
        account_tables.signatures(account.rounds),
        account_tables.witnesses(account.rounds),
        account_tables.graphs(account),
        account_tables.kernels(account),
        account_tables.steps(account),
        account_tables.rounds(account.per_round),
        account_tables.processes(account),
    ]
    return Tables(account_tables.split(account), _bar(account), [t for t in tables if t.rows])


def ways_to_explain(tables: Tables) -> list[str]:
    """Provenances of the bar, when not all of it is measured."""
    found = {p.provenance for p in tables.bar}
    ways: list[str] = [w for w in WAYS if w in found]
    return ways if ways != ["measured"] else []


def _bar(account: ProcessAccount) -> list[Segment]:
    parts = split_parts(account, in_rounds=bool(account.rounds.value))
    whole = sum(part.ns for part in parts) or 1
    return [
        Segment(p.bucket, p.provenance, f"{p.ns / NS_PER_MS:.3f}", round(100 * p.ns / whole, 4))
        for p in parts
        if p.ns
    ]
