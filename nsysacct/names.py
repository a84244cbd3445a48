"""Kernel names: what a demangled C++ function name says, in one spelling.

Nsight Systems stores a kernel's name as its demangler wrote it when the trace was captured
(StringIds.value by CUPTI_ACTIVITY_KIND_KERNEL.demangledName), and demanglers differ:
``k<(int)4, (bool)1>(const float *)``, ``k<4, true>(float const*)``, ``<unnamed>::`` or
``(anonymous namespace)::``, ``[lambda(float) (instance 1)]`` or ``{lambda(float)#1}``. `parse`
reads all of them into a `KernelName` whose parts are spelled one way, so that names can be
compared.

The parser works on tokens with explicit stacks: linear in the length of the name and without
recursion. A text that is not a C++ function name (``ampere_sgemm_128x64_nn``, a mangled ``_Z..``,
a Triton name, a name damaged by its demangler) is a name all the same: a plain one, or an *opaque*
one whose base is the whole text.

Canonical spelling: no cast before integers and booleans (``4``, ``true``), enumerations keep theirs
(``(ggml_type)12``); no integer suffix; ``const`` before the type that it belongs to; a space only
between words, after a comma, and between ``*``, ``&`` or ``>`` and a word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

ANONYMOUS = "(anonymous namespace)"
"""Canonical spelling of an unnamed namespace."""

OPERATOR = (
    r"operator\s*(?:\(\s*\)|\[\s*\]|<=>|->\*?|<<=?|>>=?|&&|\|\||\+\+|--|[-+*/%^&|=<>!]=?|,|~)"
)
"""Regular expression of an operator's name."""

