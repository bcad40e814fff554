"""From a plan to the ruleset of one epoch: probe trees, stores, edge labels, levels.

The orders of a plan are merged into probe trees (one per arriving relation, shared prefixes
once); every tree edge becomes a probe rule with its own label, every end of an order a store
rule (an intermediate result is kept) or an output rule (a query's result leaves). CLASH, section
"From solution to rules".

What a shared edge may check. An edge is used by the goals below it. Whatever is checked on it
must hold for all of them, so it checks the *loosest* of their time bounds and the *intersection*
of their residuals; each query then checks at its output whatever is still missing. Hence every
result of every query passes every edge on its path, and nothing else leaves its output.

Levels. A store must hold all of a batch's inserts before it is probed (``semantics.md``,
"Exactly once within a batch"): base stores are filled first, so an edge into a base store has its
parent's level; an edge into an MIR has at least the level after the MIR's last maintenance edge.
An MIR is maintained through strictly smaller ones, so the recursion ends.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.partial import check_kept
from anabranch_contract.plans.plan import Plan, ProbeOrder, Step, StoreCopy
from anabranch_contract.plans.ruleset import (
    BackfillRule,
    Edge,
    FillStep,
    IndexSpec,
    KeyPart,
    LatestRule,
    OutputRule,
    ProbeRule,
    QuerySpec,
    Ruleset,
    StoreId,
    StoreRule,
    StoreSpec,
    TimeBound,
    arrival_edge,
    substream_counts,
    used_substreams,
)
from anabranch_contract.queries.expressions import Expr, columns
from anabranch_contract.queries.joins import (
    AttrRef,
    JoinQuery,
    KeyClass,
    Label,
    QueryId,
    Relation,
    RelationId,
    Stream,
    StreamName,
    make_relation,
)
from anabranch_contract.queries.mirs import Mir, MirId, base_mir, canonical, join_keys
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.queries.types import key_type
from anabranch_planner.cost.columns import behind, read_by_query
from anabranch_planner.cost.parts import Part, divide, whole
from anabranch_planner.cost.steps import SubJoins
from anabranch_planner.cost.timing import LoosestBounds, PairBounds, pair_bounds
from anabranch_planner.plans.backfill import Backfill
from anabranch_planner.plans.narrow import narrow

_K = TypeVar("_K")
#: Owner, store and partition attribute of a copy.
_Place = tuple[str, MirId, AttrRef | None]
#: A relation, and the (attribute, key type) of a combination.
_Sketch = tuple[RelationId, tuple[tuple[str, str], ...]]
#: The store that is probed, the labels that it fills, and the sub-join that this leads to.
_NodeKey = tuple[MirId, tuple[Label, ...], MirId]


@dataclass(frozen=True, slots=True)
class _Goal:
    """The goal of an order: a query, or an MIR that is maintained for ``users``."""

    order: ProbeOrder
    classes: tuple[KeyClass, ...]
    relation_of: Mapping[Label, RelationId]
    bounds: PairBounds
    residuals: tuple[Expr, ...]


@dataclass(slots=True)
class _Node:
    """A node of a probe tree under construction: the partial result over ``labels``.

    Attributes:
        substreams: the start's substreams that reach the node; empty: all.
    """

    edge: Edge
    labels: frozenset[Label]
    goals: list[_Goal] = field(default_factory=list)
    ends: list[_Goal] = field(default_factory=list)
    children: dict[_NodeKey, _Node] = field(default_factory=dict)
    step: Step | None = None
    substreams: tuple[int, ...] = ()

    @property
    def shape(self) -> object:
        """Structural key of a probe tree, ignoring edge names."""
        ends = [(goal.order.goal, goal.order.maintains) for goal in self.ends]
        partition = None if self.step is None else self.step.partition
        return ends, partition, [(key, c.shape) for key, c in sorted(self.children.items())]


def compile_ruleset(
    plan: Plan,
    queries: Sequence[JoinQuery],
    streams: Sequence[Stream],
    *,
    epoch: int,
    parallelism: int,
    sinks: Mapping[str, SinkSpec],
    backfills: Sequence[Backfill] = (),
    freshness: Mapping[str, Mapping[str, int]] | None = None,
    past: Collection[str] = (),
    parts: Sequence[Part] | None = None,
) -> Ruleset:
    """Compile ``plan`` to the ruleset of ``epoch``.

    Args:
        plan: a valid plan for exactly ``queries``.
        queries: the active queries.
        streams: every registered stream (all are read and counted, used or not).
        epoch: the epoch's number.
        parallelism: partitions per store.
        sinks: query id -> where its results go (Parquet files where missing).
        backfills: decisions on the past of new MIRs (``plans.backfill``); each chosen one becomes a
            rule for every copy of the MIR.
        freshness: query id -> alias -> maximum age of its members of results (microseconds).
        past: the queries that emit results of the past as well.
        parts: the plan's parts (:func:`~anabranch_planner.cost.parts.divide`), whose rules are
            cached; None: computed here.

    Raises:
        RulesetError: the plan is inconsistent with the queries.
    """
    found = divide(plan, queries) if parts is None else parts
    terms = Terms(streams, parallelism, sinks, freshness or {}, frozenset(past))
    return _merged(found, terms, epoch, backfills)


def compile_revision(
    plan: Plan,
    queries: Sequence[JoinQuery],
    running: Ruleset,
    revision: int,
    subs: SubJoins | None = None,
) -> Ruleset:
    """Compile ``plan`` to a ``revision`` of ``running``.

    Args:
        plan: a valid plan for exactly ``queries``, over stores of ``running`` (checked by
            :func:`~anabranch_planner.replan.revise.fits`).
        queries: the queries of ``running``.
        subs: their sub-joins, computed once for several revisions.

    Returns:
        ``running`` with other routes. It has the stores of ``running``, except intermediate results
        that the plan does not keep; each with its former indexes and the indexes of the plan's
        probes.

    Raises:
        RulesetError: the plan has a store missing in ``running``, or contradicts ``queries``.
    """
    return _Reviser(whole(plan, queries), running, subs).revise(revision)


@dataclass(frozen=True, slots=True)
class Terms:
    """Inputs of rules besides plan and queries; arguments of :func:`compile_ruleset`."""

    streams: Sequence[Stream]
    parallelism: int
    sinks: Mapping[str, SinkSpec]
    freshness: Mapping[str, Mapping[str, int]]
    past: frozenset[str]

    def of(self, query: JoinQuery) -> tuple[object, ...]:
        """The terms of one query: sink, freshness limits, and whether it emits the past."""
        limits = self.freshness.get(query.id, {})
        sink = self.sinks.get(query.id, _NO_SINK)
        return sink, tuple(sorted(limits.items())), query.id in self.past

    def spec(self, query: JoinQuery) -> QuerySpec:
        """The query as workers see it."""
        limits = self.freshness.get(query.id, {})
        return QuerySpec(
            query.id,
            tuple((m.alias, m.label, m.relation) for m in query.members),
            query.bounds,
            query.projection,
            self.sinks.get(query.id, _NO_SINK),
            query.view,
            query.outer,
            _left_of(query),
            tuple((m.label, limits[m.alias]) for m in query.members if m.alias in limits),
            query.id in self.past,
        )


_NO_SINK = SinkSpec()
_NO_TERMS = Terms((), 1, {}, {}, frozenset())


@dataclass(frozen=True, slots=True)
class _PartRules:
    """The rules of a part of a plan, except the insert rules and specs of base stores.

    Attributes:
        stores: of intermediate results. ``fed``: their insert rules. ``indexes``: of all stores.
        sketches: see :func:`_sketches`.
    """

    probes: list[ProbeRule]
    outputs: list[OutputRule]
    fed: list[StoreRule]
    stores: list[StoreSpec]
    indexes: Mapping[StoreId, set[IndexSpec]]
    queries: list[QuerySpec]
    relations: Mapping[RelationId, Relation]
    sketches: set[_Sketch]
    backfills: list[BackfillRule]


def _merged(
    parts: Sequence[Part], terms: Terms, epoch: int, backfills: Sequence[Backfill]
) -> Ruleset:
    """The ruleset of all parts."""
    streams = {s.name: s for s in sorted(terms.streams, key=lambda s: s.name)}
    kinds = _Kinds.of(parts)
    bases = _base_stores(parts, kinds, terms.parallelism)
    chosen = {(b.owner, b.mir): b for b in backfills if b.chosen}
    derived = {(s, a): e for part in parts for q in part.queries for s, a, e in q.derived}
    made = []
    for part in parts:
        copies, past = part.plan.copies, []
        for store in dict.fromkeys((c.owner, c.mir) for c in copies):
            past += [chosen[store]] if store in chosen else []
        read = sorted({r.stream for q in part.queries for r in q.relations})
        own = {c: bases[_place(c)] for c in copies if _place(c) in bases}
        attributes = {c.partition for c in copies if c.partition is not None and c not in own}
        names = {attribute.attribute for attribute in attributes}
        given = _Given(
            {name: streams[name] for name in read if name in streams},
            own,
            {attribute: kinds.of_label(attribute) for attribute in attributes},
            {(s, a): e for (s, a), e in derived.items() if a in names and s in read},
            terms.parallelism,
            tuple((b.owner, b.mir, b.order) for b in past),
            tuple(terms.of(q) for q in part.queries),
        )
        made.append(part.once("rules", given, partial(_rules, part, given, terms, past)))
    relations = {name: r for one in made for name, r in one.relations.items()}
    indexes: dict[StoreId, set[IndexSpec]] = defaultdict(set)
    for one in made:
        for name, some in one.indexes.items():
            indexes[name] |= some
    added = _retained(streams.values(), relations, bases, terms.parallelism)
    there = [*bases.values(), *added]
    rules, more = _latest(streams.values(), relations, there, indexes, terms.parallelism)
    added += more
    fed = [rule for one in made for rule in one.fed]
    fed += [StoreRule(arrival_edge(s.relations[0]), s.id) for s in [*bases.values(), *added]]
    stores = [*bases.values(), *added, *(s for one in made for s in one.stores)]
    ruleset = Ruleset(
        epoch=epoch,
        streams=tuple(streams.values()),
        relations=tuple(relations[r] for r in sorted(relations)),
        queries=tuple(sorted((q for one in made for q in one.queries), key=lambda q: q.id)),
        stores=tuple(_with_indexes(s, indexes[s.id]) for s in sorted(stores, key=lambda s: s.id)),
        store_rules=_sorted_store_rules(fed),
        probe_rules=_sorted_probes(rule for one in made for rule in one.probes),
        output_rules=_sorted_outputs(rule for one in made for rule in one.outputs),
        derived=tuple((s, a, e) for (s, a), e in sorted(derived.items(), key=_first)),
        sketches=tuple(sorted(set().union(*(one.sketches for one in made)))),
        backfill_rules=tuple(
            sorted((b for one in made for b in one.backfills), key=lambda b: b.store)
        ),
        latest_rules=rules,
        substreams=used_substreams(
            (one for part in parts for one in part.plan.substreams),
            (rule for one in made for rule in one.probes),
        ),
    )
    ruleset.validate()
    return narrow(ruleset)


def _rules(part: Part, given: _Given, terms: Terms, backfills: Sequence[Backfill]) -> _PartRules:
    return _Compiler(part, given).rules(terms, backfills)


def _place(copy: StoreCopy) -> _Place:
    """Identity of a copy, ignoring its insert cost."""
    return copy.owner, copy.mir, copy.partition


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Attribute (of a label; of a base store) -> the key types in which queries compare it. Where
    there are several, the first is taken.
    """

    labels: dict[AttrRef, set[str]]
    bases: dict[AttrRef, set[str]]

    @staticmethod
    def of(parts: Iterable[Part]) -> _Kinds:
        """The union over the queries of ``parts``."""
        found = _Kinds(defaultdict(set), defaultdict(set))
        for part in parts:
            known = part.once("kinds", (), partial(_Kinds._of_part, part))
            for mine, others in ((found.labels, known.labels), (found.bases, known.bases)):
                for ref, kinds in others.items():
                    mine[ref] |= kinds
        return found

    @staticmethod
    def _of_part(part: Part) -> _Kinds:
        found = _Kinds(defaultdict(set), defaultdict(set))
        for query in part.queries:
            relation_of = {m.label: m.relation for m in query.members}
            for key_class in query.classes:
                for ref in key_class.members:
                    found.labels[ref].add(key_class.type)
                    base = AttrRef(Label(relation_of[ref.label]), ref.attribute)
                    found.bases[base].add(key_class.type)
        return found

    def of_label(self, ref: AttrRef) -> str:
        """The key type of an attribute of a label."""
        return min(self.labels[ref])


