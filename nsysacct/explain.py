"""An account in half a page of words: every sentence is made from figures, with their basis.

The order follows a published method for "is speculation worth it here": bottleneck, acceptance by
scenario, verify cost against width, batch form, A/B; then three reasons to give up. What the
account cannot say is said to be missing, with how to get it.
"""

from __future__ import annotations

import msgspec

from nsysacct.bottleneck import COUNTERS, Bottleneck, Stake, bottleneck, stakes
from nsysacct.breakeven import break_even
from nsysacct.economics import NEEDS_PLAIN, NS_PER_MS, Costs, costs_of
from nsysacct.errors import NsysacctError
from nsysacct.layout import count, share
from nsysacct.model import PROVENANCE, Account
from nsysacct.scenarios import LOW_RATE
from nsysacct.theory import alpha_for_mean
from nsysacct.whatif import Levers, Row, what_if

PHASES = ("draft", "verify", "replay")
AB_LABELS = ("hardware", "model", "quantisation", "concurrency")
"""What an A/B must hold fixed."""
LOW_HEADROOM = 0.10
"""Share of the card's memory below which no room is left for a draft model and its cache."""
STEEP_ROW = 0.25
"""Cost of a verified row in plain steps above which verifying is clearly not free."""


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """One statement. ``state`` of a step: "measured", "partly" or "missing"; else ""."""

    topic: str
    text: str
    basis: str
    state: str = ""
    how: str = ""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The half page, in reading order."""

    answer: list[Sentence]
    time: list[Sentence]
    levers: list[Sentence]
    steps: list[Sentence]
    give_up: list[Sentence]
    missing: list[Sentence]


def explain(
    account: Account,
    *,
    plain_ms: float | None = None,
    plain_from: Account | None = None,
    weight_bytes: int | None = None,
    active_bytes: int | None = None,
    peak_memory_bytes: int | None = None,
) -> Explanation:
    """Return the explanation of an account.

    Parameters
    ----------
    account : Account
        Of ``split``.
    plain_ms : float, optional
        A plain step, when the account has none.
    plain_from : Account, optional
        A capture of the same run without speculation: its plain step, its memory.
    weight_bytes, active_bytes : int, optional
        For the bottleneck, see `nsysacct.bottleneck.bottleneck`.
    peak_memory_bytes : int, optional
        Most GPU memory in use during the run; by default what the trace's allocations show.

    Raises
    ------
    IncomparableError
        `plain_from` is a capture of something else.
    """
    costs, problem = _costs(account, plain_ms, plain_from)
    limit = bottleneck(
        account,
        weight_bytes=weight_bytes,
        active_bytes=active_bytes,
        plain_ms=plain_ms,
        plain_from=plain_from,
        costs=costs,
    )
    return Explanation(
        answer=_answer(account, costs, problem),
        time=_time(account),
        levers=_levers(costs),
        steps=_steps(account, costs, limit),
        give_up=[
            _low_acceptance(costs),
            _memory(account, plain_from, peak_memory_bytes),
            _steep_verify(costs),
        ],
        missing=_missing(account),
    )


def _costs(
    account: Account, plain_ms: float | None, plain_from: Account | None
) -> tuple[Costs | None, str]:
    try:
        return costs_of(account, plain_ms=plain_ms, plain_from=plain_from), ""
    except NsysacctError as error:
        return None, str(error)


def _answer(account: Account, costs: Costs | None, problem: str) -> list[Sentence]:
    rounds = account.rounds
    text = f"{rounds.value} rounds ran" if rounds.value else "No round is proven"
    said = [
        Sentence(
            topic="rounds",
            text=text,
            basis=f"{rounds.verdict}, {count(len(rounds.witnesses), 'witness')}",
        )
    ]
    if costs is None:
        return [
            *said,
            Sentence(topic="paying", text=f"Whether it pays is open: {problem}", basis=""),
        ]
    tokens = f"{costs.tokens_per_round:.3f} tokens a round of {costs.round_ns / NS_PER_MS:.3f} ms"
    if costs.speedup is None or costs.plain_ns is None:
        text = f"Whether it pays is open: {tokens}, but no plain step to hold it against"
        return [*said, Sentence(topic="paying", text=text, basis="", how=NEEDS_PLAIN)]
    least = "at least " if costs.plain_is_least else ""
    if costs.speedup > 1:
        verdict = "Speculation pays"
    else:
        verdict = "Whether it pays is open" if least else "Speculation does not pay"
    text = (
        f"{verdict}: {least}{costs.speedup:.3f}x of plain decoding ({tokens}; a plain step "
        f"takes {least}{costs.plain_ns / NS_PER_MS:.3f} ms)"
    )
    how = NEEDS_PLAIN if least else ""
    basis = f"plain step: {costs.plain_how}"
    return [*said, Sentence(topic="paying", text=text, basis=basis, how=how)]


def _basis(by_basis: dict[str, int]) -> str:
    totals: dict[str, int] = {}
    for basis, amount in by_basis.items():
        if amount:
            kind = PROVENANCE.get(basis, basis)
            totals[kind] = totals.get(kind, 0) + amount
    whole = sum(totals.values())
    if len(totals) == 1:
        return next(iter(totals))
    return ", ".join(
        f"{kind} {share(amount / whole, 0)}"
        for kind, amount in sorted(totals.items(), key=lambda x: -x[1])
    )


def _time(account: Account) -> list[Sentence]:
    rounds, wall = account.rounds.value, account.window.wall_ns
    said = []
    for name in PHASES:
        bucket = account.bucket(name)
        if not bucket.total_ns:
            continue
        text = f"{name} takes {bucket.total_ns / NS_PER_MS:.3f} ms"
        text += f", {bucket.total_ns / rounds / NS_PER_MS:.3f} ms a round" if rounds else ""
        text += f", {share(bucket.total_ns / wall)} of the window" if wall else ""
        said.append(Sentence(topic=name, text=text, basis=_basis(bucket.by_basis)))
    window = account.window
    if window.residual_low_ns is not None and window.residual_high_ns is not None:
        low, high = window.residual_low_ns / NS_PER_MS, window.residual_high_ns / NS_PER_MS
        text = f"{low:.3f} to {high:.3f} ms of {wall / NS_PER_MS:.3f} ms are in no phase"
    else:
        part = f", {share(window.residual_ns / wall)} of the window" if wall else ""
        text = f"{window.residual_ns / NS_PER_MS:.3f} ms{part}, without GPU work (gaps, host)"
    said.append(Sentence(topic="residual", text=text, basis=f"window: {window.wall_how}"))
    totals: dict[str, int] = {}
    for name in PHASES:
        for basis, amount in account.bucket(name).by_basis.items():
            totals[basis] = totals.get(basis, 0) + amount
    if sum(totals.values()):
        text = f"The {sum(totals.values()) / NS_PER_MS:.3f} ms in the phases are {_basis(totals)}"
        said.append(Sentence(topic="proof", text=text, basis="sum over draft, verify, replay"))
    return said


def _lever_row(costs: Costs, stake: Stake) -> Row | None:
    """Range of the speed-up when a lever gives back all that is at stake."""
    plain = costs.plain_ns
    if plain is None:
        return None
    full = (0,) * costs.k + (costs.rounds,)
    levers = {
        "replay": Levers(no_replay=True),
        "draft": Levers(draft_ms=0.0),
        "verify": Levers(verify_ms=plain / NS_PER_MS),
        "host work": Levers(no_residual=True),
        "acceptance": Levers(n_ok=full),
    }
    return what_if(costs, levers[stake.lever]).rows[-1]


def _levers(costs: Costs | None) -> list[Sentence]:
    if costs is None:
        return []
    said = []
    for stake in [s for s in stakes(costs) if s.at_stake_ms > 0][:2]:
        row = _lever_row(costs, stake)
        text = f"{stake.lever}: at most {stake.at_stake_ms:.3f} ms ({share(stake.share_of_wall)})"
        if row is not None and row.low is not None and row.high is not None:
            low, high = f"{row.low:.2f}x", f"{row.high:.2f}x"
            text += f", which alone would make {low}" + (f" to {high}" if low != high else "")
        said.append(Sentence(topic=stake.lever, text=f"{text}; {stake.detail}", basis=stake.basis))
    return said


def _steps(account: Account, costs: Costs | None, limit: Bottleneck) -> list[Sentence]:
    known = limit.bandwidth_share is not None
    basis = f"bandwidth: {limit.bandwidth_how}" if known else f"plain step: {limit.plain_how}"
    state = _bottleneck_state(limit)
    return [
        Sentence(
            topic="1 bottleneck",
            text=limit.reasons[0] if state == "missing" else f"{limit.verdict}: {limit.reasons[0]}",
            basis="" if state == "missing" else basis,
            state=state,
            how="" if known else f"give --weight-bytes, or {COUNTERS}",
        ),
        _acceptance_step(costs),
        _width_step(costs),
        Sentence(
            topic="4 batch form",
            text=f"{count(costs.batch, 'request')} a verify pass" if costs else "requests unknown",
            basis="n_ok histogram over rounds" if costs else "",
            state="partly" if costs else "missing",
            how="capture another concurrency",
        ),
        _ab_step(account),
    ]


def _bottleneck_state(limit: Bottleneck) -> str:
    if limit.verdict == "cannot tell" and limit.bandwidth_share is None:
        return "missing"
    return "measured" if limit.dram_read_share is not None else "partly"


def _acceptance_step(costs: Costs | None) -> Sentence:
    topic = "2 acceptance by scenario"
    if costs is None or costs.mean_accepted is None:
        return Sentence(
            topic=topic, text="no acceptance known", basis="", state="missing",
            how="split with --n-ok or the run log",
        )  # fmt: skip
    text = f"{costs.mean_accepted:.3f} of {costs.k} drafts accepted a round"
    if costs.histogram:
        total = sum(costs.histogram)
        reach = [sum(costs.histogram[j:]) / total for j in range(1, costs.k + 1)]
        text += ", by position " + ", ".join(f"{p:.3f}" for p in reach)
    return Sentence(
        topic=topic, text=f"{text}, one scenario", basis=f"{costs.rounds} rounds", state="partly",
        how="capture each kind of task",
    )  # fmt: skip


def _width_step(costs: Costs | None) -> Sentence:
    how = "nsysacct curve, several k"
    row = costs.row_cost if costs else None
    if row is None or costs is None or costs.plain_ns is None:
        return Sentence(
            topic="3 verify cost against width", text="verify over plain step is unknown", basis="",
            state="missing", how=how,
        )  # fmt: skip
    beta = costs.verify_ns / costs.rounds / costs.plain_ns
    text = f"{costs.width} rows cost {beta:.3f} plain steps, {row:+.3f} a row beyond the first"
    return Sentence(
        topic="3 verify cost against width", text=text, basis=_basis(costs.bases["verify"]),
        state="partly", how=how,
    )  # fmt: skip


def _ab_step(account: Account) -> Sentence:
    missing = [name for name in AB_LABELS if name not in account.labels]
    if account.trace.gpu and "hardware" in missing:
        missing.remove("hardware")
    text = f"{len(AB_LABELS) - len(missing)} of {len(AB_LABELS)} fixed conditions are recorded"
    if missing:
        text += f", not {', '.join(missing)}"
    return Sentence(
        topic="5 A/B", text=text, basis="labels, device", state="missing",
        how="--label the runs with and without speculation, and compare",
    )  # fmt: skip


def _memory(account: Account, plain: Account | None, given: int | None) -> Sentence:
    """Room left for a draft model and its cache; what the trace shows is a lower bound."""
    topic, total = "no memory left for the draft", account.trace.gpu_memory_bytes
    seen = account.trace.peak_memory_bytes
    peak = given if given is not None else seen
    if peak is None or not total:
        card = f" of {total / 1e9:.1f} GB" if total else ""
        return Sentence(
            topic=topic, text=f"open: memory in use{card} is unknown", basis="", state="missing",
            how="capture with --cuda-memory-usage=true, or give --peak-memory",
        )  # fmt: skip
    free = 1 - peak / total
    text = f"{share(free)} of {total / 1e9:.1f} GB free at the peak"
    if free < LOW_HEADROOM:
        verdict, state = "a reason to give up", "measured"
    elif given is not None:
        verdict, state = "no reason to give up", "measured"
    else:
        verdict, state = "no reason seen, from a lower bound of what is in use", "partly"
    text = f"{text}: {verdict} (threshold {share(LOW_HEADROOM, 0)})"
    before = plain.trace.peak_memory_bytes if plain is not None else None
    if seen is not None and before is not None:
        text += f"; {(seen - before) / 1e9:+.2f} GB against the capture without speculation"
    return Sentence(
        topic=topic, text=text, state=state,
        basis="peak as given" if given is not None else "allocations in the trace",
        how="" if state == "measured" else "capture from the start of the program",
    )  # fmt: skip


def _steep_verify(costs: Costs | None) -> Sentence:
    row = costs.row_cost if costs else None
    if row is None:
        return Sentence(
            topic="verify grows with width", text="open", basis="", state="missing",
            how="nsysacct curve, several k",
        )  # fmt: skip
    verdict = "steep: a reason" if row > STEEP_ROW else "flat: no reason"
    return Sentence(
        topic="verify grows with width",
        text=f"{verdict} to give up ({row:.3f} plain steps a row; steep from {STEEP_ROW})",
        basis="verify over plain step, one width",
        state="measured",
    )


def _low_acceptance(costs: Costs | None) -> Sentence:
    topic = "acceptance too low"
    if costs is None or costs.mean_accepted is None:
        return Sentence(
            topic=topic, text="open", basis="", state="missing", how="split with --n-ok or the log"
        )
    rate = alpha_for_mean(min(costs.mean_accepted, float(costs.k)), costs.k)
    text = f"constant rate {rate:.3f}, {'below' if rate < LOW_RATE else 'not below'} {LOW_RATE}"
    if costs.plain_ns is not None:
        needed = break_even(costs).acceptance[0].rate
        if needed is None:
            text += "; at this run's costs no rate breaks even"
        else:
            verdict = "too low" if rate < needed else "enough"
            text += f"; this run's costs break even at {needed:.3f}: {verdict}"
    return Sentence(topic=topic, text=text, basis=f"{costs.rounds} rounds", state="measured")


def _missing(account: Account) -> list[Sentence]:
    said = []
    for spot in account.blind_spots:
        text = f"an unknown time hidden: {spot.detail}"
        if spot.hidden_ns is not None:
            text = f"{spot.hidden_ns / NS_PER_MS:.3f} ms hidden: {spot.detail}"
        if spot.hidden_ns == 0:
            text = spot.detail
        said.append(
            Sentence(topic=spot.kind, text=text, basis=spot.basis or "open", how=spot.remedy)
        )
    return said
