"""Sources read by Spark: anabranch's own options, and expressions over the source's columns.

Besides the options of its format, a source may have:

* ``payload = json``: the source's column ``value`` (Kafka's message, a line of text) is a JSON
  object, whose fields are the stream's columns.
* ``column.NAME``: an expression over the source's columns that computes the stream's column
  ``NAME``; with ``payload`` also over ``data``, the parsed object. The expression is in the query
  language.
* ``schema``: the columns of the source, unless its format determines them or they are the same as
  the stream's.

Everything is parsed and type-checked here. Spark selects and casts columns by generated text
(``connectors.spark_text``): no text of a request reaches Spark's parser. The runtime evaluates all
other expressions, because in Spark a single bad row would fail the whole batch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from anabranch_contract.connectors.sources import SPARK_FILES
from anabranch_contract.connectors.spark_source import (
    COLUMN,
    CORRUPT,
    PAYLOAD,
    SCHEMA,
    WITH_CORRUPT,
    SparkSource,
)
from anabranch_contract.connectors.spark_text import columns_text, quoted, string
from anabranch_contract.errors import PlannerError, QueryError, StreamError
from anabranch_contract.queries.coercion import castable
from anabranch_contract.queries.expressions import Call, Column, Expr, size
from anabranch_contract.queries.expressions import columns as columns_of
from anabranch_contract.queries.types import DataType, TypeKind, parse_type
from anabranch_planner.binding.literals import coerce
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.sql.scope import FromTable, Scope, ShownColumn, nearest
from anabranch_planner.sql.syntax import parse_expression
from anabranch_planner.sql.unresolved import located

#: Names and types of a source's columns, in order.
Columns: TypeAlias = Sequence[tuple[str, DataType]]

#: Name of the parsed JSON object in expressions, and of its column in Spark; no source uses it.
DATA, _DATA = "data", "#data"
#: Alias in expressions for the stream's columns that Spark computes by casts.
_CAST = "#cast"
#: Maximum number of characters of an expression or schema, and of terms of an expression.
MOST_TEXT, MOST_TERMS = 20_000, 2_000

_STRING, _BINARY = DataType(TypeKind.STRING), DataType(TypeKind.BINARY)
_INT, _BIGINT = DataType(TypeKind.INT), DataType(TypeKind.BIGINT)
_TIMESTAMP = DataType(TypeKind.TIMESTAMP)
_RATE = (("timestamp", _TIMESTAMP), ("value", _BIGINT))
#: The columns of Spark's formats with a fixed schema; for Kafka without the headers, an array.
_FORMAT_COLUMNS: Mapping[str, Columns] = {
    "kafka": (
        ("key", _BINARY),
        ("value", _BINARY),
        ("topic", _STRING),
        ("partition", _INT),
        ("offset", _BIGINT),
        ("timestamp", _TIMESTAMP),
        ("timestampType", _INT),
    ),
    "rate": _RATE,
    "rate-micro-batch": _RATE,
    "text": (("value", _STRING),),
}
#: Pattern of one column of a schema. Its quantifiers are possessive to avoid backtracking.
_SCHEMA_COLUMN = re.compile(
    r"\s*+(?:`((?:[^`]|``)+)`|([A-Za-z_][A-Za-z0-9_]*+))(?:\s*+:\s++|\s++)"
    r"([A-Za-z_]++(?:\s*+\(\s*+\d++\s*+(?:,\s*+\d++\s*+)?\))?)\s*+(?:,|$)"
)


def spark_source(format: str, options: Mapping[str, str], columns: Columns) -> SparkSource:
    """Instructions for Spark to read a stream of ``columns`` from ``format`` with ``options``.

    Raises:
        PlannerError: an unknown payload or column; or a schema or an expression that can't be read
            or has the wrong type. ``field`` is the option, ``position`` the place in its text.
    """
    payload, schema = options.get(PAYLOAD), options.get(SCHEMA)
    if payload not in (None, "json"):
        raise _bad(PAYLOAD, "this payload is unknown", "give json, or leave it out")
    declared = None if schema is None else read_schema(schema)
    expressions = {k.removeprefix(COLUMN): t for k, t in options.items() if k.startswith(COLUMN)}
    names = [name for name, _ in columns]
    for name in expressions:
        if name not in names:
            raise _bad(COLUMN + name, f"the stream has no column {name!r}", nearest(name, names))
    known = declared or _FORMAT_COLUMNS.get(format) or (columns if format in SPARK_FILES else None)
    own = known or columns
    scope = _scope(own, columns if payload else None)
    needs_schema = format in SPARK_FILES or declared is not None
    found = [
        _column(name, kind, expressions[name], scope)
        if name in expressions
        else _plain(name, kind, scope, payload=bool(payload))
        for name, kind in columns
    ]
    inputs: dict[Column, _Selected] = {}
    for i, (name, kind) in enumerate(columns):
        if (cast := _cast_column(found[i], known is not None)) is not None:
            found[i] = Column(_CAST, name, kind)
            inputs[Column(_CAST, name, kind)] = cast
        else:
            inputs |= {c: _selected(c, known is not None) for c in columns_of(found[i])}
    computed = not all(isinstance(expr, Column) for expr in found)
    invalid = [selected.failed for selected in inputs.values() if selected.failed is not None]
    kept = format in WITH_CORRUPT and not payload
    if kept:
        invalid = [f"{quoted(CORRUPT)} IS NOT NULL", *invalid]
    if payload:
        corrupt = f"{quoted(_DATA)}.{quoted(CORRUPT)}"
        invalid = [f"{quoted(_DATA)} IS NULL", f"{corrupt} IS NOT NULL", *invalid]
    condition = f"({' OR '.join(invalid)})" if invalid else "false"
    if computed and known and not payload:
        # The source's own columns come first, in order: rejected rows are reported with them.
        shown = {Column("", name, kind): _Selected(quoted(name)) for name, kind in own}
        inputs = shown | inputs
        arrived = f"CAST({quoted(CORRUPT)} AS binary)" if kept else "CAST(NULL AS binary)"
    else:
        # Kafka's message may be NULL.
        message = "coalesce(CAST(`value` AS binary), X'')"
        arrived = message if payload else f"CAST(to_json(struct({_names(own)})) AS binary)"
        if kept:
            arrived = f"coalesce(CAST({quoted(CORRUPT)} AS binary), {arrived})"
        if not computed:
            arrived = f"if({condition}, {arrived}, NULL)"
    return SparkSource(
        schema=columns_text([*own, *([(CORRUPT, _STRING)] if kept else [])])
        if needs_schema
        else None,
        parsed=_parsed(own, columns) if payload else None,
        inputs=tuple((column, selected.text) for column, selected in inputs.items()),
        columns=tuple(found),
        invalid=condition,
        arrived=arrived,
    )


def _names(columns: Columns) -> str:
    return ", ".join(quoted(name) for name, _ in columns)


def read_schema(text: str) -> tuple[tuple[str, DataType], ...]:
    """The columns that ``text`` declares: names and types, separated by commas.

    Raises:
        PlannerError: ``text`` has another form, or a type that is not supported.

    >>> [(name, str(kind)) for name, kind in read_schema("a int, `b c` decimal(4, 1)")]
    [('a', 'int'), ('b c', 'decimal(4,1)')]
    """
    if len(text) > MOST_TEXT:
        raise _bad(SCHEMA, f"the text has more than {MOST_TEXT} characters", "shorten it")
    found: list[tuple[str, DataType]] = []
    at = 0
    while at < len(text):
        match = _SCHEMA_COLUMN.match(text, at)
        position = (text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
        if match is None:
            raise _bad(
                SCHEMA,
                "this is not a column and type",
                "write e.g. id bigint, name string",
                position,
            )
        name = match[2] or match[1].replace("``", "`")
        try:
            kind = parse_type(match[3])
        except PlannerError as cause:
            raise _bad(SCHEMA, cause.message, cause.remedy, position) from None
        if name.lower() in {known.lower() for known, _ in found}:
            raise _bad(SCHEMA, f"column {name!r} is declared twice", "declare it once", position)
        found.append((name, kind))
        at = match.end()
    if not found or text.rstrip().endswith(","):
        raise _bad(SCHEMA, "a column is missing", "write e.g. id bigint, name string")
    return tuple(found)


def _scope(own: Columns, data: Columns | None) -> Scope:
    """Names visible in a source's expressions: its columns, and ``data.NAME`` for JSON fields."""
    visible = tuple(ShownColumn(name, Column("", name, kind)) for name, kind in own)
    tables = {}
    if data is not None:
        fields = tuple(ShownColumn(name, Column(_DATA, name, kind)) for name, kind in data)
        tables[DATA] = FromTable(fields, "the parsed object (data)")
    return Scope({}, tables, visible)


