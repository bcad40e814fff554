"""Random valid plans, including unusual ones: any orders, MIRs and copies, shared or private.

Also random layouts, in which each store of a ruleset has a different number of partitions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from random import Random

import pyarrow as pa
from msgspec import structs

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans.ahead import askable
from anabranch_contract.plans.plan import Objective, Optimizer, Plan, ProbeOrder, Step, StoreCopy
from anabranch_contract.plans.ruleset import (
    HotValue,
    Ruleset,
    StoreId,
    StoreRule,
    StoreSpec,
    Substreams,
    substream_counts,
)
from anabranch_contract.queries.joins import AttrRef, JoinQuery, KeyClass, Label, RelationId
from anabranch_contract.queries.mirs import (
    Mir,
    MirId,
    base_mir,
    canonical,
    join_keys,
    restrict_classes,
    sub_join,
)
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.aside import SetAside
from anabranch_planner.cost.timing import Users
from anabranch_planner.cost.validate import validate_plan
from anabranch_planner.plans.compile import compile_revision
from anabranch_planner.replan.running import plan_of
from anabranch_planner.replan.there import StoresThere, owners
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.index.keys import key_vector


def random_plan(
    queries: Sequence[JoinQuery], rng: Random, *, mirs: float = 0.5, apart: bool = False
) -> Plan:
    """Return a valid plan for ``queries``, chosen without regard to cost.

    Args:
        apart: whether some starts have substreams.
        mirs: probability that a step probes an intermediate result, if it can.
    """
    return _Builder(queries, rng, mirs, apart).build()


def random_substreams(queries: Sequence[JoinQuery], rng: Random) -> tuple[Substreams, ...]:
    """Draw substreams of some starts, by any of their key attributes; often with the same values
    for all starts with a key, so that intermediate results may exclude these values.
    """
    chance, found = rng.choice((0.0, 0.0, 0.3, 1.0)), {}
    for query in rng.sample(queries, len(queries)):
        for key_class in rng.sample(query.classes, len(query.classes)):
            common = _groups(key_class.type, rng) if rng.random() < 0.6 else None
            for ref in key_class.members:
                if ref.label not in found and rng.random() < chance:
                    groups = _groups(key_class.type, rng) if common is None else common
                    others = rng.randint(1 if groups else 2, 3)
                    numbers = range(others, others + len(groups))
                    often = 0.4 if common is None else 0.9
                    aside = tuple(n for n in numbers if rng.random() < often)
                    one = Substreams(
                        ref.label, ref.attribute, key_class.type, groups, others, aside=aside
                    )
                    found[ref.label] = one
    return tuple(found[label] for label in sorted(found))


def _groups(kind: str, rng: Random) -> tuple[tuple[int, ...], ...]:
    """Draw sets of hashes of values that are frequent in scenarios."""
    values: Sequence[object] = range(12)
    if kind == "string":
        values = ("", "x", "y", "z")
    elif kind == "double":
        values = (0.0, 1.0, 1.5, 2.0, 3.0, math.nan)
    elif kind.startswith("decimal"):
        values = [Decimal(number) for number in range(6)]
    elif kind != "bigint":
        return ()
    some = rng.sample(values, rng.randint(0, len(values) // 2))
    hashes = key_vector([pa.array(some, arrow_type(parse_type(kind)))], [kind]).hashes.tolist()
    cut = rng.randint(0, len(hashes))
    return tuple(tuple(sorted(some)) for some in (hashes[:cut], hashes[cut:]) if some)


def random_hot(rules: Ruleset, rng: Random) -> Ruleset:
    """Return ``rules`` with random hot values for each store (for some stores, none)."""
    chance = rng.choice((0.0, 0.5, 1.0, 1.0))

    def hot(store: StoreSpec) -> tuple[HotValue, ...]:
        if store.partition is None or rng.random() >= chance:
            return ()
        hashes = _hashes(store.partition[1], rng)
        return tuple(HotValue(value, rng.randint(2, 4)) for value in sorted(hashes))

    return replace(rules, stores=tuple(replace(s, hot=hot(s)) for s in rules.stores))


def _hashes(kind: str, rng: Random) -> list[int]:
    """Draw hashes of some of the values that keys have in scenarios."""
    values: pa.Array = pa.array(range(-2, 10), pa.int64())
    if kind == "string":
        values = pa.array(["", "a", "A", "a ", "ä", "key"])
    elif kind == "boolean":
        values = pa.array([False, True])
    elif kind != "bigint" and not kind.startswith("decimal"):
        return []
    hashes = sorted(set(key_vector([values], [kind]).hashes.tolist()))
    return rng.sample(hashes, rng.randint(0, len(hashes)))


def random_layouts(rules: Ruleset, rng: Random, most: int = 8) -> Ruleset:
    """``rules`` with a random number of partitions for each store, also in the store's id."""
    renamed: dict[StoreId, StoreId] = {}
    stores = []
    for store in rules.stores:
        partitions = rng.randint(1, most)
        old, new = f"/{store.partitions}", f"/{partitions}"
        head, slash, tail = store.id.rpartition(old)
        assert slash, store.id
        renamed[store.id] = StoreId(head + new + tail)
        stores.append(replace(store, id=renamed[store.id], partitions=partitions))
    made = replace(
        rules,
        stores=tuple(sorted(stores, key=lambda s: s.id)),
        store_rules=tuple(StoreRule(r.edge, renamed[r.store]) for r in rules.store_rules),
        probe_rules=tuple(
            replace(
                p,
                store=renamed[p.store],
                fill=tuple(replace(f, store=renamed[f.store]) for f in p.fill),
            )
            for p in rules.probe_rules
        ),
        backfill_rules=tuple(
            replace(
                b,
                store=renamed[b.store],
                steps=tuple(replace(f, store=renamed[f.store]) for f in b.steps),
            )
            for b in rules.backfill_rules
        ),
        latest_rules=tuple(structs.replace(r, store=renamed[r.store]) for r in rules.latest_rules),
    )
    made.validate()
    return made