def _base_stores(parts: Iterable[Part], kinds: _Kinds, parallelism: int) -> dict[_Place, StoreSpec]:
    """The copies of base stores, which parts have in common."""
    copies: dict[_Place, Mir] = {}
    for part in parts:
        mirs = {m.id: m for m in part.plan.mirs if m.is_base}
        copies |= {_place(c): mirs[c.mir] for c in part.plan.copies if c.mir in mirs}
    found = {}
    for place, mir in sorted(copies.items(), key=lambda item: _copy_rank(item[0])):
        owner, _, attribute = place
        partition = None if attribute is None else (attribute, min(kinds.bases[attribute]))
        found[place] = _store_spec(owner, mir, partition, parallelism)
    return found


def _store_spec(
    owner: str,
    mir: Mir,
    partition: tuple[AttrRef, str] | None,
    parallelism: int,
    columns: tuple[tuple[Label, str], ...] = (),
    bounds: tuple[TimeBound, ...] = (),
) -> StoreSpec:
    name = f"{owner}:{mir.id}" if owner else mir.id
    if partition is not None:
        attribute = partition[0].attribute
        name += f"[{attribute if mir.is_base else partition[0]}:{partition[1]}]"
    name += f"/{parallelism}"
    if not mir.is_base:
        name += "~" + _digest((columns, bounds))
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


