"""Look-ups over a ruleset and the live stores, made once per batch and task."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from anabranch_contract.queries.joins import AttrRef, Label, RelationId, Stream, StreamName
from anabranch_runtime.epochs.per_ruleset import per_ruleset
from anabranch_runtime.expressions.evaluate import evaluate
from anabranch_runtime.storage.segment import IndexKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


class Members(Protocol):
    """Tuples with columns by label: a partial result."""

    length: int

    def column(self, label: Label, name: str) -> pa.Array:
        """A stream column of ``label``."""


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


class Routes:
    """The rules of one ruleset by what they are looked up by."""

    def __init__(self, ruleset: Ruleset) -> None:
        self.relations = {r.id: r for r in ruleset.relations}
        self.streams: dict[str, Stream] = {s.name: s for s in ruleset.streams}
        self.specs: dict[StoreId, StoreSpec] = {s.id: s for s in ruleset.stores}
        self.queries: dict[str, QuerySpec] = {q.id: q for q in ruleset.queries}
        self.relation_of: dict[Label, RelationId] = {
            label: relation for q in ruleset.queries for _, label, relation in q.members
        }
        for relation in self.relations:
            self.relation_of.setdefault(Label(relation), relation)
        self.derived = {(s, a): e for s, a, e in ruleset.derived}
        self.rules: dict[str, ProbeRule] = {r.out: r for r in ruleset.probe_rules}
        self.probes: dict[str, list[ProbeRule]] = defaultdict(list)
        for rule in ruleset.probe_rules:
            self.probes[rule.edge].append(rule)
        self.outputs: dict[str, list[OutputRule]] = defaultdict(list)
        for output in ruleset.output_rules:
            self.outputs[output.edge].append(output)
        self.inserts: dict[str, list[StoreSpec]] = defaultdict(list)
        for insert in ruleset.store_rules:
            self.inserts[insert.edge].append(self.specs[insert.store])
        self.starts: dict[RelationId, list[Label]] = defaultdict(list)
        alone = (q.members[0][1] for q in ruleset.queries if len(q.members) == 1)
        starts = itertools.chain((rule.start for rule in ruleset.probe_rules), alone)
        for label in dict.fromkeys(starts):
            self.starts[self.relation_of[label]].append(label)
        self.sketches: dict[RelationId, list[tuple[tuple[str, str], ...]]] = defaultdict(list)
        for owner, parts in ruleset.sketches:
            self.sketches[owner].append(parts)
        self.levels = ruleset.levels
        self.conjuncts = {r.id: tuple((str(f), f) for f in r.filter) for r in ruleset.relations}


routes = per_ruleset(Routes)


class Layout:
    """One ruleset, indexed for execution, with all live stores.

    Attributes:
        rules: outgoing edge -> its probe rule.
        probes: incoming edge -> probe rules, in level order. ``outputs``: -> output rules.
        inserts: incoming edge -> stores that keep what arrives on it.
        starts: relation -> the labels that its arriving tuples fill as starting tuples.
        sketches: relation -> (attribute, key type) of the keys that are counted.
        levels: stages of probes (0 where nothing is probed).
    """

    def __init__(self, ruleset: Ruleset, stores: dict[str, StoreLayout]) -> None:
        self.ruleset = ruleset
        self.stores = stores
        found = routes(ruleset)
        self.relations, self.streams = found.relations, found.streams
        self.specs, self.queries, self.relation_of = found.specs, found.queries, found.relation_of
        self.rules: Mapping[str, ProbeRule] = found.rules
        self.probes: Mapping[str, list[ProbeRule]] = found.probes
        self.outputs: Mapping[str, list[OutputRule]] = found.outputs
        self.inserts: Mapping[str, list[StoreSpec]] = found.inserts
        self.starts: Mapping[RelationId, list[Label]] = found.starts
        self.sketches: Mapping[RelationId, list[tuple[tuple[str, str], ...]]] = found.sketches
        self.levels = found.levels
        self._conjuncts = found.conjuncts
        self._derived = found.derived

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
        wanted = self._conjuncts.get(RelationId(target))
        if not wanted:
            return ()
        satisfied = self.stores[store].filter
        return tuple(f for text, f in wanted if text not in satisfied)

    def stored(self, store: StoreLayout, table: Columns, rows: int, ref: AttrRef) -> pa.Array:
        """Key attribute ``ref`` of all rows of a table in ``store``'s layout."""
        derived = self.derived(ref.label, ref.attribute)
        if derived is None:
            return table.column(store.column(ref.label, ref.attribute))
        return evaluate(derived, lambda c: table.column(store.column(ref.label, c.name)), rows)

    def probed(self, partial: Members, ref: AttrRef) -> pa.Array:
        """Key attribute ``ref`` of a partial result: a column, or a derived key expression."""
        derived = self.derived(ref.label, ref.attribute)
        if derived is None:
            return partial.column(ref.label, ref.attribute)
        return evaluate(derived, lambda c: partial.column(ref.label, c.name), partial.length)