def random_checks(rules: Ruleset, rng: Random) -> Ruleset:
    """Return ``rules`` with random look-ahead filters, at places where they drop no result."""
    chance, found = rng.choice((0.0, 0.5, 0.5, 1.0)), askable(rules)
    probes = []
    for rule in rules.probe_rules:
        asked = [one for one in found.get(rule.out, ()) if rng.random() < chance]
        probes.append(replace(rule, ahead=tuple(rng.sample(asked, len(asked)))))
    made = replace(rules, probe_rules=tuple(probes))
    made.validate()
    return made


def _known(
    classes: Sequence[KeyClass], head: frozenset[Label], filled: tuple[Label, ...], mir: Mir
) -> set[AttrRef]:
    """Return the attributes of ``mir``'s store whose values a partial result over ``head`` has."""
    rename = dict(zip(filled, mir.members, strict=True))
    return {
        AttrRef(rename[member.label], member.attribute)
        for key_class in classes
        if key_class.restrict(head)
        for member in key_class.restrict(frozenset(filled))
    }


class _Builder:
    def __init__(self, queries: Sequence[JoinQuery], rng: Random, mirs: float, apart: bool) -> None:
        self.queries = queries
        self.rng = rng
        self.share = mirs
        self.mirs: dict[MirId, Mir] = {}
        self.orders: dict[tuple[str, str, Label, int], ProbeOrder] = {}
        self.substreams = random_substreams(queries, rng) if apart else ()
        self.aside = SetAside(self.substreams, Users(queries))
        #: Start -> for each of its substreams, the substream whose orders it uses.
        self.twins = {
            one.start: [n if n in one.aside or rng.random() < 0.7 else 0 for n in range(one.count)]
            for one in self.substreams
        }
        self.copies: dict[tuple[str, MirId], list[StoreCopy]] = {}
        self.access: dict[tuple[str, Label, tuple[object, ...]], StoreCopy] = {}
        #: (owner, start, path) -> the stores that orders have probed there, so that prefixes are
        #: shared.
        self.probed: dict[tuple[str, Label, tuple[object, ...]], list[Mir]] = {}

    def build(self) -> Plan:
        for query in self.queries:
            owner = query.id if self.rng.random() < 0.15 else ""
            relation_of = {m.label: m.relation for m in query.members}
            for relation in query.relations:
                self._maintain(owner, base_mir(relation.id))
            for label in query.labels:
                self._order(owner, query.id, query.classes, relation_of, label, maintains=False)
        return Plan(
            optimizer=Optimizer.CLASH,
            objective=Objective.TUPLES,
            queries=tuple(sorted(q.id for q in self.queries)),
            orders=tuple(self.orders[k] for k in sorted(self.orders)),
            mirs=tuple(self.mirs[k] for k in sorted(self.mirs)),
            copies=tuple(c for k in sorted(self.copies) for c in self.copies[k]),
            cost=0.0,
            bound=0.0,
            gap=0.0,
            method="random",
            substreams=self.substreams,
        )

    def _order(
        self,
        owner: str,
        goal: str,
        classes: tuple[KeyClass, ...],
        relation_of: Mapping[Label, RelationId],
        start: Label,
        *,
        maintains: bool,
    ) -> None:
        """Choose the orders of one goal and start, one per substream."""
        for number, twin in enumerate(self.twins.get(start, [0])):
            if maintains and not self.aside.keeps_up(self.mirs[MirId(goal)], start, number):
                continue
            if twin != number:
                order = replace(self.orders[owner, goal, start, twin], substream=number)
            else:
                steps = self._steps(owner, classes, relation_of, start, number)
                order = ProbeOrder(goal, maintains, start, steps, owner, number)
            self.orders[owner, goal, start, number] = order

    def _steps(
        self,
        owner: str,
        classes: tuple[KeyClass, ...],
        relation_of: Mapping[Label, RelationId],
        start: Label,
        substream: int,
    ) -> tuple[Step, ...]:
        head, left, steps = frozenset({start}), set(relation_of) - {start}, []
        path: tuple[object, ...] = (substream,)
        while left:
            known_here = self.probed.setdefault((owner, start, path), [])
            members = self._again(classes, relation_of, head, left, known_here)
            if members is None:
                members = self._next(classes, head, left)
            target = canonical(classes, relation_of, members)
            if not self.aside.may_probe(classes, target, start, substream):
                one = [x for x in sorted(members) if join_keys(classes, head, frozenset({x}))]
                members = frozenset({self.rng.choice(one)})
                target = canonical(classes, relation_of, members)
            known_here.append(target)
            self._maintain(owner, target)
            filled = tuple(sorted(members))
            joined = canonical(classes, relation_of, head | members).id
            path = (*path, (target.id, filled, joined))
            # Orders with a common prefix share its steps, so they probe the same copy.
            copies = self.copies[owner, target.id]
            copy = self.access.setdefault((owner, start, path), self.rng.choice(copies))
            known = _known(classes, head, filled, target)
            broadcast = copy.partition is not None and copy.partition not in known
            steps.append(Step(target.id, filled, copy.partition, broadcast, 0.0, 0.0))
            head |= members
            left -= members
        return tuple(steps)

    def _again(
        self,
        classes: tuple[KeyClass, ...],
        relation_of: Mapping[Label, RelationId],
        head: frozenset[Label],
        left: set[Label],
        probed: Sequence[Mir],
    ) -> frozenset[Label] | None:
        """Often, if possible, probe the same store next as another order with this prefix."""
        if self.rng.random() < 0.4:
            return None
        for mir in probed:
            same = [{x} for x in sorted(left) if base_mir(relation_of[x]).id == mir.id]
            for filled in map(frozenset, [*same, set(mir.members)]):
                if (
                    filled <= left
                    and join_keys(classes, head, filled)
                    and canonical(classes, relation_of, filled).id == mir.id
                ):
                    return filled
        return None

    def _next(
        self, classes: tuple[KeyClass, ...], head: frozenset[Label], left: set[Label]
    ) -> frozenset[Label]:
        one = [x for x in sorted(left) if join_keys(classes, head, frozenset({x}))]
        members = frozenset({self.rng.choice(one)})
        while self.rng.random() < self.share:
            more = [
                x
                for x in sorted(left - members)
                if any(
                    {m.label for m in c.members} & members
                    for c in restrict_classes(classes, members | {x})
                    if x in {m.label for m in c.members}
                )
            ]
            if not more:
                break
            members |= {self.rng.choice(more)}
        return members

    def _maintain(self, owner: str, mir: Mir) -> None:
        """Store ``mir``: choose its copies, and an order from each of its members."""
        if (owner, mir.id) in self.copies:
            return
        self.mirs[mir.id] = mir
        attributes: list[AttrRef | None] = [None, *self._attributes(mir)]
        count = min(len(attributes), self.rng.choice((1, 1, 1, 1, 2, 3)))
        self.copies[owner, mir.id] = [
            StoreCopy(mir.id, partition, owner) for partition in self.rng.sample(attributes, count)
        ]
        if mir.is_base:
            return
        relation_of = dict(zip(mir.members, mir.relations, strict=True))
        for relation in mir.relations:
            self._maintain(owner, base_mir(relation))
        for label in mir.members:
            self._order(owner, mir.id, mir.classes, relation_of, label, maintains=True)

    def _attributes(self, mir: Mir) -> list[AttrRef]:
        """Return the attributes of the store by which some query joins, in the store's naming."""
        found = set()
        for query in self.queries:
            for key_class in query.classes:
                for member in key_class.members:
                    relation = next(m.relation for m in query.members if m.label == member.label)
                    label = Label(relation) if mir.is_base else member.label
                    if label in mir.members:
                        found.add(AttrRef(label, member.attribute))
        return sorted(found)


