"""The shipped registry files, the reference of keys, and the commonest mistakes in a file."""

from __future__ import annotations

import runpy
import tomllib

import pytest
from conftest import ROOT
from test_registry import MINIMAL, SIGNATURE, read

from nsysacct import registry_tables
from nsysacct.errors import RegistryError
from nsysacct.evidence import Code
from nsysacct.names import parse
from nsysacct.registry import Registry, load_registry, shipped_folder
from nsysacct.registry_file import MARKERS, NVTX_BUCKETS, SIGNATURE_BUCKETS, read_file

FILES = sorted(shipped_folder().glob("*.toml"))
ENGINES = {"kestrel", "llama.cpp", "sglang", "tensorrt-llm", "transformers", "vllm"}
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def engine(name: str):
    return load_registry(env={}).engine(name)


# ---------------------------------------------------------------- all files


def test_the_engines_people_run_are_there():
    assert {read_file(path).name for path in FILES} == ENGINES


@each_file
def test_every_example_holds_against_the_whole_file(path):
    spec = read_file(path)
    assert [str(problem) for problem in Registry((spec,)).check()] == []


@each_file
def test_every_table_has_a_source_and_examples_both_ways(path):
    document = tomllib.loads(path.read_text("utf-8"))
    assert document["engine"]["source"] and document["engine"]["versions"]
    for table in [*document.get("signature", []), *document.get("nvtx", [])]:
        assert table["source"].strip(), table
    for table in document.get("signature", []):
        assert table["matches"] and table["rejects"], table["id"]


@each_file
def test_an_engine_recognises_only_kernels_that_it_has_a_signature_for(path):
    """Names that speak for an engine without saying anything about it would be a trap."""
    spec = read_file(path)
    examples = [parse(text) for s in spec.signatures for text in s.matches]
    for pattern in spec.recognise:
        assert any(pattern.match(name) is not None for name in examples), pattern.text


def test_examples_of_one_engine_are_recognised_as_it():
    registry = load_registry(env={})
    for spec in registry.engines:
        if spec.evidence == "nvtx":
            continue
        names = [text for s in spec.signatures for text in s.matches]
        found, detail = registry.recognise(names)
        assert found is not None and found.name == spec.name, detail


def test_kernels_of_pytorch_alone_speak_for_no_engine():
    names = [
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<int>>(int)",
        "nvjet_sm90_hsh_8x64_64x16_2x1_v_bz_TNN",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(T1::Params)",
    ]
    assert load_registry(env={}).recognise(names)[0] is None


def test_every_bucket_and_marker_means_something_to_the_account():
    words = {b.upper() for b in (*SIGNATURE_BUCKETS, *NVTX_BUCKETS)}
    assert words <= set(Code.__members__)
    used = {s.marker for spec in load_registry(env={}).engines for s in spec.signatures} - {""}
    assert used <= set(MARKERS)
    assert {"accept", "sampled", "draft-start", "draft-step"} <= used


# ---------------------------------------------------------------- what single files must say


def bucket_of(spec, name: str) -> str | None:
    match = spec.resolve([name])[0]
    return match.signature.bucket if match else None


def test_widths_that_draft_models_run_too_are_never_verify_by_name():
    """llama.cpp's catch-up pass, SGLang's draft_extend and gated delta net in plain steps."""
    llama = engine("llama.cpp")
    assert {s.bucket for s in llama.signatures} == {"model", "shared"}
    for width in (1, 4, 5):
        match = llama.resolve([f"void mul_mat_vec_q<(ggml_type)12, (int){width}>(const void *)"])[0]
        assert (match.signature.bucket, match.width) == ("model", width)
    sglang = engine("sglang")
    assert bucket_of(sglang, "_draft_extend_inputs_kernel") == "draft"
    assert bucket_of(sglang, "fused_sigmoid_gating_delta_rule_update_kernel") == "target"
    vllm = engine("vllm")
    for name in ("fused_moe_kernel", "_prepare_prefill_inputs_kernel", "_post_update_kernel"):
        assert bucket_of(vllm, name) == "shared"


@pytest.mark.parametrize(
    "name",
    [
        "void mul_mat_vec_q<(ggml_type)12, (int)5>(const void *, int)",  # 2025
        "void mul_mat_vec_q<(ggml_type)12, 5, false, false, false>(const void *)",  # 2026
        "void mul_mat_vec_q<(ggml_type)12, (int)5, (int)2>(const void *)",  # ik_llama.cpp
        "void fused_mul_mat_vec_q<(ggml_type)12, (int)5, (int)2>(const void *)",
    ],
)
def test_the_width_is_argument_two_in_all_generations_of_llama_cpp(name):
    assert engine("ik_llama.cpp").resolve([name])[0].width == 5


def test_kernels_once_a_round_are_not_counted_by_layers():
    for name in ("vllm", "sglang", "tensorrt-llm"):
        spec = engine(name)
        accepting = [s for s in spec.signatures if s.marker == "accept"]
        assert accepting
        for s in spec.signatures:
            if s.bucket == "verify" and s.family == "sampling":
                assert s.per_layer == 0, s.id