def _retained(
    streams: Iterable[Stream],
    relations: dict[RelationId, Relation],
    bases: Mapping[_Place, StoreSpec],
    parallelism: int,
) -> list[StoreSpec]:
    """The stores of all tuples of streams that are retained, where no query has one.

    Args:
        relations: what the stores are of is added.
    """
    there, added = {store.mir for store in bases.values()}, []
    for stream in streams:
        if stream.is_retained:
            relation = make_relation(stream.name, ())
            relations.setdefault(relation.id, relation)
            base = base_mir(relation.id)
            if base.id not in there:
                added.append(_store_spec("", base, None, parallelism))
    return added


def _latest(
    streams: Iterable[Stream],
    relations: dict[RelationId, Relation],
    bases: Sequence[StoreSpec],
    indexes: dict[StoreId, set[IndexSpec]],
    parallelism: int,
) -> tuple[tuple[LatestRule, ...], list[StoreSpec]]:
    """The rules that find later tuples of a key, and the stores that only they need.

    A filter may hide the later tuple and not the earlier one, so they are looked for among all
    tuples of the stream.

    Args:
        relations, indexes: what the rules need is added.
    """
    rules, added = [], []
    read = {r.stream for r in relations.values()}
    for stream in streams:
        if not stream.latest or stream.name not in read:
            continue
        relation = make_relation(stream.name, ())
        relations.setdefault(relation.id, relation)
        types = dict(stream.columns)
        key = tuple((c, str(key_type([types[c]]))) for c in sorted(stream.latest))
        base = base_mir(relation.id)
        known = [s for s in bases if s.mir == base.id]
        wanted = (AttrRef(base.members[0], key[0][0]), key[0][1]) if len(key) == 1 else None
        store = min(known, key=lambda s: (s.owner, s.partition != wanted, s.id), default=None)
        if store is None:
            store = _store_spec("", base, wanted, parallelism)
            added.append(store)
        rule = LatestRule(stream.name, relation.id, store.id, key)
        indexes[store.id].add(rule.index)
        rules.append(rule)
    return tuple(rules), added


