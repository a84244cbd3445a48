"""The tables of a registry file as classes: every key with its type, default and meaning.

`registry_file` reads files into them, and the reference in docs/registry.md is made from them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta


class Table(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of the tables of a file."""


class Engine(Table):
    """``[engine]``: which engine the file describes."""

    name: Annotated[str, Meta(description="what `--engine` takes")]
    source: Annotated[str, Meta(description="where the facts of the file come from")]
    recognise: Annotated[
        list[str],
        Meta(description="patterns; kernels that match speak for this engine. Empty: only by name"),
    ]
    title: Annotated[str, Meta(description="full name, for readers")] = ""
    aliases: Annotated[list[str], Meta(description="further names for `--engine`")] = []
    versions: Annotated[
        str, Meta(description="versions it holds for, `*` or like `>=0.26,<0.34`; for readers")
    ] = "*"
    evidence: Annotated[
        str,
        Meta(
            description="what tells its phases apart: `names`: kernel names; `nodes`: kernel names, "
            "but a round may be one CUDA graph, so only where graphs are expanded; `some`: kernel "
            "names, perhaps not all, so none missing proves anything; `nvtx`: no name, only NVTX ranges"
        ),
    ] = "names"
    note: Annotated[str, Meta(description="anything a reader should know")] = ""


class Semantics(Table):
    """``[semantics]``: how a round works, by named rules."""

    verify_width: Annotated[str, Meta(description="rows of a verify pass: `k` or `k+1`")]
    tokens: Annotated[
        str,
        Meta(description="tokens that a round emits: `n_ok+1`, `max(n_ok,1)` or `min(n_ok+2,k+1)`"),
    ]
    replay: Annotated[
        str,
        Meta(
            description="target passes after a rejection: `none`, `closing-steps` (single-token "
            "steps over what was accepted) or `checkpoint` (one second pass)"
        ),
    ]


class Variant(Table):
    """``[[variant]]``: another way in which the engine's rounds work, in the same kernels.

    Keys left out are those of ``[semantics]``.
    """

    name: Annotated[str, Meta(description="what follows the engine: `--engine NAME/VARIANT`")]
    source: Annotated[str, Meta(description="where the fact comes from")]
    verify_width: Annotated[str, Meta(description="as in `[semantics]`")] = ""
    tokens: Annotated[str, Meta(description="as in `[semantics]`")] = ""
    replay: Annotated[str, Meta(description="as in `[semantics]`")] = ""
    note: Annotated[str, Meta(description="anything a reader should know")] = ""


class Passes(Table):
    """``[passes]``: how the engine launches its passes."""

    streams: Annotated[
        Literal["", "per-model"],
        Meta(description="`per-model`: every model runs on a CUDA stream of its own"),
    ] = ""


class Signature(Table):
    """``[[signature]]``: what the kernels of one pattern are."""

    id: Annotated[str, Meta(description="unique in the file")]
    pattern: Annotated[
        str, Meta(description="kernel names that it takes; see the pattern language")
    ]
    bucket: Annotated[
        str,
        Meta(
            description="phase that alone runs it; or `shared`: several phases do; `target`: the "
            "target model in any phase; `model`: some model in any phase, told by width and stream"
        ),
    ]
    family: Annotated[
        str, Meta(description="kind of work: `gemv`, `gdn`, `attention`, `norm`, ...")
    ]
    matches: Annotated[list[str], Meta(description="kernel names that it must take")]
    rejects: Annotated[list[str], Meta(description="kernel names that it must not take")]
    source: Annotated[str, Meta(description="where the fact comes from")]
    capture: Annotated[
        list[str], Meta(description="bare names in the pattern that bind an argument")
    ] = []
    where: Annotated[
        dict[str, str], Meta(description="captured name -> condition on its number: `>=2`, `2..8`")
    ] = {}
    geometry: Annotated[
        dict[str, str],
        Meta(description="launch dimension (`grid_x` .. `block_z`) -> condition on it"),
    ] = {}
    width: Annotated[
        str, Meta(description="capture or launch dimension that is the rows of the pass")
    ] = ""
    requests: Annotated[
        str, Meta(description="launch dimension that is the number of requests in the pass")
    ] = ""
    layer: Annotated[
        str, Meta(description="kind of layer that runs it: `all`, `gdn`, `attention`, `moe`, ...")
    ] = "all"
    per_layer: Annotated[
        int | None,
        Meta(
            description="instances in one such layer; 0: counted by the round; left out: solved for"
        ),
    ] = None
    per_round: Annotated[
        int | None, Meta(description="further instances a round; left out: solved for")
    ] = None
    per_step: Annotated[int | None, Meta(description="instances in one draft step")] = None
    marker: Annotated[
        str,
        Meta(
            description="what it marks, running once a step: `accept`: drafts are accepted, the "
            "verify pass ends; `sampled`: sampling ends, drafting may follow; `draft-start`, "
            "`draft-step`: a draft pass begins; `pass-end`: a pass of some model ends"
        ),
    ] = ""
    wins: Annotated[
        list[str], Meta(description="ids of signatures that yield when both take a name")
    ] = []
    versions: Annotated[
        str, Meta(description="versions that have it, when not all of the file's do")
    ] = ""
    note: Annotated[str, Meta(description="anything a reader should know")] = ""


class Nvtx(Table):
    """``[[nvtx]]``: what NVTX ranges of one text enclose."""

    pattern: Annotated[str, Meta(description="glob on the range's text, case-sensitive")]
    bucket: Annotated[
        str,
        Meta(
            description="phase of what is launched inside; or `target`: the target's pass in any "
            "phase; `shared`: several phases"
        ),
    ]
    source: Annotated[str, Meta(description="where the fact comes from")]
    note: Annotated[str, Meta(description="anything a reader should know")] = ""


class Step(Table):
    """``[[step]]``: NVTX ranges that enclose one step of the engine, with its numbers in their text."""

    text: Annotated[
        str,
        Meta(
            description="text of a range: `{requests}` and `{rows}` stand for the requests that generate "
            "and the rows that they run, `*` for anything"
        ),
    ]
    source: Annotated[str, Meta(description="where the fact comes from")]
    note: Annotated[str, Meta(description="anything a reader should know")] = ""


class File(Table):
    """The whole file."""

    format: Annotated[int, Meta(description="version of the format: 1")]
    engine: Annotated[dict[str, Any], Meta(description="table, see below")]
    semantics: Annotated[dict[str, Any], Meta(description="table, see below")]
    passes: Annotated[dict[str, Any], Meta(description="table, see below")] = {}
    variant: Annotated[list[dict[str, Any]], Meta(description="tables, see below")] = []
    signature: Annotated[list[dict[str, Any]], Meta(description="tables, see below")] = []
    nvtx: Annotated[list[dict[str, Any]], Meta(description="tables, see below")] = []
    step: Annotated[list[dict[str, Any]], Meta(description="tables, see below")] = []
