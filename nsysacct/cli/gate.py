"""``nsysacct gate``: pass, fail or no verdict on a change."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsysacct.cli._base import (
    FILE,
    echo_text,
    force_option,
    judged_failed,
    output_option,
    refuse_existing,
    terminal_width,
    write_output,
)
from nsysacct.cli._exits import NO_VERDICT
from nsysacct.cli._help import JudgingPage
from nsysacct.cli._inputs import account_of
from nsysacct.cli._numbers import Finite
from nsysacct.cli._options import trace_options
from nsysacct.errors import UsageError

if TYPE_CHECKING:
    from nsysacct.account import Options
    from nsysacct.comparability import Side
    from nsysacct.gate import Verdict
    from nsysacct.limits import Limit

FORMATS = ("text", "markdown", "junit", "sarif", "json")


class ManyFiles(JudgingPage):
    """A command whose ``--base`` and ``--head`` take all files up to the next option.

    So that a shell pattern works: ``--base runs/main-*.json``.
    """

    many = ("--base", "--head")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option before each of its files, then parse as usual."""
        return super().parse_args(ctx, spread_files(args, self.many))


def spread_files(args: Sequence[str], many: Sequence[str]) -> list[str]:
    """Turn ``--base a b --x`` into ``--base a --base b --x``.

    Examples
    --------
    >>> spread_files(["--base", "a", "b", "--head", "c"], ["--base", "--head"])
    ['--base', 'a', '--base', 'b', '--head', 'c']
    """
    result: list[str] = []
    current = None
    taken = 0
    for word in args:
        if word.startswith("-") and word != "-":
            current = word if word in many else None
            taken = 0
            result.append(word)
        elif current is not None and taken:
            result += [current, word]
        else:
            taken += 1
            result.append(word)
    return result


@click.command("gate", cls=ManyFiles)
@click.option(
    "--base",
    "base_files",
    metavar="FILE...",
    type=FILE,
    multiple=True,
    help="Captures to compare with: exports or account JSON; several are allowed.",
)
@click.option(
    "--head",
    "head_files",
    metavar="FILE...",
    type=FILE,
    multiple=True,
    required=True,
    help="Captures of the change.",
)
@click.option(
    "--against", metavar="DB[:SERIES]", help="Take the base from a history, e.g. history.db:main."
)
@click.option(
    "--last",
    metavar="N",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="With --against: at most this many of the newest captures.",
)
@click.option(
    "--limit",
    "limit_texts",
    metavar="METRIC:BOUND",
    multiple=True,
    help="E.g. verify.ns_per_round:+5%, draft.ns_per_round:+50us, "
    "tokens.per_round:-3%, blind.share:<=1%; repeatable.",
)
@click.option("--limits", "limits_file", metavar="FILE", type=FILE, help="File of limits (TOML).")
@click.option(
    "--confidence",
    type=Finite(0.5, 1, max_open=True),
    metavar="P",
    help="Confidence of the interval, two-sided.  [default: 0.95]",
)
@click.option(
    "--inconclusive",
    type=click.Choice(["no-verdict", "fail", "pass"]),
    help="What an interval on both sides of its limit counts as.  [default: no-verdict]",
)
@click.option(
    "--allow",
    metavar="KIND",
    multiple=True,
    help="Kind of fatal blind spot to judge in spite of; repeatable.",
)
@click.option(
    "--rounds",
    type=click.Choice(["inferred", "exact"]),
    help="Weakest verdict on the number of rounds that is proof.  [default: inferred]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="How to print the verdict.",
)
@click.option(
    "--github",
    is_flag=True,
    help="Also write the job summary (GITHUB_STEP_SUMMARY) and print annotations.",
)
@output_option
@force_option
@trace_options
def command(
    options: Options,
    base_files: tuple[str, ...],
    head_files: tuple[str, ...],
    against: str | None,
    last: int,
    form: str,
    github: bool,
    output: str | None,
    force: bool,
    **judging: Any,
) -> None:
    """Fail a build when a change made rounds dearer; pass when it did not.

    Judged per round or per emitted token, so a longer run at equal cost passes. With four or more
    captures a side an exact rank test decides; with one a side a bare threshold, and the verdict
    says so.

    \b
    Examples:
      nsysacct gate --base main/*.json --head pr/*.json
      nsysacct gate --base main.json --head pr.sqlite --limits gate.toml
      nsysacct gate --base a.json --head b.json --limit 'verify.ns_per_round:+5%'
      nsysacct gate --against history.db:main --head pr/*.json --github
    """
    from nsysacct.gate import judge
    from nsysacct.gate_output import FORMATS as WRITERS
    from nsysacct.gate_output import text

    if bool(base_files) == bool(against):
        raise UsageError("gate", "needs --base or --against, one of them", "give the base")
    if output not in (None, "-"):
        refuse_existing(Path(str(output)), force)
    limits, settings = _judging(**judging)
    head = _sides("head", head_files, options)
    notes: list[str] = []
    base = (
        _sides("base", base_files, options)
        if base_files
        else _from(str(against), head, last, notes)
    )
    verdict = judge(base, head, limits, **settings)
    verdict = _with_notes(verdict, notes)
    body = text(verdict, terminal_width()) if form == "text" else WRITERS[form](verdict)
    write_output(output, body, force=force, data=form not in ("text", "markdown"))
    if github:
        _write_github(verdict, on_stdout=output not in (None, "-") or form in ("text", "markdown"))
    if verdict.outcome == "fail":
        judged_failed()
    if verdict.outcome != "pass":
        raise click.exceptions.Exit(NO_VERDICT)


