"""Passes, roles and rounds of one timeline put together: the skeleton that amounts hang on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsysacct import grammar, passes, replays, roles, sketch, steps
from nsysacct.evidence import Code, NameEvidence
from nsysacct.grammar import Layout, Plan
from nsysacct.model import Semantics
from nsysacct.nvtx import Projection
from nsysacct.passes import Passes
from nsysacct.repetition import CHEAPER, MIN_LAUNCHES, GraphRole
from nsysacct.semantics import REPLAY_STEPS
from nsysacct.timeline import Timeline
from nsysacct.trace import NONE


@dataclass(frozen=True, slots=True)
class Structure:
    """What runs when.

    Attributes
    ----------
    passes : Passes
    layout : Layout
    graphs : mapping
        Executable graph -> role, where one was inferred.
    k : int or None
        Drafts a round.
    width : int or None
        Rows a verify pass runs, most often.
    how : str
        "markers", "names", "graphs", "nvtx" or "none": what the rounds were read from.
    notes : list of str
    """

    passes: Passes
    layout: Layout
    graphs: Mapping[int, GraphRole]
    k: int | None
    width: int | None
    how: str
    notes: list[str]


def read(
    timeline: Timeline,
    names: NameEvidence,
    *,
    semantics: Semantics,
    streams: str,
    known_engine: bool,
    plan: Plan,
    k: int | None = None,
    n_ok: Sequence[int] | None = None,
    overrides: Mapping[int, Code] | None = None,
    marks: Projection | None = None,
    brought_bytes: npt.NDArray[np.int64] | None = None,
) -> Structure:
    """Read the structure of a timeline.

    Parameters
    ----------
    known_engine : bool
        Whether a registry describes the engine: only then does the absence of verify kernels mean that
        nothing was verified.
    k : int, optional
        Drafts a round, when the user says so.
    overrides : mapping, optional
        Executable graph -> role (``--graph-role``).
    marks : Projection, optional
        NVTX ranges: they carry the structure where names and graphs do not.
    brought_bytes : int64, optional
        Sizes of the copies from the host, in timeline order.
    """
    foreign = _foreign(timeline, names) if known_engine or streams else ""
    # an engine that may hide its acceptance in a graph is cut by markers only where they show
    in_steps = steps.marked_engine(names) and (
        known_engine or bool(steps.marked(names, "accept").any())
    )
    if in_steps and not foreign:
        cuts = steps.cut_steps(timeline, names)
        found = passes.features(timeline, names, cuts.segment_of)
        code = cuts.code
        basis = np.full(len(found), "positional", object)
        graphs: Mapping[int, GraphRole] = {}
        notes: list[str] = []
        how = "markers"
    else:
        found = passes.cut(timeline, names)
        given = roles.assign(
            found,
            streams="" if foreign else streams,
            overrides=overrides,
            one_row_verify=semantics.verify_width == "k",
        )
        code, basis, graphs, notes = given.code, given.basis, given.graphs, given.notes
        named = bool((found.anchors[:, [Code.VERIFY, Code.DRAFT, Code.MODEL]] > 0).any())
        how = "names" if named else "graphs" if (code == Code.VERIFY).any() else "none"
    checkpoints = semantics.replay == "checkpoint"
    if brought_bytes is not None and (checkpoints or (streams and not foreign)):
        again = replays.mark(timeline, found, code, basis, brought_bytes, certain=checkpoints)
        notes = [*notes, *again]
    if marks is not None and not (code == Code.VERIFY).any() and (marks.code == Code.VERIFY).any():
        found, code = _by_ranges(timeline, names, marks)
        basis = np.full(len(found), "positional", object)
        how = "nvtx"
    if marks is not None:
        _name_steps_by_ranges(found, code, marks)
    if not known_engine and not (code == Code.VERIFY).any():
        notes = [*notes, *sketch.describe(found, code)]
    hidden = foreign or _graphs_of_several_kinds(found, code)
    if hidden and not (code == Code.VERIFY).any():
        notes = [*notes, hidden]
    elif known_engine and not (code == Code.VERIFY).any():
        rest = np.isin(code, [Code.UNKNOWN, Code.MODEL])
        code[rest & (found.kernels + found.is_graph > 0)] = Code.TARGET
    elif foreign:
        notes = [*notes, foreign]
    width = usual(found.width[(code == Code.VERIFY) & (found.width > 1)])
    requests = usual(names.requests[names.requests > 0])
    if k is None:
        k = _drafts_a_round(found, names, code, semantics, how, width, requests)
    most, k = _steps_in_draft_graphs(found, code, semantics.replay, k, certain=width is not None)
    if most is not None and k is None:
        notes = [
            *notes,
            f"drafts are whole graphs, which may hold several steps or be parts of one: k may be {most}",
        ]
    layout = grammar.read_rounds(
        code,
        basis,
        found.epoch,
        found.width,
        found.is_graph,
        semantics=semantics,
        k=most if k is None else k,
        plan=plan,
        n_ok=n_ok,
        returned=found.returned,
    )
    if how in ("names", "graphs"):
        layout.adopted = roles.adopt(found, layout.code, layout.basis, layout.round_of)
    return Structure(found, layout, graphs, k, width, how, notes)


def _name_steps_by_ranges(found: Passes, code: npt.NDArray[np.uint8], marks: Projection) -> None:
    """Target passes that the run itself marked are named by it, not by where they stand."""
    named = np.isin(marks.code, _NAMED) & (found.pass_of != NONE)
    said = np.full(len(found), Code.UNKNOWN, np.uint8)
    said[found.pass_of[named]] = marks.code[named]
    steps = (code == Code.TARGET) & (said != Code.UNKNOWN)
    code[steps] = said[steps]


_NAMED = (Code.REPLAY, Code.PREFILL, Code.DECODE, Code.PLAIN, Code.OTHER)


def _by_ranges(
    timeline: Timeline, names: NameEvidence, marks: Projection
) -> tuple[Passes, npt.NDArray[np.uint8]]:
    """Passes as runs of work launched in one NVTX range."""
    opens = np.ones(len(timeline), bool)
    opens[1:] = marks.range_of[1:] != marks.range_of[:-1]
    segment_of = (np.cumsum(opens) - 1).astype(np.int32)
    return passes.features(timeline, names, segment_of), marks.code[np.flatnonzero(opens)].copy()


def _drafts_a_round(
    found: Passes,
    names: NameEvidence,
    code: npt.NDArray[np.uint8],
    semantics: Semantics,
    how: str,
    width: int | None,
    requests: int | None,
) -> int | None:
    """K from the rows that a request verifies, else from the draft steps counted; None when unknown."""
    if width is not None:
        rows, odd = divmod(width, requests or 1)
        if odd:
            return None  # requests of different length in one batch
        return rows if semantics.verify_width == "k" else rows - 1
    if how == "markers":
        marked = steps.marked(names, "draft-step")
        if not marked.any():
            # a runner that marks each draft pass after the first, and never did: one draft
            marks = any(s.marker == "draft-step" for s in names.signatures)
            return 1 if marks and steps.marked(names, "draft-start").any() else None
        segments = np.flatnonzero(code == Code.DRAFT)
        drafted = np.bincount(found.pass_of[marked], minlength=len(found))[segments]
        later = usual(drafted[drafted > 0].astype(np.int32))
        return None if later is None else later + 1
    return _usual_drafts(code) if how != "nvtx" else None


def usual(values: npt.NDArray[np.int32]) -> int | None:
    """The most frequent value; None of nothing."""
    if not len(values):
        return None
    distinct, counts = np.unique(values, return_counts=True)
    return int(distinct[np.argmax(counts)])


def _usual_drafts(code: npt.NDArray[np.uint8]) -> int | None:
    """Draft passes before a verify pass, most often."""
    verify = np.flatnonzero(code == Code.VERIFY)
    drafts = np.concatenate([[0], np.cumsum(code == Code.DRAFT)])
    if not len(verify):
        return None
    counts = np.diff(np.concatenate([[0], drafts[verify]]))
    return usual(counts[counts > 0].astype(np.int32))


LONGEST_REPLAY = 16
"""Target steps between two rounds up to which they may all be replay: no engine drafts more."""


def _steps_in_draft_graphs(
    found: Passes, code: npt.NDArray[np.uint8], rule: str, k: int | None, *, certain: bool
) -> tuple[int | None, int | None]:
    """Least k that explains the replays, and k where that is sure.

    k counted from launches of draft graphs is k only if each holds one step. More replay steps than
    that k allows mean that they hold several; different graphs in one round may be parts of a step.
    """
    drafts = code == Code.DRAFT
    if k is None or certain or not drafts.any() or not found.is_graph[drafts].all():
        return k, k
    longest = max((n for n in _steps_between_rounds(code) if n <= LONGEST_REPLAY), default=0)
    for held in range(1, LONGEST_REPLAY + 1):
        if max(REPLAY_STEPS[rule](n, k * held) for n in range(k * held + 1)) >= longest:
            return k * held, k if held == 1 and _one_step_each(found, code) else None
    return k, k


def _one_step_each(found: Passes, code: npt.NDArray[np.uint8]) -> bool:
    """Whether drafting is launches of one graph, in most rounds, and nothing as dear beside them."""
    drafts, verify = np.flatnonzero(code == Code.DRAFT), np.flatnonzero(code == Code.VERIFY)
    turn = np.searchsorted(verify, drafts)
    pairs = np.unique(np.stack([turn, found.graph[drafts]]), axis=1)
    turns, graphs = np.unique(pairs[0], return_counts=True)
    dear = found.gpu_ns >= CHEAPER * float(np.median(found.gpu_ns[drafts]))
    eager = np.flatnonzero((code == Code.UNKNOWN) & ~found.is_graph & dear)
    beside = np.isin(turns, np.searchsorted(verify, eager))
    return bool(2 * ((graphs > 1) | beside).sum() < len(turns))


def _steps_between_rounds(code: npt.NDArray[np.uint8]) -> list[int]:
    """Target steps between each verify pass and what comes next, but for the last one."""
    verify = np.flatnonzero(code == Code.VERIFY)
    others = np.flatnonzero(np.isin(code, [Code.VERIFY, Code.DRAFT]))
    before = np.concatenate([[0], np.cumsum(code == Code.TARGET)])
    ends = others[np.minimum(np.searchsorted(others, verify, side="right"), len(others) - 1)]
    return [int(before[b] - before[a]) for a, b in zip(verify[:-1], ends[:-1], strict=True)]


OWN = 0.05
"""Share of kernels that an engine's signatures take, at least, in a trace of that engine."""


