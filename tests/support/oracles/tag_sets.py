"""A slow interpreter of many queries by sets of tags, as in CACQ: a row's set has the queries whose
filters it satisfies, and joined rows have the intersection of their sets.

It uses neither stores nor plans. Queries with the same streams and keys are computed by one join
without filters; each result belongs to the queries in its set.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from anabranch_contract.protocol.activations import Activation
from anabranch_contract.queries.expressions import Column, Expr
from anabranch_contract.queries.joins import JoinQuery, QueryId
from tests.support.oracles.evaluate import Value, evaluate, holds, key_of
from tests.support.oracles.history import Arrival, History, covers, sees

#: An equality: two pairs of stream position and column, and the type in which they are compared.
Key = tuple[tuple[int, str], tuple[int, str], str]
#: Numbers of queries, or of predicates.
TagSet = frozenset[int]


class Skeleton(NamedTuple):
    """The common part of queries that are joined together.

    Attributes:
        streams: the streams by position.
        keys: the equalities.
    """

    streams: tuple[str, ...]
    keys: frozenset[Key]


def skeleton(query: JoinQuery) -> Skeleton:
    """Return the streams and keys of a query, without names, filters and bounds."""
    at = {label: position for position, label in enumerate(query.labels)}
    kinds = {member: c.type for c in query.classes for member in c.members}
    keys = set[Key]()
    for one in query.predicates:
        left, right = sorted((at[x.label], x.attribute) for x in (one.left, one.right))
        keys.add((left, right, kinds[one.left]))
    streams = tuple(str(query.relation_of(m.label).stream) for m in query.members)
    return Skeleton(streams, frozenset(keys))


def interpret_by_tags(
    queries: Sequence[JoinQuery], history: History, activations: Mapping[QueryId, Activation]
) -> dict[QueryId, Counter[tuple[Value, ...]]]:
    """Return the results of all queries, by their complete filters; keys are columns.

    Args:
        activations: a query without one has no results.
    """
    alike = defaultdict[Skeleton, list[JoinQuery]](list)
    for query in queries:
        if query.id in activations:
            alike[skeleton(query)].append(query)
    found: dict[QueryId, Counter[tuple[Value, ...]]] = {q.id: Counter() for q in queries}
    for joins, group in alike.items():
        rows = [
            [
                (row, tags)
                for row in history.of(name)
                if (tags := _tags(group, at, row, activations))
            ]
            for at, name in enumerate(joins.streams)
        ]
        for combined, tags in _joined(joins, rows, [], frozenset(range(len(group)))):
            for number in sorted(tags):
                query = group[number]
                if _wanted(query, combined) and covers(
                    activations[query.id], max(row.batch for row in combined)
                ):
                    read = _reader(query, combined)
                    found[query.id][tuple(evaluate(o.expr, read) for o in query.projection)] += 1
    return found


def tag_set(predicates: Sequence[Sequence[Expr]], values: Mapping[str, Value]) -> TagSet:
    """Return the numbers of the predicates that a row with these values satisfies."""
    return frozenset(
        number
        for number, conditions in enumerate(predicates)
        if all(holds(c, lambda column: values[column.name]) for c in conditions)
    )


def _tags(
    group: Sequence[JoinQuery], at: int, row: Arrival, activations: Mapping[QueryId, Activation]
) -> TagSet:
    """Return the queries of a group that a row satisfies at a position and is visible to."""
    filters = [q.relation_of(q.members[at].label).filter for q in group]
    return frozenset(
        number
        for number in tag_set(filters, row.values)
        if sees(activations[group[number].id], group[number].members[at].alias, row)
    )


def _joined(
    joins: Skeleton,
    rows: Sequence[Sequence[tuple[Arrival, TagSet]]],
    begun: list[Arrival],
    tags: TagSet,
) -> Iterator[tuple[list[Arrival], TagSet]]:
    """Yield the combinations of rows with equal keys that some query needs, with their queries."""
    at = len(begun)
    if at == len(rows):
        yield begun, tags
        return
    for row, own in rows[at]:
        left = tags & own
        if left and all(_equal(key, [*begun, row]) for key in joins.keys if key[1][0] == at):
            yield from _joined(joins, rows, [*begun, row], left)


def _equal(key: Key, rows: Sequence[Arrival]) -> bool:
    (one, left), (other, right), kind = key
    value = key_of(rows[one].values[left], kind)
    return value is not None and value == key_of(rows[other].values[right], kind)


def _wanted(query: JoinQuery, rows: Sequence[Arrival]) -> bool:
    """Whether a combination is within the query's time bounds and satisfies its residuals."""
    for i, bounds in enumerate(query.bounds):
        for j, bound in enumerate(bounds):
            one, other = rows[i].tau, rows[j].tau
            if i != j and bound is not None and other - one > bound:  # type: ignore[operator]
                return False
    read = _reader(query, rows)
    return all(holds(residual, read) for residual in query.residuals)


def _reader(query: JoinQuery, rows: Sequence[Arrival]) -> Callable[[Column], Value]:
    by_label = dict(zip(map(str, query.labels), rows, strict=True))
    return lambda column: by_label[column.alias].values[column.name]
