"""Random workloads for tests: the planner's ``tree`` environment, and statistics of one rate."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch_contract.protocol.measurements import JoinSample
from anabranch_contract.queries.joins import Equality, JoinQuery, RelationId
from benchmarks.planner.random_queries import tree


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

    def frequent(self, relation: RelationId, attribute: str) -> None:
        """Unknown."""

    def selectivity(self, predicate: Equality) -> float | None:
        """The common selectivity."""
        del predicate
        return 1 / self.rate

    def span(self, relation: RelationId) -> float | None:
        """Unknown."""
        del relation
        return None

    def samples(self) -> tuple[JoinSample, ...]:
        """Nothing has been seen."""
        return ()

    def ahead(self) -> None:
        """Nothing is foreseen."""

    def constants(self) -> None:
        """Unknown."""

    def exchange(self) -> None:
        """There is one host."""


def random_queries(
    seed: int, *, count: int, size: int = 3, relations: int = 10, attributes: int = 3
) -> tuple[JoinQuery, ...]:
    """``count`` distinct queries, if as many exist, over ``size`` of ``relations`` relations each.

    >>> [sorted(q.labels) for q in random_queries(1, count=2, relations=4)]
    [['r0', 'r1', 'r3'], ['r0', 'r2', 'r3']]
    """
    return tree(seed, relations=relations, count=count, size=size, attributes=attributes)[0]
