"""Numbers and names as readers see them: units, enough digits, and no hostile characters."""

from __future__ import annotations

import math
import unicodedata

from nsysacct.metric_names import Unit

_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))


def clean(text: str) -> str:
    r"""Text on one line without control, bidirectional or unassigned characters.

    Kernel names, labels and file names come from outside; a terminal, a log annotation or an XML
    parser must not act on them. Such characters appear as ``\x1b`` and the like.

    Examples
    --------
    >>> clean("k\x1b[31m\n")
    'k\\x1b[31m\\x0a'
    """
    return "".join(c if unicodedata.category(c)[0] != "C" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def short(text: str, width: int = 60) -> str:
    """`clean` text of at most `width` characters; the middle gives way.

    Examples
    --------
    >>> short("k_" + "x" * 70, 12)
    'k_xxxx…xxxxx'
    """
    text = clean(text)
    if len(text) <= width:
        return text
    kept = width - 1
    return text[: kept - kept // 2] + "…" + text[-(kept // 2) :]


def duration(ns: float | None, digits: int = 4) -> str:
    """Time with a fitting unit; "unknown" for None.

    Examples
    --------
    >>> duration(17_824_100), duration(0), duration(-950)
    ('17.82 ms', '0 ns', '-950 ns')
    """
    if ns is None:
        return "unknown"
    size, unit = next(((s, u) for s, u in _TIMES if abs(ns) >= s), _TIMES[-1])
    return f"{significant(ns / size, digits)} {unit}"


def significant(value: float, digits: int = 4) -> str:
    """`digits` significant digits, never in exponent form, no trailing zeros after a point.

    Examples
    --------
    >>> significant(2730.0), significant(0.0123456), significant(65.5)
    ('2730', '0.01235', '65.5')
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def value_text(value: float | None, unit: Unit) -> str:
    """Figure with its unit: a time, a count, or a share in percent."""
    if value is None:
        return "unknown"
    if unit == "ns":
        return duration(value)
    return f"{significant(value * 100)} %" if unit == "share" else significant(value, 6)


def percent(ratio: float | None, digits: int = 2) -> str:
    """Head / base as a change in percent.

    Examples
    --------
    >>> percent(1.05), percent(0.97), percent(float("inf"))
    ('+5.00 %', '-3.00 %', 'from nothing')
    """
    if ratio is None:
        return "unknown"
    if math.isinf(ratio):
        return "from nothing"
    return f"{(ratio - 1) * 100:+.{digits}f} %"


def percent_beside(ratio: float, bound: float) -> str:
    """`percent` with enough digits not to look equal to a bound that it passes.

    Examples
    --------
    >>> percent_beside(1.0500004, 1.05)
    '+5.00004 %'
    """
    for digits in range(2, 9):
        text = percent(ratio, digits)
        if text != percent(bound, digits) or ratio == bound:
            return text
    return text
