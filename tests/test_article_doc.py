"""The document that works a published account again must itself be right."""

import ast
import operator
import re
from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from article_account import article

from nsysacct.economics import costs_of
from nsysacct.whatif import Levers, what_if

TEXT = (Path(__file__).parent.parent / "docs" / "article.md").read_text(encoding="utf-8")
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def evaluate(node):
    if isinstance(node, ast.Expression):
        return evaluate(node.body)
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](evaluate(node.left), evaluate(node.right))
    assert isinstance(node, ast.Constant)
    return Fraction(str(node.value))


def rounds_to(value, printed):
    """Whether `value` is `printed` at its own number of digits, either way at a tie."""
    unit = Decimal(1).scaleb(Decimal(printed).as_tuple().exponent)
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    return Decimal(printed) in {
        exact.quantize(unit, rounding=mode) for mode in (ROUND_HALF_UP, ROUND_HALF_DOWN)
    }


def rows():
    pattern = r"^\| (.+?) \| ([\d.]+) \| `([^`]+)` \| ([\d.]+) \| (exact|close|choice) \|$"
    return re.findall(pattern, TEXT, re.MULTILINE)


def test_the_table_was_found():
    assert len(rows()) == 41


@pytest.mark.parametrize(("what", "printed", "formula", "value", "verdict"), rows())
def test_each_number(what, printed, formula, value, verdict):
    result = evaluate(ast.parse(formula, mode="eval"))
    assert rounds_to(result, value), what
    if verdict == "exact":
        assert rounds_to(result, printed), what
    if verdict == "choice":
        assert abs(result / Fraction(printed) - 1) < Fraction(1, 50), what
    if verdict == "close":
        assert not rounds_to(result, printed), what
        assert abs(result / Fraction(printed) - 1) < Fraction(6, 100), what


def test_the_corner_table_is_what_the_library_says():
    costs = costs_of(article())
    mean = Fraction("1.385")
    found = {
        "H3, no replay": (Levers(no_replay=True), "as measured"),
        "H1, A + 1 rounds, replay held": (Levers(acceptance=mean), "A+1"),
        "H1, constant-rate histogram, replay recomputed": (Levers(acceptance=mean), "constant"),
        "H1 + H3, A + 1 rounds": (Levers(acceptance=mean, no_replay=True), "A+1"),
        "H1 + H3, constant-rate histogram": (Levers(acceptance=mean, no_replay=True), "constant"),
    }
    for name, (levers, word) in found.items():
        cells = re.search(rf"^\| {re.escape(name)} \| (.+) \|$", TEXT, re.MULTILINE)[1].split(" | ")
        row = what_if(costs, levers).rows[-1]
        kept = ("rest kept", "rest kept") if word == "as measured" else ("per round", "rest fixed")
        corners = [row.corner(word, rest) for rest in (*kept, "rest dropped")]
        if word == "as measured":
            assert corners[0].speedup == corners[1].speedup
        assert cells == [f"{corner.speedup:.2f}x" for corner in corners], name


def test_the_ranges_and_their_named_corners():
    costs = costs_of(article())
    rows_ = what_if(costs, Levers(acceptance=Fraction("1.385"), no_replay=True)).rows
    by_lever = dict(zip(("baseline", "H1", "H3", "H1 + H3"), rows_, strict=True))
    pattern = r"^\| (H\d(?: \+ H3)?) \| ([\d.]+)x \| ([\d.]+)-([\d.]+)x \| (.+) \|$"
    table = re.findall(pattern, TEXT, re.MULTILINE)
    assert len(table) == 3
    for lever, printed, low, high, corner in table:
        row = by_lever[lever]
        assert (f"{row.low:.2f}", f"{row.high:.2f}") == (low, high)
        assert f"{row.corner(corner).speedup:.2f}" == printed
    for row, text in ((rows_[1], "0.46-1.00x"), (rows_[3], "0.82-1.37x")):
        assert f"{row.any_low:.2f}-{row.any_high:.2f}x" == text
        assert text in TEXT
