"""The stores of a ruleset, compiled from a plan: their names, partitions, columns and bounds."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.plan import Plan, Step, StoreCopy
from anabranch_contract.plans.ruleset import (
    KeyPart,
    LatestRule,
    Ruleset,
    StoreId,
    StoreSpec,
    TimeBound,
)
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import (
    AttrRef,
    JoinQuery,
    Label,
    QueryId,
    Relation,
    RelationId,
    Stream,
    StreamName,
    make_relation,
)
from anabranch_contract.queries.mirs import Mir, MirId, base_mir
from anabranch_contract.queries.types import key_type
from anabranch_planner.cost.columns import Kept, behind, read_by_query
from anabranch_planner.cost.parts import PlanPart
from anabranch_planner.cost.steps import SubJoins
from anabranch_planner.cost.timing import LoosestBounds, PairBounds

#: Identity of a store copy: owner, store and partition attribute.
Place = tuple[str, MirId, AttrRef | None]
#: (whether the attribute is named as in a base store, attribute) -> type of its comparisons.
KeyTypes = Mapping[tuple[bool, AttrRef], str]
#: (owner, sub-join) -> the copies of its store, by partition attribute.
Stores = Mapping[tuple[str, MirId], Sequence[StoreSpec]]


def place_of(copy: StoreCopy) -> Place:
    """Identity of a store copy: owner, store and partition attribute."""
    return copy.owner, copy.mir, copy.partition


def key_types(parts: Iterable[PlanPart]) -> KeyTypes:
    """Join attribute -> the type in which the queries of ``parts`` compare it."""
    found: dict[tuple[bool, AttrRef], str] = {}
    for part in parts:
        for key, kind in part.once("kinds", (), partial(_key_types_of, part)).items():
            found[key] = min(kind, found.get(key, kind))
    return found


def _key_types_of(part: PlanPart) -> KeyTypes:
    known: KeyTypes | None = part.before("kinds", ())
    found: dict[tuple[bool, AttrRef], str] = dict(known or {})
    for query in part.queries if known is None else (one.query for one in part.grown):
        relation_of = {m.label: m.relation for m in query.members}
        for key_class in query.classes:
            for ref in key_class.members:
                base = AttrRef(Label(relation_of[ref.label]), ref.attribute)
                for key in ((False, ref), (True, base)):
                    found[key] = min(key_class.type, found.get(key, key_class.type))
    return found


def base_stores(
    parts: Iterable[PlanPart], kinds: KeyTypes, parallelism: int
) -> dict[Place, StoreSpec]:
    """Copies of the stores of base relations, which all parts of a plan share."""
    copies: dict[Place, Mir] = {}
    for part in parts:
        mirs = {m.id: m for m in part.plan.mirs if m.is_base}
        copies |= {place_of(c): mirs[c.mir] for c in part.plan.copies if c.mir in mirs}
    found = {}
    for place, mir in copies.items():
        owner, _, attribute = place
        partition = None if attribute is None else (attribute, kinds[True, attribute])
        found[place] = _store_spec(owner, mir, partition, parallelism)
    return found


@dataclass(frozen=True, slots=True)
class Given:
    """Inputs of the compilation of a plan's part from outside the part.

    Attributes:
        streams: the streams that the part reads.
        bases: the copies of base stores that the part uses.
        types: key types of partition attributes, including attributes by which only queries of
            other parts join.
        derived: expressions of the derived attributes that partitions and queries use.
        past: (owner, store, order) of each backfill.
    """

    streams: Mapping[StreamName, Stream]
    bases: Mapping[StoreCopy, StoreSpec]
    types: Mapping[AttrRef, str]
    derived: Mapping[tuple[StreamName, str], Expr]
    parallelism: int
    past: tuple[tuple[str, MirId, tuple[Label, ...]], ...]


@dataclass(frozen=True, slots=True)
class PartTables:
    """The queries, sub-joins and relations of a :class:`PlanPart`, by id."""

    plan: Plan
    queries: Mapping[QueryId, JoinQuery]
    mirs: Mapping[MirId, Mir]
    relations: Mapping[RelationId, Relation]
    subs: SubJoins

    @staticmethod
    def of(part: PlanPart, subs: SubJoins | None = None) -> PartTables:
        """Index the objects of ``part`` by id; ``subs``: cache of its queries' sub-joins."""
        queries = sorted(part.queries, key=lambda q: q.id)
        return PartTables(
            part.plan,
            {q.id: q for q in queries},
            {m.id: m for m in part.plan.mirs},
            {r.id: r for q in queries for r in q.relations},
            part.subs if subs is None else subs,
        )


def stores_of_part(tables: PartTables, given: Given) -> Stores:
    """The stores of a part: base stores from ``given``, and its stores of intermediate results."""
    found: dict[tuple[str, MirId], list[StoreSpec]] = defaultdict(list)
    #: Per stored sub-join: its queries; the stores it is maintained from; columns for larger ones.
    users: dict[tuple[str, MirId], set[QueryId]] = defaultdict(set)
    sources: dict[tuple[str, MirId], set[MirId]] = defaultdict(set)
    passed: dict[tuple[str, MirId], set[Kept]] = defaultdict(set)
    for order in tables.plan.orders:
        for step in order.steps:
            if order.maintains:
                sources[order.owner, MirId(order.goal)].add(step.target)
            else:
                users[order.owner, step.target].add(QueryId(order.goal))
    # Compile larger sub-joins first, since stores of smaller ones also serve their queries.
    for copy in sorted(_ranked(tables.plan), key=lambda c: -len(tables.mirs[c.mir].members)):
        key, mir, store = (copy.owner, copy.mir), tables.mirs[copy.mir], given.bases.get(copy)
        if store is None:
            queries = [tables.queries[name] for name in users[key]]
            kept = _columns(copy, mir, queries, tables, given)
            kept |= {(label, c) for label, c in passed[key] if label in mir.members}
            partition = None
            if copy.partition is not None:
                partition = (copy.partition, given.types[copy.partition])
            columns, bounds = tuple(sorted(kept)), time_bounds(LoosestBounds(queries).of(mir))
            store = _store_spec(copy.owner, mir, partition, given.parallelism, columns, bounds)
            for smaller in sources[key]:
                users[copy.owner, smaller] |= users[key]
                passed[copy.owner, smaller] |= kept
        found[key].append(store)
    return found


