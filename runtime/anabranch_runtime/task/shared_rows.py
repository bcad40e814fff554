"""Joins whose rows the post-join parts of several queries share: computed and written once.

Queries share their joined rows if they have the same members, have outputs on the same edges under
the same conditions, and see the same ones of all tuples that a tuple of the batch may join,
whenever the queries began. The shared rows have the columns of all these queries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field

from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.plans.ruleset import QuerySpec, Ruleset
from anabranch_contract.queries.expressions import Expr
from anabranch_contract.queries.joins import QueryId
from anabranch_runtime.epochs.per_ruleset import per_ruleset
from anabranch_runtime.probe.scope import ProbeScope
from anabranch_runtime.sinks.joined_rows import column_name

#: Prefix of the names of shared joins.
SHARED = "shared:"


@dataclass(frozen=True, slots=True)
class SharedRows:
    """Queries that share their joined rows.

    Attributes:
        name: name of the join (``Segment.store``).
        columns: column -> its expression. ``readers``: column -> the queries that read it.
    """

    name: str
    queries: tuple[QueryId, ...]
    columns: dict[str, Expr] = field(default_factory=dict)
    readers: dict[str, list[QueryId]] = field(default_factory=lambda: defaultdict(list))


def shared_rows(ruleset: Ruleset, scope: ProbeScope) -> dict[QueryId, SharedRows]:
    """Return query -> its group of queries with the same joined rows; the first one writes them."""
    alike: dict[Hashable, list[QuerySpec]] = defaultdict(list)
    for query, conditions in _conditions(ruleset):
        alike[conditions, _seen(query.id, scope)].append(query)
    found: dict[QueryId, SharedRows] = {}
    for some in alike.values():
        if len(some) < 2:
            continue
        one = SharedRows(f"{SHARED}{some[0].id}", tuple(q.id for q in some))
        for query in some:
            found[query.id] = one
            for output in query.projection:
                name = column_name(output)
                one.columns.setdefault(name, output.expr)
                one.readers[name].append(query.id)
    return found


def _seen(query: QueryId, scope: ProbeScope) -> Hashable:
    """Return a value that is equal for queries that see the same tuples of a task."""
    if query in scope.whole:
        return ()
    limits = tuple(sorted(scope.visible.get(query, {}).items()))
    # Tuples since the activation are visible with any event time.
    timed = any(moment is not None for _, (_, moment) in limits)
    return (*limits, scope.activated[query]) if timed else limits


def feeds(found: Collection[SharedRows]) -> dict[str, tuple[str, ...]]:
    """Return name of a shared join -> the queries that share its joined rows."""
    return {one.name: tuple(map(str, one.queries)) for one in found}


@per_ruleset
def _conditions(ruleset: Ruleset) -> list[tuple[QuerySpec, Hashable]]:
    """Return the queries that may share joined rows, each with its rows' conditions."""
    sharing = [
        query
        for query in ruleset.queries
        if query.view is not None and not query.has_outer_join and not query.united
        if query.sink.kind is not SinkKind.COUNT
    ]
    rules: dict[QueryId, list[Hashable]] = {query.id: [] for query in sharing}
    for rule in ruleset.output_rules if sharing else ():
        if rule.query in rules:
            rules[rule.query].append((rule.edge, rule.bounds, tuple(map(str, rule.residuals))))
    labels = {query.id: frozenset(label for _, label, _ in query.members) for query in sharing}
    return [
        (query, (frozenset(rules[query.id]), labels[query.id], query.freshness, query.expansions))
        for query in sharing
    ]
