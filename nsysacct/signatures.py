r"""The pattern language for kernel names.

A pattern is ``base`` or ``base<args>``; it is case-sensitive and matches the whole base name.

=================  ==============================================================================
in a name          ``*`` any run of characters in one name component; ``{a,b}`` alternatives
in an argument     ``*`` alone: any one argument; ``{a,b}`` alternatives; ``[1-8]`` a number in
place              that range; ``...`` as the last one: any further arguments
text               anything else is compared as it is, in canonical spelling: ``(int)4``, ``4u`` and
                   ``4`` are one number, and ``12`` matches ``(ggml_type)12`` too. A ``*`` beside
                   other text is a pointer: ``float *``
nesting            ``Traits<128, *>`` is an argument whose own arguments are matched by position;
                   a head that is just ``*`` stands for any template: ``*<128, ...>``
``::``             without it the last component of a qualified name is compared, with it the whole
                   qualified name, component by component
no ``<...>``       any template arguments, or none
captures           ``$M`` binds an argument to M; so does a bare ``M`` that the caller declares as a
                   capture (the ``capture`` list of a registry signature). A bare name that is not
                   declared is text: ``k<T, 3>`` matches only an argument spelled ``T``. A capture
                   that stands in two places must bind the same text in both
``\``              in a name: the next character is meant as it is; at the front of an argument
                   place: the whole argument is meant as it is
=================  ==============================================================================

A pattern has no return type and no parameter list: overloads of one kernel are one kernel here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from nsysacct.arguments import (
    AnyArgument,
    ArgumentList,
    ArgumentPattern,
    Capture,
    Literal,
    Nested,
    NumberRange,
    OneOf,
    brief,
)
from nsysacct.errors import PatternError
from nsysacct.names import KernelName
from nsysacct.spelling import (
    ANONYMOUS,
    OPERATOR,
    angled,
    match_brackets,
    normalise,
    segments,
    tokenise,
)

_MAX_NESTING = 64
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_RANGE = re.compile(r"\[\s*(-?\d+)\s*-\s*(-?\d+)\s*\]", re.ASCII)
_ANONYMOUS = re.compile(r"<\s*unnamed\s*>|\(\s*anonymous\s+namespace\s*\)|\{\s*anonymous\s*\}")
_OPERATOR = re.compile(OPERATOR + r"(?!\w)(?:\s+(?=<))?")
_LAMBDA_END = re.compile(r"#\d+\s*\}$", re.ASCII)
_CHOICE = re.compile(r"[\w$*.]+")


@dataclass(frozen=True, slots=True)
class NamePart:
    """Pattern of one component of a qualified name."""

    text: str
    regex: re.Pattern[str]
    args: ArgumentList | None = None

    def miss(self, name: str, args: tuple[str, ...] | None, bound: dict[str, str]) -> str | None:
        """Why the component does not fit, or None; captures are added to `bound`."""
        if not self.regex.fullmatch(name):
            return f"the name is {brief(name)} and not {self.text}"
        if self.args is None:
            return None
        if args is None:
            return "it has no template arguments"
        return self.args.miss(args, bound)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern; see the module's table for the language.

    ``captures`` are the names that a match binds, in order of appearance.
    """

    text: str
    parts: tuple[NamePart, ...]
    captures: tuple[str, ...] = ()

    @classmethod
    def compile(cls, text: str, captures: Iterable[str] = ()) -> Pattern:
        """Compile a pattern.

        Parameters
        ----------
        text : str
            The pattern.
        captures : iterable of str
            Bare names that are captures in an argument place; each must occur in the pattern.

        Raises
        ------
        PatternError
            With the 1-based column of the first character that is wrong.
        """
        return _Reader(text, frozenset(captures)).read()

    @classmethod
    def of(cls, name: KernelName) -> Pattern:
        """Return the pattern that spells out `name`, its scope and its template arguments."""
        return cls.compile(_spell(name))

    def match(self, name: KernelName) -> dict[str, str] | None:
        """Bound captures (empty when there are none), or None when `name` does not match."""
        bound: dict[str, str] = {}
        return bound if self._miss(name, bound) is None else None

    def explain_miss(self, name: KernelName) -> str:
        """Say why `name` does not match; empty when it does.

        Examples
        --------
        >>> from nsysacct.names import parse
        >>> Pattern.compile("k<*,3>").explain_miss(parse("void k<(int)4, (int)1>(int)"))
        'argument 2 is 1 and not 3'
        """
        return self._miss(name, {}) or ""

    def matches_base(self, name: KernelName) -> bool:
        """Whether the names agree when template arguments are left aside: a near miss."""
        return bool(self.parts[-1].regex.fullmatch(name.base))

    def _miss(self, name: KernelName, bound: dict[str, str]) -> str | None:
        *scope, last = self.parts
        if scope and len(scope) != len(name.scope):
            return f"the qualified name is {brief(name.qualified)}"
        if scope:
            for part, component in zip(scope, name.scope, strict=True):
                reason = part.miss(component.name, component.args, bound)
                if reason:
                    return f"in {brief(str(component))}, {reason}"
        return last.miss(name.base, name.args, bound)


