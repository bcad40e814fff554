"""States, edges and goals of one query in the planning problem; alias sets are bit masks.

Caps are explicit. A query with more than ``max_sets`` connected alias sets gets a single order per
start (always to the cheapest next relation) instead of the full graph. Such queries are listed in
:attr:`PlanProblem.reduced` and reported in the plan.
"""

from __future__ import annotations

from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from anabranch_planner.search.building.states import GrowingGraph
from anabranch_planner.search.problem import EdgeId, Goal, Origin, Sub


class QueryScope:
    """States and edges of one query in the planning graph; bit ``i`` of a mask: the i-th alias."""

    def __init__(self, states: GrowingGraph, query: JoinQuery, *, mir: bool, max_sets: int) -> None:
        self.states = states
        self.query = query
        self.labels = tuple(sorted(query.labels))
        relation = {m.label: m.relation for m in query.members}
        self.relations = [relation[x] for x in self.labels]
        bit = {label: i for i, label in enumerate(self.labels)}
        #: Key classes of the query, each as (mask of aliases, type, members as (bit, attribute)).
        self.classes: list[tuple[int, str, list[tuple[int, AttrRef]]]] = []
        self.near = [0] * len(self.labels)
        for key_class in query.classes:
            members = [(1 << bit[m.label], m) for m in key_class.members]
            mask = 0
            for one, _ in members:
                mask |= one
            self.classes.append((mask, key_class.type, members))
            for i in range(len(self.labels)):
                if mask >> i & 1:
                    self.near[i] |= mask & ~(1 << i)
        self.whole = (1 << len(self.labels)) - 1
        sets = self._connected(max_sets)
        self.reduced = sets is None
        singles = [1 << i for i in range(len(self.labels))]
        self.sets = singles if sets is None else sets
        self.subs: dict[int, Sub] = {}
        #: Stores that may be probed: mask of aliases -> the store's sub-join.
        self.targets: dict[int, Sub] = {}
        #: Join attributes of the query, each with the store that it may partition.
        self.attributes: set[tuple[Sub, AttrRef]] = set()
        if self.whole & (self.whole - 1):
            for mask in self.sets:
                single = not mask & (mask - 1)
                if single or (mir and mask != self.whole):
                    self._add_target(mask, single=single)
        #: Per alias: its origins -> pairs (mask of aliases after the edge, edge), ascending.
        self.edges: list[dict[Origin, list[tuple[int, EdgeId]]]] = [
            {(label, n): [] for n in range(states.model.substreams_of(label))}
            for label in self.labels
        ]

    def _connected(self, limit: int) -> list[int] | None:
        """Masks of connected alias sets, smaller ones first; None if there are more than ``limit``.

        A connected set of size k + 1 always contains a connected set of size k.
        """
        level = [1 << i for i in range(len(self.labels))]
        found: list[int] = []
        while level:
            found += level
            if len(found) > limit:
                return None
            grown: set[int] = set()
            for mask in level:
                around = self.around(mask) & ~mask
                while around:
                    one = around & -around
                    around ^= one
                    grown.add(mask | one)
            level = sorted(grown)
        return found

    def around(self, mask: int) -> int:
        """Mask of the aliases that join directly with an alias of ``mask``."""
        found, i = 0, 0
        while mask:
            if mask & 1:
                found |= self.near[i]
            mask >>= 1
            i += 1
        return found

    def sub(self, mask: int) -> Sub:
        """Index of the canonical sub-join over the aliases of ``mask``."""
        known = self.subs.get(mask)
        if known is None:
            labels = tuple(x for i, x in enumerate(self.labels) if mask >> i & 1)
            inside = []
            for shape, kind, members in self.classes:
                both = shape & mask
                if both & (both - 1):
                    inside.append((kind, tuple(m for one, m in members if one & mask)))
            inside.sort()
            known = self.subs[mask] = self.states.sub((labels, tuple(inside)), self.query, labels)
        return known

    def _add_target(self, mask: int, *, single: bool) -> None:
        """Add a store that may be probed: of one alias (``single``) or of a sub-join."""
        states = self.states
        if single:
            # All aliases of a relation (self-joins) share the relation's store.
            relation = self.relations[mask.bit_length() - 1]
            sub = states.sub(relation, self.query, (self.labels[mask.bit_length() - 1],))
            states.graph.bases.add(sub)
        else:
            sub = self.sub(mask)
        if states.there is not None:
            copies = states.there.partitions(states.graph.mir(sub))
            if copies:
                self.targets[mask] = sub
                named = [c for c in copies if c is not None]
                states.partitions[sub] = {c: 1 << bit for bit, c in enumerate(named)}
            return
        self.targets[mask] = sub
        found = states.partitions.setdefault(sub, {})
        if states.model.partitioned:
            for shape, _, members in self.classes:
                both = shape & mask
                if both and shape & ~mask:
                    # The same choice of attributes as in :func:`candidates.joining_attributes`.
                    inside = [m for one, m in members if one & mask]
                    for m in inside[:1] if both & (both - 1) else inside:
                        attribute = self._in_store(m, mask)
                        found.setdefault(attribute, 1 << len(found))
                        self.attributes.add((sub, attribute))

    def _in_store(self, attribute: AttrRef, mask: int) -> AttrRef:
        if mask & (mask - 1):
            return attribute
        return AttrRef(Label(self.relations[mask.bit_length() - 1]), attribute.attribute)

    def _known(self, head: int, target: int) -> int:
        """Mask of the target store's partition attributes that tuples over ``head`` have."""
        bits = self.states.partitions[self.targets[target]]
        found = 0
        for shape, _, members in self.classes:
            if shape & head and shape & target:
                for one, m in members:
                    if one & target:
                        found |= bits.get(self._in_store(m, target), 0)
        return found

    def add_edges(self) -> None:
        """Add an edge to the graph for every possible probe, smaller partial results first."""
        if self.reduced:
            return self._add_one_order()
        edge, partitioned = self.states.edge, self.states.partitioned
        subs = {mask: self.sub(mask) for mask in self.sets}
        for head in self.sets:
            around = self.around(head)
            before = subs[head]
            starts = [
                (origin, edges)
                for i, found in enumerate(self.edges)
                if head >> i & 1
                for origin, edges in found.items()
            ]
            for target, store in self.targets.items():
                if target & head or not target & around:
                    continue
                after = head | target
                known = self._known(head, target) if partitioned else 0
                for origin, edges in starts:
                    edges.append((after, edge(origin, before, subs[after], store, known)))
        return None

    def _add_one_order(self) -> None:
        """Add one probe order per alias (beyond the cap), always to the cheapest next relation."""
        states = self.states
        model, graph = states.model, states.graph
        for i, found in enumerate(self.edges):
            head = 1 << i
            while head != self.whole:
                around = self.around(head) & ~head
                options = [t for t in self.targets if t & around]
                _, target = min((model.added(graph.mir(self.sub(head | t))), t) for t in options)
                known = self._known(head, target) if states.partitioned else 0
                after = head | target
                for origin, edges in found.items():
                    step = states.edge(
                        origin, self.sub(head), self.sub(after), self.targets[target], known
                    )
                    edges.append((after, step))
                head = after

    def query_goals(self) -> list[Goal]:
        """Goals that answer the query: one per alias and substream of its arriving tuples."""
        return self._goals(self.query.id, self.whole, None)

    def _goals(self, name: str, mask: int, mir: Sub | None) -> list[Goal]:
        aside, graph = self.states.model.aside, self.states.graph
        return [
            self._goal(name, i, origin, mask, mir)
            for i, found in enumerate(self.edges)
            if mask >> i & 1
            for origin in found
            if mir is None or not aside.any or aside.keeps_up(graph.mir(mir), *origin)
        ]

    def _goal(self, name: str, i: int, origin: Origin, mask: int, mir: Sub | None) -> Goal:
        states = self.states
        within = [e for after, e in self.edges[i][origin] if not after & ~mask]
        edges = within
        if states.there is not None or states.model.aside.any:
            target = states.graph.target
            edges = [e for e in within if self._may_probe(mir, target[e], origin)]
        return Goal(
            name,
            origin[0],
            mir,
            states.state(origin, self.sub(1 << i)),
            states.state(origin, self.sub(mask)),
            tuple(edges),
            limited=len(edges) < len(within),
            substream=origin[1],
        )

    def _may_probe(self, goal: Sub | None, store: Sub, origin: Origin) -> bool:
        """Whether tuples of ``origin`` may probe ``store`` to answer the query, or to maintain the
        intermediate result ``goal``. If only running stores may be used, ``store`` must be one."""
        graph, there = self.states.graph, self.states.there
        if store in graph.bases:
            return True
        mir = graph.mir(store)
        if not self.states.model.aside.may_probe(self.query.classes, mir, *origin):
            return False
        if there is None:
            return True
        may = there.serves(self.query, mir) if goal is None else there.feeds(graph.mir(goal), mir)
        return may and there.holds(self.query.classes, mir, origin)

    def add_upkeep(self, kept: dict[Sub, list[Goal]]) -> None:
        """Add to ``kept`` the missing goals of maintaining the query's sub-joins."""
        for mask, sub in self.targets.items():
            if mask & (mask - 1) and sub not in kept:
                name = self.states.graph.mir(sub).id
                kept[sub] = self._goals(name, mask, sub)