@dataclass(frozen=True, slots=True)
class _Given:
    """Inputs of a part's rules besides the part: the cache key.

    Attributes:
        streams: the streams that it reads.
        bases: its copies of base stores. ``types``: of their partition attributes, which may occur
            in other parts' queries only. ``derived``: the expressions behind these.
        past: the (owner, store, order) of backfills. ``terms``: of each query.
    """

    streams: Mapping[StreamName, Stream]
    bases: Mapping[StoreCopy, StoreSpec] = field(default_factory=dict)
    types: Mapping[AttrRef, str] = field(default_factory=dict)
    derived: Mapping[tuple[StreamName, str], Expr] = field(default_factory=dict)
    parallelism: int = 1
    past: tuple[tuple[str, MirId, tuple[Label, ...]], ...] = ()
    terms: tuple[tuple[object, ...], ...] = ()


class _Compiler:
    """The state of the compilation of one part (never outlives the functions above)."""

    def __init__(
        self,
        part: Part,
        given: _Given,
        subs: SubJoins | None = None,
    ) -> None:
        self.plan, self.given = part.plan, given
        self.queries = sorted(part.queries, key=lambda q: q.id)
        self.by_id = {q.id: q for q in self.queries}
        self.mirs = {m.id: m for m in part.plan.mirs}
        self.relations = {r.id: r for q in self.queries for r in q.relations}
        #: The streams that keep the latest per key.
        self.latest = {s.name: s for s in given.streams.values() if s.latest}
        own = {(s, a): e for q in self.queries for s, a, e in q.derived}
        self.derived = {**given.derived, **own}
        self.users = _users(part.plan, self.mirs)
        self.copies = _copies(part.plan)
        self.made_from: dict[tuple[str, MirId], set[MirId]] = defaultdict(set)
        for order in part.plan.orders:
            for step in order.steps if order.maintains else ():
                self.made_from[order.owner, step.target].add(MirId(order.goal))
        self.stores: dict[tuple[str, StoreCopy], StoreSpec] = {
            (copy.owner, copy): store for copy, store in given.bases.items()
        }
        self.ready: dict[tuple[str, MirId], int] = {}
        self.indexes: dict[StoreId, set[IndexSpec]] = defaultdict(set)
        self.subs = part.subs if subs is None else subs

    def rules(self, terms: Terms, backfills: Sequence[Backfill]) -> _PartRules:
        """The rules of the part."""
        stores = []
        for copy in self.plan.copies:
            if (copy.owner, copy) not in self.stores:
                stores.append(self._store(copy))
                self.stores[copy.owner, copy] = stores[-1]
        probes, outputs, fed = self._routes()
        return _PartRules(
            probes,
            outputs,
            fed,
            stores,
            self.indexes,
            [terms.spec(q) for q in self.queries],
            self.relations,
            _sketches(self.queries),
            self._backfills(backfills),
        )

    def _routes(self) -> tuple[list[ProbeRule], list[OutputRule], list[StoreRule]]:
        """The rules of the probe trees: what keeps intermediate results up is among the last."""
        trees = self._trees()
        levels = self._levels(trees)
        probes: list[ProbeRule] = []
        outputs: list[OutputRule] = []
        stores: list[StoreRule] = []
        for owner, _, root in trees:
            self._emit(owner, root, levels, probes, outputs, stores)
        return probes, outputs, stores

    # --- goals and trees -----------------------------------------------------------------------

    def _goal(self, order: ProbeOrder) -> _Goal:
        if not order.maintains:
            query = self.by_id[QueryId(order.goal)]
            relation_of = {m.label: m.relation for m in query.members}
            return _Goal(order, query.classes, relation_of, pair_bounds(query), query.residuals)
        mir = self.mirs[MirId(order.goal)]
        relation_of = dict(zip(mir.members, mir.relations, strict=True))
        return _Goal(order, mir.classes, relation_of, self._mir_bounds(order.owner, mir), ())

    def _mir_bounds(self, owner: str, mir: Mir) -> PairBounds:
        users = self.users[owner, mir.id]
        return LoosestBounds([self.by_id[user] for user in users]).of(mir)

    def _trees(self) -> list[tuple[str, RelationId, _Node]]:
        """(owner, arriving relation, root) of every probe tree, in a stable order.

        Labels of one relation (``S``, ``S#1``) have trees of their own over the same arrival
        edge; a tree's start label is its root's only label. So have the substreams of a start.
        """
        roots: dict[tuple[str, Label, int], tuple[RelationId, _Node]] = {}
        taken: set[Edge] = set()
        ordered = sorted(
            self.plan.orders, key=lambda o: (o.owner, o.start, o.substream, o.maintains, o.goal)
        )
        for order in ordered:
            goal = self._goal(order)
            relation = goal.relation_of[order.start]
            root = roots.setdefault(
                (order.owner, order.start, order.substream),
                (relation, _Node(arrival_edge(relation), frozenset({order.start}))),
            )[1]
            self._insert(root, goal, taken)
        self._merge(roots)
        found = sorted(roots.items(), key=_first)
        return [(owner, rel, node) for (owner, _, _), (rel, node) in found]

    def _merge(self, roots: Mapping[tuple[str, Label, int], tuple[RelationId, _Node]]) -> None:
        """Leave to the first of several substreams what they all do alike: the tuples are sent
        together then. It says of each probe that begins a tree whose it is.
        """
        counts = substream_counts(self.plan.substreams)
        if not counts:
            return
        alike: dict[tuple[str, Label, _NodeKey, str], list[tuple[int, _Node, _NodeKey]]] = (
            defaultdict(list)
        )
        for (owner, start, substream), (_, root) in sorted(roots.items(), key=_first):
            if start in counts:
                # Probes that no substream splits are equal for all substreams.
                root.ends = root.ends if substream == 0 else []
                for key, child in root.children.items():
                    shape = owner, start, key, repr(child.shape)
                    alike[shape].append((substream, root, key))
        for (_, start, *_), members in alike.items():
            whose = tuple(sorted(substream for substream, _, _ in members))
            (_, root, key), *others = members
            if len(whose) < counts[start]:
                root.children[key].substreams = whose
            for _, other, same in others:
                del other.children[same]

    def _insert(self, root: _Node, goal: _Goal, taken: set[Edge]) -> None:
        node = root
        node.goals.append(goal)
        owner = f"{goal.order.owner}:" if goal.order.owner else ""
        path = owner + goal.order.start
        if goal.order.substream:
            path += f"%{goal.order.substream}"
        for step in goal.order.steps:
            labels = node.labels | frozenset(step.members)
            joined = self._joined(goal, labels)
            key = (step.target, step.members, joined)
            path += ">" + "*".join(step.members)
            child = node.children.get(key)
            if child is None:
                edge = Edge(path)
                if edge in taken:  # the same labels under other predicates or through an MIR
                    edge = Edge(f"{path}@{_digest((step.target, joined))}")
                taken.add(edge)
                child = _Node(edge, labels, step=step)
                node.children[key] = child
            node, path = child, child.edge
            node.goals.append(goal)
        node.ends.append(goal)

    def _joined(self, goal: _Goal, labels: frozenset[Label]) -> MirId:
        """The canonical sub-join of the goal over ``labels``: a goal's orders meet it again."""
        if goal.order.maintains:
            return canonical(goal.classes, goal.relation_of, labels).id
        return self.subs.of(self.by_id[QueryId(goal.order.goal)], labels).id

    def _levels(self, trees: list[tuple[str, RelationId, _Node]]) -> dict[Edge, int]:
        """Edge -> level, and (as a side effect) when each MIR store is ready."""
        levels: dict[Edge, int] = {}
        sizes = sorted({len(m.members) for m in self.mirs.values() if not m.is_base})
        for owner, relation in {(o, r) for o, r, _ in trees}:
            self.ready[owner, MirId(relation)] = 0
        for size in [*sizes, None]:
            for owner, _, root in trees:
                self._level(owner, root, 0, size, levels)
        return levels

    def _level(
        self, owner: str, node: _Node, level: int, size: int | None, levels: dict[Edge, int]
    ) -> None:
        for end in node.ends:
            if end.order.maintains and len(node.labels) == size:
                mir = MirId(end.order.goal)
                self.ready[owner, mir] = max(self.ready.get((owner, mir), 0), level + 1)
        for child in node.children.values():
            assert child.step is not None  # only roots have none
            target = self.mirs[child.step.target]
            below = 0 if target.is_base else self.ready.get((owner, target.id), 0)
            levels[child.edge] = max(level, below)
            self._level(owner, child, levels[child.edge], size, levels)

    # --- rules ---------------------------------------------------------------------------------

    def _emit(
        self,
        owner: str,
        root: _Node,
        levels: dict[Edge, int],
        probes: list[ProbeRule],
        outputs: list[OutputRule],
        stores: list[StoreRule],
    ) -> None:
        (start,) = root.labels

        def walk(node: _Node, checked: PairBounds, applied: frozenset[Expr]) -> None:
            for goal in node.ends:
                if goal.order.maintains:
                    for copy in self.copies[owner, MirId(goal.order.goal)]:
                        stores.append(StoreRule(node.edge, self.stores[owner, copy].id))
                else:
                    outputs.append(
                        OutputRule(
                            node.edge,
                            QueryId(goal.order.goal),
                            _time_bounds(
                                {p: d for p, d in goal.bounds.items() if checked.get(p) != d}
                            ),
                            tuple(e for e in goal.residuals if e not in applied),
                        )
                    )
            for child in node.children.values():
                rule = self._probe(owner, start, node, child, levels, applied)
                probes.append(rule)
                fresh = {(b.earlier, b.later): b.micros for b in rule.bounds}
                walk(child, {**checked, **fresh}, applied | frozenset(rule.residuals))

        walk(root, {}, frozenset())

    def _probe(
        self,
        owner: str,
        start: Label,
        node: _Node,
        child: _Node,
        levels: dict[Edge, int],
        applied: frozenset[Expr],
    ) -> ProbeRule:
        step = child.step
        assert step is not None  # only roots have none
        goal = child.goals[0]
        bounds = goal.bounds
        for other in child.goals[1:]:
            bounds = _loosest(bounds, other.bounds)
        members = frozenset(step.members)
        fresh = {p: d for p, d in bounds.items() if set(p) <= child.labels and set(p) & members}
        shared = [e for e in goal.residuals if all(e in g.residuals for g in child.goals)]
        residuals = tuple(
            e for e in shared if e not in applied and {c.alias for c in columns(e)} <= child.labels
        )
        target = self.mirs[step.target]
        key = self._key(goal, node.labels, target, step.members)
        store = self._preferred(owner, step)
        self._index(store.id, key)
        return ProbeRule(
            edge=node.edge,
            out=child.edge,
            start=start,
            mir=target.id,
            store=store.id,
            members=step.members,
            key=key,
            inclusive=self._inclusive(goal, start, step.members),
            bounds=_time_bounds(fresh),
            residuals=residuals,
            level=levels[child.edge],
            fill=() if target.is_base else self._fill(owner, goal, start, node, step, fresh),
            substreams=child.substreams,
        )

    def _key(
        self, goal: _Goal, head: frozenset[Label], target: Mir, members: tuple[Label, ...]
    ) -> tuple[KeyPart, ...]:
        """The probe's equalities, with build sides in the store's namespace."""
        rename = dict(zip(members, target.members, strict=True))
        return tuple(
            KeyPart(probe, AttrRef(rename[build.label], build.attribute), kind)
            for probe, build, kind in join_keys(goal.classes, head, frozenset(members))
        )

    def _inclusive(
        self, goal: _Goal, start: Label, members: tuple[Label, ...]
    ) -> tuple[Label, ...]:
        stream = self.relations[goal.relation_of[start]].stream
        return tuple(
            m for m in members if self.relations[goal.relation_of[m]].stream == stream and m < start
        )

    def _fill(
        self,
        owner: str,
        goal: _Goal,
        start: Label,
        node: _Node,
        step: Step,
        bounds: PairBounds,
    ) -> tuple[FillStep, ...]:
        """Base probes that together replace a probe of the MIR (coverage rule)."""
        done, left, steps = node.labels, list(step.members), []
        while left:
            label = next(x for x in left if join_keys(goal.classes, done, frozenset({x})))
            relation = goal.relation_of[label]
            base = canonical(goal.classes, goal.relation_of, frozenset({label}))
            key = self._key(goal, done, base, (label,))
            store = self._best_base(owner, relation, key)
            self._index(store.id, key)
            grown = done | {label}
            fresh = {p: d for p, d in bounds.items() if set(p) <= grown and label in p}
            steps.append(
                FillStep(
                    relation,
                    store.id,
                    label,
                    key,
                    self._inclusive(goal, start, (label,)),
                    _time_bounds(fresh),
                )
            )
            done = grown
            left.remove(label)
        return tuple(steps)

    def _backfills(self, backfills: Sequence[Backfill]) -> list[BackfillRule]:
        return [
            BackfillRule(self.stores[b.owner, copy].id, b.order[0], self._unordered(b))
            for b in backfills
            for copy in self.copies[b.owner, b.mir]
        ]

    def _unordered(self, backfill: Backfill) -> tuple[FillStep, ...]:
        """Base probes from the first member to all others. They need no index, as they read the
        stored rows once.
        """
        mir = self.mirs[backfill.mir]
        relation_of = dict(zip(mir.members, mir.relations, strict=True))
        bounds = self._mir_bounds(backfill.owner, mir)
        done, steps = frozenset(backfill.order[:1]), []
        for label in backfill.order[1:]:
            relation = relation_of[label]
            keys = join_keys(mir.classes, done, frozenset({label}))
            key = tuple(
                KeyPart(probe, AttrRef(Label(relation), build.attribute), kind)
                for probe, build, kind in keys
            )
            done |= {label}
            fresh = {p: d for p, d in bounds.items() if label in p and set(p) <= done}
            store = self._best_base(backfill.owner, relation, key)
            steps.append(FillStep(relation, store.id, label, key, (), _time_bounds(fresh)))
        return tuple(steps)

    # --- stores --------------------------------------------------------------------------------

    def _preferred(self, owner: str, step: Step) -> StoreSpec:
        copies = self.copies[owner, step.target]
        match = [c for c in copies if c.partition == step.partition] or copies
        return self.stores[owner, match[0]]

    def _best_base(self, owner: str, relation: RelationId, key: tuple[KeyPart, ...]) -> StoreSpec:
        stores = [self.stores[owner, c] for c in self.copies[owner, MirId(relation)]]
        known = {(k.build, k.type) for k in key}
        return next((s for s in stores if s.partition in known), stores[0])

    def _index(self, store: StoreId, key: tuple[KeyPart, ...]) -> None:
        self.indexes[store].add(tuple((k.build, k.type) for k in key))

    def _store(self, copy: StoreCopy) -> StoreSpec:
        """The store of an intermediate result."""
        mir, partition = self.mirs[copy.mir], None
        if copy.partition is not None:
            partition = (copy.partition, self.given.types[copy.partition])
        bounds = _time_bounds(self._mir_bounds(copy.owner, mir))
        kept = self._kept_columns(copy, mir)
        return _store_spec(copy.owner, mir, partition, self.given.parallelism, kept, bounds)

    def _kept_columns(self, copy: StoreCopy, mir: Mir) -> tuple[tuple[Label, str], ...]:
        """Columns of an MIR store: projected, filtered or joined by its users, its own partition
        attribute, and the columns that larger MIRs made from it keep of its members.
        """
        members = frozenset(mir.members)
        stream_of = {r: self.relations[r].stream for r in mir.relations}
        refs = [copy.partition] if copy.partition is not None else []
        kept = behind(refs, mir, stream_of, self.derived)
        for user in self.users[copy.owner, mir.id]:
            kept |= read_by_query(self.by_id[user], mir, stream_of, self.derived)
        for label, relation in zip(mir.members, mir.relations, strict=True):
            stream = self.latest.get(self.relations[relation].stream)
            kept |= {(label, c) for c in (stream.latest if stream is not None else ())}
        for larger in self.made_from[copy.owner, mir.id]:
            for other in self.copies[copy.owner, larger]:
                columns_of = self._kept_columns(other, self.mirs[larger])
                kept |= {(label, c) for label, c in columns_of if label in members}
        return tuple(sorted(kept))


