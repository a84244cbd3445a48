"""Tables of docs/method.md: measured truth against the figures of ``nsysacct split``.

The truth (``fixtures/truth.json``) is what the recorded programs logged about themselves, and the GPU
time of each phase worked out from their launch order or NVTX ranges, never from kernel names.

::

    python docs/accuracy.py                    # print the rows of the shipped traces
    python docs/accuracy.py --traces FOLDER    # and of the traces NAME.sqlite in FOLDER
    python docs/accuracy.py --traces FOLDER --write  # put the tables into docs/method.md

Where a trace is not at hand, ``--write`` keeps the row that the page has.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT / "fixtures" / "traces"
TRUTH = ROOT / "fixtures" / "truth.json"
PAGE = ROOT / "docs" / "method.md"
NS_PER_MS = 1_000_000

Document = dict[str, Any]
"""The JSON of an account."""

SPLIT, PASSES = "split", "passes"
HEADS = {
    SPLIT: "| trace | rounds | draft | verify | replay | outside | off by |\n"
    "| --- | --- | --- | --- | --- | --- | --- |",
    PASSES: "| trace | rows | rounds | target pass, us | difference |\n"
    "| --- | --- | --- | --- | --- |",
}


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One trace, how it is read, and what is true of it.

    ``gpu_ms`` maps buckets (joined by ``+`` where only their sum is known) to [least, most]: the
    two differ where a marked run leaves a few small kernels open. ``rounds`` lists the numbers that
    are right (an asynchronous engine launches one verify pass more than it uses); null: the tool
    must not name any, for the reason ``declines``.
    """

    file: str
    program: str
    options: str
    rounds: list[int] | None
    gpu_ms: dict[str, tuple[float, float]]
    tolerance: float
    declines: str = ""
    target_pass_us: float | None = None
    width: int | None = None


@dataclass(frozen=True)
class Row:
    """A line of one of the tables, and whether the figures agree with the truth."""

    table: str
    text: str
    agrees: bool


def cases() -> dict[str, Case]:
    """All traces whose truth is known, by name."""
    return msgspec.json.decode(TRUTH.read_bytes(), type=dict[str, Case])


def find(case: Case, traces: Path | None, unpacked: Path) -> Path | None:
    """The export of a case: from `traces`, else unpacked from those shipped; None: not at hand."""
    if traces is not None and (traces / f"{case.file}.sqlite").exists():
        return traces / f"{case.file}.sqlite"
    packed = SHIPPED / f"{case.file}.sqlite.xz"
    target = unpacked / f"{case.file}.sqlite"
    if packed.exists() and not target.exists():
        target.write_bytes(lzma.decompress(packed.read_bytes()))
    return target if target.exists() else None


def account_of(case: Case, trace: Path) -> Document:
    """The JSON of ``nsysacct split`` on `trace`."""
    command = [sys.executable, "-m", "nsysacct", "split", str(trace), "--format", "json"]
    done = subprocess.run(
        [*command, *shlex.split(case.options)], capture_output=True, encoding="utf-8", cwd=ROOT
    )
    if done.returncode:
        raise SystemExit(f"{case.file}: {done.stderr.strip()}")
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def row(name: str, case: Case, document: Document) -> Row:
    """The line of one trace: truth / figure."""
    rounds = document["rounds"]["value"]
    right = rounds in case.rounds if case.rounds is not None else rounds is None
    wanted = "none" if case.rounds is None else " or ".join(map(str, case.rounds))
    told = f"{wanted} / {'none' if rounds is None else rounds}"
    if case.target_pass_us is not None:
        return _pass_row(name, case, document, told, right)
    gpu_ms = {b["bucket"]: b["gpu_ns"] / NS_PER_MS for b in document["buckets"]}
    cells, worst, agrees = {}, 0.0, right
    for buckets, (low, high) in case.gpu_ms.items():
        got = sum(gpu_ms[b] for b in buckets.split("+"))
        off = max(low - got, got - high, 0.0)
        agrees &= off <= max(case.tolerance * (low if got < low else high), 0.005)
        worst = max(worst, off / high if high else 0.0)
        truth = _ms(low) if low == high else f"{_ms(low)} to {_ms(high)}"
        cells["outside" if "plain" in buckets else buckets] = f"{truth} / {_ms(got)}"
    shown = [cells.get(c, "") for c in ("draft", "verify", "replay", "outside")]
    last = case.declines or (f"{100 * worst:.2f} %" if cells else "rounds only")
    text = " | ".join([f"`{name}`", told, *shown, last])
    return Row(SPLIT, f"| {text} |", agrees)


def _ms(value: float) -> str:
    """Four digits, three decimals at most."""
    if not value:
        return "0"
    return f"{value:.{3 if value < 10 else 2 if value < 100 else 1}f}"


def _pass_row(name: str, case: Case, document: Document, told: str, right: bool) -> Row:
    """The line of a trace of which the mean time of one target pass is known."""
    assert case.target_pass_us is not None
    got = _graph_pass_us(document, "verify" if document["rounds"]["value"] else "plain")
    off = got / case.target_pass_us - 1
    text = " | ".join(
        [
            f"`{name}`",
            str(case.width),
            told,
            f"{case.target_pass_us:.1f} / {got:.1f}",
            "0.0 %" if abs(off) < 0.0005 else f"{100 * off:+.1f} %",
        ]
    )
    return Row(PASSES, f"| {text} |", right and abs(off) <= case.tolerance)


def _graph_pass_us(document: Document, bucket: str) -> float:
    """Mean GPU time of a launch of the graph that has most launches in `bucket`, us.

    The truth is of the graph alone: the LM head and the sampler, which the engine runs after it,
    belong to the verify pass and are left aside here.
    """
    one = max(document["graphs"], key=lambda g: g["buckets"].get(bucket, 0))
    return float(one["gpu_ns"] / one["launches"] / 1000)


def marks(table: str) -> tuple[str, str]:
    """Comments between which the page holds a table."""
    return f"<!-- accuracy {table} -->", f"<!-- accuracy {table} ends -->"


def rows_of(page: str, table: str) -> dict[str, str]:
    """Lines that the page has, by trace."""
    begin, end = marks(table)
    body = page.partition(begin)[2].partition(end)[0]
    return {m[1]: m[0] for m in re.finditer(r"^\| `([^`]+)` .*$", body, re.M)}


def with_tables(page: str, found: dict[str, Row]) -> str:
    """`page` with the lines in `found` in place of its own."""
    for table, head in HEADS.items():
        begin, end = marks(table)
        old = rows_of(page, table)
        lines = [
            found[name].text if name in found else old[name]
            for name, case in cases().items()
            if (case.target_pass_us is not None) == (table == PASSES)
            and (name in found or name in old)
        ]
        before, _, rest = page.partition(begin)
        body = "\n".join([begin, "", head, *lines, "", end])
        page = before + body + rest.partition(end)[2]
    return page


def main() -> int:
    """Print or write the tables; 1 when a figure is off."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--traces", type=Path, help="folder with further traces, NAME.sqlite")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    args = parser.parse_args()
    found: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, case in cases().items():
            trace = find(case, args.traces, Path(folder))
            if trace is not None:
                found[name] = row(name, case, account_of(case, trace))
                print(found[name].text + ("" if found[name].agrees else "  <-- off"))
    if args.write:
        PAGE.write_text(with_tables(PAGE.read_text("utf-8"), found), "utf-8")
    agree = sum(r.agrees for r in found.values())
    print(f"{agree} of {len(found)} traces agree with the truth")
    return int(agree < len(found))


if __name__ == "__main__":
    sys.exit(main())
