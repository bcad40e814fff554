"""Forecast of the next epoch's rates from measurements of the newest periods.

A rate is the number of arriving tuples per batch. The forecast covers as many batches as the last
epoch has had, since a plan can be replaced after each epoch.

**In live mode** rates are forecast from measurement periods of a few seconds. A plan made now is in
force in the second epoch from now. A short epoch, ended early by a registration or removal of
queries, does not show for how long a plan stays in force, so the forecast covers at least as many
batches as the median period. Otherwise each registration would change the prices of all plans, and
so the plan of all queries.

**In step mode** (replay) rates are forecast from the statistics of epochs: measurement periods
depend on the clock, and a replay must repeat byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import TypeVar

import structlog

from anabranch_contract.codec import Malformed, Message
from anabranch_contract.protocol.interims import Arrivals
from anabranch_contract.protocol.measurements import Counts, Snapshot
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import RelationId
from anabranch_planner.cost.statistics.statistics import PeriodForecast, Statistics, measured
from anabranch_planner.forecast.rates import PERIODS, rates, recent
from anabranch_service.registry.store import Store

_LOG = structlog.get_logger(__name__)

_M = TypeVar("_M", bound=Message)

#: Forecast horizon: number of periods until a plan made now is in force.
AHEAD = {Mode.STEP: 1.0, Mode.LIVE: 2.0}


async def read_periods(
    store: Store, mode: Mode, snapshot: Snapshot | None, length: int
) -> tuple[str, ...]:
    """Return the texts of the newest ``length`` periods, oldest first, for :func:`foresee`.

    They are not parsed here, in the event loop, which parsing of many queries would block.
    """
    if snapshot is None:
        return ()
    if mode is Mode.LIVE:
        return await store.interim_texts(length)
    return await store.statistics_texts(range(snapshot.epoch - length, snapshot.epoch + 1))


def foresee(
    snapshot: Snapshot | None, texts: Sequence[str], mode: Mode, length: int = PERIODS
) -> Statistics:
    """Return statistics for planning: measurements of ``snapshot``, and arrivals forecast from the
    newest ``length`` periods in ``texts``, if there are enough."""
    if snapshot is None:
        return Statistics()
    periods = read_all(texts, Arrivals) if mode is Mode.LIVE else _epochs(texts)
    return foreseen(snapshot, periods, mode, length)


def foreseen(
    snapshot: Snapshot, periods: Sequence[Arrivals], mode: Mode, length: int = PERIODS
) -> Statistics:
    """Return the same as :func:`foresee`, from parsed ``periods``."""
    expected = rates(periods, AHEAD[mode], length)
    if not expected or snapshot.total_batches < 1:
        return measured(snapshot)
    batches, history = float(max(snapshot.batches, 1)), snapshot.total_batches
    if mode is Mode.LIVE:
        usual = median(one.batches for one in periods[-length:])
        batches = max(batches, min(usual, float(history)))
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
    return replace(measured(snapshot), ahead=coming)


def _held(snapshot: Snapshot) -> dict[RelationId, float]:
    """Return the number of stored rows per relation, and (not used) per intermediate result."""
    found: dict[RelationId, float] = {}
    for store in snapshot.stores.values():
        if store.mir:
            relation = RelationId(store.mir)
            found[relation] = max(found.get(relation, 0.0), float(store.rows))
    return found


def read_all(texts: Sequence[str], kind: type[_M]) -> list[_M]:
    """Parse JSON texts as messages of type ``kind``; unreadable ones are logged and left out."""
    found = []
    for text in texts:
        try:
            found.append(kind.loads(text))
        except Malformed as cause:
            _LOG.warning("unreadable measurements left out", reason=str(cause))
    return found


def _epochs(texts: Sequence[str]) -> list[Arrivals]:
    """Return the arrivals per epoch: differences of the cumulative counts of consecutive epochs."""
    counted = read_all(texts, Counts)
    if counted and counted[0].batches == counted[0].total_batches:
        counted.insert(0, Counts(0, 0))  # before the first epoch
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
