"""Check a folder of exports: ``python tests/public_exports.py FOLDER``.

Each file is read, its version named and every invariant of its account held, or it is refused with
the reason that is true of it. Where the folder has an INDEX.tsv (columns file, schema, nsys,
kernels, runtime: a row count, or ``absent`` where there is no such table), that is the truth;
otherwise the tables themselves are asked. Packed files (``.sqlite.xz``) are unpacked to a temporary
folder. Exit 1 when anything is off.
"""

from __future__ import annotations

import csv
import lzma
import shutil
import sqlite3
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from invariants import violations

from nsysacct.account import account
from nsysacct.errors import NoCudaTraceError, NsysacctError
from nsysacct.trace import read_trace

NO_CUDA = "no CUDA trace in this export"
NO_GPU = "the GPU side was not captured"
GPU_TABLES = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")


@dataclass(frozen=True)
class Truth:
    """What is known of a file from elsewhere. Counts are None where the table is absent."""

    schema: str | None
    nsys: str | None
    kernels: int | None
    calls: int | None
    gpu_rows: int


def main(folder: Path) -> int:
    """Print one line a file; give the number of files that are off."""
    index = _index(folder)
    bad = 0
    with tempfile.TemporaryDirectory() as scratch:
        for path in sorted([*folder.glob("*.sqlite"), *folder.glob("*.sqlite.xz")]):
            found, wrong = check(_unpacked(path, Path(scratch)), index)
            print(f"{path.name}: {found}" + "".join(f"\n    WRONG: {w}" for w in wrong))
            bad += bool(wrong)
    return bad


def check(path: Path, index: dict[str, dict[str, str]]) -> tuple[str, list[str]]:
    """What the file is, and what is wrong with the answer to it."""
    truth = _truth(path, index.get(path.name.removesuffix(".sqlite")))
    try:
        trace = read_trace(path)
        result = account(trace)
    except NoCudaTraceError as error:
        reason = NO_GPU if truth.calls else NO_CUDA
        wrong = [] if reason in str(error) and not truth.gpu_rows else [f"refused: {error}"]
        return f"refused: {reason}", wrong
    except NsysacctError as error:
        return "refused", [f"refused: {error}"]
    info = result.trace
    wrong = violations(result, trace, path)
    if (info.export_schema, info.nsys_version) != (truth.schema, truth.nsys):
        wrong.append(f"version {info.export_schema} of {info.nsys_version}, truly {truth}")
    if (info.kernels, info.api_calls) != (truth.kernels or 0, truth.calls or 0):
        wrong.append(f"{info.kernels} kernels, {info.api_calls} calls, truly {truth}")
    if not truth.gpu_rows and not any(s.severity == "fatal" for s in result.blind_spots):
        wrong.append("accounted, but there is no row of GPU work in it")
    pairs = ", ".join(f"pid {p.pid} on GPU {p.gpu}" for p in result.processes)
    return f"schema {info.export_schema} of nsys {info.nsys_version}: {pairs}", wrong


def _truth(path: Path, row: dict[str, str] | None) -> Truth:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    try:

        def count(name: str) -> int | None:
            try:
                return int(
                    connection.execute(
                        f"SELECT count(*) FROM CUPTI_ACTIVITY_KIND_{name}"
                    ).fetchone()[0]
                )
            except sqlite3.OperationalError:
                return None

        rows = sum(count(name) or 0 for name in GPU_TABLES)
        if row is None:
            return Truth(*_versions(connection), count("KERNEL"), count("RUNTIME"), rows)
    finally:
        connection.close()
    number = {k: None if row[k] == "absent" else int(row[k]) for k in ("kernels", "runtime")}
    schema = None if row["schema"] == "none" else row["schema"]
    return Truth(schema, row["nsys"] or None, number["kernels"], number["runtime"], rows)


def _versions(connection: sqlite3.Connection) -> tuple[str | None, str | None]:
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        try:
            facts = dict(connection.execute(f"SELECT name, value FROM {table}"))
        except sqlite3.OperationalError:
            continue
        return facts.get("EXPORT_SCHEMA_VERSION"), facts.get("EXPORT_PRODUCT_VERSION")
    return None, None


def _index(folder: Path) -> dict[str, dict[str, str]]:
    try:
        with (folder / "INDEX.tsv").open(encoding="utf-8", newline="") as file:
            return {row["file"]: row for row in csv.DictReader(file, delimiter="\t")}
    except FileNotFoundError:
        return {}


def _unpacked(path: Path, scratch: Path) -> Path:
    if path.suffix != ".xz":
        return path
    target = scratch / path.stem
    with lzma.open(path) as packed, target.open("wb") as file:
        shutil.copyfileobj(packed, file)
    return target


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("usage: python tests/public_exports.py FOLDER")
    sys.exit(min(main(Path(sys.argv[1])), 1))
