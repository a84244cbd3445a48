"""``nsysacct cache``: what was exported from reports."""

from __future__ import annotations

import click

from nsysacct.cli._base import echo_text
from nsysacct.cli._help import Pages


@click.group("cache", cls=Pages)
def command() -> None:
    """List or clear what was exported from .nsys-rep files.

    A report given in place of an export is exported once, into a cache folder of the user's, and
    never beside the report. NSYSACCT_CACHE names another folder, NSYSACCT_NSYS another nsys.

    \b
    Examples:
      nsysacct cache list
      nsysacct cache clear
    """


@command.command("path")
def path() -> None:
    """Print the cache folder."""
    from nsysacct.nsysrep import cache_folder

    echo_text(str(cache_folder()))


@command.command("list")
def list_() -> None:
    """List the exports: size, whether the report is unchanged, and the report."""
    from nsysacct.nsysrep import cached_exports

    exports = cached_exports()
    if not exports:
        echo_text("no exports in the cache")
        return
    for export in exports:
        state = "unchanged" if export.fresh else "outdated"
        echo_text(f"{export.size_bytes / 1e6:10.1f} MB  {state:9}  {export.report}")


@command.command("clear")
def clear() -> None:
    """Remove all exports."""
    from nsysacct.nsysrep import clear_cache

    count, size_bytes = clear_cache()
    exports = "1 export" if count == 1 else f"{count} exports"
    echo_text(f"removed {exports}, {size_bytes / 1e6:.1f} MB")
