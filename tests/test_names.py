"""Kernel names: real spellings, spellings of several demanglers, and every odd text."""

import time

import pytest
from conftest import TRACES, stored_names
from hypothesis import example, given
from hypothesis import strategies as st

from nsysacct.names import KernelName, parse
from nsysacct.spelling import normalise, number_of, segments

PACKED = sorted(TRACES.glob("*.sqlite.xz"))

GEMV = "void k_rq_q4_gemv_mr<(int)4, (int)3>(const unsigned char *, const float *, float *, int)"
ARANGE = (
    "void <unnamed>::elementwise_kernel_with_index<int, at::native::arange_cuda_out(const "
    "c10::Scalar &, at::Tensor &)::[lambda() (instance 1)]::operator ()() const::[lambda() "
    "(instance 3)]::operator ()() const::[lambda(long) (instance 1)]>(T1, T2, "
    "function_traits<T2>::result_type *)"
)
DAMAGED = (
    "std::enable_if<T2>(int)0&&vllm::_typeConvert<T1>::exists, void>::type "
    "vllm::fused_add_rms_norm_kernel<c10::BFloat16, (int)8, (bool)1>(T1 *, long, float, int)"
)
REAL = [
    GEMV,
    ARANGE,
    DAMAGED,
    "k_rq_q4_gemv3(const unsigned char *, const float *, const float *, float *, int, int)",
    "init_minval()",
    "ampere_sgemm_128x64_nn",
    "triton_poi_fused_add_bitwise_and_clamp_copy__ge_gt_index_where_0",
    "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT",
    "_ZN7cutlass6KernelINS_4gemm6kernel4GemmINS1_11threadblock12MmaPipelinedEEEEEvNT_6ParamsE",
    "void mul_mat_vec_q<(ggml_type)12, (int)2, (bool)0, (bool)0, (bool)0>(const void *, uint3)",
    "void unary_gated_op_kernel<&op_silu, float>(const T2 *, T2 *, long)",
    "void cpy_scalar<&cpy_1_scalar<float, float>>(const char *, char *, long)",
    "void at::native::<unnamed>::indexSelectSmallIndex<c10::Half, long, (int)-2>(T1, T3)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::gelu(at::TensorIteratorBase&)"
    "::{lambda()#1}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >(int, T2, T3)",
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::Fwd<(int)2, cute::C<(int)1>>>>"
    "(T1::Params)",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
    "void apply<void (*)(int, float const*), int (&) [3]>(void (*)(int, float const*))",
    "void run<(ns::Mode)-1, 0u, 1ul, false>(unsigned int, T5...)",
    "__omp_offloading_31_18a80a1__Z_1...",
    "<string id 17>",
    "",
]


def test_parts_of_a_template_kernel():
    name = parse(GEMV)
    assert name.return_type == "void"
    assert (name.base, name.scope, name.qualified) == ("k_rq_q4_gemv_mr", (), "k_rq_q4_gemv_mr")
    assert name.args == ("4", "3")
    assert name.params == ("const unsigned char*", "const float*", "float*", "int")
    assert not name.opaque


def test_a_plain_function_has_no_arguments_and_an_empty_parameter_list_is_not_none():
    assert parse("k_rmsnorm(const float *, int)").args is None
    assert parse("init_minval()").params == ()
    assert parse("ampere_sgemm_128x64_nn") == KernelName("ampere_sgemm_128x64_nn")
    assert parse("k<>()").args == ()


@pytest.mark.parametrize(
    "spellings",
    [
        [
            "k<(int)4, (int)3>(float *)",
            "k<4, 3>(float*)",
            "k<4,3>(float *)",
            "k<4,3u>(float*)",
            "k<4ul,(unsigned long)3>(float*)",
            "k< 4 , (short) 3 >( float * )",
        ],
        ["k<(bool)1, (bool)0>(int)", "k<true, false>(int)"],
        ["k<(ggml_type)12>(int)", "k<(ggml_type) 12>(int)"],
        [
            "a::<unnamed>::k<int>()",
            "a::(anonymous namespace)::k<int>()",
            "a::{anonymous}::k<int>()",
        ],
        ["k<A<B<int>>>(int)", "k<A<B<int> > >(int)"],
        ["k<f(int)::[lambda(float) (instance 2)]>()", "k<f(int)::{lambda(float)#2}>()"],
        ["k<f()::operator ()() const>()", "k<f()::operator()() const>()"],
        ["k(float const*, A<int> const&)", "k(const float *, const A<int> &)"],
        ["k<char const* const*>()", "k<const char *const *>()"],
        ["k<(int)-2>()", "k<-2>()"],
        ["void ::ns::k(int)", "void ns::k(int)"],
    ],
)
def test_spellings_of_one_name_are_equal(spellings):
    assert len({parse(s) for s in spellings}) == 1


def test_enumerations_keep_their_cast_and_their_number():
    (argument,) = parse("k<(ns::Mode)12>()").args
    assert argument == "(ns::Mode)12"
    assert number_of(argument) == 12
    assert [number_of(a) for a in ("3", "-2", "true", "float", "3.5", "(int)", "x3", "³")] == [
        3,
        -2,
        None,
        None,
        None,
        None,
        None,
        None,
    ]


def test_scope_of_nested_names():
    name = parse(ARANGE)
    assert name.qualified == "(anonymous namespace)::elementwise_kernel_with_index"
    assert name.args[1].endswith("::operator()() const::{lambda(long)#1}")
    assert name.params == ("T1", "T2", "function_traits<T2>::result_type*")
    inner = parse("void ns::Op<int, A<3>>::run(float)::{lambda(int)#1}::operator()<4>(int) const")
    assert inner.base == "operator()"
    assert inner.args == ("4",)
    assert inner.suffix == "const"
    assert [c.name for c in inner.scope] == ["ns", "Op", "run", "{lambda(int)#1}"]
    assert inner.scope[1].args == ("int", "A<3>")
    assert inner.scope[2].rest == "(float)"


