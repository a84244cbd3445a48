"""What kernel names say about each event: the bridge from signatures to a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nsysacct.model import BUCKETS
from nsysacct.trace import NONE
from nsysacct.trace.encoding import narrowed
from nsysacct.trace.tables import Ids

if TYPE_CHECKING:
    from nsysacct.registry import EngineSpec, Match, Signature
    from nsysacct.timeline import Timeline
    from nsysacct.trace import Trace

I16 = npt.NDArray[np.int16]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
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


_PHASE = np.array(
    [NONE if code in (Code.UNKNOWN, Code.SHARED, Code.OTHER) else code for code in Code], np.int8
)
"""`Code` -> itself where it is a phase of a model pass, else NONE."""


@dataclass(frozen=True, slots=True)
class NameEvidence:
    """Per-event answers of the registry.

    Attributes
    ----------
    signatures : tuple of Signature
        Those of the engine; `signature` indexes it.
    signature : int16
        Signature that takes the event's kernel; NONE when none does.
    code : uint8
        `Code`.
    width : signed integers
        Rows, from a template argument or the launch geometry; NONE when the name does not say.
    requests : int32
        Requests in the batch, from the launch geometry of an acceptance kernel; NONE elsewhere.
    phase : int8
        `code` where it names a phase of a model pass (draft, target forms, verify...), else NONE:
        what may cut a pass in two.
    """

    signatures: tuple[Signature, ...]
    signature: I16
    code: U8
    width: Ids
    requests: I32
    phase: npt.NDArray[np.signedinteger[Any]]

    def code_of(self, signature: int) -> Code:
        """What a signature says (an index of `signatures`, or NONE)."""
        return Code.UNKNOWN if signature == NONE else _CODE_OF[self.signatures[signature].bucket]


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
    index = {s.id: i for i, s in enumerate(signatures)}
    of_name, width_of_name = _by_name(matches, index)
    name = timeline.name if any(matches) else np.broadcast_to(np.int16(NONE), len(timeline))
    if any(s.width in _GEOMETRY for s in signatures) or any(m and m.otherwise for m in matches):
        width_of_name = width_of_name.astype(np.int32)  # wider values may still be written into it
    signature, width = of_name[name], width_of_name[name]
    refused = _unfit(timeline, trace, signatures, signature)
    while len(refused):
        matches = [m.otherwise if m is not None else None for m in matches]
        of_name, width_of_name = _by_name(matches, index)
        name = timeline.name[refused]
        signature[refused], width[refused] = of_name[name], width_of_name[name]
        refused = _unfit(timeline, trace, signatures, signature, refused)
    requests = _read_geometry(timeline, trace, signatures, signature, width)
    codes = np.array([_CODE_OF[s.bucket] for s in signatures] + [Code.UNKNOWN], np.uint8)
    code = codes[signature]
    return NameEvidence(
        signatures=signatures,
        signature=signature,
        code=code,
        width=width,
        requests=requests,
        phase=_PHASE[code],
    )


def _by_name(matches: Sequence[Match | None], index: dict[str, int]) -> tuple[I16, Ids]:
    """Signature and width per distinct name; the last slot answers for events without a name."""
    of_name = np.full(len(matches) + 1, NONE, np.int16)
    width_of_name = np.full(len(matches) + 1, NONE, np.int32)
    for i, match in enumerate(matches):
        if match is not None:
            of_name[i] = index[match.signature.id]
            width_of_name[i] = NONE if match.width is None else match.width
    return of_name, narrowed(width_of_name)


def _sizes(timeline: Timeline, trace: Trace, events: npt.NDArray[np.int64]) -> I32:
    """Grid and block of events, shape (n, 6)."""
    rows = timeline.source[events]
    return np.concatenate([trace.kernels.grid[rows], trace.kernels.block[rows]], axis=1)


def _unfit(
    timeline: Timeline,
    trace: Trace,
    signatures: tuple[Signature, ...],
    signature: I16,
    among: I64 | None = None,
) -> I64:
    """Events (of `among`) whose launch geometry contradicts their signature."""
    unfit: list[I64] = []
    for i, s in enumerate(signatures):
        if not s.geometry:
            continue
        if among is None:
            events = np.flatnonzero(signature == i)
        else:
            events = among[signature[among] == i]
        sizes = _sizes(timeline, trace, events)
        fits = np.ones(len(events), bool)
        for column, test in s.geometry.items():
            values, inverse = np.unique(sizes[:, _GEOMETRY[column]], return_inverse=True)
            verdict = np.array([test.test(int(v)) for v in values], bool)
            fits &= verdict[inverse]
        unfit.append(events[~fits])
    return np.concatenate(unfit) if unfit else np.empty(0, np.int64)


def _read_geometry(
    timeline: Timeline,
    trace: Trace,
    signatures: tuple[Signature, ...],
    signature: I16,
    width: Ids,
) -> I32:
    """Read rows and requests from the launch geometry, where a signature says that they are there.

    Rows are written into `width`; requests are returned, NONE where nothing tells them.
    """
    requests = np.broadcast_to(np.int32(NONE), len(signature))  # memory of one element
    for i, s in enumerate(signatures):
        if s.width not in _GEOMETRY and s.requests not in _GEOMETRY:
            continue
        events = np.flatnonzero(signature == i)
        sizes = _sizes(timeline, trace, events)
        if s.width in _GEOMETRY:
            width[events] = sizes[:, _GEOMETRY[s.width]]
        if s.requests in _GEOMETRY:
            requests = requests if requests.flags.writeable else requests.copy()
            requests[events] = sizes[:, _GEOMETRY[s.requests]]
    return requests


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
    ("elementwise", ("elementwise", "triton_poi", "copy", "fill")),
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
