"""Which phase each pass is: from anchors in names, from streams, and from the pattern of graph launches.

Names come first. Where an engine gives every model a stream of its own, the stream tells draft from
target. An executable graph shows no names in graph granularity, but it does the same work each time:
its role follows from what its launches stand next to. Every role that rests on a pattern carries its
reason and a confidence, and `--graph-role` overrides it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nsysacct import repetition
from nsysacct.evidence import Code
from nsysacct.passes import Passes
from nsysacct.repetition import AGREE, GraphRole
from nsysacct.trace import NONE

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Roles:
    """Phase of every pass, before rounds are told apart from plain decoding.

    Attributes
    ----------
    code : uint8, one per pass
        `Code`: DRAFT, VERIFY, TARGET, PREFILL, OTHER, or UNKNOWN.
    basis : object array of str, one per pass
        How the role of the pass is known: "positional", "graph" or "pattern".
    graphs : dict
        Executable graph -> `GraphRole`.
    notes : list of str
        What a reader must know about how roles were found.
    """

    code: U8
    basis: npt.NDArray[np.object_]
    graphs: dict[int, GraphRole] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def assign(
    passes: Passes,
    *,
    streams: str = "",
    overrides: Mapping[int, Code] | None = None,
    one_row_verify: bool = False,
) -> Roles:
    """Find the phase of each pass.

    Parameters
    ----------
    passes : Passes
    streams : str
        "per-model" when the engine runs each model on a stream of its own (registry).
    overrides : mapping, optional
        Executable graph -> role, from the user (``--graph-role``).
    one_row_verify : bool
        Whether a verify pass of one draft runs one row, with the kernels of a plain step.
    """
    code = _by_anchors(passes)
    basis = np.full(len(passes), "positional", object)
    roles = Roles(code=code, basis=basis)
    if streams == "per-model":
        _by_streams(passes, roles)
    if one_row_verify:
        _single_row_verify(roles)
    _by_graphs(passes, roles, overrides or {})
    return roles


def _by_anchors(passes: Passes) -> U8:
    """Phase from exclusive kernels; a pass holds anchors of one phase only (`passes.cut`)."""
    code = np.full(len(passes), Code.UNKNOWN, np.uint8)
    anchors = passes.anchors
    for kind in (Code.OTHER, Code.MODEL, Code.TARGET, Code.PLAIN, Code.DECODE, Code.PREFILL,
                 Code.REPLAY, Code.DRAFT, Code.VERIFY):  # fmt: skip
        code[anchors[:, kind] > 0] = kind
    return code


def _single_row_verify(roles: Roles) -> None:
    """Target passes that follow each single draft verify it, when nothing verifies by name.

    With k = 1 the one row is verified by the kernels of a plain step; position alone tells.
    """
    code = roles.code
    if (code == Code.VERIFY).any() or not (code == Code.DRAFT).any():
        return
    model = np.flatnonzero(np.isin(code, [Code.DRAFT, Code.TARGET]))
    draft = code[model] == Code.DRAFT
    follows = model[1:][draft[:-1] & ~draft[1:]]
    if len(follows) < AGREE * draft.sum():
        return  # several drafts in a row: their verify pass has kernels of its own, not seen here
    code[follows] = Code.VERIFY
    roles.basis[follows] = "pattern"
    roles.notes.append(
        "no kernel of the verify pass has a name of its own: with one draft a round, the target pass "
        "after each draft is taken as its verify pass"
    )


# --- streams ---------------------------------------------------------------------------------------


def _by_streams(passes: Passes, roles: Roles) -> None:
    """Tell draft from target by stream, and verify from plain by what a target pass follows."""
    code = roles.code
    candidate = (code == Code.MODEL) | (passes.is_graph & ~passes.is_blind & (code == Code.UNKNOWN))
    if not candidate.any():
        return
    target = _target_stream(passes, candidate)
    on_target = passes.stream == target
    drafts = candidate & ~on_target
    one_row = drafts & (passes.is_graph | (passes.width == 1))
    drafting = np.zeros(len(passes), bool)
    for stream in np.unique(passes.stream[one_row]):
        lane = drafts & (passes.stream == stream)
        drafting |= lane & (np.arange(len(passes)) >= np.flatnonzero(lane & one_row)[0])
    widths = _verify_by_rows(passes, roles, candidate & on_target, drafting)
    _draft_lanes(passes, roles, drafts, drafting, max(widths, default=0))
    side = ~candidate & (code == Code.UNKNOWN) & np.isin(passes.stream, passes.stream[drafting])
    code[side & (np.arange(len(passes)) >= _first(drafting))] = Code.DRAFT
    if drafting.any():
        roles.notes.append(
            f"stream {target} runs the target, "
            f"{', '.join(str(int(s)) for s in np.unique(passes.stream[drafting]))} the draft: "
            "each model has a stream of its own"
        )


def _first(mask: Bool) -> int:
    """Index of the first True, or the length when there is none."""
    found = np.flatnonzero(mask)
    return int(found[0]) if len(found) else len(mask)


def _target_stream(passes: Passes, candidate: Bool) -> int:
    """The stream with the dearest passes: a draft model that costs more than its target helps nobody."""
    streams = np.unique(passes.stream[candidate])
    cost = [np.median(passes.gpu_ns[candidate & (passes.stream == s)]) for s in streams]
    return int(streams[int(np.argmax(cost))])


def _verify_by_rows(passes: Passes, roles: Roles, on_target: Bool, drafting: Bool) -> list[int]:
    """Code the target's passes; return the widths of verify passes.

    A verify pass runs after drafts, on no more rows than were drafted plus one a request; a prompt
    runs on more, a plain step on one. Passes of verify shape before the first prompt are warm-ups, and
    one that follows a prompt with no draft between is the prompt's tail.
    """
    order = np.flatnonzero(on_target | drafting)
    lanes = np.flatnonzero(on_target)
    counted = _widths_from_results(passes, lanes, drafting)
    wide = lanes[passes.width[lanes] > 2 * SLOT_ROWS] if len(lanes) else lanes
    first_prompt = int(wide[0]) if len(wide) else -1
    any_draft = bool(drafting.any())
    rows, widths = 0, []
    after_draft: dict[int, list[bool]] = {}
    returned, width_of = passes.returned[lanes], passes.width[lanes]
    row = int(returned[returned > 0].min()) if returned.any() else NONE
    # what verifies needs the results of all its rows, a prompt those of its last one
    returns_all = bool(
        ((returned == width_of * row) & (width_of > 1) & (width_of <= SLOT_ROWS)).any()
    )
    chain = False  # behind a prompt's chunk: the next may be its tail
    for i in order:
        width = int(passes.width[i])
        if drafting[i]:
            rows += max(width, 1)
            chain = False
            continue
        if i < first_prompt:
            roles.code[i] = Code.OTHER
        elif width == 1:
            roles.code[i] = Code.TARGET
        elif width != NONE:
            if returns_all and int(passes.returned[i]) == row:
                verify = False
            elif any_draft:
                verify = rows > 0 and width <= 2 * rows + 1
            else:
                tail = chain and int(passes.returned[i]) != width * row
                verify = not tail and width <= 2 * SLOT_ROWS and first_prompt >= 0
            roles.code[i] = Code.VERIFY if verify else Code.PREFILL
            if verify:
                widths.append(width)
        elif passes.is_graph[i]:
            after_draft.setdefault(int(passes.graph[i]), []).append(rows > 0)
        chain = width > 2 * SLOT_ROWS
        rows = 0
    for graph in np.unique(passes.graph[counted]).tolist():
        mine = counted[passes.graph[counted] == graph]
        codes, votes = np.unique(roles.code[mine], return_counts=True)
        shown = ", ".join(str(w) for w in np.unique(passes.width[mine]))
        roles.graphs[graph] = GraphRole(
            Code(int(codes[np.argmax(votes)])),
            "graph",
            float(votes.max() / votes.sum()),
            f"copies results of {shown} rows back to the host",
        )
        roles.basis[mine] = "graph"
    if widths and not any_draft and after_draft:
        roles.notes.append(
            f"graphs {', '.join(map(str, sorted(after_draft)))} on the target's stream may verify or decode: no draft "
            "runs on the GPU, and their rows are not known (node granularity shows them)"
        )
        return widths
    for graph, places in after_draft.items():
        share = sum(places) / len(places)
        verify = any_draft and share >= AGREE
        role = Code.VERIFY if verify else Code.TARGET
        roles.graphs[graph] = GraphRole(
            role,
            "graph" if share in (0.0, 1.0) else "pattern",
            max(share, 1 - share),
            f"{sum(places)} of {len(places)} launches follow draft passes on the target's stream",
        )
        mine = on_target & (passes.graph == graph) & (roles.code == Code.UNKNOWN)
        roles.code[mine] = role
        roles.basis[mine] = roles.graphs[graph].basis
    return widths


def _widths_from_results(passes: Passes, lanes: I64, drafting: Bool) -> I64:
    """Fill the width of graph passes from the size of the results they copy back; return those passes.

    A target pass returns a row of logits for each row it runs, so passes of known width tell the bytes
    of a row, and a graph's copies tell its rows. Prompts and warm-ups return their last row only.
    """
    known = lanes[(passes.width[lanes] > 1) & (passes.width[lanes] <= SLOT_ROWS)]
    prompts = lanes[passes.width[lanes] > 2 * SLOT_ROWS]
    begin = (
        int(np.flatnonzero(drafting)[0])
        if drafting.any()
        else int(prompts.min(initial=len(passes)))
    )
    known = known[(known >= begin) & (passes.returned[known] > 0)]
    none = np.zeros(0, np.int64)
    if not len(known):
        return none
    rows, odd = np.divmod(passes.returned[known], passes.width[known])
    values, votes = np.unique(rows[odd == 0], return_counts=True)
    if not len(values) or votes.max() < AGREE * len(known):
        return none
    row = int(values[np.argmax(votes)])
    graphs = lanes[passes.is_graph[lanes] & (passes.width[lanes] == NONE)]
    whole = graphs[(passes.returned[graphs] > 0) & (passes.returned[graphs] % row == 0)]
    passes.width[whole] = passes.returned[whole] // row
    return np.asarray(whole, np.int64)


SLOT_ROWS = 16
"""Rows of a verify pass at most; where no draft precedes it (n-gram), twice as many: wider is a prompt."""


def _draft_lanes(
    passes: Passes, roles: Roles, drafts: Bool, drafting: Bool, verify_width: int
) -> None:
    """Code the passes of draft streams: drafts, prompts, and warm-ups before the first one-row pass."""
    width = passes.width
    prompt = drafts & (width > max(verify_width, 2))
    roles.code[drafting & ~prompt] = Code.DRAFT
    roles.code[prompt] = Code.PREFILL
    roles.code[drafts & ~drafting & ~prompt] = Code.OTHER
    graphs = drafting & passes.is_graph
    roles.basis[graphs] = "graph"
    for graph in np.unique(passes.graph[graphs]):
        roles.graphs[int(graph)] = GraphRole(
            Code.DRAFT, "graph", 1.0, "launched on the draft model's own stream"
        )


# --- executable graphs -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Runs:
    """Run-length view of the model passes: each run is one symbol repeated."""

    symbol: I64
    length: I64
    first: I64  # pass that opens the run


def _runs(symbols: I64) -> _Runs:
    keep = np.flatnonzero(symbols != NONE)
    s = symbols[keep]
    if not len(s):
        empty = np.zeros(0, np.int64)
        return _Runs(empty, empty, empty)
    opens = np.flatnonzero(np.concatenate([[True], s[1:] != s[:-1]]))
    return _Runs(s[opens], np.diff(np.append(opens, len(s))), keep[opens])


_SYMBOL = {Code.VERIFY: -10, Code.DRAFT: -11, Code.TARGET: -12, Code.REPLAY: -12}
"""Symbols of passes whose phase is known; graphs of unknown role are their own positive id."""

_BLIND = -20


def _symbols(passes: Passes, roles: Roles) -> I64:
    symbols = np.full(len(passes), NONE, np.int64)
    for code, symbol in _SYMBOL.items():
        symbols[roles.code == code] = symbol
    open_graphs = passes.is_graph & (roles.code == Code.UNKNOWN)
    symbols[open_graphs] = np.where(passes.is_blind[open_graphs], _BLIND, passes.graph[open_graphs])
    return symbols


def _by_graphs(passes: Passes, roles: Roles, overrides: Mapping[int, Code]) -> None:
    """Give executable graphs of unknown role one: the user's, or what their neighbours say."""
    for graph, code in overrides.items():
        roles.graphs[graph] = GraphRole(code, "graph", 1.0, "given with --graph-role")
        mine = passes.graph == graph
        roles.code[mine], roles.basis[mine] = code, "graph"
    symbols = _symbols(passes, roles)
    open_graphs = [int(g) for g in np.unique(symbols[(symbols >= 0) | (symbols == _BLIND)])]
    if not open_graphs:
        return
    runs = _runs(symbols)
    has_verify = bool((roles.code == Code.VERIFY).any())
    has_draft = bool((roles.code == Code.DRAFT).any())
    if has_verify or has_draft:
        found = {g: _by_neighbours(g, runs, has_verify, has_draft) for g in open_graphs}
    else:
        found = _by_repetition(symbols, passes, roles)
    for graph, role in found.items():
        roles.graphs[graph] = role
        mine = symbols == graph
        roles.code[mine], roles.basis[mine] = role.code, role.basis


