"""The layout of stores: lookup tables over a ruleset and the live stores, per batch and task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import pyarrow as pa

from anabranch_contract.plans.routes import Routes
from anabranch_contract.plans.ruleset import (
    KeyPart,
    OutputRule,
    ProbeRule,
    Ruleset,
    StoreSpec,
    Substreams,
)
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import AttrRef, Label, RelationId, Stream, StreamName
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.epochs.per_ruleset import per_ruleset
from anabranch_runtime.expressions.added_columns import added_values
from anabranch_runtime.expressions.evaluate import evaluate
from anabranch_runtime.state.dealt import Dealt, DealtRows, dealt_rows
from anabranch_runtime.state.derived import Derived
from anabranch_runtime.state.manifest import State, StoreState
from anabranch_runtime.storage.segment import UNCHANGED, ChangedColumns, IndexKey


class Columns(Protocol):
    """Rows with named columns: a stored segment, or a record batch that becomes a segment."""

    def column(self, name: str) -> pa.Array:
        """Return the column ``name`` over all rows of the segment or batch."""


class Members(Protocol):
    """Joined tuples (a partial result) with columns by label (alias)."""

    length: int

    def column(self, label: Label, name: str) -> pa.Array:
        """Return the column ``name`` of the partial result's alias ``label``."""


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """A live store, of this epoch or an earlier one.

    Attributes:
        members: labels of the joined relations; for a base store only its relation's id.
        filter: texts of the conjuncts that a base store's rows satisfy.
        dealt: hot key values with rows spread outside their home partitions (``state.dealt``).
        streams: the streams of ``members``.
    """

    id: str
    members: tuple[Label, ...]
    partition: tuple[AttrRef, str] | None
    partitions: int
    is_base: bool
    filter: tuple[str, ...] = ()
    dealt: tuple[Dealt, ...] = ()
    streams: tuple[str, ...] = ()

    @property
    def dealt_rows(self) -> DealtRows | None:
        """Partitions of the store that may have rows of hot key values; None: no spread rows."""
        return dealt_rows(self.dealt, self.partitions) if self.dealt else None

    def column(self, member: Label, name: str) -> str:
        """Return the name that the column ``name`` of ``member`` has in this store's segments."""
        return name if self.is_base else f"{member}.{name}"

    def index_key(self, key: Sequence[KeyPart]) -> IndexKey:
        """Return columns and key types of the store's index for probes by ``key``."""
        names = tuple(self.column(k.build.label, k.build.attribute) for k in key)
        return IndexKey(names, tuple(k.type for k in key))


def layouts(state: State) -> dict[str, StoreLayout]:
    """Return the layout of each store of a state, by name."""
    return _layouts.of(state.stores)


def _layout(name: str, store: StoreState) -> StoreLayout:
    spec = store.spec
    return StoreLayout(
        name,
        spec.members,
        spec.partition,
        spec.partitions,
        store.is_base,
        store.filter,
        store.dealt,
        store.streams,
    )


_layouts = Derived(_layout)


def base_layout(relation: RelationId) -> StoreLayout:
    """Return the layout of arriving rows of ``relation``, which are not stored yet."""
    return StoreLayout(relation, (Label(relation),), None, 1, is_base=True)


@lru_cache(maxsize=256)
def _changed_columns(store: StoreLayout, streams: tuple[Stream | None, ...]) -> ChangedColumns:
    members = zip(store.members, streams, strict=True)
    types = {
        store.column(member, name): arrow_type(dict(stream.columns)[name])
        for member, stream in members
        if stream is not None
        for name, _ in stream.widened
    }
    first = streams[0]
    if not store.is_base or first is None:
        return ChangedColumns({}, types)
    return ChangedColumns(added_values(first), types, frozenset(n for n, _ in first.dropped))


routes = per_ruleset(Routes)


class Layout:
    """One ruleset, indexed for execution, with all live stores.

    Attributes:
        routes: the rules by edge, relation and label, from which the attributes below are made.
        rules: outgoing edge of a probe (its output in the plan) -> the probe rule.
        probes: incoming edge -> probe rules, by level. ``outputs``: incoming edge -> output rules.
        inserts: incoming edge -> stores that keep its tuples.
        starts: relation -> labels (aliases) for which its arriving tuples start probe orders.
        substreams: label -> function from arriving tuples to their substreams, which have
            different probe orders by key value.
        sketches: relation -> (attribute, key type) of the keys whose distinct values are counted.
        levels: number of probe levels; 0 for a ruleset without probes.
    """

    def __init__(self, ruleset: Ruleset, stores: dict[str, StoreLayout]) -> None:
        self.ruleset = ruleset
        self.stores = stores
        self.routes = found = routes(ruleset)
        self.relations, self.streams = found.relations, found.streams
        self.specs, self.queries, self.relation_of = found.specs, found.queries, found.relation_of
        self.rules: Mapping[str, ProbeRule] = found.rules
        self.probes: Mapping[str, list[ProbeRule]] = found.probes
        self.outputs: Mapping[str, list[OutputRule]] = found.outputs
        self.inserts: Mapping[str, list[StoreSpec]] = found.inserts
        self.starts: Mapping[RelationId, list[Label]] = found.starts
        self.substreams: Mapping[Label, Substreams] = found.substreams
        self.sketches: Mapping[RelationId, list[tuple[tuple[str, str], ...]]] = found.sketches
        self.levels = found.levels
        self._conjuncts = found.conjuncts
        self.derived, self.stream, self.order = found.derived, found.stream, found.order
        self.ranks = found.ranks
        self.has_event_time = found.has_event_time

    def is_base(self, target: str) -> bool:
        """Whether a probe's target is a base relation, not a materialized join."""
        return target in self.relations

    def missing_filter(self, target: str, store: str) -> tuple[Expr, ...]:
        """Return ``target``'s filter conjuncts that a probe must check in rows of ``store``."""
        wanted = self._conjuncts.get(RelationId(target))
        if not wanted:
            return ()
        satisfied = self.stores[store].filter
        return tuple(f for text, f in wanted if text not in satisfied)

    def changed(self, store: str) -> ChangedColumns:
        """Return the columns that rows stored in ``store`` may lack or have with an earlier type,
        because their streams got these columns or types later."""
        known = self.stores[store]
        streams = tuple(self.streams.get(StreamName(name)) for name in known.streams)
        if not any(s is not None and (s.added or s.widened or s.dropped) for s in streams):
            return UNCHANGED
        return _changed_columns(known, streams)

    def stored(self, store: StoreLayout, table: Columns, rows: int, ref: AttrRef) -> pa.Array:
        """Return the key attribute ``ref`` of all ``rows`` rows in ``table`` of ``store``."""
        derived = self.derived(ref.label, ref.attribute)
        if derived is None:
            return table.column(store.column(ref.label, ref.attribute))
        return evaluate(derived, lambda c: table.column(store.column(ref.label, c.name)), rows)

    def probed(self, partial: Members, ref: AttrRef) -> pa.Array:
        """Return a partial result's key attribute ``ref``, from a column or computed."""
        derived = self.derived(ref.label, ref.attribute)
        if derived is None:
            return partial.column(ref.label, ref.attribute)
        return evaluate(derived, lambda c: partial.column(ref.label, c.name), partial.length)
