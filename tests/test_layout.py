"""Text and tables that fit a width."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysacct.layout import fold, table

WORDS = st.text(st.sampled_from("ab_,:<>{}.-12 "), max_size=60).map(str.strip)


@given(text=st.lists(WORDS, max_size=12).map(" ".join), width=st.integers(20, 120))
def test_folded_lines_fit_and_lose_nothing(text: str, width: int) -> None:
    folded = fold(text, width, indent=2, hang=4)
    assert all(len(line) <= width for line in folded.splitlines())
    assert re.sub(r"\s", "", folded) == re.sub(r"\s", "", text)


def test_a_number_keeps_its_unit() -> None:
    for width in range(20, 60):
        for line in fold("it takes 12.5 ms, that is 44.4 % of 28.1 ms in all", width).splitlines():
            assert not re.match(r"ms|%", line)


@given(
    rows=st.integers(1, 9).flatmap(
        lambda n: st.lists(st.lists(WORDS, min_size=n, max_size=n), min_size=2, max_size=6)
    ),
    width=st.integers(30, 120),
)
def test_tables_lose_no_character(rows: list[list[str]], width: int) -> None:
    lines = table(rows, width)
    kept = [i for i in range(len(rows[0])) if i == 0 or any(row[i] for row in rows[1:])]
    for cell in (row[i] for row in rows for i in kept):
        left = re.sub(r"\s", "", "".join(lines))
        assert all(left.count(c) >= cell.count(c) for c in set(cell) - {" "})


@given(
    columns=st.integers(1, 14), rows=st.integers(1, 4), value=st.integers(0, 10**6),
    width=st.integers(40, 120),
)  # fmt: skip
def test_tables_of_figures_fit(columns: int, rows: int, value: int, width: int) -> None:
    head = ["round", *(f"column {i}" for i in range(columns))]
    body = [[str(r), *(f"{value / 1000:.3f}" for _ in range(columns))] for r in range(rows)]
    lines = table([head, *body], width)
    assert max(map(len, lines)) <= width
    assert "\n".join(lines).count(f"{value / 1000:.3f}") == columns * rows


def test_many_columns_become_blocks_with_the_first_column_again() -> None:
    head = ["k", *(f"column {i}" for i in range(6))]
    lines = table([head, ["7", *"123456"]], 40)
    assert lines == [
        "k  column 0  column 1  column 2",
        "7         1         2         3",
        "",
        "k  column 3  column 4  column 5",
        "7         4         5         6",
    ]


def test_gaps_narrow_before_columns_part() -> None:
    head, row = ["a" * 6, "b" * 6, "c" * 6], ["1", "2", "3"]
    assert table([head, row], 22)[0] == "aaaaaa  bbbbbb  cccccc"
    assert table([head, row], 20)[0] == "aaaaaa bbbbbb cccccc"


def test_long_cells_fold_at_their_own_marks() -> None:
    pattern = "{flash_attn_ext_f16,flash_attn_ext_vec,flash_attn_tile}"
    lines = table([("bucket", "pattern", "layer"), ("shared", pattern, "all")], 43)
    assert lines == [
        "bucket  pattern                       layer",
        "shared  {flash_attn_ext_f16,          all",
        "          flash_attn_ext_vec,",
        "          flash_attn_tile}",
    ]


def test_a_line_end_in_a_cell_makes_no_row() -> None:
    assert table([("trace", "ms"), ("a\nb  9.9", "1.2")], 80) == ["trace      ms", "a b  9.9  1.2"]


def test_an_empty_column_is_left_out() -> None:
    assert table([("a", "b", "c"), ("x", "", "1"), ("y", "", "2")], 80)[0] == "a  c"


@pytest.mark.parametrize("cell", ["-", "1.25", "3x", "~4 %"])
def test_figures_stand_right_and_words_left(cell: str) -> None:
    lines = table([("where", "figure", "said"), ("draft", cell, "so"), ("x", "12.5", "no")], 80)
    assert lines[1] == f"draft  {cell:>6}  so"
