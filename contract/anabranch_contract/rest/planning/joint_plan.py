"""Bodies of ``GET /v1/plan``, the joint plan as a graph, and ``GET /v1/plan/names``."""

from __future__ import annotations

from typing import Literal

from anabranch_contract.rest.documents import Document, Open

NodeKind = Literal["stream", "relation", "result", "query", "group"]


class PlanNodeOut(Document):
    """A node of the joint plan.

    Attributes:
        id: its kind and name, such as ``stream:orders``.
        kind: ``stream``; ``relation``: a stream's tuples that pass a local filter; ``result``: a
            stored intermediate result, or with many queries several of the same streams; ``query``;
            ``group``: several queries with the same input nodes, or all but the costliest groups.
        label: its name for display.
        detail: filters of a relation or result, streams of a group; else empty.
        tuples_per_second: rate of arriving tuples, stored rows or results, per second.
        queries: queries that need the node, or the members of the group.
        layer: layer in the drawing, counted from the streams.
        at: position within the layer; two nodes are at least 1 apart.
    """

    id: str
    kind: Open[NodeKind]
    label: str
    detail: str
    tuples_per_second: float
    queries: list[str]
    layer: int
    at: float


class PlanLinkOut(Document):
    """Tuples sent from one node to another.

    Attributes:
        source: id of the node from which the tuples come.
        target: id of the node to which they are sent.
        tuples_per_second: tuples of ``source``, or matches with its stored rows, that are sent on
            towards ``target``, per second.
        cpu: CPU seconds per second for these probes; a step shared by several targets is split
            equally among them.
        shared: number of targets of the most shared step among them.
        bends: (layer, position) pairs that the drawn link passes, from source to target.
    """

    source: str
    target: str
    tuples_per_second: float
    cpu: float
    shared: int
    bends: list[tuple[int, float]]


class JointPlanOut(Document):
    """The running joint plan of all queries. Rates are of the newest periods, and include tuples
    withheld by rations.

    Attributes:
        epoch: epoch of the running ruleset.
        revision: number of the ruleset's revision; 0: the ruleset with which the epoch began.
        measured: whether a step has been measured; before that, all rates are 0.
        cpu: CPU seconds per second for all probes and results.
        queries: number of all queries of the plan, in the graph or not.
        nodes: the nodes of the graph.
        links: the links between nodes.
    """

    epoch: int
    revision: int
    measured: bool
    cpu: float
    queries: int
    nodes: list[PlanNodeOut]
    links: list[PlanLinkOut]


class RelationNameOut(Document):
    """A relation: the tuples of a stream that pass a local filter.

    Attributes:
        relation: id of the relation in plans.
        stream: name of its stream.
        filter: condition of its filter; empty: all tuples.
    """

    relation: str
    stream: str
    filter: str


class PlanNamesOut(Document):
    """Meanings of the ids in plans, statistics and stored state.

    Attributes:
        relations: the relations of all registered queries.
        results: id of an intermediate result in the running plan or the stored state -> its
            members, as labels of relations.
    """

    relations: list[RelationNameOut]
    results: dict[str, list[str]]
