"""What the kernels of an unknown engine could be: candidates for a registry, each with its evidence.

Passes are what the host launches between two waits; passes of the same kernels are of one kind. Where one
kind stands after the same number of cheaper passes over and over, it looks like verifying after drafting,
and names that only one of the two runs are candidates for it. Nothing here places any time: the outcome is
a file for somebody who knows the engine to correct (`suggest_toml`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nsysacct import evidence, nvtx, passes, timeline
from nsysacct.errors import NoCudaTraceError
from nsysacct.names import KernelName, parse
from nsysacct.passes import Passes
from nsysacct.repetition import TARGET_STEP
from nsysacct.spelling import number_of
from nsysacct.timeline import Kind, Timeline
from nsysacct.trace import NONE, Trace

MIN_ROUNDS = 3
"""A rhythm needs at least this many repetitions to be called one."""

STEADY = 0.8
"""Share of the rounds that must hold the usual number of draft passes."""

MAX_DRAFTS = 32
"""More passes than this between two dear ones are no drafting."""

GLUE = 0.05
"""Cost, as a share of the dear pass, up to which a single cheap pass before it is preparation or sampling."""

Key = frozenset[int] | int
"""What a pass runs: its kernel names, or the executable graph."""


@dataclass(frozen=True, slots=True)
class PassKind:
    """Passes that run the same kernels.

    Attributes
    ----------
    graph : int or None
        Executable graph, when they are launches of one.
    names : frozenset of int
        Kernel names in them (index into ``Trace.kernel_names``); empty for a graph timed as a whole.
    count : int
        Passes of this kind.
    kernels : int
        Kernels in one of them, usually.
    gpu_ns : int
        Median GPU time of one.
    """

    graph: int | None
    names: frozenset[int]
    count: int
    kernels: int
    gpu_ns: int

    @property
    def opaque(self) -> bool:
        """Whether the capture does not show what they run."""
        return not self.names


@dataclass(frozen=True, slots=True)
class Rhythm:
    """A kind of pass that follows the same number of cheaper passes, over and over.

    Attributes
    ----------
    verify, draft : int
        Kinds.
    rounds : int
    k : int
        Draft passes before a verify pass, usually.
    steady : float
        Share of the rounds with just so many.
    after : dict
        Kind -> histogram of its passes between a verify pass and the next one.
    """

    verify: int
    draft: int
    rounds: int
    k: int
    steady: float
    after: Mapping[int, Counter[int]]


@dataclass(frozen=True, slots=True)
class NameFacts:
    """One kernel name in numbers.

    Attributes
    ----------
    index : int
        Into ``Trace.kernel_names``.
    name : KernelName
    instances, gpu_ns : int
    role : str
        "verify", "draft", "target" (passes that cost what a step of the target does), "early" (before
        the rounds only) or "shared".
    geometry : dict
        Launch dimension -> its values, for those that take at most three.
    """

    index: int
    name: KernelName
    instances: int
    gpu_ns: int
    role: str
    geometry: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Findings:
    """All that a suggestion rests on.

    Attributes
    ----------
    trace : str
        File name.
    kinds : list of PassKind
    rhythm : Rhythm or None
        None when no kind of pass follows others steadily.
    names : list of NameFacts
        By GPU time, the largest first.
    ranges : list of (str, int, str)
        NVTX texts with numbers as ``*``, how often, and the phase that they name by themselves.
    common : tuple of (int, list of str)
        The count that most names share, and these names: candidates for once a round.
    """

    trace: str
    kinds: list[PassKind]
    rhythm: Rhythm | None
    names: list[NameFacts]
    ranges: list[tuple[str, int, str]]
    common: tuple[int, list[str]]

    @property
    def hides_target_passes(self) -> bool:
        """Whether graphs that neither draft nor verify show no kernels: names may run there unseen."""
        mine = {self.rhythm.verify, self.rhythm.draft} if self.rhythm else set()
        return any(kind.opaque for i, kind in enumerate(self.kinds) if i not in mine)


def investigate(trace: Trace) -> Findings:
    """Look for phases in the (process, GPU) with most GPU time of a trace.

    Raises
    ------
    NoCudaTraceError
        The trace has no GPU work.
    """
    pairs = timeline.accounts_of(trace)
    if not pairs:
        raise NoCudaTraceError(
            trace.name, "no GPU work in it", "capture with nsys profile -t cuda,nvtx"
        )
    lines = [timeline.build(trace, process, gpu) for process, gpu in pairs]
    line = max(lines, key=lambda one: int(one.duration[one.is_gpu_time].sum()))
    cut = passes.cut(line, evidence.read_names(line, trace, None))
    kinds, sequence = _kinds(line, cut)
    rhythm = find_rhythm(kinds, sequence)
    names = _names(line, trace, kinds, sequence, rhythm)
    return Findings(
        trace=trace.name,
        kinds=kinds,
        rhythm=rhythm,
        names=names,
        ranges=_ranges(line, trace),
        common=_common_count(names),
    )


def _kinds(line: Timeline, cut: Passes) -> tuple[list[PassKind], list[int]]:
    """Kinds of the passes, and the kind of each pass that runs anything, in launch order."""
    held: list[set[int]] = [set() for _ in range(len(cut))]
    kernel = np.flatnonzero((line.kind == Kind.KERNEL) & (cut.pass_of != NONE))
    for one, name in zip(cut.pass_of[kernel].tolist(), line.name[kernel].tolist(), strict=True):
        held[one].add(name)
    members: dict[tuple[bool, Key], list[int]] = {}
    for i, names in enumerate(held):
        if cut.is_graph[i]:
            members.setdefault((True, int(cut.graph[i])), []).append(i)
        elif names:
            members.setdefault((False, frozenset(names)), []).append(i)
    kinds: list[PassKind] = []
    kind_of: dict[int, int] = {}
    for (is_graph, key), mine in members.items():
        kind_of |= dict.fromkeys(mine, len(kinds))
        kinds.append(
            PassKind(
                graph=key if is_graph and isinstance(key, int) else None,
                names=frozenset().union(*(held[i] for i in mine)),
                count=len(mine),
                kernels=int(np.median(cut.kernels[mine])),
                gpu_ns=int(np.median(cut.gpu_ns[mine])),
            )
        )
    return kinds, [kind_of[i] for i in sorted(kind_of)]


def find_rhythm(kinds: Sequence[PassKind], sequence: Sequence[int]) -> Rhythm | None:
    """Find the dearest kind of pass that follows a steady number of cheaper ones.

    Parameters
    ----------
    kinds : sequence of PassKind
    sequence : sequence of int
        Kind of each pass in launch order.

    Returns
    -------
    Rhythm or None
    """
    best: Rhythm | None = None
    for verify, kind in enumerate(kinds):
        at = [i for i, k in enumerate(sequence) if k == verify]
        if len(at) < MIN_ROUNDS or (best is not None and kind.gpu_ns <= kinds[best.verify].gpu_ns):
            continue
        between = [Counter(sequence[a + 1 : b]) for a, b in pairwise(at)]
        for draft, k, steady in _steady(kinds, verify, between):
            others = {key for held in between for key in held} - {draft}
            after = {key: Counter(held[key] for held in between) for key in sorted(others)}
            best = Rhythm(verify, draft, len(at), k, steady, after)
            break
    return best


def _steady(
    kinds: Sequence[PassKind], verify: int, between: Sequence[Counter[int]]
) -> list[tuple[int, int, float]]:
    """Cheaper kinds that nearly every interval holds equally often: (kind, times, share), steadiest first."""
    found = []
    for draft in sorted({key for held in between for key in held}):
        times, rounds = Counter(held[draft] for held in between).most_common(1)[0]
        share = rounds / len(between)
        cost = kinds[draft].gpu_ns / max(kinds[verify].gpu_ns, 1)
        glue = times == 1 and cost <= GLUE
        if 1 <= times <= MAX_DRAFTS and share >= STEADY and cost < 1 and not glue:
            found.append((draft, times, share))
    return sorted(found, key=lambda item: (-item[2], -item[1], item[0]))


# ---------------------------------------------------------------- names

_DIMENSIONS = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


def _names(
    line: Timeline,
    trace: Trace,
    kinds: Sequence[PassKind],
    sequence: Sequence[int],
    rhythm: Rhythm | None,
) -> list[NameFacts]:
    roles = _roles(kinds, sequence, rhythm)
    kernel = np.flatnonzero((line.kind == Kind.KERNEL) & (line.name != NONE))
    duration = line.duration
    facts = []
    for name in np.unique(line.name[kernel]):
        mine = kernel[line.name[kernel] == name]
        rows = line.source[mine]
        sizes = np.concatenate([trace.kernels.grid[rows], trace.kernels.block[rows]], axis=1)
        facts.append(
            NameFacts(
                index=int(name),
                name=parse(trace.kernel_names[int(name)]),
                instances=len(mine),
                gpu_ns=int(duration[mine].sum()),
                role=roles.get(int(name), "shared"),
                geometry=_few_values(sizes),
            )
        )
    return sorted(facts, key=lambda f: (-f.gpu_ns, f.index))


def _few_values(sizes: npt.NDArray[np.int32]) -> dict[str, tuple[int, ...]]:
    """Launch dimensions that vary but take at most three values."""
    found = {}
    for column, dimension in enumerate(_DIMENSIONS):
        values = np.unique(sizes[:, column])
        if 2 <= len(values) <= 3:
            found[dimension] = tuple(int(v) for v in values)
    return found


def _roles(
    kinds: Sequence[PassKind], sequence: Sequence[int], rhythm: Rhythm | None
) -> dict[int, str]:
    """Role of each name by the kinds of passes that run it."""
    if rhythm is None:
        return {}
    first = sequence.index(rhythm.draft)
    early = set(sequence[:first]) - set(sequence[first:])
    label = {rhythm.verify: "verify", rhythm.draft: "draft"}
    dear = TARGET_STEP * kinds[rhythm.verify].gpu_ns
    seen: dict[int, set[str]] = {}
    for i, kind in enumerate(kinds):
        # cheaper ones are glue, or drafting of another shape
        other = "early" if i in early else "target" if kind.gpu_ns >= dear else "shared"
        role = label.get(i, other)
        for name in kind.names:
            seen.setdefault(name, set()).add(role)
    return {name: next(iter(r)) if len(r) == 1 else "shared" for name, r in seen.items()}


def _common_count(names: Sequence[NameFacts]) -> tuple[int, list[str]]:
    """The number of instances that most names share."""
    counts = Counter(f.instances for f in names if f.instances >= MIN_ROUNDS)
    if not counts:
        return 0, []
    most = max(counts.items(), key=lambda item: (item[1], item[0]))[0]
    return most, [f.name.base for f in names if f.instances == most]


def width_place(mine: Sequence[KernelName], others: Sequence[KernelName]) -> tuple[int, int] | None:
    """Template argument that is the number of rows in verify kernels of one base name.

    Parameters
    ----------
    mine, others : sequence of KernelName
        Instantiations that verify passes run, and those that only other passes run.

    Returns
    -------
    (int, int) or None
        Argument (from 0) and rows: the only place where all of `mine` have one number of 2 or more
        and none of `others` has it. None when there is no such place, or several.
    """
    lengths = {len(n.args or ()) for n in [*mine, *others]}
    if len(lengths) != 1:
        return None
    found = []
    for place in range(lengths.pop()):
        values = {number_of((n.args or ())[place]) for n in mine}
        value = next(iter(values))
        elsewhere = {number_of((n.args or ())[place]) for n in others}
        if len(values) == 1 and value is not None and 2 <= value <= 64 and value not in elsewhere:
            found.append((place, value))
    return found[0] if len(found) == 1 else None


def _ranges(line: Timeline, trace: Trace) -> list[tuple[str, int, str]]:
    """NVTX range texts of the process with their numbers as ``*``, the most frequent first."""
    mine = trace.nvtx.text[trace.nvtx.process == line.process]
    counts: Counter[str] = Counter()
    phases: dict[str, str] = {}
    for index, times in zip(*np.unique(mine, return_counts=True), strict=True):
        text = trace.nvtx_names[int(index)]
        general = re.sub(r"\d+", "*", text)
        counts[general] += int(times)
        code = nvtx.default_code(text)
        phases[general] = code.name.lower() if code is not None else ""
    return [(text, times, phases[text]) for text, times in counts.most_common(20)]
