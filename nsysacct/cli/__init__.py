"""The command line: parse, call one function of the library, print, exit.

Commands are listed in a static table and imported only when they run, so that ``--help`` and
``--version`` load neither numpy nor pyarrow nor pandas. Each module ``nsysacct.cli.NAME`` has an
object ``command``.
"""

from __future__ import annotations

import difflib
import glob
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from nsysacct import __version__
from nsysacct.cli._exits import run_guarded

SECTIONS: dict[str, dict[str, str]] = {
    "The account": {
        "split": "Say where each round's time went, and how that is known.",
        "check": "Judge whether a capture can carry a split.",
        "rounds": "List the rounds, one line each.",
        "acceptance": "Read the acceptance of drafts from a run log or a trace.",
        "explain": "Tell the account in half a page of words.",
        "registry": "List, check, explain and suggest kernel signatures.",
    },
    "What it means": {
        "whatif": "Ask what other acceptance or costs would make of a run.",
        "model": "Print what theory promises, before any capture.",
        "bottleneck": "Say what a plain step is limited by.",
        "curve": "Print verify cost against width over several captures.",
        "compare": "Compare two engines on one prompt.",
    },
    "Many captures": {
        "gate": "Fail a build when a change made rounds slower.",
        "diff": "Show what changed between two sets of captures.",
        "history": "Keep accounts over time and show the trend.",
        "batch": "Account for many traces, in parallel.",
    },
    "Seeing it": {
        "plot": "Draw a figure of an account.",
        "report": "Write one self-contained HTML page.",
        "export": "Write an account as a Perfetto trace or as Parquet.",
        "annotate": "Copy an export with bucket, basis and round beside each event.",
    },
    "The tool": {
        "demo": "Run the main job on a real trace that is shipped.",
        "cache": "List or clear what was exported from .nsys-rep files.",
        "completion": "Print the completion script of a shell.",
    },
}
"""Section -> command -> one line of help; a command is offered when its module exists."""

TOPICS = {name: text for section in SECTIONS.values() for name, text in section.items()}
"""Command -> one line of help."""

EPILOG = """\b
Examples:
  nsysacct split run.sqlite --layers 64
  nsysacct check run.sqlite
  nsysacct split run.sqlite --format json > run.json
  nsysacct whatif run.json --no-replay

\b
Environment:
  NSYSACCT_REGISTRY  further registry files or folders, separated like PATH
  NSYSACCT_CACHE     folder for exports of .nsys-rep files
  NSYSACCT_NSYS      the nsys to export them with
  NO_COLOR           when set, no colours
  COLUMNS            width of text, 40 to 120; the terminal's if not set

\b
Files:
  nsysacct.toml      defaults of a project, in its folder or one above
                     ([tool.nsysacct] of pyproject.toml does as well)

\b
Exit codes: 0 done or passed; 1 judged and failed (gate, check, registry
check); 2 wrong usage; 3 no verdict (unreadable input, interrupt, error)."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they run, with the exit codes of the design."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands whose module exists, in the order of the table."""
        return [name for name in TOPICS if _exists(name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of `cmd_name` and take its ``command``."""
        if cmd_name not in TOPICS or not _exists(cmd_name):
            return None
        command = importlib.import_module(f"{__name__}.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a name that is nearly one is told which."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as failure:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
            if not near:
                raise
            said = f"{failure.message.rstrip('.')} (did you mean {near[0]!r}?)"
            raise click.UsageError(said, ctx) from failure

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table by section, without importing any command."""
        width = max(map(len, TOPICS))
        for title, topics in SECTIONS.items():
            rows = [(name.ljust(width), text) for name, text in topics.items() if _exists(name)]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names from the table, without importing any command."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=TOPICS[name]) for name in names), *options]

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run and exit. Click alone would exit 1 for crashes, interrupts and lost pipes."""
        completing = (complete_var or "_NSYSACCT_COMPLETE") in os.environ
        if not standalone_mode or completing:
            return super().main(
                args,
                prog_name,
                complete_var,
                standalone_mode=standalone_mode,
                windows_expand_args=windows_expand_args,
                **extra,
            )
        arguments = list(sys.argv[1:] if args is None else args)
        if args is None and windows_expand_args and os.name == "nt":
            arguments = with_files_for_patterns(arguments)

        debug = False

        def action() -> None:
            nonlocal debug
            with self.make_context(prog_name or "nsysacct", arguments, **extra) as ctx:
                debug = bool(ctx.params.get("debug"))
                self.invoke(ctx)

        sys.exit(run_guarded(action, lambda: debug))


def with_files_for_patterns(arguments: Sequence[str]) -> list[str]:
    """`arguments` with the files in the place of ``*.json``, as shells but those of Windows do.

    A pattern that no file matches stays: it may be one of kernel names.
    """
    found: list[str] = []
    for argument in arguments:
        found += sorted(glob.glob(argument)) or [argument]
    return found


def _exists(name: str) -> bool:
    return importlib.util.find_spec(f"{__name__}.{name}") is not None


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="nsysacct", message="%(prog)s %(version)s")
@click.option(
    "--debug",
    is_flag=True,
    envvar="NSYSACCT_DEBUG",
    show_envvar=True,
    help="Print the traceback of an error.",
)
def cli(debug: bool) -> None:
    """Account for speculative decoding in Nsight Systems exports.

    Where does each round's time go, how do we know, and what would have to change for it to pay?
    TRACE is an export (.sqlite) or, where nsys is installed, a report (.nsys-rep).
    """


def main() -> None:
    """Run the command line and exit with 0, 1, 2 or 3 (see the epilog of ``--help``)."""
    cli.main(prog_name="nsysacct")
