"""Readers of run logs, on samples written from the engines' format strings with other numbers."""

import gzip
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsysacct.errors import LogError, UsageError
from nsysacct.logs import READERS, read_log
from nsysacct.logs.reading import histogram_of, positions_of
from nsysacct.logs.rounding import solve_rounds
from nsysacct.logs.text import load

LOGS = Path(__file__).parent / "logs"

SAMPLES = {
    # file: engine, rounds, k, accepted, drafted, n_ok, basis
    "kestrel.log": ("kestrel", 25, 4, 33, 100, [9, 6, 5, 3, 2], "printed"),
    "llama_server.log": ("llama_cpp", 7, 3, 10, 20, [2, 2, 1, 2], "derived"),
    "llama_slots.log": ("llama_cpp", 7, 4, 14, 28, [2, 1, 1, 1, 2], "printed"),
    "llama_checkpoint.log": ("llama_cpp", 3, 3, 4, 9, [1, 1, 0, 1], "printed"),
    "llama_2025.log": ("llama_cpp", 3, 2, 3, 6, [1, 1, 1], "printed"),
    "ik_llama.log": ("llama_cpp", None, None, 17, 40, None, None),
    "llama_example.log": ("llama_cpp", 2, 5, 7, 10, [0, 0, 1, 0, 0, 1], "printed"),
    "llama_metrics.txt": ("llama_cpp", 20, 3, 33, 60, [4, 5, 5, 6], "printed"),
    "vllm.log": ("vllm", 43, 4, 79, 172, [6, 13, 12, 6, 6], "derived"),
    "vllm_metrics.txt": ("vllm", 28, 3, 42, 84, [6, 8, 8, 6], "printed"),
    "vllm_requests.jsonl": ("vllm", 9, 3, 9, 27, [4, 3, 0, 2], "printed"),
    "vllm_bench.json": ("vllm", 50, 3, 60, 150, [20, 10, 10, 10], "derived"),
    "sglang.log": ("sglang", None, 4, None, None, None, None),
    "sglang_meta.jsonl": ("sglang", 10, 3, 10, 30, [4, 3, 2, 1], "printed"),
    "tensorrt_llm.jsonl": ("tensorrt_llm", 5, 3, 5, 15, [3, 0, 1, 1], "printed"),
    "tensorrt_llm_dflash.json": ("tensorrt_llm", 15, 4, 20, None, [5, 4, 3, 2, 1], "printed"),
    "aiperf.json": ("aiperf", 10, 5, 11, 50, [6, 0, 3, 0, 0, 1], "printed"),
}


def kinds(reading):
    return [finding.kind for finding in reading.findings]


def lines_of(name, keep):
    return "".join(
        line for line in (LOGS / name).read_text().splitlines(keepends=True) if keep in line
    )