def _columns(
    copy: StoreCopy, mir: Mir, queries: Iterable[JoinQuery], tables: PartTables, given: Given
) -> set[Kept]:
    """Columns of a store: the ones that ``queries`` project, filter on or join by; the columns of
    the partition attribute; and the keys by which streams keep the latest tuple."""
    stream_of = {r: tables.relations[r].stream for r in mir.relations}
    kept = behind([copy.partition] if copy.partition else [], mir, stream_of, given.derived)
    for query in queries:
        kept |= read_by_query(query, mir, stream_of, given.derived)
    for label, relation in zip(mir.members, mir.relations, strict=True):
        stream = given.streams.get(stream_of[relation])
        kept |= {(label, c) for c in (() if stream is None else stream.latest)}
    return kept


def running_stores(plan: Plan, running: Ruleset) -> Stores:
    """The stores of ``plan``, looked up in the ruleset ``running``.

    Raises:
        RulesetError: ``running`` lacks one of them.
    """
    there: dict[Place, StoreSpec] = {}
    for store in running.stores:
        partition = None if store.partition is None else store.partition[0]
        there[store.owner, store.mir, partition] = store
    found = defaultdict(list)
    for copy in _ranked(plan):
        if place_of(copy) not in there:
            raise RulesetError(
                "bad-ruleset",
                f"the plan has a copy of store {copy.mir} that is not running",
                remedy="plan the revision over running stores only",
            )
        found[copy.owner, copy.mir].append(there[place_of(copy)])
    return found


def preferred(stores: Stores, owner: str, step: Step) -> StoreSpec:
    """The store copy that a step probes: the one partitioned by the step's attribute."""
    copies = stores[owner, step.target]
    return next((s for s in copies if (s.partition or (None,))[0] == step.partition), copies[0])


def best_base(
    stores: Stores, owner: str, relation: RelationId, key: tuple[KeyPart, ...]
) -> StoreSpec:
    """The copy of a base store whose partition attribute is in ``key``, or else the first copy."""
    copies = stores[owner, MirId(relation)]
    known = {(k.build, k.type) for k in key}
    return next((s for s in copies if s.partition in known), copies[0])


def time_bounds(pairs: PairBounds) -> tuple[TimeBound, ...]:
    """Time bounds of pairs of aliases, in the form of a ruleset's rules."""
    return tuple(TimeBound(i, j, d) for (i, j), d in sorted(pairs.items()))


def stores_of_streams(
    streams: Iterable[Stream],
    relations: dict[RelationId, Relation],
    bases: Iterable[StoreSpec],
    parallelism: int,
) -> tuple[list[StoreSpec], list[LatestRule]]:
    """Stores of retained streams, and of streams where only the latest tuple of a key counts; for
    the latter also rules that look up other tuples of the same key.

    The rules search all tuples of the stream, because a relation's filter may drop the later tuple
    of a key but not the earlier one.

    Args:
        relations: relations by id; the relations of the returned stores are added.
    """
    read, copies = {r.stream for r in relations.values()}, defaultdict(list)
    added, rules = [], []
    for store in bases:
        copies[store.mir].append(store)
    for stream in streams:
        if not stream.is_retained and not (stream.latest and stream.name in read):
            continue
        relation = make_relation(stream.name, ())
        relations.setdefault(relation.id, relation)
        base, types = base_mir(relation.id), dict(stream.columns)
        known = copies[base.id]
        key = tuple((c, str(key_type([types[c]]))) for c in sorted(stream.row_key))
        wanted = (AttrRef(base.members[0], key[0][0]), key[0][1]) if len(key) == 1 else None
        if not known:
            # A tuple and its delete cancel each other only within a partition.
            partition = None if stream.is_retained and not stream.replaces_rows else wanted
            known.append(_store_spec("", base, partition, parallelism))
            added += known
        if key:
            store = min(known, key=lambda s: (s.owner, s.partition != wanted, s.id))
            rules.append(LatestRule(stream.name, relation.id, store.id, key))
    return added, rules


def short_hash(value: object) -> str:
    """Six hexadecimal digits of a hash, to distinguish the ids of stores with the same name."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:6]


def _store_spec(
    owner: str,
    mir: Mir,
    partition: tuple[AttrRef, str] | None,
    parallelism: int,
    columns: tuple[Kept, ...] = (),
    bounds: tuple[TimeBound, ...] = (),
) -> StoreSpec:
    name = f"{owner}:{mir.id}" if owner else mir.id
    if partition is not None:
        attribute = partition[0].attribute
        name += f"[{attribute if mir.is_base else partition[0]}:{partition[1]}]"
    name += f"/{parallelism}"
    if not mir.is_base:
        name += "~" + short_hash((columns, bounds))
    return StoreSpec(
        StoreId(name),
        mir.id,
        mir.members,
        mir.relations,
        partition,
        parallelism,
        owner,
        columns,
        bounds,
    )


def _ranked(plan: Plan) -> list[StoreCopy]:
    return sorted(plan.copies, key=lambda c: (c.owner, c.mir, str(c.partition or "")))
