"""A batch in one table: a row for each process and GPU of each trace, ranks put side by side."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from nsysacct.model import IN_ROUNDS, Account, ProcessAccount, Record

OUTLIER = 3.5
"""Modified z-score beyond which a row is an outlier (Iglewicz and Hoaglin)."""
_FEWEST = 5  # rows that make a median worth comparing with

RANK = re.compile(r"(?<![a-z])(?:rank|worker|device|dev|gpu)[-_.]?(\d+)", re.I)
"""What in a file name says which rank it is of; the rest is the job's name."""


class Row(Record, frozen=True, kw_only=True):
    """One process on one GPU of one trace. Times of whole phases in ns, means per round."""

    trace: str
    job: str
    pid: int | None
    gpu: int | None
    gpu_name: str | None
    engine: str
    rounds: int | None
    verdict: str
    k: int | None
    width: int | None
    layers: int | None
    wall_ns: int
    busy_ns: int
    residual_ns: int
    gpu_ns: int
    mem_ns: int
    draft_ns: int
    verify_ns: int
    replay_ns: int
    prefill_ns: int
    decode_ns: int
    plain_ns: int
    other_ns: int
    unattributed_ns: int
    draft_ns_per_round: float | None
    verify_ns_per_round: float | None
    replay_ns_per_round: float | None
    residual_ns_per_round: float | None
    fatal_blind_spots: int


@dataclass(frozen=True, slots=True)
class RankSkew:
    """Verify time a round over the ranks of one job.

    Attributes
    ----------
    job : str
    ranks : tuple of Row
        Fastest first.
    """

    job: str
    ranks: tuple[Row, ...]

    @property
    def labels(self) -> list[str]:
        """What tells the ranks apart: the number in the file's name, or process and GPU."""
        numbers = [RANK.search(row.trace) for row in self.ranks]
        if len({row.trace for row in self.ranks}) == len(self.ranks):
            return [
                f"rank {n[1]}" if n else row.trace
                for n, row in zip(numbers, self.ranks, strict=True)
            ]
        return [f"pid {row.pid} GPU {row.gpu}" for row in self.ranks]

    @property
    def ratio(self) -> float:
        """Slowest rank over fastest. Ranks that wait in collectives count as slow."""
        costs = [row.verify_ns_per_round or 0.0 for row in self.ranks]
        return costs[-1] / costs[0]


def rows_of(account: Account) -> list[Row]:
    """Rows of an account, in the order of its processes."""
    parts = account.processes or [account]
    return [_row(account, part) for part in parts]


def _row(account: Account, part: ProcessAccount) -> Row:
    rounds = part.rounds.value
    name = account.trace.name
    per_round = {b.bucket: b.ns_per_round for b in part.buckets if b.bucket in IN_ROUNDS}
    return Row(
        trace=name,
        job=RANK.sub("*", name),
        pid=part.pid,
        gpu=part.gpu,
        gpu_name=account.trace.gpu,
        engine=account.engine.name,
        rounds=rounds,
        verdict=part.rounds.verdict,
        k=part.rounds.k,
        width=part.rounds.width,
        layers=part.rounds.layers.get("all"),
        wall_ns=part.window.wall_ns,
        busy_ns=part.window.busy_ns,
        residual_ns=part.window.residual_ns,
        gpu_ns=part.total_gpu_ns,
        mem_ns=part.total_mem_ns,
        draft_ns_per_round=per_round.get("draft"),
        verify_ns_per_round=per_round.get("verify"),
        replay_ns_per_round=per_round.get("replay"),
        residual_ns_per_round=part.window.residual_ns / rounds if rounds else None,
        fatal_blind_spots=sum(s.severity == "fatal" for s in part.blind_spots),
        **{f"{b.bucket}_ns": b.gpu_ns for b in part.buckets},
    )


def rank_skews(rows: Iterable[Row]) -> list[RankSkew]:
    """Jobs with several ranks: processes of one trace, or traces whose names differ in the rank.

    Only where all have the same number of rounds and a verify time: others are no ranks of one job.
    """
    jobs: dict[str, list[Row]] = {}
    for row in rows:
        jobs.setdefault(row.job, []).append(row)
    found = []
    for job, ranks in jobs.items():
        rounds = {row.rounds for row in ranks}
        if len(ranks) < 2 or len(rounds) != 1 or not all(r.verify_ns_per_round for r in ranks):
            continue
        found.append(RankSkew(job, tuple(sorted(ranks, key=_verify))))
    return found


def outliers(rows: Sequence[Row]) -> list[tuple[Row, float]]:
    """Rows whose verify time a round stands out among rows alike, and the median of those, ns.

    Alike: the same engine, GPU, k, verify width and layers. Fewer than five are not judged.
    """
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if row.verify_ns_per_round:
            key = (row.engine, row.gpu_name, row.k, row.width, row.layers)
            groups.setdefault(key, []).append(row)
    found = []
    for group in groups.values():
        if len(group) < _FEWEST:
            continue
        middle = median(map(_verify, group))
        spread = median(abs(_verify(row) - middle) for row in group)
        # captures of one program differ by 1 % anyway; a spread of zero would blame all others
        scale = max(spread / 0.6745, 0.01 * middle / OUTLIER)
        found += [(row, middle) for row in group if abs(_verify(row) - middle) > OUTLIER * scale]
    return found


def _verify(row: Row) -> float:
    return row.verify_ns_per_round or 0.0
