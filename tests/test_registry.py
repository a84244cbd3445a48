"""Registry files: strict reading, where they are found, what they resolve and recognise."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from nsysacct.errors import RegistryError, UnknownEngineError
from nsysacct.names import parse
from nsysacct.registry import Registry, load_registry, shipped_folder
from nsysacct.registry_file import read_bytes, read_file

SHIPPED = sorted(shipped_folder().glob("*.toml"))
PARAMS = "(const unsigned char *, const float *, const float *, float *, int, int)"

MINIMAL = """
format = 1
[engine]
name = "demo"
source = "made up"
recognise = ["k_*"]
[semantics]
verify_width = "k+1"
tokens = "n_ok+1"
replay = "none"
"""
SIGNATURE = """
[[signature]]
id = "gemv"
pattern = "k_gemv<*, M>"
capture = ["M"]
where = { M = ">=2" }
bucket = "verify"
family = "gemv"
width = "M"
matches = ["k_gemv<1, 3>"]
rejects = ["k_gemv<3, 1>"]
source = "made up"
"""


def read(text):
    return read_bytes(text.encode(), "demo.toml")


def plus(**fields):
    """A second signature, taken by any k_gemv unless `fields` say otherwise."""
    values = {
        "id": "all",
        "pattern": "k_gemv",
        "bucket": "draft",
        "family": "gemv",
        "matches": ["k_gemv<9, 1>"],
        "rejects": ["other"],
        "source": "made up",
    } | fields
    lines = []
    for key, value in values.items():
        if isinstance(value, dict):
            value = "{ " + ", ".join(f'{k} = "{v}"' for k, v in value.items()) + " }"
        else:
            value = repr(value).replace("'", '"')
        lines.append(f"{key} = {value}")
    return MINIMAL + SIGNATURE + "\n[[signature]]\n" + "\n".join(lines) + "\n"


# ---------------------------------------------------------------- shipped files


def test_every_example_of_every_shipped_file_holds():
    assert [str(p) for p in load_registry(env={}).check()] == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name)
def test_shipped_files_say_where_their_facts_come_from(path):
    spec = read_file(path)
    assert spec.source
    assert spec.recognise or spec.evidence == "nvtx"
    for signature in spec.signatures:
        assert signature.source and signature.matches and signature.rejects


def test_kestrel_takes_its_kernels():
    kestrel = load_registry(env={}).engine("kestrel")
    expected = {
        f"void k_rq_q4_gemv_mr<(int)4, (int)3>{PARAMS}": ("gemv-verify", "verify", 3),
        f"void k_rq_q4_gemv_mr<(int)2, (int)4>{PARAMS}": ("gemv-verify", "verify", 4),
        "k_rq_q4_gemv_mr<1, 3>": ("gemv-verify", "verify", 3),
        f"void k_rq_q4_gemv_mr<(int)1, (int)1>{PARAMS}": ("gemv-draft", "draft", None),
        f"void k_rq_q4_gemv_mr<(int)4, (int)1>{PARAMS}": ("gemv-single", "target", None),
        f"k_rq_q4_gemv3{PARAMS}": ("gemv3", "shared", None),
        "k_gdn_conv_m(const float *, int)": ("gdn-verify", "verify", None),
        "k_gdn_conv(const float *, int)": ("gdn-single", "target", None),
        "k_embed(const float *, float *, int, int)": ("embed-draft", "draft", None),
        "k_fillf(float *, unsigned long, unsigned int)": ("set-up", "other", None),
    }
    found = kestrel.resolve(list(expected))
    assert [(m.signature.id, m.signature.bucket, m.width) for m in found] == list(expected.values())
    assert kestrel.resolve(["k_side_copy(const float *, float *, int, int)", "vectorAdd"]) == [
        None,
        None,
    ]
    assert kestrel.semantics.verify_width == "k"
    assert kestrel.semantics.tokens == "max(n_ok,1)"
    assert kestrel.semantics.replay == "closing-steps"
    assert next(s for s in kestrel.signatures if s.id == "gdn-verify").layer == "gdn"


def test_engines_are_found_by_name_and_alias_in_any_case():
    registry = load_registry(env={})
    assert registry.engine("Kestrel") is registry.engine("kestrel-llm-cuda")
    with pytest.raises(RegistryError, match=r"engine 'kestral': .*did you mean kestrel\?.*known: "):
        registry.engine("kestral")


def test_recognition():
    registry = load_registry(env={})
    names = [f"void k_rq_q4_gemv_mr<(int)4, (int)3>{PARAMS}", "k_gdn_conv_m(int)", "k_rmsnorm(int)"]
    spec, detail = registry.recognise(names)
    assert spec.name == "kestrel"
    assert detail == "2 of 3 kernel names are kestrel's (k_gdn_conv_m, k_rq_q4_gemv_mr)"
    spec, detail = registry.recognise(["vectorAdd(int *)", "k_rmsnorm(float *)"])
    assert spec is None
    assert "no kernel name" in detail
    assert registry.recognise([])[0] is None


# ---------------------------------------------------------------- one file


def test_a_full_signature_is_read():
    spec = read(MINIMAL + SIGNATURE)
    (signature,) = spec.signatures
    assert spec.name == spec.title == "demo"
    assert (signature.layer, signature.per_layer, signature.per_round) == ("all", None, None)
    match = spec.resolve(["void k_gemv<(int)4, (int)3>(int)"])[0]
    assert (match.captures, match.width) == ({"M": "3"}, 3)
    assert spec.resolve(["k_gemv<1, 1>", "k_gemv<1, float>"]) == [None, None]


def test_digest_follows_the_data_and_not_the_layout():
    spec = read(MINIMAL + SIGNATURE)
    assert spec.digest.startswith("sha256:") and len(spec.digest) == 71
    assert (
        read("# a comment\r\n" + (MINIMAL + SIGNATURE).replace("\n", "\r\n")).digest == spec.digest
    )
    reordered = MINIMAL.replace(
        'name = "demo"\nsource = "made up"', 'source="made up"\nname="demo"'
    )
    assert reordered != MINIMAL
    assert read(reordered + SIGNATURE).digest == spec.digest
    assert read(MINIMAL + SIGNATURE.replace(">=2", ">=3")).digest != spec.digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MINIMAL + "[engin]\n", "demo.toml: key engin: is not known; did you mean engine?"),
        (
            MINIMAL.replace("source", "sauce"),
            "demo.toml: [engine]: key sauce: is not known; did you mean source?",
        ),
        (
            MINIMAL.replace('source = "made up"\n', ""),
            "demo.toml: [engine]: key source: is missing; add source = ...",
        ),
        (
            MINIMAL.replace('"n_ok+1"', '"n_ok + 1"'),
            "demo.toml: [semantics]: key tokens: 'n_ok + 1' is not known; did you mean n_ok+1?",
        ),
        (
            MINIMAL.replace('name = "demo"', "name = 3"),
            "demo.toml: [engine]: key name: expected str, got int; correct it",
        ),
        (
            MINIMAL.replace("format = 1", "format = 2"),
            "demo.toml: format 2 is not known; use format 1, or a newer nsysacct",
        ),
        (
            MINIMAL.replace("format = 1\n", ""),
            "demo.toml: key format: is missing; add format = ...",
        ),
        (
            MINIMAL.replace('["k_*"]', '["k_<"]'),
            "demo.toml: [engine] key recognise, entry 1: pattern "
            "'k_<': column 3: < is never closed; add the >",
        ),
        (
            MINIMAL + SIGNATURE.replace("{ M =", "{ K ="),
            "demo.toml: [[signature]] 1 'gemv': key where: 'K' is not known; use M",
        ),
        (
            MINIMAL + SIGNATURE.replace('width = "M"', 'width = "grid_u"'),
            "demo.toml: [[signature]] 1 "
            "'gemv': key width: 'grid_u' is not known; did you mean grid_",
        ),
        (
            MINIMAL + SIGNATURE + "per_layer = -1",
            "demo.toml: [[signature]] 1 'gemv': key per_layer: "
            "is -1; give a count, or leave it out",
        ),
        (
            plus(wins=["gemw"]),
            "demo.toml: [[signature]] 2 'all': key wins: 'gemw' is not known; did you mean gemv?",
        ),
        (
            MINIMAL + '[[nvtx]]\npattern = "x"\nbucket = "model"\nsource = "s"',
            "demo.toml: [[nvtx]] 1: key bucket: 'model' is not known; use draft, verify",
        ),
        (
            MINIMAL + "signature = 3",
            "demo.toml: [semantics]: key signature: is not known; known keys",
        ),
        ("x =", "demo.toml: is not TOML: Invalid value (at end of document)"),
        ("x = " + "[" * 20_000, "demo.toml: is nested too deeply"),
    ],
)
def test_errors_name_file_table_key_and_remedy(text, message):
    with pytest.raises(RegistryError) as caught:
        read(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_text_that_is_not_utf8_is_refused():
    with pytest.raises(RegistryError, match="is not UTF-8"):
        read_bytes(b"x = '\xff'", "demo.toml")


# ---------------------------------------------------------------- several signatures for one name


def test_two_buckets_for_one_name_are_refused():
    spec = read(plus())
    with pytest.raises(RegistryError) as caught:
        spec.resolve(["k_gemv<1, 3>"])
    assert str(caught.value) == (
        "demo.toml: signatures 'gemv' and 'all': both take k_gemv<1, 3>, one as verify, the "
        "other as draft; narrow a pattern, or add wins = ['all'] to 'gemv'"
    )
    assert spec.resolve(["k_gemv<1, 1>"])[0].signature.id == "all"


@pytest.mark.parametrize(
    ("fields", "winner"),
    [
        ({"wins": ["gemv"]}, "all"),
        ({"bucket": "verify"}, "gemv"),
        ({"geometry": {"grid_y": ">=2"}}, "all"),
    ],
)
def test_declared_and_more_specific_signatures_win(fields, winner):
    assert read(plus(**fields)).resolve(["k_gemv<1, 3>"])[0].signature.id == winner


def test_geometry_decides_later_and_the_rest_waits_behind_it():
    match = read(plus(geometry={"grid_y": ">=2"})).resolve(["k_gemv<1, 3>"])[0]
    assert match.signature.geometry["grid_y"].test(2)
    assert not match.signature.geometry["grid_y"].test(1)
    assert match.otherwise.signature.id == "gemv"
    assert match.otherwise.otherwise is None


@pytest.mark.parametrize(("first", "second", "fine"), [("1", ">=2", True), ("1..2", ">=2", False)])
def test_geometries_of_two_buckets_must_exclude_each_other(first, second, fine):
    text = plus(id="a", geometry={"grid_y": first}) + plus(
        id="b", bucket="target", geometry={"grid_y": second}
    ).removeprefix(MINIMAL + SIGNATURE)
    spec = read(text)
    if fine:
        assert {m.signature.id for m in spec.resolve(["k_gemv<1, 1>"])} == {"a"}
    else:
        with pytest.raises(RegistryError, match="signatures 'a' and 'b'"):
            spec.resolve(["k_gemv<1, 1>"])


def test_near_misses_say_why():
    spec = read(MINIMAL + SIGNATURE)
    reasons = {
        text: [m.reason for m in spec.near_misses(parse(text))]
        for text in ("k_gemv<3, 1>", "k_gemv", "k_gemv2<1, 3>", "k_gemv<1, 3>", "memset")
    }
    assert reasons == {
        "k_gemv<3, 1>": ["M is 1 and not >=2"],
        "k_gemv": ["it has no template arguments"],
        "k_gemv2<1, 3>": ["the name is k_gemv2 and not k_gemv"],
        "k_gemv<1, 3>": [],
        "memset": [],
    }


# ---------------------------------------------------------------- where files come from


@pytest.fixture
def own(tmp_path):
    """A folder with a registry file that is not shipped."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "demo.toml").write_text(MINIMAL + SIGNATURE)
    return folder


