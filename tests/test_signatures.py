"""The pattern language: what matches, what does not and why, and where a pattern is wrong."""

import pytest
from conftest import TRACES, stored_names
from hypothesis import given
from hypothesis import strategies as st

from nsysacct.conditions import NumberPredicate
from nsysacct.errors import PatternError, UsageError
from nsysacct.names import parse
from nsysacct.signatures import Pattern

PACKED = sorted(TRACES.glob("*.sqlite.xz"))

GEMV = "void k_rq_q4_gemv_mr<{}>(const unsigned char *, const float *, float *, int, int)"


def fits(pattern, text, captures=()):
    return Pattern.compile(pattern, captures).match(parse(text)) is not None


@pytest.mark.parametrize("args", ["(int)4, (int)3", "4, 3", "4,3", "4,3u", "2,3ul", "float,(E)3"])
def test_the_verify_gemv_matches_every_spelling(args):
    assert fits("k_rq_q4_gemv_mr<*,3>", GEMV.format(args))


@pytest.mark.parametrize(
    "args",
    [
        "3,1",
        "(int)3, (int)1",
        "4, 30",
        "A<4, 3>, 1",
        "A<4, 3>",
        "3",
        "4, 3, 1",
        "4, A<3>",
        "4, true",
        "4, T3",
    ],
)
def test_the_verify_gemv_does_not_match(args):
    assert not fits("k_rq_q4_gemv_mr<*,3>", GEMV.format(args))
    assert not fits("k_rq_q4_gemv_mr<*,3>", "k_rq_q4_gemv_mr(A<4, 3>, int)")


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (
            "k_gdn_*_m",
            ["k_gdn_conv_m(float *)", "k_gdn_a_b_m"],
            ["k_gdn_conv(float *)", "k_gdn_m", "xk_gdn_conv_m", "k_gdn_conv_m2", "K_gdn_conv_m"],
        ),
        (
            "mul_mat_vec_q<*,{2,3,4},...>",
            [
                "mul_mat_vec_q<(ggml_type)12, 4>",
                "void mul_mat_vec_q<(ggml_type)12, (int)2, (bool)0>()",
            ],
            ["mul_mat_vec_q<(ggml_type)12, 5, 2>", "mul_mat_vec_q<4>", "mul_mat_vec_q"],
        ),
        ("k<[2-8]>", ["k<2>", "k<(int)8>", "k<(E)5>"], ["k<1>", "k<9>", "k<float>", "k<2,2>", "k"]),
        ("k<[-2 - 1]>", ["k<-2>", "k<1>"], ["k<-3>", "k<2>"]),
        ("k", ["k", "k<1>", "k<>()", "ns::k<A<2>>(int)"], ["kk", "k::l", "k_"]),
        ("k<>", ["k<>()"], ["k", "k<1>"]),
        ("k<...>", ["k<>()", "k<1>", "k<1,2>"], ["k"]),
        ("ns::k", ["ns::k<3>(int)"], ["k", "other::k", "a::ns::k", "ns::k::l"]),
        ("*::k<1>", ["ns::k<1>", "<unnamed>::k<1>"], ["k<1>", "a::b::k<1>", "ns::k<2>"]),
        (
            "at::<unnamed>::k",
            ["void at::<unnamed>::k<3>(int)", "at::(anonymous namespace)::k"],
            ["at::k"],
        ),
        ("ns::Op<*,2>::run", ["void ns::Op<int, (int)2>::run(int)"], ["ns::Op<int, 3>::run(int)"]),
        ("ns::Op::run", ["ns::Op<int, 2>::run(int)", "ns::Op::run(int)"], ["ns::Oq::run(int)"]),
        ("k<12>", ["k<(ggml_type)12>", "k<12u>"], ["k<(ggml_type)1>", "k<true>"]),
        ("k<(ggml_type)12>", ["k<(ggml_type) 12>"], ["k<12>", "k<(other)12>"]),
        ("k<(bool)1>", ["k<true>"], ["k<1>", "k<false>"]),
        ("k<float *, const T&>", ["k<float*, T const &>"], ["k<float, const T&>", "k<float*, T&>"]),
        ("k<T, 3>", ["k<T, 3>"], ["k<int, 3>"]),
        (
            "device_kernel<enable<Fwd<2, *, ...>>>",
            ["device_kernel<enable<Fwd<(int)2, A<3>, int>>>(Params)"],
            [
                "device_kernel<enable<Fwd<(int)3, A<3>>>>",
                "device_kernel<enable<Fwd<2>>>",
                "device_kernel<other<Fwd<2, 3>>>",
                "device_kernel<enable<Fwd<2, 3>>*>",
            ],
        ),
        ("k<*<128, ...>>", ["k<A<128>>", "k<ns::B<128, int>>"], ["k<128>", "k<A<64>>"]),
        ("k_{fill,fillf}", ["k_fill(int)", "k_fillf(int)"], ["k_fil", "k_fillff", "k_"]),
        ("k<{float,A<{1,2}>}>", ["k<float>", "k<A<2>>"], ["k<A<3>>", "k<int>"]),
        ("operator()<3>", ["ns::f::operator()<3>(int)"], ["ns::f::operator()<4>(int)"]),
        ("k<f()::[lambda() (instance 2)]>", ["k<f()::{lambda()#2}>"], ["k<f()::{lambda()#1}>"]),
        (r"\{odd\*", ["{odd*"], ["{oddly"]),
        (r"k<\*>", [], ["k<1>"]),
    ],
)
def test_language(pattern, yes, no):
    compiled = Pattern.compile(pattern)
    for text in yes:
        assert compiled.explain_miss(parse(text)) == ""
        assert compiled.match(parse(text)) == {}
    for text in no:
        assert compiled.match(parse(text)) is None
        assert compiled.explain_miss(parse(text))


