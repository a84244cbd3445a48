"""Parts of the documentation that are made from the code.

``python docs/reference.py`` writes them between the comments ``generated: NAME`` and
``generated ends: NAME`` of the pages, and ``docs/account.schema.json``. The tests compare.
"""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

import nsysacct
from nsysacct import model, nvtx

DOCS = Path(__file__).resolve().parent
MEANINGS = DOCS / "field_meanings.toml"

ORDER: tuple[type[msgspec.Struct], ...] = (
    model.Account,
    model.ProcessAccount,
    model.Schema,
    model.TraceInfo,
    model.EngineInfo,
    model.Semantics,
    model.Rounds,
    model.SignatureCount,
    model.Witness,
    model.Window,
    model.Bucket,
    model.KernelRow,
    model.GraphInfo,
    model.BlindSpot,
    model.Finding,
    model.RoundRow,
    model.StepCost,
    model.Acceptance,
)
"""Structures of an account in the order in which a reader meets them."""


# -- the JSON contract ------------------------------------------------------------------------------


def json_part() -> str:
    """One table a structure: field, type, meaning."""
    meanings = tomllib.loads(MEANINGS.read_text("utf-8"))
    lines: list[str] = []
    for kind in ORDER:
        bases = [b for b in kind.__mro__[1:] if issubclass(b, model.Record)]
        inherited = {field for base in bases for field in base.__struct_fields__}
        own = {f.name: f.type for f in msgspec.structs.fields(kind) if f.name not in inherited}
        told = meanings[kind.__name__]
        if set(told) != set(own):
            odd = ", ".join(sorted(set(told) ^ set(own)))
            raise SystemExit(f"{MEANINGS.name}: [{kind.__name__}] and the code differ in {odd}")
        lines += [f"### {kind.__name__}", "", _first_sentence(kind), ""]
        if kind is model.Account:
            lines += ["All fields of [ProcessAccount](#processaccount), and:", ""]
        lines += ["| field | type | meaning |", "| --- | --- | --- |"]
        lines += [f"| `{name}` | {type_text(own[name])} | {told[name]} |" for name in own]
        lines.append("")
    return "\n".join(lines)


def _first_sentence(kind: type[msgspec.Struct]) -> str:
    return _markup((inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " "))


