"""The range of a plan's cost where its statistics were assumed.

Statistics that are known are taken as they are; a figure that had to be assumed may as well be
:data:`SPREAD` times smaller or greater. The plan stays, only its price is computed again, with
every assumed figure on the side that makes joins small, then on the side that makes them large:

==========================  ===============================  ================================
unknown                     low                              high
==========================  ===============================  ================================
cardinality                 default / SPREAD                 default * SPREAD
distinct count              the cardinality (its maximum)    the cardinality / SPREAD
composite distinct count    its parts' product, at most the  the greatest of its parts
                            cardinality (its maximum)
span                        SPREAD times the longest bound   windows reach over all of it
==========================  ===============================  ================================

Cardinality, probe and insert costs grow with cardinalities and shrink with distinct counts and
spans, each taken alone, so the true cost lies between the two wherever every assumed figure does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch_contract.plans.plan import Plan
from anabranch_contract.protocol.measurements import FrequentValues, JoinSample
from anabranch_contract.queries.joins import Equality, JoinQuery, RelationId
from anabranch_planner.cost.exchange import ExchangeModel
from anabranch_planner.cost.figures import DEFAULT_CARDINALITY
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.statistics import PeriodForecast, Statistics
from anabranch_planner.cost.validate import cost_of

#: Factor by which an assumed figure may be wrong, in either direction.
SPREAD = 10.0


@dataclass(frozen=True, slots=True)
class CostRange:
    """A plan's cost under the best and the worst of assumptions.

    ``low == high`` where no figure was assumed that matters.
    """

    low: float
    high: float
    assumed: tuple[str, ...]


def cost_range(
    plan: Plan,
    queries: Sequence[JoinQuery],
    statistics: Statistics,
    *,
    assumed: tuple[str, ...] = (),
    parallelism: int = 1,
    partitioning: bool = True,
) -> CostRange:
    """The range of ``plan``'s cost.

    Args:
        plan: a valid plan for exactly ``queries``.
        assumed: what a cost model of ``statistics`` says that it assumed (``CostModel.assumed``).
        parallelism: partitions per store, as the plan was made for.
        partitioning: whether partition attributes count, as the plan was made for.
    """
    longest = max(
        (bound for q in queries for row in q.bounds for bound in row if bound is not None),
        default=0,
    )
    costs = [
        cost_of(plan, queries, one, parallelism=parallelism, partitioning=partitioning)
        for one in (
            statistics,
            _Assuming(statistics, 1 / SPREAD, 1.0, SPREAD * longest),
            _Assuming(statistics, SPREAD, 1 / SPREAD, None),
        )
    ]
    return CostRange(min(costs), max(costs), assumed)


@dataclass(frozen=True, slots=True)
class _Assuming:
    """``base`` with assumed figures in place of missing ones.

    Attributes:
        size: factor on the default cardinality.
        distinct_share: distinct values per tuple.
        longest: assumed span in microseconds; None: unknown.
    """

    base: Statistics
    size: float
    distinct_share: float
    longest: float | None

    def cardinality(self, relation: RelationId) -> float | None:
        known = self.base.cardinality(relation)
        return DEFAULT_CARDINALITY * self.size if known is None else known

    def distinct(self, relation: RelationId, attributes: tuple[str, ...]) -> float | None:
        known = self.base.distinct(relation, attributes)
        if known is not None:
            return known
        if len(attributes) == 1:
            return max((self.cardinality(relation) or 0.0) * self.distinct_share, 1.0)
        if self.distinct_share == 1:
            return None  # the model's own assumption is the greatest possible already
        return max(self.distinct(relation, (name,)) or 1.0 for name in attributes)

    def frequent(self, relation: RelationId, attribute: str) -> FrequentValues | None:
        return self.base.frequent(relation, attribute)

    def selectivity(self, predicate: Equality) -> float | None:
        return self.base.selectivity(predicate)

    def span(self, relation: RelationId) -> float | None:
        known = self.base.span(relation)
        return self.longest if known is None else known

    def samples(self) -> Sequence[JoinSample]:
        return self.base.samples()

    def ahead(self) -> PeriodForecast | None:
        return self.base.ahead()

    def constants(self) -> CostConstants | None:
        return self.base.constants()

    def exchange(self) -> ExchangeModel | None:
        return self.base.exchange()
