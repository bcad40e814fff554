"""A live pipeline with a running service, without Spark: the real planner behind REST, the real
driver and worker with one task in this process. Results do not depend on speed: each batch begins
when the service has answered all earlier measurements and boundaries, and the cost constants are
the planner's defaults instead of constants fitted to measured CPU seconds, on which the choice of
substreams would depend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from redis import Redis

from anabranch_contract.packed import unpack
from anabranch_contract.plans import ruleset as wire
from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.revisions import RevisionAnswer
from anabranch_contract.queries.joins import StreamName
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_runtime.control import Control, fetch_ruleset
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.reporting import reporting
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task
from anabranch_service.planning import costs
from anabranch_service.planning.replanning import reviser
from tests.support.surroundings.policy import OPEN
from tests.support.worlds.service import Service, eventually

#: Share of the price of calls that is charged: batches here have few tuples, and substreams save
#: tuples only.
CALLS = 0.15


class LiveLoop:
    """A driver with the plans and revisions of ``service``, which is in live mode.

    Args:
        every: batches per epoch.
        seconds: length of a measurement period; 0: every batch is a period; infinite: only drifts
            end periods.
    """

    def __init__(
        self,
        service: Service,
        folder: Path,
        patch: pytest.MonkeyPatch,
        *,
        every: int = 4,
        seconds: float = 1e9,
    ) -> None:
        patch.setattr(reviser, "REST", 0.0)
        patch.setattr(reporting, "EARLY", 0.0)
        patch.setattr(costs, "fit", _unfitted)
        settings = DriverSettings(
            folder / "state",
            folder / "results",
            epoch_batches=every,
            epoch_seconds=1e9,
            interim_seconds=seconds,
            patience=120.0,
            access=OPEN,
        )
        settings.state.mkdir(parents=True, exist_ok=True)
        self.service = service
        control = Control(service.settings.redis_url, service.keys.namespace)
        self.driver = Driver(settings, control)
        self.driver.announce()
        self.redis = Redis.from_url(service.settings.redis_url)
        service.answered()

    def run(self, tables: Mapping[str, Mapping[str, Any]]) -> RulesetId:
        """Run one batch with these columns; return its ruleset."""
        driver = self.driver
        blocks = [
            Block(StreamName(name), pa.record_batch({n: pa.array(c) for n, c in columns.items()}))
            for name, columns in tables.items()
        ]

        def job(context: BatchContext) -> list[TaskReport]:
            rules = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
            return [run_task(context, rules, blocks, task=0, tasks=1, exchange=lambda m: [m])]

        driver.run(job)
        driver.tick()
        self._settle()
        return driver.state.ruleset

    def _settle(self) -> None:
        """Wait until boundaries and measurements have been answered by the service."""
        self.service.answered()
        newest = self.redis.lindex(self.service.keys.interims, -1)
        if newest is None:
            return
        wanted = Interim.loads(newest).next_batch

        def is_answered() -> bool:
            text = self.redis.get(self.service.keys.revision)
            return text is not None and RevisionAnswer.loads(text).answered >= wanted

        eventually(is_answered, f"the measurements before batch {wanted} are answered")

    def revisions(self, epoch: int) -> list[dict[str, Any]]:
        """Return the revisions of an epoch over REST; empty if it is not published."""
        answer = self.service.http.get(f"/v1/epochs/{epoch}/revisions")
        return list(answer.json()["items"]) if answer.status_code == 200 else []

    def rules(self) -> Ruleset:
        """Return the ruleset of the last batch."""
        return self.ruleset(self.driver.state.ruleset)

    def ruleset(self, name: RulesetId) -> Ruleset:
        """Return a published ruleset."""
        return wire.loads(unpack(str(self.service.redis.get(self.service.keys.ruleset(name)))))

    def interims(self) -> list[Interim]:
        """Return all measurement periods so far."""
        return [Interim.loads(x) for x in self.redis.lrange(self.service.keys.interims, 0, -1)]


def _unfitted(*measured: Any) -> CostConstants:
    """Return the known constants (the last argument of ``fit``), with cheaper calls."""
    known: CostConstants = measured[-1]
    return replace(known, calls=CALLS * known.calls)
