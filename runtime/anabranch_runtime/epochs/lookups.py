"""Queries that look up tables: removal of the rules that only a table's rows would use.

Only a tuple of a stream completes a result (``semantics.md``, "Tables"). So probe orders that start
with a table are useless, and the store of a stream that all queries join with tables only is never
probed. The plan has rules for both, as for any stream; they are removed here. The removal depends
on queries and streams alone, so a ruleset and its revisions lose the same stores.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from anabranch_contract.plans.ruleset import QuerySpec, Ruleset, arrival_edge
from anabranch_contract.queries.joins import RelationId
from anabranch_runtime.epochs.per_ruleset import per_ruleset


@per_ruleset
def tables(ruleset: Ruleset) -> frozenset[RelationId]:
    """Return the relations over tables (streams whose rows are only looked up)."""
    names = {s.name for s in ruleset.streams if s.is_table}
    return frozenset(r.id for r in ruleset.relations if r.stream in names)


@per_ruleset
def unprobed(ruleset: Ruleset) -> frozenset[RelationId]:
    """Return relations over streams joined with tables only: no probe reads their stores.

    Except relations over streams that are stored anyway (retained, or with the latest per key).
    """
    of_tables = tables(ruleset)
    if not of_tables:
        return frozenset()
    probed: set[RelationId] = set()
    joined: set[RelationId] = set()
    for query in ruleset.queries:
        streams = [r for _, _, r in query.members if r not in of_tables]
        if len(query.members) > 1:
            joined.update(streams)
        if len(streams) > 1:
            probed.update(streams)
    kept = {s.name for s in ruleset.streams if s.is_retained or s.latest}
    kept_whole = {r.id for r in ruleset.relations if r.stream in kept}
    return frozenset(joined - probed - kept_whole)


def completing(query: QuerySpec, of_tables: frozenset[RelationId]) -> tuple[int, ...]:
    """Return indexes of the aliases of ``query`` over streams: their tuples complete results."""
    return tuple(i for i, (_, _, r) in enumerate(query.members) if r not in of_tables)


def looking_up(ruleset: Ruleset) -> frozenset[str]:
    """Return queries that read tables: exempt from load shedding, as no catch-up is possible."""
    of_tables = tables(ruleset)
    return frozenset(
        str(q.id) for q in ruleset.queries if len(completing(q, of_tables)) < len(q.members)
    )


@per_ruleset
def without_lookups(ruleset: Ruleset) -> Ruleset:
    """Remove the rules by which a row of a table would complete a result."""
    of_tables = tables(ruleset)
    if not of_tables:
        return ruleset
    gone = unprobed(ruleset)
    dropped = {s.id for s in ruleset.stores if not gone.isdisjoint(s.relations)}
    start_of = {p.out: p.start for p in ruleset.probe_rules}
    relation_of = {label: r for q in ruleset.queries for _, label, r in q.members}
    outputs = tuple(
        o
        for o in ruleset.output_rules
        if o.edge not in start_of or relation_of[start_of[o.edge]] not in of_tables
    )
    rules = [r for r in ruleset.store_rules if r.store not in dropped]
    probes = {
        p.out: p
        for p in ruleset.probe_rules
        if p.store not in dropped and dropped.isdisjoint(step.store for step in p.fill)
    }
    used: dict[str, int] = defaultdict(int)
    for edge in (*(o.edge for o in outputs), *(r.edge for r in rules)):
        used[edge] += 1
    for probe in probes.values():
        used[probe.edge] += 1
    pending = [edge for edge in probes if not used[edge]]
    while pending:
        before = probes.pop(pending.pop()).edge
        used[before] -= 1
        if before in probes and not used[before]:
            pending.append(before)
    edges = {arrival_edge(r.id) for r in ruleset.relations} | probes.keys()
    return replace(
        ruleset,
        stores=tuple(s for s in ruleset.stores if s.id not in dropped),
        store_rules=tuple(r for r in rules if r.edge in edges),
        probe_rules=tuple(
            replace(p, ahead=tuple(a for a in p.ahead if a.store not in dropped))
            for p in ruleset.probe_rules
            if p.out in probes
        ),
        output_rules=tuple(o for o in outputs if o.edge in edges),
        backfill_rules=tuple(
            b
            for b in ruleset.backfill_rules
            if b.store not in dropped and dropped.isdisjoint(step.store for step in b.steps)
        ),
    )