class _Reviser(_Compiler):
    """The compilation of other routes over the stores of a ruleset."""

    def __init__(self, part: Part, running: Ruleset, subs: SubJoins | None) -> None:
        super().__init__(part, _Given({s.name: s for s in running.streams}), subs)
        self.running = running
        there: dict[_Place, StoreSpec] = {}
        for store in running.stores:
            partition = None if store.partition is None else store.partition[0]
            there[store.owner, store.mir, partition] = store
        for copy in self.plan.copies:
            found = there.get(_place(copy))
            if found is None:
                raise RulesetError(
                    "bad-ruleset",
                    f"the plan keeps {copy.mir} where the running rules do not",
                    remedy="plan a revision over the stores that are there",
                )
            self.stores[copy.owner, copy] = found

    def _mir_bounds(self, owner: str, mir: Mir) -> PairBounds:
        store = self.stores[owner, self.copies[owner, mir.id][0]]
        return {(b.earlier, b.later): b.micros for b in store.bounds}

    def revise(self, revision: int) -> Ruleset:
        """The running rules with the plan's routes over their stores."""
        running = self.running
        specs = {q.id: q for q in running.queries}
        for query in self.queries:
            spec = specs.pop(query.id, None)
            if spec is None:
                raise _changed(query.id)
            given = replace(
                _NO_TERMS.spec(query), sink=spec.sink, freshness=spec.freshness, past=spec.past
            )
            if given != spec:
                raise _changed(query.id)
        for name in specs:
            raise _changed(name)
        probes, outputs, fed = self._routes()
        arriving = {arrival_edge(r.id) for r in running.relations}
        kept = {rule.store for rule in fed}
        stores = [s for s in running.stores if len(s.members) == 1 or s.id in kept]
        fed += [r for r in running.store_rules if r.edge in arriving]
        there = {s.id for s in stores}
        ruleset = replace(
            running,
            stores=tuple(_with_indexes(s, {*s.indexes, *self.indexes[s.id]}) for s in stores),
            store_rules=_sorted_store_rules(fed),
            probe_rules=_sorted_probes(probes),
            output_rules=_sorted_outputs(outputs),
            backfill_rules=tuple(b for b in running.backfill_rules if b.store in there),
            substreams=used_substreams(self.plan.substreams, probes),
            revision=revision,
        )
        ruleset.validate()
        check_kept(ruleset)
        return ruleset