def _foreign(timeline: Timeline, names: NameEvidence) -> str:
    """Why the engine's names say nothing about this timeline; empty when they do.

    Only an engine that is really there makes "no verify kernel" mean "nothing was verified", and its
    habits (a stream for each model, marked steps) tell anything.
    """
    kernels = timeline.name != NONE
    if not names.signatures:
        return "the evidence of kernel names is switched off"
    taken, total = int((names.signature[kernels] != NONE).sum()), int(kernels.sum())
    if not total or taken >= OWN * total:
        return ""
    return (
        f"the engine's signatures take {taken} of {total} kernels: it is another engine, or another "
        "version of it"
    )


def _graphs_of_several_kinds(found: Passes, code: npt.NDArray[np.uint8]) -> str:
    """Why graphs of unknown role may hide a verify pass; empty when they are all alike, or none.

    An engine whose verify kernels are known by name shows none when they run inside graphs.
    """
    opaque = found.is_graph & (code == Code.UNKNOWN) & (found.kernels == 0) & ~found.is_blind
    graphs, launches = np.unique(found.graph[opaque], return_counts=True)
    often = graphs[launches >= MIN_LAUNCHES]
    cost = [float(np.median(found.gpu_ns[opaque & (found.graph == g)])) for g in often]
    if len(cost) < 2 or min(cost) > CHEAPER * max(cost):
        return ""
    return (
        f"{len(cost)} graphs of different cost ({min(cost) / 1e6:.3f} to {max(cost) / 1e6:.3f} ms) show no "
        "names: any of them may draft or verify"
    )


def round_starts(structure: Structure) -> npt.NDArray[np.int64]:
    """Launch time of the first pass of each round, ns, shape (rounds,)."""
    layout, found = structure.layout, structure.passes
    starts = np.full(layout.rounds, np.iinfo(np.int64).max)
    mine = layout.round_of != NONE
    np.minimum.at(starts, layout.round_of[mine], found.launch[mine])
    return starts


def or_none(value: int) -> int | None:
    """`value`, or None where it is NONE (unknown)."""
    return None if value == NONE else value