def _judging(
    *,
    limit_texts: tuple[str, ...],
    limits_file: str | None,
    allow: tuple[str, ...],
    **given: Any,
) -> tuple[list[Limit] | None, dict[str, Any]]:
    """Limits, and keywords of `judge`: the command line, the limits file, or the project's."""
    from nsysacct.cli._project import project
    from nsysacct.limits import load_limits, parse_limit

    file = load_limits(Path(limits_file)) if limits_file else project().gate
    limits = [*file.limits, *(parse_limit(text) for text in limit_texts)]
    settings: dict[str, Any] = {"allow": (*file.allow, *allow)}
    for name in ("confidence", "inconclusive", "rounds"):
        value = given[name] or getattr(file, name)
        if value is not None:
            settings[name] = value
    return limits or None, settings


def _sides(role: str, files: Sequence[str], options: Options) -> list[Side]:
    from nsysacct.comparability import Side

    doubled = {file for file in files if files.count(file) > 1}
    if doubled:
        raise UsageError(sorted(doubled)[0], "is given twice", "a capture counts once")
    return [Side(role, Path(file).name, account_of(file, options)) for file in files]


def _from(against: str, head: Sequence[Side], last: int, notes: list[str]) -> list[Side]:
    """Take the base from a history: its newest captures that are like the first head capture."""
    from nsysacct.errors import IncomparableError
    from nsysacct.history import History, parse_against

    path, series = parse_against(against)
    with History(path, readonly=True) as history:
        found = history.baseline(series, head[0].account, last=last)
    if not found.sides:
        raise IncomparableError(
            against,
            f"none of its {found.unlike} captures has the engine, GPU, granularity, registry, "
            f"labels and layers of {head[0].name}",
            "add captures like it, or see `history list`",
        )
    if found.unlike:
        notes.append(f"left out, unlike {head[0].name}: {found.unlike} captures of {against}")
    if found.since is not None:
        notes.append(f"base from #{found.since} on, where the level of {against} last moved")
    return list(found.sides)


def _with_notes(verdict: Verdict, notes: Sequence[str]) -> Verdict:
    from dataclasses import replace

    return replace(verdict, notes=(*verdict.notes, *notes))


def _write_github(verdict: Verdict, *, on_stdout: bool) -> None:
    """Append to the job summary; annotations go where they cannot spoil a machine format."""
    from nsysacct.gate_output import github_annotations, markdown

    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(markdown(verdict))
    if on_stdout:
        echo_text(github_annotations(verdict))
    else:
        click.echo(github_annotations(verdict), nl=False, err=True)
