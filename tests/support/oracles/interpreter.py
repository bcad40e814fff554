"""A tiny interpreter of rulesets by lists, dicts and loops, without partitions.

It follows ``docs/semantics.md`` word by word and is meant to be obviously right rather than fast.
If a ruleset permits a choice (which copy of a store to probe), all choices must have the same rows;
the interpreter takes one and checks the others as far as it can. It fails if a result is emitted
twice, a probe reads an MIR's store before all inserts of the batch, an MIR's store lacks a column,
or an index or a store rule is missing.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeAlias

import pyarrow as pa

from anabranch_contract.plans.ruleset import (
    Edge,
    KeptValues,
    KeyPart,
    OutputRule,
    Presence,
    ProbeRule,
    QuerySpec,
    Ruleset,
    StoreId,
    StoreSpec,
    TimeBound,
    arrival_edge,
)
from anabranch_contract.protocol.activations import Activation, Visibility
from anabranch_contract.queries.expressions import Column, Expr
from anabranch_contract.queries.joins import AttrRef, Label, QueryId, RelationId, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.index.keys import key_vector
from tests.support.oracles.evaluate import Value, evaluate, holds, key_of
from tests.support.oracles.history import Arrival, History, sees

#: The arrival sequences of a result's members, in the order of the FROM clause.
Found: TypeAlias = tuple[int, ...]
Combination: TypeAlias = dict[Label, Arrival]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of a run, and the activation of each query."""

    results: Mapping[QueryId, Mapping[Found, tuple[Value, ...]]]
    activations: Mapping[QueryId, Activation]


@dataclass(slots=True)
class _Partial:
    """A partial result: ``rows`` by label, started by ``rows[start]``."""

    start: Label
    rows: Combination