def _by_neighbours(graph: int, runs: _Runs, has_verify: bool, has_draft: bool) -> GraphRole:
    """Role of a graph from the named passes that its runs stand between."""
    at = np.flatnonzero(runs.symbol == graph)
    before = np.where(at > 0, runs.symbol[np.maximum(at - 1, 0)], NONE)
    after = np.where(
        at + 1 < len(runs.symbol), runs.symbol[np.minimum(at + 1, len(runs.symbol) - 1)], NONE
    )
    follows_draft = float((before == _SYMBOL[Code.DRAFT]).mean())
    leads_verify = float((after == _SYMBOL[Code.VERIFY]).mean())
    name = "blind graph launches" if graph == _BLIND else "its launches"
    if has_draft and not has_verify and follows_draft >= AGREE:
        return GraphRole(
            Code.VERIFY, "pattern", follows_draft,
            f"{follows_draft:.0%} of {name} come right after draft passes",
        )  # fmt: skip
    if has_draft and has_verify and follows_draft >= AGREE:
        return GraphRole(
            Code.VERIFY, "pattern", follows_draft,
            f"{follows_draft:.0%} of {name} come right after draft passes, as verify kernels do",
        )  # fmt: skip
    if has_verify and not has_draft and leads_verify >= AGREE and _steady(runs.length[at]):
        return GraphRole(
            Code.DRAFT, "pattern", leads_verify,
            f"runs of {int(np.median(runs.length[at]))} end in a verify pass {leads_verify:.0%} of the time",
        )  # fmt: skip
    sure = has_verify and has_draft and follows_draft == 0
    return GraphRole(
        Code.TARGET,
        "graph" if sure else "pattern",
        1.0 - follows_draft,
        "verify and draft show their own kernels, and it never stands between them"
        if sure
        else f"{follows_draft:.0%} of {name} follow drafts",
    )


