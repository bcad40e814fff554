"""Choice of the filters whose relations share one store.

Queries over one stream with different filters can have a store each, or share one. A shared store
keeps the rows that pass the conditions common to all of the queries (its *core*; often none), and
each query's other conditions are tested as tags of the rows (ADR 0074). A store costs an insert per
row and a fixed amount per batch. Probes of a shared store are made for rows that any of the queries
needs, and find rows that a query does not need. So many broad or similar filters share, and a few
selective ones do not.

A running query keeps its stores, because they hold its past rows. So only a new query can open a
shared store. It does if the separate stores of this query and of similar running queries cost
:data:`WORTH` times as much as a shared store. The cost of all stores is then within a constant
factor of the best choice, for any order of queries.

A shared store's filter keeps all conditions that may raise an error.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from anabranch_contract.queries.expressions import Call, Column, Expr, is_total
from anabranch_contract.queries.joins import (
    JoinQuery,
    Label,
    Relation,
    RelationId,
    StreamName,
    make_relation,
)
from anabranch_contract.queries.mirs import MirId
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.normal.implication import implies

#: Rows of a stream per unit of time that are assumed before rows are counted. Many, since the
#: choice is final, and with few rows every choice would seem cheap.
UNKNOWN_ROWS = 100_000.0
#: Share of rows assumed to pass a condition, by operation, before the relation's rows are counted.
PASSING = {
    "eq": 0.1, "ne": 0.9, "lt": 0.33, "le": 0.33, "gt": 0.33, "ge": 0.33,
    "is_null": 0.1, "is_not_null": 0.9, "like": 0.1,
}  # fmt: skip
#: Minimum cost of separate stores, relative to that of a shared store, for which one is opened;
#: minimum saving by a store with more conditions, relative to the saving by one with fewer.
WORTH, LESS_GENERAL = 1.5, 1.1
#: Maximum number of relations of one stream that are tried as the filter of a shared store.
MOST_CORES = 16
#: Alias -> conditions of its relation's store.
Filters = dict[str, tuple[Expr, ...]]


@dataclass(slots=True)
class SharedStores:
    """The relations that running queries store, by stream; chooses which new queries share them."""

    statistics: Statistics
    _standing: dict[StreamName, dict[RelationId, Relation]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def add(self, query: JoinQuery) -> None:
        """Add the relations of a running query, whose stores new queries may share."""
        for relation in query.relations:
            self._standing[relation.stream][relation.id] = relation

    def choose(self, queries: Sequence[JoinQuery]) -> dict[str, Filters]:
        """Choose which filters of new queries, each still with stores of its own, share stores.

        Returns:
            Query -> its aliases that share a store -> the store's conditions. Others are absent.
        """
        wanted: dict[StreamName, dict[RelationId, Relation]] = defaultdict(dict)
        for query in queries:
            for relation in query.relations:
                wanted[relation.stream][relation.id] = relation
        chosen: dict[RelationId, tuple[Expr, ...]] = {}
        partners = _partners(queries, self.statistics)
        for stream in sorted(wanted):
            chosen |= self._of_stream(stream, wanted[stream], partners.get(stream, 1.0))
        found: dict[str, Filters] = {}
        for query in queries:
            shared = {m.alias: chosen[m.relation] for m in query.members if m.relation in chosen}
            if shared:
                found[query.id] = shared
        return found

    def _of_stream(
        self, stream: StreamName, new: dict[RelationId, Relation], partners: float
    ) -> dict[RelationId, tuple[Expr, ...]]:
        """Relation -> conditions of the shared store that it uses, if it uses one."""
        cost, standing = _StorePrices(self.statistics, stream, partners), self._standing[stream]
        found: dict[RelationId, tuple[Expr, ...]] = {}
        left = {name: one for name, one in new.items() if name not in standing and one.filter}
        stored = [r for name, r in {**standing, **new}.items() if name not in left]
        for relation in list(left.values()):
            if (store := _cheapest(cost, relation, stored)) is not None:
                found[relation.id] = store.filter
                del left[relation.id]
        alike = [r for name, r in standing.items() if name not in new]
        while left and (core := self._best_core(cost, stream, left, alike)) is not None:
            for relation in _Conditions(list(left.values())).readers(core, list(left.values())):
                if relation.id != core.id:
                    found[relation.id] = core.filter
                del left[relation.id]
        own: list[Relation] = []
        for relation in sorted(left.values(), key=lambda r: (-cost.share(r), r.id)):
            store = _cheapest(cost, relation, own[:MOST_CORES])
            if store is None:
                own.append(relation)
            else:
                found[relation.id] = store.filter
        return found

    def _best_core(
        self,
        cost: _StorePrices,
        stream: StreamName,
        left: dict[RelationId, Relation],
        alike: Sequence[Relation],
    ) -> Relation | None:
        """Filter of the shared store to open for several of ``left``; None if none saves enough."""
        best, most = None, 0.0
        every = [*left.values(), *alike]
        conditions = _Conditions(every)
        for core in _cores(stream, every):
            members = conditions.readers(core, every)
            if all(r.id == core.id or r.id not in left for r in members):
                continue
            apart, together = sum(map(cost.own, members)), cost.sharing(members, core)
            saved = apart - together
            # Prefer a filter with fewer conditions: later queries can use the store more often.
            if apart > WORTH * together and saved > LESS_GENERAL * most:
                best, most = core, saved
        return best


def _cores(stream: StreamName, every: Sequence[Relation]) -> list[Relation]:
    """Filters to try for a shared store, the most general first: the conditions that may raise an
    error, and at most one other condition that many of the relations have."""
    counts = Counter(c for r in every for c in r.filter)
    frequent = {c for c, count in counts.most_common(MOST_CORES) if count > 1 and is_total(c)}
    found: dict[RelationId, Relation] = {}
    for relation in every:
        kept = [c for c in relation.filter if not is_total(c)]
        several = [c for c in relation.filter if c in frequent]
        for conditions in (kept, *([*kept, c] for c in several)):
            key = make_relation(stream, conditions)
            found.setdefault(key.id, key)
            if len(found) > 2 * MOST_CORES:
                break
    return sorted(found.values(), key=lambda r: (len(r.filter), r.id))


class _Conditions:
    """Index of relations' conditions, to find the relations that a shared store serves."""

    def __init__(self, relations: Sequence[Relation]) -> None:
        self._all = {r.id: frozenset(map(str, r.filter)) for r in relations}
        self._fallible = {
            r.id: frozenset(str(c) for c in r.filter if not is_total(c)) for r in relations
        }

    def readers(self, core: Relation, relations: Sequence[Relation]) -> list[Relation]:
        """Relations that can read a store with the conditions of ``core``, by means of tags."""
        wanted = frozenset(map(str, core.filter))
        return [
            r for r in relations if wanted <= self._all[r.id] and self._fallible[r.id] <= wanted
        ]


