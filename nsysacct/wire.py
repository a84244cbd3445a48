"""Accounts as JSON: the contract of version 1 (design section 9), written and read exactly.

Same account, same bytes: keys in a fixed order, one record a line so that committed baselines
diff well, no clock times, no absolute paths, a newline at the end. Integers stay integers;
non-finite floats are written as ``null``.

Version history of ``nsysacct/account``
    1   first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import msgspec

from nsysacct.errors import WireError
from nsysacct.model import BUCKETS, Account, ProcessAccount, Schema

KIND = Schema().kind
VERSION = Schema().version

ORDER = ("schema", "tool", "trace", "engine", "labels", "options", "selection", "pid", "gpu")
"""Keys written first; ``rounds`` ... ``buckets`` follow, then detail, ``processes`` last."""
PROCESS_ORDER = ("rounds", "graphs", "blind_spots", "window", "buckets")

Document = dict[str, Any]
Upgrade = Callable[[Document], Document]

UPGRADES: dict[int, Upgrade] = {}
"""Older version -> step to the next one. A rename or a change of meaning adds a step here."""


def dump_account(account: Account) -> str:
    """Account as JSON text.

    Parameters
    ----------
    account : Account
        ``options`` must hold JSON values only.

    Returns
    -------
    str
        One JSON object and a newline. ``processes`` is always there. Absolute paths in the trace
        name and the options are cut to their last component.

    Raises
    ------
    WireError
        A value that JSON cannot hold.

    See Also
    --------
    load_account : the way back; ``load_account(dump_account(a)) == a`` without absolute paths.

    Examples
    --------
    >>> import nsysacct as na
    >>> account = na.split("small_graph.sqlite", layers=8)
    >>> print(na.dump_account(account))
    {
      "schema": {"kind": "nsysacct/account", "version": 1},
    ...
    """
    try:
        document = msgspec.to_builtins(account, str_keys=True)
    except TypeError as error:
        raise WireError("account", f"cannot be written as JSON ({error})") from error
    document["trace"]["name"] = _without_directory(document["trace"]["name"])
    document["options"] = _without_directories(document["options"])
    document["processes"] = [_ordered(process, ()) for process in document["processes"]]
    return dump_document(_ordered(document, ORDER))


def dump_document(document: Mapping[str, Any]) -> str:
    """Any JSON object of the project as text: the same layout as an account's.

    Top-level keys and the records of their lists stand on lines of their own.

    Parameters
    ----------
    document : mapping of str to JSON values
        Written in the mapping's order.

    Returns
    -------
    str
        JSON and a newline; lone surrogates are replaced, so it always encodes as UTF-8.
    """
    return _layout(_finite(document), 0).encode("utf-8", "replace").decode("utf-8") + "\n"


def load_account(source: str | bytes | Path) -> Account:
    """Account from JSON: a path, or the text itself.

    Unknown keys are ignored; older versions are upgraded in memory.

    Parameters
    ----------
    source : Path, str or bytes
        `str` that starts with ``{`` is JSON text, any other `str` a path; `bytes` are JSON.

    Returns
    -------
    Account

    Raises
    ------
    WireError
        Unreadable, not JSON, another kind, a newer version, or damaged: the message says which.

    Examples
    --------
    >>> import nsysacct as na
    >>> text = na.dump_account(na.split("small_graph.sqlite", layers=8))
    >>> na.load_account(text).rounds.value
    10
    """
    subject, raw = _read(source)
    document = _decode(subject, raw)
    _check_kind(subject, document)
    document = upgrade(subject, document, VERSION, UPGRADES)
    try:
        account = msgspec.convert(document, Account)
    except msgspec.ValidationError as error:
        raise _damaged(subject, str(error)) from error
    for process in (account, *account.processes):
        _check_buckets(subject, process)
    return account


def upgrade(
    subject: str, document: Document, current: int, steps: Mapping[int, Upgrade]
) -> Document:
    """Document brought to version `current`, step by step.

    Parameters
    ----------
    subject : str
        Name of the input, for the message.
    document : dict
        With ``schema.version``.
    current : int
        Version that this program reads.
    steps : mapping of int to function
        ``steps[v]`` turns version v into v + 1.

    Raises
    ------
    WireError
        Newer than `current`, or a version that no step takes.
    """
    version = document["schema"].get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise _damaged(subject, "schema.version is not an integer")
    if version > current:
        raise WireError(
            subject,
            f"written in format version {version}, newer than this program's {current}",
            "update nsysacct",
        )
    while version < current:
        if version not in steps:
            raise WireError(
                subject,
                f"written in format version {version}, which cannot be upgraded to {current}",
                "write it again from the trace",
            )
        version += 1
        document = steps[version - 1](document)
        document = {**document, "schema": {**document["schema"], "version": version}}
    return document


def is_account_text(head: bytes) -> bool:
    """Whether a file that begins with `head` is JSON rather than an export."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")


def _read(source: str | bytes | Path) -> tuple[str, bytes]:
    if isinstance(source, bytes):
        return "account JSON", source
    if isinstance(source, str) and source.lstrip("\ufeff \t\r\n").startswith("{"):
        return "account JSON", source.encode("utf-8", "replace")
    path = Path(source)
    try:
        return path.name, path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise WireError(str(path), f"cannot be read ({reason})", "check the path") from error
    except ValueError as error:  # a NUL in the name
        raise WireError(repr(str(path)), "is not a file name", "check the path") from error


def _decode(subject: str, raw: bytes) -> Document:
    remedy = "give a file that `nsysacct split --format json` wrote"
    if raw.startswith(b"SQLite format 3\0"):
        raise WireError(subject, "is a SQLite file, not account JSON", remedy)
    try:
        document = msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise WireError(subject, f"is not valid JSON ({reason})", remedy) from error
    if not isinstance(document, dict):
        raise WireError(subject, "is JSON, but not an object", remedy)
    return document


def _check_kind(subject: str, document: Document) -> None:
    schema = document.get("schema")
    kind = schema.get("kind") if isinstance(schema, dict) else None
    if not isinstance(kind, str):
        raise WireError(
            subject,
            "has no schema.kind, so it is no file of nsysacct",
            "give a file that `nsysacct split --format json` wrote",
        )
    if kind != KIND:
        raise WireError(subject, f"is a {kind!r}, not a {KIND!r}", "give the account itself")


def _check_buckets(subject: str, process: ProcessAccount) -> None:
    names = [bucket.bucket for bucket in process.buckets]
    if sorted(names) != sorted(BUCKETS):
        missing = [name for name in BUCKETS if name not in names]
        what = f"lacks {', '.join(missing)}" if missing else "has a bucket twice or an unknown one"
        raise _damaged(subject, f"buckets: {what}")


def _damaged(subject: str, what: str) -> WireError:
    return WireError(subject, f"is damaged ({what})", "write it again from the trace")


def _ordered(document: Document, first: tuple[str, ...]) -> Document:
    keys = [*first, *(() if first else ("pid", "gpu")), *PROCESS_ORDER]
    rest = [key for key in document if key not in keys and key != "processes"]
    last = ["processes"] if "processes" in document else []
    return {key: document[key] for key in [*keys, *rest, *last]}


def _without_directories(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_directories(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_directories(item) for item in value]
    return _without_directory(value) if isinstance(value, str) else value


def _without_directory(name: str) -> str:
    if PurePosixPath(name).is_absolute():
        return PurePosixPath(name).name
    if PureWindowsPath(name).is_absolute():
        return PureWindowsPath(name).name
    return name


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


_RECORD_KEYS = frozenset({"buckets", "window"})
"""Keys by which an object is seen to be an account itself, laid out over lines."""


def _layout(value: Any, depth: int) -> str:
    """JSON text: an account over lines, its lists one record a line, everything deeper inline."""
    pad = "  " * (depth + 1)
    end = "\n" + "  " * depth
    if isinstance(value, dict) and value and (depth == 0 or value.keys() >= _RECORD_KEYS):
        body = f",\n{pad}".join(
            f"{_inline(key)}: {_layout(item, depth + 1)}" for key, item in value.items()
        )
        return f"{{\n{pad}{body}{end}}}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        body = f",\n{pad}".join(_layout(item, depth + 1) for item in value)
        return f"[\n{pad}{body}{end}]"
    return _inline(value)


def _inline(value: Any) -> str:
    """JSON in one line; characters that a terminal would obey or hide are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or "\ud800" <= c <= "\udfff" else json.dumps(c)[1:-1] for c in text
    )
