"""Patterns of template arguments: what may stand in an argument place, and how it is compared.

Built by `signatures.Pattern.compile`; arguments are in the canonical spelling of `spelling`. Every
``miss`` answers why an argument does not fit, or None when it does, and adds what captures bind.
"""

from __future__ import annotations

from dataclasses import dataclass

from nsysacct.spelling import number_of, segments


def brief(text: str, width: int = 60) -> str:
    """Cut a text for a message."""
    return text if len(text) <= width else text[: width - 1] + "…"


@dataclass(frozen=True, slots=True)
class AnyArgument:
    """``*``: any one argument."""

    def miss(self, argument: str, bound: dict[str, str]) -> str | None:
        """Why `argument` does not fit, or None; captures are added to `bound`."""
        return None


@dataclass(frozen=True, slots=True)
class Literal:
    """One argument in canonical spelling; a plain number also fits an enumeration's value."""

    text: str

    def miss(self, argument: str, bound: dict[str, str]) -> str | None:
        """Why `argument` does not fit, or None; captures are added to `bound`."""
        if argument == self.text or (
            argument.startswith("(")
            and number_of(self.text) is not None
            and not self.text.startswith("(")
            and number_of(argument) == number_of(self.text)
        ):
            return None
        return f"is {brief(argument)} and not {brief(self.text)}"


@dataclass(frozen=True, slots=True)
class NumberRange:
    """``[1-8]``: a number within the range, ends included."""

    low: int
    high: int

    def miss(self, argument: str, bound: dict[str, str]) -> str | None:
        """Why `argument` does not fit, or None; captures are added to `bound`."""
        value = number_of(argument)
        if value is not None and self.low <= value <= self.high:
            return None
        return f"is {brief(argument)} and not a number in [{self.low}-{self.high}]"


@dataclass(frozen=True, slots=True)
class Capture:
    """``$M``, or a declared ``M``: binds the argument."""

    name: str

    def miss(self, argument: str, bound: dict[str, str]) -> str | None:
        """Why `argument` does not fit, or None; captures are added to `bound`."""
        if bound.setdefault(self.name, argument) == argument:
            return None
        return f"is {brief(argument)} and not {brief(bound[self.name])}, as {self.name} was before"


@dataclass(frozen=True, slots=True)
class OneOf:
    """``{a,b}``: the first alternative that fits."""

    choices: tuple[ArgumentPattern, ...]
    text: str

    def miss(self, argument: str, bound: dict[str, str]) -> str | None:
        """Why `argument` does not fit, or None; captures are added to `bound`."""
        for choice in self.choices:
            trial = dict(bound)
            if choice.miss(argument, trial) is None:
                bound.update(trial)
                return None
        return f"is {brief(argument)} and none of {self.text}"


@dataclass(frozen=True, slots=True)
class Nested:
    """A template argument that is a template itself: text and argument lists in turn."""

    parts: tuple[str | ArgumentList, ...]
    text: str

    def miss(self, argument: str, bound: dict[str, str]) -> str | None:
        """Why `argument` does not fit, or None; captures are added to `bound`."""
        have = segments(argument)
        other = f"is {brief(argument)} and not {brief(self.text)}"
        if len(have) != len(self.parts):
            return other
        for i, (want, part) in enumerate(zip(self.parts, have, strict=True)):
            if isinstance(want, ArgumentList):
                if isinstance(part, str):
                    return other
                reason = want.miss(part, bound)
                if reason:
                    return f"{other}: inside it, {reason}"
            elif want != part and not (i == 0 and want == "*"):
                return other
        return None


ArgumentPattern = AnyArgument | Literal | NumberRange | Capture | OneOf | Nested


@dataclass(frozen=True, slots=True)
class ArgumentList:
    """Patterns of a template argument list; `more` when it ends in ``...``."""

    places: tuple[ArgumentPattern, ...]
    more: bool = False

    def miss(self, arguments: tuple[str, ...], bound: dict[str, str]) -> str | None:
        """Why `arguments` do not fit, or None; captures are added to `bound`."""
        want, have = len(self.places), len(arguments)
        if have < want or (have > want and not self.more):
            some = f"{have} template argument{'s' * (have != 1)}"
            return f"{some} and not {want}{' or more' if self.more else ''}"
        for i, (place, argument) in enumerate(zip(self.places, arguments, strict=False), 1):
            reason = place.miss(argument, bound)
            if reason:
                return f"argument {i} {reason}"
        return None
