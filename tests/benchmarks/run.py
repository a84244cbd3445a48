"""Time ``nsysacct split`` on an export against other ways to read it, as ratios in one run.

    python tests/benchmarks/run.py big.sqlite --layers 64 [--repeat 3] [--pandas]

The unit is SQLite's own GROUP BY over the kernels of the same file, run right before each candidate
(warm page cache). Prints a Markdown table; nothing is asserted.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

GROUP_BY = (
    "SELECT demangledName, count(*), sum(end - start), min(start), max(end) "
    "FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY demangledName"
)
READ_SQL = """
import pandas, sqlite3, sys
pandas.read_sql(
    "SELECT start, end, deviceId, streamId, correlationId, globalPid, demangledName "
    "FROM CUPTI_ACTIVITY_KIND_KERNEL",
    sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True),
)
"""


def group_by(path: Path) -> float:
    """Seconds of the unit."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    begun = time.perf_counter()
    connection.execute(GROUP_BY).fetchall()
    connection.close()
    return time.perf_counter() - begun


def measure(command: list[str]) -> tuple[float, float]:
    """Wall seconds and peak resident MB of a process."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, usage = wait(process.pid)
    elapsed = time.perf_counter() - begun
    if status:
        raise SystemExit(f"{' '.join(command[:4])} ...: exit {status}")
    return elapsed, usage.ru_maxrss / 1000


def wait(pid: int) -> tuple[int, int, resource.struct_rusage]:
    """Wait for a process: (pid, exit status, its usage)."""
    return os.wait4(pid, 0)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("export", type=Path)
    parser.add_argument("--layers", default="64")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--pandas", action="store_true", help="time pandas.read_sql as well")
    options = parser.parse_args()
    path = str(options.export)
    candidates = {
        "nsysacct split": [
            sys.executable,
            "-m",
            "nsysacct",
            "split",
            path,
            "--layers",
            options.layers,
        ]
    }
    if options.pandas:
        candidates["pandas.read_sql, 7 columns"] = [sys.executable, "-c", READ_SQL, path]
    if nsys := shutil.which("nsys"):
        candidates["nsys stats"] = [nsys, "stats", "-r", "cuda_gpu_kern_sum", "-q", path]
    print("| what | seconds | x GROUP BY | peak MB |\n| --- | --: | --: | --: |")
    for name, command in candidates.items():
        runs = [(group_by(options.export), *measure(command)) for _ in range(options.repeat)]
        unit, seconds, memory = min(runs, key=lambda run: run[1] / run[0])
        print(f"| {name} | {seconds:.1f} | {seconds / unit:.1f} | {memory:.0f} |", flush=True)
    print(f"| GROUP BY over the kernels | {unit:.1f} | 1.0 | |")


if __name__ == "__main__":
    main()
