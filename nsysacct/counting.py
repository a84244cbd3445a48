"""Rounds proven by counting: instances = rounds x (per_layer x layers + per_round).

Every verify-only kernel is checked by itself. What the registry leaves open (how often a layer runs
it, whether it also runs once a round) is solved for: the largest whole number of rounds that explains
every count with the smallest structure. A remainder is a finding, never rounded away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from nsysacct.model import SignatureCount

WOULD_FIT = "would explain all of them"
"""Ends the reason that names layers which fit where the given ones do not."""

MAX_PER_ROUND = 1
"""Extra instances a round (an LM head) that may be solved for; more must be declared."""

MAX_PER_LAYER = 8
"""Instances in one layer that may be solved for."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Instances of one verify-only kernel.

    Attributes
    ----------
    pattern : str
        The kernel as a pattern.
    instances : int
    gpu_ns : int
    kind : str
        Layer kind of the signature ("all", "gdn", ...).
    per_layer, per_round : int or None
        What the registry declares.
    """

    pattern: str
    instances: int
    gpu_ns: int
    kind: str = "all"
    per_layer: int | None = None
    per_round: int | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """Outcome of counting.

    Attributes
    ----------
    rounds : int or None
        None when no whole number explains the counts.
    signatures : list of SignatureCount
    layers : dict
        Layer kind -> count, given and solved.
    layers_how : str
        "given", "solved" or "".
    whole : bool
        Whether every count is explained.
    reasons : list of str
    """

    rounds: int | None
    signatures: list[SignatureCount]
    layers: dict[str, int]
    layers_how: str
    whole: bool
    reasons: list[str]


def prove(
    counted: Sequence[Counted], layers: Mapping[str, int], *, observed: int | None = None
) -> Proof:
    """Solve for the rounds that explain all counts.

    Parameters
    ----------
    counted : sequence of Counted
        One per distinct verify-only kernel.
    layers : mapping
        Layer kind -> count, as the user gave it; what is missing is solved for.
    observed : int, optional
        Verify passes seen in the launch order: decides between numbers that all explain the counts.
    """
    counted = [c for c in counted if c.instances]
    if not counted:
        return Proof(observed, [], dict(layers), "given" if layers else "", True, [])
    common = 0
    for c in counted:
        common = gcd(common, c.instances)
    fits = [r for r in _divisors(common) if _explain(counted, r, layers) is not None]
    if fits:
        rounds = observed if observed in fits else max(fits)
        solved = _explain(counted, rounds, layers)
        assert solved is not None
        rows, found = solved
        reasons = [
            f"{len(rows)} verify-only kernels, each a whole number of times in {rounds} rounds"
        ]
        if observed is not None and observed != rounds:
            reasons.append(f"but {observed} verify passes stand in the launch order")
        return Proof(rounds, rows, found, "given" if layers.get("all") else "solved", True, reasons)
    return _not_whole(counted, layers, observed)


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def _explain(
    counted: Sequence[Counted], rounds: int, layers: Mapping[str, int]
) -> tuple[list[SignatureCount], dict[str, int]] | None:
    """Rows and layer counts when `rounds` explains every count; None otherwise."""
    quotients = [c.instances // rounds for c in counted]
    total = layers.get("all") or _solve_layers(counted, quotients)
    if total is None:
        return None
    found = {"all": total, **{k: v for k, v in layers.items() if k != "all"}}
    for c, q in zip(counted, quotients, strict=True):
        if c.kind != "all" and c.kind not in found:
            per = c.per_layer or 1
            if q % per or q // per > total:
                return None
            found[c.kind] = q // per
    rows = []
    for c, q in zip(counted, quotients, strict=True):
        parts = _decompose(q, found.get(c.kind, total), c)
        if parts is None:
            return None
        per_layer, per_round = parts
        open_count = c.per_layer is None or (c.kind != "all" and c.kind not in layers)
        rows.append(
            SignatureCount(
                pattern=c.pattern,
                instances=c.instances,
                gpu_ns=c.gpu_ns,
                kind=c.kind,
                layers=found.get(c.kind, total),
                per_layer=per_layer,
                per_round=per_round,
                rounds=rounds,
                verdict="solved" if open_count and c.kind not in layers and not layers else "exact",
            )
        )
    return rows, found


def _decompose(quotient: int, layers: int, c: Counted) -> tuple[int, int] | None:
    """``quotient = per_layer x layers + per_round`` with the smallest parts; None when there is none."""
    extras = range(MAX_PER_ROUND + 1) if c.per_round is None else [c.per_round]
    for extra in extras:
        rest = quotient - extra
        if rest < 0 or layers <= 0 or rest % layers:
            continue
        per_layer = rest // layers
        wanted = c.per_layer
        if wanted is not None and per_layer != wanted:
            continue
        if per_layer > MAX_PER_LAYER or (per_layer == 0 and extra == 0):
            continue
        return per_layer, extra
    return None


def _solve_layers(counted: Sequence[Counted], quotients: Sequence[int]) -> int | None:
    """The largest layer count that fits the kernels of every layer."""
    everywhere = [(q, c) for q, c in zip(quotients, counted, strict=True) if c.kind == "all"]
    if not everywhere:
        return max(quotients)
    smallest, one = min(everywhere, key=lambda e: e[0])
    extras = range(MAX_PER_ROUND + 1) if one.per_round is None else [one.per_round]
    candidates = {
        (smallest - extra) // per_layer
        for extra in extras
        for per_layer in range(1, MAX_PER_LAYER + 1)
    } | {smallest}
    for layers in sorted((n for n in candidates if 0 < n <= smallest), reverse=True):
        if all(_decompose(q, layers, c) is not None for q, c in everywhere):
            return layers
    return None


def _not_whole(
    counted: Sequence[Counted], layers: Mapping[str, int], observed: int | None
) -> Proof:
    """Rows that show which counts fit the observed rounds, and by how much the others do not."""
    rows = []
    suggestions = prove(counted, {}, observed=observed) if layers else None
    for c in counted:
        fit = None
        if observed:
            single = _explain([c], observed, layers) if c.instances % observed == 0 else None
            fit = single[0][0] if single else None
        if fit is not None:
            rows.append(fit)
            continue
        detail = ""
        if observed:
            q, r = divmod(c.instances, observed)
            detail = (
                f"{c.instances} = {q} x {observed} + {r}"
                if r
                else f"{q} a round do not fit {layers.get(c.kind, layers.get('all', '?'))} layers"
            )
        rows.append(
            SignatureCount(
                pattern=c.pattern,
                instances=c.instances,
                gpu_ns=c.gpu_ns,
                kind=c.kind,
                layers=layers.get(c.kind, layers.get("all")),
                rounds=None,
                verdict="not whole",
                detail=detail,
            )
        )
    reasons = ["no whole number of rounds explains the counts of all verify-only kernels"]
    if suggestions is not None and suggestions.whole and suggestions.rounds:
        reasons.append(
            f"{suggestions.layers.get('all')} layers and {suggestions.rounds} rounds {WOULD_FIT}"
        )
    return Proof(None, rows, dict(layers), "given" if layers else "", False, reasons)
