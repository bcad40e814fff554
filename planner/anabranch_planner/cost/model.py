"""The CLASH cost model: cardinalities of canonical sub-joins, probe costs, insert costs.

Source: Eq. 1 of Dossinger & Michel. A step that sends the join of ``n`` base relations to the next
store costs ``|join| / n * chi``: only the 1/n of the join in which the starting tuple came last is
made on this path, and ``chi`` is 1 where the probing tuple knows the store's partition attribute,
else the store's parallelism. (The inner index of Eq. 1 as printed ends one relation short of what
the paper's own example computes; after an MIR probe ``n`` counts base relations.)

Under the objective ``tuples`` a store copy costs the rows written into it per unit of time, each as
often as it is written: once when it is stored, and once per merge of segments. Under the objective
``seconds`` steps and copies cost CPU time (:mod:`anabranch_planner.cost.statistics.constants`). On
several hosts both cost what they send between these, too (:mod:`anabranch_planner.cost.exchange`):
seconds per byte, or as many tuples as could be probed with in that time. Under the objective
``paper`` that is free.

**The cardinality** of a sub-join is the number of its combinations whose last member arrives within
one unit of time that begins with empty stores:

    |X| = (product of |j|) * f(X) * (sum over i of v_i)

* ``|j|``: tuples of a relation per unit of time (:mod:`~anabranch_planner.cost.figures`);
* ``f(X)``: the selectivity of its keys (:mod:`~anabranch_planner.cost.selectivity`);
* ``v_i``: the share that time bounds leave to combinations that ``i`` completes
  (:mod:`~anabranch_planner.cost.timing`). Over full history each is 1/n and they add up to 1; with
  bounds the 1/n of Eq. 1 becomes ``v_i``, which depends on the start of the step.

The statistics define the unit of time: plans are compared, so any unit serves that all figures
share. Its length matters only with time bounds (``span``).

**Forecast.** Where the statistics forecast the next period (:class:`~.statistics.Ahead`), that is
the unit of probes and inserts: a step costs the tuples sent in the period, an insert the rows
added, both from rows already held and forecast arrivals
(:mod:`~anabranch_planner.cost.statistics.forecast`). :meth:`CostModel.cardinality` and
:meth:`CostModel.matches` count the tuples of the history, as memory, backfills and the sizes of
stores depend on them, not on tuples to come.
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
from anabranch_planner.cost.figures import DEFAULT_CARDINALITY, Figures
from anabranch_planner.cost.selectivity import PartNames, Selectivities
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.forecast import Supply, met
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.timing import LoosestBounds, PairBounds, shares
from anabranch_planner.cost.values import SubstreamShares, ValueShares

#: Upper limit of the products that costs sum up, far from infinity for any number of relations.
LARGEST_PRODUCT = 1e250

__all__ = ["DEFAULT_CARDINALITY", "CostModel"]


class CostModel:
    """Costs under given statistics; memoised, and a function of its arguments only.

    Args:
        statistics: the measured figures; missing ones get a default (below), listed in
            :attr:`assumed`.
        objective: the operations charged, and their unit.
        parallelism: partitions per store.
        partitioning: False ignores partition attributes altogether (chi is always 1).
        bounds: the time bounds of the queries that are planned; without any, all is full history.
        parts: the sub-joins' parts, where several models of them are made.
        substreams: split of the tuples of some starts (:mod:`~anabranch_planner.cost.values`).
        counted: the split under which samples were counted; empty: as ``substreams``.

    Defaults: an unknown cardinality is :data:`DEFAULT_CARDINALITY`; an unknown distinct count is
    the relation's cardinality (as if it were a key), which makes an unknown selectivity ``1 /
    max(cardinalities)``; an unknown distinct count of a composite key is the product of its parts,
    at most the cardinality; a window reaches over all of an unknown span.
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
        samples = statistics.samples()
        self._selectivities = Selectivities(self._figures, samples, parts, counted or substreams)
        self._products: dict[MirId, float] = {}
        self._shares: dict[MirId, dict[Label, float] | None] = {}
        self._sent: dict[MirId, dict[Label, float]] = {}
        self._supplies: dict[tuple[RelationId, float], Supply] = {}
        self._left_out: dict[MirId, float] = {}
        self._rewrites: dict[MirId, float] = {}
        #: Batches of the history.
        self.batches = (statistics.constants() or CostConstants()).batches

    def _charge(self, objective: Objective) -> None:
        self.objective = objective
        #: Seconds per operation; None: costs are counts of tuples.
        self.constants: CostConstants | None = None
        if objective is Objective.SECONDS:
            self.constants = self._statistics.constants() or CostConstants()
        exchange = None if objective is Objective.PAPER else self._statistics.exchange()
        #: Tuples, or seconds, per byte that goes to another host.
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
        """Assumptions so far for missing statistics, sorted."""
        return tuple(sorted(self._figures.assumed))

    @property
    def contradictions(self) -> tuple[str, ...]:
        """Corrections so far of contradictory statistics, sorted."""
        return tuple(sorted(self._figures.contradictions))

    def substreams_of(self, start: Label) -> int:
        """Number of substreams of ``start``; 1 if it is not split."""
        return self._divided.count(start)

    @property
    def values(self) -> ValueShares:
        """The shares of the values of keys."""
        return self._figures.values

    def probe(self, head: Mir, start: Label | None = None, substream: int = 0) -> float:
        """Tuples per unit of time that one path sends out with ``head`` joined so far.

        Args:
            head: the sub-join.
            start: the label whose tuples set out on the path; None: the mean over all of them.
            substream: which of them.
        """
        found = self._probe(head, start)
        return found if start is None else found * self._divided.of(head, start, substream)

    def probe_of(self, head: Mir, start: Label, substreams: Collection[int]) -> float:
        """The same of several substreams together; empty: all tuples of ``start``."""
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
        """Tuples of :meth:`probe_of` for each of ``hashes`` as the value of ``attribute``.

        If another key splits the tuples of ``start``, all substreams have equal shares.
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
        """Copy of the model in which ``substreams`` split the tuples of some starts."""
        found = copy(self)
        found.substreams = tuple(substreams)
        found._divided = SubstreamShares(self._figures.values, substreams)
        found.aside = self._set_aside(substreams)
        found._left_out = {}
        return found

    def _set_aside(self, substreams: Sequence[Substreams]) -> SetAside:
        return SetAside(substreams, None if self._bounds is None else self._bounds.users)

    def left_out(self, mir: Mir) -> float:
        """The share of the combinations over ``mir`` that its store need not keep."""
        if not self.aside.any:
            return 0.0
        found = self._left_out.get(mir.id)
        if found is None:
            found = self._left_out[mir.id] = self.aside.share(mir, self._figures.values)
        return found

    def charging(self, objective: Objective) -> CostModel:
        """The same model under another objective."""
        found = copy(self)
        found._charge(objective)
        return found

    def unpartitioned(self) -> CostModel:
        """The same model of stores that are not partitioned."""
        found = copy(self)
        found.partitioned = False
        return found

    def chi(self, *, broadcast: bool) -> int:
        """Partitions of a store that one probing tuple is sent to."""
        return self.parallelism if broadcast and self.partitioned else 1

    def price(self, sent: float, made: float, store: MirId, *, broadcast: bool = False) -> float:
        """The cost of ``sent`` tuples that probe ``store`` and make ``made`` tuples.

        Under the objectives that count tuples ``made`` costs nothing: the next step sends it.
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
        """The cost per unit of time of the step that probes ``store`` between two sub-joins."""
        sent = self.probe(before, start, substream)
        made = 0.0 if self.constants is None else self.probe(after, start, substream)
        price = self.price(sent, made, store, broadcast=broadcast)
        return price + self.hop(sent, before, after, start, broadcast=broadcast)

    def hop(
        self, sent: float, before: Mir, after: Mir, start: Label | None, *, broadcast: bool
    ) -> float:
        """Cost of sending ``sent`` tuples over ``before`` to the hosts of the probed partitions."""
        if self._crossing is None:
            return 0.0
        each = self._crossing.step(
            before, after, start, broadcast=broadcast, partitioned=self.partitioned
        )
        return sent * each * self._byte

    @property
    def on_one_host(self) -> bool:
        """Whether nothing crosses hosts, or that costs nothing."""
        return self._crossing is None

    def insert(self, mir: Mir) -> float:
        """The cost of one copy of the store of ``mir`` per unit of time."""
        return 0.0 if self.objective is Objective.PAPER else self.upkeep(mir)

    def upkeep(self, mir: Mir) -> float:
        """The price of one copy's inserts per unit of time, whether or not they are charged."""
        added, times = self.added(mir) * (1.0 - self.left_out(mir)), self.rewrites(mir)
        if self.constants is None:
            price = added * (1.0 + times)
        else:
            price = self.constants.insert(added, times)
        if self._crossing is not None:
            price += added * self._crossing.insert(mir) * self._byte
        return price

    def stored(self, rows: float, mir: Mir | None = None) -> float:
        """The price of storing or indexing ``rows``.

        Args:
            mir: whose store keeps them, which merges rewrite; None: they are stored at once.
        """
        times = 0.0 if mir is None else self.rewrites(mir)
        if self.constants is None:
            return rows * (1.0 + times)
        return self.constants.stored(rows, times)

    def rewrites(self, mir: Mir) -> float:
        """Times that merges rewrite a row of the store of ``mir``."""
        found = self._rewrites.get(mir.id)
        if found is None:
            found = self._rewrites[mir.id] = rewrites(self.batches, self._lifetime(mir))
        return found

    def _lifetime(self, mir: Mir) -> float | None:
        """Batches for which a row of ``mir`` is needed: the maximum over its members that expire,
        since segments expire by any of them; None: no member expires, or spans are unknown.
        """
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
        """Whether steps cost differently by the label they begin with, even without time bounds."""
        return self._figures.period is not None

    def added(self, mir: Mir) -> float:
        """Tuples of the sub-join that come into being per unit of time."""
        if self._figures.period is None:
            return self.cardinality(mir)
        return sum(self._ahead(mir, self._figures.period).values())

    def cardinality(self, mir: Mir) -> float:
        """Tuples of the sub-join that a unit of history has brought, whatever the path to it."""
        parts = self._parts(mir)
        product = self._product(mir)
        return product if parts is None else product * sum(parts.values())

    def matches(self, mir: Mir) -> float:
        """Combinations of a unit's tuples whose keys agree, whatever their times."""
        return self._product(mir)

    def present(
        self, before: Mir, after: Mir, relation: RelationId, attributes: tuple[str, ...]
    ) -> float:
        """The share of combinations over ``before`` that find something in ``relation`` by these
        (sorted) attributes, which makes them combinations over ``after``.

        It is taken that what finds anything finds as many rows as a value has on the mean. It finds
        more where frequent values meet, and then the share is too large.
        """
        met = self._product(after) / max(self._product(before), 1 / LARGEST_PRODUCT)
        values = self._figures.distinct_keys(relation, attributes)
        return min(1.0, met * values / max(self._figures.cardinality(relation), values))

    def bounds(self, mir: Mir) -> PairBounds:
        """The time bounds by which ``mir`` is planned; a missing pair is unbounded."""
        return {} if self._bounds is None else self._bounds.of(mir)

    def span(self, relation: RelationId) -> float | None:
        """Microseconds over which a unit's tuples are spread; None: they fit into any window."""
        return self._figures.span(relation)

    def _product(self, mir: Mir) -> float:
        """The cardinality over full history."""
        found = self._products.get(mir.id)
        if found is None:
            found = math.prod(self._figures.cardinality(r) for r in mir.relations)
            for factor in self._selectivities.factors(mir):
                found *= factor
            found = self._products[mir.id] = min(found, LARGEST_PRODUCT)
        return found

    def _ahead(self, mir: Mir, period: float) -> dict[Label, float]:
        """Combinations that each label's tuples complete in the next period."""
        found = self._sent.get(mir.id)
        if found is None:
            found = self._sent[mir.id] = self._foreseen(mir, period)
        return found

    def _foreseen(self, mir: Mir, period: float) -> dict[Label, float]:
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
        """Rows of a relation. ``longest``: microseconds of the age profile; 0: no profile."""
        found = self._supplies.get((relation, longest))
        if found is None:
            figures = self._figures
            coming = figures.arriving(relation)
            if longest:
                # Stores drop rows beyond all windows, so their row counts give no more information.
                size = figures.cardinality(relation)
                recent = tuple((age * longest, n) for age, n in figures.recent(relation))
                found = Supply(size, coming, figures.span(relation), recent)
            else:
                found = Supply(figures.held(relation), coming, None)
            self._supplies[relation, longest] = found
        return found

    def _parts(self, mir: Mir) -> dict[Label, float] | None:
        """The shares per starting label; None over full history (1/n each)."""
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
