"""The cost model by which a task is planned."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_service.planning.task import PlanTask


def cost_model(
    task: PlanTask,
    queries: Sequence[JoinQuery],
    parallelism: int,
    substreams: Sequence[Substreams],
) -> CostModel:
    """The model that ``task`` is planned by.

    Args:
        substreams: the division of each start's tuples in the plan that is priced.
    """
    return CostModel(
        task.statistics,
        objective=task.options.objective,
        parallelism=parallelism,
        bounds=LoosestBounds(queries),
        substreams=substreams,
    )