def test_files_folders_and_the_environment_extend_the_registry(own, tmp_path):
    shipped = {e.name for e in load_registry(env={}).engines}
    assert "kestrel" in shipped and "demo" not in shipped
    for registry in (
        load_registry([own], env={}),
        load_registry([own / "demo.toml"], env={}),
        load_registry(env={"NSYSACCT_REGISTRY": str(own)}),
        load_registry(env={"NSYSACCT_REGISTRY": f"{os.pathsep}{own}{os.pathsep}"}),
    ):
        assert {e.name for e in registry.engines} == shipped | {"demo"}


def test_later_files_replace_an_engine_of_the_same_name_and_versions(own, tmp_path):
    later = tmp_path / "later.toml"
    later.write_text(MINIMAL)
    registry = load_registry([later], env={"NSYSACCT_REGISTRY": str(own)})
    assert registry.engine("demo").signatures == ()
    newer = tmp_path / "kestrel.toml"
    newer.write_text(MINIMAL.replace('"demo"', '"kestrel"'))
    assert load_registry([own, newer], env={}).engines[-1].name == "kestrel"  # loaded last
    other = tmp_path / "other.toml"
    other.write_text(MINIMAL.replace("[engine]", '[engine]\nversions = ">=2"'))
    both = load_registry([own, other], env={})
    assert [e.versions for e in both.engines if e.name == "demo"] == ["*", ">=2"]
    assert both.engine("demo").versions == ">=2"


