"""Forecast of the next epoch from measurements of the newest periods.

A plan is made for a *period* of the length of the last epoch, in batches: plans are made for
epochs, and can be replaced after each. Rates are per batch, too (``forecast.rates``).

**Live**, they are forecast from interim measurements of a few seconds, the newest available. A plan
made now is in force in the second epoch from now.

**In step mode** they are forecast from the statistics of epochs: where a period of seconds begins
and ends is a matter of the clock, and a replay must repeat byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import structlog

from anabranch_contract.codec import Malformed, Message
from anabranch_contract.protocol.interims import Arrivals
from anabranch_contract.protocol.measurements import Counts, Snapshot
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import RelationId
from anabranch_planner.cost.statistics.statistics import (
    ForecastStatistics,
    NoStatistics,
    PeriodForecast,
    Statistics,
)
from anabranch_planner.forecast.rates import PERIODS, rates, recent
from anabranch_service.registry.store import Store

_LOG = structlog.get_logger(__name__)

_M = TypeVar("_M", bound=Message)

#: Periods from the newest one to those in which a plan that is made now is in force.
AHEAD = {Mode.STEP: 1.0, Mode.LIVE: 2.0}


async def read_periods(
    store: Store, mode: Mode, snapshot: Snapshot | None, length: int
) -> tuple[str, ...]:
    """The documents of the newest ``length`` periods, oldest first, as :func:`foresee` reads them.

    They are not parsed here: with many queries that takes longer than the event loop may wait.
    """
    if snapshot is None:
        return ()
    if mode is Mode.LIVE:
        return await store.interim_texts(length)
    return await store.statistics_texts(range(snapshot.epoch - length, snapshot.epoch + 1))


def foresee(
    snapshot: Snapshot | None, texts: Sequence[str], mode: Mode, length: int = PERIODS
) -> Statistics:
    """The statistics of ``snapshot``, with forecasts where ``texts`` has periods enough; the newest
    ``length`` of them are used.
    """
    if snapshot is None:
        return NoStatistics()
    periods = read_all(texts, Arrivals) if mode is Mode.LIVE else _epochs(texts)
    return foreseen(snapshot, periods, AHEAD[mode], length)


def foreseen(
    snapshot: Snapshot, periods: Sequence[Arrivals], horizon: float, length: int = PERIODS
) -> Statistics:
    """The statistics of ``snapshot``, with forecasts for ``horizon`` periods after the newest."""
    expected = rates(periods, horizon, length)
    if not expected or snapshot.total_batches < 1:
        return snapshot
    batches, history = max(snapshot.batches, 1), snapshot.total_batches
    coming = PeriodForecast(
        batches / history,
        {RelationId(name): batches * rate for name, rate in expected.items()},
        {
            RelationId(name): tuple((age / history, float(rows)) for age, rows in points)
            for name, points in recent(periods, length).items()
        },
        min(len(periods), length),
        _held(snapshot),
    )
    return ForecastStatistics(snapshot, coming)


def _held(snapshot: Snapshot) -> dict[RelationId, float]:
    """The rows of base stores, without intermediate results, which have other names."""
    found: dict[RelationId, float] = {}
    for store in snapshot.stores.values():
        if store.mir:
            relation = RelationId(store.mir)
            found[relation] = max(found.get(relation, 0.0), float(store.rows))
    return found


def read_all(texts: Sequence[str], kind: type[_M]) -> list[_M]:
    """The documents that can be read; others are left out, which is logged."""
    found = []
    for text in texts:
        try:
            found.append(kind.loads(text))
        except Malformed as cause:
            _LOG.warning("unreadable measurements left out", reason=str(cause))
    return found


def _epochs(texts: Sequence[str]) -> list[Arrivals]:
    """The differences of epochs' counts, which are of all batches so far."""
    counted = read_all(texts, Counts)
    if counted and counted[0].batches == counted[0].total_batches:
        counted.insert(0, Counts(0, 0))  # the first epoch's counts are all its own
    return [
        Arrivals(
            after.total_batches,
            after.total_batches - before.total_batches,
            {
                name: count - before.relations.get(name, 0)
                for name, count in sorted(after.relations.items())
            },
        )
        for before, after in pairwise(counted)
    ]
