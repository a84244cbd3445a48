"""CUDA API calls by what they do, from their names in CUPTI_ACTIVITY_KIND_RUNTIME.

Runtime names carry the CUDA version that introduced them (``cudaLaunchKernel_v7000``) and, in
builds with per-thread default streams, ``_ptsz`` or ``_ptds``; driver names may end in ``_v2``.
"""

from __future__ import annotations

import re
from enum import IntEnum

_SUFFIX = r"(?:_v\d+|_pts[zd]|_ptds)*$"


class ApiKind(IntEnum):
    """What an API call does, as far as accounting cares."""

    OTHER = 0
    KERNEL_LAUNCH = 1
    GRAPH_LAUNCH = 2
    MEMCPY = 3
    MEMSET = 4
    SYNC = 5  # the host waits: stream, device, context or event
    EVENT = 6
    GRAPH_BUILD = 7  # capture, instantiation, update
    GRAPH_INSTANTIATE = 8


_RULES = tuple(
    (kind, re.compile(f"(?:{pattern}){_SUFFIX}"))
    for kind, pattern in (
        (ApiKind.GRAPH_LAUNCH, r"cu(?:da)?GraphLaunch"),
        (
            ApiKind.KERNEL_LAUNCH,
            r"cudaLaunch(?:Kernel(?:ExC)?|CooperativeKernel(?:MultiDevice)?|Device)?"
            r"|cuLaunch(?:Kernel(?:Ex)?|CooperativeKernel(?:MultiDevice)?|Grid(?:Async)?)?",
        ),
        (ApiKind.GRAPH_INSTANTIATE, r"cu(?:da)?GraphInstantiate(?:WithFlags|WithParams)?"),
        (ApiKind.GRAPH_BUILD, r"cu(?:da)?Graph(?!ics)\w*?|cu(?:da)?Stream(?:Begin|End)Capture\w*?"),
        (ApiKind.MEMCPY, r"cu(?:da)?Memcpy\w*?"),
        (ApiKind.MEMSET, r"cu(?:da)?Memset\w*?"),
        (
            ApiKind.SYNC,
            r"cu(?:da)?(?:Stream|Device|Event|Thread)Synchronize|cuCtxSynchronize",
        ),
        (ApiKind.EVENT, r"cu(?:da)?(?:EventRecord(?:WithFlags)?|StreamWaitEvent)"),
    )
)


def classify(name: str) -> ApiKind:
    """Tell what the call `name` does.

    Examples
    --------
    >>> classify("cudaGraphLaunch_ptsz_v10000").name, classify("cuLaunchKernelEx").name
    ('GRAPH_LAUNCH', 'KERNEL_LAUNCH')
    >>> classify("cudaGraphicsMapResources_v3020").name, classify("cudaLaunchHostFunc_v10000").name
    ('OTHER', 'OTHER')
    """
    for kind, pattern in _RULES:
        if pattern.match(name):
            return kind
    return ApiKind.OTHER