def test_every_sample_is_expected():
    assert {path.name for path in LOGS.iterdir()} == set(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("given_engine", [False, True])
def test_samples(name, given_engine):
    engine, rounds, k, accepted, drafted, n_ok, basis = SAMPLES[name]
    reading = read_log(LOGS / name, engine if given_engine else None)
    counters = reading.counters
    assert reading.engine == engine
    assert (counters.rounds, counters.k) == (rounds, k)
    assert (counters.accepted, counters.drafted) == (accepted, drafted)
    assert (counters.n_ok, counters.n_ok_basis) == (n_ok, basis)
    assert reading.formats and set(reading.formats) <= set(READERS[engine].FORMATS)
    if n_ok is not None:
        assert counters.positions == positions_of(n_ok)


@pytest.mark.parametrize("name", SAMPLES)
def test_other_engines_do_not_claim_a_sample(name):
    for other in READERS:
        if other != SAMPLES[name][0]:
            with pytest.raises(LogError):
                read_log(LOGS / name, other)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_container_of_the_text_does_not_matter(name):
    text = (LOGS / name).read_text(errors="replace").replace("\r\n", "\n")
    plain = read_log(LOGS / name).counters
    coloured = "\n".join(f"\x1b[1;32m{line}\x1b[0m" for line in text.split("\n"))
    for other in (
        text,
        text.replace("\n", "\r\n"),
        text.encode("utf-16"),
        b"\xef\xbb\xbf" + text.encode(),
        coloured if not name.endswith("json") else text,
    ):
        assert read_log(other).counters == plain


# --- kestrel


def test_kestrel_rates_that_are_not_the_histograms():
    text = (LOGS / "kestrel.log").read_text()
    assert kinds(read_log(text)) == []
    assert kinds(read_log(text.replace("0.400", "0.440"))) == ["counters-disagree"]


def test_kestrel_without_histogram_knows_the_mean_only():
    counters = read_log(lines_of("kestrel.log", "acc per pos")).counters
    assert counters.rounds is None and counters.n_ok is None
    assert counters.mean_n_ok == pytest.approx(33 / 25)


def test_kestrel_sums_several_runs():
    text = (LOGS / "kestrel.log").read_text() * 2
    assert read_log(text).counters.n_ok == [18, 12, 10, 6, 4]


# --- llama.cpp


def test_llama_adds_the_round_that_is_counted_but_not_printed():
    reading = read_log(LOGS / "llama_server.log")
    assert kinds(reading) == ["round-not-printed"]
    assert "1 of 2 drafts" in reading.findings[0].detail
    printed = read_log(lines_of("llama_server.log", "draft tokens")).counters
    assert (printed.rounds, printed.accepted, printed.drafted) == (6, 9, 18)


def test_llama_unprinted_round_from_json_alone():
    text = lines_of("llama_server.log", "draft tokens") + lines_of("llama_server.log", "content")
    assert read_log(text).counters.n_ok == [2, 2, 1, 2]


def test_llama_response_that_is_logged_and_printed_counts_once():
    text = lines_of("llama_server.log", '"timings"')
    assert text.count("draft_n_accepted") == 2
    counters = read_log(text).counters
    assert (counters.accepted, counters.drafted, counters.tokens) == (10, 20, 18)


def test_llama_streamed_chunks_are_running_totals():
    chunk = (
        '{{"stop": {}, "timings": {{"draft_n": {}, "draft_n_accepted": {}, "predicted_ms": {}}}}}'
    )
    text = "\n".join(
        [chunk.format("false", 3, 1, 2.0), chunk.format("false", 6, 3, 4.0),
         chunk.format("true", 9, 4, 6.0)]
    )  # fmt: skip
    counters = read_log(text).counters
    assert (counters.accepted, counters.drafted) == (4, 9)


def test_llama_rounds_cut_away_at_the_start():
    lines = (LOGS / "llama_server.log").read_text().splitlines(keepends=True)
    reading = read_log("".join(lines[4:]))  # half of the rounds' lines are gone
    assert kinds(reading)[0] == "rounds-missing"
    assert reading.counters.source == "llama.cpp statistics lines"
    assert reading.counters.n_ok == [2, 2, 1, 2]


def test_llama_unprinted_round_of_each_request():
    head = "slot x: id  {} | task {} | "
    rounds = ((0, 4, 2), (1, 5, 3), (0, 4, 0), (1, 5, 1))
    text = "".join(head.format(s, t) + f"accepted {a}/3 draft tokens\n" for s, t, a in rounds)
    # task 4 ends with a round of 1/2, task 5 with one of 2/2
    text += head.format(0, 4) + "draft acceptance = 0.37500 ( 3 accepted / 8 generated), "
    text += "mean len = 2.00\n"
    text += head.format(1, 5) + "draft acceptance = 0.75000 ( 6 accepted / 8 generated), "
    text += "mean len = 3.00\n"
    reading = read_log(text)
    assert reading.counters.n_ok == [1, 2, 2, 1]
    assert [p.n_ok for p in reading.parts] == [[1, 1, 1, 0], [0, 1, 1, 1]]
    assert kinds(reading) == ["round-not-printed"]
    assert reading.findings[0].detail.startswith("2 rounds (3 of 4 drafts accepted)")


def test_llama_replays_that_only_a_debug_log_shows_in_part():
    text = (
        "slot x: id 0 | task 1 | restoring speculative checkpoint (pos_min = 1)\n"
        "slot x: id 0 | task 1 | accepted 2/2 draft tokens, new n_tokens = 20\n"
    )
    assert kinds(read_log(text)) == ["replays-hidden"]


def test_llama_replays_are_no_rounds():
    reading = read_log(LOGS / "llama_checkpoint.log")
    assert reading.counters.replays == 2
    assert kinds(reading) == ["counters-disagree"]
    assert "+13.9 points" in reading.findings[0].detail


def test_llama_interleaved_slots():
    reading = read_log(LOGS / "llama_slots.log")
    assert [p.n_ok for p in reading.parts] == [[1, 0, 0, 1, 1], [1, 1, 1, 0, 1]]
    assert kinds(reading) == []


def test_llama_summaries_alone_give_the_same_histogram():
    text = lines_of("llama_slots.log", "print_timing")
    counters = read_log(text).counters
    assert counters.source == "llama.cpp draft acceptance lines"
    assert (counters.rounds, counters.n_ok, counters.n_ok_basis) == (7, [2, 1, 1, 1, 2], "derived")


def test_llama_statistics_are_running_totals_until_a_restart():
    line = lines_of("llama_server.log", "statistics")
    later = line.replace("      7      7", "     14     14").replace("    20,", "    40,")
    later = later.replace("tokens =    10", "tokens =    20")
    assert read_log(line + later).counters.accepted == 20
    assert read_log(later + line).counters.accepted == 30


def test_llama_older_statistics_without_rates():
    text = (
        "statistics ngram_mod: #calls = 40, #gen drafts = 6, #acc drafts = 4, "
        "#gen tokens = 72, #acc tokens = 31, dur(b,g,a) = 0.1, 0.2, 0.3 ms\n"
    )
    counters = read_log(text).counters
    assert (counters.rounds, counters.accepted, counters.drafted) == (6, 31, 72)
    assert counters.n_ok is None


def test_llama_steps_without_a_draft_are_no_rounds():
    assert "0/0 draft tokens" in (LOGS / "llama_2025.log").read_text()
    assert read_log(LOGS / "llama_2025.log").counters.rounds == 3


def test_llama_examples_that_disagree_with_their_rounds():
    text = (LOGS / "llama_example.log").read_bytes().replace(b"n_accept  = 7", b"n_accept  = 6")
    assert kinds(read_log(text)) == ["counters-disagree"]


@pytest.mark.parametrize(
    "text",
    [
        'slot launch_slot_: id 0 | launching slot : {"id":0,"speculative":false}\n',
        "llama_perf_context_print: eval time =  10.00 ms /   9 runs   (1.1 ms per token)\n",
        "INFO Initializing a V1 LLM engine with config: speculative_config=None, x=1\n",
    ],
)
def test_runs_without_speculation_have_zero_rounds(text):
    reading = read_log(text)
    assert reading.speculation is False
    assert reading.counters.rounds == 0
    assert kinds(reading) == ["no-speculation"]


def test_a_loaded_draft_model_that_prints_nothing_is_no_proof_of_absence():
    text = "srv load_model: loading draft model 'x'\neval time = 1.0 ms / 9 tokens\n"
    with pytest.raises(LogError):
        read_log(text)


# --- vLLM


def test_vllm_lines_are_summed_with_their_weights():
    reading = read_log(LOGS / "vllm.log")
    assert [p.n_ok for p in reading.parts] == [[6, 8, 8, 3, 6], [0, 5, 4, 3, 0]]
    assert [p.lines for p in reading.parts] == [[2], [4]]
    assert kinds(reading) == []


def test_vllm_older_field_order():
    text = (
        "SpecDecoding metrics: Draft acceptance rate: 37.5%, Mean acceptance length: 1.75, "
        "Accepted: 6 tokens, Drafted: 16 tokens, Per-position acceptance rate: 0.500, 0.250\n"
    )
    counters = read_log(text).counters
    assert (counters.rounds, counters.n_ok) == (8, [4, 2, 2])


def test_vllm_rounds_are_open_when_hardly_any_draft_is_accepted():
    line = (
        "SpecDecoding metrics: Mean acceptance length: 1.00, Accepted: 2 tokens, "
        "Drafted: {} tokens, Per-position acceptance rate: 0.002, 0.000, 0.000\n"
    )
    # every round with k drafts is one of the solutions, and the likely one
    fixed = read_log(line.format(3000))
    assert (fixed.counters.rounds, kinds(fixed)) == (1000, [])
    open_ended = read_log(line.format(2999))
    assert kinds(open_ended) == ["rounds-ill-conditioned"]
    assert open_ended.counters.rounds_low <= 1000 <= open_ended.counters.rounds_high


def test_vllm_line_that_contradicts_itself():
    text = (LOGS / "vllm.log").read_text().replace("Accepted: 57", "Accepted: 75")
    reading = read_log(text)
    assert "counters-disagree" in kinds(reading)
    assert reading.counters.rounds is None


def test_vllm_interval_without_drafts_is_skipped():
    nothing = (
        "SpecDecoding metrics: Mean acceptance length: nan, Accepted: 0 tokens, "
        "Drafted: 0 tokens, Per-position acceptance rate: , Avg Draft acceptance rate: nan%\n"
    )
    assert read_log((LOGS / "vllm.log").read_text() + nothing).counters.rounds == 43


def test_vllm_request_whose_totals_contradict_its_histogram():
    text = (LOGS / "vllm_requests.jsonl").read_text().replace('spec_steps": 5', 'spec_steps": 6')
    assert kinds(read_log(text)) == ["histogram-disagrees"]


def test_vllm_formats_of_one_log_are_compared():
    text = (LOGS / "vllm.log").read_text() + (LOGS / "vllm_requests.jsonl").read_text()
    reading = read_log(text)
    assert reading.counters.source == "vLLM per-request JSON"
    assert kinds(reading) == ["counters-disagree"]


def test_prometheus_counters_that_restart_are_added():
    fall = "vllm:spec_decode_num_{}_total 5\nvllm:spec_decode_num_{}_total 2\n"
    text = fall.format("drafts", "drafts") + fall.format("draft_tokens", "draft_tokens")
    text += "vllm:spec_decode_num_accepted_tokens_total 4\n"
    counters = read_log(text).counters
    assert (counters.rounds, counters.drafted, counters.accepted) == (7, 7, 4)
    assert counters.n_ok is None


# --- SGLang, TensorRT-LLM, AIPerf


def test_sglang_decode_lines_are_weighted_by_requests():
    reading = read_log(LOGS / "sglang.log")
    assert reading.counters.mean_n_ok == pytest.approx((2 * 1.4 + 2.0 + 0.8) / 4)
    assert reading.counters.rate == pytest.approx((2 * 0.35 + 0.5 + 0.2) / 4)
    assert kinds(reading) == ["weights-assumed"]


def test_sglang_requests_win_over_decode_lines():
    text = (LOGS / "sglang.log").read_text() + (LOGS / "sglang_meta.jsonl").read_text()
    assert read_log(text).counters.n_ok == [4, 3, 2, 1]


def test_sglang_histogram_that_is_not_the_requests_is_not_used():
    text = (LOGS / "sglang_meta.jsonl").read_text().replace("[4, 3, 2, 1]", "[5, 3, 2, 1]")
    counters = read_log(text).counters
    assert (counters.rounds, counters.accepted, counters.n_ok) == (10, 10, None)


def test_tensorrt_llm_batches_have_no_histogram():
    text = (
        (LOGS / "tensorrt_llm.jsonl")
        .read_text()
        .replace(
            '"numDraftTokens": 6, "numAcceptedTokens": 0',
            '"numDraftTokens": 6, "numAcceptedTokens": 3',
        )
    )
    counters = read_log(text).counters
    assert (counters.rounds, counters.accepted, counters.n_ok) == (5, 8, None)


def test_tensorrt_llm_statistics_as_one_array():
    lines = (LOGS / "tensorrt_llm.jsonl").read_text().split("\n")[:-1]
    assert read_log("[" + ",\n".join(lines) + "]").counters.n_ok == [3, 0, 1, 1]


def test_tensorrt_llm_several_ranks_are_said():
    assert kinds(read_log((LOGS / "tensorrt_llm_dflash.json").read_text() * 2)) == ["several-dumps"]


def test_aiperf_invariants_are_held():
    text = (LOGS / "aiperf.json").read_text()
    assert kinds(read_log(text.replace('tokens": 11', 'tokens": 12'))) == ["histogram-disagrees"]
    assert kinds(read_log(text.replace("tokens\": 50", "tokens\": 10"))) == [
        "histogram-disagrees", "counters-disagree",
    ]  # fmt: skip


# --- whole logs


def test_lines_of_a_log():
    last = read_log(LOGS / "vllm.log", lines=(4, None))
    assert (last.counters.rounds, last.counters.lines, last.lines_read) == (12, [4], 1)
    with pytest.raises(LogError, match="has 4 lines"):
        read_log(LOGS / "vllm.log", lines=(9, 12))


def test_unknown_text_names_formats_and_the_closest_line():
    text = "start\nspeculative: accept ratio 0.61 after 40 drafts\nthe end is near\n"
    with pytest.raises(LogError) as caught:
        read_log(text)
    message = str(caught.value)
    assert "\n" not in message
    assert "closest is line 2: speculative: accept ratio 0.61" in message
    assert all(f in message for reader in READERS.values() for f in reader.FORMATS)


def test_unknown_text_with_an_engine_names_that_engines_formats_only():
    with pytest.raises(LogError) as caught:
        read_log("nothing\n", "sglang")
    assert "SGLang decode lines" in str(caught.value) and "vLLM" not in str(caught.value)
    assert "no line that speaks of drafts" in str(caught.value)


@pytest.mark.parametrize("source", ["", b"", "\n", b"\x00\xff\xfe\x80", gzip.compress(b"x" * 99)])
def test_empty_and_binary_input(source):
    with pytest.raises(LogError):
        read_log(source)


def test_missing_file_and_unknown_engine(tmp_path):
    with pytest.raises(LogError, match=r"gone\.log: cannot be read"):
        read_log(tmp_path / "gone.log")
    with pytest.raises(LogError, match="cannot be read"):
        read_log(tmp_path)
    with pytest.raises(UsageError, match="use one of kestrel"):
        read_log("x\n", "mlx")


def test_two_engines_in_one_log_are_said():
    text = (LOGS / "vllm.log").read_text() + (LOGS / "kestrel.log").read_text()
    reading = read_log(text)
    assert reading.engine == "vllm" and "several-engines" in kinds(reading)
    assert read_log(text, "kestrel").counters.rounds == 25


def test_a_log_of_megabytes_is_read_in_seconds():
    noise = "spec draft: - seq_id 0, draft candidate {}, pos 1: 17 ( 0.51) ' {{\"a' accepted\n"
    text = "".join(noise.format(i) for i in range(40_000)) + (LOGS / "llama_server.log").read_text()
    assert len(text) > 3_000_000
    start = time.perf_counter()
    assert read_log(text.encode()).counters.rounds == 7
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("text", ["{" * 5000, "[" * 100_000, '{"a": ' * 3000, '{"timings": 3}\n'])
def test_broken_json_is_no_crash(text):
    with pytest.raises(LogError):
        read_log(text)


@given(st.text(alphabet=st.sampled_from('{}[]":,0123456789 \n\r\x1b[naccepteddraft tokensn_ok=/')))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_refused(text):
    try:
        assert read_log(text).engine in READERS
    except LogError as error:
        assert "\n" not in str(error)


def test_line_numbers_count_every_kind_of_line_end():
    log = load("a\r\nb\rc\nd")
    assert list(log.numbered()) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


# --- counts behind rounded figures

histograms = st.lists(st.integers(0, 40), min_size=2, max_size=7).filter(lambda h: sum(h) > 0)


@given(histograms)
@settings(max_examples=300, deadline=None)
def test_rounding_always_keeps_the_true_rounds(n_ok):
    rounds, k = sum(n_ok), len(n_ok) - 1
    positions = positions_of(n_ok)
    accepted = sum(positions)
    rates = [round(c / rounds, 3) for c in positions]
    found = solve_rounds(accepted, rounds * k, round(1 + accepted / rounds, 2), rates, k)
    assert found is not None
    assert found.low <= rounds <= found.high
    assert sum(found.positions) == accepted
    assert found.rounds == rounds  # every round drafted k
    if found.unique:
        assert found.positions == positions
    assert histogram_of(found.rounds, found.positions) is not None


def test_rounding_says_when_nothing_fits():
    assert solve_rounds(10, 40, 1.10, [0.9, 0.8], 2) is None
    assert solve_rounds(10, 40, 1.25, None, 1).rounds == 40


def test_rounding_of_many_rounds_keeps_the_total():
    positions = [41_237, 30_411, 22_000]
    rounds, accepted = 60_001, sum(positions)
    rates = [round(c / rounds, 3) for c in positions]
    found = solve_rounds(accepted, 3 * rounds, round(1 + accepted / rounds, 2), rates, 3)
    assert (found.rounds, found.how, found.unique) == (rounds, "only", False) or (
        found.how == "drafted / k" and found.rounds == rounds and not found.unique
    )
    assert sum(found.positions) == accepted
    assert found.positions == sorted(found.positions, reverse=True)
