"""Statistics with hysteresis: a figure keeps its value until it has moved by a tolerance.

Two measurements are never equal, and replanning after each would be wasted effort. A figure
therefore keeps its value until the newest measurement differs by more than a relative tolerance; it
then takes the new value. So it always lies within the tolerance of the newest measurement, however
many epochs have passed. Counts also have a statistical error of about their square root: a count
that exceeds the tolerance by at most twice this error has not moved. Otherwise a stream's second
tuple, which doubles its count of one, would cause a new plan for all queries that read the stream.

The length of the next period is a guess (the length of the last epoch). If it is at most twice, and
at least half, the length in the previous plan, the new plan keeps the previous length, and scales
the period's arrivals to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from anabranch_contract.plans.steps import SubJoinStep
from anabranch_contract.protocol.measurements import FrequentValues, JoinSample
from anabranch_contract.queries.joins import JoinQuery, RelationId
from anabranch_planner.cost.exchange import ExchangeModel
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.statistics import PeriodForecast, Statistics

_K = TypeVar("_K")
_V = TypeVar("_V")

#: Fields of :class:`CostConstants` that are no costs, or are compared by rules of their own.
_APART = ("looks", "measurements", "error", "batches")
#: Number of standard deviations up to which two counts are taken as equal.
DEVIATIONS = 2.0
#: A new forecast period replaces an earlier one if their lengths differ by more than this factor.
LONGER = 2.0


@dataclass(frozen=True, slots=True)
class Settled:
    """Statistics for the next plan, and the relations in which they differ from the last plan's.

    Attributes:
        before: statistics of the previous plan; None: the first plan.
        moved: relations and aliases with a figure that differs from ``before``; None: all, since a
            figure that affects all of them differs.
        streams: streams whose span differs.
    """

    statistics: Statistics
    before: Statistics | None = None
    moved: frozenset[str] | None = frozenset()
    streams: frozenset[str] = frozenset()

    def concerns(self, query: JoinQuery) -> bool:
        """Whether a statistic that affects ``query`` differs from the previous plan's."""
        if self.moved is None:
            return True
        if not self.moved and not self.streams:
            return False
        return not (
            self.moved.isdisjoint(query.labels)
            and self.moved.isdisjoint(relation.id for relation in query.relations)
            and self.streams.isdisjoint(relation.stream for relation in query.relations)
        )


def settle(newest: Statistics, before: Statistics | None, tolerance: float) -> Settled:
    """``newest``, in which figures within ``tolerance`` of the last plan's keep their value.

    Args:
        newest: the newest measurements.
        before: the figures of the previous plan; None: the first plan.
        tolerance: greatest difference of an unmoved figure, relative to its previous value.
    """
    if before is None:
        return Settled(newest)
    near = _Near(tolerance)
    cardinalities, sizes = _hold(newest.cardinalities, before.cardinalities, near.counts)
    distincts, columns = _hold(newest.distincts, before.distincts, near.counts)
    every, others = _hold(newest.every_distinct, before.every_distinct, near.counts)
    values, listed = _hold(newest.values, before.values, near.values)
    selectivities, predicates = _hold(newest.selectivities, before.selectivities, near.figures)
    spans, streams = _hold(newest.spans, before.spans, near.figures)
    samples, steps = _hold(_by_step(newest), _by_step(before), near.samples)
    exchange, wide = _widths(newest.exchange, before.exchange, near)
    constants = _constants(newest.constants, before.constants, near)
    ahead, coming = _forecast(newest.ahead, before.ahead, near)
    history = before.history if near.figures(newest.history, before.history) else newest.history
    moved: frozenset[str] | None = None
    if (
        constants is before.constants
        and history is before.history
        and _hosts(exchange) == _hosts(before.exchange)
        and coming is not None
    ):
        moved = frozenset(
            {*sizes, *others, *streams, *wide, *coming, *(name for name, _ in (*columns, *listed))}
            | {side.label for one in predicates for side in (one.left, one.right)}
            | {label for step in steps for label in (*step.head, *step.target)}
        )
    statistics = Statistics(
        cardinalities,
        distincts,
        selectivities,
        every,
        values,
        spans,
        history,
        tuple(samples.values()),
        ahead,
        constants,
        exchange,
        newest.estimated,
    )
    return Settled(statistics, before, moved, frozenset(streams))


def _hold(
    now: Mapping[_K, _V], was: Mapping[_K, _V], near: Callable[[_V | None, _V | None], bool]
) -> tuple[dict[_K, _V], set[_K]]:
    """Statistics ``now``, with values of ``was`` that are close; and keys of the other values."""
    held, moved = dict(now), set()
    for key in now.keys() | was.keys():
        if near(now.get(key), was.get(key)):
            held[key] = was[key]
        else:
            moved.add(key)
    return held, moved


