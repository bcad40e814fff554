"""The CLASH cost model: cardinalities of canonical sub-joins, probe costs, insert costs.

Source: Eq. 1 of Dossinger & Michel. A step that sends the join of ``n`` base relations to the next
store costs ``|join| / n * chi``: this path produces only the 1/n of the join in which the starting
tuple came last, and ``chi`` is 1 where the probing tuple has the store's partition attribute, else
the store's parallelism. (The inner index of Eq. 1 as printed ends one relation short of what the
paper's own example computes; after an MIR probe ``n`` counts base relations.)

Under the objective ``tuples`` a store copy costs the rows written per unit of time. A row is
written once when it is stored, and once more by each merge of segments. Under the objective
``seconds`` steps and copies cost CPU time (:mod:`anabranch_planner.cost.statistics.constants`). On
several hosts both objectives also charge traffic between hosts
(:mod:`anabranch_planner.cost.exchange`): ``seconds`` per byte, or the tuples that could be probed
in that time. Under ``paper`` copies and traffic are free.

**The cardinality** of a sub-join is the number of its combinations that one unit of time completes,
where the unit begins with empty stores. The last member to arrive completes a combination.

    |X| = (product of |j|) * f(X) * (sum over i of v_i)

* ``|j|``: tuples of a relation per unit of time (:mod:`~anabranch_planner.cost.figures`);
* ``f(X)``: the selectivity of its keys (:mod:`~anabranch_planner.cost.selectivity`);
* ``v_i``: the fraction of combinations that ``i`` completes within the time bounds
  (:mod:`~anabranch_planner.cost.timing`). Over full history each is 1/n and they add up to 1; with
  bounds ``v_i`` replaces the 1/n of Eq. 1, and depends on the start of the step.

The statistics define the unit of time. Plans are only compared, so any unit will do if all figures
use the same one. Its length matters only with time bounds (``span``).

**Forecast.** Where the statistics forecast the next period (:class:`~.statistics.PeriodForecast`),
steps and inserts are priced for that period: a step costs the tuples sent in it, an insert the rows
added, both from rows already held and forecast arrivals
(:mod:`~anabranch_planner.cost.statistics.forecast`). :meth:`CostModel.cardinality` and
:meth:`CostModel.matches` count the tuples of the history: memory, backfills and store sizes depend
on past tuples, not on future ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.errors import StatisticsError
from anabranch_contract.plans.plan import Objective
from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.protocol.merging import rewrites
from anabranch_contract.queries.joins import AttrRef, Label, RelationId
from anabranch_contract.queries.mirs import Mir, MirId
from anabranch_planner.cost.aside import SetAside
from anabranch_planner.cost.exchange import Crossing
from anabranch_planner.cost.figures import Figures
from anabranch_planner.cost.selectivity import PartNames, Selectivities
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.forecast import Supply, met
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.timing import LoosestBounds, PairBounds, shares
from anabranch_planner.cost.values import SubstreamShares, ValueShares

#: Upper limit of a product of cardinalities, so that sums of such products stay finite.
LARGEST_PRODUCT = 1e250


class CostModel:
    """The cost model: costs under given statistics; memoised, and deterministic in its arguments.

    Args:
        statistics: the measured figures; a missing one has a default (see below), which
            :attr:`assumed` lists.
        objective: determines which operations are charged, and in which unit.
        parallelism: partitions per store.
        partitioning: False ignores partition attributes altogether (chi is always 1).
        bounds: loosest time bounds of the planned queries; None: all are over full history.
        parts: cache of the sub-joins within sub-joins, shared by several models.
        substreams: split of some relations' tuples (:mod:`~anabranch_planner.cost.values`).
        counted: the split into substreams when the samples were counted; empty: ``substreams``.

    Defaults. An unknown cardinality is ``DEFAULT_CARDINALITY``. An unknown distinct count is the
    relation's cardinality, as if the column were a unique key, so an unknown selectivity is ``1 /
    max(cardinalities)``. An unknown distinct count of a composite key is the product of its parts,
    at most the cardinality. If a span is unknown, every window covers all of it.
    """

    def __init__(
        self,
        statistics: Statistics,
        *,
        objective: Objective = Objective.TUPLES,
        parallelism: int = 1,
        partitioning: bool = True,
        bounds: LoosestBounds | None = None,
        parts: PartNames | None = None,
        substreams: Sequence[Substreams] = (),
        counted: Sequence[Substreams] = (),
    ) -> None:
        if parallelism < 1:
            raise StatisticsError(
                "bad-parallelism",
                f"parallelism is {parallelism}",
                field="parallelism",
                remedy="use at least one partition per store",
            )
        self.partitioned = partitioning and parallelism > 1
        self.parallelism = parallelism
        self._bounds = bounds
        self._statistics = statistics
        self._charge(objective)
        self._figures = Figures(statistics)
        self.substreams = tuple(substreams)
        self._divided = SubstreamShares(self._figures.values, substreams)
        self.aside = self._set_aside(substreams)
        samples = statistics.samples
        self._selectivities = Selectivities(self._figures, samples, parts, counted or substreams)
        self._products: dict[MirId, float] = {}
        self._shares: dict[MirId, dict[Label, float] | None] = {}
        self._sent: dict[MirId, dict[Label, float]] = {}
        self._supplies: dict[tuple[RelationId, float], Supply] = {}
        self._left_out: dict[MirId, float] = {}
        self._rewrites: dict[MirId, float] = {}
        #: Number of batches in the history.
        self.batches = (statistics.constants or CostConstants()).batches

    def _charge(self, objective: Objective) -> None:
        """Set the objective of the cost model, and the prices of operations and traffic."""
        self.objective = objective
        #: Seconds per operation; None if the objective counts tuples.
        self.constants: CostConstants | None = None
        if objective is Objective.SECONDS:
            self.constants = self._statistics.constants or CostConstants()
        exchange = None if objective is Objective.PAPER else self._statistics.exchange
        #: Cost of a byte sent to another host, in tuples or seconds.
        self._byte = CostConstants().tuples_per_byte
        if self.constants is not None:
            self._byte = self.constants.byte
        self._crossing: Crossing | None = None
        if exchange is not None and exchange.hosts > 1:
            self._crossing = Crossing(
                exchange, None if self._bounds is None else self._bounds.users
            )

    @property
    def assumed(self) -> tuple[str, ...]:
        """Assumptions made so far because a statistic was missing, sorted."""
        return tuple(sorted(self._figures.assumed))

    @property
    def contradictions(self) -> tuple[str, ...]:
        """Corrections made so far because statistics contradicted each other, sorted."""
        return tuple(sorted(self._figures.contradictions))

    def substreams_of(self, start: Label) -> int:
        """Number of substreams into which tuples of ``start`` are split; 1 if they are not."""
        return self._divided.count(start)

    @property
    def values(self) -> ValueShares:
        """Relative frequencies of key values, for the cost of skewed joins."""
        return self._figures.values

    def probe(self, head: Mir, start: Label | None = None, substream: int = 0) -> float:
        """Number of partial results over ``head`` that a probe order sends on per unit of time.

        Args:
            head: the sub-join joined so far.
            start: the alias whose arriving tuples begin the order; None: the mean over all aliases.
            substream: index of the substream of ``start``.
        """
        found = self._probe(head, start)
        return found if start is None else found * self._divided.of(head, start, substream)

    def probe_of(self, head: Mir, start: Label, substreams: Collection[int]) -> float:
        """As :meth:`probe`, for several substreams together; if empty, for all tuples."""
        return sum(
            self.probe(head, start, one) for one in substreams or range(self.substreams_of(start))
        )

    def probe_with(
        self,
        head: Mir,
        start: Label,
        substreams: Collection[int],
        attribute: AttrRef,
        hashes: NDArray[np.uint64],
    ) -> NDArray[np.float64]:
        """Partial results sent on per unit of time (:meth:`probe_of`), by value of ``attribute``.

        If tuples of ``start`` are split by another key, all substreams get equal shares.
        """
        shares = self.values.shares(head, attribute, start, hashes)
        function = next((one for one in self.substreams if one.start == start), None)
        if function is None or not substreams:
            return self.probe_of(head, start, substreams) * shares
        own = AttrRef(start, function.attribute)
        if head.is_base:
            equal = attribute.attribute == own.attribute
        else:
            equal = attribute == own or any({attribute, own} <= {*c.members} for c in head.classes)
        if not equal:
            return self.probe_of(head, start, substreams) * shares
        taken = [function.number(value) in substreams for value in hashes.tolist()]
        return self.probe_of(head, start, ()) * shares * np.array(taken, np.float64)

    def _probe(self, head: Mir, start: Label | None) -> float:
        """Number of partial results over ``head`` sent on, for all substreams together."""
        if self._figures.period is not None:
            sent = self._ahead(head, self._figures.period)
            if start is None or head.is_base:
                return sum(sent.values()) / len(sent)
            return sent[start]
        parts = None if start is None or head.is_base else self._parts(head)
        if parts is None or start is None:
            return self.cardinality(head) / len(head.members)
        return self._product(head) * parts[start]

    def divided(self, substreams: Sequence[Substreams]) -> CostModel:
        """Copy of the cost model in which ``substreams`` split the tuples of some relations."""
        found = copy(self)
        found.substreams = tuple(substreams)
        found._divided = SubstreamShares(self._figures.values, substreams)
        found.aside = self._set_aside(substreams)
        found._left_out = {}
        return found

    def _set_aside(self, substreams: Sequence[Substreams]) -> SetAside:
        return SetAside(substreams, None if self._bounds is None else self._bounds.users)

    def left_out(self, mir: Mir) -> float:
        """Fraction of the rows of ``mir`` that its store excludes because they are never probed."""
        if not self.aside.any:
            return 0.0
        found = self._left_out.get(mir.id)
        if found is None:
            found = self._left_out[mir.id] = self.aside.share(mir, self._figures.values)
        return found

    def charging(self, objective: Objective) -> CostModel:
        """Copy of the cost model with another objective, i.e. another unit of cost."""
        found = copy(self)
        found._charge(objective)
        return found

    def unpartitioned(self) -> CostModel:
        """Copy of the cost model for stores that are not partitioned."""
        found = copy(self)
        found.partitioned = False
        return found

    def chi(self, *, broadcast: bool) -> int:
        """Number of a store's partitions to which one probing tuple is sent."""
        return self.parallelism if broadcast and self.partitioned else 1

    def sent(
        self, before: Mir, start: Label | None, substream: int = 0, *, broadcast: bool
    ) -> float:
        """Number of tuples that a step sends to a store's partitions per unit of time."""
        return self.probe(before, start, substream) * self.chi(broadcast=broadcast)

    def price(self, sent: float, made: float, store: MirId, *, broadcast: bool = False) -> float:
        """The cost of ``sent`` tuples that probe ``store`` and produce ``made`` matches.

        Objectives in tuples charge matches as probes of the next step, not here.
        """
        chi = self.chi(broadcast=broadcast)
        if self.constants is None:
            return sent * chi
        return self.constants.step(sent, made, store, chi)

    def step(
        self,
        before: Mir,
        after: Mir,
        store: MirId,
        start: Label | None,
        substream: int = 0,
        *,
        broadcast: bool,
    ) -> float:
        """Cost per unit of time of the step that probes ``store``, from ``before`` to ``after``."""
        sent = self.probe(before, start, substream)
        made = 0.0 if self.constants is None else self.probe(after, start, substream)
        price = self.price(sent, made, store, broadcast=broadcast)
        return price + self.hop(sent, before, after, start, broadcast=broadcast)

    def hop(
        self, sent: float, before: Mir, after: Mir, start: Label | None, *, broadcast: bool
    ) -> float:
        """Cost of sending ``sent`` tuples over ``before`` to the hosts of probed partitions."""
        if self._crossing is None:
            return 0.0
        each = self._crossing.step(
            before, after, start, broadcast=broadcast, partitioned=self.partitioned
        )
        return sent * each * self._byte

    @property
    def on_one_host(self) -> bool:
        """Whether traffic between hosts costs nothing, as with a single host."""
        return self._crossing is None

    def insert(self, mir: Mir) -> float:
        """Cost per unit of time of one store copy of ``mir``; 0 if inserts are not charged."""
        return 0.0 if self.objective is Objective.PAPER else self.upkeep(mir)

    def upkeep(self, mir: Mir) -> float:
        """Cost per unit of time of inserts into one store copy of ``mir``, under any objective."""
        added, times = self.added(mir) * (1.0 - self.left_out(mir)), self.rewrites(mir)
        if self.constants is None:
            price = added * (1.0 + times)
        else:
            price = self.constants.insert(added, times, derived=not mir.is_base)
        if self._crossing is not None:
            price += added * self._crossing.insert(mir) * self._byte
        return price

    def stored(self, rows: float, mir: Mir | None = None) -> float:
        """The cost of storing or indexing a number of ``rows``.

        Args:
            mir: the store whose merges rewrite the rows; None: they are not merged.
        """
        times = 0.0 if mir is None else self.rewrites(mir)
        if self.constants is None:
            return rows * (1.0 + times)
        return self.constants.stored(rows, times)

    def rewrites(self, mir: Mir) -> float:
        """Number of times that merges of segments rewrite one row of the store of ``mir``."""
        found = self._rewrites.get(mir.id)
        if found is None:
            found = self._rewrites[mir.id] = rewrites(self.batches, self._lifetime(mir))
        return found

    def _lifetime(self, mir: Mir) -> float | None:
        """Number of batches until a row of ``mir`` expires: the maximum over the members whose rows
        expire. None if no member's rows expire, or spans are unknown."""
        if self._bounds is None:
            return None
        found: list[float] = []
        for relation, reach in zip(mir.relations, self._bounds.reach(mir), strict=True):
            span = self._figures.span(relation) if reach is not None else None
            if reach is not None and span:
                found.append(reach / span * self.batches)
        return max(found, default=None)

    @property
    def by_start(self) -> bool:
        """Whether a step's cost depends on the starting alias even without time bounds."""
        return self._figures.period is not None

    def added(self, mir: Mir) -> float:
        """Number of rows that the sub-join ``mir`` gains per unit of time."""
        if self._figures.period is None:
            return self.cardinality(mir)
        return sum(self._ahead(mir, self._figures.period).values())

    def cardinality(self, mir: Mir) -> float:
        """Rows of the sub-join ``mir`` per unit of the measured history, over all probe orders."""
        parts = self._parts(mir)
        product = self._product(mir)
        return product if parts is None else product * sum(parts.values())

    def matches(self, mir: Mir) -> float:
        """Rows of the sub-join ``mir`` per unit of history if time bounds are ignored."""
        return self._product(mir)

    def present(
        self, before: Mir, after: Mir, relation: RelationId, attributes: tuple[str, ...]
    ) -> float:
        """Fraction of partial results over ``before`` that match a row of ``relation`` on (sorted)
        ``attributes``, and so become partial results over ``after``.

        A partial result with a match is assumed to match as many rows as a value has on average. If
        frequent values meet, it matches more rows, and the returned fraction is too large.
        """
        met = self._product(after) / max(self._product(before), 1 / LARGEST_PRODUCT)
        values = self._figures.distinct_keys(relation, attributes)
        return min(1.0, met * values / max(self._figures.cardinality(relation), values))

    def bounds(self, mir: Mir) -> PairBounds:
        """Time bounds that the cost model assumes for ``mir``; a missing pair is unbounded."""
        return {} if self._bounds is None else self._bounds.of(mir)

    def distinct(self, relation: RelationId, attributes: tuple[str, ...]) -> float:
        """Number of distinct combinations of values of (sorted) attributes, at least 1."""
        return self._figures.distinct_keys(relation, attributes)

    @property
    def rounds(self) -> float:
        """Number of batches in the statistics' unit of time, at least 1."""
        return max(self.batches * (self._figures.period or 1.0), 1.0)

    def span(self, relation: RelationId) -> float | None:
        """Event time that a unit's tuples span, in microseconds; None: any window covers it."""
        return self._figures.span(relation)

    def _product(self, mir: Mir) -> float:
        """Rows of the sub-join ``mir`` per unit of history, if there were no time bounds."""
        found = self._products.get(mir.id)
        if found is None:
            found = math.prod(self._figures.cardinality(r) for r in mir.relations)
            for factor in self._selectivities.factors(mir):
                found *= factor
            found = self._products[mir.id] = min(found, LARGEST_PRODUCT)
        return found

    def _ahead(self, mir: Mir, period: float) -> dict[Label, float]:
        """Alias -> number of result rows of ``mir`` that its tuples complete in the next period of
        length ``period``."""
        found = self._sent.get(mir.id)
        if found is None:
            found = self._sent[mir.id] = self._foreseen(mir, period)
        return found

    def _foreseen(self, mir: Mir, period: float) -> dict[Label, float]:
        """Rows of a sub-join that each alias completes in the forecast period."""
        bounds, longest = self.bounds(mir), 0.0
        if bounds:
            # Event time advances equally in all streams, also in late starters and sparse ones.
            longest = max(self._figures.span(relation) or 0.0 for relation in mir.relations)
        supplies = {
            label: self._supply(relation, longest)
            for label, relation in zip(mir.members, mir.relations, strict=True)
        }
        parts = met(mir.members, bounds, supplies, period * longest or None)
        factors = self._selectivities.factors(mir)
        sent = {}
        for label, part in zip(mir.members, parts, strict=True):
            found = supplies[label].arriving * part
            for factor in factors:
                found *= factor
            sent[label] = min(found, LARGEST_PRODUCT)
        return sent

    def _supply(self, relation: RelationId, longest: float) -> Supply:
        """Stored and expected rows of a relation; ``longest``: microseconds that ages span."""
        found = self._supplies.get((relation, longest))
        if found is None:
            figures = self._figures
            coming = figures.arriving(relation)
            if longest:
                # Take the history's tuples, since stores have dropped rows older than every window.
                size = figures.cardinality(relation)
                recent = tuple((age * longest, n) for age, n in figures.recent(relation))
                found = Supply(size, coming, figures.span(relation), recent)
            else:
                found = Supply(figures.held(relation), coming, None)
            self._supplies[relation, longest] = found
        return found

    def _parts(self, mir: Mir) -> dict[Label, float] | None:
        """Fraction of the rows of ``mir`` that each alias completes; None: 1/n (full history)."""
        if self._bounds is None:
            return None
        if mir.id not in self._shares:
            pairs = self._bounds.of(mir)
            found = None
            if pairs:
                spans = {
                    label: self._figures.span(relation)
                    for label, relation in zip(mir.members, mir.relations, strict=True)
                }
                parts = shares(mir.members, pairs, spans)
                found = dict(zip(mir.members, parts, strict=True))
            self._shares[mir.id] = found
        return self._shares[mir.id]
