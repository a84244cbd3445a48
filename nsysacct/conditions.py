"""Conditions on whole numbers: a grid or block dimension, a captured template argument."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from nsysacct.errors import UsageError

_CONDITION = re.compile(
    r"(?P<low>-?\d+)\.\.(?P<high>-?\d+)|(?P<sign>[<>]=?|!=|)(?P<number>-?\d+)"
    r"|\{(?P<members>-?\d+(?:,-?\d+)*)\}",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class NumberPredicate:
    """A condition on a whole number: a grid or block dimension, or a captured argument.

    Written ``3``, ``2..8``, ``>=2``, ``>1``, ``<=8``, ``<9``, ``!=1`` or ``{2,4,8}``.
    """

    text: str
    intervals: tuple[tuple[float, float], ...]

    @classmethod
    def compile(cls, text: str) -> NumberPredicate:
        """Compile a condition; UsageError when it is none of the forms."""
        found = _CONDITION.fullmatch(text.replace(" ", ""))
        if not found:
            raise UsageError(
                f"condition {text!r}",
                "is not a condition on a whole number",
                'write "3", "2..8", ">=2", "!=1" or "{2,4,8}"',
            )
        low, high, sign, number, members = found.group("low", "high", "sign", "number", "members")
        if members:
            return cls(text, tuple((int(m), int(m)) for m in members.split(",")))
        if low:
            if int(low) > int(high):
                raise UsageError(
                    f"condition {text!r}", "the range is empty", f'write "{high}..{low}"'
                )
            return cls(text, ((int(low), int(high)),))
        value = int(number)
        intervals: dict[str, tuple[tuple[float, float], ...]] = {
            "": ((value, value),),
            ">=": ((value, math.inf),),
            ">": ((value + 1, math.inf),),
            "<=": ((-math.inf, value),),
            "<": ((-math.inf, value - 1),),
            "!=": ((-math.inf, value - 1), (value + 1, math.inf)),
        }
        return cls(text, intervals[sign])

    def test(self, value: int) -> bool:
        """Whether `value` meets the condition."""
        return any(low <= value <= high for low, high in self.intervals)

    def excludes(self, other: NumberPredicate) -> bool:
        """Whether no number meets both conditions."""
        return not any(
            max(a, c) <= min(b, d) for a, b in self.intervals for c, d in other.intervals
        )
