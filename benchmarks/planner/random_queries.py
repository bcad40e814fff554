"""Random problems of :mod:`benchmarks.papers.clash.environment` as queries and statistics."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch_contract.queries.expressions import Column, Output
from anabranch_contract.queries.joins import (
    AttrRef,
    Equality,
    JoinQuery,
    KeyClass,
    Label,
    QueryId,
    QueryMember,
    RelationId,
    StreamName,
    make_relation,
)
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_planner.cost.statistics.statistics import Statistics
from benchmarks.papers.clash.environment import RATE, RandomProblem, natural_problem, tree_problem

_LONG = DataType(TypeKind.BIGINT)


def natural(
    seed: int,
    *,
    relations: int,
    count: int,
    size: int,
    attributes: int | None = None,
    per_relation: int = 3,
) -> tuple[tuple[JoinQuery, ...], Statistics]:
    """Return ``count`` natural joins of ``size`` relations each, or all that exist; and the
    statistics.

    >>> queries, _ = natural(1, relations=10, count=2, size=3)
    >>> [(q.id, *q.labels) for q in queries]
    [('q0000', 'r2', 'r5', 'r8'), ('q0001', 'r2', 'r7', 'r8')]
    """
    problem = natural_problem(
        seed,
        relations=relations,
        count=count,
        size=size,
        attributes=attributes,
        per_relation=per_relation,
    )
    return join_queries(problem), statistics_of(problem)


def tree(
    seed: int, *, relations: int, count: int, size: int, attributes: int = 3
) -> tuple[tuple[JoinQuery, ...], Statistics]:
    """Return ``count`` joins by trees of predicates; arguments and result as for ``natural``."""
    problem = tree_problem(seed, relations=relations, count=count, size=size, attributes=attributes)
    return join_queries(problem), statistics_of(problem)


def statistics_of(problem: RandomProblem) -> Statistics:
    """Return statistics with the same rate and the same number of distinct values everywhere."""
    rates = {RelationId(name): RATE for name in problem.columns}
    return Statistics(cardinalities=rates, every_distinct=rates)


def join_queries(problem: RandomProblem) -> tuple[JoinQuery, ...]:
    """Return the problem's queries, normalised by the planner from the problem's file."""
    relation = {n: make_relation(StreamName(n), ()) for n in problem.columns}
    member = {n: QueryMember(n, Label(n), RelationId(n)) for n in problem.columns}
    matrix: dict[int, tuple[tuple[int | None, ...], ...]] = {}
    found = []
    for query in problem.queries:
        size = len(query.relations)
        if size not in matrix:
            matrix[size] = tuple(
                tuple(0 if i == j else None for j in range(size)) for i in range(size)
            )
        read = sorted({side for e in query.predicates for side in (e.left, e.right)})
        found.append(
            JoinQuery(
                id=QueryId(query.id),
                members=tuple(member[n] for n in query.relations),
                relations=tuple(relation[n] for n in query.relations),
                predicates=query.predicates,
                classes=_closed(query.predicates),
                bounds=matrix[size],
                residuals=(),
                projection=tuple(Output(str(a), Column(a.label, a.attribute, _LONG)) for a in read),
            )
        )
    return tuple(found)


def _closed(predicates: Sequence[Equality]) -> tuple[KeyClass, ...]:
    """Return the predicates closed under transitivity."""
    group: dict[AttrRef, set[AttrRef]] = {}
    for predicate in predicates:
        merged = group.get(predicate.left, {predicate.left}) | group.get(
            predicate.right, {predicate.right}
        )
        for attribute in merged:
            group[attribute] = merged
    members = sorted({tuple(sorted(g)) for g in group.values()})
    return tuple(KeyClass("bigint", m) for m in members)
