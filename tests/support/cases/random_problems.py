"""Random workloads for tests: the planner's ``tree`` environment, and statistics of one rate."""

from __future__ import annotations

from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.statistics.statistics import Statistics
from benchmarks.planner.random_queries import tree
from tests.support.cases.queries import given_statistics


def uniform_statistics(rate: float = 100.0) -> Statistics:
    """Every relation has the same rate, every predicate selectivity 1/rate."""
    return given_statistics(default=rate, selectivity_default=1 / rate)


def random_queries(
    seed: int, *, count: int, size: int = 3, relations: int = 10, attributes: int = 3
) -> tuple[JoinQuery, ...]:
    """``count`` distinct queries, if as many exist, over ``size`` of ``relations`` relations each.

    >>> [sorted(q.labels) for q in random_queries(1, count=2, relations=4)]
    [['r0', 'r1', 'r3'], ['r0', 'r2', 'r3']]
    """
    return tree(seed, relations=relations, count=count, size=size, attributes=attributes)[0]
