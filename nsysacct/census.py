"""GPU work counted by all that is known of it: kernel, signature, phase, bucket, basis.

One pass over the events; what the account says of names, signatures and buckets are sums of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from nsysacct.attribution import NO_BASIS, Attribution
from nsysacct.evidence import Code, NameEvidence
from nsysacct.groups import blocks, counts, sums
from nsysacct.model import BUCKETS
from nsysacct.structure import Structure
from nsysacct.timeline import Kind, Timeline, takes_gpu_time
from nsysacct.trace import NONE
from nsysacct.trace.encoding import distinct

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Row:
    """Kernels, or graphs timed as a whole, that are alike.

    Attributes
    ----------
    name : int
        Index into ``Trace.kernel_names``; NONE for graphs.
    signature : int
        Index into ``NameEvidence.signatures``; NONE where none takes the kernel.
    wide : bool
        It is known to run on several rows.
    is_graph : bool
        A graph timed as a whole.
    phase : int
        `Code` of the pass; UNKNOWN outside of passes.
    bucket, basis : int
        Indices into `model.BUCKETS` and `attribution.BASES`.
    instances : int
    gpu_ns : int
    first : int
        The first event of them.
    """

    name: int
    signature: int
    wide: bool
    is_graph: bool
    phase: int
    bucket: int
    basis: int
    instances: int
    gpu_ns: int
    first: int


def take(line: Timeline, names: NameEvidence, found: Structure, placed: Attribution) -> list[Row]:
    """Count the kernels and timed graphs of a timeline.

    Returns
    -------
    list of Row
        In order of their first events.
    """
    phase_of = np.append(found.layout.code, np.uint8(Code.UNKNOWN))
    kinds = (int(line.name.max(initial=NONE)) + 2, len(names.signatures) + 1, 2, 2)
    places = (len(Code), len(BUCKETS), NO_BASIS + 1)
    cells = prod(places)
    found_at: dict[int, tuple[int, int, int]] = {}
    for block in blocks(len(line)):
        graph = line.kind[block] == Kind.GRAPH
        # names, signatures and widths hang together: few of their combinations occur
        kind = _number(
            kinds,
            line.name[block] + np.int64(1),
            names.signature[block] + np.int64(1),
            names.width[block] > 1,
            graph,
        )
        numbers, code = distinct(kind)
        of_pass = phase_of[found.passes.pass_of[block]]
        cell = _number(
            (len(numbers), *places), code, of_pass, placed.bucket[block], placed.basis[block]
        )
        events = np.flatnonzero(takes_gpu_time(line.kind[block]))
        values, group = distinct(cell[events])
        spent = sums(group, line.duration[block][events], len(values))
        first = np.zeros(len(values), np.int64)
        first[group[::-1]] = events[::-1] + block.start
        count = counts(group, len(values))
        whole = numbers[values // cells] * cells + values % cells
        for key, *new in zip(
            whole.tolist(), count.tolist(), spent.tolist(), first.tolist(), strict=True
        ):
            old = found_at.get(key, (0, 0, new[2]))
            found_at[key] = (old[0] + new[0], old[1] + new[1], old[2])
    rows = []
    for key, (instances, gpu_ns, first_event) in found_at.items():
        name, signature, wide, whole_graph, phase, bucket, basis = _parts((*kinds, *places), key)
        rows.append(
            Row(
                name=name - 1,
                signature=signature - 1,
                wide=bool(wide),
                is_graph=bool(whole_graph),
                phase=phase,
                bucket=bucket,
                basis=basis,
                instances=instances,
                gpu_ns=gpu_ns,
                first=first_event,
            )
        )
    return sorted(rows, key=lambda row: row.first)


def _number(sizes: Sequence[int], *digits: npt.NDArray[Any]) -> I64:
    """Numbers of which `digits` are the digits, the first one being the highest, each below its size."""
    number = digits[0].astype(np.int64)
    for size, digit in zip(sizes[1:], digits[1:], strict=True):
        number *= size
        number += digit
    return number


def _parts(sizes: Sequence[int], number: int) -> list[int]:
    """Digits of a number, as `_number` puts them together."""
    digits = []
    for size in reversed(sizes[1:]):
        number, digit = divmod(number, size)
        digits.append(digit)
    return [number, *reversed(digits)]
