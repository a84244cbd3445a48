"""A verdict for readers and machines: text, Markdown, JUnit XML, SARIF, JSON, GitHub.

Every name that came from outside (kernels, files, labels) is made harmless for the format it
goes into. No format says anything that the verdict does not.

Sources: SARIF 2.1.0 (OASIS, section 3.27 for ``kind``/``level``); JUnit: the common subset that
Jenkins, GitLab and GitHub readers take; GitHub workflow commands and their escaping.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from nsysacct.gate import Check, Verdict, bound_text, change_text
from nsysacct.layout import fold, table
from nsysacct.quantities import clean, short, value_text
from nsysacct.stats import Spread
from nsysacct.wire import dump_document

MARKDOWN_ROWS = 24
MARKDOWN_REASONS = 10
"""Together with headings below 60 lines, which a job summary shows without a scroll bar."""

VERDICT_KIND = "nsysacct/verdict"
COLUMNS: tuple[str, ...] = ("figure", "base", "head", "change", "limit", "outcome")
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def text(verdict: Verdict, width: int = 80) -> str:
    """Plain text: verdict first, then the table, reasons and notes."""
    lines = [f"{verdict.outcome.upper()}{_mode(verdict)}"]
    lines += [fold(clean(reason), width, indent=2, hang=4) for reason in verdict.reasons]
    if verdict.checks:
        rows = [COLUMNS, *(_cells(verdict, check) for check in verdict.checks)]
        lines += ["", *table(rows, width)]
    spreads = [line for check in verdict.checks for line in _spread_lines(check)]
    if spreads:
        head = "spread within one run (half the distance of the quartiles, over the median):"
        lines += ["", fold(head, width)]
        lines += [fold(line, width, indent=2, hang=4) for line in spreads]
    detectable = _detectable(verdict)
    if detectable:
        lines += ["", fold(detectable, width, hang=2)]
    lines += [""] if verdict.notes else []
    lines += [fold(f"note: {clean(note)}", width, hang=6) for note in verdict.notes]
    lines += [""]
    lines += [
        fold(f"{role}: {_names(names)}", width, hang=6)
        for role, names in (("base", verdict.base_names), ("head", verdict.head_names))
    ]
    return "\n".join(lines) + "\n"


def markdown(verdict: Verdict) -> str:
    """Markdown for a job summary or a comment: verdict first, fewer than 60 lines."""
    icon = {"pass": "✅", "fail": "❌", "no verdict": "⚠️"}[verdict.outcome]
    lines = [f"## {icon} nsysacct gate: {verdict.outcome}{_mode(verdict)}", ""]
    lines += _capped([f"- {md(reason)}" for reason in verdict.reasons], MARKDOWN_REASONS)
    if verdict.checks:
        lines += ["", f"| {' | '.join(COLUMNS)} |"]
        lines.append("|---|--:|--:|--:|--:|---|")
        order = {"fail": 0, "no verdict": 1, "inconclusive": 2}
        checks = sorted(verdict.checks, key=lambda check: order.get(check.outcome, 3))
        rows = ["| " + " | ".join(map(md, _cells(verdict, check))) + " |" for check in checks]
        lines += rows[:MARKDOWN_ROWS]
        if len(rows) > MARKDOWN_ROWS:
            lines += ["", f"{len(rows) - MARKDOWN_ROWS} further limits, none of them worse."]
    spreads = [line for check in verdict.checks for line in _spread_lines(check)]
    if spreads:
        lines += ["", "Spread within one run: " + md("; ".join(spreads[:6]))]
    detectable = _detectable(verdict)
    if detectable:
        lines += ["", md(detectable)]
    lines += ["", *_capped([f"> {md(note)}" for note in verdict.notes], 6)] if verdict.notes else []
    lines += ["", f"base: {md(_names(verdict.base_names))}, head: {md(_names(verdict.head_names))}"]
    return "\n".join(lines) + "\n"


def junit(verdict: Verdict) -> str:
    """JUnit XML, a test case a limit: beyond it a ``failure``, not judged an ``error``."""
    cases = [_junit_obstacle(str(obstacle)) for obstacle in verdict.obstacles]
    cases += [_junit_case(verdict, check) for check in verdict.checks]
    if not cases:
        cases = [_junit_obstacle(verdict.reasons[0])]
    counts = {
        "tests": len(cases),
        "failures": sum(case.find("failure") is not None for case in cases),
        "errors": sum(case.find("error") is not None for case in cases),
        "skipped": sum(case.find("skipped") is not None for case in cases),
    }
    attributes = {"name": "nsysacct gate", **{k: str(v) for k, v in counts.items()}, "time": "0"}
    suites = ET.Element("testsuites", attributes)
    suite = ET.SubElement(suites, "testsuite", attributes)
    suite.extend(cases)
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=False).join(
        ['<?xml version="1.0" encoding="UTF-8"?>\n', "\n"]
    )


def sarif(verdict: Verdict) -> str:
    """SARIF 2.1.0: a rule a figure, a result a limit.

    What cannot be judged is ``kind: open``; why, is a tool notification.
    """
    rules = list(dict.fromkeys(check.limit.metric.name for check in verdict.checks))
    run = {
        "tool": {
            "driver": {
                "name": "nsysacct",
                "rules": [
                    {"id": clean(name), "shortDescription": {"text": f"limit on {clean(name)}"}}
                    for name in rules
                ],
            }
        },
        "invocations": [
            {
                "executionSuccessful": True,
                "exitCode": verdict.exit_code,
                "toolExecutionNotifications": [
                    {"level": "error", "message": {"text": clean(str(obstacle))}}
                    for obstacle in verdict.obstacles
                ],
            }
        ],
        "results": [_sarif_result(verdict, check, rules) for check in verdict.checks],
        "columnKind": "utf16CodeUnits",
    }
    log = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def document(verdict: Verdict) -> dict[str, Any]:
    """Verdict as a JSON object (kind ``nsysacct/verdict``, version 1)."""
    return {
        "schema": {"kind": VERDICT_KIND, "version": 1},
        "outcome": verdict.outcome,
        "exit_code": verdict.exit_code,
        "single_capture": verdict.single_capture,
        "confidence": verdict.confidence,
        "inconclusive": verdict.inconclusive,
        "base": list(verdict.base_names),
        "head": list(verdict.head_names),
        "reasons": list(verdict.reasons),
        "notes": list(verdict.notes),
        "obstacles": [asdict(obstacle) for obstacle in verdict.obstacles],
        "checks": [_check_document(check) for check in verdict.checks],
    }


def as_json(verdict: Verdict) -> str:
    """Verdict as JSON text (`document`)."""
    return dump_document(document(verdict))


FORMATS: dict[str, Callable[[Verdict], str]] = {
    "text": text,
    "markdown": markdown,
    "junit": junit,
    "sarif": sarif,
    "json": as_json,
}
"""Name of a format -> its writer."""


def github_annotations(verdict: Verdict) -> str:
    """Workflow commands that GitHub shows beside a job: one a reason, at most ten.

    Returns
    -------
    str
        Lines to print on stdout, each ``::error title=...::message``.
    """
    level = {"pass": "notice", "fail": "error", "no verdict": "warning"}[verdict.outcome]
    title = _property(f"nsysacct gate: {verdict.outcome}{_mode(verdict)}")
    lines = [f"::{level} title={title}::{_message(reason)}" for reason in verdict.reasons[:10]]
    return "\n".join(lines) + "\n"


def md(source: str) -> str:
    r"""Text that Markdown shows as it is: no markup, tags, mentions, links, or table breaks.

    Examples
    --------
    >>> md("k<*,3>|@you")
    'k&lt;\\*,3&gt;&#124;&#64;you'
    """
    escaped = clean(source).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for character, entity in (("|", "&#124;"), ("@", "&#64;"), ("://", "&#58;//")):
        escaped = escaped.replace(character, entity)
    escaped = re.sub(r"#(?!\d+;)", "&#35;", escaped)
    escaped = re.sub(r"(?i)www\.", "www&#46;", escaped)
    return re.sub(r"([\\`*_\[\]~!])", r"\\\1", escaped)


def _mode(verdict: Verdict) -> str:
    return " (single capture)" if verdict.single_capture else ""


def _cells(verdict: Verdict, check: Check) -> tuple[str, ...]:
    unit = check.limit.metric.unit
    change = "" if check.change is None else change_text(check.change, check.limit, check.bound)
    outcome: str = check.outcome
    if verdict.effective(check) != check.outcome:
        outcome = f"{check.outcome} (counts as {verdict.effective(check)})"
    bound = check.limit.text.rpartition(":")[2]
    if check.change is not None or check.limit.kind == "cap":
        bound = bound_text(check.limit, check.bound)
    name = short(check.limit.metric.name)
    if check.provenance != "measured":
        name += f" ({check.provenance})"
    return (
        name,
        value_text(check.base, unit),
        value_text(check.head, unit),
        change,
        bound,
        outcome,
    )


def _spread_lines(check: Check) -> list[str]:
    shown = [
        f"{side} ±{_half(found)} of {found.count} rounds"
        for side, found in (("base", check.base_spread), ("head", check.head_spread))
        if found is not None and found.relative is not None
    ]
    return [f"{short(check.limit.metric.name)}: {', '.join(shown)}"] if shown else []


def _half(found: Spread) -> str:
    return f"{(found.relative or 0.0) * 50:.2f} %"


def _detectable(verdict: Verdict) -> str:
    """Say the smallest change that these captures could have shown, by figure."""
    parts = []
    for check in verdict.checks:
        change = check.change
        if change is None or change.detectable is None or change.scale != "ratio":
            continue
        least = max(change.detectable, check.limit.metric.floor)
        parts.append(f"{short(check.limit.metric.name)} {least * 100:.2g} %")
    return f"smallest change told from none 95 times in 100: {', '.join(parts)}" if parts else ""


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(short(name) for name in names[:8])
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _capped(lines: list[str], most: int) -> list[str]:
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"- and {len(lines) - most + 1} more"]


def _junit_obstacle(message: str) -> ET.Element:
    case = ET.Element(
        "testcase", {"classname": "nsysacct.gate", "name": "captures are comparable", "time": "0"}
    )
    error = ET.SubElement(case, "error", {"message": clean(message), "type": "no verdict"})
    error.text = clean(message)
    return case


def _junit_case(verdict: Verdict, check: Check) -> ET.Element:
    case = ET.Element(
        "testcase", {"classname": "nsysacct.gate", "name": clean(check.limit.text), "time": "0"}
    )
    message = _said(check)
    outcome = verdict.effective(check)
    tag = {"fail": "failure", "no verdict": "error"}.get(outcome)
    if tag is not None:
        problem = ET.SubElement(case, tag, {"message": message, "type": check.outcome})
        problem.text = message
    elif outcome == "skipped":
        ET.SubElement(case, "skipped", {"message": message})
    else:
        ET.SubElement(case, "system-out").text = message
    return case


def _sarif_result(verdict: Verdict, check: Check, rules: list[str]) -> dict[str, Any]:
    kind = {"fail": "fail", "pass": "pass", "skipped": "notApplicable"}.get(
        verdict.effective(check), "open"
    )
    return {
        "ruleId": clean(check.limit.metric.name),
        "ruleIndex": rules.index(check.limit.metric.name),
        "kind": kind,
        "level": "error" if kind == "fail" else "none",
        "message": {"text": f"{clean(check.limit.text)}: {_said(check)}"},
        "locations": [
            {"physicalLocation": {"artifactLocation": {"uri": quote(clean(name))}}}
            for name in verdict.head_names[:1]
        ],
        "partialFingerprints": {"nsysacctLimit/v1": clean(check.limit.text)},
    }


def _said(check: Check) -> str:
    return clean(check.reason + (f"; {check.why}" if check.why else ""))


def _check_document(check: Check) -> dict[str, Any]:
    return {
        "limit": check.limit.text,
        "metric": check.limit.metric.name,
        "unit": check.limit.metric.unit,
        "outcome": check.outcome,
        "base": check.base,
        "head": check.head,
        "bound": check.bound,
        "change": None if check.change is None else asdict(check.change),
        "reason": check.reason,
        "why": check.why,
        "provenance": check.provenance,
        "base_spread": None if check.base_spread is None else asdict(check.base_spread),
        "head_spread": None if check.head_spread is None else asdict(check.head_spread),
    }


def _message(source: str) -> str:
    """Escape for the message of a workflow command, after control characters are gone."""
    return clean(source).replace("%", "%25")


def _property(source: str) -> str:
    return _message(source).replace(":", "%3A").replace(",", "%2C")
