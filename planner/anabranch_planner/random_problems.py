"""Random workloads as in section VII-C of the CLASH paper: for experiments and tests.

Some relations of equal arrival rate have a few attributes each, and every pair of them can be
joined on one fixed pair of attributes. A query starts at a random relation and adds random joins
until it has the wanted size; exact duplicates are left out. A join has selectivity 1/rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING

from anabranch_planner.expr import Column
from anabranch_planner.model import (
    AttrRef,
    Equality,
    JoinQuery,
    KeyClass,
    Label,
    Member,
    Output,
    QueryId,
    RelationId,
    StreamName,
    make_relation,
)
from anabranch_planner.types import DataType, TypeKind

if TYPE_CHECKING:
    from collections.abc import Iterable

_INT = DataType(TypeKind.INT)


@dataclass(frozen=True, slots=True)
class UniformStatistics:
    """Every relation has the same rate, every predicate selectivity 1/rate."""

    rate: float = 100.0

    def cardinality(self, relation: RelationId) -> float | None:
        """The common rate."""
        del relation
        return self.rate

    def distinct(self, relation: RelationId, attributes: tuple[str, ...]) -> float | None:
        """Unknown."""
        del relation, attributes
        return None

    def selectivity(self, predicate: Equality) -> float | None:
        """The common selectivity."""
        del predicate
        return 1 / self.rate


def random_queries(
    seed: int, *, count: int, size: int = 3, relations: int = 10, attributes: int = 3
) -> tuple[JoinQuery, ...]:
    """At most ``count`` distinct queries over ``size`` of ``relations`` relations each.

    >>> [sorted(q.labels) for q in random_queries(1, count=2, relations=4)]
    [['r0', 'r1', 'r3'], ['r0', 'r2', 'r3']]
    """
    rng = Random(seed)
    names = [f"r{i}" for i in range(relations)]
    columns = [f"a{i}" for i in range(attributes)]
    joins = {}
    for one, other in combinations(sorted(names), 2):
        sides = (AttrRef(Label(x), rng.choice(columns)) for x in (one, other))
        joins[one, other] = Equality(*sides)
    found: dict[tuple[Equality, ...], JoinQuery] = {}
    for number in range(count):
        chosen = [rng.choice(names)]
        predicates = []
        while len(chosen) < size:
            old = rng.choice(chosen)
            new = rng.choice([n for n in names if n not in chosen])
            predicates.append(joins[min(old, new), max(old, new)])
            chosen.append(new)
        key = tuple(sorted(predicates, key=lambda e: (e.left, e.right)))
        found.setdefault(key, make_query(f"q{number:03}", chosen, key))
    return tuple(found.values())


def make_query(name: str, labels: Iterable[str], predicates: tuple[Equality, ...]) -> JoinQuery:
    """A query without filters, residuals or time bounds over relations named as their labels."""
    ordered = sorted(labels)
    size = len(ordered)
    read = sorted({side for e in predicates for side in (e.left, e.right)})
    return JoinQuery(
        id=QueryId(name),
        members=tuple(Member(x, Label(x), RelationId(x)) for x in ordered),
        relations=tuple(make_relation(StreamName(x), ()) for x in ordered),
        predicates=predicates,
        classes=_closure(predicates),
        bounds=tuple(tuple(0 if i == j else None for j in range(size)) for i in range(size)),
        residuals=(),
        projection=tuple(
            Output(f"{a.label}_{a.attribute}", Column(a.label, a.attribute, _INT)) for a in read
        ),
    )


def _closure(predicates: Iterable[Equality]) -> tuple[KeyClass, ...]:
    groups: list[frozenset[AttrRef]] = []
    for e in predicates:
        pair = frozenset({e.left, e.right})
        touching = [g for g in groups if g & pair]
        groups = [g for g in groups if not g & pair] + [pair.union(*touching)]
    return tuple(
        KeyClass("bigint", members) for members in sorted(tuple(sorted(g)) for g in groups)
    )
