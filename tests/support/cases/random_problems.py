"""Random planning problems for tests: the environment ``tree``, with uniform statistics."""

from __future__ import annotations

from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.statistics.statistics import Statistics
from benchmarks.planner.random_queries import tree
from tests.support.cases.queries import given_statistics


def uniform_statistics(rate: float = 100.0) -> Statistics:
    """Statistics in which every relation has the rate ``rate``, every predicate 1/rate."""
    return given_statistics(default=rate, selectivity_default=1 / rate)


def random_queries(
    seed: int, *, count: int, size: int = 3, relations: int = 10, attributes: int = 3
) -> tuple[JoinQuery, ...]:
    """Return ``count`` distinct queries, or all that exist, over ``size`` of ``relations``
    relations each.

    >>> [sorted(q.labels) for q in random_queries(1, count=2, relations=4)]
    [['r0', 'r1', 'r3'], ['r0', 'r2', 'r3']]
    """
    return tree(seed, relations=relations, count=count, size=size, attributes=attributes)[0]
