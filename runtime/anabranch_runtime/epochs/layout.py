"""Look-ups over a ruleset and the live stores, made once per batch and task."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from anabranch_contract.queries.joins import AttrRef, Label, RelationId, Stream, StreamName
from anabranch_runtime.expressions.evaluate import evaluate
from anabranch_runtime.storage.segment import IndexKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from anabranch_contract.plans.ruleset import (
        KeyPart,
        OutputRule,
        ProbeRule,
        QuerySpec,
        Ruleset,
        StoreId,
        StoreSpec,
    )
    from anabranch_contract.queries.expressions import Expr
    from anabranch_runtime.state.manifest import State, StoreState


class Columns(Protocol):
    """Rows with named columns: a segment, or what is to become one."""

    def column(self, name: str) -> pa.Array:
        """A column."""


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """A live store, of this epoch or an earlier one.

    Attributes:
        members: labels (a base store's only member is its relation's id).
        filter: texts of the conjuncts that a base store's rows satisfy.
    """

    id: str
    members: tuple[Label, ...]
    partition: tuple[AttrRef, str] | None
    partitions: int
    is_base: bool
    filter: tuple[str, ...] = ()

    def column(self, member: Label, name: str) -> str:
        """How a member's stream column is called in this store's segments."""
        return name if self.is_base else f"{member}.{name}"

    def index_key(self, key: Sequence[KeyPart]) -> IndexKey:
        """The index that answers ``key``."""
        names = tuple(self.column(k.build.label, k.build.attribute) for k in key)
        return IndexKey(names, tuple(k.type for k in key))


def layouts(state: State) -> dict[str, StoreLayout]:
    """The layouts of all of a state's stores."""
    return {name: _layout(name, store) for name, store in state.stores.items()}


def _layout(name: str, store: StoreState) -> StoreLayout:
    spec = store.spec
    return StoreLayout(
        name, spec.members, spec.partition, spec.partitions, store.is_base, store.filter
    )


def base_layout(relation: RelationId) -> StoreLayout:
    """The layout of ``relation``'s rows before they are stored anywhere."""
    return StoreLayout(relation, (Label(relation),), None, 1, is_base=True)


class Layout:
    """One ruleset, indexed for execution, with all live stores."""

    def __init__(self, ruleset: Ruleset, stores: dict[str, StoreLayout]) -> None:
        self.ruleset = ruleset
        self.stores = stores
        self.relations = {r.id: r for r in ruleset.relations}
        self.streams: dict[str, Stream] = {s.name: s for s in ruleset.streams}
        self.specs: dict[StoreId, StoreSpec] = {s.id: s for s in ruleset.stores}
        self.queries: dict[str, QuerySpec] = {q.id: q for q in ruleset.queries}
        self.relation_of: dict[Label, RelationId] = {
            label: relation for q in ruleset.queries for _, label, relation in q.members
        }
        for relation in self.relations:
            self.relation_of.setdefault(Label(relation), relation)
        self._derived = {(s, a): e for s, a, e in ruleset.derived}

    @cached_property
    def probes(self) -> dict[str, list[ProbeRule]]:
        """Incoming edge -> probe rules, in level order."""
        found: dict[str, list[ProbeRule]] = defaultdict(list)
        for rule in self.ruleset.probe_rules:
            found[rule.edge].append(rule)
        return found

    @cached_property
    def outputs(self) -> dict[str, list[OutputRule]]:
        """Incoming edge -> output rules."""
        found: dict[str, list[OutputRule]] = defaultdict(list)
        for rule in self.ruleset.output_rules:
            found[rule.edge].append(rule)
        return found

    @cached_property
    def inserts(self) -> dict[str, list[StoreSpec]]:
        """Incoming edge -> stores that keep what arrives on it."""
        found: dict[str, list[StoreSpec]] = defaultdict(list)
        for rule in self.ruleset.store_rules:
            found[rule.edge].append(self.specs[rule.store])
        return found

    @cached_property
    def starts(self) -> dict[RelationId, list[Label]]:
        """Relation -> the labels that its arriving tuples fill as starting tuples."""
        found: dict[RelationId, list[Label]] = defaultdict(list)
        for rule in self.ruleset.probe_rules:
            relation = self.relation_of[rule.start]
            if rule.start not in found[relation]:
                found[relation].append(rule.start)
        for query in self.ruleset.queries:
            if len(query.members) == 1:
                _, label, relation = query.members[0]
                if label not in found[relation]:
                    found[relation].append(label)
        return found

    def derived(self, label: Label, attribute: str) -> Expr | None:
        """The expression behind a derived attribute of ``label``; None for a plain column."""
        return self._derived.get((self.stream(label), attribute))

    def stream(self, label: Label) -> StreamName:
        """The stream behind ``label``."""
        return self.relations[self.relation_of[label]].stream

    def has_event_time(self, label: Label) -> bool:
        """Whether the stream behind ``label`` declares an event time."""
        return self.streams[self.stream(label)].event_time is not None

    def is_base(self, target: str) -> bool:
        """Whether a probe's target is a base relation (and not an MIR)."""
        return target in self.relations

    def missing_filter(self, target: str, store: str) -> tuple[Expr, ...]:
        """Conjuncts of relation ``target`` that ``store``'s rows need not satisfy."""
        relation = self.relations.get(RelationId(target))
        if relation is None or not relation.filter:
            return ()
        satisfied = self.stores[store].filter
        return tuple(f for f in relation.filter if str(f) not in satisfied)

    def stored(self, store: StoreLayout, table: Columns, rows: int, ref: AttrRef) -> pa.Array:
        """Key attribute ``ref`` of all rows of a table in ``store``'s layout."""
        derived = self.derived(ref.label, ref.attribute)
        if derived is None:
            return table.column(store.column(ref.label, ref.attribute))
        return evaluate(derived, lambda c: table.column(store.column(ref.label, c.name)), rows)