def test_captures():
    name = parse("void mul_mat_vec_q<(ggml_type)12, (int)4, (bool)0>(int)")
    declared = Pattern.compile("mul_mat_vec_q<type, M, ...>", ["type", "M"])
    assert declared.match(name) == {"type": "(ggml_type)12", "M": "4"}
    assert declared.captures == ("type", "M")
    assert Pattern.compile("mul_mat_vec_q<*, $M, ...>").match(name) == {"M": "4"}
    assert Pattern.compile("mul_mat_vec_q<*, M, ...>").match(name) is None
    assert Pattern.compile("k<A<$N>, *>").match(parse("k<A<7>, 3>")) == {"N": "7"}
    twice = Pattern.compile("k<$T, $T>")
    assert twice.match(parse("k<int, int>")) == {"T": "int"}
    assert "as T was before" in twice.explain_miss(parse("k<int, float>"))
    either = Pattern.compile("k<{A<$N>,$N}>")
    assert either.match(parse("k<A<2>>")) == {"N": "2"}
    assert either.match(parse("k<5>")) == {"N": "5"}


@pytest.mark.parametrize(
    ("pattern", "text", "reason"),
    [
        ("k<*,3>", "k<4, 1>", "argument 2 is 1 and not 3"),
        ("k<*,3>", "k<1,2,3,4>", "4 template arguments and not 2"),
        ("k<*,3,...>", "k<1>", "1 template argument and not 2 or more"),
        ("k<*,3>", "k(int)", "it has no template arguments"),
        ("k<*,3>", "kk<4,3>", "the name is kk and not k"),
        ("k<[2-8]>", "k<9>", "argument 1 is 9 and not a number in [2-8]"),
        ("k<{2,3}>", "k<9>", "argument 1 is 9 and none of {2,3}"),
        (
            "k<A<*,2>>",
            "k<A<1,3>>",
            "argument 1 is A<1, 3> and not A<*, 2>: inside it, argument 2 is 3 and not 2",
        ),
        ("a::k", "b::k", "in b, the name is b and not a"),
        ("a::k", "k", "the qualified name is k"),
    ],
)
def test_why_not(pattern, text, reason):
    assert Pattern.compile(pattern).explain_miss(parse(text)) == reason


