"""Text outputs as a person sees them: they fit the terminal, and say what a reader must know."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from nsysacct.cli import cli
from nsysacct.model import BlindSpot
from nsysacct.wire import dump_account, load_account

LOGS = Path(__file__).parent / "logs"
TRACES = (
    "small_graph",
    "small_node_nvtx",
    "llama_B_mtp_graph",
    "vllm_eagle_graph",
    "vllm_plain_graph",
)
BLIND = "--ignore nvtx --ignore graph --ignore pattern --ignore positional"

COMMANDS = {
    "split": "split {0}.sqlite --layers 8",
    "split of llama.cpp": "split {2}.json",
    "split of vllm": "split {3}.json --detail",
    "split of plain decoding": "split {4}.json",
    "split of nothing known": "split torch_graphs_nvtx.sqlite {blind}",
    "split of two processes": "split twoproc.sqlite --pid all",
    "check": "check {0}.sqlite --layers 8",
    "check failed": "check torch_graphs_nvtx.sqlite {blind}",
    "check of two processes": "check twoproc.sqlite --pid all",
    "rounds": "rounds {0}.json",
    "rounds of vllm": "rounds {3}.json",
    "no rounds": "rounds torch_graphs_nvtx.sqlite {blind}",
    "registry list": "registry list",
    "registry list ENGINE": "registry list llama_cpp",
    "registry check": "registry check",
    "registry explain": "registry explain {name}",
    "whatif": "whatif {0}.json --acceptance 1.4 --no-replay --corners",
    "whatif without plain": "whatif {3}.sqlite --run-n-ok 5,5,5,5 --no-replay",
    "model": "model --c 0.05,0.1,0.2 --beta 1,1.5,2",
    "bottleneck": "bottleneck {0}.json --weight-bytes 500MB",
    "curve": "curve {0}.json {1}.json --experts 128 --experts-per-token 8",
    "explain": "explain {0}.json",
    "explain little": "explain {4}.json",
    "compare": "compare {0}.json {3}.json",
    "gate": "gate --base {0}.json --head {1}.json",
    "gate refused": "gate --base {0}.json --head {3}.json",
    "diff": "diff {0}.json {1}.json",
    "diff of two engines": "diff {2}.json {3}.json",
    "diff of the same": "diff {0}.json {0}.json",
    "history list": "history list h.db",
    "history trend": "history trend h.db",
    "acceptance": "acceptance {logs}/vllm.log {logs}/kestrel.log {logs}/llama_server.log",
    "demo": "demo",
}
NAME = (
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::BinaryFunctor<float, "
    "float, float, at::native::binary_internal::MulFunctor<float>>, std::array<char *, "
    "(unsigned long)3>>(int, T2, T3)"
)


@pytest.fixture(scope="module")
def desk(
    trace_file: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, int], str]:
    """Run a command on the desk: shipped traces, their accounts, a history; 0 columns: not set."""
    folder = tmp_path_factory.mktemp("desk")
    runner = CliRunner()

    def run(line: str, columns: int = 80) -> str:
        values = {"name": "\0", "logs": LOGS, "blind": BLIND}
        words = [w.replace("\0", NAME) for w in line.format(*TRACES, **values).split()]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            if columns:
                patch.setenv("COLUMNS", str(columns))
            else:
                patch.delenv("COLUMNS", raising=False)
            done = runner.invoke(cli, words, prog_name="nsysacct")
        assert "Traceback" not in done.output and not isinstance(done.exception, AssertionError)
        return done.output

    for name in ("torch_graphs_nvtx", "twoproc"):
        (folder / f"{name}.sqlite").symlink_to(trace_file(name))
    for name in TRACES:
        (folder / f"{name}.sqlite").symlink_to(trace_file(name))
        given = " --layers 8 --n-ok 5,1,2,2" if name == "small_graph" else ""
        run(f"split {name}.sqlite --format json -o {name}.json{given}")
    lost = msgspec.structs.replace(
        load_account(folder / "small_graph.json"),
        blind_spots=[
            BlindSpot(
                kind="lost-tail",
                severity="fatal",
                hidden_ns=None,
                basis=None,
                detail="9 ms are not there",
                remedy="flush more often",
            )
        ],
    )
    (folder / "cut.json").write_text(dump_account(lost))
    run("history add h.db {0}.json {2}.json {3}.json --at 2026-11-01T12:00:00 --commit 0123456789")
    return run


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_text_fits_the_terminal(
    command: str, columns: int, desk: Callable[[str, int], str]
) -> None:
    text = desk(command, columns)
    assert text.strip()
    assert max(map(len, text.splitlines())) <= columns
    assert "\x1b" not in text


def test_rounds_count_from_0_and_say_so(desk: Callable[[str, int], str]) -> None:
    lines = desk("rounds {0}.json").splitlines()
    assert lines[0].startswith("10 rounds, counted from 0, each verifies 3 rows; ms, ")
    assert lines[2].split() == [
        "round", "start", "wall", "draft", "verify", "replay", "residual", "launches", "n_ok",
        "flags",
    ]  # fmt: skip
    numbers = [line.split()[0] for line in lines[3:13]]
    assert numbers == [str(i) for i in range(10)]
    told = json.loads(desk("rounds {0}.json --format json"))
    assert [r["index"] for r in told["rounds"]] == list(range(10))
    for line, row in zip(lines[3:13], told["rounds"], strict=True):
        assert line.split()[2] == f"{row['wall_ns'] / 1e6:.3f}"


def test_a_width_that_changes_has_a_column(desk: Callable[[str, int], str]) -> None:
    head = desk("rounds {2}.json").splitlines()[0]
    told = json.loads(desk("rounds {2}.json --format json"))["rounds"]
    alike = len({r["width"] for r in told}) == 1
    assert ("each verifies" in head) == alike


def test_check_says_what_it_found_and_gives_a_line_to_paste(
    desk: Callable[[str, int], str],
) -> None:
    assert desk("check {0}.json").splitlines()[:2] == [
        "this capture can carry a split",
        "  10 rounds, proven by counting; 5 of 5 witnesses agree",
    ]
    failed = desk("check cut.json")
    commands = failed.partition("capture again:\n")[2]
    assert commands.count("\n") > 2
    shown = re.sub(r" \\\n +", " ", commands).split("\n")
    assert shown[0].startswith("  nsys profile -t cuda,nvtx ") and shown[0].endswith(" PROGRAM")
    assert shown[1] == "  nsys export --type sqlite -o capture.sqlite capture.nsys-rep"


@pytest.mark.parametrize("command", ["whatif {0}.json --no-replay", "explain {0}.json",
                                     "bottleneck {0}.json", "compare {0}.json {3}.json"])  # fmt: skip
def test_markdown_has_lines_and_headings_of_its_own(
    command: str, desk: Callable[[str, int], str]
) -> None:
    """Text laid out for a terminal once went through the escaping of Markdown."""
    text = desk(f"{command} --format markdown")
    assert "x0a" not in text and "&#35;" not in text
    assert "\n### " in f"\n{text}"


def test_processes_that_are_no_ranks_are_looked_at_one_by_one(
    desk: Callable[[str, int], str],
) -> None:
    lines = desk("check twoproc.sqlite --pid all").splitlines()
    assert lines[0] == "this capture cannot carry a split"
    assert lines[-1] == "look at one process with --pid"


def test_a_diff_says_in_two_lines_what_one_cannot_hold(desk: Callable[[str, int], str]) -> None:
    narrow, wide = (desk("diff {2}.json {3}.json", columns).splitlines() for columns in (80, 120))
    document = json.loads(desk("diff {2}.json {3}.json --format json"))
    verify = next(b for b in document["buckets"] if b["name"] == "verify")
    for lines in (narrow, wide):
        at = next(i for i, line in enumerate(lines) if line.startswith("verify "))
        said = f"{lines[at]} {lines[at + 1]}"
        change = 100 * (verify["head_ns"] / verify["base_ns"] - 1)
        assert f"{change:+.2f} %" in said
        assert "ms" in lines[at]


def test_counts_are_printed_as_counts(desk: Callable[[str, int], str]) -> None:
    lines = desk("compare {0}.json {3}.json").splitlines()
    rounds = next(line for line in lines if line.startswith("rounds "))
    assert rounds.split()[:3] == ["rounds", "10", "20"]


def test_one_is_singular(desk: Callable[[str, int], str]) -> None:
    text = desk("split {3}.json")
    assert "graph 35: 1 launch, " in text
    assert not re.search(r"\b1 (?:launches|executable graphs|graphs|rounds)\b", text)


def test_the_next_step_is_one_that_works(desk: Callable[[str, int], str]) -> None:
    """`whatif` refuses an account without acceptance; a plain capture has its own use."""
    told = " ".join(desk("split {3}.json").partition("next: ")[2].split())
    assert told.endswith(
        "whatif shows what changing it would buy, with the acceptance (--log or --n-ok)"
    )
    assert "--n-ok" in desk("whatif {3}.json --no-replay")
    known = " ".join(desk("split {0}.json").partition("next: ")[2].split())
    assert known.endswith("whatif shows what changing it would buy")
    assert desk("whatif {0}.json --no-replay").startswith("10 rounds")
    plain = desk("split {4}.json").partition("next: ")[2]
    assert "--plain-from" in plain and "turn speculation on" in plain


def test_a_file_does_not_depend_on_the_terminal(
    desk: Callable[[str, int], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wide = os.terminal_size((200, 50))
    monkeypatch.setattr("shutil.get_terminal_size", lambda fallback: wide)
    for command in ("explain {0}.json", "split {0}.json", "diff {0}.json {1}.json"):
        file = tmp_path / "out.txt"
        desk(f"{command} -o {file} --force", 0)
        assert max(map(len, file.read_text("utf-8").splitlines())) <= 80
        assert max(map(len, desk(command, 0).splitlines())) > 80