def _sketches(queries: Iterable[JoinQuery]) -> set[_Sketch]:
    """Key combinations whose distinct counts the cost model can use: per pair of labels."""
    wanted: set[_Sketch] = set()
    for query in queries:
        relation_of = {m.label: m.relation for m in query.members}
        for one in query.labels:
            for key_class in query.classes:
                for ref in key_class.restrict(frozenset({one})):
                    wanted.add((relation_of[one], ((ref.attribute, key_class.type),)))
            for other in query.labels:
                if one == other:
                    continue
                pairs = join_keys(query.classes, frozenset({other}), frozenset({one}))
                if len(pairs) > 1:
                    parts = tuple(sorted((b.attribute, t) for _, b, t in pairs))
                    wanted.add((relation_of[one], parts))
    return wanted


def _changed(query: QueryId) -> RulesetError:
    return RulesetError(
        "query-changed",
        f"query {query} is not what the running rules have under its name",
        remedy="wait for the next epoch",
    )


def _sorted_store_rules(rules: Iterable[StoreRule]) -> tuple[StoreRule, ...]:
    return tuple(sorted(set(rules), key=lambda r: (r.edge, r.store)))


def _sorted_probes(rules: Iterable[ProbeRule]) -> tuple[ProbeRule, ...]:
    return tuple(sorted(rules, key=lambda p: (p.level, p.out)))


