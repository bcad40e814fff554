"""Body of ``GET /v1/plan``: the joint plan as a graph."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from anabranch_contract.rest.documents import Document, Open

NodeKind = Literal["stream", "relation", "result", "query", "group"]


class PlanNodeOut(Document):
    """A node of the joint plan.

    ``stream``: a registered one. ``relation``: its tuples that pass a local filter. ``result``: an
    intermediate result that is kept. ``query``; ``group``: several queries that are fed by the same
    nodes.
    """

    id: str
    kind: Open[NodeKind]
    label: str
    detail: str
    tuples_per_second: float = Field(description="That arrive, are kept, or are results.")
    queries: list[str] = Field(description="The queries that need it; of a group its members.")
    layer: int = Field(description="Where to draw it: counted from the streams.")
    at: float = Field(description="Where in its layer; two nodes of one are at least 1 apart.")


class PlanLinkOut(Document):
    """Tuples sent from one node to another.

    ``tuples_per_second`` begin at the source, or match its stored rows, on the way to ``target``.
    ``cpu`` is CPU seconds per second for these probes; a step shared by several targets is split
    equally among them. ``shared`` is the number of targets of the most shared step.
    """

    source: str
    target: str
    tuples_per_second: float
    cpu: float
    shared: int
    bends: list[tuple[int, float]] = Field(
        description="Layer and place in it that the link passes, from source to target."
    )


class JointPlanOut(Document):
    """The plan that runs, over all queries.

    ``measured`` is false before anything was measured: then all rates are 0. Rates are of the
    newest periods, with everything that rations withheld. ``cpu`` is CPU seconds per second for
    all probes and results. ``queries`` counts all queries of the plan, in the graph or not.
    """

    epoch: int
    revision: int
    measured: bool
    cpu: float
    queries: int
    nodes: list[PlanNodeOut]
    links: list[PlanLinkOut]