@dataclass(frozen=True, slots=True)
class _Near:
    """Tests whether two figures are close; an unknown figure (None) is close to None only.

    Attributes:
        tolerance: greatest difference, relative to the earlier figure.
    """

    tolerance: float

    def figures(self, now: float | None, was: float | None, error: float = 0.0) -> bool:
        """Whether two figures differ by at most the tolerance plus ``error``."""
        if now is None or was is None:
            return now is was
        return now == was or abs(now - was) <= self.tolerance * abs(was) + error

    def counts(self, now: float | None, was: float | None) -> bool:
        """As :meth:`figures`, for counts of tuples or values, which have a statistical error."""
        return self.figures(now, was, DEVIATIONS * math.sqrt(max(now or 0.0, was or 0.0, 0.0)))

    def all(self, now: Mapping[_K, float] | None, was: Mapping[_K, float] | None) -> bool:
        """Whether two mappings have the same keys and close figures under each key."""
        if now is None or was is None:
            return now is was
        return now.keys() == was.keys() and all(self.figures(now[k], was[k]) for k in was)

    def values(self, now: FrequentValues | None, was: FrequentValues | None) -> bool:
        """Whether the frequency of every value has moved by at most its statistical error."""
        if now is None or was is None:
            return now is was
        error = max(now.error, was.error)
        for fresh, known in (
            ((*now.arriving, now.null_arriving), (*was.arriving, was.null_arriving)),
            ((*now.stored, now.null_stored), (*was.stored, was.null_stored)),
        ):
            # The key None stands for the frequency of NULL.
            shares = dict(zip((*now.hashes, None), fresh, strict=True))
            before = dict(zip((*was.hashes, None), known, strict=True))
            for value in shares.keys() | before.keys():
                if not self.figures(shares.get(value, 0.0), before.get(value, 0.0), error):
                    return False
        return True

    def samples(self, now: JoinSample | None, was: JoinSample | None) -> bool:
        """Whether two measurements of a join step have close counts."""
        if now is None or was is None:
            return now is was
        pairs = ((now.probes, was.probes), (now.pairs, was.pairs), (now.hits, was.hits))
        return all(self.counts(*pair) for pair in pairs)

    def ages(self, now: Sequence[tuple[float, float]], was: Sequence[tuple[float, float]]) -> bool:
        """Whether two age profiles in statistics have about equal tuples at about equal ages."""
        return len(now) == len(was) and all(
            self.figures(age, other_age) and self.counts(tuples, others)
            for (age, tuples), (other_age, others) in zip(now, was, strict=True)
        )


def _by_step(statistics: Statistics) -> dict[SubJoinStep, JoinSample]:
    return {sample.step: sample for sample in statistics.samples}


def _hosts(exchange: ExchangeModel | None) -> int:
    return 1 if exchange is None else exchange.hosts


def _constants(
    now: CostConstants | None, was: CostConstants | None, near: _Near
) -> CostConstants | None:
    if now is None or was is None:
        return now
    figures = [f.name for f in fields(was) if f.name not in _APART]
    same = (
        all(near.figures(getattr(now, name), getattr(was, name)) for name in figures)
        and 1 / LONGER <= now.batches / max(was.batches, 1.0) <= LONGER
        and near.all(now.looks, was.looks)
    )
    return was if same else now


def _widths(
    now: ExchangeModel | None, was: ExchangeModel | None, near: _Near
) -> tuple[ExchangeModel | None, set[RelationId]]:
    """Hosts and column widths as statistics of the next plan; relations whose widths changed."""
    if now is None or was is None:
        return now, set()
    widths, moved = _hold(now.widths, was.widths, near.all)
    return replace(now, widths=widths), moved


def _forecast(
    now: PeriodForecast | None, was: PeriodForecast | None, near: _Near
) -> tuple[PeriodForecast | None, set[RelationId] | None]:
    """Forecast for the next plan, and the relations in which it differs from the last plan's, or
    None if it differs in all, because the period's length has changed."""
    if now is None or was is None:
        return now, set() if was is now else None
    longer = now.length / was.length
    if not 1 / LONGER <= longer <= LONGER:
        return now, None
    arrivals = {relation: count / longer for relation, count in now.arrivals.items()}
    held, recent = dict(now.held), dict(now.recent)
    moved = set()
    for relation in {*arrivals, *was.arrivals, *held, *was.held, *recent, *was.recent}:
        if (
            near.counts(arrivals.get(relation), was.arrivals.get(relation))
            and near.counts(held.get(relation), was.held.get(relation))
            and near.ages(recent.get(relation, ()), was.recent.get(relation, ()))
        ):
            _take(arrivals, was.arrivals, relation)
            _take(held, was.held, relation)
            _take(recent, was.recent, relation)
        else:
            moved.add(relation)
    return replace(was, arrivals=arrivals, held=held, recent=recent, periods=now.periods), moved


def _take(kept: dict[_K, _V], old: Mapping[_K, _V], name: _K) -> None:
    if name in old:
        kept[name] = old[name]
