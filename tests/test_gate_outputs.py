"""Every output of the gate is valid by its format's rules and harmless with hostile names."""

from __future__ import annotations

import json
import random
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import jsonschema
import pytest
from gate_cases import (
    GEMV,
    base_account,
    more_launches,
    noise,
    sides,
    slower,
    then,
    with_blind_spot,
    with_trace,
)
from msgspec.structs import replace

from nsysacct.comparability import Side
from nsysacct.gate import Verdict, judge
from nsysacct.gate_output import (
    FORMATS,
    as_json,
    github_annotations,
    junit,
    markdown,
    md,
    sarif,
    text,
)
from nsysacct.limits import parse_limit

HOSTILE = (
    "k\x1b[31m\x00|<img src=x onerror=y>]]>&amp;`@team`%0A::error::x\r\n::set-env name=A::b\n"
    "## [x](http://evil) <!-- \u202e\ufffe\ud800 #123 www.evil.example " + "z" * 900
)


def hostile(account):
    """Every name that comes from outside is as bad as can be."""
    rows = [
        replace(row, signature=HOSTILE if row.signature == GEMV else row.signature, family="a|<b>")
        if row.bucket == "verify"
        else row
        for row in account.kernels
    ]
    return replace(account, kernels=rows)


def verdicts() -> dict[str, Verdict]:
    generator = random.Random(5)
    dear = then(hostile, slower("verify", 1.3, HOSTILE))
    one, many = sides("base", base_account()), [noise(generator)(base_account()) for _ in range(4)]
    bad_name = [Side("head", HOSTILE, dear(base_account()))]
    spot = with_blind_spot(HOSTILE, "fatal")(base_account())
    unsure = sides("head", *[slower("verify", f)(base_account()) for f in (1.0, 1.01, 1.02, 1.03)])
    limits = [
        parse_limit(f"{b}.ns_per_round:+{i + 1}%")
        for b in ("verify", "draft", "replay", "total")
        for i in range(20)
    ]
    return {
        "pass": judge(one, sides("head", base_account())),
        "fail": judge(sides("base", hostile(base_account())), bad_name),
        "no verdict": judge(one, [Side("head", HOSTILE, spot)]),
        "other GPU": judge(one, sides("h", with_trace(gpu=HOSTILE)(base_account()))),
        "five a side": judge(
            sides("base", *many),
            sides("head", *[noise(generator)(more_launches("verify", GEMV, 2)(a)) for a in many]),
        ),
        "inconclusive": judge(
            sides("base", *many), unsure, [parse_limit("verify.ns_per_round:+1%")]
        ),
        "inconclusive passes": judge(
            sides("base", *many), unsure, [parse_limit("verify.ns_per_round:+1%")],
            inconclusive="pass",
        ),
        "many limits": judge(sides("base", hostile(base_account())), bad_name, limits),
        "unknown figure": judge(
            one, sides("head", replace(base_account(), acceptance=None)),
            [parse_limit("verify.ns_per_token:+5%")],
        ),
        "cap": judge(one, one, [parse_limit("verify.ns_per_round:<=1ms")]),
        "skipped": judge(
            sides("base", with_blind_spot("x", "warning")(base_account())),
            sides("head", with_blind_spot("x", "warning")(base_account())),
        ),
    }  # fmt: skip


CASES = verdicts()
every_case = pytest.mark.parametrize("verdict", CASES.values(), ids=CASES.keys())

# The part of SARIF 2.1.0 that is written, closed against anything else (OASIS, sections 3.13 on).
MESSAGE = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 1}},
    "required": ["text"],
    "additionalProperties": False,
}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "pattern": "^https://"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "additionalProperties": False,
                "properties": {
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "additionalProperties": False,
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "additionalProperties": False,
                                "properties": {
                                    "name": {"type": "string"},
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id"],
                                            "additionalProperties": False,
                                            "properties": {
                                                "id": {"type": "string"},
                                                "shortDescription": MESSAGE,
                                            },
                                        },
                                    },
                                },
                            }
                        },
                    },
                    "invocations": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["executionSuccessful"],
                            "additionalProperties": False,
                            "properties": {
                                "executionSuccessful": {"type": "boolean"},
                                "exitCode": {"type": "integer"},
                                "toolExecutionNotifications": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "required": ["message"],
                                        "additionalProperties": False,
                                        "properties": {"message": MESSAGE, "level": LEVEL},
                                    },
                                },
                            },
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "kind": {
                                    "enum": ["notApplicable", "pass", "fail", "review", "open",
                                             "informational"]
                                },
                                "level": LEVEL,
                                "message": MESSAGE,
                                "locations": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "required": ["physicalLocation"],
                                        "additionalProperties": False,
                                        "properties": {
                                            "physicalLocation": {
                                                "type": "object",
                                                "required": ["artifactLocation"],
                                                "additionalProperties": False,
                                                "properties": {
                                                    "artifactLocation": {
                                                        "type": "object",
                                                        "required": ["uri"],
                                                        "additionalProperties": False,
                                                        "properties": {
                                                            "uri": {
                                                                "type": "string",
                                                                "pattern": "^[-A-Za-z0-9._~%/]+$",
                                                            }
                                                        },
                                                    }
                                                },
                                            }
                                        },
                                    },
                                },
                                "partialFingerprints": {
                                    "type": "object",
                                    "additionalProperties": {"type": "string"},
                                },
                            },
                            # 3.27.10: a level other than none only with kind fail
                            "if": {"properties": {"kind": {"not": {"const": "fail"}}}},
                            "then": {"properties": {"level": {"const": "none"}}},
                        },
                    },
                },
            },
        },
    },
}  # fmt: skip


