"""Runs fuzz cases in a process that may die: ``python -m fuzz.worker FOLDER FIRST LAST``.

FOLDER holds good exports. One JSON line before each case and one after it, so that the parent knows
which case killed or hung this process. At most MEMORY_BYTES of address space.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import time
import traceback
from pathlib import Path

from invariants import violations

from fuzz.mutations import mutate
from nsysacct import render
from nsysacct.account import account
from nsysacct.cli._text import printable
from nsysacct.errors import NsysacctError
from nsysacct.trace import read_trace

MEMORY_BYTES = 4 << 30


def run_case(sources: list[Path], folder: Path, seed: int) -> dict[str, object]:
    """Mutate, account, check; ``wrong`` says what should not have happened."""
    source = sources[seed % len(sources)]
    target = folder / "case.sqlite"
    how = f"{source.stem}: {mutate(source, target, seed)}"
    began = time.monotonic()
    wrong: list[str] = []
    outcome = "account"
    try:
        trace = read_trace(target)
        result = account(trace)
        text = render.text(result, width=80, detail=True)
        if not text.strip():
            wrong.append("no text")
        wrong += violations(result, trace, target)
    except NsysacctError as error:
        outcome = printable(str(error), one_line=True)
        if error.exit_code != 3 or not outcome or len(outcome) > 1_000:
            wrong.append(f"exit code {error.exit_code}: {outcome[:300]}")
    except Exception:
        wrong.append(traceback.format_exc())
    return {
        "seed": seed,
        "how": how,
        "outcome": outcome,
        "wrong": wrong,
        "seconds": round(time.monotonic() - began, 3),
    }


def main(folder: str, first: int, last: int) -> None:
    """Run the cases `first` .. `last` - 1."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sources = sorted(Path(folder).glob("*.sqlite"))
    own = Path(folder) / f"cases-{first}"
    own.mkdir()
    for seed in range(first, last):
        print(json.dumps({"seed": seed}), flush=True)
        print(json.dumps(run_case(sources, own, seed)), flush=True)
        with contextlib.suppress(FileNotFoundError):
            (own / "case.sqlite").unlink()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
