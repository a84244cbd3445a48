"""llama.cpp (and ik_llama.cpp): server and example logs, server JSON, Prometheus counters.

Sources, builds of Feb 2025 to late 2026: ``tools/server/server-context.cpp`` (draft acceptance a
request; accepted a/b a round; restore checkpoint), ``common/speculative.cpp`` (statistics of each
drafter, running totals), ``examples/speculative*`` (n_drafted, n_accept), ``server-common.cpp``
(timings.draft_n, draft_n_accepted), ``server-task.cpp`` (Prometheus).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from nsysacct.logs.completion import completed, completed_by_request
from nsysacct.logs.printed import counted
from nsysacct.logs.prometheus import prometheus
from nsysacct.logs.reading import Counters, Found, from_histogram, histogram_of, total
from nsysacct.logs.text import Log, whole
from nsysacct.model import Finding

FORMATS = (
    "llama.cpp accepted a/b lines",
    "llama.cpp statistics lines",
    "llama.cpp draft acceptance lines",
    "llama.cpp server JSON timings",
    "llama.cpp example counters",
    "llama.cpp Prometheus counters",
)
_TASK = re.compile(r"id\s+(\d+)\s*\|\s*task\s+(-?\d+)")
_ACCEPTED = re.compile(r"accepted\s+(\d+)\s*/\s*(\d+) draft tokens(.*)")
_SUMMARY = re.compile(
    r"draft acceptance(?: rate)?\s*=\s*\S+\s*\(\s*(\d+) accepted\s*/\s*(\d+) generated\)"
    r"(?:,\s*mean len\s*=\s*([\d.]+))?"
)
_PER_POS = re.compile(r"acc per pos\s*=\s*\(([\d., ]*)\)")
_STATISTICS = re.compile(r"statistics\s+(\S+):\s*(#.*)")
_STAT_FIELD = re.compile(r"#(gen drafts|gen tokens|acc tokens)\s*=\s*(\d+)")
_STAT_CALLS = re.compile(r"#calls\(b,g,a\)\s*=\s*\d+\s+\d+\s+(\d+)")
_STAT_RATES = re.compile(r"#acc rate/pos\s*=\s*\(([\d., ]*)\)")
_EXAMPLE = re.compile(r"^(?:[\d.]+ [A-Z] )?\s*n_(draft|drafted|accept|predict)\s+=\s+(\d+)\s*$")
_LIMIT = re.compile(r'(?:\bn_max=|"speculative\.n_max":\s*)(\d+)')
_OFF = re.compile(r'launching slot : \{.*"speculative":\s*false')
_FINISHED = re.compile(r"\beval time =\s*[\d.]+ ms /\s*\d+ (?:tokens|runs)")
_SPECULATES = re.compile(r"speculative decoding context|draft model|speculative implementation")
_PROMETHEUS = "llamacpp:spec_decode_"
Task = tuple[int, int] | None


def read(log: Log) -> Found:
    """Read all formats; the lines of single rounds are the most exact, where they are complete."""
    limit = _limit(log)
    by_task, hidden = _rounds(log)
    requests = list(by_task.values())
    statistics = _statistics(log)
    summaries_by_task, unclear = _summaries(log, limit)
    summaries = [summary for _, summary in summaries_by_task]
    timings = _timings(log)
    examples = _examples(log)
    scraped, findings = prometheus(
        log, FORMATS[5], _PROMETHEUS, rounds="num_drafts", drafted="num_draft_tokens",
        accepted="num_accepted_tokens", positions="num_accepted_tokens_per_pos",
    )  # fmt: skip
    others = [*statistics, *_totals(summaries, timings), *examples]
    if requests:
        requests, more = completed_by_request(by_task, summaries_by_task)
        lines = total(FORMATS[0], requests)
        best, still = completed(lines, others, max(len(summaries), len(timings), len(requests)))
        sources = [best, *others] if best is not None else [*others, lines]
        findings += [*hidden, *more, *still]
    else:
        sources = others
        findings += [] if statistics else unclear
    parts = next((p for p in (requests, summaries, timings) if len(p) > 1), [])
    return Found(
        counters=sources + scraped,
        parts=parts,
        findings=findings,
        idle=None if sources or scraped else _idle(log),
    )


def _totals(summaries: list[Counters], timings: list[Counters]) -> list[Counters]:
    found = [(FORMATS[2], summaries), (FORMATS[3], timings)]
    return [total(name, parts) for name, parts in found if parts]


def _task(line: str) -> Task:
    match = _TASK.search(line)
    return (int(match[1]), int(match[2])) if match else None


def _limit(log: Log) -> int | None:
    """Most drafts of a round as configured: only without several drafters of other limits."""
    found = {int(m[1]) for _, line in log.numbered("n_max") for m in _LIMIT.finditer(line)}
    return found.pop() if len(found) == 1 else None


@dataclass(slots=True)
class _Rounds:
    """Rounds of one request from its lines, with replays kept apart."""

    accepted: list[int]
    drafted: list[int]
    lines: list[int]
    replays: int = 0
    _restored: int | None = None

    def add(self, number: int, accepted: int, drafted: int, restore: bool) -> None:
        # after a restore the accepted drafts and the target's token are verified once more; that
        # pass has a line of its own and is no round
        replay = self._restored is not None and drafted == self._restored + 1
        self._restored = accepted if restore else None
        if restore:
            self.replays += 1
        self.lines.append(number)
        if not replay and drafted:
            self.accepted.append(accepted)
            self.drafted.append(drafted)


def _rounds(log: Log) -> tuple[dict[Task, Counters], list[Finding]]:
    """Rounds of each request, and whether replays hide among them."""
    found = []
    for number, line in log.numbered("draft tokens"):
        match = _ACCEPTED.search(line)
        if match is not None and int(match[1]) <= int(match[2]):
            found.append((number, _task(line), int(match[1]), int(match[2]), match[3]))
    # a build at debug level prints a round twice: with and without ", new n_tokens = .."
    bare = [f for f in found if not f[4].lstrip().startswith(",")]
    tasks: dict[Task, _Rounds] = {}
    for number, task, accepted, drafted, rest in bare or found:
        rounds = tasks.setdefault(task, _Rounds([], [], []))
        rounds.add(number, accepted, drafted, "restore checkpoint" in rest)
    by_task = {task: _counted_rounds(r) for task, r in tasks.items() if r.drafted}
    restores = sum(1 for _ in log.numbered("restoring speculative checkpoint"))
    if bare or not restores or not by_task:
        return by_task, []
    detail = (
        f"{restores} checkpoints were restored: the second pass of each such round is printed "
        "like a round, and its first one is not"
    )
    remedy = "run the server with LLAMA_TRACE=1, which prints both"
    return by_task, [
        Finding(kind="replays-hidden", severity="warning", detail=detail, remedy=remedy)
    ]


def _counted_rounds(rounds: _Rounds) -> Counters:
    n_ok = [0] * (max(rounds.drafted) + 1)
    for accepted in rounds.accepted:
        n_ok[accepted] += 1
    return from_histogram(
        FORMATS[0], n_ok, lines=rounds.lines, drafted=sum(rounds.drafted), requests=1,
        replays=rounds.replays,
    )  # fmt: skip


def _statistics(log: Log) -> list[Counters]:
    """Totals of each drafter: its last line, and those before its counters started anew."""
    runs: dict[str, list[Counters]] = {}
    for number, line in log.numbered("statistics"):
        match = _STATISTICS.search(line)
        fields = dict(_STAT_FIELD.findall(match[2])) if match else {}
        if match is None or len(fields) < 3:
            continue
        calls, rates = _STAT_CALLS.search(match[2]), _STAT_RATES.search(match[2])
        drafts = int(calls[1]) if calls else int(fields["gen drafts"])
        part = _statistic(
            number, drafts, int(fields["acc tokens"]), int(fields["gen tokens"]),
            _floats(rates[1]) if rates else None,
        )  # fmt: skip
        lines = runs.setdefault(match[1], [])
        if lines and (lines[-1].rounds or 0) <= drafts:
            lines[-1] = part
        else:
            lines.append(part)
    parts = [p for lines in runs.values() for p in lines if p.rounds]
    return [total(FORMATS[1], parts)] if parts else []


def _statistic(
    number: int, rounds: int, accepted: int, drafted: int, rates: list[float] | None
) -> Counters:
    positions = n_ok = None
    if rates and rounds:
        positions = [round(rate * rounds) for rate in rates]
        # below 1000 rounds 3 decimals tell every count apart
        if sum(positions) == accepted and rounds < 1000:
            n_ok = histogram_of(rounds, positions)
    return Counters(
        source=FORMATS[1], lines=[number], rounds=rounds, accepted=accepted, drafted=drafted,
        k=len(rates) if rates else None, rates=rates, positions=positions if n_ok else None,
        n_ok=n_ok, n_ok_basis="derived" if n_ok else None,
    )  # fmt: skip


def _floats(text: str) -> list[float]:
    return [float(w) for w in text.replace(",", " ").split()]


def _summaries(log: Log, limit: int | None) -> tuple[list[tuple[Task, Counters]], list[Finding]]:
    """One summary a request; its rates a position follow on a line of their own."""
    open_lines: dict[Task, int] = {}
    rates: dict[int, list[float]] = {}
    matches: list[tuple[int, Task, re.Match[str]]] = []
    for number, line in log.numbered("draft acceptance", "acc per pos"):
        task = _task(line)
        if match := _SUMMARY.search(line):
            matches.append((number, task, match))
            open_lines[task] = number
        elif (match := _PER_POS.search(line)) and task in open_lines:
            rates[open_lines.pop(task)] = _floats(match[1])
    parts: list[tuple[Task, Counters]] = []
    findings: list[Finding] = []
    for number, task, match in matches:
        drafted, per_pos = int(match[2]), rates.get(number)
        if not drafted:
            continue
        part, more = counted(
            FORMATS[2], number, int(match[1]), drafted, float(match[3]) if match[3] else None,
            per_pos, len(per_pos) if per_pos else limit,
        )  # fmt: skip
        parts.append((task, part))
        findings += more
    return parts, findings


def _timings(log: Log) -> list[Counters]:
    """Take the final timings of each request; a response logged and printed counts once."""
    seen: set[str] = set()
    parts = []
    for number, document, parent in log.objects:
        drafted, accepted = whole(document, "draft_n"), whole(document, "draft_n_accepted")
        if not drafted or accepted is None or _is_partial(parent):
            continue
        if "predicted_ms" in document:
            key = repr(sorted(document.items()))
            if key in seen:
                continue
            seen.add(key)
        parts.append(
            Counters(
                source=FORMATS[3],
                lines=[number],
                accepted=accepted,
                drafted=drafted,
                tokens=whole(document, "predicted_n"),
                requests=1,
            )
        )
    return parts


def _is_partial(parent: dict[str, object]) -> bool:
    """Whether `parent` is a chunk of a streamed response, whose timings are running totals."""
    choices = parent.get("choices")
    unfinished = isinstance(choices, list) and any(
        isinstance(c, dict) and "delta" in c and c.get("finish_reason") is None for c in choices
    )
    return parent.get("stop") is False or unfinished


def _examples(log: Log) -> list[Counters]:
    """Totals that llama-speculative and llama-speculative-simple print at their end."""
    runs: list[dict[str, int]] = []
    lines: list[list[int]] = []
    for number, line in log.numbered("n_draft", "n_accept", "n_predict"):
        match = _EXAMPLE.match(line)
        if match is None:
            continue
        if not runs or match[1] in runs[-1]:
            runs.append({})
            lines.append([])
        runs[-1][match[1]] = int(match[2])
        lines[-1].append(number)
    parts = [
        Counters(
            source=FORMATS[4],
            lines=numbers,
            k=run.get("draft"),
            accepted=run["accept"],
            drafted=run["drafted"],
            tokens=run.get("predict"),
            requests=1,
        )
        for run, numbers in zip(runs, lines, strict=True)
        if run.get("drafted") and "accept" in run
    ]
    return [total(FORMATS[4], parts)] if parts else []


def _idle(log: Log) -> str | None:
    """Why no speculation ran: a slot says so, or requests finished and nothing speaks of drafts."""
    if any(_OFF.search(line) for _, line in log.numbered("launching slot")):
        return 'the server launched its slots with "speculative": false'
    if _any(log, _SPECULATES, ("speculative", "draft")):
        return None
    if _any(log, _FINISHED, ("eval time",)):
        return "requests were finished and no line speaks of drafts"
    return None


def _any(log: Log, pattern: re.Pattern[str], needles: Iterable[str]) -> bool:
    return any(pattern.search(line) for _, line in log.numbered(*needles))