@dataclass(slots=True)
class _State:
    """All stored rows.

    Attributes:
        base: relation -> batch -> tuples. A batch is a key exactly if a copy of the relation's
            store existed in it.
        mirs: MIR id -> batch -> store id -> (layout, combinations).
        floors: relation -> event time below which tuples may have been dropped.
    """

    base: dict[RelationId, dict[int, list[Arrival]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    mirs: dict[str, dict[int, dict[StoreId, tuple[StoreSpec, list[Combination]]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    floors: dict[RelationId, int] = field(default_factory=dict)


def interpret(
    epochs: Sequence[tuple[Ruleset, int]], history: History, *, expire: bool = False
) -> Outcome:
    """Run ``history`` under a sequence of (ruleset, number of batches).

    A query is active from the first batch of the first epoch whose ruleset names it, until the
    first batch of the first later epoch whose ruleset does not. With ``expire`` tuples are
    dropped as soon as the retention rule of the active queries allows it.
    """
    state = _State()
    starts: dict[QueryId, Activation] = {}
    results: dict[QueryId, dict[Found, tuple[Value, ...]]] = defaultdict(dict)
    ended: dict[QueryId, Activation] = {}
    batch = 0
    for ruleset, length in epochs:
        active = {q.id for q in ruleset.queries}
        for query_id in sorted(set(starts) - active):
            began = starts.pop(query_id)
            ended[query_id] = replace(began, expired_batch=batch)
        for offset in range(length):
            if expire:
                _expire(state, ruleset, history.watermarks[batch])
            if offset == 0:
                for query in ruleset.queries:
                    assert query.id not in ended, f"query {query.id} came back under its old id"
                    if query.id not in starts:
                        starts[query.id] = _activate(state, query, batch)
                        results[query.id] = {}
            _Batch(ruleset, state, batch, starts, results).process(history.accepted[batch])
            batch += 1
    return Outcome(results, {**ended, **starts})


def _activate(state: _State, query: QuerySpec, batch: int) -> Activation:
    """Set ``visible_from`` to the earliest batch since which the relation was stored without
    a gap.
    """
    visible = {}
    for alias, _, relation in query.members:
        first = batch
        while first - 1 in state.base[relation]:
            first -= 1
        floor = state.floors.get(relation) if first < batch else None
        visible[alias] = Visibility(first, floor)
    return Activation(batch, visible)


def _expire(state: _State, ruleset: Ruleset, watermarks: Mapping[str, int | None]) -> None:
    """Drop tuples that no tuple at or after the watermarks can join with, in any active query.

    A query no longer needs a tuple of member ``i`` when tuples of every other member ``j`` that may
    still arrive are too late to join with it: ``tau + D_ij`` is below ``j``'s watermark, for all
    ``j``.
    """
    stream_of = {r.id: r.stream for r in ruleset.relations}
    limits: dict[RelationId, list[int | None]] = defaultdict(list)
    for query in ruleset.queries:
        for i, (_, _, relation) in enumerate(query.members):
            for j, (_, _, other) in enumerate(query.members):
                if i == j:
                    continue
                mark, bound = watermarks[stream_of[other]], query.retention[i][j]
                known = mark is not None and bound is not None
                limits[relation].append(mark - bound if known else None)  # type: ignore[operator]
    for relation, found in limits.items():
        if any(x is None for x in found):
            continue
        floor = max(min(x for x in found if x is not None), state.floors.get(relation, -(2**63)))
        state.floors[relation] = floor
        for batch, rows in state.base[relation].items():
            state.base[relation][batch] = [r for r in rows if _tau(r) >= floor]
        for by_batch in state.mirs.values():
            for stores in by_batch.values():
                for spec, combinations in stores.values():
                    members = [
                        m
                        for m, r in zip(spec.members, spec.relations, strict=True)
                        if r == relation
                    ]
                    combinations[:] = [
                        c for c in combinations if all(_tau(c[m]) >= floor for m in members)
                    ]


class _Batch:
    """One batch under one ruleset."""

    def __init__(
        self,
        ruleset: Ruleset,
        state: _State,
        batch: int,
        activations: Mapping[QueryId, Activation],
        results: dict[QueryId, dict[Found, tuple[Value, ...]]],
    ) -> None:
        self.ruleset = ruleset
        self.state = state
        self.batch = batch
        self.activations = activations
        self.results = results
        self.stores = {s.id: s for s in ruleset.stores}
        self.queries = {q.id: q for q in ruleset.queries}
        self.stream_of = {r.id: r.stream for r in ruleset.relations}
        self.derived = {(s, a): e for s, a, e in ruleset.derived}
        self.substreams = {one.start: one for one in ruleset.substreams}
        self.edges: dict[Edge, list[_Partial]] = {}
        self.arrived: dict[Edge, list[Arrival]] = {}
        self.inserted: set[tuple[Edge, StoreId]] = set()

    def process(self, arrivals: Sequence[Arrival]) -> None:
        """Run the batch: store, probe level by level, emit."""
        for relation in self.ruleset.relations:
            self.arrived[arrival_edge(relation.id)] = [
                row
                for row in arrivals
                if row.stream == relation.stream and self._passes(row, relation.filter)
            ]
        self._store_base()
        for store in self.ruleset.stores:
            if len(store.members) > 1:
                self.state.mirs[store.mir][self.batch][store.id] = (store, [])
        for level in range(self.ruleset.levels):
            waiting = [p for p in self.ruleset.probe_rules if p.level == level]
            while waiting:
                ready = [p for p in waiting if p.edge in self.arrived or p.edge in self.edges]
                assert ready, f"level {level}: nothing arrives on {[p.edge for p in waiting]}"
                for probe in ready:
                    self.edges[probe.out] = self._probe(probe)
                waiting = [p for p in waiting if p not in ready]
            self._store_combinations()
        for output in self.ruleset.output_rules:
            self._emit(output)

    # --- storing -------------------------------------------------------------------------------

    def _store_base(self) -> None:
        fed = {r.store: r.edge for r in self.ruleset.store_rules}
        for store in self.ruleset.stores:
            if len(store.members) == 1:
                edge = arrival_edge(store.relations[0])
                assert fed.get(store.id) == edge, f"store {store.id} is not fed by {edge}"
                self.inserted.add((edge, store.id))
                self.state.base[store.relations[0]][self.batch] = list(self.arrived[edge])

    def _store_combinations(self) -> None:
        for rule in self.ruleset.store_rules:
            if rule.edge not in self.edges or (rule.edge, rule.store) in self.inserted:
                continue
            self.inserted.add((rule.edge, rule.store))
            spec, kept = self.state.mirs[self.stores[rule.store].mir][self.batch][rule.store]
            for partial in self.edges[rule.edge]:
                assert set(partial.rows) == set(spec.members), f"{rule.edge} into {spec.id}"
                if spec.kept is not None and not self._is_kept(spec.kept, partial.rows):
                    continue
                kept.append({m: self._trim(spec, m, partial.rows[m]) for m in spec.members})

    def _trim(self, spec: StoreSpec, member: Label, row: Arrival) -> Arrival:
        names = [c for m, c in spec.columns if m == member]
        values = {name: self._value(row, name) for name in names}
        return Arrival(row.stream, row.sigma, row.batch, row.tau, values)

    # --- probing -------------------------------------------------------------------------------

    def _probe(self, rule: ProbeRule) -> list[_Partial]:
        incoming = self.edges.get(rule.edge)
        if incoming is None:
            incoming = [
                _Partial(rule.start, {rule.start: row})
                for row in self.arrived[rule.edge]
                if not rule.substreams or self._substream(rule.start, row) in rule.substreams
            ]
        store = self.stores[rule.store]
        assert store.mir == rule.mir, f"{rule.out} probes {rule.mir} in {rule.store}"
        self._require_index(store, rule.key)
        assert all(p.start == rule.start for p in incoming), f"{rule.out} starts at {rule.start}"
        for asked in rule.ahead:
            incoming = self._present(incoming, asked)
        if len(store.members) == 1:
            relation, (label,) = store.relations[0], rule.members
            found = self._base_matches(incoming, relation, label, rule.key, rule.inclusive)
        else:
            found = self._mir_matches(incoming, rule, store)
        return [
            p
            for p in found
            if _within(p.rows, rule.bounds) and self._all_hold(p.rows, rule.residuals)
        ]

    def _present(self, incoming: list[_Partial], asked: Presence) -> list[_Partial]:
        """Partial results with a stored match for the look-ahead filter, whenever it arrived."""
        store = self.stores[asked.store]
        self._require_index(store, asked.key)
        stored: list[Combination] = []
        if len(store.members) == 1:
            base = self.state.base[store.relations[0]]
            stored += [{store.members[0]: row} for rows in base.values() for row in rows]
        else:
            feeds = {(r.edge, r.store) for r in self.ruleset.store_rules if r.store == store.id}
            assert feeds <= self.inserted, f"{store.id} is asked before it is filled"
            kept = self.state.mirs[asked.mir]
            for batch in range(self.batch + 1):
                usable = [s for s, rows in kept[batch].values() if _keeps_enough(s, store)]
                if not usable:
                    return incoming
                stored += kept[batch][usable[0].id][1]
        passed = {id(partial) for partial, _ in self._matches(incoming, stored, asked.key)}
        return [partial for partial in incoming if id(partial) in passed]

    def _substream(self, start: Label, row: Arrival) -> int:
        """Return the number of a tuple's substream: that of its group of values, else an arbitrary
        one, which is always the same for the same tuple.
        """
        one = self.substreams[start]
        value = self._key({start: row}, AttrRef(start, one.attribute), one.type)
        for number, group in enumerate(one.groups, one.others):
            if value is not None and _hash(value, one.type) in group:
                return number
        return zlib.crc32(repr(value).encode()) % one.others

    def _is_kept(self, kept: KeptValues, rows: Combination) -> bool:
        value = self._key(rows, kept.attribute, kept.type)
        return (_hash(value, kept.type) in kept.hashes) == kept.listed

    def _base_matches(
        self,
        incoming: Sequence[_Partial],
        relation: RelationId,
        label: Label,
        key: Sequence[KeyPart],
        inclusive: Sequence[Label],
    ) -> list[_Partial]:
        own = Label(relation)
        assert all(part.build.label == own for part in key), f"{key} is not of {relation}"
        stored = [{own: row} for rows in self.state.base[relation].values() for row in rows]
        found = []
        for partial, match in self._matches(incoming, stored, key):
            assert label not in partial.rows, f"{label} is filled twice"
            if _precedes(match[own], label, partial, inclusive):
                found.append(_Partial(partial.start, {**partial.rows, label: match[own]}))
        return found

    def _mir_matches(
        self, incoming: Sequence[_Partial], rule: ProbeRule, store: StoreSpec
    ) -> list[_Partial]:
        """Stored combinations of the covered batches, and computed ones of all other batches."""
        assert rule.members == store.members
        feeds = {(r.edge, r.store) for r in self.ruleset.store_rules if r.store == store.id}
        starts = {p.start for p in self.ruleset.probe_rules if (p.out, store.id) in feeds}
        assert feeds <= self.inserted, f"{rule.out} probes {store.id} before it is filled"
        assert starts == set(store.members), f"{store.id} is fed from {starts} only"
        covered: set[int] = set()
        stored: list[Combination] = []
        for batch, stores in self.state.mirs[rule.mir].items():
            usable = [s for s in sorted(stores) if _keeps_enough(stores[s][0], store)]
            if usable:
                covered.add(batch)
                stored += stores[store.id if store.id in usable else usable[0]][1]
        found = [
            _Partial(partial.start, {**partial.rows, **match})
            for partial, match in self._matches(incoming, stored, rule.key)
            if all(_precedes(match[m], m, partial, rule.inclusive) for m in rule.members)
        ]
        filled = self._fill(incoming, rule)
        return found + [p for p in filled if _last(p.rows, rule.members) not in covered]

    def _fill(self, incoming: Sequence[_Partial], rule: ProbeRule) -> list[_Partial]:
        assert sorted(s.label for s in rule.fill) == sorted(rule.members), f"{rule.out}: fill"
        found = list(incoming)
        for step in rule.fill:
            store = self.stores[step.store]
            assert store.relations == (step.relation,), f"{rule.out} fills from {step.store}"
            self._require_index(store, step.key)
            matches = self._base_matches(found, step.relation, step.label, step.key, step.inclusive)
            found = [p for p in matches if _within(p.rows, step.bounds)]
        return found

    def _matches(
        self,
        incoming: Sequence[_Partial],
        stored: Sequence[Combination],
        key: Sequence[KeyPart],
    ) -> Iterator[tuple[_Partial, Combination]]:
        """Return every pair with equal keys that are not NULL."""
        by_key: dict[tuple[Value, ...], list[Combination]] = defaultdict(list)
        for rows in stored:
            by_key[tuple(self._key(rows, p.build, p.type) for p in key)].append(rows)
        for partial in incoming:
            wanted = tuple(self._key(partial.rows, p.probe, p.type) for p in key)
            if None not in wanted:
                for rows in by_key.get(wanted, ()):
                    yield partial, rows

    # --- results -------------------------------------------------------------------------------

    def _emit(self, rule: OutputRule) -> None:
        query = self.queries[rule.query]
        activation = self.activations[rule.query]
        complete = self.edges.get(rule.edge)
        if complete is None:
            # A query over one relation: arriving tuples are the results.
            label = query.members[0][1]
            complete = [_Partial(label, {label: row}) for row in self.arrived[rule.edge]]
        for partial in complete:
            rows = partial.rows
            assert set(rows) == {label for _, label, _ in query.members}, (
                f"{rule.edge} is not a result"
            )
            seen = all(sees(activation, alias, rows[label]) for alias, label, _ in query.members)
            if not seen or not _within(rows, rule.bounds):
                continue
            if not self._all_hold(rows, rule.residuals):
                continue
            sigmas = tuple(rows[label].sigma for _, label, _ in query.members)
            emitted = self.results[rule.query]
            assert sigmas not in emitted, f"{rule.query} emits {sigmas} twice"
            emitted[sigmas] = tuple(self._read(rows, o.expr) for o in query.projection)

    # --- values --------------------------------------------------------------------------------

    def _passes(self, row: Arrival, conditions: Sequence[Expr]) -> bool:
        return all(holds(c, lambda column: self._value(row, column.name)) for c in conditions)

    def _value(self, row: Arrival, name: str) -> Value:
        if name in row.values:
            return row.values[name]
        derived = self.derived.get((StreamName(row.stream), name))
        assert derived is not None, f"column {name} of {row.stream} is not kept: {row.values}"
        return evaluate(derived, lambda column: self._value(row, column.name))

    def _read(self, rows: Combination, expr: Expr) -> Value:
        def read(column: Column) -> Value:
            return self._value(rows[Label(column.alias)], column.name)

        return evaluate(expr, read)

    def _all_hold(self, rows: Combination, conditions: Sequence[Expr]) -> bool:
        return all(self._read(rows, c) is True for c in conditions)

    def _key(self, rows: Combination, ref: AttrRef, kind: str) -> Value:
        return key_of(self._value(rows[ref.label], ref.attribute), kind)

    def _require_index(self, store: StoreSpec, key: Sequence[KeyPart]) -> None:
        assert key, "cross product"
        parts = {(part.build, part.type) for part in key}
        assert any(set(i) == parts for i in store.indexes), f"{store.id} has no index {parts}"


@cache
def _hash(value: Value, kind: str) -> int:
    """Return the hash of a key's value (:func:`key_of`)."""
    plain = math.nan if value == "NaN" and kind == "double" else value
    return int(key_vector([pa.array([plain], arrow_type(parse_type(kind)))], [kind]).hashes[0])


def _precedes(row: Arrival, label: Label, partial: _Partial, inclusive: Sequence[Label]) -> bool:
    """Whether ``row`` arrived before the tuple that started ``partial``, which then is the last."""
    start = partial.rows[partial.start].sigma
    return row.sigma < start or (row.sigma == start and label in inclusive)


def _within(rows: Combination, bounds: Sequence[TimeBound]) -> bool:
    return all(_tau(rows[b.later]) - _tau(rows[b.earlier]) <= b.micros for b in bounds)


def _tau(row: Arrival) -> int:
    assert row.tau is not None, f"a time bound on stream {row.stream}, which has no event time"
    return row.tau


def _last(rows: Combination, members: Sequence[Label]) -> int:
    return max(rows[m].batch for m in members)


def _keeps_enough(old: StoreSpec, wanted: StoreSpec) -> bool:
    """Whether ``old`` has every combination and column that a probe of ``wanted`` relies on."""
    if not set(wanted.columns) <= set(old.columns):
        return False
    if old.kept is not None:
        if wanted.kept is None or wanted.kept.attribute != old.kept.attribute:
            return False
        one, other = set(old.kept.hashes), set(wanted.kept.hashes)
        if old.kept.listed:
            enough = wanted.kept.listed and other <= one
        else:
            enough = not (one & other) if wanted.kept.listed else one <= other
        if not enough:
            return False
    allowed = {(b.earlier, b.later): b.micros for b in wanted.bounds}
    return all(
        (b.earlier, b.later) in allowed and allowed[b.earlier, b.later] <= b.micros
        for b in old.bounds
    )