@pytest.mark.parametrize(
    ("pattern", "column"),
    [
        ("", 1),
        ("  ", 1),
        ("k<3", 2),
        ("k<3>>", 5),
        ("k<,3>", 3),
        ("k<3,>", 5),
        ("k<..., 3>", 3),
        ("void k<3>", 5),
        ("k<3>(int)", 5),
        ("k(int)", 2),
        ("k[1-8]", 2),
        ("k<[8-1]>", 3),
        ("k<[a-b]>", 3),
        ("k<{}>", 3),
        ("k_{a,b", 3),
        ("k_{a,}", 6),
        ("k<(3>", 2),
        ("a::", 4),
        ("::k", 1),
        ("a::::b", 4),
        ("k\\", 2),
        ("k<$3>", 3),
        ("k<3>x", 5),
        ("a:b", 2),
        ("k}", 2),
        ("k<" + "A<" * 70 + "*" + ">" * 70 + ">", 2 + 2 * 65),
    ],
)
def test_errors_name_the_column(pattern, column):
    with pytest.raises(PatternError) as caught:
        Pattern.compile(pattern)
    assert caught.value.column == column
    assert f"column {column}: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_declared_capture_must_occur():
    with pytest.raises(PatternError, match="capture M does not occur"):
        Pattern.compile("k<*,3>", ["M"])


NAMES = st.lists(
    st.sampled_from(
        "k ns:: Foo <> < > ( ) [ ] { } , , * & const void operator() operator< (int)4 3ul (E)2 "
        "int ... -> {lambda(float)#1} <unnamed> - # : = true 12 <int> (T1~*) >> \\ $x ' k<".split()
    ),
    max_size=14,
).map(lambda parts: "".join(parts).replace("~", " "))


@given(NAMES | st.text(max_size=40))
def test_the_pattern_of_a_name_matches_it(text):
    name = parse(text)
    if not name.base:
        with pytest.raises(PatternError):
            Pattern.of(name)
        return
    pattern = Pattern.of(name)
    assert pattern.explain_miss(name) == ""
    assert Pattern.compile(pattern.text) == pattern


@given(st.text(alphabet="kA<>,*{}[]()$.-1 8:\\ns", max_size=20))
def test_any_text_compiles_or_is_a_pattern_error(text):
    try:
        pattern = Pattern.compile(text)
    except PatternError as error:
        assert 1 <= error.column <= len(text) + 1
    else:
        pattern.match(parse("void ns::k<A<1>, 8>(int)"))


def test_the_pattern_of_a_deep_name_matches_it():
    name = parse("k<" + "A<" * 500 + "T *, ..." + ">" * 500 + ">(int)")
    assert Pattern.of(name).match(name) == {}


@pytest.mark.parametrize("path", PACKED, ids=lambda p: p.name)
def test_the_pattern_of_every_shipped_name_matches_it_alone(path, tmp_path):
    names = [parse(text) for text in dict(stored_names(path, tmp_path))]
    assert names
    for name in names:
        matched = [n for n in names if Pattern.of(name).match(n) is not None]
        same = [n for n in names if n.qualified == name.qualified and n.args == name.args]
        assert name in matched
        if name.args is not None:
            assert matched == same


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("3", [3], [2, 4]),
        ("2..8", [2, 8], [1, 9]),
        (">=2", [2, 99], [1]),
        ("> 2", [3], [2]),
        ("<=2", [2, -1], [3]),
        ("<2", [1], [2]),
        ("!=1", [0, 2], [1]),
        ("{2, 4}", [2, 4], [3]),
    ],
)
def test_number_predicates(text, yes, no):
    predicate = NumberPredicate.compile(text)
    assert all(predicate.test(v) for v in yes)
    assert not any(predicate.test(v) for v in no)


@pytest.mark.parametrize("text", ["", "x", "8..2", "2..", ">=", "{}", "{2,}", "2-8", "1.5", "=2"])
def test_other_conditions_are_usage_errors(text):
    with pytest.raises(UsageError):
        NumberPredicate.compile(text)


def test_predicates_that_exclude_each_other():
    def excludes(a, b):
        return NumberPredicate.compile(a).excludes(NumberPredicate.compile(b))

    assert excludes("1", ">=2") and excludes("{1,3}", "{2,4}") and excludes("<2", "2..8")
    assert not excludes("!=1", "2") and not excludes("2..8", "8..9") and not excludes("<=2", ">=2")