def _parsed(own: Columns, columns: Columns) -> str:
    kind = dict(own).get("value")
    if kind is None or kind.kind not in (TypeKind.STRING, TypeKind.BINARY):
        raise _bad(
            PAYLOAD,
            "the source has no column value of type string or binary",
            "declare it by the option schema, or leave payload out",
        )
    schema = columns_text([*columns, (CORRUPT, _STRING)])
    return (
        f"from_json(CAST(`value` AS string), {string(schema)},"
        f" map('columnNameOfCorruptRecord', {string(CORRUPT)})) AS {quoted(_DATA)}"
    )


def _plain(name: str, kind: DataType, scope: Scope, *, payload: bool) -> Expr:
    """Default expression of a stream's column: the source's column, or JSON field, of that name."""
    if payload:
        return Column(_DATA, name, kind)
    names = [shown.name for shown in scope.visible]
    if name.lower() not in (other.lower() for other in names):
        raise StreamError(
            "unknown-column",
            f"the source has no column {name!r}",
            field=f"columns.{name}",
            remedy=f"say by the option {COLUMN}{name} how to compute it from the source, which has "
            + ", ".join(names),
        )
    with located(f"columns.{name}"):
        return _coerced(name, kind, scope.column(name))


def _column(name: str, kind: DataType, text: str, scope: Scope) -> Expr:
    with located(f"source.options.{COLUMN}{name}"):
        return _coerced(name, kind, _read_expression(text, scope))