def _sorted_outputs(rules: Iterable[OutputRule]) -> tuple[OutputRule, ...]:
    return tuple(sorted(rules, key=lambda o: (o.query, o.edge)))


def _users(plan: Plan, mirs: Mapping[MirId, Mir]) -> dict[tuple[str, MirId], set[QueryId]]:
    """(owner, MIR) -> the queries that need it, directly or through a larger MIR."""
    users: dict[tuple[str, MirId], set[QueryId]] = defaultdict(set)
    for order in plan.orders:
        if not order.maintains:
            for step in order.steps:
                users[order.owner, step.target].add(QueryId(order.goal))
    by_size = sorted(
        (o for o in plan.orders if o.maintains),
        key=lambda o: (-len(mirs[MirId(o.goal)].members), o.goal),
    )
    for order in by_size:
        for step in order.steps:
            users[order.owner, step.target] |= users[order.owner, MirId(order.goal)]
    return users


def _copies(plan: Plan) -> dict[tuple[str, MirId], list[StoreCopy]]:
    copies: dict[tuple[str, MirId], list[StoreCopy]] = defaultdict(list)
    for copy in sorted(plan.copies, key=lambda c: _copy_rank(_place(c))):
        copies[copy.owner, copy.mir].append(copy)
    return copies


def _copy_rank(place: _Place) -> tuple[str, str, str]:
    owner, mir, attribute = place
    return owner, mir, str(attribute or "")


def _loosest(one: PairBounds, other: PairBounds) -> PairBounds:
    """The elementwise maximum; a pair missing on either side is unbounded."""
    return {p: max(one[p], other[p]) for p in one.keys() & other.keys()}


def _time_bounds(pairs: PairBounds) -> tuple[TimeBound, ...]:
    return tuple(TimeBound(i, j, d) for (i, j), d in sorted(pairs.items()))


def _with_indexes(store: StoreSpec, indexes: set[IndexSpec]) -> StoreSpec:
    return replace(store, indexes=tuple(sorted(indexes)))


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:6]


def _first(item: tuple[_K, object]) -> _K:
    return item[0]


def _left_of(query: JoinQuery) -> QueryId | None:
    """The query whose left rows these are."""
    name = registered(query.id)
    return None if name == query.id else QueryId(name)
