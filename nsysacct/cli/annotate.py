"""``nsysacct annotate``: a copy of an export with the account in tables beside its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsysacct.cli._base import FILE, atomic_file, echo_text, force_option, refuse_existing
from nsysacct.cli._help import page
from nsysacct.cli._inputs import is_account_json
from nsysacct.cli._options import trace_options
from nsysacct.errors import UsageError

if TYPE_CHECKING:
    from nsysacct.account import Options


@page("annotate")
@click.argument("trace", type=FILE)
@trace_options
@click.option(
    "-o", "--output", metavar="FILE", type=FILE, required=True, help="Copy to write (.sqlite)."
)
@force_option
def command(trace: str, options: Options, output: str, force: bool) -> None:
    """Copy the export TRACE and add bucket, basis and round of every event in NSYSACCT_* tables.

    NSYSACCT_EVENTS names each event by table and rowid; the view NSYSACCT_KERNELS has it joined to
    the kernel rows. TRACE itself is only read.

    \b
    Examples:
      nsysacct annotate trace.sqlite --layers 64 -o a.sqlite
      sqlite3 a.sqlite "select bucket, count(*) from NSYSACCT_KERNELS group by 1"
    """
    from nsysacct.annotate import annotate
    from nsysacct.nsysrep import resolve

    refuse_existing(Path(output), force)
    if is_account_json(Path(trace)):
        raise UsageError(trace, "is an account, not an export", "give the export itself")
    source = Path(resolve(trace))
    if Path(output).exists() and Path(output).samefile(source):
        raise UsageError(output, "is the export itself", "name another file")
    with atomic_file(output, force=force) as temporary:
        _, count = annotate(source, temporary, options)
    echo_text(f"{output}: {count} events in NSYSACCT_EVENTS")