def _cheapest(
    cost: _StorePrices, relation: Relation, stores: Iterable[Relation]
) -> Relation | None:
    """The cheapest of ``stores`` for ``relation``; None if a store of its own is cheaper."""
    options = [(cost.joining(relation, s), s.id, s) for s in stores if _may_read(relation, s)]
    price, _, store = min(options, default=(math.inf, "", relation))
    return store if price < cost.own(relation) else None


def _may_read(relation: Relation, store: Relation) -> bool:
    """Whether the store of ``store`` has all rows of ``relation``, and tags can select them."""
    left_out = (c for c in relation.filter if c not in store.filter)
    return (
        relation.id != store.id
        and implies(relation.filter, store.filter)
        and all(map(is_total, left_out))
    )


def _partners(queries: Sequence[JoinQuery], statistics: Statistics) -> dict[StreamName, float]:
    """Stream -> mean number of its rows with the key of a probe, within the time bounds, over the
    keys of ``queries``; at least 1. Keys with an unknown number of values count as 1."""
    found: dict[StreamName, list[float]] = defaultdict(list)
    for query in queries:
        for key_class in query.classes:
            for label, attribute in ((m.label, m.attribute) for m in key_class.members):
                whole = RelationId(query.relation_of(label).stream)
                rows = statistics.cardinality(whole) or 0.0
                values = statistics.distinct(whole, (attribute,)) or max(rows, 1.0)
                near = _near(query, label, statistics.span(whole))
                found[StreamName(whole)].append(max(1.0, near * rows / values))
    return {stream: sum(each) / len(each) for stream, each in found.items()}


