"""Tests that SQL files are divided at the semicolons between statements, and at no others."""

from __future__ import annotations

import pytest

from anabranch_client.declared.statements import statements

QUOTED = "SELECT ';', \"a;\", `b;` -- c;\n, d"
COMMENTED = "SELECT a - b / c /* ;\n; */ FROM t"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        (" ;; -- nothing\n /* ; */ ;", []),
        ("SELECT 1", [(None, "SELECT 1", 1, 1)]),
        ("SELECT 1;SELECT 2 ;", [(None, "SELECT 1", 1, 1), (None, "SELECT 2", 1, 10)]),
        (QUOTED, [(None, QUOTED, 1, 1)]),
        ("SELECT 'it''s;', '\\';'; SELECT 2", [
            (None, "SELECT 'it''s;', '\\';'", 1, 1), (None, "SELECT 2", 1, 25)]),
        (f"{COMMENTED};\n", [(None, COMMENTED, 1, 1)]),
        ("-- name: one\n-- of them\n  SELECT 1;\n--name:two\nSELECT 2;\n;SELECT 3", [
            ("one", "SELECT 1", 3, 3), ("two", "SELECT 2", 5, 1), (None, "SELECT 3", 6, 2)]),
        ("-- name: no name\nSELECT 1 -- name: late\n", [(None, "SELECT 1", 2, 1)]),
        ("SELECT 'open; SELECT 2", [(None, "SELECT 'open", 1, 1), (None, "SELECT 2", 1, 15)]),
    ],
)  # fmt: skip
def test_statements_of_a_file(text: str, found: list[tuple[str | None, str, int, int]]) -> None:
    read = list(statements(text))
    assert [(one.name, one.text, one.line, one.column) for one in read] == found


def test_places_in_a_statement_are_places_in_the_file() -> None:
    text = "SELECT 1;\n\n  SELECT a,\n  b FROM t"
    one = list(statements(text))[1]
    assert (one.place(1, 8), one.place(2, 3)) == ((3, 10), (4, 3))
