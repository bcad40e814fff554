"""Weights of a query's results over streams of changes (``semantics.md``, "Streams of changes").

A result's weight is the product of its members' weights, so joins need no change: the weight of
each member is a hidden column that the projection reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.changes import TINYINT, TUPLE_WEIGHT, change_of, product
from anabranch_contract.queries.expressions import BOOLEAN, Call, Column, Expr, Literal
from anabranch_contract.queries.joins import Stream
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_contract.queries.views import CHANGE, WEIGHT
from anabranch_planner.sql.scope import Scope, find_stream

_ONE = Literal(1, DataType(TypeKind.BIGINT))


def weighted(
    shown: tuple[tuple[str, Expr], ...], scope: Scope, *, post_join: bool, always: bool = False
) -> tuple[tuple[str, Expr], ...]:
    """``shown`` with an added last column: the kind of change (insert or delete), or the weight if
    a post-join part follows. Unchanged if no stream has weights, unless ``always``."""
    weights = [Column(a, TUPLE_WEIGHT, TINYINT) for a in with_changes(scope)]
    if not weights and not always:
        return shown
    check_name(shown, name := WEIGHT if post_join else CHANGE)
    weight = product(weights) if weights else _ONE
    return (*shown, (name, weight if post_join else change_of(weight)))


def counted(columns: tuple[tuple[str, Expr], ...], scope: Scope) -> tuple[tuple[str, Expr], ...]:
    """``columns`` of left rows or pairs that an outer join stores, and last their weight."""
    weights = [Column(a, TUPLE_WEIGHT, TINYINT) for a in with_changes(scope)]
    return (*columns, (WEIGHT, product(weights) if weights else _ONE))


def changing(shown: Iterable[tuple[str, Expr]], *, post_join: bool) -> list[tuple[str, Expr]]:
    """The columns ``shown`` of an outer join whose results are changes (``OuterJoin.kept``),
    followed by the kind of change, or by the weight if there is a post-join part."""
    found = list(shown)
    check_name(found, name := WEIGHT if post_join else CHANGE)
    return [*found, (name, _ONE if post_join else change_of(_ONE))]


def check_name(shown: Iterable[tuple[str, Expr]], name: str) -> None:
    """Reject an output column called ``name``, like the column of weights or kinds of change."""
    if any(other.lower() == name for other, _ in shown):
        raise QueryError(
            "duplicate-name",
            f"a column of the results is called {name!r}, as is the one that says whether a result "
            "is inserted or deleted",
            remedy="give it another name with AS",
        )


def stored_whole(scope: Scope) -> Mapping[str, tuple[Expr, ...]]:
    """Alias -> an empty filter, if the join reads a single retained stream, whose past rows are
    then read from the store of the whole stream. Empty for other joins."""
    whole = len(scope.streams) == 1 and all(s.is_retained for s in scope.streams.values())
    return dict.fromkeys(scope.streams, ()) if whole else {}


def of_rows(scope: Scope, streams: Mapping[str, Stream]) -> Iterator[Expr]:
    """Conditions that exclude stored tombstones of streams of upserts, and stored deletes for
    replaced rows of looked-up tables; ``streams``: registered streams by name."""
    for alias, stream in scope.streams.items():
        weight = Column(alias, TUPLE_WEIGHT, TINYINT)
        if stream.is_upsert:
            yield Call("ne", (weight, Literal(0, TINYINT)), BOOLEAN)
        elif stream.is_table and find_stream(str(stream.name), streams).replaces_rows:
            yield Call("eq", (weight, Literal(1, TINYINT)), BOOLEAN)


class TablesFollowed(Exception):
    """No stream can look up the statement's tables: plan it with tables as streams of changes."""


def following(streams: Mapping[str, Stream]) -> Mapping[str, Stream]:
    """``streams`` with tables as streams of changes, so that their rows complete results."""
    return {n: s.as_changes() if s.is_table else s for n, s in streams.items()}


def check(scopes: Iterable[Scope], registered: Mapping[str, Stream]) -> None:
    """Reject streams of changes joined with streams with latest per key or with looked-up tables.

    Args:
        scopes: the scopes of the sides of a join.

    Raises:
        QueryError: ``changes-beside-latest``.
        TablesFollowed: a table would be looked up.
    """
    scopes = list(scopes)
    changing = [alias for scope in scopes for alias in with_changes(scope)]
    if not changing:
        return
    for alias, stream in (one for scope in scopes for one in scope.streams.items()):
        if find_stream(str(stream.name), registered).is_table:
            raise TablesFollowed
        if stream.latest:
            raise QueryError(
                "changes-beside-latest",
                f"{changing[0]!r} reads changes beside {alias!r}, the latest rows of a stream, "
                "which are looked up: a delete would find other rows than its insert did",
                remedy=f"register {str(stream.name)!r} with kind upsert and the same key: then "
                "results follow its changes, too",
            )


def with_changes(scope: Scope) -> list[str]:
    """The aliases in ``scope`` whose streams are streams of changes."""
    return [alias for alias, stream in scope.streams.items() if stream.has_changes]
