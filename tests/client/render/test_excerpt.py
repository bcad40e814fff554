"""Tests of excerpts of statements: the line, the caret, and long lines cut."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from anabranch_client.render.excerpt import excerpt

SQL = "SELECT dayy\nFROM R\r\nWHERE\tk = 1"


@pytest.mark.parametrize(
    ("line", "column", "lines"),
    [
        (1, 8, ["  1 | SELECT dayy", "    |        ^"]),
        (2, 6, ["  2 | FROM R", "    |      ^"]),
        (3, 7, ["  3 | WHERE    k = 1", "    |          ^"]),
        (3, 40, ["  3 | WHERE    k = 1", "    |               ^"]),
    ],
)
def test_the_caret_stands_under_the_place(line: int, column: int, lines: list[str]) -> None:
    assert excerpt(SQL, line, column, 80).split("\n") == lines


def test_there_is_none_where_there_is_no_line() -> None:
    assert excerpt(SQL, 4, 1, 80) == ""
    assert excerpt(SQL, 0, 1, 80) == ""


def test_wide_characters_take_two_cells_and_combining_ones_none() -> None:
    sql = "SELECT '日本' AS e\u0301, nope"
    first, second = excerpt(sql, 1, sql.index("nope") + 1, 80).split("\n")
    assert cell_len(first.partition("nope")[0]) == second.index("^")


def test_what_would_move_the_cursor_is_not_written() -> None:
    shown = excerpt("SELECT '\x1b[2J', nope", 1, 16, 80)
    assert "\x1b" not in shown
    first, second = shown.split("\n")
    assert first.index("nope") == second.index("^")


@pytest.mark.parametrize("width", [12, 20, 40, 80])
@pytest.mark.parametrize("column", [1, 2, 30, 150, 299, 300])
@pytest.mark.parametrize("wide", [False, True])
def test_a_long_line_is_cut_around_the_caret(width: int, column: int, wide: bool) -> None:
    filler, marked = ("日", "本") if wide else ("a", "x")
    text = filler * 300
    text = text[: column - 1] + marked + text[column:]
    first, second = excerpt(text, 1, column, width).split("\n")
    assert cell_len(first) <= width
    assert cell_len(second) <= width
    assert cell_len(first.partition(marked)[0]) == second.index("^")
    assert marked in first
    kept = first.removeprefix("  1 | ")
    assert kept.strip("…") in text
    assert kept.startswith("…") or column < 150
    assert kept.endswith("…") or column > 150
    assert not kept.startswith("…") or column > 2
    assert not kept.endswith("…") or column < 300


def test_a_number_of_five_digits_has_a_wider_margin() -> None:
    text = "\n" * 12344 + "SELECT x"
    assert excerpt(text, 12345, 8, 80).split("\n") == ["  12345 | SELECT x", "        |        ^"]
