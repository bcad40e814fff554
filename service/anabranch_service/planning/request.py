"""Input of planning, read from the registry, for epochs, dry runs and explanations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from anabranch_contract.protocol.measurements import Snapshot, StreamSample
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_contract.rest.planning.settings import PlanningSettings
from anabranch_contract.rest.queries import ProblemRecord
from anabranch_planner.solvers.deadline import Deadline
from anabranch_service.planning.costs import newest, timed
from anabranch_service.planning.epoch import problem_of
from anabranch_service.planning.options import default_planning
from anabranch_service.planning.rates import foresee, read_periods
from anabranch_service.planning.task import PlanTask, RunningEpoch
from anabranch_service.planning.widths import with_exchange
from anabranch_service.planning.work import go_on
from anabranch_service.registry.lifecycle import going_on, to_plan
from anabranch_service.registry.records import EpochRecord, QueryRecord
from anabranch_service.registry.statements import NormalForms, usable_streams
from anabranch_service.registry.store import Store
from anabranch_service.settings import ServiceSettings

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Registered:
    """Input of planning as read at one moment: queries, streams, settings, statistics, epochs.

    Attributes:
        wanted: runs to include in the next epoch. ``replaced``: earlier runs of the same queries,
            newest first, to plan instead of rejected ones.
        going_on: runs that may continue if no new plan is published.
        running: the running epoch, to compare new plans with; None: none is published.
        periods: JSON texts of measurement periods, whose newest ``length`` give forecasts.
    """

    queries: list[QueryRecord]
    wanted: list[QueryRecord]
    replaced: list[QueryRecord]
    going_on: list[QueryRecord]
    streams: Mapping[str, StreamRecord]
    options: PlanningSettings
    snapshot: Snapshot | None
    samples: Mapping[str, StreamSample]
    running: EpochRecord | None
    mode: Mode
    periods: Sequence[str]
    length: int


async def read_registered(
    store: Store,
    settings: ServiceSettings,
    now: datetime,
    snapshot: Snapshot | None,
    before: int | None = None,
    *,
    running: bool = True,
) -> Registered:
    """Read the input of planning from Redis.

    Args:
        snapshot: the newest statistics.
        before: the epoch to plan; the running epoch is the newest one before it (None: of all).
        running: whether to read the running epoch.
    """
    activations, queries = await store.activations(), await store.queries()
    length = settings.planning.series_periods
    wanted, replaced = to_plan(queries, activations, now)
    return Registered(
        queries=queries,
        wanted=wanted,
        replaced=replaced,
        going_on=going_on(queries, activations, now),
        streams=await store.streams(),
        options=await store.planning() or default_planning(settings),
        snapshot=snapshot,
        samples={} if snapshot is None else await store.samples(),
        running=await running_epoch(store, before) if running else None,
        mode=settings.mode,
        periods=await read_periods(store, settings.mode, snapshot, length),
        length=length,
    )


async def running_epoch(store: Store, before: int | None) -> EpochRecord | None:
    """Return the newest published epoch (below ``before``, if given), as last revised, or None."""
    record = await store.newest_epoch(before)
    revisions = [] if record is None else await store.revisions(record.epoch)
    if record is None or record.decisions is None or not revisions:
        return record
    revised = {**record.decisions, "footprint": revisions[-1].footprint}
    return record.model_copy(update={"decisions": revised})


def read_queries(
    records: Iterable[QueryRecord],
    streams: Mapping[str, Stream],
    forms: NormalForms,
    deadline: Deadline | None = None,
) -> tuple[tuple[JoinQuery, ...], dict[str, ProblemRecord]]:
    """Return the normalised joins of ``records``, and for each unreadable record the reason.

    Raises:
        Busy: ``registration-too-slow``: the ``deadline`` has passed.
    """
    queries: list[JoinQuery] = []
    rejected: dict[str, ProblemRecord] = {}
    for record in records:
        if deadline is not None:
            go_on(deadline)
        try:
            queries.extend(forms.of(record, streams).planned)
        except Exception as cause:  # noqa: BLE001 - reported to the query's owner
            _LOG.warning("query can't be read", query=record.id, error=repr(cause))
            rejected[record.id] = problem_of(cause)
    return tuple(queries), rejected


def plan_task(found: Registered, forms: NormalForms, seconds: float) -> PlanTask:
    """Return the planning task for all wanted queries; a solver may take ``seconds`` per solve."""
    streams = usable_streams(found.streams.values())
    queries, rejected = read_queries(found.wanted, streams, forms)
    statistics = timed(
        foresee(found.snapshot, found.periods, found.mode, found.length),
        found.snapshot,
        newest(found.periods, found.options, found.mode),
        found.options,
    )
    if found.snapshot is not None:
        hosts, locality = found.snapshot.on_hosts, found.snapshot.locality
        statistics = with_exchange(statistics, hosts, queries, streams, found.samples, locality)
    running = None
    if found.running is not None:
        members = set(found.running.queries)
        known = [query for query in found.queries if query.id in members]
        running = RunningEpoch.of(found.running, read_queries(known, streams, forms)[0])
    return PlanTask(
        queries=queries,
        streams=streams,
        statistics=statistics,
        options=found.options,
        seconds=seconds,
        rejected=rejected,
        statistics_epoch=None if found.snapshot is None else found.snapshot.epoch,
        batches=batches_of(found.snapshot),
        samples=found.samples,
        running=running,
        begun={record.id: record.first_epoch for record in found.wanted},
    )


def batches_of(snapshot: Snapshot | None) -> int:
    """Return the number of batches since the start; cumulative statistics cover them."""
    return 0 if snapshot is None else snapshot.total_batches