def test_engines_that_fit_equally_well_are_not_guessed_between(own, tmp_path):
    rival = tmp_path / "rival.toml"
    rival.write_text(MINIMAL.replace('"demo"', '"rival"'))
    spec, detail = load_registry([own, rival], env={}).recognise(["k_xyz(int)"])
    assert spec is None
    assert detail == "demo and rival fit equally well, by 1 kernel names each"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda p: p / "absent.toml", "cannot be read (No such file or directory)"),
        (lambda p: p, "no .toml file in this folder"),
    ],
)
def test_missing_files_are_named(tmp_path, make, problem):
    with pytest.raises(RegistryError) as caught:
        load_registry([make(tmp_path)], env={})
    assert problem in str(caught.value) and str(tmp_path) in str(caught.value)


def test_check_finds_examples_that_fail():
    text = MINIMAL + SIGNATURE.replace('"k_gemv<1, 3>"', '"k_gemv<3, 1>", "k_gemv<1, 2>"')
    registry = load_registry(env={})
    registry = type(registry)((read(text), read(plus(matches=["k_gemv<1, 3>"]))))
    assert [str(p) for p in registry.check()] == [
        "demo: signature 'gemv': k_gemv<3, 1>: is not taken: M is 1 and not >=2",
        "demo: signature 'gemv': k_gemv<1, 3>: both take k_gemv<1, 3>, one as verify, the "
        "other as draft; narrow a pattern, or add wins = ['all'] to 'gemv'",
        "demo: signature 'all': k_gemv<1, 3>: both take k_gemv<1, 3>, one as verify, the "
        "other as draft; narrow a pattern, or add wins = ['all'] to 'gemv'",
    ]
    taken = type(registry)((read(MINIMAL + SIGNATURE.replace('"k_gemv<3, 1>"', '"k_gemv<1, 2>"')),))
    assert [p.what for p in taken.check()] == ["is taken, but listed in rejects"]
    beaten = type(registry)((read(plus(wins=["gemv"])),))
    assert [p.what for p in beaten.check()] == ["is taken by 'all' instead"]


