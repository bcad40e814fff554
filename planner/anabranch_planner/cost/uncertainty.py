"""The range of a plan's cost, given that some statistics were assumed.

Known statistics are used unchanged. An assumed figure may be wrong by the factor :data:`SPREAD` in
either direction. The plan stays the same and is priced twice: with every assumed figure at the
value that makes joins small, then at the value that makes them large:

==========================  ===============================  ================================
unknown                     low                              high
==========================  ===============================  ================================
cardinality                 default / SPREAD                 default * SPREAD
distinct count              the cardinality (its maximum)    the cardinality / SPREAD
composite distinct count    its parts' product, at most the  the greatest of its parts
                            cardinality (its maximum)
span                        SPREAD times the longest bound   windows reach over all of it
==========================  ===============================  ================================

Cardinalities, probe costs and insert costs grow with cardinalities and shrink with distinct counts
and spans. So the true cost lies within the range if every assumed figure lies within its own range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch_contract.plans.plan import Plan
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.figures import DEFAULT_CARDINALITY
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.validate import cost_of

#: Factor by which an assumed figure may be wrong, in either direction.
SPREAD = 10.0


@dataclass(frozen=True, slots=True)
class CostRange:
    """A plan's cost under the most favourable and the least favourable assumptions.

    ``low == high`` if no assumed figure affects the cost.
    """

    low: float
    high: float


def cost_range(
    plan: Plan,
    queries: Sequence[JoinQuery],
    statistics: Statistics,
    *,
    parallelism: int = 1,
    partitioning: bool = True,
) -> CostRange:
    """The range of ``plan``'s cost, given that some statistics are assumed.

    Args:
        plan: a valid plan for exactly ``queries``.
        parallelism: partitions per store for which the plan was made.
        partitioning: whether the plan was made for partitioned stores.
    """
    longest = max(
        (bound for q in queries for row in q.bounds for bound in row if bound is not None),
        default=0,
    )
    costs = [
        cost_of(plan, queries, one, parallelism=parallelism, partitioning=partitioning)
        for one in (
            statistics,
            _assuming(statistics, queries, 1 / SPREAD, 1.0, SPREAD * longest),
            _assuming(statistics, queries, SPREAD, 1 / SPREAD, None),
        )
    ]
    return CostRange(min(costs), max(costs))


def _assuming(
    base: Statistics,
    queries: Sequence[JoinQuery],
    size: float,
    distinct_share: float,
    longest: float | None,
) -> Statistics:
    """``base`` with assumed figures for statistics of ``queries`` that are missing.

    Args:
        size: factor on the default cardinality.
        distinct_share: distinct values per tuple.
        longest: assumed span in microseconds; None: unknown.
    """
    relations = {relation.id for query in queries for relation in query.relations}
    sizes = {**dict.fromkeys(relations, DEFAULT_CARDINALITY * size), **base.cardinalities}
    distincts = {
        (relation, member.attribute): max(sizes[relation] * distinct_share, 1.0)
        for query in queries
        for key_class in query.classes
        for member in key_class.members
        if (relation := query.relation_of(member.label).id) not in base.every_distinct
    }
    # The cost model raises a composite count to its greatest part's. Its default is the maximum.
    composites = {} if distinct_share == 1 else dict.fromkeys(relations, 1.0)
    spans: dict[str, float] = (
        {} if longest is None else {r: longest for r in relations if base.span(r) is None}
    )
    return replace(
        base,
        cardinalities=sizes,
        distincts={**distincts, **base.distincts},
        every_distinct={**composites, **base.every_distinct},
        spans={**spans, **base.spans},
    )
