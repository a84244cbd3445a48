"""``nsysacct registry`` as a process: listing, checking, explaining."""

import json
import re

import pytest
from test_registry import MINIMAL, SIGNATURE

GEMV = "void k_rq_q4_gemv_mr<(int)4, (int){}>(const unsigned char *, const float *, int)"


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(MINIMAL + SIGNATURE)
    return path


def test_list_names_every_engine(run_cli, own):
    done = run_cli("registry", "list", "--registry", own)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["engine", "versions", "signatures", "file", "sha256"]
    assert {line.split()[0] for line in lines[1:]} >= {"kestrel", "demo"}
    listed = next(line for line in lines if line.startswith("demo")).split()
    assert listed[:4] == ["demo", "*", "1", "own.toml"]
    assert re.fullmatch("[0-9a-f]{12}", listed[4])


def test_list_of_one_engine_shows_its_signatures(run_cli):
    done = run_cli("registry", "list", "kestrel")
    assert done.returncode == 0
    assert "a round verifies k rows, emits max(n_ok,1) tokens, replay: closing-steps" in done.stdout
    assert "k_rq_q4_gemv_mr<*, M>" in done.stdout
    assert "M >=2" in done.stdout


def test_list_as_json_is_one_object_without_absolute_paths(run_cli, own, tmp_path):
    done = run_cli("registry", "list", "--format", "json", env={"NSYSACCT_REGISTRY": str(own)})
    document = json.loads(done.stdout)
    assert document["schema"] == {"kind": "nsysacct/registry", "version": 1}
    demo = next(e for e in document["engines"] if e["name"] == "demo")
    assert demo["file"] == "own.toml"
    assert str(tmp_path) not in done.stdout
    assert demo["signatures"][0]["where"] == {"M": ">=2"}


def test_check_passes_on_the_shipped_files(run_cli):
    done = run_cli("registry", "check")
    assert done.returncode == 0
    assert done.stdout.endswith(": all hold\n")


def test_check_fails_when_an_example_does_not_hold(run_cli, own):
    own.write_text(MINIMAL + SIGNATURE.replace('"k_gemv<1, 3>"', '"k_gemv<1, 1>"'))
    done = run_cli("registry", "check", "--registry", own)
    assert done.returncode == 1
    first, last = done.stdout.splitlines()
    assert first == "demo: signature 'gemv': k_gemv<1, 1>: is not taken: M is 1 and not >=2"
    assert last.endswith("1 do not hold")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SIGNATURE.replace("bucket", "buckit"), "[[signature]] 1 'gemv': key buckit: is not known"),
        (SIGNATURE.replace("<*, M>", "<*, M"), "column 7: < is never closed; add the >"),
        ("[[signature", "is not TOML"),
    ],
)
@pytest.mark.parametrize("command", [["check"], ["list"], ["explain", "k"]])
def test_a_file_that_is_not_valid_gives_one_line_and_no_verdict(
    run_cli, own, text, message, command
):
    own.write_text(MINIMAL + text)
    done = run_cli("registry", *command, "--registry", own)
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"{own}: ")
    assert message in done.stderr


def test_an_unknown_engine_is_wrong_usage_and_a_missing_file_no_verdict(run_cli, tmp_path):
    done = run_cli("registry", "list", "kestrl")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "engine 'kestrl': no registry describes it; did you mean kestrel?"
    )
    done = run_cli("registry", "check", "--registry", tmp_path / "absent.toml")
    assert done.returncode == 3
    assert "absent.toml: cannot be read" in done.stderr
    assert run_cli("registry", "explain").returncode == 2


def test_explain_shows_parts_taker_and_near_misses(run_cli):
    done = run_cli("registry", "explain", GEMV.format(1))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "base         k_rq_q4_gemv_mr" in lines
    assert "argument 2   1" in lines
    assert "parameter 1  const unsigned char*" in lines
    assert "kestrel: taken by gemv-single (k_rq_q4_gemv_mr<R, 1>) as target, gemv [R = 4]" in lines
    assert "kestrel: not gemv-verify (k_rq_q4_gemv_mr<*, M>): M is 1 and not >=2" in lines
    done = run_cli("registry", "explain", GEMV.format(3), "--engine", "kestrel")
    assert "as verify, gemv [M = 3, width 3]" in " ".join(done.stdout.split())
    done = run_cli("registry", "explain", "k_gdn_conv_x", "--engine", "kestrel")
    assert "not gdn-verify (k_gdn_*_m): the name is k_gdn_conv_x and not k_gdn_*_m" in done.stdout
    done = run_cli("registry", "explain", "vectorAdd(int *)")
    assert done.stdout.splitlines()[-2].startswith("no signature takes it (kestrel, ")
    done = run_cli("registry", "explain", "two words")
    assert "not a function name" in done.stdout


def test_explain_as_json(run_cli):
    done = run_cli("registry", "explain", GEMV.format(3), "--format", "json")
    document = json.loads(done.stdout)
    assert document["name"]["base"] == "k_rq_q4_gemv_mr"
    assert document["name"]["args"] == ["4", "3"]
    (kestrel,) = [e for e in document["engines"] if e["engine"] == "kestrel"]
    assert [(t["id"], t["captures"], t["width_value"]) for t in kestrel["taken_by"]] == [
        ("gemv-verify", {"M": "3"}, 3)
    ]
    assert {
        "id": "gemv-draft",
        "pattern": "k_rq_q4_gemv_mr<1, 1>",
        "reason": "argument 1 is 4 and not 1",
    } in kestrel["near"]
