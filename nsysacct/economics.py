"""What a run's rounds cost, and what other acceptance or other costs would make of it.

One identity carries everything here: a run takes ``draft + verify + replay + rest``, where *rest*
is the wall that no round phase covers (launch gaps, host work, other GPU work), and

    speed-up = plain step x tokens / (draft + verify + replay + rest).

A lever changes a term. What it does to the others is not known from one run, so every answer is a
range over stated treatments, each end a named corner. Times are exact fractions inside: the
baseline reproduces the measured wall to the nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import msgspec

from nsysacct.errors import UsageError
from nsysacct.histograms import Histogram, mean_of, normal
from nsysacct.model import Account, Bucket, ProcessAccount, Rounds, Semantics, Window
from nsysacct.plainstep import GAPS_UNKNOWN, choose, is_thin
from nsysacct.semantics import REPLAY_STEPS, VERIFY_WIDTH, tokens_of

NS_PER_MS = 1_000_000
NEEDS_PLAIN = "give --plain-from PLAIN_TRACE or --plain-ms"
RESIDUAL_TREATMENTS = ("per round", "fixed", "dropped")
"""What becomes of the rest when the number of rounds changes; "dropped" counts the parts alone."""


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """One run's totals on the wall, ns, and its tokens.

    ``tokens`` are those the wall paid for, of one sequence each; ``emitted`` those of the rounds.
    ``batch`` is the number of requests that share a verify pass. ``plain_ns`` is a plain M=1 step,
    None when nothing says what it costs. ``idle_ns`` is the part of the rest with no GPU work.
    """

    rounds: int
    k: int
    width: int
    semantics: Semantics
    wall_ns: int
    draft_ns: int
    verify_ns: int
    replay_ns: int
    rest_ns: int
    idle_ns: int | None
    tokens: int
    emitted: int
    batch: int = 1
    histogram: tuple[int, ...] | None = None
    accepted: int | None = None
    plain_ns: float | None = None
    plain_how: str = ""
    bases: dict[str, dict[str, int]] = {}
    notes: list[str] = []

    @property
    def plain_is_least(self) -> bool:
        """Whether a plain step takes `plain_ns` at least, so that a speed-up is at least so high."""
        return self.plain_how.endswith(GAPS_UNKNOWN)

    @property
    def round_ns(self) -> float:
        """Mean wall of a round, rest included, ns."""
        return self.wall_ns / self.rounds

    @property
    def tokens_per_round(self) -> float:
        """Tokens that a pass emits for one request, by the engine's own rule."""
        return self.emitted / self.rounds / self.batch

    @property
    def mean_accepted(self) -> float | None:
        """Accepted drafts of one request in a round; None when nobody counted them."""
        return None if self.accepted is None else self.accepted / self.rounds / self.batch

    @property
    def row_cost(self) -> float | None:
        """Cost of a verified row beyond the first, in plain steps; None when it cannot be known."""
        if self.plain_ns is None or self.width < 2:
            return None
        return (self.verify_ns / self.rounds / self.plain_ns - 1) / (self.width - 1)

    @property
    def speedup(self) -> float | None:
        """Measured speed-up over plain decoding; None without a plain step time."""
        return None if self.plain_ns is None else float(self.speedup_of(Fraction(self.wall_ns)))

    def speedup_of(self, total_ns: Fraction) -> Fraction:
        """Speed-up if this run's tokens took `total_ns` (needs ``plain_ns``)."""
        if self.plain_ns is None:
            raise UsageError("plain step", "is not known", NEEDS_PLAIN)
        if total_ns <= 0:
            raise UsageError("levers", "leave no time at all", "give costs above 0")
        return Fraction(self.plain_ns) * self.tokens / self.batch / total_ns


# --- costs of an account ---------------------------------------------------------------------


def _on_wall(bucket: Bucket) -> int:
    shown = bucket.busy_ns or bucket.gpu_ns + bucket.mem_ns
    return shown + bucket.computed_ns


