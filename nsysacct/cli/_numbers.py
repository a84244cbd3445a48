"""Numbers from the command line: finite, of a size that can be meant, and never a crash."""

from __future__ import annotations

from decimal import Decimal, DecimalException
from typing import Any

import click

from nsysacct.errors import UsageError

MOST_DIGITS = 18
"""Whole numbers up to here fit 64 bits; Python itself refuses to read 4301 digits and more."""

LONGEST_MS = 10**12
"""31 years: a longer time, in ns, leaves 64 bits."""


class Finite(click.FloatRange):
    """A float in a range that is neither NaN nor infinite.

    click lets ``nan`` through every range, since it compares false with both ends. `told` is the
    range as help names it, where its ends are only there to keep numbers within 64 bits.
    """

    def __init__(
        self,
        min: float | None = None,
        max: float | None = None,
        *,
        min_open: bool = False,
        max_open: bool = False,
        told: str | None = None,
    ) -> None:
        super().__init__(min, max, min_open=min_open, max_open=max_open)
        self.told = told if min is not None or max is not None else ""

    def _describe_range(self) -> str:
        return super()._describe_range() if self.told is None else self.told

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read `value`; fail as usage error when it is no finite number of the range."""
        number = float(click.FLOAT.convert(value, param, ctx))
        if self.told and not self.min <= number <= self.max:  # type: ignore[operator]
            self.fail(f"{value} is not between {self.min:g} and {self.max:g}.", param, ctx)
        number = float(super().convert(value, param, ctx))
        if number != number or abs(number) == float("inf"):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


TIME_MS = Finite(min=1e-6, max=LONGEST_MS, told="above 0")
"""A time in ms: at least the nanosecond that traces count in."""

COST_MS = Finite(min=0, max=LONGEST_MS, told="0 or more")
"""A time in ms that may be nothing."""

SLOPE_MS = Finite(min=-LONGEST_MS, max=LONGEST_MS, told="")
"""A difference of times in ms."""


def whole(option: str, text: str) -> int:
    """Read a decimal whole number.

    Raises
    ------
    UsageError
        It is something else, or longer than `MOST_DIGITS`.
    """
    if not text.isdecimal():
        raise UsageError(option, f"{text!r} is not a whole number", "give a decimal number")
    if len(text) > MOST_DIGITS:
        raise UsageError(
            option, f"a number of {len(text)} digits is too large", f"give {MOST_DIGITS} at most"
        )
    return int(text)


def nanoseconds(option: str, text: str | None) -> int | None:
    """Milliseconds as written -> integer ns, without a detour through binary fractions.

    Raises
    ------
    UsageError
        Not a number, not finite, below 1 ns or above `LONGEST_MS`.
    """
    if text is None:
        return None
    try:
        value = Decimal(text)
    except DecimalException:
        raise UsageError(
            option, f"{text!r} is not a number", "give milliseconds, e.g. 13.232"
        ) from None
    if not value.is_finite() or value <= 0:
        raise UsageError(option, f"{text} is not a time", "give milliseconds above 0")
    # compared before it is multiplied: 1e999999 ms in ns is an overflow
    if not Decimal("1e-6") <= value <= LONGEST_MS:
        raise UsageError(
            option, f"{text[:40]} ms cannot be meant", f"give 0.000001 to {LONGEST_MS} milliseconds"
        )
    return int((value * 1_000_000).to_integral_value())


def rounds_span(text: str) -> tuple[int, int]:
    """Read ``--rounds``: "3-5" -> (3, 5), "3" -> (3, 3).

    Raises
    ------
    UsageError
        It is something else.
    """
    first, dash, last = text.partition("-")
    if not first.isdecimal() or not (last.isdecimal() if dash else True):
        raise UsageError("--rounds", f"cannot read {text!r}", "write 3-5, or 3")
    return whole("--rounds", first), whole("--rounds", last or first)
