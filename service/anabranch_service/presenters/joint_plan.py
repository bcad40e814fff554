"""The joint plan as a graph of streams, relations, intermediate results and queries.

A relation is the set of a stream's tuples that pass a local filter. Each of its tuples runs through
a tree of probes, whose leaves produce results of queries or rows of intermediate results, the
*targets*. The matches of a probe count towards the links from the probed store to all targets
further down its tree.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch_contract.plans.ruleset import Edge, Ruleset, arrival_edge
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.rest.normalised import NormalisedInfo
from anabranch_contract.rest.planning.joint_plan import JointPlanOut, PlanLinkOut, PlanNodeOut
from anabranch_planner.plans.compiling.rules import path_to
from anabranch_service.presenters.layers import NodePlace, layered
from anabranch_service.presenters.names import Describer
from anabranch_service.presenters.query_plan import MeasuredFlows

#: Maximum number of queries with separate nodes; if there are more, queries with the same
#: predecessors share a node.
MOST_QUERIES = 30
#: Maximum number of such nodes before all but the costliest share nodes by the number of their
#: streams: that of those nodes, and that of the costliest.
MOST_GROUPS, OTHER_GROUPS = 10, 4
#: Maximum number of nodes of relations, and of intermediate results, beside groups of queries.
MOST_STORES = 12
#: Maximum number of names of queries listed at any other node.
MOST_NAMES = 200
#: Beginning of the id of a node for queries of cheaper groups, and the number of their streams.
OTHERS = "group:others/"
#: Beginning of the id of a node for several intermediate results of the same streams.
MERGED = "result:*"


@dataclass(slots=True)
class _Link:
    tuples: float = 0.0
    cpu: float = 0.0
    shared: int = 0

    def add(self, tuples: float, cpu: float, shared: int) -> None:
        self.tuples += tuples
        self.cpu += cpu
        self.shared = max(self.shared, shared)


@dataclass(slots=True)
class _Graph:
    """Links of the joint plan by (source, target), and output tuples per second of each node."""

    links: dict[tuple[str, str], _Link] = field(default_factory=lambda: defaultdict(_Link))
    made: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def joint_plan_out(
    ruleset: Ruleset,
    meanings: Mapping[str, NormalisedInfo],
    found: MeasuredFlows,
    query: str | None = None,
) -> JointPlanOut:
    """Return the joint plan of ``ruleset`` as a graph with measured rates.

    Args:
        meanings: query -> its normal form, for user-facing names of relations.
        query: restrict the graph to the nodes that this query needs; None: the whole graph.
    """
    graph = _plan_graph(ruleset, found)
    names = [str(q.id) for q in ruleset.queries if registered(q.id) == q.id]
    if query is not None:
        kept = _needed(graph.links).get(f"query:{query}", frozenset()) | {f"query:{query}"}
        graph.links = {k: v for k, v in graph.links.items() if kept.issuperset(k)}
        names = [name for name in names if name == query]
    links, groups = dict(graph.links), dict[str, list[str]]()
    describe = Describer(ruleset, meanings)
    if len(names) > MOST_QUERIES:
        merged = _merged(graph, describe.streams_of_results())
        links, groups = _grouped(merged, names)
    users = _users(links, groups)
    layout = layered(links)
    several = _Several(groups, _needed(links))
    return JointPlanOut(
        epoch=ruleset.epoch,
        revision=ruleset.revision,
        measured=found.measured,
        cpu=found.cpu,
        queries=sum(registered(q.id) == q.id for q in ruleset.queries),
        nodes=[
            _plan_node(ident, layout.nodes[ident], describe, graph.made, users, several)
            for ident in sorted(layout.nodes, key=_order)
        ],
        links=[
            PlanLinkOut(
                source=source,
                target=target,
                tuples_per_second=link.tuples,
                cpu=link.cpu,
                shared=link.shared,
                bends=list(layout.bends[source, target]),
            )
            for (source, target), link in sorted(links.items())
        ],
    )


def _plan_graph(ruleset: Ruleset, measured: MeasuredFlows) -> _Graph:
    graph, flows = _Graph(), measured.flows
    rule_of = {rule.out: rule for rule in ruleset.probe_rules}
    several = Counter(r.stream for r in ruleset.relations)
    # A stream whose only relation has no filter is drawn as one node.
    ident_of = {
        str(r.id): f"stream:{r.stream}"
        if several[r.stream] == 1 and str(r.id) == str(r.stream)
        else f"relation:{r.id}"
        for r in ruleset.relations
    }
    relation_of = {arrival_edge(r.id): r for r in ruleset.relations}
    kept = {s.id: f"result:{s.mir}" for s in ruleset.stores if len(s.members) > 1}
    ends: dict[Edge, set[str]] = defaultdict(set)
    for store in ruleset.store_rules:
        if store.store in kept:
            ends[store.edge].add(kept[store.store])
    for edge, stores in ends.items():
        for target in stores:
            graph.made[target] += flows[edge][0]
    for query, rate in measured.results(ruleset).items():
        graph.made[f"query:{query}"] = rate
    for output in ruleset.output_rules:
        ends[output.edge].add(f"query:{registered(output.query)}")
    behind: dict[Edge, set[str]] = defaultdict(set)
    paths = {edge: path_to(rule_of, edge) for edge in ends}
    for edge, targets in ends.items():
        for rule in paths[edge]:
            behind[rule.out] |= targets
    seen: set[tuple[Edge, str]] = set()
    for edge, targets in ends.items():
        path = paths[edge]
        first = path[-1].edge if path else edge
        relation = ident_of[str(relation_of[first].id)]
        for target in sorted(targets):
            if (first, target) not in seen:
                seen.add((first, target))
                graph.links[relation, target].add(flows[first][0], 0.0, 0)
            for rule in path:
                # Two probe paths of one target may have steps in common: count these once.
                if (rule.out, target) in seen:
                    continue
                seen.add((rule.out, target))
                (tuples, seconds), shared = flows[rule.out], len(behind[rule.out])
                probed = ident_of.get(str(rule.mir), f"result:{rule.mir}")
                graph.links[probed, target].add(tuples, seconds / shared, shared)
    for edge, found in relation_of.items():
        stream, ident, rate = f"stream:{found.stream}", ident_of[str(found.id)], flows[edge][0]
        graph.made[stream] += rate
        if ident != stream:
            graph.made[ident] = rate
            graph.links[stream, ident].add(rate, 0.0, 0)
    return graph


def _needed(links: Collection[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """Map each node of the displayed graph to all its direct and indirect predecessors."""
    before: dict[str, set[str]] = defaultdict(set)
    for source, target in links:
        before[target].add(source)
    found: dict[str, frozenset[str]] = {}

    def of(node: str) -> frozenset[str]:
        if node not in found:
            found[node] = frozenset()
            sources = before.get(node, set())
            found[node] = frozenset(sources).union(*map(of, sources))
        return found[node]

    for node in list(before):
        of(node)
    return found


def _merged(
    graph: _Graph, streams_of: Mapping[str, tuple[str, ...]]
) -> Mapping[tuple[str, str], _Link]:
    """Merge relations with their stream, and results of the same streams, if they are many.

    A result is built from results of fewer streams only, so the graph stays acyclic. Rates of
    merged results are summed in ``graph``.
    """
    nodes = {node for link in graph.links for node in link}
    kinds = {node: node.partition(":")[0] for node in nodes}
    target_of = {node: node for node in nodes}
    if sum(kind == "relation" for kind in kinds.values()) > MOST_STORES:
        merged = {t: s for s, t in graph.links if kinds[t] == "relation"}
        target_of.update(merged)
    results = sorted(node for node, kind in kinds.items() if kind == "result")
    if len(results) > MOST_STORES:
        target_of.update({node: f"{MERGED}{'+'.join(streams_of[node])}" for node in results})
        for node in results:
            graph.made[target_of[node]] += graph.made.get(node, 0.0)
    return _contracted(graph.links, target_of)


def _contracted(
    links: Mapping[tuple[str, str], _Link], target_of: Mapping[str, str]
) -> dict[tuple[str, str], _Link]:
    """Replace the nodes of a graph, and add up links with the same ends."""
    found: dict[tuple[str, str], _Link] = defaultdict(_Link)
    for (source, target), link in links.items():
        ends = target_of.get(source, source), target_of.get(target, target)
        if ends[0] != ends[1]:
            found[ends].add(link.tuples, link.cpu, link.shared)
    return dict(found)


def _grouped(
    links: Mapping[tuple[str, str], _Link], names: Sequence[str]
) -> tuple[dict[tuple[str, str], _Link], dict[str, list[str]]]:
    """Merge queries with equal predecessors to one node; if these nodes are many, merge those with
    little CPU time by the number of their streams. Returns links, merged node -> queries.
    """
    sources: dict[str, set[str]] = defaultdict(set)
    cpu: dict[str, float] = defaultdict(float)
    for (source, target), link in links.items():
        sources[target].add(source)
        cpu[target] += link.cpu
    alike: dict[frozenset[str], list[str]] = defaultdict(list)
    for name in names:
        alike[frozenset(sources[f"query:{name}"])].append(name)

    def dearest(members: list[str]) -> tuple[float, int]:
        return -sum(cpu[f"query:{name}"] for name in members), -len(members)

    ranked, groups = list(alike.values()), dict[str, list[str]]()
    if len(ranked) > MOST_GROUPS:
        ranked.sort(key=dearest)
        before = _needed(links)
        for members in ranked[MOST_GROUPS - OTHER_GROUPS :]:
            streams = sum(node.startswith("stream:") for node in before[f"query:{members[0]}"])
            ident = f"{OTHERS}{min(max(streams, 2), OTHER_GROUPS + 1)}"
            groups.setdefault(ident, []).extend(members)
        del ranked[MOST_GROUPS - OTHER_GROUPS :]
    groups.update({f"group:{n}": members for n, members in enumerate(ranked) if len(members) > 1})
    target_of = {f"query:{name}": ident for ident, names in groups.items() for name in names}
    return _contracted(links, target_of), groups


def _users(
    links: Collection[tuple[str, str]], groups: Mapping[str, list[str]]
) -> dict[str, list[str]]:
    """Map each node of the displayed graph to the queries that depend on it."""
    found: dict[str, set[str]] = defaultdict(set)
    for target, sources in _needed(links).items():
        kind, _, name = target.partition(":")
        if kind in ("query", "group"):
            members = groups.get(target, [name])
            for node in (target, *sources):
                found[node].update(members)
    return {node: sorted(names) for node, names in found.items()}


def _order(ident: str) -> tuple[int, str]:
    kinds = ("stream", "relation", "result", "query", "group")
    return kinds.index(ident.partition(":")[0]), ident


@dataclass(frozen=True, slots=True)
class _Several:
    """Nodes for several queries: their members, and the predecessors of each node."""

    groups: Mapping[str, list[str]]
    before: Mapping[str, frozenset[str]]

    def texts(self, ident: str) -> tuple[str, str]:
        """Return label and detail of a group: number of queries, and their streams."""
        members = len(self.groups[ident])
        if ident.startswith(OTHERS):
            number = ident.removeprefix(OTHERS)
            more = " or more" if number == str(OTHER_GROUPS + 1) else ""
            return f"{members} other queries", f"of {number}{more} streams each"
        before = [node.partition(":") for node in self.before[ident]]
        streams = sorted(name for kind, _, name in before if kind == "stream")
        return f"{members} queries", ", ".join(streams)


def _plan_node(
    ident: str,
    place: NodePlace,
    describe: Describer,
    made: Mapping[str, float],
    users: Mapping[str, list[str]],
    several: _Several,
) -> PlanNodeOut:
    kind, _, name = ident.partition(":")
    queries = users.get(ident, [])
    if kind == "group":
        label, detail = several.texts(ident)
        rate = sum(made.get(f"query:{q}", 0.0) for q in several.groups[ident])
    elif ident.startswith(MERGED):
        streams = ident.removeprefix(MERGED).split("+")
        (label, detail), rate = (" ⋈ ".join(streams), "several filters"), made[ident]
    else:
        (label, detail), rate = describe.of(kind, name), made.get(ident, 0.0)
    most = None if kind == "group" else MOST_NAMES
    return PlanNodeOut(
        id=ident,
        kind=kind,
        label=label,
        detail=detail,
        tuples_per_second=rate,
        queries=queries[:most],
        layer=place.layer,
        at=place.at,
    )
