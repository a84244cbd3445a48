"""Reference of the keys of a registry file in docs/registry.md, made from the classes that read it.

::

    python docs/registry_keys.py            # print it
    python docs/registry_keys.py --write    # put it into the page
"""

from __future__ import annotations

import inspect
import sys
import typing
from pathlib import Path
from types import NoneType, UnionType
from typing import Any

import msgspec

from nsysacct import registry_tables as tables

PAGE = Path(__file__).with_name("registry.md")
BEGIN, END = "<!-- keys: begin -->", "<!-- keys: end -->"

_TYPES = {str: "text", int: "whole number", dict: "table", list: "list"}


def reference() -> str:
    """Markdown tables of all keys: name, type, default, meaning."""
    parts = []
    for kind in (
        tables.File,
        tables.Engine,
        tables.Semantics,
        tables.Variant,
        tables.Passes,
        tables.Signature,
        tables.Nvtx,
        tables.Step,
    ):
        title = inspect.getdoc(kind) or ""
        parts += [title, "", "| key | type | default | meaning |", "|---|---|---|---|"]
        hints = typing.get_type_hints(kind, include_extras=True)
        parts += [_row(f, hints[f.name]) for f in msgspec.structs.fields(kind)]
        parts.append("")
    return "\n".join(parts).rstrip()


def _row(field: msgspec.structs.FieldInfo, annotated: Any) -> str:
    plain, *extras = typing.get_args(annotated)
    meaning = next(e.description for e in extras if isinstance(e, msgspec.Meta))
    return f"| `{field.name}` | {_type(plain)} | {_default(field)} | {meaning} |"


def _type(kind: Any) -> str:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return (
            "list of tables"
            if typing.get_origin(inner[0]) is dict
            else f"list of {_type(inner[0])}"
        )
    if origin is typing.Literal:
        return "one of " + ", ".join(f'`"{value}"`' for value in inner)
    if origin is UnionType:
        return " or ".join(_type(one) for one in inner if one is not NoneType)
    return _TYPES[origin or kind]


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "must be given"
    if field.default is msgspec.NODEFAULT:
        return "empty"
    return f"`{field.default}`" if field.default else "none"


def embedded(page: str) -> str:
    """The page with the reference between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{reference()}\n\n{END}{after}"


def main(arguments: list[str]) -> None:
    """Print the reference, or write it into the page."""
    if arguments == ["--write"]:
        PAGE.write_text(embedded(PAGE.read_text("utf-8")), "utf-8")
    else:
        sys.stdout.write(reference() + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