_TOKEN = re.compile(
    rf"""
      (?P<space>\s+)
    | (?P<anonymous><\s*unnamed\s*>|\(\s*anonymous\s+namespace\s*\)|\{{\s*anonymous\s*\}})
    | (?P<operator>\b{OPERATOR})
    | (?P<word>(?:[^\W\d]|\$)[\w$]*(?:\[abi:\w+\])*(?:(?<=auto):\d+(?!\w))?)
    | (?P<number>\d\w*(?:\.\w+)*)
    | (?P<mark>::|\.\.\.|->|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|\d+)(?:[uU]?[lL]{0,2}|[lL]{1,2}[uU]?)")
_INTEGRAL_TYPES = frozenset(
    "bool|char|signed char|unsigned char|short|unsigned short|int|unsigned int|unsigned|long"
    "|unsigned long|long long|unsigned long long|long int|unsigned long int|__int128"
    "|unsigned __int128|size_t".split("|")
)
_QUALIFIERS = frozenset({"const", "volatile", "noexcept"})
_NOT_A_TEMPLATE = _QUALIFIERS | {"true", "false"}
_MARKS = frozenset({"::", "...", "->", *"<>()[]{},*&+-/%^|~!=#?:"})
_OPENER = {")": "(", "]": "[", "}": "{"}
_OPEN_END = re.compile(r"-$|\boperator[-+*/%^&|=<>!~,]+$")


@dataclass(frozen=True, slots=True)
class Component:
    """One part of a qualified name before its last: ``Foo<int>`` in ``Foo<int>::run``.

    ``args`` are the template arguments (None: not a template); ``rest`` is the parameter list of
    an enclosing function (``"(int) const"``), or empty.
    """

    name: str
    args: tuple[str, ...] | None = None
    rest: str = ""

    def __str__(self) -> str:
        return self.name + angled(self.name, self.args) + self.rest


@dataclass(frozen=True, slots=True)
class KernelName:
    """A kernel's name in parts, each in canonical spelling.

    Parameters
    ----------
    base : str
        Last component of the qualified name, without template arguments; when opaque, the text.
    scope : tuple of Component
        Enclosing namespaces, classes and functions, outermost first.
    args : tuple of str or None
        Template arguments; None when the name has no template argument list.
    params : tuple of str or None
        Parameter types; None when the name has no parameter list.
    return_type : str or None
        Return type, which demanglers write for templates only.
    suffix : str
        What follows the parameter list, such as ``const``.
    opaque : bool
        True when the text could not be read as a function name.
    """

    base: str
    scope: tuple[Component, ...] = ()
    args: tuple[str, ...] | None = None
    params: tuple[str, ...] | None = None
    return_type: str | None = None
    suffix: str = ""
    opaque: bool = False

    @property
    def qualified(self) -> str:
        """Scope and base joined by ``::``, without the base's template arguments."""
        return "::".join([*map(str, self.scope), self.base])

    @property
    def signature(self) -> str:
        """Qualified name with template arguments: what tells two instantiations apart."""
        return self.qualified + angled(self.base, self.args)

    def __str__(self) -> str:
        head = f"{self.return_type} " if self.return_type else ""
        params = "" if self.params is None else f"({', '.join(self.params)})"
        tail = f" {self.suffix}" if self.suffix else ""
        return head + self.signature + params + tail

    def short(self, width: int = 60) -> str:
        """Shorten base and template arguments to at most `width` characters, for display.

        Long arguments are cut first, so that the base and as many arguments as fit stay readable;
        ``…`` marks every cut.
        """
        full = self.base + angled(self.base, self.args)
        if len(full) > width and self.args:
            full = f"{self.base}<{', '.join(_cut(self.args, width - len(self.base) - 2))}>"
        return full if len(full) <= width else full[: max(0, width - 1)] + "…"


@lru_cache(maxsize=1 << 14)  # each rank of a job has the same names
def parse(text: str) -> KernelName:
    """Read a kernel name.

    Parameters
    ----------
    text : str
        A demangled name as a demangler wrote it, a short name, or any other kernel name.

    Returns
    -------
    KernelName
        ``parse(str(parse(text))) == parse(text)`` holds for every text.

    Examples
    --------
    >>> name = parse("void k_rq_q4_gemv_mr<(int)4, (int)3>(const unsigned char *, int)")
    >>> name.base, name.args, name.params
    ('k_rq_q4_gemv_mr', ('4', '3'), ('const unsigned char*', 'int'))
    """
    tokens, _ = tokenise(text)
    match = match_brackets(tokens)
    if match is None or not _readable(tokens):
        return KernelName(base=text.strip(), opaque=True)
    name = _read_name(*_canonical(tokens, match))
    return KernelName(base=text.strip(), opaque=True) if name is None else name


def normalise(text: str) -> str:
    """Canonical spelling of a fragment such as a type or a template argument.

    Examples
    --------
    >>> normalise("std::array<char const *, (unsigned long) 1> ")
    'std::array<const char*, 1>'
    """
    tokens, _ = tokenise(text)
    match = match_brackets(tokens)
    if match is None or not _readable(tokens):
        return text.strip()
    return _join(_canonical(tokens, match)[0])


def number_of(argument: str) -> int | None:
    """Value of a numeric template argument, also behind an enumeration's cast; else None.

    Examples
    --------
    >>> number_of("(ggml_type)12"), number_of("3"), number_of("float")
    (12, 3, None)
    """
    value = argument[argument.rfind(")") + 1 :] if argument.startswith("(") else argument
    return int(value) if re.fullmatch(r"-?\d{1,20}", value, re.ASCII) else None


def segments(argument: str) -> list[str | tuple[str, ...]]:
    """Split a canonical argument at its outermost template lists: text, arguments, text, ...

    Examples
    --------
    >>> segments("ns::Traits<128, Inner<3>>::type*")
    ['ns::Traits', ('128', 'Inner<3>'), '::type*']
    """
    tokens, _ = tokenise(argument)
    match = match_brackets(tokens)
    if match is None:
        return [argument]
    parts: list[str | tuple[str, ...]] = []
    start = i = 0
    while i < len(tokens):
        if tokens[i] == "<" and match[i] > i:
            parts += [_join(tokens[start:i]), _split(tokens, match, i)]
            start = match[i] + 1
        i = max(i, match[i]) + 1
    return [*parts, _join(tokens[start:])] if start < len(tokens) else parts


def angled(name: str, args: tuple[str, ...] | None) -> str:
    """Template argument list as it follows `name`; empty for None."""
    if args is None:
        return ""
    gap = " " if name.endswith("<") else ""  # operator< <int>
    end = " " if args and _OPEN_END.search(args[-1]) else ""  # <&A::operator- >
    return f"{gap}<{', '.join(args)}{end}>"


def tokenise(text: str) -> tuple[list[str], list[int]]:
    """Tokens of a name without white space, and the index in `text` at which each begins."""
    tokens: list[str] = []
    starts: list[int] = []
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup
        if kind == "space":
            continue
        token = found.group()
        if kind == "anonymous":
            token = ANONYMOUS
        elif kind == "operator":
            token = re.sub(r"\s+", "", token)
        tokens.append(token)
        starts.append(found.start())
    return tokens, starts


def match_brackets(tokens: list[str]) -> list[int] | None:
    """Partner index of every bracket token, -1 for other tokens.

    ``<`` opens a template list only after a name, ``>`` closes only
    an open ``<``; elsewhere they are comparisons and have no partner. A ``<`` that is still open
    where an outer bracket closes, or at the end, was a comparison too.

    Returns
    -------
    list of int or None
        None when round, square or curly brackets do not pair.
    """
    match = [-1] * len(tokens)
    stack: list[int] = []
    open_count = {"(": 0, "[": 0, "{": 0}
    for i, token in enumerate(tokens):
        if token == "<":
            if _takes_arguments(tokens, i):
                stack.append(i)
        elif token in open_count:
            open_count[token] += 1
            stack.append(i)
        elif token == ">":
            if stack and tokens[stack[-1]] == "<":
                match[i], match[stack[-1]] = stack[-1], i
                stack.pop()
        elif token in _OPENER:
            while stack and tokens[stack[-1]] == "<":
                stack.pop()
            if not stack or tokens[stack[-1]] != _OPENER[token]:
                return None
            open_count[tokens[stack[-1]]] -= 1
            match[i], match[stack[-1]] = stack[-1], i
            stack.pop()
    return None if any(open_count.values()) else match


def _takes_arguments(tokens: list[str], i: int) -> bool:
    """Whether the ``<`` at index `i` opens a template argument list."""
    before = i - 1
    while before >= 0 and tokens[before] == "const":  # `T const<..>` is spelled `const T<..>`
        before -= 1
    if before < 0:
        return False
    token = tokens[before]
    return _is_name(token) and token not in _NOT_A_TEMPLATE


def _is_name(token: str) -> bool:
    return token[0].isalpha() or token[0] in "_$"


def _is_word(token: str) -> bool:
    return token[0].isalnum() or token[0] in "_$"


def _readable(tokens: list[str]) -> bool:
    return all(len(t) > 1 or _is_word(t) or t in _MARKS for t in tokens)


def _canonical(tokens: list[str], match: list[int]) -> tuple[list[str], list[int]]:
    """Rewrite casts, suffixes, lambdas and the place of ``const``; brackets re-paired."""
    out = list(tokens)
    before = [""] * len(tokens)  # "const" to be written before the token
    item_starts = [0]
    for i, token in enumerate(tokens):
        opens = match[i] > i
        if token == ",":
            item_starts[-1] = i + 1
        elif token == "const":
            _move_const(out, before, i, item_starts[-1], match)
        elif token[0].isdigit():
            _plain_number(out, match, i)
        elif token == "]" and match[i] >= 0:
            _plain_lambda(out, match, i)
        if opens:
            item_starts.append(i + 1)
        elif match[i] >= 0:
            item_starts.pop()
    kept: list[str] = []
    new_index = [0] * len(tokens)
    for i, token in enumerate(out):
        if before[i]:
            kept.append(before[i])
        new_index[i] = len(kept)
        if token:
            kept.append(token)
    pairs = [-1] * len(kept)
    for i, j in enumerate(match):
        if j >= 0 and out[i] and out[j] and out[i] != "#":
            pairs[new_index[i]] = new_index[j]
    return kept, pairs


def _move_const(out: list[str], before: list[str], i: int, start: int, match: list[int]) -> None:
    """``float const*`` -> ``const float*``: to the front of the item that begins at `start`."""
    previous = i - 1
    while previous >= start and not out[previous]:
        previous -= 1
    if previous < start:
        return
    token = out[previous]
    after_type = _is_name(token) and token not in _QUALIFIERS and not token.startswith("operator")
    if after_type or (token == ">" and match[previous] >= 0):
        out[i] = ""
        before[start] = "const"


def _plain_number(out: list[str], match: list[int], i: int) -> None:
    """``3u`` -> ``3``; ``(int)4`` -> ``4``; ``(bool)1`` -> ``true``; ``(Enum)3`` stays."""
    found = _INTEGER.fullmatch(out[i])
    if not found:
        return
    out[i] = found.group(1)
    close = i - 2 if i >= 1 and out[i - 1] == "-" else i - 1
    if close < 2 or out[close] != ")" or match[close] < 0:
        return
    start = match[close]
    kind = " ".join(t for t in out[start + 1 : min(close, start + 5)] if t)
    # behind a word or a bracket it is a call, behind a minus a part of an expression
    left = out[start - 1] if start else ""
    called = left != "" and (_is_word(left) or left in ")>]}-")
    if kind not in _INTEGRAL_TYPES or close - start > 5 or called:
        return
    for j in range(start, close + 1):
        out[j] = ""
    if kind == "bool" and close == i - 1:
        out[i] = "false" if out[i] == "0" else "true"


def _plain_lambda(out: list[str], match: list[int], close: int) -> None:
    """``[lambda(float) (instance 1)]`` -> ``{lambda(float)#1}``."""
    start, last = match[close], close - 1
    if last < 0 or out[last] != ")" or match[last] != close - 4 or match[last] <= start + 1:
        return
    if out[close - 3] == "instance" and out[close - 2].isdigit():
        out[start], out[close] = "{", "}"
        out[close - 4], out[close - 3], out[last] = "#", "", ""


def _read_name(tokens: list[str], match: list[int]) -> KernelName | None:
    """Read canonical tokens from the right: suffix, parameters, arguments, name, return type.

    From the right, because demanglers damage return types (``enable_if<T2>(int)0&&..``) and the
    parameter list is always last.
    """
    end = len(tokens) - 1
    suffix_start = end
    while suffix_start >= 0 and tokens[suffix_start] in (*_QUALIFIERS, "&"):
        suffix_start -= 1
    params: tuple[str, ...] | None = None
    suffix = ""
    if suffix_start >= 0 and tokens[suffix_start] == ")" and match[suffix_start] >= 0:
        params = _split(tokens, match, match[suffix_start])
        suffix = _join(tokens[suffix_start + 1 :])
        end = match[suffix_start] - 1
    found = _read_component(tokens, match, end)
    if found is None:
        return None
    last, start = found
    scope: list[Component] = []
    while start > 0 and tokens[start - 1] == "::":
        if start == 1 or tokens[start - 2] == "void":  # `::k`: the global namespace
            start -= 1
            break
        enclosing = _read_enclosing(tokens, match, start - 2)
        if enclosing is None:
            return None
        component, start = enclosing
        scope.append(component)
    returns = tokens[: start - 1] if start and tokens[start - 1] == "::" else tokens[:start]
    if tokens[start] == "::":
        returns = tokens[:start]
    return_type = _join(returns) or None
    if return_type and params is None and return_type != "void":
        return None
    return KernelName(last.name, tuple(reversed(scope)), last.args, params, return_type, suffix)


def _read_component(tokens: list[str], match: list[int], end: int) -> tuple[Component, int] | None:
    """Read the component that ends at index `end`; also the index at which it begins."""
    args: tuple[str, ...] | None = None
    if end >= 0 and tokens[end] == ">" and match[end] >= 0:
        args = _split(tokens, match, match[end])
        end = match[end] - 1
    if end < 0:
        return None
    if tokens[end] == "}" and match[end] >= 0:
        return Component(_join(tokens[match[end] : end + 1]), args), match[end]
    if tokens[end] == ANONYMOUS or (_is_name(tokens[end]) and tokens[end] not in _QUALIFIERS):
        return Component(tokens[end], args), end
    return None


def _read_enclosing(tokens: list[str], match: list[int], end: int) -> tuple[Component, int] | None:
    """Like `_read_component`, for a scope: it may be a function with its parameter list."""
    stop = end
    while stop >= 0 and tokens[stop] in _QUALIFIERS:
        stop -= 1
    if stop < 0 or tokens[stop] != ")" or match[stop] < 0:
        return _read_component(tokens, match, end)
    found = _read_component(tokens, match, match[stop] - 1)
    if found is None:
        return None
    component, start = found
    return Component(component.name, component.args, _join(tokens[match[stop] : end + 1])), start


def _split(tokens: list[str], match: list[int], start: int) -> tuple[str, ...]:
    """Items between the bracket at `start` and its partner, each joined."""
    close = match[start]
    if close == start + 1:
        return ()
    items: list[str] = []
    first = i = start + 1
    while i < close:
        if tokens[i] == ",":
            items.append(_join(tokens[first:i]))
            first = i + 1
        i = max(i, match[i]) + 1
    items.append(_join(tokens[first:close]))
    return tuple(items)


def _cut(args: tuple[str, ...], width: int) -> list[str]:
    """Shorten the longest arguments until all of them, comma separated, fit into `width`."""
    room = max(3, width)
    for count, length in enumerate(sorted(map(len, args))):
        # the shortest `count` arguments stay whole, the others share what is left
        left = width - 2 * (len(args) - 1) - sum(sorted(map(len, args))[:count])
        share = left // (len(args) - count)
        if share < length:
            room = max(3, share)
            break
    return [a if len(a) <= room else a[: room - 1] + "…" for a in args]


def _join(tokens: list[str]) -> str:
    """Canonical text of tokens; `tokenise` gives the same tokens back."""
    parts: list[str] = []
    previous, postfix = "", False
    for token in tokens:
        if previous and _spaced(previous, postfix, token):
            parts.append(" ")
        parts.append(token)
        # `*` and `&` after a type are declarators, elsewhere they are operators of what follows
        postfix = token in "*&" and previous != "" and (postfix or previous[-1] not in "(<,[{*&=|")
        previous = token
    return "".join(parts)


def _spaced(left: str, left_postfix: bool, right: str) -> bool:
    """Whether a space stands between two neighbouring tokens."""
    if left in (",", ":") or right == ":":
        return True
    right_word = _is_word(right) or right == ANONYMOUS
    if right_word and (_is_word(left[-1]) or left_postfix):
        return True
    if left == ">" and right_word and not right[0].isdigit():
        return True
    if right in _QUALIFIERS and left[-1] in ")]":
        return True
    if left.startswith("operator") and left[-1] in "-+*/%^&|=<>!~,":  # operator< <int>
        return not right_word and right not in ("(", ",", "::")
    return left == "-" and right[0] == ">"
