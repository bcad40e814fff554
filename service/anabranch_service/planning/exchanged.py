"""Expected traffic between hosts of a plan, as an epoch shows it."""

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
    """The hosts, and per edge the tuples and bytes that go from one to another in a batch.

    Returns:
        None where nothing can: there is one host, or nothing has been measured.
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
