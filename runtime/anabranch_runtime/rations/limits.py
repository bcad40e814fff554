"""Load shedding on the edges of probe trees, from the rations of a batch's goals.

A goal is a query and its last-arriving alias; its ration is the share of such tuples that probe. A
tuple passes an edge if its rank (a hash in [0, 1)) is below the ration of a goal after the edge.
Among goals with the same ranking the largest ration decides, so a tuple that would pass a later
edge also passes all earlier ones. An edge that leads to a stored intermediate result passes every
tuple, since stored results must be complete.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from anabranch_contract.plans.rations import Ranking, Ration, RationedBatches
from anabranch_contract.plans.ruleset import Edge, Ruleset, arrival_edge
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.queries.joins import Label, QueryId
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.index.ranks import limit

#: Maximum number of batches with load shedding recorded in a manifest; the ledger has all.
KEPT = 8
#: Filter of tuples by rank (hash of a key): an exclusive upper bound per ranking; a tuple passes if
#: it satisfies one bound. None: every tuple passes.
Limits: TypeAlias = "frozenset[tuple[Ranking, int]] | None"


@dataclass(frozen=True, slots=True)
class RationLimits:
    """Filters for load shedding on the edges and goals of a ruleset.

    Attributes:
        edges: edge of the plan -> its filter; missing edges pass every tuple.
        goals: (query, last-arriving label) -> filter of the goal, if its share is below 1.
    """

    edges: Mapping[Edge, Limits]
    goals: Mapping[tuple[QueryId, Label], tuple[Ranking, int]]

    def edge(self, edge: Edge) -> Limits:
        """Return the filter by rank of the tuples that pass ``edge``."""
        return self.edges.get(edge)

    def goal(self, query: QueryId, start: Label) -> Limits:
        """Return the filter by rank of tuples of ``start`` that complete results of ``query``."""
        return _own(self.goals.get((query, start)))


def rationing(ruleset: Ruleset, rations: tuple[Ration, ...]) -> RationLimits:
    """Compute the filters for ``rations``, shares of probing tuples per goal of ``ruleset``."""
    goals = {(r.query, r.start): (r.ranking, limit(r.share)) for r in rations if r.share < 1}
    if not goals:
        return RationLimits({}, goals)
    found = behind(ruleset, lambda query, start: _own(goals.get((query, start))), None, _any_of)
    return RationLimits({e: limits for e, limits in found.items() if limits is not None}, goals)


def least_limits(
    ruleset: Ruleset, goals: Mapping[tuple[QueryId, Label], tuple[Ranking, int]]
) -> Mapping[Edge, frozenset[tuple[Ranking, int]]]:
    """Return, by edge, the least rank limit per ranking of the ``goals`` beyond the edge."""

    def wanted(query: QueryId, start: Label) -> frozenset[tuple[Ranking, int]]:
        return _own(goals.get((query, start))) or frozenset()

    def together(some: Iterable[frozenset[tuple[Ranking, int]]]) -> frozenset[tuple[Ranking, int]]:
        return _picked(itertools.chain(*some), min)

    return behind(ruleset, wanted, frozenset(), together)


def noted(
    known: tuple[RationedBatches, ...], batch: int, rations: tuple[Ration, ...]
) -> tuple[RationedBatches, ...]:
    """Append the record of load shedding in ``batch`` to ``known``; drop the oldest records."""
    if not rations:
        return known
    if known and known[-1].last == batch - 1 and known[-1].rations == rations:
        return (*known[:-1], replace(known[-1], last=batch))
    return (*known, RationedBatches(batch, batch, rations))[-KEPT:]


def count_withheld(
    queries: dict[str, Activation],
    rations: tuple[Ration, ...],
    reports: Iterable[TaskReport],
    owing: Collection[QueryId] = (),
) -> dict[str, Activation]:
    """Add the estimated number of results that a batch has withheld to the queries' activations.

    Args:
        owing: queries whose withheld results a catch-up will compute.
    """
    if not rations:
        return queries
    found, kept = dict(queries), [r.rations.kept for r in reports]
    for ration in rations:
        known = found.get(ration.query)
        if known is None:
            continue
        owed = ration.query in owing
        if not ration.share:
            # Owed results count as withheld only once they are dropped.
            found[ration.query] = replace(known, blind=known.blind + (not owed))
            continue
        rows = sum(k.get(ration.query, {}).get(ration.start, 0) for k in kept)
        more = rows * (1 / ration.share - 1)
        found[ration.query] = (
            replace(known, owed=known.owed + more)
            if owed
            else replace(known, withheld=known.withheld + more)
        )
    return found


def _own(limit: tuple[Ranking, int] | None) -> Limits:
    return None if limit is None else frozenset((limit,))


def _any_of(wanted: Iterable[Limits]) -> Limits:
    """Return the disjunction of rank filters: a tuple passes if it passes one of ``wanted``."""
    known = list(wanted)
    some = [limits for limits in known if limits is not None]
    return _picked(itertools.chain(*some), max) if len(some) == len(known) else None


def _picked(
    limits: Iterable[tuple[Ranking, int]], pick: Callable[[int, int], int]
) -> frozenset[tuple[Ranking, int]]:
    """Reduce rank limits to one per ranking by ``pick`` (minimum or maximum)."""
    found: dict[Ranking, int] = {}
    for ranking, number in limits:
        found[ranking] = pick(number, found.get(ranking, number))
    return frozenset(found.items())


_T = TypeVar("_T")


def behind(
    ruleset: Ruleset,
    wanted: Callable[[QueryId, Label], _T],
    stored: _T,
    together: Callable[[Sequence[_T]], _T],
) -> dict[Edge, _T]:
    """Return edge -> values of the queries and stores that it leads to, combined by ``together``.

    Args:
        wanted: returns the value of a query whose results start with tuples of a label.
        stored: value of a stored intermediate result.
    """
    arrivals = {arrival_edge(r.id) for r in ruleset.relations}
    starts = {rule.out: rule.start for rule in ruleset.probe_rules}
    given: dict[Edge, list[_T]] = defaultdict(list)
    for output in ruleset.output_rules:
        if output.edge in starts:
            given[output.edge].append(wanted(output.query, starts[output.edge]))
    for insert in ruleset.store_rules:
        if insert.edge not in arrivals:
            given[insert.edge].append(stored)
    found: dict[Edge, _T] = {}
    for rule in reversed(ruleset.paths):
        found[rule.out] = together(given[rule.out])
        given[rule.edge].append(found[rule.out])
    return found
