"""What an unnamed trace looks like: sizes of the passes between two waits of the host, and their order.

A description, never a split: it says what would have to be confirmed.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nsysacct.evidence import Code
from nsysacct.passes import Passes

SMALLEST = 16
"""Kernels that a model pass has at least; what is smaller is glue between passes."""

OFTEN = 3
"""Passes of one size that make it worth mentioning."""


def describe(passes: Passes, code: npt.NDArray[np.uint8]) -> list[str]:
    """Sentences about the eager passes of unknown phase.

    Parameters
    ----------
    code : uint8, one per pass
        `Code`; only UNKNOWN passes are described.
    """
    mine = np.flatnonzero((code == Code.UNKNOWN) & ~passes.is_graph & (passes.kernels >= SMALLEST))
    sizes, counts = np.unique(passes.kernels[mine], return_counts=True)
    common = [(int(s), int(n)) for s, n in zip(sizes, counts, strict=True) if n >= OFTEN]
    if not common:
        return []
    common.sort(key=lambda item: -item[1])
    listed = ", ".join(f"{n} of {s} kernels" for s, n in common[:5])
    lines = [f"between the host's waits run passes of a few sizes: {listed}"]
    lines += _alternation(passes.kernels[mine].tolist(), common)
    return lines


def _alternation(sequence: list[int], common: list[tuple[int, int]]) -> list[str]:
    """Whether small passes come in front of each large one, as drafts would before a verify pass."""
    sizes = sorted(s for s, _ in common)
    if len(sizes) < 2:
        return []
    large = sizes[-1]
    smaller = {s for s in sizes[:-1] if s < large / 2}
    at = [i for i, s in enumerate(sequence) if s == large]
    between = [sum(s in smaller for s in sequence[a + 1 : b]) for a, b in pairwise(at)]
    if not smaller or not between:
        return []
    usual, times = np.unique(between, return_counts=True)
    most = int(usual[np.argmax(times)])
    if most == 0 or times.max() < 0.5 * len(between):
        return []
    small = "/".join(str(s) for s in sorted(smaller))
    return [
        f"{most} small passes ({small} kernels) usually stand between two large ones ({large}): draft and verify "
        f"would look like this, {len(at)} rounds, but nothing in the trace confirms it"
    ]
