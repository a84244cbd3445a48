"""How many rounds ran, by every count that the trace allows, and whether they agree.

The verdict is the counts': exact when verify-only kernels (or a once-a-round marker) divide without
remainder and every other witness agrees; inferred when rounds come from launches and positions alone;
inconsistent when witnesses differ; none when nothing was verified. A histogram from the engine may
lack the last pass, as a log may: that one is a finding and no contradiction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from nsysacct import census, counting
from nsysacct.attribution import Attribution
from nsysacct.errors import TraceError
from nsysacct.evidence import Code, NameEvidence
from nsysacct.model import BUCKETS, BlindSpot, Finding, Rounds, SignatureCount, Witness
from nsysacct.names import parse
from nsysacct.nvtx import Projection
from nsysacct.signatures import Pattern
from nsysacct.structure import Structure
from nsysacct.timeline import Kind, Timeline
from nsysacct.trace import NONE, Trace

if TYPE_CHECKING:
    from nsysacct.account import Options
    from nsysacct.registry import Signature


STEPS_THAT_VERIFY = "NVTX ranges of steps that verify drafts"
HISTOGRAM = "n_ok histogram"


def judge(
    line: Timeline,
    trace: Trace,
    names: NameEvidence,
    found: Structure,
    placed: Attribution,
    rows: Sequence[census.Row],
    marks: Projection,
    options: Options,
) -> Rounds:
    """Count rounds by all means and compare."""
    layout = found.layout
    kernels = [row for row in rows if not row.is_graph]
    counted, partial = _verify_only(kernels, trace, names, found)
    observed = layout.rounds
    proof = counting.prove(counted, options.layers, observed=observed or None)
    signatures = list(proof.signatures)
    witnesses = _witnesses(line, found, marks, options, observed)
    reasons = list(proof.reasons) if counted else []
    if partial:
        reasons.append(partial)
    if not observed and not counted:
        return _no_rounds(line, found, placed, marks, options)
    value = observed or proof.rounds
    agree = all(w.agrees or _lacks_the_last(w, observed) for w in witnesses)
    markers = _marker_counts(kernels, names, observed)
    if found.how == "names" and not counted:
        markers += _pass_counts(kernels, trace, names, found)
    signatures = [*markers, *signatures, *_draft_counts(kernels, trace, names, found)]
    proven = (bool(counted) and proof.whole and proof.rounds == observed) or (
        bool(markers) and all(m.verdict == "exact" for m in markers)
    )
    contradicted = bool(counted) and not (proof.whole and proof.rounds == observed)
    if contradicted or not agree:
        verdict = "inconsistent"
    elif proven:
        verdict = "exact"
    else:
        verdict = "inferred"
        reasons.append(_inferred_from(found))
    return Rounds(
        value=value,
        verdict=verdict,
        signatures=signatures,
        witnesses=witnesses,
        k=found.k,
        width=found.width,
        layers=proof.layers or dict(options.layers),
        layers_how=proof.layers_how,
        reasons=[r for r in reasons if r],
    )


def _no_rounds(
    line: Timeline,
    found: Structure,
    placed: Attribution,
    marks: Projection,
    options: Options,
) -> Rounds:
    """Zero where the trace shows what ran instead; unknown where nothing tells phases apart.

    Graphs without a role that hold most of the GPU time may hold the rounds: then nothing is known.
    """
    known = found.how != "none" or bool((found.layout.code == Code.TARGET).any())
    plain = np.isin(found.layout.code, [Code.PLAIN, Code.DECODE, Code.PREFILL]).any()
    marked = np.isin(marks.code, [Code.PLAIN, Code.DECODE, Code.PREFILL]).any()
    sure = (known or bool(plain) or bool(marked)) and not _mostly_graphs_without_role(line, placed)
    steps = marks.verify_steps
    sure = sure and not steps
    return Rounds(
        value=0 if sure else None,
        verdict="none",
        witnesses=[]
        if steps is None
        else [Witness(name=STEPS_THAT_VERIFY, rounds=steps, agrees=sure)],
        layers=dict(options.layers),
        layers_how="given" if options.layers else "",
        reasons=[
            "no verify pass: speculation was off, or silently not used"
            if sure
            else "nothing in the names, graphs or ranges tells draft from verify",
            *([f"{steps} {STEPS_THAT_VERIFY}, but no verify pass is found"] if steps else []),
            *(found.notes if not sure else []),
        ],
    )


def _mostly_graphs_without_role(line: Timeline, placed: Attribution) -> bool:
    homeless = (line.kind == Kind.GRAPH) & (placed.bucket == BUCKETS.index("unattributed"))
    return 2 * line.spent_ns(homeless) > line.spent_ns(line.kind != Kind.BLIND)


def without_losses(rounds: Rounds, spots: Sequence[BlindSpot]) -> Rounds:
    """Where events were lost, finding no verify pass does not mean that there was none."""
    lost = [s for s in spots if s.severity == "fatal" and s.kind.startswith("lost")]
    if rounds.value != 0 or not lost:
        return rounds
    return msgspec.structs.replace(
        rounds,
        value=None,
        reasons=["no verify pass is in the trace, but events were lost: " + lost[0].detail],
    )


def _inferred_from(found: Structure) -> str:
    return {
        "names": "rounds are passes told apart by names, streams and position",
        "graphs": "rounds are launches of the graph that the pattern says verifies",
        "markers": "rounds are steps that ended in an acceptance kernel",
        "nvtx": "rounds are NVTX ranges that the run itself marked as verify",
    }.get(found.how, "")


def refuse_wrong_layers(rounds: Rounds, trace_name: str, options: Options) -> None:
    """Stop at --layers that no count fits while another number explains them all.

    Raises
    ------
    TraceError
    """
    fits = next((r for r in rounds.reasons if r.endswith(counting.WOULD_FIT)), None)
    if not options.layers or fits is None:
        return
    given = ",".join(
        f"{kind}={n}" if kind != "all" else str(n) for kind, n in options.layers.items()
    )
    raise TraceError(
        f"--layers {given}",
        f"does not fit the counts of the verify-only kernels in {trace_name}: {fits}",
        "give that number, or leave --layers out",
    )


def _verify_only(
    kernels: Sequence[census.Row], trace: Trace, names: NameEvidence, found: Structure
) -> tuple[list[counting.Counted], str]:
    """Kernels that only verify passes run, counted per distinct name; and why they may not be counted.

    When some verify passes are graphs timed as a whole, their kernels are not in the rows: the rows
    must not be scaled to rounds, so nothing is counted.
    """
    layout, passes = found.layout, found.passes
    verify = layout.code == Code.VERIFY
    hidden = int((verify & passes.is_graph & (passes.kernels == 0)).sum())
    only = [
        row
        for row in kernels
        if row.name != NONE
        and names.code_of(row.signature) == Code.VERIFY
        and not _per_round_only(names.signatures[row.signature])
    ]
    if not only:
        return [], ""
    if hidden:
        seen = int(verify.sum()) - hidden
        return (
            [],
            f"{hidden} of {hidden + seen} verify passes are whole graphs: kernel rows are not scaled to rounds",
        )
    result = []
    for name, alike in _by_name(only):
        signature = names.signatures[alike[0].signature]
        result.append(
            counting.Counted(
                pattern=_pattern(trace, name),
                instances=sum(row.instances for row in alike),
                gpu_ns=sum(row.gpu_ns for row in alike),
                kind=signature.layer or "all",
                per_layer=signature.per_layer,
                per_round=signature.per_round,
            )
        )
    result.sort(key=lambda c: (-c.instances, c.pattern))
    return result, ""


def _by_name(rows: Sequence[census.Row]) -> list[tuple[int, list[census.Row]]]:
    """Rows of each kernel name, names ascending."""
    found: dict[int, list[census.Row]] = {}
    for row in rows:
        found.setdefault(row.name, []).append(row)
    return sorted(found.items())


def _pattern(trace: Trace, name: int) -> str:
    return Pattern.of(parse(trace.kernel_names[name])).text


def _per_round_only(signature: Signature) -> bool:
    """Whether a signature is counted by the round: acceptance markers, and what declares per_layer = 0."""
    return signature.marker == "accept" or (
        signature.bucket == "verify" and signature.per_layer == 0
    )


def _pass_counts(
    kernels: Sequence[census.Row], trace: Trace, names: NameEvidence, found: Structure
) -> list[SignatureCount]:
    """Kernels of some model (width in the name) inside the verify passes, per distinct name.

    Streams and widths say that these passes verify; that every kernel name divides by their number
    proves that they are alike. Nothing is counted when some verify passes are opaque graphs.
    """
    layout, passes = found.layout, found.passes
    verify = layout.code == Code.VERIFY
    if not layout.rounds or (verify & passes.is_graph & (passes.kernels == 0)).any():
        return []
    mine = [
        row
        for row in kernels
        if row.phase == Code.VERIFY
        and row.wide
        and row.name != NONE
        and names.code_of(row.signature) == Code.MODEL
    ]
    return [
        _by_round(_pattern(trace, name), alike, layout.rounds)
        for name, alike in _by_name(mine)
        if sum(row.instances for row in alike) >= layout.rounds  # else a width of a few rounds
    ]


def _marker_counts(
    kernels: Sequence[census.Row], names: NameEvidence, observed: int
) -> list[SignatureCount]:
    """Kernels that run so many times a verify step, whatever the layers, against the steps seen."""
    rows = []
    for i, s in enumerate(names.signatures):
        mine = [row for row in kernels if row.signature == i]
        if observed and mine and _per_round_only(s):
            rows.append(_by_round(s.pattern, mine, observed))
    return rows


def _draft_counts(
    kernels: Sequence[census.Row], trace: Trace, names: NameEvidence, found: Structure
) -> list[SignatureCount]:
    """Kernels of draft passes against k draft steps a round: a remainder is shown, not rounded away.

    They cross-check; the rounds are proven by what verifies.
    """
    layout = found.layout
    codes = {row.signature: names.code_of(row.signature) for row in kernels}
    if found.how != "names" or not layout.rounds or not found.k or Code.DRAFT not in codes.values():
        return []
    steps = layout.rounds * found.k
    mine = [
        row
        for row in kernels
        if row.phase == Code.DRAFT and row.name != NONE and codes[row.signature] != Code.UNKNOWN
    ]
    rows = []
    for name, alike in _by_name(mine):
        instances = sum(row.instances for row in alike)
        per_step, rest = divmod(instances, steps)
        rows.append(
            SignatureCount(
                pattern=_pattern(trace, name),
                instances=instances,
                gpu_ns=sum(row.gpu_ns for row in alike),
                kind="draft-step",
                layers=steps,
                per_layer=per_step,
                per_round=None,
                rounds=layout.rounds if not rest else None,
                verdict="exact" if not rest else "not whole",
                detail=""
                if not rest
                else f"{instances} = {per_step} x {steps} draft steps + {rest}",
            )
        )
    return sorted(rows, key=lambda r: (-r.instances, r.pattern))


def _by_round(pattern: str, alike: Sequence[census.Row], rounds: int) -> SignatureCount:
    """One kernel counted against the rounds seen."""
    instances = sum(row.instances for row in alike)
    per_round, rest = divmod(instances, rounds)
    return SignatureCount(
        pattern=pattern,
        instances=instances,
        gpu_ns=sum(row.gpu_ns for row in alike),
        kind="round",
        per_layer=0,
        per_round=per_round if not rest else None,
        rounds=rounds if not rest else None,
        verdict="exact" if not rest else "not whole",
        detail="" if not rest else f"{instances} = {per_round} x {rounds} + {rest}",
    )


def _copied_back(line: Timeline, found: Structure) -> int:
    """Waits of the host for copied results, from the first verify pass on: a rhythm of its own."""
    layout = found.layout
    if not layout.rounds:
        return 0
    begin = np.searchsorted(line.launch, found.passes.launch[layout.verify[0]])  # they ascend
    return len(np.unique(line.epoch[begin:][line.copies_out[begin:]]))


def _witnesses(
    line: Timeline, found: Structure, marks: Projection, options: Options, observed: int
) -> list[Witness]:
    """Counts that do not rest on signatures."""
    layout, passes = found.layout, found.passes
    verify = layout.code == Code.VERIFY
    rows: list[Witness] = []

    def add(name: str, rounds: int | None, detail: str = "") -> None:
        rows.append(Witness(name=name, rounds=rounds, agrees=rounds == observed, detail=detail))

    if observed:
        words = (
            "verify steps that end in acceptance"
            if found.how == "markers"
            else "verify passes in launch order"
        )
        add(words, observed)
    drafted = layout.draft_passes[layout.draft_passes > 0]
    if len(drafted) and found.k and found.how not in ("markers", "nvtx"):
        per_round, counts = np.unique(drafted, return_counts=True)
        usual = int(per_round[np.argmax(counts)])
        bursts = len(drafted)
        add("draft bursts before a verify pass", bursts, f"{usual} passes each, usually")
        if usual == found.k and int(layout.draft_passes.sum()) % found.k == 0:
            add("draft steps / k", int(layout.draft_passes.sum()) // found.k, f"k = {found.k}")
    waits = _copied_back(line, found)
    if observed and waits and waits % observed == 0:
        each = waits // observed
        add("copies back to the host", waits // each, f"{each} a round" if each > 1 else "")
    graphs = verify & passes.is_graph
    if graphs.all() and graphs.any() and found.how == "graphs":
        add("launches of verify graphs", int(graphs.sum()))
    if marks.verify_ranges:
        add("NVTX verify ranges", marks.verify_ranges)
    if marks.verify_steps is not None:
        add(STEPS_THAT_VERIFY, marks.verify_steps)
    if options.n_ok is not None:
        add(HISTOGRAM, sum(options.n_ok), "given with --n-ok")
    return rows


def _lacks_the_last(witness: Witness, observed: int) -> bool:
    """Whether it is a histogram of an engine that launched a pass ahead and did not use it."""
    return witness.name == HISTOGRAM and witness.rounds == observed - 1


def findings(rounds: Rounds) -> list[Finding]:
    """What is to be said where the histogram counts other rounds than the trace shows."""
    return [
        Finding(
            kind="histogram-rounds-differ",
            severity="info" if lacks_the_last else "warning",
            detail=f"--n-ok counts {witness.rounds} rounds, the trace shows {rounds.value}"
            + (": an asynchronous engine launches one more than it uses" if lacks_the_last else ""),
            remedy="" if lacks_the_last else "give the histogram of the rounds that were captured",
        )
        for witness in rounds.witnesses
        if witness.name == HISTOGRAM and rounds.value and witness.rounds != rounds.value
        for lacks_the_last in [_lacks_the_last(witness, rounds.value)]
    ]
