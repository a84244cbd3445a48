"""Two captures of one workload put together: times from one, proportions inside graphs from the other.

Whole-graph times (graph granularity) disturb the run little but show no names; node granularity shows
every kernel but slows graphs down. So the graph capture's times stay, and each bucket's whole-graph
time is spread over the kernels that the node capture saw inside graphs of that bucket, in proportion
to their summed time there. Basis of the spread amounts: ``apportioned``.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nsysacct.errors import IncomparableError
from nsysacct.model import IN_ROUNDS, Account, Finding, KernelRow

WHOLE = "graph"
"""Family of graphs timed as a whole."""


def with_detail(account: Account, node: Account) -> Account:
    """Spread the whole-graph time of `account` over the kernels that `node` shows.

    Raises
    ------
    IncomparableError
        When the captures do not correspond: other engine, rounds, width, graph launches or kernels.
    """
    _refuse(account, node)
    rows: list[KernelRow] = []
    slower: list[str] = []
    for name in dict.fromkeys(k.bucket for k in account.kernels):
        mine = [k for k in account.kernels if k.bucket == name]
        theirs = [k for k in node.kernels if k.bucket == name]
        whole = sum(k.gpu_ns for k in mine if k.family == WHOLE)
        inside = _inside(mine, theirs) if whole else []
        if not inside:
            rows += mine
            continue
        rows += _merged([k for k in mine if k.family != WHOLE], _spread(whole, inside))
        shown = sum(k.gpu_ns for k in inside)
        slower.append(f"{name} {shown / whole:.2f}")
    finding = Finding(
        kind="detail",
        severity="info",
        detail=f"proportions inside graphs are from {node.trace.name} (its summed kernel time against the "
        f"graph's interval here: {', '.join(slower) or 'none'}); all times are from {account.trace.name}",
    )
    return msgspec.structs.replace(account, kernels=rows, findings=[*account.findings, finding])


def _refuse(account: Account, node: Account) -> None:
    """Stop when the two captures are not of one workload."""
    checks = (
        ("engine", account.engine.name, node.engine.name),
        ("rounds", account.rounds.value, node.rounds.value),
        ("rows verified", account.rounds.width, node.rounds.width),
        ("k", account.rounds.k, node.rounds.k),
    )
    launches = [
        (
            f"graph launches in {name}",
            account.bucket(name).graph_launches,
            node.bucket(name).graph_launches,
        )
        for name in IN_ROUNDS
    ]
    for what, a, b in (*checks, *launches):
        if a != b and not (a is None or b is None):
            raise IncomparableError(
                "--detail-from",
                f"{what}: {a} in {account.trace.name}, {b} in {node.trace.name}",
                "capture the same run twice, once with --cuda-graph-trace=graph, once with node",
            )
    if not any(g.state == "expanded" for g in node.graphs):
        raise IncomparableError(
            "--detail-from",
            f"{node.trace.name} has no expanded graphs",
            "capture it with --cuda-graph-trace=node",
        )


def _inside(mine: Sequence[KernelRow], theirs: Sequence[KernelRow]) -> list[KernelRow]:
    """Kernels that the node capture saw beyond those that both saw outside graphs."""
    outside = {(k.family, k.signature): k for k in mine if k.family != WHOLE}
    rows = []
    for k in theirs:
        both = outside.get((k.family, k.signature))
        count = k.instances - (both.instances if both else 0)
        # what ran outside graphs ran alike in both captures: take its share by count
        ns = k.gpu_ns if both is None else k.gpu_ns - min(both.gpu_ns, k.gpu_ns)
        if count > 0 and ns > 0:
            rows.append(msgspec.structs.replace(k, instances=count, gpu_ns=ns, by_basis={}))
    return rows


def _spread(whole: int, inside: Sequence[KernelRow]) -> list[KernelRow]:
    """`whole` ns over the rows in proportion to their time; the sum is exact."""
    total = sum(k.gpu_ns for k in inside)
    shares = [whole * k.gpu_ns // total for k in inside]
    for i in sorted(range(len(inside)), key=lambda i: -(whole * inside[i].gpu_ns % total))[
        : whole - sum(shares)
    ]:
        shares[i] += 1
    return [
        msgspec.structs.replace(k, gpu_ns=ns, by_basis={"apportioned": ns})
        for k, ns in zip(inside, shares, strict=True)
    ]


def _merged(outside: Sequence[KernelRow], inside: Sequence[KernelRow]) -> list[KernelRow]:
    """One row a signature, eager and apportioned time added."""
    rows = {(k.family, k.signature): k for k in outside}
    for k in inside:
        key = (k.family, k.signature)
        old = rows.get(key)
        rows[key] = (
            k
            if old is None
            else msgspec.structs.replace(
                old,
                instances=old.instances + k.instances,
                gpu_ns=old.gpu_ns + k.gpu_ns,
                by_basis={**old.by_basis, **k.by_basis},
            )
        )
    return sorted(rows.values(), key=lambda k: (-k.gpu_ns, k.family, k.signature))