def test_files_inside_the_package_are_found_as_in_a_wheel(tmp_path):
    package = Path(sys.modules["nsysacct"].__file__).parent
    shutil.copytree(package, tmp_path / "nsysacct", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(
        shipped_folder(), tmp_path / "nsysacct" / "kernels_registry", dirs_exist_ok=True
    )
    code = "from nsysacct.registry import *; print(shipped_folder(), len(load_registry().engines))"
    environment = {k: v for k, v in os.environ.items() if k != "NSYSACCT_REGISTRY"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(tmp_path)},
    )
    expected = (tmp_path / "nsysacct" / "kernels_registry").resolve()
    assert done.stdout.split() == [str(expected), str(len(SHIPPED))]


def test_the_build_puts_the_files_into_the_wheel():
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included["kernels_registry"] == "nsysacct/kernels_registry"


# ---------------------------------------------------------------- variants

VARIANT = '\n[[variant]]\nname = "twice"\nsource = "s"\nreplay = "checkpoint"\n'


def test_a_variant_changes_the_rules_that_it_names():
    spec = read(MINIMAL + SIGNATURE + VARIANT)
    assert spec.variant == "" and spec.semantics.replay == "none"
    twice = Registry((spec,)).engine(f"{spec.name}/Twice")
    assert (twice.name, twice.variant, twice.digest) == (spec.name, "twice", spec.digest)
    assert twice.semantics.replay == "checkpoint"
    assert twice.semantics.tokens == spec.semantics.tokens
    assert spec.as_replaying().variant == "twice"


