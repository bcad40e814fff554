"""Removal of rules that only looked-up tuples would use.

Rows of tables, and other tuples that queries only look up when a tuple of another stream arrives,
complete no result (``semantics.md``, "Tables"). So probe orders that start with them are useless,
and if all queries join a stream with looked-up tuples only, its store is never probed. The plan has
rules for these orders and stores as for any others; they are removed here. The removal depends on
queries and streams alone, so a ruleset and its revisions lose the same stores.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from anabranch_contract.plans.ruleset import Ruleset, arrival_edge
from anabranch_contract.queries.joins import RelationId
from anabranch_runtime.epochs.per_ruleset import per_number, per_ruleset


@per_ruleset
def unprobed(ruleset: Ruleset) -> frozenset[RelationId]:
    """Return the relations joined with looked-up tuples only; no probe reads their stores.

    Relations of streams that are stored anyway (retained, or latest per key) are left out.
    """
    if not looking_up(ruleset):
        return frozenset()
    probed: set[RelationId] = set()
    joined: set[RelationId] = set()
    for query in ruleset.queries:
        streams = [query.members[i][2] for i in query.completing]
        if len(query.members) > 1:
            joined.update(streams)
        if len(streams) > 1:
            probed.update(streams)
    kept = {s.name for s in ruleset.streams if s.is_retained or s.latest}
    kept_whole = {r.id for r in ruleset.relations if r.stream in kept}
    return frozenset(joined - probed - kept_whole)


def looking_up(ruleset: Ruleset) -> frozenset[str]:
    """Return queries that look up tuples: these can't have rations, as they have no catch-up."""
    return frozenset(str(q.id) for q in ruleset.queries if q.looked_up)


@per_number
def without_lookups(ruleset: Ruleset) -> Ruleset:
    """Return ``ruleset`` without rules by which a looked-up tuple would complete a result."""
    if not looking_up(ruleset):
        return ruleset
    gone = unprobed(ruleset)
    dropped = {s.id for s in ruleset.stores if not gone.isdisjoint(s.relations)}
    start_of = {p.out: p.start for p in ruleset.probe_rules}
    looked_up = {q.id: q.looked_up for q in ruleset.queries}
    outputs = tuple(
        o
        for o in ruleset.output_rules
        if o.edge not in start_of or start_of[o.edge] not in looked_up[o.query]
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