def _tokens(
    account: ProcessAccount, semantics: Semantics, rounds: int, notes: list[str]
) -> tuple[int, int, int]:
    """Return (tokens emitted by the rounds, requests a pass, accepted drafts)."""
    acceptance = account.acceptance
    if acceptance is None:
        raise UsageError(
            "acceptance", "the account does not say how many drafts were accepted",
            "give the histogram (--n-ok; whatif: --run-n-ok) or the run's log (--log)",
        )  # fmt: skip
    proven = _requests(account.rounds, semantics)
    if acceptance.n_ok is not None:
        counted = sum(acceptance.n_ok)
        batch = proven or max(1, round(counted / rounds))
        emitted = tokens_of(acceptance.n_ok, semantics.tokens)
        accepted = sum(n * c for n, c in enumerate(acceptance.n_ok))
    elif acceptance.accepted is not None and semantics.tokens == "n_ok+1":
        counted = acceptance.rounds or rounds * (proven or 1)
        batch = proven or max(1, round(counted / rounds))
        accepted = acceptance.accepted
        emitted = accepted + counted
    else:
        raise UsageError(
            "acceptance", f"tokens a round follow {semantics.tokens}, which needs the histogram",
            "give --n-ok with the counts of 0..k accepted drafts",
        )  # fmt: skip
    if batch > 1:
        how = "by the rows of a pass" if proven else "by the rounds counted"
        notes.append(f"{batch} requests share each verify pass ({how}); figures are per request")
    if counted > batch * rounds:
        # more than the capture holds: a sample of the run's acceptance, not the capture's tokens
        share = Fraction(batch * rounds, counted)
        notes.append(
            f"the acceptance counts {counted} rounds, the trace {batch * rounds}: its rates are "
            f"taken for the rounds in the trace ({round(emitted * share)} of {emitted} tokens)"
        )
        return round(emitted * share), batch, round(accepted * share)
    if counted < batch * rounds:
        notes.append(
            f"the acceptance counts {counted} rounds, the trace {batch * rounds}: "
            "tokens are those counted, time is the trace's"
        )
    return emitted, batch, accepted


def _requests(rounds: Rounds, semantics: Semantics) -> int | None:
    """Requests that share a verify pass, by its rows; None where the rows are not known."""
    if not rounds.k or not rounds.width:
        return None
    requests, odd = divmod(rounds.width, VERIFY_WIDTH[semantics.verify_width](rounds.k))
    return requests if requests and not odd else None


def drafts_of(account: Account, part: ProcessAccount) -> int | None:
    """Drafts a round: as the trace proves, as the acceptance says, or as the user gave."""
    if part.rounds.k:
        return part.rounds.k
    acceptance = part.acceptance
    if acceptance is not None and acceptance.k:
        return acceptance.k
    if acceptance is not None and acceptance.n_ok:
        return len(acceptance.n_ok) - 1
    given = account.options.get("k")
    return int(given) if given else None


def width_of(account: Account, part: ProcessAccount) -> int | None:
    """Rows of a verify pass: as the trace proves, else by the engine's rule from k."""
    if part.rounds.width:
        return part.rounds.width
    k = drafts_of(account, part)
    return VERIFY_WIDTH[account.engine.semantics.verify_width](k) if k else None


def _tokens_of_wall(account: Account, part: ProcessAccount, emitted: int) -> int:
    """Tokens that the wall paid for: a given wall is the run's, closing steps included."""
    if part.window.wall_how != "given":
        return emitted
    acceptance, closing = part.acceptance, account.options.get("closing") or 0
    if acceptance is not None and acceptance.tokens not in (None, 0, emitted):
        return int(acceptance.tokens or emitted)
    return emitted + int(closing)