def test_an_engine_that_replays_by_its_usual_rules_stays_as_it_is():
    kestrel = load_registry(env={}).engine("kestrel")
    assert kestrel.as_replaying() is kestrel


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("llama.cpp/chek", "engine 'llama.cpp': it has no variant 'chek'; known: checkpoint"),
        ("kestrel/x", "engine 'kestrel': it has no variant 'x'; leave the variant out"),
        ("llama.cpp/", "it has no variant ''"),
    ],
)
def test_a_variant_that_there_is_not(name, message):
    with pytest.raises(UnknownEngineError, match=re.escape(message)):
        load_registry(env={}).engine(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('name = "a/b"', "key name: 'a/b' is no name of its own"),
        ('name = ""', "key name: '' is no name of its own"),
        ('tokens = "n_ok+3"\nname = "x"', "key tokens: 'n_ok+3' is not known"),
        ('name = "x"\nwidth = 3', "key width"),
    ],
)
def test_a_variant_that_cannot_be(change, message):
    text = MINIMAL + SIGNATURE + f'\n[[variant]]\nsource = "s"\n{change}\n'
    with pytest.raises(RegistryError, match=re.escape(message)) as caught:
        read(text)
    assert "[[variant]] 1" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("step {rows}", "has no single {requests}"), ("{requests} {rows} {rows}", "no single {rows}")],
)
def test_a_step_range_names_both_numbers_once(text, message):
    with pytest.raises(RegistryError, match=re.escape(message)):
        read(MINIMAL + SIGNATURE + f'\n[[step]]\ntext = "{text}"\nsource = "s"\n')


def test_a_step_range_is_matched_as_a_whole_and_literally():
    text = r'"step.{requests}*({rows})"'
    (step,) = read(MINIMAL + SIGNATURE + f"\n[[step]]\ntext = {text}\nsource = 's'\n").steps
    match = step.fullmatch("step.2 and more(8)")
    assert match and (match["requests"], match["rows"]) == ("2", "8")
    assert not step.fullmatch("stepx2(8)") and not step.fullmatch("step.2(8) ")


# ---------------------------------------------------------------- the engine of a trace

VLLM_NAMES = ["_rejection_kernel", "_gather_draft_sampled_kernel", "_resample_kernel"]


def test_the_engine_asked_for_is_misnamed_where_only_anothers_kernels_are():
    known = load_registry(env={})
    right = known.choose(VLLM_NAMES, "vllm")
    assert (right.spec, right.misnamed, right.how) == (known.engine("vllm"), False, "given")
    wrong = known.choose(VLLM_NAMES, "kestrel")
    assert (wrong.name, wrong.spec, wrong.misnamed) == ("kestrel", None, True)
    assert wrong.detail.endswith("no names of kestrel are used")
    nameless = known.choose(VLLM_NAMES, "transformers")
    assert nameless.misnamed and nameless.spec is not None  # for its NVTX rules
    assert not known.choose(["vectorAdd"], "kestrel").misnamed  # nobody's
    assert not known.choose([*VLLM_NAMES, "k_gdn_conv_m"], "kestrel").misnamed  # its own is there


def test_an_engine_known_only_by_its_name_may_look_like_another():
    text = (MINIMAL + SIGNATURE).replace('["k_*"]', "[]")
    both = Registry((*load_registry(env={}).engines, read(text)))
    assert both.choose(VLLM_NAMES, "demo").spec is not None
    assert not both.choose(VLLM_NAMES, "demo").misnamed
