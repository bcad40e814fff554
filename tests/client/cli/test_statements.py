"""Tests of SQL statements on the command line: a refusal shows the line with the error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from anabranch_client.cli.app import app
from anabranch_client.cli.statements import read_values
from anabranch_client.rest.api import Client

if TYPE_CHECKING:
    from typer.testing import Result

SQL = "SELECT o.order_id,\n\to.totl\nFROM orders o"


def run(*arguments: str, url: str, columns: int = 160) -> Result:
    variables = {"ANABRANCH_URL": url, "COLUMNS": str(columns)}
    return CliRunner().invoke(app, list(arguments), env=variables)


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (("query", "add", SQL), "sql"),
        (("query", "explain", SQL), "sql"),
        (("plan", "dry-run", SQL), "add.0.sql"),
    ],
)
def test_the_line_and_a_caret_are_below_the_error(
    command: tuple[str, ...], field: str, url: str, shop: Client
) -> None:
    result = run(*command, url=url)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"error: {field}: line 2, column 2: there is no column 'totl' in stream 'orders' "
        "(alias 'o') (did you mean 'total'?)",
        "  2 |     o.totl",
        "    |     ^",
    ]


def test_the_second_of_two_queries_is_quoted(url: str, shop: Client) -> None:
    good = "SELECT order_id FROM orders"
    result = run("plan", "dry-run", "--add", good, "--add", f"b={SQL}", url=url)
    assert "error: add.1.sql: line 2, column 2" in result.stderr
    assert result.stderr.endswith("  2 |     o.totl\n    |     ^\n")


def test_the_line_of_a_file_is_quoted(url: str, shop: Client, tmp_path: Path) -> None:
    path = tmp_path / "q.sql"
    path.write_text("SELCT order_id FROM orders")
    result = run("query", "add", "--file", str(path), url=url)
    assert result.stderr.splitlines()[1:] == ["  1 | SELCT order_id FROM orders", "    | ^"]


def test_a_long_line_is_cut_to_the_terminal_and_to_80_columns(url: str, shop: Client) -> None:
    sql = f"SELECT {', '.join(f'o.order_id AS c{n}' for n in range(40))}, o.totl FROM orders o"
    for columns, most in ((160, 80), (40, 40)):
        _, line, mark = run("query", "add", sql, url=url, columns=columns).stderr.splitlines()
        assert max(len(line), len(mark)) <= most
        assert line[mark.index("^") :].startswith("o.totl")


def test_all_errors_of_a_statement_are_shown(url: str, shop: Client) -> None:
    sql = "SELECT o.totl, o.foo\nFROM orders o WHERE o.bar = 1"
    lines = run("query", "add", sql, url=url).stderr.splitlines()
    marked = [line.index("^") for line in lines if line.strip("| ") == "^"]
    assert all(line.startswith("error: sql: line ") for line in lines[::3]), lines
    assert [line.split(": ")[2] for line in lines[::3]] == [
        "line 2, column 21", "line 1, column 8", "line 1, column 16",
    ]  # fmt: skip
    assert marked == [6 + 20, 6 + 7, 6 + 15]


def test_json_has_no_excerpt(url: str, shop: Client) -> None:
    assert run("query", "add", SQL, "--json", url=url).stderr.count("\n") == 1


def test_a_statement_in_another_dialect_is_quoted_as_it_was_written(url: str, shop: Client) -> None:
    other = run("query", "add", SQL, "--dialect", "postgres", url=url).stderr
    assert other.splitlines()[1:] == ["  2 |     o.totl", "    |     ^"]


def test_an_explained_refusal_is_quoted_too(url: str, shop: Client) -> None:
    sql = "SELECT o.order_id\nFROM orders o OFFSET 3"
    result = run("query", "explain", sql, url=url)
    assert result.exit_code == 0
    assert "  2 | FROM orders o OFFSET 3\n    |                      ^\n" in result.stdout
    refused = json.loads(run("query", "explain", sql, "--json", url=url).stdout)["refused"]
    assert (refused["line"], refused["column"]) == (2, 22)


def test_parameters_have_values_of_json_or_texts(url: str, shop: Client) -> None:
    sql = "SELECT o.order_id FROM orders o WHERE o.total > :least AND o.total < :most"
    given = ("--parameter", "least=-2.5", "--parameter", "most=100")
    result = run("query", "add", sql, "--name", "filled", *given, url=url)
    assert result.exit_code == 0, result.stderr
    assert shop.query("filled").sql == sql.replace(":least", " -2.5").replace(":most", "100")
    result = run("query", "explain", sql, *given, url=url)
    assert result.exit_code == 0, result.stderr
    result = run("query", "add", sql, "--parameter", "least", url=url)
    assert (result.exit_code, "give name=value" in result.stderr) == (2, True)
    assert read_values(["a=007", 'b="0150"', "c=null", "d=true", "e=x=y", "f=[1]"]) == {
        "a": "007", "b": "0150", "c": None, "d": True, "e": "x=y", "f": "[1]",
    }  # fmt: skip
