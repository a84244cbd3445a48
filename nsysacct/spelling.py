"""One spelling of C++ names: tokens, brackets that pair, casts and qualifiers in one place.

Works on tokens with explicit stacks: linear in the length of the text and without recursion.

Canonical spelling: no cast before integers and booleans (``4``, ``true``), enumerations keep theirs
(``(ggml_type)12``); no integer suffix; ``const`` before the type that it belongs to; a space only
between words, after a comma, and between ``*``, ``&`` or ``>`` and a word.
"""

from __future__ import annotations

import re

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
QUALIFIERS = frozenset({"const", "volatile", "noexcept"})
_NOT_A_TEMPLATE = QUALIFIERS | {"true", "false"}
_MARKS = frozenset({"::", "...", "->", *"<>()[]{},*&+-/%^|~!=#?:"})
_OPENER = {")": "(", "]": "[", "}": "{"}
_OPEN_END = re.compile(r"-$|\boperator[-+*/%^&|=<>!~,]+$")


def normalise(text: str) -> str:
    """Canonical spelling of a fragment such as a type or a template argument.

    Examples
    --------
    >>> normalise("std::array<char const *, (unsigned long) 1> ")
    'std::array<const char*, 1>'
    """
    read = canonical_tokens(text)
    return text.strip() if read is None else joined(read[0])


def canonical_tokens(text: str) -> tuple[list[str], list[int]] | None:
    """Tokens in canonical spelling and the partner of each bracket; None of what is no C++ name."""
    tokens, _ = tokenise(text)
    match = match_brackets(tokens)
    return None if match is None or not _readable(tokens) else _canonical(tokens, match)


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
            parts += [joined(tokens[start:i]), split_list(tokens, match, i)]
            start = match[i] + 1
        i = max(i, match[i]) + 1
    return [*parts, joined(tokens[start:])] if start < len(tokens) else parts


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
    return is_name(token) and token not in _NOT_A_TEMPLATE


def is_name(token: str) -> bool:
    """Whether a token is an identifier."""
    return token[0].isalpha() or token[0] in "_$"


def is_word(token: str) -> bool:
    """Whether a token is an identifier or a number."""
    return token[0].isalnum() or token[0] in "_$"


def _readable(tokens: list[str]) -> bool:
    return all(len(t) > 1 or is_word(t) or t in _MARKS for t in tokens)


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
    after_type = is_name(token) and token not in QUALIFIERS and not token.startswith("operator")
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
    called = left != "" and (is_word(left) or left in ")>]}-")
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


def split_list(tokens: list[str], match: list[int], start: int) -> tuple[str, ...]:
    """Items between the bracket at `start` and its partner, each joined."""
    close = match[start]
    if close == start + 1:
        return ()
    items: list[str] = []
    first = i = start + 1
    while i < close:
        if tokens[i] == ",":
            items.append(joined(tokens[first:i]))
            first = i + 1
        i = max(i, match[i]) + 1
    items.append(joined(tokens[first:close]))
    return tuple(items)


def joined(tokens: list[str]) -> str:
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
    right_word = is_word(right) or right == ANONYMOUS
    if right_word and (is_word(left[-1]) or left_postfix):
        return True
    if left == ">" and right_word and not right[0].isdigit():
        return True
    if right in QUALIFIERS and left[-1] in ")]":
        return True
    if left.startswith("operator") and left[-1] in "-+*/%^&|=<>!~,":  # operator< <int>
        return not right_word and right not in ("(", ",", "::")
    return left == "-" and right[0] == ">"
