"""Expected traffic between hosts under a plan, as shown in an epoch's record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.plans.traffic import traffic
from anabranch_service.planning.task import PlanTask, cost_model


def exchanged(
    ruleset: Ruleset, queries: Sequence[JoinQuery], task: PlanTask
) -> dict[str, Any] | None:
    """Number of hosts, and expected tuples and bytes sent between hosts per edge and batch.

    Returns:
        None with a single host, or before any measurement.
    """
    exchange = task.statistics.exchange
    if exchange is None or exchange.hosts < 2 or not task.batches:
        return None
    model = cost_model(task, queries, task.options.parallelism, ruleset.substreams)
    coming = task.statistics.ahead
    batches = task.batches * (1.0 if coming is None else coming.length)
    found = traffic(ruleset, queries, model, exchange)
    return {
        "hosts": exchange.hosts,
        "edges": {
            edge: {"tuples": one.tuples / batches, "bytes": one.bytes / batches}
            for edge, one in sorted(found.items())
        },
    }