def test_damaged_return_type_does_not_hide_the_name():
    name = parse(DAMAGED)
    assert name.qualified == "vllm::fused_add_rms_norm_kernel"
    assert name.args == ("c10::BFloat16", "8", "true")


def test_function_pointers_and_comparisons():
    name = parse("void apply<void (*)(int, float const*), (3>2), A<(x<y)>>(void (*)(int))")
    assert name.args == ("void(*)(int, const float*)", "(3>2)", "A<(x<y)>")
    assert name.params == ("void(*)(int)",)
    shifted = parse("void k<(1<<3), operator< <int> >(std::enable_if<(a>b), void>::type)")
    assert shifted.args == ("(1<<3)", "operator< <int>")


@pytest.mark.parametrize(
    "text",
    ["two words", "a(", "a)", "k<3", "'x'", "<string id 17>", "", "k(int)]", "k.kd", "::"],
)
def test_other_texts_are_opaque_and_kept_as_they_are(text):
    name = parse(text)
    assert name.opaque
    assert str(name) == text == name.base
    assert name.args is name.params is None
    assert parse(f"  {text} ") == name


def test_canonical_spacing_and_casts():
    assert normalise("A<int>  b") == "A<int> b"
    assert normalise("T *const *") == "T* const*"
    assert normalise("f< & op ,int&&>") == "f<&op, int&&>"
    assert normalise("sizeof(int) 4") == "sizeof(int)4"  # a call, not a cast
    assert normalise("(unsigned int)0x1Fu") == "0x1F"


def test_segments_split_at_template_lists():
    assert segments("float*") == ["float*"]
    assert segments("A<1, B<2>>") == ["A", ("1", "B<2>")]
    assert segments("A<1>::B<>&") == ["A", ("1",), "::B", (), "&"]


def test_short_fits_and_keeps_the_base():
    assert parse(GEMV).short() == "k_rq_q4_gemv_mr<4, 3>"
    long = parse("void ns::kernel<4, Something<Very, Long, Indeed>, 3>(int)")
    assert long.short(26) == "kernel<4, Something<V…, 3>"
    for width in range(1, 80):
        assert len(long.short(width)) <= width
        assert len(parse(ARANGE).short(width)) <= width


@pytest.mark.parametrize("text", REAL)
def test_real_names_print_back(text):
    name = parse(text)
    assert parse(str(name)) == name
    assert normalise(str(name)) == normalise(text)


@pytest.mark.parametrize("path", PACKED, ids=lambda p: p.name)
def test_every_name_of_the_shipped_traces_parses_and_prints_back(path, tmp_path):
    rows = stored_names(path, tmp_path)
    assert rows
    for text, short in rows:
        name = parse(text)
        assert not name.opaque, text
        assert name.base == short
        assert parse(str(name)) == name


PIECES = st.sampled_from(
    "k ns:: Foo <> < > ( ) [ ] { } , , * & const void operator() operator< (int)4 (bool)1 3ul "
    "(E)2 int unsigned float :: ... -> {lambda(float)#1} [lambda(int) (instance~2)] <unnamed> "
    "(anonymous~namespace) - # : . ? ' = ~ true 12 <int> (T1~*) >> template".split()
)
SPACED = st.lists(st.tuples(PIECES, st.sampled_from(["", " "])), max_size=24).map(
    lambda pairs: "".join(a.replace("~", " ") + b for a, b in pairs)
)


@given(SPACED | st.text(max_size=60))
@example("k<operator- >()")
@example("k<&A::operator> >()")
@example("T const<int>()")
@example("(bool)1<x>()")
def test_any_text_parses_and_prints_back(text):
    name = parse(text)
    assert parse(str(name)) == name
    assert normalise(normalise(text)) == normalise(text)


TYPES = st.recursive(
    st.sampled_from(
        [
            "int",
            "float",
            "unsigned char",
            "ns::T",
            "(bool)0",
            "(int)7",
            "(ns::E)3",
            "const float *",
            "<unnamed>::X",
            "f(int)::[lambda(T1) (instance 3)]",
        ]
    ),
    lambda inner: st.builds(
        lambda name, args: f"{name}<{', '.join(args)}>",
        st.sampled_from(["A", "std::array", "ns::<unnamed>::B"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=8,
)


@given(
    st.sampled_from(["k", "ns::k", "<unnamed>::k"]), st.lists(TYPES, max_size=4), st.lists(TYPES)
)
def test_well_formed_names_are_read_whole(base, args, params):
    text = f"void {base}<{', '.join(args)}>({', '.join(params)})"
    name = parse(text)
    assert not name.opaque
    assert name.base == "k"
    assert name.args == tuple(normalise(a) for a in args)
    assert name.params == tuple(normalise(p) for p in params)
    assert parse(str(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        "k" + "<A" * 10_000 + ">" * 10_000 + "(int)",
        "(" * 200_000,
        "a<" * 200_000,
        "f(" * 100_000 + ")" * 100_000,
        "int const " * 50_000,
        "a::" * 100_000 + "k(int)",
        "void k<" + "Foo<int, (int)3>, " * 25_000 + "int>(int)",
    ],
    ids=["nested", "open", "less", "calls", "const", "scopes", "wide"],
)
def test_huge_names_take_linear_time(text):
    begin = time.perf_counter()
    name = parse(text)
    assert parse(str(name)) == name
    assert time.perf_counter() - begin < 20  # quadratic time would take minutes
