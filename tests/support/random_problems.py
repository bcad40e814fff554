"""Random workloads as in section VII-C of the CLASH paper.

Some relations of equal arrival rate have a few attributes each, and every pair of them can be
joined on one fixed pair of attributes. A query starts at a random relation and adds random joins
until it has the wanted size; exact duplicates are left out. A join has selectivity 1/rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING

from anabranch_planner.model import AttrRef, Equality, Label
from tests.support.queries import join_query

if TYPE_CHECKING:
    from anabranch_planner.model import JoinQuery, RelationId


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
        texts = [f"{e.left}={e.right}" for e in key]
        found.setdefault(key, join_query(texts, id=f"q{number:03}", labels=sorted(chosen)))
    return tuple(found.values())
