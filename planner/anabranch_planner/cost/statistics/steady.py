"""Statistics with hysteresis: a figure keeps its value until it has moved by a tolerance.

Measurements never repeat exactly, and replanning after each of them would be wasted. A figure
therefore keeps its value until the newest measurement differs from it by more than a relative
tolerance, and then takes that measurement. So it is never further than the tolerance from the
newest measurement, however many epochs have passed. Counts have an error by themselves, which is
about their square root: one that differs by no more than twice that, beside the tolerance, has not
moved. Otherwise a second tuple in a stream that brought one would replan all its readers.

How long the next period is is a guess (an epoch as long as the last one). While it is no more than
twice or half as long as before, plans are made for a period of the same length as before, and what
it brings is in proportion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

from anabranch_contract.protocol.measurements import FrequentValues, JoinSample
from anabranch_contract.queries.joins import Equality, RelationId
from anabranch_planner.cost.exchange import ExchangeModel
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.statistics import PeriodForecast, Statistics

_K = TypeVar("_K", bound=str)

#: Figures that count tuples or values.
_COUNTS = ("cardinality", "distinct")
#: Fields of the constants that are no measured figures, or are compared otherwise. A store's levels
#: grow by the logarithm of ``batches``, so while these have not doubled they stay.
_APART = ("looks", "measurements", "error", "batches")
#: Standard deviations of a count within which it has not moved.
DEVIATIONS = 2.0
#: How much longer or shorter the next period may be than the one that plans are made for.
LONGER = 2.0


class Steady:
    """The figures of ``newest``, each as ``before`` has it unless it has moved.

    Args:
        newest: the newest measurements.
        before: the figures of the previous plan; None: the first plan.
        tolerance: how far a figure may be from its measurement, as a share of it.

    Attributes:
        before: as given.
        moved: relations and labels with a figure that differs from ``before``; None: a figure that
            concerns all differs.
    """

    def __init__(self, newest: Statistics, before: Steady | None, tolerance: float) -> None:
        self._newest, self._tolerance = newest, tolerance
        self._figures: dict[tuple[Any, ...], float | None] = {}
        self.before = before
        self._ahead, self._constants = newest.ahead(), newest.constants()
        self._exchange = newest.exchange()
        self._samples = {s.step: s for s in newest.samples()}
        self.moved: frozenset[str] | None = frozenset()
        if before is not None:
            self.moved = self._settle(before)

    def forget(self) -> None:
        """Let go of the figures before; a chain of them would go back for ever."""
        self.before = None

    # --- what the cost model asks ----------------------------------------------------------------

    def cardinality(self, relation: RelationId) -> float | None:
        """Tuples per unit of time."""
        return cast("float | None", self._figure(("cardinality", relation)))

    def distinct(self, relation: RelationId, attributes: tuple[str, ...]) -> float | None:
        """Distinct values of an attribute combination."""
        return cast("float | None", self._figure(("distinct", relation, attributes)))

    def selectivity(self, predicate: Equality) -> float | None:
        """Matches of one predicate over the size of the cross product."""
        return cast("float | None", self._figure(("selectivity", predicate)))

    def span(self, relation: RelationId) -> float | None:
        """Microseconds over which a unit's tuples are spread."""
        return cast("float | None", self._figure(("span", relation)))

    def samples(self) -> Sequence[JoinSample]:
        """Measured steps between sub-joins."""
        return tuple(self._samples.values())

    def ahead(self) -> PeriodForecast | None:
        """Forecast of the next period, as settled against the previous plan's."""
        return self._ahead

    def constants(self) -> CostConstants | None:
        """CPU time per operation."""
        return self._constants

    def exchange(self) -> ExchangeModel | None:
        """Between how many hosts tuples travel."""
        return self._exchange

    def frequent(self, relation: RelationId, attribute: str) -> FrequentValues | None:
        """The frequent values of a key attribute."""
        return cast("FrequentValues | None", self._figure(("frequent", relation, attribute)))

    def _figure(self, key: tuple[Any, ...]) -> Any:
        if key not in self._figures:
            self._figures[key] = getattr(self._newest, key[0])(*key[1:])
        return self._figures[key]

    # --- changes since the previous plan ---------------------------------------------------------

    def _settle(self, before: Steady) -> frozenset[str] | None:
        moved: set[str] = set()
        for key, was in before._figures.items():
            now = getattr(self._newest, key[0])(*key[1:])
            if self._is_near(key[0], now, was):
                now = was
            else:
                moved.update(_concerned(key))
            self._figures[key] = now
        moved |= self._settle_samples(before)
        moved |= self._settle_widths(before)
        everything = not self._settle_constants(before) or self._hosts != before._hosts
        coming = self._settle_ahead(before)
        if everything or coming is None:
            return None
        return frozenset(moved | coming)

    def _is_near(self, kind: str, now: Any, was: Any) -> bool:
        if kind == "frequent":
            return self._near_values(now, was)
        return self._near_counts(now, was) if kind in _COUNTS else self._near(now, was)

    def _near_values(self, now: FrequentValues | None, was: FrequentValues | None) -> bool:
        """Whether all values have moved by no more than the error of their shares."""
        if now is None or was is None:
            return now is was
        error = max(now.error, was.error)
        for fresh, known in (
            ((*now.arriving, now.null_arriving), (*was.arriving, was.null_arriving)),
            ((*now.stored, now.null_stored), (*was.stored, was.null_stored)),
        ):
            # None: NULL.
            shares = dict(zip((*now.hashes, None), fresh, strict=True))
            before = dict(zip((*was.hashes, None), known, strict=True))
            for value in shares.keys() | before.keys():
                if not self._near(shares.get(value, 0.0), before.get(value, 0.0), error):
                    return False
        return True

    def _near(self, now: float | None, was: float | None, error: float = 0.0) -> bool:
        if now is None or was is None:
            return now is was
        return now == was or abs(now - was) <= self._tolerance * abs(was) + error

    def _near_counts(self, now: float | None, was: float | None) -> bool:
        return self._near(now, was, DEVIATIONS * math.sqrt(max(now or 0.0, was or 0.0, 0.0)))

    def _settle_samples(self, before: Steady) -> set[str]:
        moved: set[str] = set()
        for key in before._samples.keys() | self._samples.keys():
            was, now = before._samples.get(key), self._samples.get(key)
            if was is not None and now is not None:
                pairs = ((now.probes, was.probes), (now.pairs, was.pairs), (now.hits, was.hits))
                if all(self._near_counts(*pair) for pair in pairs):
                    self._samples[key] = was
                    continue
            moved.update(key[1], key[2])
        return moved

    def _settle_constants(self, before: Steady) -> bool:
        """Whether they are as they were."""
        was, now = before._constants, self._constants
        if was is None or now is None:
            return was is now
        figures = [f.name for f in fields(was) if f.name not in _APART]
        near = all(self._near(getattr(now, name), getattr(was, name)) for name in figures)
        longer = now.batches / max(was.batches, 1.0)
        near = near and 1 / LONGER <= longer <= LONGER
        if near and self._all_near(now.looks, was.looks):
            self._constants = was
            return True
        return False

    @property
    def _hosts(self) -> int:
        return 1 if self._exchange is None else self._exchange.hosts

    def _settle_widths(self, before: Steady) -> set[RelationId]:
        """The relations whose tuples have become wider or narrower."""
        was, now = before._exchange, self._exchange
        if was is None or now is None:
            return set()
        widths, moved = dict(now.widths), set()
        for relation in was.widths.keys() & now.widths.keys():
            if self._all_near(now.widths[relation], was.widths[relation]):
                widths[relation] = was.widths[relation]
            else:
                moved.add(relation)
        self._exchange = replace(now, widths=widths)
        return moved | (was.widths.keys() ^ now.widths.keys())

    def _all_near(self, now: Mapping[Any, float], was: Mapping[Any, float]) -> bool:
        return now.keys() == was.keys() and all(self._near(now[k], was[k]) for k in was)

    def _settle_ahead(self, before: Steady) -> set[str] | None:
        """Relations with a changed forecast; None: the length of the period has changed."""
        was, now = before._ahead, self._ahead
        if was is None or now is None:
            return set() if was is now else None
        longer = now.length / was.length
        if not 1 / LONGER <= longer <= LONGER:
            return None
        moved: set[str] = set()
        arrivals = {relation: count / longer for relation, count in now.arrivals.items()}
        held, recent = dict(now.held), dict(now.recent)
        relations = {*arrivals, *was.arrivals, *held, *was.held, *recent, *was.recent}
        for relation in relations:
            near = (
                self._near_counts(arrivals.get(relation), was.arrivals.get(relation))
                and self._near_counts(now.held.get(relation), was.held.get(relation))
                and self._near_steps(now.recent.get(relation, ()), was.recent.get(relation, ()))
            )
            if near:
                for kept, old in ((arrivals, was.arrivals), (held, was.held)):
                    _take(kept, old, relation)
                _take(recent, was.recent, relation)
            else:
                moved.add(relation)
        self._ahead = replace(
            was,
            arrivals=arrivals,
            held=held,
            recent=recent,
            periods=now.periods,
        )
        return moved

    def _near_steps(
        self, now: Sequence[tuple[float, float]], was: Sequence[tuple[float, float]]
    ) -> bool:
        """Whether both say of about the same ages about the same."""
        if len(now) != len(was):
            return False
        return all(
            self._near(age, other_age) and self._near_counts(tuples, others)
            for (age, tuples), (other_age, others) in zip(now, was, strict=True)
        )


def _take(kept: dict[_K, Any], old: Mapping[_K, Any], name: _K) -> None:
    if name in old:
        kept[name] = old[name]


def _concerned(key: tuple[Any, ...]) -> tuple[str, ...]:
    """The relation, or the labels, that a figure is of."""
    if key[0] == "selectivity":
        return key[1].left.label, key[1].right.label
    return (key[1],)