def random_revision(
    running: Ruleset, queries: Sequence[JoinQuery], rng: Random, revision: int
) -> Ruleset:
    """Return a valid revision of ``running``, chosen without regard to cost: any orders over its
    stores, fewer intermediate results, other substreams.

    Args:
        queries: the queries of ``running``.
    """
    for _ in range(4):
        try:
            return _Reviser(running, queries, rng).draw(revision)
        except RulesetError:
            # Orders of this substream would probe for values that the store excludes.
            continue
    return replace(running, revision=revision)


class _Reviser:
    def __init__(self, running: Ruleset, queries: Sequence[JoinQuery], rng: Random) -> None:
        self.running, self.queries, self.rng = running, queries, rng
        self.plan = plan_of(running, queries)
        if rng.random() < 0.5:
            self.plan = replace(self.plan, substreams=random_substreams(queries, rng))
        self.counts = substream_counts(self.plan.substreams)
        self.owners = owners(running)
        divided = replace(running, substreams=self.plan.substreams)
        self.there = {o: StoresThere(divided, o) for o in sorted(set(self.owners.values()))}
        self.mirs = {m.id: m for m in self.plan.mirs}
        closing = rng.choice((0.0, 0.1, 0.5))
        #: Owner -> the intermediate results that it may probe.
        self.kept = {
            (c.owner, c.mir): self.mirs[c.mir]
            for c in self.plan.copies
            if self.mirs[c.mir].is_base or rng.random() >= closing
        }
        self.probed: set[tuple[str, MirId]] = set()
        self.access: dict[tuple[str, Label, tuple[object, ...]], AttrRef | None] = {}

    def draw(self, revision: int) -> Ruleset:
        orders = []
        for query in self.queries:
            owner = self.owners[query.id]
            relation_of = {m.label: m.relation for m in query.members}
            usable = [m for (o, _), m in self.kept.items() if o == owner and self._serves(query, m)]
            for label in query.labels:
                for number in range(self.counts.get(label, 1)):
                    steps = self._steps(owner, query.classes, relation_of, label, usable, number)
                    orders.append(ProbeOrder(str(query.id), False, label, steps, owner, number))
        pending, done = sorted(self.probed), set[tuple[str, MirId]]()
        while pending:
            owner, name = key = pending.pop(0)
            larger = self.mirs[name]
            if key in done or larger.is_base:
                continue
            done.add(key)
            relation_of = dict(zip(larger.members, larger.relations, strict=True))
            inside = frozenset(larger.members)
            usable = [
                m
                for (o, _), m in self.kept.items()
                if o == owner
                and (
                    m.is_base
                    or (
                        set(m.members) < inside
                        and canonical(larger.classes, relation_of, frozenset(m.members)).id == m.id
                        and self.there[owner].feeds(larger, m)
                    )
                )
            ]
            for label in larger.members:
                for number in range(self.counts.get(label, 1)):
                    steps = self._steps(owner, larger.classes, relation_of, label, usable, number)
                    orders.append(ProbeOrder(str(name), True, label, steps, owner, number))
            pending = sorted({*pending, *self.probed} - done)
        used = {key for key in self.kept if self.kept[key].is_base or key in done}
        plan = replace(
            self.plan,
            orders=tuple(sorted(orders, key=lambda o: o.rank)),
            copies=tuple(c for c in self.plan.copies if (c.owner, c.mir) in used),
            mirs=tuple(m for m in self.plan.mirs if any(name == m.id for _, name in used)),
        )
        validate_plan(plan, self.queries)
        return compile_revision(plan, self.queries, self.running, revision)

    def _serves(self, query: JoinQuery, mir: Mir) -> bool:
        if mir.is_base:
            return True
        labels = frozenset(mir.members)
        return (
            labels < frozenset(query.labels)
            and sub_join(query, labels).id == mir.id
            and self.there[self.owners[query.id]].serves(query, mir)
        )

    def _steps(
        self,
        owner: str,
        classes: tuple[KeyClass, ...],
        relation_of: Mapping[Label, RelationId],
        start: Label,
        usable: Sequence[Mir],
        substream: int,
    ) -> tuple[Step, ...]:
        head, left, steps = frozenset({start}), set(relation_of) - {start}, []
        path: tuple[object, ...] = (substream,)
        while left:
            options = []
            for mir in usable:
                if not self.there[owner].holds(classes, mir, (start, substream)):
                    continue
                if mir.is_base:
                    fills = [{x} for x in sorted(left) if relation_of[x] == mir.relations[0]]
                else:
                    fills = [set(mir.members)]
                options += [
                    (mir, frozenset(filled))
                    for filled in fills
                    if filled <= left and join_keys(classes, head, frozenset(filled))
                ]
            mir, members = self.rng.choice(options)
            filled = tuple(sorted(members))
            joined = canonical(classes, relation_of, head | members).id
            path = (*path, (mir.id, filled, joined))
            copies = [c.partition for c in self.plan.copies if (c.owner, c.mir) == (owner, mir.id)]
            partition = self.access.setdefault((owner, start, path), self.rng.choice(copies))
            known = _known(classes, head, filled, mir)
            broadcast = partition is not None and partition not in known
            steps.append(Step(mir.id, filled, partition, broadcast, 0.0, 0.0))
            self.probed.add((owner, mir.id))
            head |= members
            left -= members
        return tuple(steps)