# ---------------------------------------------------------------- reading a pattern


class _Reader:
    """Reads one pattern; positions are 0-based inside, columns 1-based in errors."""

    def __init__(self, text: str, declared: frozenset[str]) -> None:
        self.text = text
        self.declared = declared
        self.captures: dict[str, int] = {}

    def read(self) -> Pattern:
        """Read the whole text."""
        end = len(self.text.rstrip())
        position = len(self.text) - len(self.text.lstrip())
        if not end:
            raise self.error(0, "the pattern is empty", "write a kernel's base name")
        parts: list[NamePart] = []
        while True:
            start = position
            regex, position = self._name(start, end)
            name = self.text[start:position]
            args: ArgumentList | None = None
            if self.text.startswith("<", position):
                args, position = self._template(position, end)
            parts.append(NamePart(name, re.compile(regex, re.DOTALL), args))
            if position == end:
                break
            if not self.text.startswith("::", position):
                raise self._refusal(position)
            position += 2
        unused = sorted(self.declared - self.captures.keys())
        if unused:
            raise self.error(
                0, f"capture {unused[0]} does not occur in it", "name an argument place so"
            )
        return Pattern(self.text, tuple(parts), tuple(self.captures))

    def error(self, position: int, problem: str, remedy: str = "") -> PatternError:
        """Error at a position of the text."""
        return PatternError(self.text, position + 1, problem, remedy)

    def _refusal(self, position: int) -> PatternError:
        """Error for a character that cannot stand in or after a name."""
        char = self.text[position]
        if char == "(":
            return self.error(position, "a pattern has no parameter list", "end it before the (")
        if char.isspace():
            return self.error(position, "white space in a name", "leave out the return type")
        if char == "[":
            return self.error(
                position, "a range can only be an argument", "use {a,b} or * in a name"
            )
        return self.error(
            position, f"{char!r} cannot stand here", f"write \\{char} if the name has it"
        )

    def _name(self, start: int, end: int) -> tuple[str, int]:
        """Regular expression of the name component at `start`, and where it ends."""
        special = self._special_name(start)
        if special:
            return special
        regex: list[str] = []
        position = start
        while position < end:
            char = self.text[position]
            if char == "<" or self.text.startswith("::", position):
                break
            if char == "\\":
                if position + 1 >= end:
                    raise self.error(
                        position, "nothing follows the backslash", "write \\\\ for one"
                    )
                regex.append(re.escape(self.text[position + 1]))
                position += 2
            elif char == "*":
                regex.append(".*")
                position += 1
            elif char == "{":
                choices, position = self._name_choices(position)
                regex.append(choices)
            elif char in "()[]}>,:" or char.isspace():
                raise self._refusal(position)
            else:
                regex.append(re.escape(char))
                position += 1
        if not regex:
            raise self.error(start, "a name is missing", "write a name, or * for any")
        return "".join(regex), position

    def _special_name(self, start: int) -> tuple[str, int] | None:
        """Unnamed namespaces, operators and lambdas, which are names made of punctuation."""
        found = _ANONYMOUS.match(self.text, start)
        if found:
            return re.escape(ANONYMOUS), found.end()
        found = _OPERATOR.match(self.text, start)
        if found:
            return re.escape(re.sub(r"\s+", "", found.group())), found.end()
        for opener, closer in ("{}", "[]"):
            if self.text.startswith(opener, start):
                end = self._closing(start, opener, closer)
                literal = normalise(self.text[start:end])
                if _LAMBDA_END.search(literal):
                    return re.escape(literal), end
        return None

    def _closing(self, start: int, opener: str, closer: str) -> int:
        """Index after the partner of the bracket at `start`."""
        depth = 0
        for position in range(start, len(self.text)):
            depth += (self.text[position] == opener) - (self.text[position] == closer)
            if depth == 0:
                return position + 1
        raise self.error(start, f"{opener} is never closed", f"add the {closer}")

    def _name_choices(self, start: int) -> tuple[str, int]:
        """``{a,b}`` inside a name."""
        end = self._closing(start, "{", "}")
        regex: list[str] = []
        position = start + 1
        for choice in self.text[start + 1 : end - 1].split(","):
            if not _CHOICE.fullmatch(choice.strip()):
                raise self.error(position, f"{choice!r} is not a part of a name", "write {a,b}")
            regex.append(re.escape(choice.strip()).replace(r"\*", ".*"))
            position += len(choice) + 1
        return f"(?:{'|'.join(regex)})", end

    def _template(self, start: int, end: int) -> tuple[ArgumentList, int]:
        """Argument list whose ``<`` is at `start`, and the position after its ``>``."""
        tokens, starts = tokenise(self.text[start + 1 : end])
        tokens, starts = ["k", "<", *tokens], [start, start, *(start + 1 + s for s in starts)]
        shaped = list(tokens)
        for i, token in enumerate(tokens[:-1]):
            if token == "*" and tokens[i + 1] == "<" and tokens[i - 1] in ("<", ",", "{"):
                shaped[i] = "k"  # `*<..>`: any template
        match = match_brackets(shaped)
        if match is None:
            raise self.error(start, "brackets inside the arguments do not pair", "check () [] {}")
        if match[1] < 0:
            raise self.error(start, "< is never closed", "add the >")
        places = _Places(self, tokens, starts, match)
        return places.read_list(1, match[1], 0), starts[match[1]] + 1


