"""Names of figures: a closed grammar, and what each name means.

The grammar::

    BUCKET.{ns_per_round, ns_per_token, ns_per_run, mem_ns_per_round, busy_ns_per_round,
            events_per_round, share}
    BUCKET.FAMILY.{ns_per_round, ns_per_token, instances_per_round, instances_per_layer_round,
            ns_per_instance, share}
    {total, busy, wall, residual}.{ns_per_round, ns_per_token}
    launches.{per_round, per_token}
    {tokens, accepted}.per_round    rounds.count    blind.share
    step.ROLE.{ns_per_step, gpu_ns_per_step}

A misspelt name is an error and never a figure that is always 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nsysacct.errors import UsageError
from nsysacct.model import BUCKETS

Unit = Literal["ns", "count", "share"]
Per = Literal["round", "token", "step", "run", "instance", "layer and round", ""]

ROUND_BUCKETS = ("draft", "verify", "replay")
ROLES = ("plain", "decode", "prefill", "replay", "draft", "verify")

KERNEL_FLOOR = 0.01
"""Kernel times: what clocks and temperature move between captures of the same program."""
MEMORY_FLOOR = 0.02
"""Copies share the bus with whatever else the host does."""
WALL_FLOOR = 0.02
"""Wall time holds host work too."""
RESIDUAL_FLOOR = 0.05
"""Residual is a small difference of two large times, and all host work."""
ACCEPTANCE_FLOOR = 0.01
SHARE_FLOOR = 0.005
"""Absolute: half a percentage point."""

BUCKET_QUANTITIES: dict[str, tuple[Unit, Per, float]] = {
    "ns_per_round": ("ns", "round", KERNEL_FLOOR),
    "ns_per_token": ("ns", "token", KERNEL_FLOOR),
    "ns_per_run": ("ns", "run", KERNEL_FLOOR),
    "mem_ns_per_round": ("ns", "round", MEMORY_FLOOR),
    "busy_ns_per_round": ("ns", "round", KERNEL_FLOOR),
    "events_per_round": ("count", "round", 0.0),
    "share": ("share", "", SHARE_FLOOR),
}
FAMILY_QUANTITIES: dict[str, tuple[Unit, Per, float]] = {
    "ns_per_round": ("ns", "round", KERNEL_FLOOR),
    "ns_per_token": ("ns", "token", KERNEL_FLOOR),
    "instances_per_round": ("count", "round", 0.0),
    "instances_per_layer_round": ("count", "layer and round", 0.0),
    "ns_per_instance": ("ns", "instance", KERNEL_FLOOR),
    "share": ("share", "", SHARE_FLOOR),
}
STEP_QUANTITIES: dict[str, tuple[Unit, Per, float]] = {
    "ns_per_step": ("ns", "step", WALL_FLOOR),
    "gpu_ns_per_step": ("ns", "step", KERNEL_FLOOR),
}
FIXED: dict[str, tuple[Unit, Per, float]] = {
    "total.ns_per_round": ("ns", "round", KERNEL_FLOOR),
    "total.ns_per_token": ("ns", "token", KERNEL_FLOOR),
    "busy.ns_per_round": ("ns", "round", KERNEL_FLOOR),
    "busy.ns_per_token": ("ns", "token", KERNEL_FLOOR),
    "wall.ns_per_round": ("ns", "round", WALL_FLOOR),
    "wall.ns_per_token": ("ns", "token", WALL_FLOOR),
    "residual.ns_per_round": ("ns", "round", RESIDUAL_FLOOR),
    "residual.ns_per_token": ("ns", "token", RESIDUAL_FLOOR),
    "launches.per_round": ("count", "round", 0.0),
    "launches.per_token": ("count", "token", 0.0),
    "tokens.per_round": ("count", "round", ACCEPTANCE_FLOOR),
    "accepted.per_round": ("count", "round", ACCEPTANCE_FLOOR),
    "rounds.count": ("count", "run", 0.0),
    "blind.share": ("share", "", SHARE_FLOOR),
}


@dataclass(frozen=True, slots=True)
class Metric:
    """What a name means.

    ``floor`` is the metric's own noise: relative for times (and acceptance), absolute for shares,
    0 for counts, which are exact. ``subject`` is what comes before the last dot.
    """

    name: str
    subject: str
    quantity: str
    unit: Unit
    per: Per
    floor: float
    bucket: str | None = None
    family: str | None = None

    @property
    def exact(self) -> bool:
        """Whether equal programs give equal values, with no noise to allow for."""
        return self.floor == 0.0


def parse_metric(name: str) -> Metric:
    """Metric of a dotted name.

    Raises
    ------
    UsageError
        A name that the grammar does not have; the message lists what it has.

    Examples
    --------
    >>> parse_metric("verify.gemv.ns_per_instance").family
    'gemv'
    """
    subject, _, quantity = name.rpartition(".")
    if name in FIXED:
        return Metric(name, subject, quantity, *FIXED[name])
    head, _, rest = subject.partition(".")
    if head == "step" and rest in ROLES and quantity in STEP_QUANTITIES:
        return Metric(name, subject, quantity, *STEP_QUANTITIES[quantity])
    if head in BUCKETS:
        table = FAMILY_QUANTITIES if rest else BUCKET_QUANTITIES
        if quantity in table:
            return Metric(name, subject, quantity, *table[quantity], head, rest or None)
        raise UsageError(
            f"metric {name!r}", f"{subject} has no such figure", f"one of {', '.join(table)}"
        )
    raise UsageError(f"metric {name!r}", "no such figure", f"one of {grammar()}")


def grammar() -> str:
    """All names in one line, for messages and help."""
    buckets = "BUCKET.{" + ",".join(BUCKET_QUANTITIES) + "}"
    families = "BUCKET.FAMILY.{" + ",".join(FAMILY_QUANTITIES) + "}"
    steps = "step.ROLE.{" + ",".join(STEP_QUANTITIES) + "}"
    return ", ".join([buckets, families, *FIXED, steps])