def costs_of(
    account: Account,
    *,
    plain_ms: float | None = None,
    plain_from: Account | None = None,
    process: ProcessAccount | None = None,
) -> Costs:
    """Return the totals of an account on its wall.

    Parameters
    ----------
    account : Account
        As made by ``split``.
    plain_ms : float, optional
        A plain step in ms; overrides what the account says.
    plain_from : Account, optional
        A capture of the same run without speculation, whose plain step to take.
    process : ProcessAccount, optional
        Another (pid, gpu) of the account than the one at its top level.

    Raises
    ------
    UsageError
        No rounds, no k, no verify time, or no acceptance in the account.
    IncomparableError
        `plain_from` is a capture of something else.

    Examples
    --------
    >>> import nsysacct as na
    >>> account = na.split("small_graph.sqlite", layers=8, closing=2, n_ok=[5, 1, 2, 2])
    >>> costs = na.costs_of(account)
    >>> costs.draft_ns + costs.verify_ns + costs.replay_ns + costs.rest_ns == costs.wall_ns
    True
    >>> costs.rounds, costs.k, costs.tokens
    (10, 3, 16)
    """
    part = process or account
    rounds = part.rounds.value
    if not rounds:
        raise UsageError(
            "rounds", "the account proves none", "give --layers, or a trace with rounds"
        )
    semantics = account.engine.semantics
    acceptance = part.acceptance
    k = drafts_of(account, part)
    if not k:
        raise UsageError("k", "the account does not say how many tokens a round drafts", "give --k")
    notes: list[str] = []
    emitted, batch, accepted = _tokens(part, semantics, rounds, notes)
    tokens = _tokens_of_wall(account, part, emitted)
    amounts = {name: _on_wall(part.bucket(name)) for name in ("draft", "verify", "replay")}
    if amounts["verify"] <= 0:
        raise UsageError(
            "verify", "no time in this account is verify's", "see its blind spots and re-capture"
        )
    rest = part.window.wall_ns - sum(amounts.values())
    given = None if plain_ms is None else plain_ms * NS_PER_MS
    known = choose(account, part, given, plain_from)
    if known is None:
        notes.append(f"no plain step in the account: for speed-ups {NEEDS_PLAIN}")
    elif plain_ms is None and plain_from is None and is_thin(part):
        notes.append(f"the plain step is thin ({known[1]}): better {NEEDS_PLAIN}")
    if rest < 0:
        notes.append("phases overlap on the wall: their times add up to more than it")
    _note_tail(notes, tokens, emitted, rest, known)
    if acceptance is not None and acceptance.source == "inferred":
        notes.append("the n_ok histogram is inferred from the trace, not logged by the engine")
    return Costs(
        rounds=rounds,
        k=k,
        width=width_of(account, part) or k,
        semantics=semantics,
        wall_ns=part.window.wall_ns,
        draft_ns=amounts["draft"],
        verify_ns=amounts["verify"],
        replay_ns=amounts["replay"],
        rest_ns=rest,
        idle_ns=_idle(part.window),
        tokens=tokens,
        emitted=emitted,
        batch=batch,
        histogram=tuple(acceptance.n_ok) if acceptance and acceptance.n_ok else None,
        accepted=accepted,
        plain_ns=known[0] if known else None,
        plain_how=known[1] if known else "unknown",
        bases={name: dict(part.bucket(name).by_basis) for name in amounts},
        notes=notes,
    )


def _idle(window: Window) -> int | None:
    """Wall without GPU work; None where a given wall leaves unclassified kernels open."""
    if window.wall_how != "trace":
        return None
    return max(0, window.residual_ns - window.computed_ns)


def _note_tail(
    notes: list[str], tokens: int, emitted: int, rest: int, plain: tuple[float, str] | None
) -> None:
    tail = tokens - emitted
    if tail > 0 and plain is not None:
        cost = tail * plain[0]
        notes.append(
            f"{tail} of {tokens} tokens were not emitted by rounds; as plain steps they explain "
            f"{cost / NS_PER_MS:.2f} ms of the {rest / NS_PER_MS:.2f} ms outside the phases"
        )
    elif tail < 0:
        notes.append(
            f"the rounds emit {emitted} tokens by the engine's rule, the run says {tokens}"
        )


def calibrated(
    costs: Costs, plain_ms_per_token: float, spec_ms_per_token: float | None = None
) -> Costs:
    """Scale a profiled run to unprofiled ms a token; the shares stay the trace's.

    Parameters
    ----------
    costs : Costs
        Of the profiled run.
    plain_ms_per_token, spec_ms_per_token : float
        Unprofiled figures of plain and of speculative decoding. Without the second one the
        speculative run is scaled by the plain one's factor.

    Raises
    ------
    UsageError
        A figure that is not above 0, or only the plain one when the trace has no plain step.
    """
    if plain_ms_per_token <= 0 or (spec_ms_per_token is not None and spec_ms_per_token <= 0):
        raise UsageError("--unprofiled-ms-per-token", "is not above 0", "give ms a token")
    plain_ns = plain_ms_per_token * NS_PER_MS
    notes = list(costs.notes)
    if costs.plain_ns is not None:
        notes.append(
            f"profiling changed a plain step from {plain_ms_per_token:.3f} to "
            f"{costs.plain_ns / NS_PER_MS:.3f} ms ({costs.plain_ns / plain_ns - 1:+.1%})"
        )
    if spec_ms_per_token is not None:
        per_token = costs.wall_ns * costs.batch / costs.tokens
        factor = Fraction(spec_ms_per_token * NS_PER_MS) / Fraction(per_token)
        notes.append(
            f"profiling changed the speculative run from {spec_ms_per_token:.3f} to "
            f"{per_token / NS_PER_MS:.3f} ms a token ({1 / float(factor) - 1:+.1%})"
        )
    elif costs.plain_ns is not None:
        factor = Fraction(plain_ns) / Fraction(costs.plain_ns)
    else:
        raise UsageError("plain step", "is not known", "give both unprofiled figures")
    scaled = {
        name: round(getattr(costs, name) * factor)
        for name in ("draft_ns", "verify_ns", "replay_ns", "rest_ns")
    }
    idle = None if costs.idle_ns is None else round(costs.idle_ns * factor)
    return msgspec.structs.replace(
        costs, **scaled, wall_ns=sum(scaled.values()), idle_ns=idle, plain_ns=plain_ns,
        plain_how="unprofiled, given", notes=notes,
    )  # fmt: skip


