"""Strict reading of TOML tables into classes: unknown, missing and mistyped keys are named."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec

from nsysacct.errors import NsysacctError

T = TypeVar("T", bound=msgspec.Struct)

Refusal = Callable[[str, str, str], NsysacctError]
"""Error for (key, what is wrong, what to do)."""

_KEY = re.compile(r" - at `\$\.?([^`]*)`$")


def convert(table: Mapping[str, Any], kind: type[T], refuse: Refusal) -> T:
    """Turn a table into its class.

    Parameters
    ----------
    table : mapping
        As read from TOML.
    kind : type
        A msgspec Struct; its fields are the keys that may stand in the table.
    refuse : callable
        Makes the error that is raised.

    Raises
    ------
    NsysacctError
        What `refuse` makes: a key is not known, missing, or has a value of another type.
    """
    fields = msgspec.structs.fields(kind)
    names = [f.name for f in fields]
    for key in table:
        if key not in names:
            remedy = guess(key, names) or f"known keys: {', '.join(names)}"
            raise refuse(key, "is not known", remedy)
    for field in fields:
        if field.required and field.name not in table:
            raise refuse(field.name, "is missing", f"add {field.name} = ...")
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        found = _KEY.search(str(error))
        problem = _KEY.sub("", str(error)).replace("`", "")
        key = found.group(1) if found else ""
        raise refuse(key, problem[:1].lower() + problem[1:], "correct it") from None


def guess(value: str, allowed: Sequence[str]) -> str:
    """``did you mean ...?`` for the closest of `allowed`, or nothing."""
    close = get_close_matches(value, allowed, 1, 0.6)
    return f"did you mean {close[0]}?" if close else ""
