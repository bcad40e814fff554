"""Body of ``GET /v1/plan``: the joint plan as a graph."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from anabranch_contract.rest.documents import Document, Open

NodeKind = Literal["stream", "relation", "result", "query", "group"]


class PlanNodeOut(Document):
    """A node of the joint plan. Its kinds:

    ``stream``; ``relation``: a stream's tuples that pass a local filter; ``result``: a stored
    intermediate result; ``query``; ``group``: several queries with the same input nodes.
    """

    id: str
    kind: Open[NodeKind]
    label: str
    detail: str
    tuples_per_second: float = Field(description="Rate of arriving tuples, stored rows or results.")
    queries: list[str] = Field(description="Queries that need it, or the group's members.")
    layer: int = Field(description="Layer in the drawing, counted from the streams.")
    at: float = Field(description="Position within the layer; nodes are at least 1 apart.")


class PlanLinkOut(Document):
    """Tuples sent from one node to another.

    ``tuples_per_second``: tuples of ``source``, or matches with its stored rows, that are sent on
    towards ``target``. ``cpu``: CPU seconds per second for these probes; a step shared by several
    targets is split equally among them. ``shared``: number of targets of the most shared step.
    """

    source: str
    target: str
    tuples_per_second: float
    cpu: float
    shared: int
    bends: list[tuple[int, float]] = Field(
        description="(layer, position) pairs that the drawn link passes, from source to target."
    )


class JointPlanOut(Document):
    """The running joint plan of all queries.

    ``measured`` is false before the first measurement; all rates are 0 then. Rates are of the
    newest periods, and include tuples withheld by rations. ``cpu`` is CPU seconds per second for
    all probes and results. ``queries`` counts all queries of the plan, in the graph or not.
    """

    epoch: int
    revision: int
    measured: bool
    cpu: float
    queries: int
    nodes: list[PlanNodeOut]
    links: list[PlanLinkOut]