def test_transformers_has_no_names_and_says_what_to_do_instead():
    spec = engine("transformers")
    assert (spec.evidence, spec.recognise, spec.signatures) == ("nvtx", (), ())
    assert not spec.shows_every_verify(opaque_graphs=False)
    assert {(r.pattern, r.bucket) for r in spec.nvtx} == {("draft", "draft"), ("verify", "verify")}
    assert "torch.cuda.nvtx.range" in spec.note and spec.caution


def test_a_round_in_one_graph_is_no_proof_of_no_speculation():
    spec = engine("tensorrt-llm")
    assert spec.shows_every_verify(opaque_graphs=False)
    assert not spec.shows_every_verify(opaque_graphs=True)
    assert engine("vllm").shows_every_verify(opaque_graphs=True)


def test_vllm_has_both_versions():
    spec = engine("vllm")
    newer = {s.id for s in spec.signatures if s.versions == ">=0.33,<0.34"}
    assert spec.versions == ">=0.26,<0.34"
    assert {"gdn-verify", "v2-gather-drafts", "ngram-gpu"} <= newer
    assert "v2-rejection" not in newer


# ---------------------------------------------------------------- the reference


def test_the_reference_of_keys_is_made_from_the_classes():
    script = runpy.run_path(str(ROOT / "docs" / "registry_keys.py"))
    page = (ROOT / "docs" / "registry.md").read_text("utf-8")
    assert script["embedded"](page) == page, "run: python docs/registry_keys.py --write"
    reference = script["reference"]()
    for kind in registry_tables.Table.__subclasses__():
        for key in kind.__struct_fields__:
            assert f"| `{key}` |" in reference


# ---------------------------------------------------------------- the commonest mistakes

MISTAKES = {
    "a key misspelled": (
        SIGNATURE.replace("bucket =", "buckt ="),
        "demo.toml: [[signature]] 1 'gemv': key buckt: is not known; did you mean bucket?",
    ),
    "a key left out": (
        SIGNATURE.replace('source = "made up"\n', ""),
        "demo.toml: [[signature]] 1 'gemv': key source: is missing; add source = ...",
    ),
    "a number in quotes": (
        SIGNATURE + 'per_layer = "1"',
        "demo.toml: [[signature]] 1 'gemv': key per_layer: expected int | null, got str; correct it",
    ),
    "a bucket that is none": (
        SIGNATURE.replace('"verify"', '"verifi"'),
        "demo.toml: [[signature]] 1 'gemv': key bucket: 'verifi' is not known; did you mean verify?",
    ),
    "a capture that the pattern lacks": (
        SIGNATURE.replace('["M"]', '["N"]'),
        "demo.toml: [[signature]] 1 'gemv' key pattern: pattern 'k_gemv<*, M>': column 1: capture N "
        "does not occur in it; name an argument place so",
    ),
    "a bracket that is not closed": (
        SIGNATURE.replace("M>", "M"),
        "demo.toml: [[signature]] 1 'gemv' key pattern: pattern 'k_gemv<*, M': column 7: < is never "
        "closed; add the >",
    ),
    "a parameter list in the pattern": (
        SIGNATURE.replace("k_gemv<*, M>", "k_gemv(int)"),
        "demo.toml: [[signature]] 1 'gemv' key pattern: pattern 'k_gemv(int)': column 7: a pattern "
        "has no parameter list; end it before the (",
    ),
    "a condition that is none": (
        SIGNATURE.replace('">=2"', '"=>2"'),
        "demo.toml: [[signature]] 1 'gemv' key where: condition '=>2' is not a condition on a whole "
        'number; write "3", "2..8", ">=2", "!=1" or "{2,4,8}"',
    ),
    "no example": (
        SIGNATURE.replace('["k_gemv<3, 1>"]', "[]"),
        "demo.toml: [[signature]] 1 'gemv': key rejects: is empty; give at least one kernel name",
    ),
    "one id twice": (
        SIGNATURE + SIGNATURE,
        "demo.toml: [[signature]] 2 'gemv': key id: is that of signature 1 too; choose another",
    ),
    "a marker that is none": (
        SIGNATURE + 'marker = "accepts"',
        "demo.toml: [[signature]] 1 'gemv': key marker: 'accepts' is not known; did you mean accept?",
    ),
    "a version that is no range": (
        SIGNATURE + 'versions = "0.26 to 0.33"',
        "demo.toml: [[signature]] 1 'gemv': key versions: '0.26 to 0.33' is not a range; write \"*\" "
        'or ">=0.26,<0.34"',
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_with_file_table_key_and_remedy(mistake):
    text, message = MISTAKES[mistake]
    with pytest.raises(RegistryError) as caught:
        read(MINIMAL + text)
    assert str(caught.value) == message


def test_evidence_that_is_none():
    with pytest.raises(RegistryError) as caught:
        read(MINIMAL.replace("[engine]", '[engine]\nevidence = "name"'))
    assert str(caught.value) == (
        "demo.toml: [engine]: key evidence: 'name' is not known; did you mean names?"
    )
