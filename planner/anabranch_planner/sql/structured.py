"""Structured queries: the same language as SQL, taken apart into a JSON document.

``{"from": [{"stream": "orders", "alias": "o"}, {"stream": "lineitem", "alias": "l"}],
"join": ["o.key = l.key"], "where": ["l.price > 5"],
"select": ["o.key", {"expr": "l.price * 2", "as": "double_price"}]}``

``from`` may also be an object alias -> stream. ``join`` and ``where`` are conditions that must
all hold (which of the two holds a condition makes no difference); ``select`` is ``["*"]`` if
left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.scope import nearest
from anabranch_planner.sql.syntax import parse_expression, parse_item
from anabranch_planner.sql.unresolved import Condition, FromEntry, SelectItem, Unresolved, located

_PARTS = ("from", "join", "where", "select")


def read_document(document: Mapping[str, Any]) -> Unresolved:
    """The query that ``document`` describes, names not yet looked up.

    Raises:
        QueryError: with ``field`` naming the part, e.g. ``"where[1]"``.
    """
    for part in document:
        if part not in _PARTS:
            raise _malformed(f"there is no part {part!r}", str(part), nearest(str(part), _PARTS))
    sources = _sources(document.get("from"))
    conditions = [
        _condition(text, len(sources), f"{part}[{i}]")
        for part in ("join", "where")
        for i, text in enumerate(_list(document.get(part, []), part))
    ]
    items = [_item(doc, f"select[{i}]") for i, doc in enumerate(_selected(document))]
    return Unresolved(tuple(sources), tuple(conditions), tuple(items))


def _malformed(message: str, field: str, remedy: str) -> QueryError:
    return QueryError("malformed-query", message, field=field, remedy=remedy)


def _list(value: Any, field: str) -> list[Any]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list | tuple):
        raise _malformed(f"{field!r} is no list", field, f'write "{field}": ["...", "..."]')
    return list(value)


def _selected(document: Mapping[str, Any]) -> list[Any]:
    items = _list(document.get("select", ["*"]), "select")
    if not items:
        raise _malformed("the select list is empty", "select", 'name columns, or write ["*"]')
    return items


def _sources(value: Any) -> list[FromEntry]:
    if isinstance(value, Mapping):
        return [
            FromEntry(_name(stream, f"from.{alias}"), str(alias), field=f"from.{alias}")
            for alias, stream in value.items()
        ] or _sources(None)
    if not isinstance(value, list | tuple) or not value:
        raise _malformed(
            "'from' names no streams", "from", 'write "from": {"o": "orders", "l": "lineitem"}'
        )
    found = []
    for i, entry in enumerate(value):
        field = f"from[{i}]"
        if isinstance(entry, str):
            entry = {"stream": entry}
        if not isinstance(entry, Mapping) or not set(entry) <= {"stream", "alias"}:
            raise _malformed("expected a stream", field, 'write {"stream": "orders", "alias": "o"}')
        stream = _name(entry.get("stream"), f"{field}.stream")
        alias = entry.get("alias")
        named = stream if alias is None else _name(alias, f"{field}.alias")
        found.append(FromEntry(stream, named, field=field))
    return found


def _name(value: Any, field: str) -> str:
    if not isinstance(value, str) or not value:
        raise _malformed("expected a name", field, "write a non-empty string")
    return value


def _condition(value: Any, scope: int, field: str) -> Condition:
    if not isinstance(value, str):
        raise _malformed("expected a condition", field, 'write it as in SQL: "o.key = l.key"')
    with located(field):
        return Condition(parse_expression(value), scope, field)


def _item(value: Any, field: str) -> SelectItem:
    alias = None
    if isinstance(value, Mapping):
        if not set(value) <= {"expr", "as"}:
            raise _malformed("expected an item", field, 'write {"expr": "l.price * 2", "as": "p"}')
        alias = _name(value["as"], f"{field}.as") if value.get("as") is not None else None
        value = value.get("expr")
    if not isinstance(value, str):
        raise _malformed("expected an expression", field, 'write it as in SQL: "o.key"')
    with located(field):
        item = parse_item(value, field)
    if alias is None:
        return item
    if item.node is None or item.name is not None:
        raise _malformed(f"{value!r} can't be named {alias!r}", field, "name one expression once")
    return SelectItem(item.node, alias, None, field)