@every_case
def test_sarif_is_valid(verdict):
    log = json.loads(sarif(verdict))
    jsonschema.Draft202012Validator.check_schema(SARIF)
    jsonschema.validate(log, SARIF)
    run = log["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
    kinds = {result["kind"] for result in run["results"]}
    assert ("fail" in kinds) == (verdict.outcome == "fail")
    assert bool(run["invocations"][0]["toolExecutionNotifications"]) == bool(verdict.obstacles)


@every_case
def test_sarif_is_valid_for_a_reader_made_from_the_whole_schema(verdict):
    model = pytest.importorskip("pydantic_sarif.model")
    model.StaticAnalysisResultsFormatSarifVersion210JsonSchema.model_validate_json(sarif(verdict))


@every_case
def test_junit_is_read_by_another_program(verdict):
    junitparser = pytest.importorskip("junitparser")
    read = junitparser.JUnitXml.fromstring(junit(verdict).encode())
    assert sum(len(list(suite)) for suite in read) == read.tests == max(len(verdict.checks), 1)


def test_the_sarif_check_finds_faults():
    log = json.loads(sarif(CASES["pass"]))
    log["runs"][0]["results"][0]["level"] = "error"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(log, SARIF)


JUNIT_CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "error", "skipped", "system-out"},
}
JUNIT_ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testcase": {"classname", "name", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
    "system-out": set(),
}


@every_case
def test_junit_is_valid(verdict):
    raw = junit(verdict)
    raw.encode("utf-8")
    root = ET.fromstring(raw.encode())
    for element in root.iter():
        assert set(element.attrib) <= JUNIT_ATTRIBUTES[element.tag]
        assert {child.tag for child in element} <= JUNIT_CHILDREN.get(element.tag, set())
        assert len(list(element)) <= 1 or element.tag in ("testsuite", "testsuites")
    suite = root.find("testsuite")
    cases = suite.findall("testcase")
    assert cases
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.get(attribute)) == len(suite.findall(f"testcase/{tag}"))
    assert int(suite.get("tests")) == len(cases)
    failed, errors = int(suite.get("failures")), int(suite.get("errors"))
    seen = "fail" if failed else "no verdict" if errors else "pass"
    assert seen == verdict.outcome


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_comment(self, data):
        self.tags.append("comment")


@every_case
def test_markdown_is_short_and_harmless(verdict):
    out = markdown(verdict)
    lines = out.splitlines()
    assert len(lines) < 60
    assert verdict.outcome in lines[0]
    parser = Tags()
    parser.feed(out)
    assert parser.tags == []
    assert not re.search(r"(?<!\\)@\w", out)
    assert "http://" not in out
    assert "www." not in out
    table = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in table}) <= 1
    if table:
        assert set(table[1]) <= set("|-:")


@every_case
def test_text_says_the_verdict_first_and_prints_no_control_characters(verdict):
    out = text(verdict)
    assert out.startswith(verdict.outcome.upper())
    assert not set(out) & {chr(c) for c in range(32) if c != 10}
    assert "\u202e" not in out


@every_case
def test_json(verdict):
    document = json.loads(as_json(verdict))
    assert document["schema"] == {"kind": "nsysacct/verdict", "version": 1}
    assert document["outcome"] == verdict.outcome
    assert document["exit_code"] == verdict.exit_code
    assert len(document["checks"]) == len(verdict.checks)
    assert "NaN" not in as_json(verdict)


@every_case
def test_annotations_are_one_command_a_line(verdict):
    """GitHub runs any line that begins with ``::``; a hostile name must not begin one."""
    out = github_annotations(verdict)
    level = {"pass": "notice", "fail": "error", "no verdict": "warning"}[verdict.outcome]
    lines = out.splitlines()
    assert 1 <= len(lines) <= 10
    for line in lines:
        assert re.fullmatch(rf"::{level} title=[^:,]*::.+", line), line
        assert not re.search(r"%0[AaDd]", line.replace("%25", ""))


@every_case
def test_same_verdict_same_bytes(verdict):
    for write in FORMATS.values():
        assert write(verdict) == write(verdict)
        assert write(verdict).endswith("\n")
        write(verdict).encode("utf-8")


def test_the_reason_names_family_signature_counts_and_times():
    (reason, *_) = CASES["five a side"].reasons
    assert "verify gemv: k_rq_q4_gemv_mr<*,3> more launches: 65 → 130 launches a round" in reason


def test_single_capture_is_marked_everywhere_and_shows_the_spread():
    verdict = CASES["fail"]
    assert "single capture" in text(verdict)
    assert "single capture" in markdown(verdict).splitlines()[0]
    assert "spread within one run" in text(verdict)
    assert json.loads(as_json(verdict))["single_capture"] is True
    assert "single capture" not in text(CASES["five a side"])


def test_detectable_change_is_stated():
    assert "smallest change told from none" in text(CASES["five a side"])


def test_no_output_contradicts_what_inconclusive_counts_as():
    assert CASES["inconclusive"].outcome == "no verdict"
    verdict = CASES["inconclusive passes"]
    assert verdict.outcome == "pass"
    assert "counts as pass" in text(verdict)


@pytest.mark.parametrize(
    "source", ["a|b", "<b>", "*x*", "_x_", "`x`", "[x](y)", "@me", "#12", "~~x~~", "\\|", "a\nb"]
)
def test_md_neutralises(source):
    out = md(source)
    assert out != source
    assert "\n" not in out