class _Places:
    """Reads the argument places of one template argument list of a pattern, from its tokens."""

    def __init__(
        self, reader: _Reader, tokens: list[str], starts: list[int], match: list[int]
    ) -> None:
        self.reader = reader
        self.tokens = tokens
        self.starts = starts
        self.match = match

    def read_list(self, opening: int, closing: int, depth: int) -> ArgumentList:
        """Argument list between two bracket tokens."""
        if depth > _MAX_NESTING:
            raise self.reader.error(
                self.starts[opening], f"nested deeper than {_MAX_NESTING} levels"
            )
        spans = self._spans(opening, closing)
        more = bool(spans) and self.tokens[spans[-1][0] : spans[-1][1]] == ["..."]
        places = spans[:-1] if more else spans
        return ArgumentList(tuple(self._place(a, b, depth) for a, b in places), more)

    def _spans(self, opening: int, closing: int) -> list[tuple[int, int]]:
        """Token ranges between the commas of one bracket pair."""
        if closing == opening + 1:
            return []
        spans: list[tuple[int, int]] = []
        first = i = opening + 1
        while i < closing:
            if self.tokens[i] == ",":
                spans.append((first, i))
                first = i + 1
            i = max(i, self.match[i]) + 1
        spans.append((first, closing))
        for a, b in spans:
            if a == b:
                raise self.reader.error(self.starts[a], "an argument is missing", "write * for any")
        return spans

    def _place(self, first: int, stop: int, depth: int) -> ArgumentPattern:
        """Pattern of the tokens `first` to `stop` (excluded)."""
        reader, token, at = self.reader, self.tokens[first], self.starts[first]
        raw = reader.text[at : self.starts[stop]].rstrip()
        if token == "\\":
            return Literal(normalise(raw[1:]))
        if stop == first + 1:
            if token == "*":
                return AnyArgument()
            if token == "...":
                raise reader.error(
                    at, "... can only be the last argument", "write * for one argument"
                )
            if token.startswith("$") or token in reader.declared:
                return self._capture(token, at)
        whole = self.match[first] == stop - 1
        if token == "[" and whole and not normalise(raw).startswith("{"):
            found = _RANGE.fullmatch(raw)
            if not found or int(found[1]) > int(found[2]):
                raise reader.error(at, f"{raw} is not a range of numbers", "write [1-8]")
            return NumberRange(int(found[1]), int(found[2]))
        if token == "{" and whole and not _LAMBDA_END.search(raw):
            spans = self._spans(first, stop - 1)
            if not spans:
                raise reader.error(at, "no alternatives", "write {a,b}")
            return OneOf(tuple(self._place(a, b, depth) for a, b in spans), raw)
        return self._text(first, stop, raw, depth)

    def _capture(self, token: str, at: int) -> Capture:
        name = token.removeprefix("$")
        if not _IDENTIFIER.fullmatch(name):
            raise self.reader.error(at, "a capture needs a name", "write $M")
        self.reader.captures.setdefault(name, at)
        return Capture(name)

    def _text(self, first: int, stop: int, raw: str, depth: int) -> ArgumentPattern:
        """Plain text, or a template with patterns among its own arguments."""
        lists: list[ArgumentList] = []
        i = first
        while i < stop:
            if self.tokens[i] == "<" and self.match[i] > i:
                lists.append(self.read_list(i, self.match[i], depth + 1))
            i = max(i, self.match[i]) + 1
        text = normalise(raw)
        plain = all(isinstance(p, Literal) for each in lists for p in each.places)
        if plain and not any(each.more for each in lists) and not text.startswith("*<"):
            return Literal(text)
        shaped = segments("k" + text[1:] if text.startswith("*<") else text)
        queue = iter(lists)
        parts = [p if isinstance(p, str) else next(queue) for p in shaped]
        if text.startswith("*<"):
            parts[0] = "*"
        return Nested(tuple(parts), text)


def _spell(name: KernelName) -> str:
    """Text of the pattern that matches just this name."""
    parts = [_spell_part(c.name, c.args) for c in name.scope]
    last = _escape(name.base) if name.opaque else _spell_part(name.base, name.args)
    return "::".join([*parts, last])


def _escape(text: str) -> str:
    return re.sub(r"([^\w$])", r"\\\1", text)


def _spell_part(name: str, args: tuple[str, ...] | None) -> str:
    plain = name == ANONYMOUS or _LAMBDA_END.search(name) or _OPERATOR.fullmatch(name)
    head = name if plain else _escape(name)
    return head + angled(head, args and tuple(_spell_argument(a) for a in args))


def _spell_argument(argument: str) -> str:
    """Spell the argument as it is, or behind a backslash where it would be read as a pattern."""
    try:
        reader = _Reader(f"k{angled('k', (argument,))}", frozenset())
        (part,) = reader.read().parts
    except PatternError:
        return "\\" + argument
    as_it_is = part.args is not None and part.args.places == (Literal(argument),)
    return argument if as_it_is else "\\" + argument
