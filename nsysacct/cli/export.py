"""``nsysacct export``: an account for other tools."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsysacct.cli._base import (
    FILE,
    atomic_file,
    echo_text,
    force_option,
    refuse_existing,
    terminal_width,
)
from nsysacct.cli._help import page
from nsysacct.cli._inputs import account_of, is_account_json
from nsysacct.cli._numbers import rounds_span
from nsysacct.cli._options import trace_options
from nsysacct.errors import UsageError
from nsysacct.layout import fold

if TYPE_CHECKING:
    from nsysacct.account import Events, Options
    from nsysacct.model import Account


@page("export")
@click.argument("trace", type=FILE)
@trace_options
@click.option(
    "--perfetto", metavar="FILE", type=FILE, help="Trace for ui.perfetto.dev (.json or .json.gz)."
)
@click.option(
    "--rounds", "chosen", metavar="A-B", help="Of Perfetto: GPU work of these rounds alone, from 0."
)
@click.option(
    "--parquet", metavar="FOLDER", type=FILE, help="Folder for Parquet tables, made if missing."
)
@force_option
def command(
    trace: str,
    options: Options,
    perfetto: str | None,
    chosen: str | None,
    parquet: str | None,
    force: bool,
) -> None:
    """Write the account of TRACE as a Perfetto trace or as Parquet tables.

    In Perfetto, buckets are tracks, rounds are slices with n_ok and costs, and blind spots are
    instants. Parquet tables hold buckets, rounds, kernels, graphs, signatures, blind spots, and
    every single event. Of an account JSON, which has no single events, the rest is written.

    \b
    Examples:
      nsysacct export trace.sqlite --layers 64 --perfetto run.json.gz
      nsysacct export trace.sqlite --layers 64 --perfetto p.json.gz --rounds 3-9
      nsysacct export trace.sqlite --layers 64 --parquet run/
    """
    if perfetto is None and parquet is None:
        raise UsageError("export", "nothing to write", "give --perfetto FILE or --parquet FOLDER")
    if perfetto is not None:
        refuse_existing(Path(perfetto), force)
    elif chosen is not None:
        raise UsageError("--rounds", "is of --perfetto", "give --perfetto FILE as well")
    rounds = None if chosen is None else rounds_span(chosen)
    account, events, names = _read(trace, options)
    if perfetto is not None:
        from nsysacct.perfetto import write_perfetto

        with atomic_file(perfetto, force=force) as temporary:
            count = write_perfetto(temporary, account, events, names, rounds=rounds)
        echo_text(f"{perfetto}: {count} trace events; open it in ui.perfetto.dev")
    if parquet is not None:
        _parquet(Path(parquet), account, events, names, force)


def _read(path: str, options: Options) -> tuple[Account, list[Events], list[str]]:
    """Account, single events and kernel names; the latter two are empty for account JSON."""
    if is_account_json(Path(path)):
        return account_of(path), [], []
    from nsysacct.account import account_and_events
    from nsysacct.nsysrep import resolve
    from nsysacct.trace import read_trace

    trace = read_trace(resolve(path))
    return *account_and_events(trace, options), list(trace.kernel_names)


def _parquet(
    folder: Path, account: Account, events: list[Events], names: list[str], force: bool
) -> None:
    from nsysacct.export import events_table, tables_of, write_parquet

    tables = tables_of(account)
    if events:
        tables["events"] = events_table(events, names)
    if folder.exists() and not folder.is_dir():
        raise UsageError(str(folder), "is a file", "name a folder")
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    targets = {name: folder / f"{name}.parquet" for name in tables}
    for target in targets.values():
        refuse_existing(target, force)
    try:
        with contextlib.ExitStack() as whole:  # all tables take their places, or none does
            for name, table in tables.items():
                temporary = whole.enter_context(atomic_file(targets[name], force=force))
                write_parquet(table, str(temporary), account)
    except BaseException:
        if new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
    rows = ", ".join(f"{name} {table.num_rows}" for name, table in tables.items())
    echo_text(fold(f"{folder}: rows of {rows}", terminal_width(), hang=4))
