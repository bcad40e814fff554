"""Statements on the command line: SQL or structured queries, from arguments, files or stdin."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch_client.cli.context import stderr
from anabranch_client.errors import ApiError, ClientError, UsageError
from anabranch_client.render.excerpt import excerpt, excerpt_width
from anabranch_client.texts import read_utf8
from anabranch_contract.queries.families import Constant

Sql = Annotated[str | None, typer.Argument(help="The statement; - reads standard input.")]
File = Annotated[Path | None, typer.Option("--file", help="Read the statement from a file.")]
Structured = Annotated[
    Path | None, typer.Option("--structured", help="A structured query (JSON) instead of SQL.")
]
Windows = Annotated[
    list[str] | None,
    typer.Option("--window", help="Window for all aliases, or alias=duration (repeatable)."),
]
Values = Annotated[
    list[str] | None,
    typer.Option("--parameter", help="Value of the parameter :name, as name=value (repeatable)."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the changes without making them.")]
Dialect = Annotated[
    str | None, typer.Option(help="SQL dialect, by sqlglot's name; default: spark.")
]


def read_window(texts: list[str] | None) -> str | dict[str, str] | None:
    """Parse ``--window``: one window for all aliases, or one per alias."""
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return texts[0]
    pairs = [text.partition("=") for text in texts]
    if not all(equals for _, equals, _ in pairs):
        raise UsageError(
            "a duration for all aliases excludes others",
            field="--window",
            remedy="give one duration, or alias=duration for each",
        )
    return {alias: duration for alias, _, duration in pairs}


def read_values(texts: list[str] | None) -> dict[str, Constant] | None:
    """Parse ``--parameter``: a number, ``true``, ``false`` or ``null`` as in JSON; else a text.

    >>> read_values(["least=20", "code=007", 'zip="0150"'])
    {'least': 20, 'code': '007', 'zip': '0150'}
    """
    if not texts:
        return None
    pairs = [text.partition("=") for text in texts]
    if not all(equals for _, equals, _ in pairs):
        raise UsageError(
            "a parameter has a name and a value", field="--parameter", remedy="give name=value"
        )
    return {name: _constant(value) for name, _, value in pairs}


def _constant(text: str) -> Constant:
    try:
        found = json.loads(text)
    except ValueError:
        return text
    plain = found is None or isinstance(found, bool | int | str)
    plain = plain or (isinstance(found, float) and math.isfinite(found))
    return found if plain else text


def read_statement(sql: str | None, file: Path | None) -> str:
    """Read the statement from the argument, standard input or ``--file``."""
    if (sql is None) == (file is None):
        raise UsageError("give the statement or --file", field="SQL", remedy="exactly one of them")
    if file is not None:
        return read_utf8(file, "--file")
    return sys.stdin.read() if sql == "-" else str(sql)


@contextlib.contextmanager
def quoting(statements: Mapping[str, str | None], as_json: bool) -> Iterator[None]:
    """Context in which errors of refused requests show the faulty line of the statement, except
    with JSON output.

    Args:
        statements: field of the request -> its SQL.
    """
    try:
        yield
    except ApiError as cause:
        text = statements.get(cause.field)
        if text and cause.position is not None and not as_json:
            cause.excerpt = excerpt(text, *cause.position, excerpt_width(stderr()))
            cause.further = tuple(
                _further(one, text) for one in cause.problem["errors"][1:] if "line" in one
            )
        raise


def _further(error: Mapping[str, Any], text: str) -> ClientError:
    """A further error of the statement ``text``, with the line that it concerns."""
    line, column = error["line"], error["column"]
    made = ClientError(
        f"line {line}, column {column}: {error['message']}",
        field=str(error["field"]),
        remedy=str(error.get("remedy") or ""),
    )
    made.excerpt = excerpt(text, line, column, excerpt_width(stderr()))
    return made


def read_document(path: Path | None) -> dict[str, Any] | None:
    """Read the structured query in the file at ``path``."""
    if path is None:
        return None
    try:
        document = json.loads(read_utf8(path, "--structured"))
    except ValueError as cause:
        raise UsageError(
            f"{path} is not JSON: {cause}", field="--structured", remedy="correct the file there"
        ) from cause
    if not isinstance(document, dict):
        raise UsageError(f"{path} is not a JSON object", field="--structured", remedy="correct it")
    return document
