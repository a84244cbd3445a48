"""What the user tells the tool about a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nsysacct import nvtx
from nsysacct.errors import UsageError
from nsysacct.evidence import Code
from nsysacct.grammar import Plan
from nsysacct.registry import load_registry

if TYPE_CHECKING:
    from nsysacct.logs import LogReading


@dataclass(frozen=True, slots=True)
class Options:
    """What the user tells the tool; everything is optional.

    Attributes
    ----------
    engine : str or None
        Registry to use; None recognises it from the kernels.
    layers : mapping
        Layer kind -> count ("all" for the model's layers).
    k : int or None
        Drafts a round.
    n_ok : tuple of int or None
        Histogram: rounds that accepted 0, 1, ... k drafts.
    plan : Plan
        Target steps around the rounds.
    step_ns : int or None
        Wall of one plain step, to price work that the trace does not time.
    wall_ns : int or None
        Wall of the speculative part as the run measured it.
    ignore : frozenset of str
        Bases that may not be used.
    nvtx : tuple of nvtx.Rule
        Range text -> phase, before the registry's and the defaults.
    graph_roles : mapping
        Executable graph -> phase.
    pid, gpu : int or None
        Process (decimal, as the OS has it) and GPU that the top level shows.
    labels : mapping
        What the run was: model, quantisation, prompt...
    registry_paths : tuple of str
        Further registry files.
    log : LogReading or None
        What the run's own log says about acceptance.
    all_pids : bool
        Sum the processes of one job at the top level instead of showing one.
    """

    engine: str | None = None
    layers: Mapping[str, int] = field(default_factory=dict)
    k: int | None = None
    n_ok: tuple[int, ...] | None = None
    plan: Plan = field(default_factory=Plan)
    step_ns: int | None = None
    wall_ns: int | None = None
    ignore: frozenset[str] = frozenset()
    nvtx: tuple[nvtx.Rule, ...] = ()
    graph_roles: Mapping[int, Code] = field(default_factory=dict)
    pid: int | None = None
    gpu: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    registry_paths: tuple[str, ...] = ()
    log: LogReading | None = None
    all_pids: bool = False

    @property
    def printed_histogram(self) -> tuple[int, ...] | None:
        """Histogram of the log, where it is printed or the only one that fits; None otherwise."""
        if self.log is None:
            return None
        from nsysacct.acceptance import is_exact

        counters = self.log.counters
        return tuple(counters.n_ok) if counters.n_ok is not None and is_exact(counters) else None

    def recorded(self) -> dict[str, object]:
        """Options that figures rest on, for the account (JSON types only)."""
        plan = [[code.name.lower(), count] for code, count in self.plan.before]
        candidates: dict[str, object] = {
            "layers": dict(self.layers),
            "k": self.k,
            "n_ok": list(self.n_ok) if self.n_ok else None,
            "plan": plan,
            "closing": self.plan.closing,
            "step_ns": self.step_ns,
            "wall_ns": self.wall_ns,
            "ignore": sorted(self.ignore),
            "graph_roles": {str(g): c.name.lower() for g, c in self.graph_roles.items()},
            "nvtx": [[rule.pattern, rule.code.name.lower()] for rule in self.nvtx],
        }
        return {key: value for key, value in candidates.items() if value or value == 0}


def check_layer_kinds(
    option: str, layers: Mapping[str, int], registry_paths: Sequence[str] = ()
) -> None:
    """Refuse a kind of layer that no engine has: its count would say nothing about a trace.

    Parameters
    ----------
    option : str
        What the user calls the option.
    layers : mapping
        Layer kind -> count.
    registry_paths : sequence of str
        Further registry files.

    Raises
    ------
    UsageError
        Naming the first such kind and those that there are.
    """
    if not set(layers) - {"all"}:
        return
    engines = load_registry(registry_paths).engines
    known = {"all", *(s.layer for spec in engines for s in spec.signatures)}
    for kind, count in layers.items():
        if kind not in known:
            raise UsageError(
                f"{option} {kind}={count}",
                f"no engine has layers of the kind {kind!r}",
                f"use one of {', '.join(sorted(known))}",
            )
