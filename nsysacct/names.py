"""Kernel names: what a demangled C++ function name says, in one spelling.

Nsight Systems stores a kernel's name as its demangler wrote it when the trace was captured
(StringIds.value by CUPTI_ACTIVITY_KIND_KERNEL.demangledName), and demanglers differ:
``k<(int)4, (bool)1>(const float *)``, ``k<4, true>(float const*)``, ``<unnamed>::`` or
``(anonymous namespace)::``, ``[lambda(float) (instance 1)]`` or ``{lambda(float)#1}``. `parse`
reads all of them into a `KernelName` whose parts are spelled one way, so that names can be
compared.

A text that is not a C++ function name (``ampere_sgemm_128x64_nn``, a mangled ``_Z..``, a Triton name, a
name damaged by its demangler) is a name all the same: a plain one, or an *opaque* one whose base is the
whole text. `spelling` says what one way of spelling is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from nsysacct.spelling import (
    ANONYMOUS,
    QUALIFIERS,
    angled,
    canonical_tokens,
    is_name,
    joined,
    split_list,
)


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
    read = canonical_tokens(text)
    name = None if read is None else _read_name(*read)
    return KernelName(base=text.strip(), opaque=True) if name is None else name


def _read_name(tokens: list[str], match: list[int]) -> KernelName | None:
    """Read canonical tokens from the right: suffix, parameters, arguments, name, return type.

    From the right, because demanglers damage return types (``enable_if<T2>(int)0&&..``) and the
    parameter list is always last.
    """
    end = len(tokens) - 1
    suffix_start = end
    while suffix_start >= 0 and tokens[suffix_start] in (*QUALIFIERS, "&"):
        suffix_start -= 1
    params: tuple[str, ...] | None = None
    suffix = ""
    if suffix_start >= 0 and tokens[suffix_start] == ")" and match[suffix_start] >= 0:
        params = split_list(tokens, match, match[suffix_start])
        suffix = joined(tokens[suffix_start + 1 :])
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
    return_type = joined(returns) or None
    if return_type and params is None and return_type != "void":
        return None
    return KernelName(last.name, tuple(reversed(scope)), last.args, params, return_type, suffix)


def _read_component(tokens: list[str], match: list[int], end: int) -> tuple[Component, int] | None:
    """Read the component that ends at index `end`; also the index at which it begins."""
    args: tuple[str, ...] | None = None
    if end >= 0 and tokens[end] == ">" and match[end] >= 0:
        args = split_list(tokens, match, match[end])
        end = match[end] - 1
    if end < 0:
        return None
    if tokens[end] == "}" and match[end] >= 0:
        return Component(joined(tokens[match[end] : end + 1]), args), match[end]
    if tokens[end] == ANONYMOUS or (is_name(tokens[end]) and tokens[end] not in QUALIFIERS):
        return Component(tokens[end], args), end
    return None


def _read_enclosing(tokens: list[str], match: list[int], end: int) -> tuple[Component, int] | None:
    """Like `_read_component`, for a scope: it may be a function with its parameter list."""
    stop = end
    while stop >= 0 and tokens[stop] in QUALIFIERS:
        stop -= 1
    if stop < 0 or tokens[stop] != ")" or match[stop] < 0:
        return _read_component(tokens, match, end)
    found = _read_component(tokens, match, match[stop] - 1)
    if found is None:
        return None
    component, start = found
    return Component(component.name, component.args, joined(tokens[match[stop] : end + 1])), start


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
