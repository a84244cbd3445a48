"""Documents as scripts: the commands and outputs in their fenced blocks, run and compared.

In a block marked ``console``, lines that start with ``$ `` are commands (a trailing backslash joins
the next line) and the lines up to the next command are its output, stdout and stderr together. In
the output a line ``...`` stands for any lines, and ``...`` inside a line for any characters.
Blocks marked ``python`` run as one script a document, in order. A document runs in a folder of its
own, in which the shipped traces that it names lie as NAME.sqlite. ``<!-- setup: COMMAND -->`` runs
a command that the reader does not see; ``<!-- not run: REASON -->`` before a block leaves it out.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SETUP = re.compile(r"^<!--\s*setup:\s*(.+?)\s*-->$", re.M)
NOT_RUN = re.compile(r"^\s*<!--\s*not run:\s*\S.*-->$")
FENCE = re.compile(r"^(\s*)(```+|~~~+)\s*([\w-]*)")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, first line (1-based) and lines, fences left out."""

    language: str
    line: int
    lines: list[str]
    run: bool


@dataclass
class Command:
    """A command of a console block with the output that the document shows."""

    text: str
    line: int
    output: list[str] = field(default_factory=list)


def blocks(text: str) -> Iterator[Block]:
    """Fenced blocks of a Markdown text."""
    fence: re.Match[str] | None = None
    lines: list[str] = []
    start, before = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        found = FENCE.match(line)
        if fence is None:
            if found:
                fence, lines, start = found, [], number + 1
            elif line.strip():
                before = line
        elif found and found[2].startswith(fence[2]) and not found[3]:
            yield Block(fence[3], start, lines, run=not NOT_RUN.search(before))
            fence, before = None, ""
        else:
            lines.append(line.removeprefix(fence[1]))


def commands(block: Block) -> list[Command]:
    """Commands of a console block, each with its output."""
    found: list[Command] = []
    joined = False
    for number, line in enumerate(block.lines, block.line):
        if line.startswith("$ "):
            found.append(Command(line[2:], number))
        elif joined:
            found[-1].text += "\n" + line
        elif found:
            found[-1].output.append(line.rstrip())
        joined = bool(found) and not found[-1].output and found[-1].text.endswith("\\")
    return found


def matches(expected: list[str], actual: list[str]) -> bool:
    """Whether `actual` is what a document shows, with its ``...`` as wild cards."""
    parts = []
    for line in expected:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*?".join(map(re.escape, line.split("..."))) + r"\n")
    return re.fullmatch("".join(parts), "".join(f"{line}\n" for line in actual)) is not None


class Session:
    """Runs commands in one folder; ``$?`` is the exit code of the command before."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.code = 0
        programs = folder / ".programs"
        programs.mkdir()
        for name, arguments in {"nsysacct": "-m nsysacct", "python": ""}.items():
            shim = programs / name
            shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
            shim.chmod(0o755)
        self.env = env | {"PATH": f"{programs}:{env['PATH']}"}

    def run(self, command: str) -> list[str]:
        """Output lines of `command`."""
        done = subprocess.run(
            ["bash", "-c", f"(exit {self.code})\n{command}"],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=120,
        )
        self.code = done.returncode
        return [line.rstrip() for line in done.stdout.rstrip("\n").splitlines()]


def rewritten(text: str, outputs: list[tuple[Command, list[str]]]) -> str:
    """`text` with each command's output replaced, from the last to the first."""
    lines = text.splitlines()
    for command, actual in sorted(outputs, key=lambda pair: -pair[0].line):
        start = command.line + command.text.count("\n")
        indent = re.match(r"\s*", lines[command.line - 1])
        assert indent is not None
        new = [f"{indent[0]}{line}".rstrip() for line in actual]
        lines[start : start + len(command.output)] = new
    return "\n".join(lines) + "\n"
