"""Indexes over the rules of one ruleset."""

from __future__ import annotations

import itertools
from collections import defaultdict

from anabranch_contract.plans.ruleset import (
    OutputRule,
    ProbeRule,
    QuerySpec,
    Ruleset,
    StoreId,
    StoreSpec,
)
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import Label, RelationId, Stream, StreamName

#: Maximum value of :attr:`Routes.ranks`.
LAST_RANK = 2


class Routes:
    """The rules of one ruleset, indexed by edge, store and query.

    Attributes:
        ranks: stream -> position of its tuples in the order of a batch: 0 for tables, 1 for streams
            that queries look up, 2 for others.
    """

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
        looked_up = {self.stream(label) for q in ruleset.queries for label in q.looked_up}
        self.ranks: dict[str, int] = {
            s.name: 0 if s.is_table else 1 if s.name in looked_up else LAST_RANK
            for s in ruleset.streams
        }
        self._derived = {(s, a): e for s, a, e in ruleset.derived}
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
        self.substreams = {one.start: one for one in ruleset.substreams}
        self.latest = {rule.stream: rule for rule in ruleset.latest_rules}
        self.levels = ruleset.levels
        self.conjuncts = {r.id: tuple((str(f), f) for f in r.filter) for r in ruleset.relations}

    def derived(self, label: Label, attribute: str) -> Expr | None:
        """Return the expression of a label's derived attribute in the ruleset; None: a column."""
        return self._derived.get((self.stream(label), attribute))

    def stream(self, label: Label) -> StreamName:
        """Return the stream of ``label`` in the ruleset."""
        return self.relations[self.relation_of[label]].stream

    def order(self, label: Label) -> tuple[int, StreamName]:
        """Return the sort key (rank, name) of the stream of ``label`` within a rationed batch."""
        stream = self.stream(label)
        return self.ranks[stream], stream

    def has_changes(self, query: QuerySpec) -> bool:
        """Whether tuples may delete earlier results of ``query``, an inner join."""
        return any(
            self.streams[self.stream(label)].deletes_results(looked_up=label in query.looked_up)
            for _, label, _ in query.members
        )

    def has_superseded(self, query: QuerySpec, label: Label) -> bool:
        """Whether a later tuple of the same key replaces a tuple of ``label`` in ``query``: in
        streams with latest per key, and in tables that the query looks up."""
        stream = self.streams[self.stream(label)]
        return bool(stream.latest) and (not stream.is_table or label in query.looked_up)

    def has_event_time(self, label: Label) -> bool:
        """Whether tuples of ``label`` have an event time or, as rows of a table, an order."""
        return self.streams[self.stream(label)].is_ordered
