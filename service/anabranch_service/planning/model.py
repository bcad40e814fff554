"""The cost model by which a task is planned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.explain.substreams import read_substreams

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anabranch_contract.plans.ruleset import Substreams
    from anabranch_contract.queries.joins import JoinQuery
    from anabranch_service.planning.epoch import Task


def cost_model(
    task: Task,
    queries: Sequence[JoinQuery],
    parallelism: int,
    substreams: Sequence[Substreams],
) -> CostModel:
    """The model that ``task`` is planned by.

    Args:
        substreams: how the plan tells tuples apart that is priced.
    """
    return CostModel(
        task.statistics,
        objective=task.options.objective,
        parallelism=parallelism,
        bounds=LoosestBounds(queries),
        substreams=substreams,
    )


def substreams_in(explain: Mapping[str, Any]) -> tuple[Substreams, ...]:
    """Substreams of a published plan."""
    return read_substreams(explain.get("substreams", ()))
