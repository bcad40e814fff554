"""Tests of query families that a file declares, with constants in the file or in a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch_client.declared.declaration import read_declaration
from anabranch_client.declared.families import members
from anabranch_client.errors import UsageError

SQL = "SELECT v FROM s WHERE v > :least AND k = :key"


def test_a_query_without_parameters_is_itself() -> None:
    assert members("q", {"sql": SQL}, Path()) == {"q": {"sql": SQL}}


def test_a_query_with_values_of_its_parameters_is_filled() -> None:
    body = {"sql": SQL, "parameters": {"least": 1.5, "key": "it's"}, "owner": "me"}
    filled = SQL.replace(":least", "1.5").replace(":key", "'it\\'s'")
    assert members("q", body, Path()) == {"q": {"sql": filled, "owner": "me"}}
    with pytest.raises(UsageError, match="no parameter :most") as caught:
        members("q", {"sql": SQL, "parameters": {"least": 1, "key": 2, "most": 3}}, Path())
    assert caught.value.field == "parameters.most"


def test_constants_of_a_table_have_the_types_that_they_are_written_in(tmp_path: Path) -> None:
    lines = "name,least,key\na,1,x\nb,-2.50,007\n\nc,,'q'\nd,1e3,inf\n"
    (tmp_path / "rows.csv").write_text("\ufeff" + lines)
    found = members("q", {"sql": SQL, "parameters": "rows.csv", "owner": "me"}, tmp_path)
    assert {name: body["sql"].partition("> ")[2] for name, body in found.items()} == {
        "q-a": "1 AND k = 'x'",
        "q-b": " -2.5 AND k = '007'",
        "q-c": r"NULL AND k = '\'q\''",
        "q-d": "'1e3' AND k = 'inf'",
    }
    assert all(set(body) == {"sql", "owner"} for body in found.values())


def test_a_file_declares_families_beside_other_queries(tmp_path: Path) -> None:
    path = tmp_path / "queries.yaml"
    path.write_text(
        "owner: web\nqueries:\n"
        "  one: {sql: SELECT v FROM s}\n"
        f"  many:\n    sql: {SQL}\n    window: 1 hour\n"
        "    parameters:\n      a: {least: 1, key: x}\n      b: {least: 2, key: null}\n"
    )
    found = read_declaration(path)
    assert [one.name for one in found.queries] == ["one", "many-a", "many-b"]
    assert found.queries[2].body == {
        "owner": "web",
        "window": "1 hour",
        "sql": "SELECT v FROM s WHERE v > 2 AND k = NULL",
    }


@pytest.mark.parametrize(
    ("parameters", "place", "line"),
    [
        ("{a: {least: 1, key: x}, b: {least: 1}}", "many.parameters.b.key", 4),
        ("{a: {least: 1, key: x, more: 1}}", "many.parameters.a.more", 4),
        ("{a: {least: 2020-01-01, key: x}}", "many.parameters.a.least", 4),
        ("{a: 1}", "many.parameters.a", 4),
        ("{}", "many.parameters", 4),
        ("twice.csv", "many.parameters", 4),
        ("short.csv", "many.parameters", 4),
        ("none.csv", "many.parameters", 4),
    ],
)
def test_errors_name_the_line(tmp_path: Path, parameters: str, place: str, line: int) -> None:
    (tmp_path / "twice.csv").write_text("name,least,key\na,1,2\na,1,2\n")
    (tmp_path / "short.csv").write_text("name,least,key\na,1\n")
    path = tmp_path / "queries.yaml"
    path.write_text(f"queries:\n  many:\n    sql: {SQL}\n    parameters: {parameters}\n")
    with pytest.raises(UsageError) as caught:
        read_declaration(path)
    assert f"line {line}: queries.{place}" in caught.value.field
    assert caught.value.remedy
