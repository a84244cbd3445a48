"""Engines and their signatures as the rest of the library uses them; read by `registry_file`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from nsysacct.conditions import NumberPredicate
from nsysacct.errors import RegistryError, UnknownEngineError
from nsysacct.model import Semantics
from nsysacct.names import KernelName, parse
from nsysacct.signatures import Pattern
from nsysacct.spelling import number_of


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """What kernels of one pattern are.

    Parameters
    ----------
    id : str
        Unique in its file.
    pattern : str
        As written; ``compiled`` is what matches.
    bucket : str
        A bucket, or ``shared``, ``target``, ``model`` when the name does not tell the phase.
    family : str
        ``gemv``, ``gdn``, ``attention``, ...
    where : dict
        Captured name -> condition on its number.
    geometry : dict
        Launch dimension -> condition; tested by whoever knows the launch.
    width : str
        Capture or launch dimension that is the width of the pass; empty when unknown.
    requests : str
        Launch dimension that is the number of requests; empty when unknown.
    layer : str
        Kind of layer that it runs in.
    per_layer, per_round, per_step : int or None
        Expected instances in one layer, besides the layers in a round, in one draft step; None is
        left open.
    marker : str
        What a kernel that runs once a step marks (``accept``, ``draft-step``, ...), else empty.
    wins : tuple of str
        Ids of signatures that yield to this one when both match.
    matches, rejects : tuple of str
        Example kernel names that it takes and does not take.
    versions : str
        Versions of the engine that have it; empty: all that its file describes.
    source, note : str
        Where the facts come from; anything a reader should know.
    """

    id: str
    pattern: str
    compiled: Pattern
    bucket: str
    family: str
    where: dict[str, NumberPredicate]
    geometry: dict[str, NumberPredicate]
    width: str
    requests: str
    layer: str
    per_layer: int | None
    per_round: int | None
    per_step: int | None
    marker: str
    wins: tuple[str, ...]
    matches: tuple[str, ...]
    rejects: tuple[str, ...]
    source: str
    note: str = ""
    versions: str = ""

    def match(self, name: KernelName) -> Match | None:
        """Match by name; the launch geometry is not looked at."""
        captures = self.compiled.match(name)
        if captures is None or self._where_miss(captures):
            return None
        width = number_of(captures[self.width]) if self.width in captures else None
        return Match(self, captures, width)

    def explain_miss(self, name: KernelName) -> str:
        """Say why `name` is not taken; empty when it is."""
        captures = self.compiled.match(name)
        if captures is None:
            return self.compiled.explain_miss(name)
        return self._where_miss(captures)

    def _where_miss(self, captures: dict[str, str]) -> str:
        for key, condition in self.where.items():
            value = number_of(captures[key])
            if value is None or not condition.test(value):
                return f"{key} is {captures[key]} and not {condition.text}"
        return ""


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """A kernel name that a signature takes.

    ``width`` is the captured width, None when the name does not say. ``otherwise`` is the next
    signature that takes the name if the geometry of this one does not fit the launch.
    """

    signature: Signature
    captures: dict[str, str]
    width: int | None = None
    otherwise: Match | None = None


@dataclass(frozen=True, slots=True)
class NvtxRule:
    """NVTX ranges whose text matches the glob `pattern` belong to `bucket`."""

    pattern: str
    bucket: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Variant:
    """Another way in which an engine's rounds work (``--engine NAME/VARIANT``)."""

    name: str
    semantics: Semantics
    source: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A signature that almost takes a name, and why it does not."""

    signature: Signature
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class EngineSpec:
    """One engine: what its kernels are and how its rounds work.

    ``digest`` is ``sha256:`` and the SHA-256 of the file's data, independent of its layout.
    ``streams`` is ``per-model`` when every model runs on a CUDA stream of its own. ``evidence`` says
    what tells the engine's phases apart (`registry_file.EVIDENCE`). ``steps`` match the texts of NVTX
    ranges around one step, with groups ``requests`` and ``rows``. ``variant`` names the one of
    ``variants`` whose rules ``semantics`` are; empty for the engine's usual ones.
    """

    name: str
    title: str
    aliases: tuple[str, ...]
    versions: str
    source: str
    note: str
    file: str
    digest: str
    semantics: Semantics
    streams: str
    recognise: tuple[Pattern, ...]
    signatures: tuple[Signature, ...]
    nvtx: tuple[NvtxRule, ...]
    evidence: str = "names"
    steps: tuple[re.Pattern[str], ...] = ()
    variants: tuple[Variant, ...] = ()
    variant: str = ""

    def as_variant(self, name: str) -> EngineSpec:
        """The engine with the rules of one of its variants.

        Raises
        ------
        UnknownEngineError
            The engine has no variant of that name.
        """
        for v in self.variants:
            if v.name.casefold() == name.casefold():
                return replace(self, semantics=v.semantics, variant=v.name)
        known = ", ".join(v.name for v in self.variants)
        raise UnknownEngineError(
            f"engine {self.name!r}",
            f"it has no variant {name!r}",
            f"known: {known}" if known else "leave the variant out",
        )

    def as_replaying(self) -> EngineSpec:
        """The engine with the rules of its variant that replays, where its usual rounds do not."""
        if self.semantics.replay != "none":
            return self
        name = next((v.name for v in self.variants if v.semantics.replay != "none"), None)
        return self if name is None else self.as_variant(name)

    def shows_every_verify(self, *, opaque_graphs: bool) -> bool:
        """Whether a capture without a verify kernel is one in which nothing was verified.

        Parameters
        ----------
        opaque_graphs : bool
            The capture has CUDA graphs whose kernels are not in it.
        """
        return self.evidence == "names" or (self.evidence == "nodes" and not opaque_graphs)

    @property
    def caution(self) -> str:
        """What a reader must know about this engine's names; empty when they tell all phases."""
        return {
            "nodes": "a whole round may be one CUDA graph of it: names tell phases only where graphs "
            "are expanded",
            "some": "its registry may not know all kernels: what it does not name proves nothing",
            "nvtx": "its kernel names tell no phase: only NVTX ranges do",
        }.get(self.evidence, "")

    def resolve(self, names: Sequence[str | KernelName]) -> list[Match | None]:
        """Say which signature takes each name: one answer a name, None where none does.

        Parameters
        ----------
        names : sequence of str or KernelName
            Distinct kernel names; each is matched once.

        Raises
        ------
        RegistryError
            Two signatures of different buckets take one name and neither is declared to win.
        """
        return [self.resolve_one(n if isinstance(n, KernelName) else parse(n)) for n in names]

    def resolve_one(self, name: KernelName) -> Match | None:
        """Like `resolve`, for one name."""
        found = [m for s in self.signatures if (m := s.match(name)) is not None]
        if not found:
            return None
        for i, a in enumerate(found):
            for b in found[i + 1 :]:
                self._refuse_conflict(a.signature, b.signature, name)
        order = sorted(
            range(len(found)),
            key=lambda i: (sum(_beats(o.signature, found[i].signature) for o in found), i),
        )
        chain: Match | None = None
        for i in reversed(order):
            m = found[i]
            chain = Match(m.signature, m.captures, m.width, chain if m.signature.geometry else None)
        return chain

    def _refuse_conflict(self, a: Signature, b: Signature, name: KernelName) -> None:
        if a.bucket == b.bucket or _beats(a, b) or _beats(b, a) or _apart(a, b):
            return
        raise RegistryError(
            f"{self.file}: signatures {a.id!r} and {b.id!r}",
            f"both take {name.short()}, one as {a.bucket}, the other as {b.bucket}",
            f"narrow a pattern, or add wins = [{b.id!r}] to {a.id!r}",
        )

    def near_misses(self, name: KernelName) -> list[NearMiss]:
        """Signatures that do not take `name` but have its base name, or much the same."""
        misses = []
        for s in self.signatures:
            reason = s.explain_miss(name)
            if reason and (s.compiled.matches_base(name) or _alike(s.compiled, name)):
                misses.append(NearMiss(s, reason))
        return misses


def _beats(a: Signature, b: Signature) -> bool:
    """Whether `a` goes before `b`: declared, or more specific by its launch geometry."""
    return b.id in a.wins or (bool(a.geometry) and not b.geometry and a.id not in b.wins)


def _apart(a: Signature, b: Signature) -> bool:
    """Whether no launch fits the geometry of both."""
    return any(a.geometry[c].excludes(b.geometry[c]) for c in a.geometry.keys() & b.geometry.keys())


def _alike(pattern: Pattern, name: KernelName) -> bool:
    """Whether a reader may have expected the pattern to take the name."""
    text, base = pattern.parts[-1].text, name.base[:200]
    lead = text[: min((text.find(c) for c in "*{" if c in text), default=0)]
    if len(lead) >= 4 and base.startswith(lead):
        return True
    return SequenceMatcher(None, text, base, autojunk=False).ratio() >= 0.8
