"""``--help`` as a page of a manual: what it is for, examples, options by their use, exit codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

SHARED = "How a trace is split"
"""Title of the options that all commands on traces have."""

EXIT_CODES = "Exit codes: 0 done; 2 wrong usage; 3 no verdict, such as an unreadable input."
JUDGING = "Exit codes: 0 passed; 1 judged and failed; 2 wrong usage; 3 no verdict."

SPLITTING = frozenset(
    "engine layers k n_ok run_k run_n_ok plan closing step_ms wall_ms ignored ranges graph_roles "
    "log log_lines pid gpu labels registries".split()
)
"""Parameters of `_options.trace_options` and `_options.run_options`."""


class Page(click.Command):
    """A command whose help names its own options before those of splitting, and exit codes last."""

    exit_codes = EXIT_CODES

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the command, then those that say how a trace is split."""
        options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        names = {p.name for p in options}
        splitting = SPLITTING if "layers" in names else frozenset()
        if "run_k" in names:  # whatif: these two are levers there
            splitting -= {"k", "n_ok"}
        own = [p for p in options if p.name not in splitting]
        for title, chosen in (("Options", own), (SHARED, [p for p in options if p not in own])):
            records = [r for p in chosen if (r := p.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Say what the exit codes mean."""
        formatter.write_paragraph()
        formatter.write_text(self.exit_codes)


class JudgingPage(Page):
    """`Page` of a command that ends with 1 when it judged and failed."""

    exit_codes = JUDGING


class BatchPage(Page):
    """`Page` of a command that goes on after a failure."""

    exit_codes = "Exit codes: 0 all done; 2 wrong usage; 3 some failed, or no verdict."


class Pages(click.Group):
    """A group of commands with a `Page` each; the list of them is not cut short."""

    command_class = Page

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with the first sentence of its help, whole."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            assert command is not None
            rows.append((name, command.get_short_help_str(limit=200)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def page(name: str, kind: type[Page] = Page) -> Callable[[Callable[..., Any]], click.Command]:
    """`click.command` with the help of a manual."""
    return click.command(name, cls=kind)