def _steady(lengths: I64) -> bool:
    """Whether run lengths are the same most of the time."""
    if not len(lengths):
        return False
    _, counts = np.unique(lengths, return_counts=True)
    return bool(counts.max() / len(lengths) >= 0.8)


def _by_repetition(symbols: I64, passes: Passes, roles: Roles) -> dict[int, GraphRole]:
    """Roles when nothing but the target has a name: what the pattern of launches says (`repetition`)."""
    model = np.flatnonzero(symbols != NONE)
    graph = np.where(symbols[model] >= 0, symbols[model], -1)
    cost = np.full(len(model), np.nan)
    for g in np.unique(graph[graph >= 0]):
        cost[graph == g] = np.median(passes.gpu_ns[model[graph == g]])
    found, notes = repetition.read(repetition.Launches(graph, cost, passes.waits[model]))
    roles.notes.extend(notes)
    return found


# --- the rest --------------------------------------------------------------------------------------


def adopt(
    passes: Passes, code: U8, basis: npt.NDArray[np.object_], round_of: I32
) -> npt.NDArray[np.bool_]:
    """Give kernels without a name to the pass that they were launched with, when it is the only one.

    Called when rounds are read: such kernels are no steps of their own, whatever their number.

    Parameters
    ----------
    code, basis, round_of
        One per pass; changed in place.

    Returns
    -------
    bool array, one per pass
        Passes that became part of another one.
    """
    adopted = np.zeros(len(code), bool)
    unknown = np.flatnonzero((code == Code.UNKNOWN) & ~passes.is_graph)
    known = np.flatnonzero(np.isin(code, _ADOPTING))
    if not len(unknown) or not len(known):
        return adopted
    place = passes.epoch.astype(np.int64) * (1 << 32) + passes.stream
    near: dict[int, list[int]] = {}
    for i in known.tolist():
        near.setdefault(int(place[i]), []).append(i)
    for i in unknown.tolist():
        hosts = near.get(int(place[i]), [])
        if len({int(code[h]) for h in hosts}) == 1:
            host = min(hosts, key=lambda h: (abs(h - i), h))
            code[i], round_of[i] = code[host], round_of[host]
            basis[i] = "pattern" if basis[host] == "pattern" else "positional"
            adopted[i] = True
    return adopted


_ADOPTING = (Code.DRAFT, Code.VERIFY, Code.REPLAY, Code.PREFILL, Code.DECODE, Code.PLAIN)
