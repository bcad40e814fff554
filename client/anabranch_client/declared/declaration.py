"""Files that declare queries, with the line numbers of the queries.

The suffix determines the format: ``.yaml`` and ``.yml`` declare queries by name, ``.jsonl`` has a
body of ``POST /v1/queries`` in every line, any other file is SQL (:mod:`.statements`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch_client.declared.families import members
from anabranch_client.declared.statements import FileStatement, statements
from anabranch_client.errors import ClientError, UsageError, all_of
from anabranch_client.render.excerpt import excerpt
from anabranch_client.replay.document import YamlFile, read_yaml
from anabranch_client.texts import read_utf8

#: Keys of a YAML file; fields of queries that the file may set for all queries.
_PARTS = ("queries", "owner", "tags")
#: Width of an excerpt in cells.
_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Declared:
    """One query of a file.

    Attributes:
        name: name of the query; None: the service chooses one.
        body: body of the query's registration, without the name.
        label: the query's name in errors. ``line``: path of a field -> line in the file.
        statement: the query's statement in an SQL file; None: the file is not an SQL file.
    """

    name: str | None
    body: Mapping[str, Any]
    label: str
    line: Callable[[Sequence[str]], int | None]
    statement: FileStatement | None = None

    @property
    def request(self) -> dict[str, Any]:
        """The body of the query's registration, with its name."""
        return dict(self.body) if self.name is None else {**self.body, "id": self.name}


@dataclass(frozen=True, slots=True)
class Declaration:
    """A file that declares queries.

    Attributes:
        text: content of the file. ``owner``: owner of all its queries, if it declares one.
    """

    path: Path
    text: str
    queries: tuple[Declared, ...]
    owner: str | None = None

    def refusal(
        self,
        query: Declared,
        message: str,
        *,
        field: str = "",
        remedy: str = "",
        position: tuple[int, int] | None = None,
        kind: type[ClientError] = ClientError,
    ) -> ClientError:
        """The error for a field of a query, with the line in the file. With ``position`` (line and
        column in the statement, from 1), the error also has an excerpt of the statement."""
        parts = [part for part in field.split(".") if part]
        line, sql = query.line(parts), query.body.get("sql")
        shown = ""
        if position is not None and query.statement is not None:
            position = query.statement.place(*position)
            line, shown = position[0], excerpt(self.text, *position, _WIDTH)
        elif position is not None and isinstance(sql, str):
            shown = excerpt(sql, *position, _WIDTH)
        place = _place(self.path, line, ".".join((query.label, *parts)))
        error = kind(message, field=place, remedy=remedy)
        error.excerpt = shown
        return error


def read_declaration(path: Path, common: Mapping[str, Any] | None = None) -> Declaration:
    """Read the queries declared in the file at ``path``.

    Args:
        common: default fields for queries that lack them.

    Raises:
        UsageError: the file can't be read, is malformed, or has two queries of one name; all errors
            are reported with their lines.
    """
    common = common or {}
    suffix = path.suffix.lower()
    if suffix in (".yaml", ".yml"):
        found = _of_yaml(path, common)
    else:
        text = read_utf8(path, "--file")
        read = _of_json_lines if suffix == ".jsonl" else _of_sql
        found = Declaration(path, text, tuple(read(path, text, common)))
    if not found.queries:
        raise UsageError(f"{path} declares no queries", remedy="write at least one query")
    _check_names(found)
    return found


def _of_yaml(path: Path, common: Mapping[str, Any]) -> Declaration:
    found = read_yaml(path, "declaration")
    document = found.document
    if not isinstance(document, dict) or not isinstance(document.get("queries"), dict):
        raise UsageError(
            f"{path} declares no queries",
            field="queries",
            remedy="write queries: {name: {sql: ...}}",
        )
    for part in document:
        if part not in _PARTS:
            place = _place(path, found.line((part,)), str(part))
            what = f"there is no {part!r} in a declaration"
            raise UsageError(what, field=place, remedy="remove it")
    shared = {**common, **{part: document[part] for part in _PARTS[1:] if part in document}}
    queries: list[Declared] = []
    for name, given in document["queries"].items():
        if not isinstance(given, dict):
            place = _place(path, found.line(("queries", name)), f"queries.{name}")
            raise UsageError("a query has fields", field=place, remedy="write sql: ... below it")
        label, line = f"queries.{name}", _yaml_line(found, str(name))
        try:
            those = members(str(name), given, path.parent)
        except UsageError as error:
            place = _place(path, line(error.field.split(".")), f"{label}.{error.field}")
            raise UsageError(error.message, field=place, remedy=error.remedy) from None
        queries += [Declared(one, {**shared, **body}, label, line) for one, body in those.items()]
    return Declaration(path, "", tuple(queries), document.get("owner"))


def _yaml_line(found: YamlFile, name: str) -> Callable[[Sequence[str]], int | None]:
    return lambda parts: found.line(("queries", name, *parts))


def _of_json_lines(path: Path, text: str, common: Mapping[str, Any]) -> Iterable[Declared]:
    queries: list[Declared] = []
    errors: list[UsageError] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            given = json.loads(line, object_pairs_hook=_distinct)
            if not isinstance(given, dict):
                raise ValueError("it is no object")
        except ValueError as cause:
            place = _place(path, number, "")
            remedy = 'write {"name": ..., "sql": ...} in each line'
            errors.append(UsageError(f"no query: {cause}", field=place, remedy=remedy))
            continue
        name = given.pop("name", given.pop("id", None))
        label = f"query {len(queries) + 1}" if name is None else str(name)
        line_of = _always(number)
        named = None if name is None else str(name)
        queries.append(Declared(named, {**common, **given}, label, line_of))
    if errors:
        raise all_of(errors)
    return queries


def _of_sql(path: Path, text: str, common: Mapping[str, Any]) -> Iterable[Declared]:
    for number, one in enumerate(statements(text), 1):
        label = one.name or f"statement {number}"
        yield Declared(one.name, {**common, "sql": one.text}, label, _always(one.line), one)


def _always(line: int) -> Callable[[Sequence[str]], int | None]:
    return lambda parts: line


def _check_names(found: Declaration) -> None:
    first: dict[str, int | None] = {}
    errors = []
    for query in found.queries:
        if query.name is None:
            continue
        if query.name not in first:
            first[query.name] = query.line(())
            continue
        what = f"line {first[query.name]} has a query {query.name!r}, too"
        remedy = "give each a name of its own"
        errors.append(found.refusal(query, what, field="name", remedy=remedy, kind=UsageError))
    if errors:
        raise all_of(errors)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs more than once in an object")
    return found


def _place(path: Path, line: int | None, named: str) -> str:
    where = f"{path}" if line is None else f"{path}, line {line}"
    return f"{where}: {named}" if named else where
