"""Time and memory of ``nsysacct split`` beside other readers of the same export, as ratios.

    python tests/benchmarks/run.py big.sqlite --layers 64 --repeat 3 --pandas

Every reader runs in a process of its own, several times, taking turns; the best run counts. Seconds depend on the
machine and on what else it does, so the table gives ratios to SQLite's own GROUP BY, measured in the same run.
Readers that are not installed are left out and named.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GROUP_BY = """
import sqlite3, sys
connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
connection.execute('SELECT demangledName, count(*), sum("end" - start)'
                   ' FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY 1').fetchall()
"""
PANDAS = """
import sqlite3, sys, pandas
connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
pandas.read_sql('SELECT start, "end", deviceId, streamId, correlationId, demangledName, graphNodeId'
                ' FROM CUPTI_ACTIVITY_KIND_KERNEL', connection)
"""
BASELINE = "SQLite GROUP BY name"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one reader."""

    seconds: float
    cpu_seconds: float
    peak_mb: float  # 10^6 bytes


def measure(command: Sequence[str]) -> Run:
    """Run a command to its end.

    Raises
    ------
    subprocess.CalledProcessError
        It failed: a figure of a failure is none.
    """
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            log.seek(0)
            raise subprocess.CalledProcessError(process.returncode, command, stderr=log.read())
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6)


def readers(
    trace: str, layers: str | None, *, pandas: bool
) -> tuple[dict[str, list[str]], list[str]]:
    """Commands of the readers that are installed, and the names of those that are not."""
    python = sys.executable
    split = [python, "-m", "nsysacct", "split", trace]
    found = {
        BASELINE: [python, "-c", GROUP_BY, trace],
        "nsysacct split": split + (["--layers", layers] if layers else []),
    }
    if pandas:
        found["pandas.read_sql, 7 columns"] = [python, "-c", PANDAS, trace]
    missing = []
    nsys = os.environ.get("NSYSACCT_NSYS") or shutil.which("nsys")
    ai = shutil.which("nsys-ai")
    if nsys:
        found["nsys stats -r cuda_gpu_kern_sum"] = [
            nsys,
            "stats",
            "-r",
            "cuda_gpu_kern_sum",
            "-q",
            trace,
        ]
    else:
        missing.append("nsys stats")
    if ai:
        found["nsys-ai summary"] = [ai, "summary", trace]
    else:
        missing.append("nsys-ai")
    return found, missing


def forget(path: str) -> None:
    """Drop the pages of a file from the system's cache, so that the next run is a cold one."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # only clean pages can be dropped
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def in_turn(commands: Mapping[str, Sequence[str]], repeat: int) -> dict[str, Run]:
    """The quickest run of each reader; they take turns, so that a busy minute is busy for all."""
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(repeat):
        for name, command in commands.items():
            runs[name].append(measure(command))
    return {name: min(done, key=lambda r: r.seconds) for name, done in runs.items()}


def table(trace: str, layers: str | None, *, repeat: int, pandas: bool) -> str:
    """The Markdown table of one export."""
    commands, missing = readers(trace, layers, pandas=pandas)
    rows = [
        "| reader | warm, s | of GROUP BY | CPU s | of GROUP BY | cold, s | peak MB |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    measure(commands[BASELINE])  # fills the cache
    warm = in_turn(commands, repeat)
    cold = {}
    for name, command in commands.items():
        forget(trace)
        cold[name] = measure(command)
    base = warm[BASELINE]
    for name, run in warm.items():
        cells = (
            f"{run.seconds:.2f}",
            f"{run.seconds / base.seconds:.2f} x",
            f"{run.cpu_seconds:.2f}",
            f"{run.cpu_seconds / base.cpu_seconds:.2f} x",
            f"{cold[name].seconds:.2f}",
            f"{run.peak_mb:.0f}",
        )
        rows.append(f"| {name} | {' | '.join(cells)} |")
    if missing:
        rows.append(f"\nNot installed: {', '.join(missing)}.")
    return "\n".join(rows)


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(description="Time readers of an nsys export, as ratios.")
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--layers", help="passed on to nsysacct split")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--pandas", action="store_true", help="time pandas.read_sql as well")
    given = parser.parse_args()
    for trace in given.traces:
        megabytes = Path(trace).stat().st_size / 1e6
        print(f"## {Path(trace).name}: {megabytes:.0f} MB")
        print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start\n")
        print(table(trace, given.layers, repeat=given.repeat, pandas=given.pandas), flush=True)
        print()


if __name__ == "__main__":
    main()
