"""Run logs: what each engine prints about accepted drafts, read into one structure.

One small reader an engine: a module with ``FORMATS`` (names of what it reads) and ``read(log)``.
Readers give counters in order of preference; this module chooses among engines, compares the
formats with each other and reports what does not fit. Sources of the formats: each reader's module.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from nsysacct.errors import LogError, UsageError
from nsysacct.logs import aiperf, kestrel, llama_cpp, sglang, tensorrt_llm, vllm
from nsysacct.logs.reading import Counters, Found, LogReading
from nsysacct.logs.text import Log, load
from nsysacct.model import Finding

__all__ = ["READERS", "Counters", "LogReading", "read_log", "read_log_of"]

READERS: dict[str, ModuleType] = {
    "kestrel": kestrel,
    "llama_cpp": llama_cpp,
    "vllm": vllm,
    "sglang": sglang,
    "tensorrt_llm": tensorrt_llm,
    "aiperf": aiperf,
}
"""Engine -> its reader; also the order in which they are tried."""

_WORDS = re.compile(r"accept|draft|spec|n_ok|speculat|verify|rounds?\b", re.IGNORECASE)
_SHOWN = 100
_MOST_PARTS = 1000


def read_log(
    source: str | bytes | Path,
    engine: str | None = None,
    *,
    lines: tuple[int, int | None] | None = None,
) -> LogReading:
    """Read what a run's log says about acceptance.

    Parameters
    ----------
    source : path, bytes or str
        A file, or the text itself (a str of one line that names a file is a file).
    engine : str, optional
        A key of `READERS`; without it all are tried.
    lines : (first, last), optional
        Only these lines of the log, 1-based and inclusive.

    Raises
    ------
    UsageError
        An engine that no reader knows.
    LogError
        The file cannot be read, or nothing in it is known: names the formats tried and the line
        that comes closest.
    """
    if engine is not None and engine not in READERS:
        raise UsageError(
            "--engine", f"no log reader for {engine!r}", f"use one of {', '.join(READERS)}"
        )
    log = load(source, lines)
    tried = {name: r for name, r in READERS.items() if engine in (None, name)}
    found = {name: reader.read(log) for name, reader in tried.items()}
    speaking = [name for name, f in found.items() if f.counters]
    if speaking:
        return _reading(log, speaking, found)
    for name, result in found.items():
        if result.idle is not None:
            return _idle(log, name, result.idle)
    raise _unknown(log, tried)


def read_log_of(
    engine: str | None,
    source: str | bytes | Path,
    *,
    lines: tuple[int, int | None] | None = None,
) -> LogReading:
    """Read the log of a run of `engine`, by its registry's name; one without a reader is tried as any."""
    name = (engine or "").partition("/")[0]
    return read_log(source, name if name in READERS else None, lines=lines)


def _reading(log: Log, speaking: Sequence[str], found: dict[str, Found]) -> LogReading:
    name = max(speaking, key=lambda n: max(_weight(c) for c in found[n].counters))
    result = found[name]
    best = result.counters[0]
    findings = [*result.findings, *disagreements(result.counters), *_odd(best)]
    if len(speaking) > 1:
        others = ", ".join(n for n in speaking if n != name)
        findings.append(
            Finding(
                kind="several-engines",
                severity="warning",
                detail=f"the log also holds lines of {others}; those of {name} are used",
                remedy="choose with --engine",
            )
        )
    used = {number for c in result.counters for number in c.lines}
    return LogReading(
        engine=name,
        formats=[c.source for c in result.counters],
        lines_read=len(log.lines),
        lines_used=len(used),
        counters=best,
        sources=result.counters,
        parts=result.parts[:_MOST_PARTS],
        findings=findings,
    )


def _weight(counters: Counters) -> tuple[bool, int]:
    return counters.n_ok is not None, counters.accepted or len(counters.lines)


def _idle(log: Log, name: str, why: str) -> LogReading:
    return LogReading(
        engine=name,
        formats=[],
        lines_read=len(log.lines),
        lines_used=0,
        counters=Counters(source="", rounds=0, accepted=0, drafted=0),
        findings=[Finding(kind="no-speculation", severity="warning", detail=why)],
        speculation=False,
    )


def disagreements(sources: Sequence[Counters]) -> list[Finding]:
    """Totals of one run that two of its formats give differently: printed, never settled."""
    if not sources:
        return []
    first = sources[0]
    findings = []
    for other in sources[1:]:
        differing = [
            f"{name} {a} against {b}"
            for name in ("rounds", "accepted", "drafted")
            if (a := getattr(first, name)) is not None
            and (b := getattr(other, name)) is not None
            and a != b
        ]
        if differing:
            findings.append(
                Finding(
                    kind="counters-disagree",
                    severity="warning",
                    detail=f"{first.source} against {other.source}: {', '.join(differing)}"
                    + _gap(first, other),
                    remedy="they may cover different requests; engines that restore checkpoints "
                    "also count differently in different places",
                )
            )
    return findings


def _gap(first: Counters, other: Counters) -> str:
    if None in (first.accepted, other.accepted) or not (first.drafted and other.drafted):
        return ""
    assert first.accepted is not None and other.accepted is not None
    gap = other.accepted / other.drafted - first.accepted / first.drafted
    return f" ({100 * gap:+.1f} points of acceptance)"


def _odd(best: Counters) -> list[Finding]:
    """Figures of one source that cannot all be true."""
    findings = []
    if best.accepted is not None and best.drafted is not None and best.accepted > best.drafted:
        findings.append(f"{best.accepted} drafts accepted of {best.drafted}")
    if best.n_ok is not None and best.rounds is not None and sum(best.n_ok) != best.rounds:
        findings.append(f"the histogram holds {sum(best.n_ok)} rounds of {best.rounds}")
    if best.n_ok is not None and best.accepted is not None:
        weighted = sum(n * c for n, c in enumerate(best.n_ok))
        if weighted != best.accepted:
            findings.append(f"the histogram holds {weighted} accepted drafts of {best.accepted}")
    return [
        Finding(
            kind="counters-disagree",
            severity="warning",
            detail=f"{best.source}: {problem}",
            remedy="see whether the log holds one run only",
        )
        for problem in findings
    ]


def _unknown(log: Log, tried: dict[str, ModuleType]) -> LogError:
    formats = "; ".join(f for reader in tried.values() for f in reader.FORMATS)
    number, line = max(log.numbered(), key=lambda item: _closeness(item[1]), default=(0, ""))
    problem = "no known acceptance lines"
    if not _closeness(line)[0]:
        problem += " and no line that speaks of drafts"
    else:
        shown = " ".join(line.split())
        shown = shown[:_SHOWN] + ("..." if len(shown) > _SHOWN else "")
        problem += f"; closest is line {number}: {shown}"
    return LogError(log.name, problem, f"tried {formats}")


def _closeness(line: str) -> tuple[int, int]:
    """More of the words first, then the shorter line."""
    words = {w.lower() for w in _WORDS.findall(line[:2000])}
    return len(words), -min(len(line), 2000)
