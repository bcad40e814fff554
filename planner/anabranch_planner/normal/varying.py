"""Check of the places in a query where values vary: ``current_timestamp``, and functions that are
not deterministic.

The value of ``current_timestamp`` is the time of the batch that emits a result (``semantics.md``,
"Time of a batch"). A user's function that is not deterministic returns another value each time.
Both are allowed only as columns of results that are never deleted, because a delete would have
another value than its insert. Conditions with ``current_timestamp`` are limits of a view
(:mod:`rolling`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

from anabranch_contract.connectors.user_functions import UserFunction
from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import FUNCTION, NOW, Call, Column, Literal, terms
from anabranch_contract.queries.joins import JoinQuery, Stream


def check(query: JoinQuery, streams: Mapping[str, Stream]) -> None:
    """Reject calls whose values vary, unless they are columns of results that are never deleted.

    Raises:
        QueryError: ``unsupported-sql`` (``current_timestamp``), ``not-deterministic``.
    """
    varying = list(_varying(query))
    if not varying:
        return
    shown = [call for one in query.planned for call in _varying(one.projection)]
    times = [call for call in varying if call.op == NOW]
    view = sum(call.op == NOW for call in _varying(query.view))
    whole = sum(call.op == NOW for call in _varying(query.outer))
    after = () if query.outer is None else query.outer.where
    outer = sum(call.op == NOW for call in _varying(after))
    changing = bool(query.deleting(streams))
    deleted = query.view is not None or query.outer is not None
    if times:
        inside = len(times) - sum(call.op == NOW for call in shown) - view - whole
        _check_time(inside > 0, outer > 0, deleted, changing)
    functions = [UserFunction.of(call).name for call in varying if call.op == FUNCTION]
    if not functions:
        return
    why = ""
    if deleted or changing:
        why = "in a query whose results may be deleted later"
    elif len(varying) > len(shown):
        why = "outside of the SELECT list"
    elif any(_repeats(one) for one in query.planned):
        why = "for several columns, with the same arguments"
    if why:
        raise QueryError(
            "not-deterministic",
            f"{functions[0]}(), which is not deterministic, is called {why}",
            remedy="call it once in the SELECT list of a plain join; if equal arguments always"
            " have equal results, register it as deterministic",
        )


def called(query: JoinQuery) -> frozenset[str]:
    """Names of the functions in ``query`` whose values vary, in lower case."""
    found = set[str]()
    for call in _varying(query):
        if call.op == NOW:
            found |= {NOW, "now", "current_date", "curdate"}
        else:
            found.add(UserFunction.of(call).name.lower())
    return frozenset(found)


def _check_time(inside: bool, outer: bool, deleted: bool, changing: bool) -> None:
    if inside:
        where = "in a function in FROM, whose rows would change with the time alone"
        remedy = "expand the columns of a stream, and compare them with now() in WHERE"
    elif outer:
        where = "in a condition that reads the right side of an outer join"
        remedy = "write JOIN instead, for rows with a partner only"
    elif deleted:
        where = (
            "in an aggregate, or beside groups, DISTINCT, LIMIT, a condition with it or an outer "
            "join, where results may be deleted again"
        )
        remedy = (
            "leave it out, or compare a time with it in WHERE; a time of groups in the query that "
            "reads them: SELECT ... FROM (SELECT k, max(ts) AS last FROM ... GROUP BY k) AS g "
            "WHERE g.last < now() - INTERVAL '1' HOUR"
        )
    elif changing:
        where = "in a query over streams of changes, where a delete would have another value"
        remedy = "leave it out; streams and queries without changes may have it"
    else:
        return
    raise QueryError("unsupported-sql", f"{NOW}() stands {where}", remedy=remedy)


def _repeats(query: JoinQuery) -> bool:
    called = [call for call in _varying(query.projection) if call.op == FUNCTION]
    return len({*called}) < len(called)


def _varying(value: Any) -> Iterator[Call]:
    """Calls in a query of ``current_timestamp`` and of functions that are not deterministic."""
    if isinstance(value, Column | Literal | Call):
        for term in terms(value):
            if isinstance(term, Call) and _varies(term):
                yield term
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _varying(one)
    elif isinstance(value, Mapping):
        yield from _varying(tuple(value.values()))
    elif isinstance(value, msgspec.Struct):
        yield from _varying(tuple(getattr(value, name) for name in value.__struct_fields__))
    elif is_dataclass(value):
        yield from _varying(tuple(getattr(value, field.name) for field in fields(value)))


def _varies(call: Call) -> bool:
    return call.op == NOW or (call.op == FUNCTION and not UserFunction.of(call).deterministic)
