"""A task's share of a catch-up: results that batches withheld (``rations.catch_up``).

Each withheld result is computed once, from one of its members: a member that arrived in the last
batch of any member, in the stream with the greatest name of those with members in that batch, and
whose rank is not below its goal's ration (``semantics.md``, "Rations"). Of several such members, it
is the first in the order of the query's aliases. Past results of a query over streams of changes
are computed from the member of the first alias.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.plans.rations import Ranking
from anabranch_contract.plans.ruleset import Edge, OutputRule, ProbeRule, arrival_edge
from anabranch_contract.queries.joins import Label, QueryId
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.index.ranks import limit
from anabranch_runtime.probe.pieces import Pieces
from anabranch_runtime.rations.catch_up import until
from anabranch_runtime.rations.limits import least_limits
from anabranch_runtime.rations.shares import Ranks
from anabranch_runtime.state.coverage import Access
from anabranch_runtime.state.debt import CatchUp
from anabranch_runtime.state.slices import SegmentRows
from anabranch_runtime.storage.partial import Partial
from anabranch_runtime.task.probe_router import ProbeRouter, ProbeWork
from anabranch_runtime.task.substreams import DividedTuples

Missed = Mapping[tuple[QueryId, Label], tuple[Ranking, int]]


@dataclass(frozen=True, slots=True)
class Payer:
    """Computes the results that one catch-up pays.

    Attributes:
        access: edge -> tiles and gaps of its probe in the running batch.
        router, pieces: execute probes. ``guard``: passes results on until an expression fails.
        emit: writes the results of an output rule.
    """

    layout: Layout
    access: Mapping[str, Access]
    router: ProbeRouter
    pieces: Pieces
    guard: Callable[[ProbeRule, Iterator[Partial]], Iterator[Partial]]
    emit: Callable[[Partial, OutputRule], None]

    def walks(self, work: CatchUp) -> list[Walk]:
        """Return the walks of a catch-up: one per element of ``work.starts`` and label."""
        ruleset = self.layout.ruleset
        label_of = {(q.id, alias): label for q in ruleset.queries for alias, label, _ in q.members}
        missed = {
            (g.query, label_of[g.query, g.alias]): (g.ranking, limit(g.share))
            for g in work.goals
            if (g.query, g.alias) in label_of
        }
        found = []
        for number, one in enumerate(work.starts):
            wanted: dict[Label, dict[tuple[QueryId, Label], tuple[Ranking, int]]]
            wanted = defaultdict(dict)
            for query, alias in one.goals:
                label = label_of.get((query, alias))
                if label is not None:
                    wanted[label][query, label] = missed[query, label]
            for label, goals in wanted.items():
                edges = least_limits(ruleset, goals)
                name = f"catch-up:{number}:{label}"
                found.append(Walk(self, work, name, label, one.sources, missed, goals, edges))
        return found


@dataclass(slots=True)
class Walk:
    """Sends withheld stored rows down the probe trees of one label.

    Attributes:
        owed: the withheld results to compute. ``name``: the walk's name. ``start``: the label.
        sources: the stored rows of the label's relation.
        missed: goal (query, label) of the catch-up -> how tuples are ranked, and the least rank of
            withheld tuples. ``goals``: the part of ``missed`` for this label.
        edges: edge -> per ranking, least withheld rank over all goals downstream of the edge.
        work: the walk's probes, for the router.
        alone: whether this label computes all results of the query, in any arrival order of their
            members (past results).
    """

    payer: Payer
    owed: CatchUp
    name: str
    start: Label
    sources: tuple[SegmentRows, ...]
    missed: Missed
    goals: Missed
    edges: Mapping[Edge, frozenset[tuple[Ranking, int]]]
    work: ProbeWork = field(init=False)
    alone: bool = field(init=False)

    def __post_init__(self) -> None:
        payer = self.payer
        (query, _), *others = self.missed
        self.alone = self.owed.past and not others and len(payer.layout.queries[query].members) > 1
        self.work = ProbeWork(
            self.name,
            payer.pieces,
            lambda rule: until(payer.access[rule.out], self.owed.last),
            payer.layout.rules,
            payer.guard,
            lambda joined, rule: self._visit(self._arrived(joined), rule.out),
        )

    def begin(self, rows: Partial) -> None:
        """Send ``rows``, where they arrived in the owed batches, down the probe trees."""
        batch = rows.batch(self.start)
        here = rows.where((batch >= self.owed.first) & (batch <= self.owed.last))
        self._visit(here, arrival_edge(self.payer.layout.relation_of[self.start]))

    def _visit(self, found: Partial, edge: Edge) -> None:
        """Send ``found``, the tuples on ``edge``, to outputs and the next probes."""
        layout = self.payer.layout
        for output in layout.outputs.get(edge, ()):
            own = self.goals.get((output.query, found.start))
            if own is not None:
                self.payer.emit(self._withheld(found, output.query, own), output)
        divided = DividedTuples(layout, found)
        for rule in layout.probes.get(edge, ()):
            limits = self.edges.get(rule.out)
            if limits and rule.start == found.start:
                some = divided.of(rule.substreams)
                self._probe(some.where(self._reached(some, some.start, limits)), rule)

    def _probe(self, found: Partial, rule: ProbeRule) -> None:
        if found.length:
            self.payer.router.probe(self.work, found, rule)

    def _arrived(self, joined: Partial) -> Partial:
        """Return ``joined`` without tuples that have members of later batches than the start's."""
        if self.owed.first == self.owed.last or self.alone:
            return joined
        last = joined.batch(joined.start)
        mask = np.ones(joined.length, np.bool_)
        for label in joined.place:
            mask &= joined.batch(label) <= last
        return joined.where(mask)

    def _withheld(self, found: Partial, query: QueryId, own: tuple[Ranking, int]) -> Partial:
        """Return the withheld results in ``found`` that this walk computes (module docstring)."""
        layout, start = self.payer.layout, found.start
        if self.alone:
            return found
        mask = self._reached(found, start, frozenset((own,)))
        last, stream, first = found.batch(start), layout.stream(start), True
        for _, label, _ in layout.queries[query].members:
            if label == start:
                first = False
                continue
            batch, other = found.batch(label), layout.stream(label)
            mask &= batch < last if other > stream else batch <= last
            limits = self.missed.get((query, label))
            if first and other == stream and limits is not None:
                # If that member was withheld too, the walk of that member computes the result.
                reached = self._reached(found, label, frozenset((limits,)))
                mask &= ~((batch == last) & reached)
        return found.where(mask)

    def _reached(
        self, found: Partial, label: Label, limits: Iterable[tuple[Ranking, int]]
    ) -> NDArray[np.bool_]:
        return Ranks(self.payer.layout).reached(found, label, limits)
