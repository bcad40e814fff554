"""Declared queries with parameters, and families: values of the parameters for each query."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anabranch_client.errors import UsageError
from anabranch_client.texts import read_utf8
from anabranch_contract.errors import QueryError
from anabranch_contract.queries.families import Constant, parameters, substituted

#: Field with the values of parameters: of a query; or of a family, the values for each query, or
#: the name of a CSV file with them.
_PARAMETERS = "parameters"
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?")


def members(name: str, body: Mapping[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """The queries, by id, that a declared query stands for: itself, or a family of queries if its
    parameters have values for several.

    Args:
        folder: directory of the file, to which the name of a CSV file is relative.

    Raises:
        UsageError: the parameters do not fit the statement; the field is relative to the query.
    """
    if _PARAMETERS not in body:
        return {name: dict(body)}
    sql, given = body.get("sql"), body[_PARAMETERS]
    rest = {field: value for field, value in body.items() if field != _PARAMETERS}
    if not isinstance(sql, str):
        raise UsageError("a family has a statement", field="sql", remedy="write sql: ... for it")
    own = isinstance(given, dict) and any(name in given for name in parameters(sql))
    if own and not any(isinstance(value, dict) for value in given.values()):
        return {name: {**rest, "sql": _filled(body, given, _PARAMETERS)}}
    if isinstance(given, str):
        given = _table(folder / given)
    if not isinstance(given, dict) or not given:
        raise UsageError(
            "a family has parameters for each query",
            field=_PARAMETERS,
            remedy="write {key: {parameter: value}}, or the name of a CSV file",
        )
    found = {}
    for key, values in given.items():
        place = f"{_PARAMETERS}.{key}"
        if not isinstance(values, dict):
            remedy = f"write {key}: {{parameter: value}}"
            raise UsageError("a query of a family has values", field=place, remedy=remedy)
        found[f"{name}-{key}"] = {**rest, "sql": _filled(body, values, place)}
    return found


def _filled(body: Mapping[str, Any], values: Mapping[str, Any], place: str) -> str:
    """The statement of ``body`` with parameters ``values``; errors have fields below ``place``."""
    for parameter, value in values.items():
        if not isinstance(value, bool | int | float | str | None):
            raise UsageError(
                f"{value!r} is no constant",
                field=f"{place}.{parameter}",
                remedy="write a number, true, false or null, and other constants in quotes",
            )
    try:
        return substituted(str(body["sql"]), values, str(body.get("dialect", "spark")))
    except QueryError as error:
        field = f"{place}.{error.field}"
        raise UsageError(error.message, field=field, remedy=error.remedy) from None


def _table(path: Path) -> dict[str, dict[str, Constant]]:
    """Read a CSV file: key of each line (its first column) -> parameter -> value."""
    read = csv.reader(read_utf8(path, _PARAMETERS, "CSV").splitlines(keepends=True))
    head = next(read, [])
    found: dict[str, dict[str, Constant]] = {}
    for cells in read:
        if not cells:
            continue
        if len(cells) != len(head):
            raise UsageError(
                f"{path}, line {read.line_num}: {len(cells)} values for {len(head)} columns",
                field=_PARAMETERS,
                remedy="write a value for each column",
            )
        if cells[0] in found:
            raise UsageError(
                f"{path}, line {read.line_num}: a line before has the key {cells[0]!r}, too",
                field=_PARAMETERS,
                remedy="give each line a key of its own in the first column",
            )
        found[cells[0]] = dict(zip(head[1:], map(_value, cells[1:]), strict=True))
    return found


def _value(text: str) -> Constant:
    """The value in a cell: NULL if it is empty, a number if it is written as one, else a text."""
    if not text:
        return None
    # Codes with leading zeros, such as 007, are texts.
    number = _NUMBER.fullmatch(text)
    if number is None:
        return text
    return float(text) if number[1] else int(text)