def _coerced(name: str, kind: DataType, expr: Expr) -> Expr:
    if not castable(expr.type, kind):
        raise QueryError(
            "type-mismatch",
            f"the source gives {expr.type}, column {name!r} is of type {kind}",
            remedy="give an expression, or declare the column with another type",
        )
    return coerce(expr, kind)


@dataclass(frozen=True, slots=True)
class _Selected:
    """SQL text of a column that Spark selects, and of the condition for a failed cast, if any."""

    text: str
    failed: str | None = None


def _selected(column: Column, known: bool) -> _Selected:
    """SQL that selects a column of the source or of the parsed object, cast to its declared type
    unless Spark's type is ``known`` to be that."""
    if column.alias:
        return _Selected(f"{quoted(column.alias)}.{quoted(column.name)}")
    name = quoted(column.name)
    # A connector may return a type other than the declared one.
    return _Selected(name) if known else _tried(name, [column.type])


def _cast_column(expr: Expr, known: bool) -> _Selected | None:
    """SQL for Spark of an expression that only casts a column; None for any other expression.

    Spark does these casts, because it knows more types and text formats than the runtime, and its
    ``try_cast`` marks single rows as failed.
    """
    kinds: list[DataType] = []
    while isinstance(expr, Call) and expr.op == "cast":
        kinds.append(expr.type)
        expr = expr.args[0]
    if not kinds or not isinstance(expr, Column):
        return None
    if not expr.alias and not known:
        kinds.append(expr.type)
    source = f"{quoted(expr.alias)}." if expr.alias else ""
    return _tried(source + quoted(expr.name), kinds[::-1])


def _tried(value: str, kinds: Sequence[DataType]) -> _Selected:
    """SQL for Spark that casts ``value`` to each of ``kinds`` in turn; NULL on failure."""
    text = value
    for kind in kinds:
        text = f"try_cast({text} AS {kind})"
    return _Selected(text, f"({value} IS NOT NULL AND {text} IS NULL)")


def _read_expression(text: str, scope: Scope) -> Expr:
    if len(text) > MOST_TEXT:
        raise QueryError(
            "too-large", f"the text has more than {MOST_TEXT} characters", remedy="shorten it"
        )
    try:
        expr = typed(parse_expression(text), scope)
    except RecursionError as cause:
        raise QueryError(
            "malformed-sql", "the expression is nested too deeply", remedy="nest it less"
        ) from cause
    if size(expr, MOST_TERMS) > MOST_TERMS:
        raise QueryError(
            "too-large", f"the expression has more than {MOST_TERMS} terms", remedy="shorten it"
        )
    return expr


def _bad(
    option: str, message: str, remedy: str, position: tuple[int, int] | None = None
) -> StreamError:
    return StreamError(
        "bad-option", message, field=f"source.options.{option}", remedy=remedy, position=position
    )
