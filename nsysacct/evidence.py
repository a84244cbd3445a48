"""What kernel names say about each event: the bridge from signatures to a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nsysacct.model import BUCKETS
from nsysacct.trace import NONE

if TYPE_CHECKING:
    from nsysacct.registry import EngineSpec, Match, Signature
    from nsysacct.timeline import Timeline
    from nsysacct.trace import Trace

I32 = npt.NDArray[np.int32]
U8 = npt.NDArray[np.uint8]


class Code(IntEnum):
    """What a kernel's signature says of its phase."""

    UNKNOWN = 0  # no signature takes it
    SHARED = 1  # of several phases
    TARGET = 2  # the target model, phase decided by position
    MODEL = 3  # some model; which one is decided by stream, phase by width and position
    DRAFT = 4
    VERIFY = 5
    REPLAY = 6
    PREFILL = 7
    DECODE = 8
    PLAIN = 9
    OTHER = 10


_CODE_OF = {"shared": Code.SHARED, "target": Code.TARGET, "model": Code.MODEL} | {
    bucket: Code[bucket.upper()] for bucket in BUCKETS if bucket != "unattributed"
}
EXCLUSIVE = {code: code.name.lower() for code in Code if code.name.lower() in BUCKETS}
"""Codes that name one bucket."""

_GEOMETRY = {"grid_x": 0, "grid_y": 1, "grid_z": 2, "block_x": 3, "block_y": 4, "block_z": 5}


@dataclass(frozen=True, slots=True)
class NameEvidence:
    """Per-event answers of the registry.

    Attributes
    ----------
    signatures : tuple of Signature
        Those of the engine; `signature` indexes it.
    signature : int32
        Signature that takes the event's kernel; NONE when none does.
    code : uint8
        `Code`.
    width : int32
        Rows, from a template argument or the launch geometry; NONE when the name does not say.
    phase : int32
        `code` where it names a phase of a model pass (draft, target forms, verify...), else NONE:
        what may cut a pass in two.
    """

    signatures: tuple[Signature, ...]
    signature: I32
    code: U8
    width: I32
    phase: I32


def read_names(
    timeline: Timeline, trace: Trace, spec: EngineSpec | None, *, exclusive: bool = True
) -> NameEvidence:
    """Look every distinct kernel name up once and spread the answers over the events.

    Parameters
    ----------
    spec : EngineSpec or None
        None: no registry, so nothing is known by name.
    exclusive : bool
        False switches the evidence of names off (``--ignore exclusive``).
    """
    signatures = tuple(spec.signatures) if spec is not None and exclusive else ()
    matches: Sequence[Match | None] = (
        spec.resolve(trace.kernel_names) if spec is not None and exclusive else ()
    )
    names = len(trace.kernel_names)
    index = {s.id: i for i, s in enumerate(signatures)}
    of_name = np.full(names + 1, NONE, np.int32)  # the last slot answers for name == NONE
    width_of_name = np.full(names + 1, NONE, np.int32)
    for i, match in enumerate(matches):
        if match is not None:
            of_name[i] = index[match.signature.id]
            width_of_name[i] = NONE if match.width is None else match.width
    signature = of_name[timeline.name]
    width = width_of_name[timeline.name]
    _apply_geometry(timeline, trace, signatures, signature, width)
    codes = np.array([_CODE_OF[s.bucket] for s in signatures] + [Code.UNKNOWN], np.uint8)
    code = codes[signature]
    phases = np.isin(code, [Code.UNKNOWN, Code.SHARED, Code.OTHER], invert=True)
    return NameEvidence(
        signatures=signatures,
        signature=signature,
        code=code,
        width=width,
        phase=np.where(phases, code.astype(np.int32), np.int32(NONE)),
    )


def _apply_geometry(
    timeline: Timeline, trace: Trace, signatures: tuple[Signature, ...], signature: I32, width: I32
) -> None:
    """Drop matches whose launch geometry contradicts them; read widths from the geometry."""
    for i, s in enumerate(signatures):
        if not s.geometry and s.width not in _GEOMETRY:
            continue
        events = np.flatnonzero(signature == i)
        rows = timeline.source[events]
        sizes = np.concatenate([trace.kernels.grid[rows], trace.kernels.block[rows]], axis=1)
        keep = np.ones(len(events), bool)
        for column, test in s.geometry.items():
            values = sizes[:, _GEOMETRY[column]]
            verdict = {int(v): test.test(int(v)) for v in np.unique(values)}
            keep &= np.array([verdict[int(v)] for v in values], bool)
        signature[events[~keep]] = NONE
        width[events[~keep]] = NONE
        if s.width in _GEOMETRY:
            width[events[keep]] = sizes[keep, _GEOMETRY[s.width]]


_FAMILIES = (
    (
        "collective",
        ("nccl", "allreduce", "all_reduce", "cross_device_reduce", "allgather", "reducescatter"),
    ),
    ("attention", ("attn", "attention", "flash", "fmha", "paged_kv", "mha")),
    ("gdn", ("gated_delta", "gdn", "delta_rule", "ssm_conv", "causal_conv1d")),
    ("moe", ("moe", "topk_softmax", "expert")),
    ("gemv", ("gemv", "mul_mat_vec", "splitkreduce")),
    ("gemm", ("gemm", "nvjet", "cutlass", "device_kernel", "mul_mat", "xmma", "wgmma", "wmma")),
    ("norm", ("norm",)),
    ("sampling", ("argmax", "softmax", "sample", "topk", "top_k", "reject", "multinomial")),
    ("cache", ("cache", "set_rows", "get_rows", "rope", "rotary", "cat", "index")),
)


def family_of(name: str) -> str:
    """Family of a kernel that no signature takes, by words in its base name.

    A reading aid only: buckets never rest on it. Collectives (all-reduce, NCCL) are a family of
    their own because their time includes waiting for the other ranks.

    Examples
    --------
    >>> family_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
    'collective'
    """
    low = name.lower()
    return next((f for f, words in _FAMILIES if any(w in low for w in words)), "other")
