"""``nsysacct completion``: the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from nsysacct.cli._base import echo_text
from nsysacct.cli._help import page


@page("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and files in SHELL.

    \b
    Examples:
      eval "$(nsysacct completion bash)"     # in ~/.bashrc
      nsysacct completion fish > ~/.config/fish/completions/nsysacct.fish
      nsysacct completion zsh > ~/.zfunc/_nsysacct      # a folder of your fpath
    """
    script = get_completion_class(shell)
    assert script is not None
    root = ctx.find_root().command
    echo_text(script(root, {}, "nsysacct", "_NSYSACCT_COMPLETE").source())
