"""The registry: which engines are known, and which one a capture is of.

Files (see `registry_file` for their format) come from three places, later ones replacing an engine
of the same name and versions: the ones that are shipped (in the package when installed from a
wheel, beside it in a checkout or an editable install), the paths in ``NSYSACCT_REGISTRY``
(separated like ``PATH``), and the paths given. A path is a file, or a folder of ``*.toml`` files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from nsysacct.errors import RegistryError, UnknownEngineError
from nsysacct.model import Finding
from nsysacct.names import KernelName, parse
from nsysacct.registry_file import read_file
from nsysacct.specs import EngineSpec, Match, NearMiss, NvtxRule, Signature

__all__ = [
    "ENVIRONMENT",
    "Choice",
    "EngineSpec",
    "Explanation",
    "Match",
    "NearMiss",
    "NvtxRule",
    "Problem",
    "Registry",
    "Signature",
    "load_registry",
    "shipped_folder",
]

ENVIRONMENT = "NSYSACCT_REGISTRY"
"""Environment variable with further registry paths."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An example of a registry file that does not do what the file says."""

    engine: str
    signature: str
    example: str
    what: str

    def __str__(self) -> str:
        return f"{self.engine}: signature {self.signature!r}: {self.example}: {self.what}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one engine's signatures make of a kernel name."""

    engine: EngineSpec
    match: Match | None
    near: tuple[NearMiss, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The engine whose registry a trace is read with.

    Attributes
    ----------
    name : str
        As asked for or recognised, or ``unknown``.
    spec : EngineSpec or None
        None: no names are used.
    how : str
        "given", "recognised" or "none".
    detail : str
        Why, in words.
    misnamed : bool
        Whether the engine asked for is not the one of this trace, so that its names say nothing.
    """

    name: str
    spec: EngineSpec | None
    how: str
    detail: str
    misnamed: bool = False

    @property
    def findings(self) -> list[Finding]:
        """The warning that the engine asked for is misnamed."""
        if not self.misnamed:
            return []
        return [
            Finding(
                kind="engine",
                severity="warning",
                detail=f"--engine {self.name}: {self.detail}",
                remedy="leave --engine out",
            )
        ]


@dataclass(frozen=True, slots=True)
class Registry:
    """All engines that are known, in the order in which they were loaded."""

    engines: tuple[EngineSpec, ...]

    def engine(self, name: str) -> EngineSpec:
        """Return the engine of that name or alias; of several version ranges, the last loaded.

        ``NAME/VARIANT`` gives it the rules of one of its variants.

        Raises
        ------
        RegistryError
            No engine is called so; the message names those that are.
        """
        wanted = name.casefold()
        for spec in reversed(self.engines):
            if wanted in (n.casefold() for n in (spec.name, *spec.aliases)):
                return spec
        engine, slash, variant = name.rpartition("/")
        if slash and engine:
            return self.engine(engine).as_variant(variant)
        known = sorted({n for spec in self.engines for n in (spec.name, *spec.aliases)})
        close = get_close_matches(wanted, [n.casefold() for n in known], 1, 0.6)
        engines = ", ".join(sorted({spec.name for spec in self.engines})) or "none"
        hint = f"did you mean {close[0]}? " if close else ""
        raise UnknownEngineError(
            f"engine {name!r}", "no registry describes it", f"{hint}known: {engines}"
        )

    def choose(self, names: Sequence[str], wanted: str | None = None) -> Choice:
        """Choose the engine to read a trace with.

        An engine asked for is misnamed where another engine's kernels are in the trace and it names none
        itself, or knows its own and none is there: what little of its names fits says something else.

        Parameters
        ----------
        names : sequence of str
            Distinct kernel names.
        wanted : str, optional
            Engine (or ``NAME/VARIANT``) asked for; None recognises it.

        Raises
        ------
        UnknownEngineError
            No engine is called so.
        """
        given = None if wanted is None else self.engine(wanted)
        seen, why = self.recognise(names)
        if given is None:
            details = [why, seen.caution if seen else ""]
            name, how = (seen.name, "recognised") if seen else ("unknown", "none")
            return Choice(name, seen, how, "; ".join(d for d in details if d))
        details = [given.caution]
        misnamed = False
        if seen is not None and seen.name != given.name:
            own = _known_bases(given, [parse(n) for n in names])
            misnamed = not given.signatures or (bool(given.recognise) and not own)
            details.append(f"the kernels look like {seen.name}'s: {why}")
            details.append(f"no names of {given.name} are used" if misnamed else "")
        spec = None if misnamed and given.signatures else given  # NVTX rules do not name kernels
        return Choice(given.name, spec, "given", "; ".join(d for d in details if d), misnamed)

    def recognise(self, names: Sequence[str]) -> tuple[EngineSpec | None, str]:
        """Recognise the engine of a capture from its kernel names.

        The engine wins whose ``recognise`` patterns match most distinct base names.

        Parameters
        ----------
        names : sequence of str
            Distinct kernel names.

        Returns
        -------
        engine : EngineSpec or None
            None when no pattern matches, or two engines fit equally well.
        detail : str
            Why, in words.
        """
        parsed = [parse(n) for n in names]
        found: list[tuple[int, EngineSpec, list[str]]] = []
        for spec in self.engines:
            bases = _known_bases(spec, parsed)
            if bases:
                found.append((len(bases), spec, bases))
        if not found:
            return None, "no kernel name speaks for an engine that is known"
        best = max(count for count, _, _ in found)
        leaders = [(spec, bases) for count, spec, bases in found if count == best]
        rivals = sorted({spec.name for spec, _ in leaders})
        if len(rivals) > 1:
            return None, f"{' and '.join(rivals)} fit equally well, by {best} kernel names each"
        spec, bases = leaders[-1]
        examples = ", ".join(bases[:3]) + (", ..." if len(bases) > 3 else "")
        total = len({n.base for n in parsed})
        return spec, f"{best} of {total} kernel names are {spec.name}'s ({examples})"

    def explain(self, text: str) -> tuple[KernelName, list[Explanation]]:
        """Parse a kernel name and say what each engine makes of it.

        Returns
        -------
        name : KernelName
        explanations : list of Explanation
            One an engine that takes the name or nearly does, takers first.
        """
        name = parse(text)
        found = [
            Explanation(spec, spec.resolve_one(name), tuple(spec.near_misses(name)))
            for spec in self.engines
        ]
        told = [e for e in found if e.match or e.near]
        return name, sorted(told, key=lambda e: e.match is None)

    def check(self) -> list[Problem]:
        """Run every example of every file through all signatures of its engine.

        Returns
        -------
        list of Problem
            Empty when every ``matches`` example is taken by its signature and no ``rejects``
            example is, and no two signatures contradict each other on an example.
        """
        return [problem for spec in self.engines for problem in _check(spec)]


def _known_bases(spec: EngineSpec, names: Sequence[KernelName]) -> list[str]:
    """Base names that speak for an engine."""
    return sorted({n.base for n in names if any(p.match(n) is not None for p in spec.recognise)})


def _check(spec: EngineSpec) -> Iterator[Problem]:
    for signature in spec.signatures:
        for text in signature.matches:
            what = _failure(spec, signature, text)
            if what:
                yield Problem(spec.name, signature.id, text, what)
        for text in signature.rejects:
            if signature.match(parse(text)) is not None:
                yield Problem(spec.name, signature.id, text, "is taken, but listed in rejects")


def _failure(spec: EngineSpec, signature: Signature, text: str) -> str:
    """Why the engine does not give the example to the signature; empty when it does."""
    name = parse(text)
    reason = signature.explain_miss(name)
    if reason:
        return f"is not taken: {reason}"
    try:
        match = spec.resolve_one(name)
    except RegistryError as error:
        return f"{error.problem}; {error.remedy}"
    takers = []
    while match is not None:
        takers.append(match.signature.id)
        match = match.otherwise
    return "" if signature.id in takers else f"is taken by {takers[0]!r} instead"


def shipped_folder() -> Path:
    """Folder of the files that come with the library.

    Raises
    ------
    RegistryError
        The installation lacks them.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "kernels_registry", package.parent / "kernels_registry"):
        if any(folder.glob("*.toml")):
            return folder
    raise RegistryError("kernels_registry", "not found", "install nsysacct again")


def load_registry(
    paths: Iterable[str | os.PathLike[str]] = (), *, env: Mapping[str, str] | None = None
) -> Registry:
    """Load the shipped files and further ones.

    Parameters
    ----------
    paths : iterable of path
        Files or folders; they replace engines of the same name and versions.
    env : mapping, optional
        Environment to look up ``NSYSACCT_REGISTRY`` in; the process's by default.

    Raises
    ------
    RegistryError
        A file or folder is missing, or a file is not valid.
    """
    variable = (os.environ if env is None else env).get(ENVIRONMENT, "")
    places = [shipped_folder(), *(Path(p) for p in variable.split(os.pathsep) if p)]
    places += [Path(p) for p in paths]
    engines: dict[tuple[str, str], EngineSpec] = {}
    for place in places:
        for file in _files(place):
            spec = read_file(file)
            engines.pop((spec.name, spec.versions), None)
            engines[spec.name, spec.versions] = spec
    return Registry(tuple(engines.values()))


def _files(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    found = sorted(place.glob("*.toml"))
    if not found:
        raise RegistryError(str(place), "no .toml file in this folder", "name a registry file")
    return found
