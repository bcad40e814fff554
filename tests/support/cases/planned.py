"""Epochs planned by the service's code, without a running service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from anabranch_contract.queries.joins import JoinQuery
from anabranch_service.planning.epoch import PlannedEpoch, plan_epoch
from anabranch_service.planning.task import PlanTask, RunningEpoch
from anabranch_service.planning.what_if.explanation import explained
from anabranch_service.registry.records import EpochRecord


def plan_queries(queries: Sequence[JoinQuery], task: PlanTask) -> PlannedEpoch:
    """Return the planned and explained epoch of ``queries``."""
    return explained(plan_epoch(replace(task, queries=tuple(queries))))


def as_running(planned: PlannedEpoch) -> RunningEpoch:
    """``planned`` as the running epoch, in the form in which it is read after its publication."""
    record, _ = planned.publish(datetime(2026, 1, 1, tzinfo=UTC))
    read = EpochRecord.model_validate_json(record.model_dump_json())
    return RunningEpoch.of(read, planned.queries)
