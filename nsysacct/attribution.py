"""A bucket and a basis for every GPU event: evidence from the top, a lower rung never over a higher.

Rungs (design section 3): exclusive names, NVTX, the structure of passes (whole graphs with a known
role, kernels enclosed by exclusive ones), patterns. `ignore` switches rungs off: their amounts move
to the next rung that knows, or to unattributed, never away.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsysacct.evidence import EXCLUSIVE, Code, NameEvidence
from nsysacct.model import BUCKETS, PROVENANCE, Finding
from nsysacct.timeline import Kind, Timeline

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]

BASES = tuple(PROVENANCE)
"""Bases in order of strength; `Attribution.basis` indexes it."""

UNATTRIBUTED = BUCKETS.index("unattributed")
_BUCKET_OF = np.full(len(Code), UNATTRIBUTED, np.uint8)
for _code in EXCLUSIVE:
    _BUCKET_OF[_code] = BUCKETS.index(_code.name.lower())
_PLACED = np.array([code in EXCLUSIVE for code in Code])
"""Whether each `Code` names one bucket."""

NO_BASIS = len(BASES)


@dataclass(frozen=True, slots=True)
class Attribution:
    """Answer for every event of a timeline.

    Attributes
    ----------
    bucket : uint8
        Index into `model.BUCKETS`.
    basis : uint8
        Index into `BASES`; NO_BASIS for unattributed events.
    findings : list of Finding
        Where evidence of different rungs disagrees.
    """

    bucket: U8
    basis: U8
    findings: list[Finding]


def attribute(
    timeline: Timeline,
    names: NameEvidence,
    nvtx: U8,
    pass_of: I32,
    pass_code: U8,
    pass_basis: npt.NDArray[np.object_],
    ignore: Collection[str] = (),
) -> Attribution:
    """Place every event.

    Parameters
    ----------
    nvtx : uint8, one per event
        `Code` from NVTX; UNKNOWN where it says nothing.
    pass_of : int32, one per event
        Pass of each event; NONE for none.
    pass_code, pass_basis
        Phase of each pass and how it is known ("positional", "graph", "pattern").
    ignore : collection of str
        Bases that may not be used.
    """
    kernel = timeline.kind == Kind.KERNEL
    exclusive = names.code if kernel.all() else np.where(kernel, names.code, np.uint8(Code.UNKNOWN))
    # one more pass than there are answers for the events of none
    structure = np.append(pass_code, np.uint8(Code.UNKNOWN))[pass_of]
    how = np.array([*(BASES.index(b) for b in pass_basis), NO_BASIS], np.uint8)[pass_of]
    # rows of an expanded graph, and eager rows, are placed by position; whole graphs as graphs
    whole = timeline.kind == Kind.GRAPH
    how[~whole & (how == BASES.index("graph"))] = BASES.index("positional")
    how[whole & (how == BASES.index("positional"))] = BASES.index("graph")
    bucket = np.full(len(timeline), UNATTRIBUTED, np.uint8)
    basis = np.full(len(timeline), NO_BASIS, np.uint8)
    banned = np.isin(np.arange(NO_BASIS + 1), [BASES.index(b) for b in ignore if b in BASES])
    for code, rung in (
        (exclusive, np.uint8(BASES.index("exclusive"))),
        (nvtx, np.uint8(BASES.index("nvtx"))),
        (structure, how),
    ):
        usable = (basis == NO_BASIS) & _PLACED[code] & ~banned[rung]
        np.copyto(bucket, _BUCKET_OF[code], where=usable)
        np.copyto(basis, rung, where=usable)
    return Attribution(bucket, basis, _disagreements(timeline, exclusive, nvtx, structure, ignore))


def _disagreements(
    timeline: Timeline, exclusive: U8, nvtx: U8, structure: U8, ignore: Collection[str]
) -> list[Finding]:
    """Findings where two rungs both speak and differ on more than 1 % of what they share."""
    sources = {"names": exclusive, "NVTX": nvtx, "position": structure}
    if "exclusive" in ignore:
        del sources["names"]
    if "nvtx" in ignore:
        del sources["NVTX"]
    found = []
    labels = list(sources)
    gpu = timeline.is_gpu_time
    for i, a in enumerate(labels):
        for b in labels[i + 1 :]:
            said = sources[a] * np.uint8(len(Code)) + sources[b]
            differ = np.flatnonzero(_CONTRADICT[said] & gpu)
            if not len(differ):
                continue
            both = _BOTH_SPEAK[said] & gpu
            if timeline.spent_ns(differ) > timeline.spent_ns(both) // 100:
                apart = timeline.spent_ns(differ)
                one = int(differ[np.argmax(timeline.duration[differ])])
                found.append(
                    Finding(
                        kind="evidence-disagrees",
                        severity="warning",
                        detail=f"{a} and {b} disagree on {apart / 1e6:.3f} ms: e.g. {a} say "
                        f"{Code(int(sources[a][one])).name.lower()}, {b} says "
                        f"{Code(int(sources[b][one])).name.lower()}; {a} are used",
                    )
                )
    return found


# plain, prefill and decode are the same work told apart by different knowledge: no disagreement
_RANK = np.arange(len(Code), dtype=np.uint8)
for _same in (Code.PREFILL, Code.DECODE, Code.TARGET):
    _RANK[_same] = Code.PLAIN
_BOTH_SPEAK = (_PLACED[:, None] & _PLACED).ravel()
_CONTRADICT = _BOTH_SPEAK & (_RANK[:, None] != _RANK).ravel()
"""Of what two rungs say, as one number, whether it can be compared, and whether it is not the same."""