# --- rounds under a lever ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """Number of rounds and replay passes a round, and where they come from."""

    name: str
    rounds: Fraction
    replay_ns: Fraction  # a round
    replay: str  # "held" at the measured cost a round, or "recomputed" from the histogram


class Model:
    """The run's exact per-round costs, and totals under other histograms and costs."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.draft = Fraction(costs.draft_ns, costs.rounds)
        self.verify = Fraction(costs.verify_ns, costs.rounds)
        self.replay = Fraction(costs.replay_ns, costs.rounds)
        self.base = normal(costs.histogram) if costs.histogram else None
        self.fill = Fraction(1)
        if self.base is not None:  # 1 when histogram and trace count the same rounds
            rule = mean_of(self.base, costs.semantics.tokens)
            self.fill = Fraction(costs.emitted, costs.rounds * costs.batch) / rule
        self.step = self._step_price()

    def _step_price(self) -> Fraction:
        """One replay pass, ns: the measured one, else what the engine's rule would run."""
        if self.base is not None and (steps := self.steps(self.base, self.costs.k)):
            return self.replay / steps
        if self.costs.semantics.replay == "checkpoint":
            return self.verify
        return Fraction(self.costs.plain_ns or 0)

    def steps(self, histogram: Histogram, k: int) -> Fraction:
        """Replay passes a round."""
        rule = REPLAY_STEPS[self.costs.semantics.replay]
        return sum((rule(n, k) * p for n, p in enumerate(histogram)), Fraction(0))

    def rounds(self, histogram: Histogram) -> Fraction:
        """Return the rounds that emit the run's tokens with this histogram."""
        per_pass = self.fill * self.costs.batch * mean_of(histogram, self.costs.semantics.tokens)
        return self.costs.emitted / per_pass

    def shape(self, name: str, histogram: Histogram, *, held: bool = False) -> Shape:
        """Return rounds and replay for a histogram."""
        steps = self.steps(histogram, len(histogram) - 1)
        replay = self.replay if held else steps * self.step
        return Shape(name, self.rounds(histogram), replay, "held" if held else "recomputed")

    def calibrated_shape(self, mean: Fraction) -> Shape:
        """Return rounds scaled by (A + 1) / (A' + 1): needs no histogram, so replay is held."""
        old = self.costs.mean_accepted
        if old is None:
            raise UsageError("acceptance", "of the measured run is not known", "give its n_ok")
        accepted = self.costs.accepted or 0
        before = Fraction(accepted, self.costs.rounds * self.costs.batch)
        rounds = self.costs.rounds * (before + 1) / (mean + 1)
        return Shape("A+1 calibrated", rounds, self.replay, "held")

    def parts_at(self, k: int, verify_slope_ms: float) -> tuple[Fraction, Fraction]:
        """Return draft (scaled with k) and verify (a slope a row) of a round of `k` drafts, ns."""
        if k == self.costs.k:
            return self.draft, self.verify
        rows = VERIFY_WIDTH[self.costs.semantics.verify_width](k) - self.costs.width
        verify = self.verify + rows * Fraction(verify_slope_ms * NS_PER_MS)
        return self.draft * k / self.costs.k, max(verify, Fraction(0))

    def total(self, rounds: Fraction, parts: Fraction, residual: str) -> Fraction:
        """Wall of `rounds` rounds of `parts` ns each under a treatment of the rest."""
        rest = Fraction(0)
        if residual == "fixed":
            rest = Fraction(self.costs.rest_ns)
        elif residual == "per round":
            rest = self.costs.rest_ns * rounds / self.costs.rounds
        return rounds * parts + rest
