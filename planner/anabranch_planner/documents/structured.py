"""Structured queries: the query language as a JSON document instead of SQL.

``{"from": [{"stream": "orders", "alias": "o"}, {"stream": "lineitem", "alias": "l"}],
"join": ["o.key = l.key"], "where": ["l.price > 5"],
"select": ["o.key", {"expr": "l.price * 2", "as": "double_price"}]}``

``from`` may also be an object alias -> stream. All conditions in ``join`` and ``where`` must hold;
it makes no difference which of the two lists a condition is in. ``select`` defaults to ``["*"]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, Tag, model_validator

from anabranch_contract.errors import QueryError
from anabranch_planner.documents.fields import EITHER, Part, ProblemError, Text, read
from anabranch_planner.sql.syntax import parse_expression, parse_item
from anabranch_planner.sql.unresolved import Condition, FromEntry, SelectItem, Unresolved, located

_Name = Annotated[Text, Field(min_length=1)]
_Conditions = Annotated[
    tuple[Text, ...], BeforeValidator(lambda v: [v] if isinstance(v, str) else v)
]


class _TextOrPart(Part):
    """A mapping in a query that may be abbreviated to a text, its field ``short``."""

    short: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, value: Any) -> Any:
        return {cls.short: value} if isinstance(value, str) else value


class _FromPart(_TextOrPart):
    short = "stream"
    example: ClassVar = 'write {"stream": "orders", "alias": "o"}'

    stream: _Name
    alias: _Name | None = None


class _SelectPart(_TextOrPart):
    short = "expr"
    example: ClassVar = 'write {"expr": "l.price * 2", "as": "p"}'

    expr: Text
    name: _Name | None = Field(default=None, alias="as")


class _StructuredQuery(Part):
    example: ClassVar = 'write {"from": ["orders"]}'

    sources: Annotated[
        Annotated[list[_FromPart], Field(min_length=1), Tag("(one)")]
        | Annotated[dict[str, _Name], Field(min_length=1), Tag("(each)")],
        EITHER,
    ] = Field(alias="from")
    join: _Conditions = ()
    where: _Conditions = ()
    select: Annotated[tuple[_SelectPart, ...], Field(min_length=1)] = (_SelectPart(expr="*"),)


def read_document(document: Mapping[str, Any]) -> Unresolved:
    """The query that a structured ``document`` describes, before name resolution.

    Raises:
        QueryError: the document is invalid; ``field`` is its path, e.g. ``"where[1]"``.
    """
    try:
        given = read(_StructuredQuery, document)
    except ProblemError as cause:
        raise _malformed(cause.detail, cause.field, cause.remedy) from None
    if isinstance(given.sources, dict):
        sources = [FromEntry(s, a, field=f"from.{a}") for a, s in given.sources.items()]
    else:
        sources = [
            FromEntry(one.stream, one.alias or one.stream, field=f"from[{i}]")
            for i, one in enumerate(given.sources)
        ]
    conditions = [
        _condition(text, len(sources), f"{part}[{i}]")
        for part in ("join", "where")
        for i, text in enumerate(getattr(given, part))
    ]
    items = [_item(one, f"select[{i}]") for i, one in enumerate(given.select)]
    return Unresolved(tuple(sources), tuple(conditions), tuple(items))


def _malformed(message: str, field: str, remedy: str) -> QueryError:
    return QueryError("malformed-query", message, field=field, remedy=remedy)


def _condition(text: str, scope: int, field: str) -> Condition:
    """A condition of a structured query, parsed as SQL."""
    with located(field):
        return Condition(parse_expression(text), scope, field)


def _item(given: _SelectPart, field: str) -> SelectItem:
    """An entry of ``select`` in a structured query, parsed as SQL."""
    with located(field):
        item = parse_item(given.expr, field)
    if given.name is None:
        return item
    if item.node is None or item.name is not None:
        message = f"{given.expr!r} can't be named {given.name!r}"
        raise _malformed(message, field, "name one expression once")
    return SelectItem(item.node, given.name, None, field)
