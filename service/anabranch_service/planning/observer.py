"""Input of the pipeline's Prometheus metrics, read from Redis; immutable parts are cached."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from anabranch_contract.plans.rows import read_ruleset
from anabranch_contract.plans.ruleset import Edge, Ruleset, RulesetId
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.queries.outer_joins import registered
from anabranch_service.errors import CorruptRecord
from anabranch_service.planning.rations import flows
from anabranch_service.presenters.pipeline_metrics import Observed
from anabranch_service.registry.records import EpochRecord
from anabranch_service.registry.redis.reading import read_boundary, read_snapshot
from anabranch_service.registry.store import Store

#: Number of measurement periods over which CPU time is averaged.
PERIODS = 8


class Observer:
    """Reads the state of a pipeline from Redis for its metrics."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._boundary: tuple[str, Snapshot | None] = "", None
        self._plan: tuple[int, EpochRecord | None] = -1, None
        self._ruleset: tuple[RulesetId, Ruleset] | None = None

    async def look(self, now: datetime, *, leads: bool) -> Observed:
        """Read the state of the pipeline at time ``now``; ``leads``: this service is the leader.

        Raises:
            RedisError: Redis does not answer.
        """
        store = self._store
        progress = await store.progress()
        return Observed(
            now=now.timestamp(),
            leads=leads,
            alive=await store.heartbeat() is not None,
            progress=progress,
            sources=await store.sources(),
            schedule=await store.rations(),
            plan=await self._newest_plan(),
            held=(await store.approvals()).waits,
            snapshot=await self._last_snapshot(),
            query_cpu=await self._query_cpu(progress),
        )

    async def _newest_plan(self) -> EpochRecord | None:
        numbers = await self._store.published()
        newest = numbers[-1] if numbers else -1
        known = self._plan[1]
        if newest != self._plan[0] or known is None or not known.explained:
            self._plan = newest, await self._store.epoch(newest) if numbers else None
        return self._plan[1]

    async def _last_snapshot(self) -> Snapshot | None:
        text = await self._store.boundary_text(-1)
        if text is None:
            return None
        if text != self._boundary[0]:
            self._boundary = text, await asyncio.to_thread(_observed_snapshot, text)
        return self._boundary[1]

    async def _query_cpu(self, progress: Progress | None) -> dict[str, float]:
        if progress is None or progress.ruleset_epoch < 0:
            return {}
        name = RulesetId(progress.ruleset_epoch, progress.revision)
        if self._ruleset is None or self._ruleset[0] != name:
            text = await self._store.ruleset(name)
            if text is None:
                return {}
            self._ruleset = name, await asyncio.to_thread(read_ruleset, text, name)
        periods = await self._store.interims(PERIODS)
        return await asyncio.to_thread(query_cpu, self._ruleset[1], periods)


def query_cpu(ruleset: Ruleset, periods: Sequence[Interim]) -> dict[str, float]:
    """Return the CPU seconds per second of each query's probes. The cost of a shared probe is split
    equally among its queries; maintenance of intermediate results counts for no query. Empty if no
    probe was measured."""
    if not any(period.steps for period in periods):
        return {}
    found, rule_of = flows(ruleset, periods), {rule.out: rule for rule in ruleset.probe_rules}
    behind: dict[Edge, set[str]] = defaultdict(set)
    for output in ruleset.output_rules:
        edge: Edge = output.edge
        while edge in rule_of:
            behind[edge].add(registered(output.query))
            edge = rule_of[edge].edge
    spent: dict[str, float] = {registered(output.query): 0.0 for output in ruleset.output_rules}
    for edge, queries in behind.items():
        for query in queries:
            spent[query] += found[edge].seconds / len(queries)
    return spent


def _observed_snapshot(text: str) -> Snapshot | None:
    try:
        return read_snapshot(read_boundary(text))
    except CorruptRecord:
        return None