def type_text(annotation: Any) -> str:
    """A type as JSON has it, with links to structures."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        known = [type_text(a) for a in args if a is not type(None)]
        return " or ".join([*known, "null"] if type(None) in args else known)
    if origin is list:
        return f"list of {type_text(args[0])}"
    if origin is dict:
        return f"object of {type_text(args[1])}"
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    names = {int: "integer", float: "number", str: "string", bool: "boolean", Any: "any value"}
    return names[annotation]


def json_schema() -> str:
    """JSON Schema of an account."""
    return (
        msgspec.json.format(msgspec.json.encode(msgspec.json.schema(model.Account))).decode() + "\n"
    )


# -- Python ------------------------------------------------------------------------------------------


def python_part() -> str:
    """Signature and docstring of every public name; modules with their functions."""
    lines: list[str] = []
    found = {n: getattr(nsysacct, n) for n in nsysacct.__all__ if n != "__version__"}
    for name, value in sorted(found.items(), key=lambda item: item[0].lower()):
        if not inspect.ismodule(value):
            lines += _entry(name, value, "##")
    for name, value in found.items():
        if inspect.ismodule(value):
            lines += [f"## {name}", "", _prose(inspect.getdoc(value) or ""), ""]
            for inner, function in sorted(_functions(value)):
                lines += _entry(f"{name}.{inner}", function, "###")
    return "\n".join(lines)


def _functions(module: types.ModuleType) -> Iterable[tuple[str, Callable[..., Any]]]:
    for name in getattr(module, "__all__", None) or vars(module):
        value = getattr(module, name)
        if (
            inspect.isfunction(value)
            and not name.startswith("_")
            and value.__module__.startswith(module.__name__)
        ):
            yield name, value


def _entry(name: str, value: Any, level: str) -> list[str]:
    head = f"{level} {name}"
    if inspect.isclass(value) and value is model.Account:
        return [
            head,
            "",
            _prose(inspect.getdoc(value) or ""),
            "",
            "Fields: [the JSON](json.md#account).",
            "",
        ]
    lines = [head, ""]
    if not (inspect.isclass(value) and issubclass(value, Exception)):
        lines += ["```text", _signature(name, value), "```", ""]
    return [*lines, _prose(inspect.getdoc(value) or ""), ""]


def _signature(name: str, value: Any) -> str:
    """One parameter a line, when they do not fit one."""
    signature = inspect.signature(value)
    # annotations are strings here, and print with quotes
    arguments = [
        re.sub(r""": (['"])(.*?)\1""", r": \2", str(p)) for p in signature.parameters.values()
    ]
    kinds = [p.kind for p in signature.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds:
        arguments.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    if inspect.Parameter.POSITIONAL_ONLY in kinds:
        arguments.insert(kinds.count(inspect.Parameter.POSITIONAL_ONLY), "/")
    returned = signature.return_annotation
    after = (
        "" if inspect.isclass(value) or returned is inspect.Signature.empty else f" -> {returned}"
    )
    short = f"{name}({', '.join(arguments)}){after}"
    if len(short) <= 90:
        return short
    wrapped = "".join(f"    {a},\n" for a in arguments)
    return f"{name}(\n{wrapped}){after}"


_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.M)


def _prose(docstring: str) -> str:
    """A numpy docstring as Markdown."""
    parts = _SECTION.split(docstring)
    text = [_markup(parts[0].strip())]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        if title == "Examples":
            text.append("```pycon\n" + re.sub(r"  # doctest: \+\w+", "", body.strip()) + "\n```")
        else:
            text += [f"**{title}**", _items(body)]
    return "\n\n".join(t for t in text if t)


def _items(body: str) -> str:
    """Entries of a section: a line that is not indented, and what it means below."""
    lines: list[str] = []
    for line in body.strip("\n").splitlines():
        if not line.strip():
            continue
        if not line.startswith(" "):
            name, _, kind = line.partition(" : ")
            lines.append(f"- `{name}`" + (f" ({_markup(kind)})" if kind else ""))
        else:
            if lines[-1].startswith("- "):
                lines[-1] += ":"
            lines.append(f"  {_markup(line.strip())}")
    return "\n".join(lines)


def _markup(text: str) -> str:
    """RST code spans as Markdown's; angle brackets are no HTML."""
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    return re.sub(r"<(?=[^`]*(?:`[^`]*`[^`]*)*$)", "&lt;", text)


# -- NVTX ---------------------------------------------------------------------------------------------


def words_part() -> str:
    """Range names that are understood, by bucket."""
    lines = ["| bucket | names |", "| --- | --- |"]
    by_code: dict[str, list[str]] = {}
    for word, code in nvtx._WORDS.items():
        by_code.setdefault(code.name.lower(), []).append(f"`{word}`")
    return "\n".join([*lines, *(f"| {code} | {', '.join(w)} |" for code, w in by_code.items())])


# -- pages --------------------------------------------------------------------------------------------

PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "json": ("json.md", json_part),
    "python": ("python.md", python_part),
    "words": ("capture.md", words_part),
}
"""Part -> page, and what makes it."""


def page_with(text: str, part: str, body: str) -> str:
    """`text` with `body` between the comments of `part`."""
    begin, end = f"<!-- generated: {part} -->", f"<!-- generated ends: {part} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"the comments of {part!r} are missing in its page")
    return f"{before}{begin}\n\n{body.strip()}\n\n{end}{after}"


def files() -> dict[Path, str]:
    """Every generated file as it should be."""
    made: dict[Path, str] = {}
    for part, (name, make) in PARTS.items():
        path = DOCS / name
        made[path] = page_with(made.get(path) or path.read_text("utf-8"), part, make())
    made[DOCS / "account.schema.json"] = json_schema()
    return made


def main() -> int:
    """Write the files."""
    for path, text in files().items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