def _near(query: JoinQuery, label: Label, span: float | None) -> float:
    """Share of a stream's rows within the time bounds of a query's other aliases."""
    at = query.labels.index(label)
    widths = [
        None if earlier is None or later is None else earlier + later
        for other in range(len(query.labels))
        if other != at
        for earlier, later in [(query.bounds[at][other], query.bounds[other][at])]
    ]
    known = [width for width in widths if width is not None]
    return min([1.0, *(max(width, 0) / span for width in known)]) if span else 1.0


class _StorePrices:
    """Prices of separate and shared stores of one stream, in CPU seconds per unit of time."""

    def __init__(self, statistics: Statistics, stream: StreamName, partners: float) -> None:
        """``partners``: number of the stream's rows that a probe finds without filters."""
        self._statistics, self._partners = statistics, partners
        self._constants = statistics.constants or CostConstants()
        known = statistics.cardinality(RelationId(stream))
        self._rows = UNKNOWN_ROWS if known is None else max(known, 1.0)
        self._stream = stream
        self._shares: dict[RelationId, float] = {}
        self._own: dict[RelationId, float] = {}

    def own(self, relation: Relation) -> float:
        """Price of a store for ``relation`` alone, and of the probe steps that its tuples begin."""
        found = self._own.get(relation.id)
        if found is None:
            found = self._own[relation.id] = self.sharing([relation], relation)
        return found

    def joining(self, relation: Relation, store: Relation) -> float:
        """Price of ``relation`` as one more reader of a running store: probes, but no inserts."""
        sent, constants = self.share(relation) * self._rows, self._constants
        made = sent * self.share(store) * self._partners
        return sent * (constants.probe + constants.look) + made * constants.match

    def sharing(self, members: Iterable[Relation], core: Relation) -> float:
        """Price of one store with the rows of ``core``, and of probe steps for its ``members``."""
        kept = self.share(core)
        sent = min(kept, sum(map(self.share, members))) * self._rows
        constants = self._constants
        insert = constants.insert(kept * self._rows)
        return insert + constants.step(sent, sent * kept * self._partners, MirId(core.id), 1)

    def share(self, relation: Relation) -> float:
        """Share of the stream's rows that pass the filter of ``relation``."""
        found = self._shares.get(relation.id)
        if found is None:
            known = self._statistics.cardinality(relation.id)
            if known is None:
                found = 1.0
                for condition in relation.filter:
                    found *= self._passing(condition)
            else:
                found = min(1.0, known / self._rows)
            self._shares[relation.id] = found
        return found

    def _passing(self, condition: Expr) -> float:
        """Assumed fraction of a stream's rows that pass ``condition``."""
        if not isinstance(condition, Call):
            return 1.0
        parts = condition.args
        if condition.op == "and":
            return self._passing(parts[0]) * self._passing(parts[1])
        if condition.op == "or":
            return min(1.0, self._passing(parts[0]) + self._passing(parts[1]))
        if condition.op == "not":
            return 1.0 - self._passing(parts[0])
        if condition.op in ("eq", "in"):
            return min(1.0, (len(parts) - 1) * self._equal(parts[0]))
        return PASSING.get(condition.op, 0.5)

    def _equal(self, value: Expr) -> float:
        """Share of rows in which a column has one certain value."""
        if isinstance(value, Column):
            distinct = self._statistics.distinct(RelationId(self._stream), (value.name,))
            if distinct:
                return 1.0 / max(distinct, 1.0)
        return PASSING["eq"]
