"""The integer program: one flow per goal over the graph of states.

Variables: ``y_e`` an edge is used; ``z_M`` an MIR is kept; ``p_{M,a}`` a copy of ``M`` partitioned
by ``a`` is kept; ``b_e >= 0`` an edge is broadcast; ``f_{g,e} >= 0`` the flow of goal ``g``.

    minimise   sum c_e y_e + sum c_e (chi - 1) b_e + sum |M| p_{M,a}
    flow       one unit per query goal, z_M units per goal of MIR M, conserved at every state
    use        f_{g,e} <= y_e
    upkeep     sum of the flow of g over edges that probe M  <=  z_M
    copies     sum_a p_{M,a} >= z_M (1 for a base relation);  y_e <= sum_{a known} p_{M,a} + b_e

The relaxation is much tighter than the paper's: there the rows that make an order pay for its
steps are aggregated, here every step is paid by every flow that takes it. Exactness: with y, z
and p integral every flow decomposes into paths over used edges, which are probe orders; every
order is a path; and upkeep recurses over strictly smaller MIRs, so it ends.

Where copies are free (paper objective) or stores are not partitioned, ``p`` and ``b`` drop out:
a step always finds a copy that it knows, and one copy's inserts are charged to ``z_M``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch_planner.mir import MirId
from anabranch_planner.optimiser.program import INFINITY as INF
from anabranch_planner.optimiser.program import Program
from anabranch_planner.plan import Objective

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anabranch_planner.model import AttrRef
    from anabranch_planner.optimiser.problem import Edge, Goal, Problem
    from anabranch_planner.optimiser.routes import Routing


@dataclass(slots=True)
class Variables:
    """Where the problem's choices are in the program."""

    program: Program = field(default_factory=Program)
    edges: dict[Edge, int] = field(default_factory=dict)
    mirs: dict[MirId, int] = field(default_factory=dict)
    copies: dict[tuple[MirId, AttrRef], int] = field(default_factory=dict)
    broadcasts: dict[Edge, int] = field(default_factory=dict)
    flows: dict[tuple[Goal, Edge], int] = field(default_factory=dict)

    def variable(self, cost: float, *, integer: bool) -> int:
        """Add a variable; its index."""
        return self.program.variable(cost, integer=integer)

    def row(self, lower: float, upper: float, terms: Iterable[tuple[int, float]]) -> None:
        """Add a row."""
        pairs = list(terms)
        self.program.row(lower, upper, [i for i, _ in pairs], [c for _, c in pairs])


def formulate(problem: Problem, at_most: float = INF) -> Variables:
    """The program of ``problem``.

    Args:
        at_most: the cost of a known plan. Costs are not negative, so what alone costs more is
            in no optimal plan and is fixed to zero; that also keeps coefficients in range.
    """
    model = problem.model
    with_copies = model.partitioned and model.objective is not Objective.PAPER
    program = Variables()
    for edge in problem.edges:
        program.edges[edge] = program.variable(edge.cost, integer=True)
    for mir, found in problem.mirs.items():
        if not found.is_base:
            cost = 0.0 if with_copies else problem.inserts[mir]
            program.mirs[mir] = program.variable(cost, integer=True)
    if with_copies:
        _add_copies(problem, program)
    else:
        program.program.offset = sum(problem.inserts[store] for store in problem.required)
    for goal in problem.goals:
        _add_flow(problem, program, goal)
    limit = at_most * (1 + 1e-9)
    for i, cost in enumerate(program.program.costs):
        if cost > limit:
            program.program.costs[i] = program.program.tops[i] = 0.0
    return program


def _add_copies(problem: Problem, program: Variables) -> None:
    chi = problem.model.chi(broadcast=True)
    for store, attributes in problem.partitions.items():
        for attribute in attributes:
            index = program.variable(problem.inserts[store], integer=True)
            program.copies[store, attribute] = index
        terms = [(program.copies[store, a], 1.0) for a in attributes]
        if problem.is_base(store):
            program.row(1.0, INF, terms)
        else:
            program.row(0.0, INF, [*terms, (program.mirs[store], -1.0)])
    for edge, index in program.edges.items():
        attributes = problem.partitions[edge.target]
        if problem.is_base(edge.target) and edge.known == attributes and len(attributes) == 1:
            continue
        terms = [(program.copies[edge.target, a], -1.0) for a in edge.known]
        if edge.known != attributes:
            broadcast = program.variable(edge.cost * (chi - 1), integer=False)
            program.broadcasts[edge] = broadcast
            terms.append((broadcast, -1.0))
        program.row(-INF, 0.0, [(index, 1.0), *terms])


def _add_flow(problem: Problem, program: Variables, goal: Goal) -> None:
    root, sink = problem.ends[goal]
    balance: dict[object, list[tuple[int, float]]] = {}
    probing: dict[MirId, list[int]] = {}
    for edge in problem.goals[goal]:
        flow = program.variable(0.0, integer=False)
        program.flows[goal, edge] = flow
        balance.setdefault(edge.tail, []).append((flow, -1.0))
        balance.setdefault(edge.head, []).append((flow, 1.0))
        program.row(-INF, 0.0, [(flow, 1.0), (program.edges[edge], -1.0)])
        if not problem.is_base(edge.target):
            probing.setdefault(edge.target, []).append(flow)
    amount = program.mirs[MirId(goal.name)] if goal.maintains else None
    for state, terms in balance.items():
        if state == root:
            continue
        if state != sink:
            program.row(0.0, 0.0, terms)
        elif amount is None:
            program.row(1.0, 1.0, terms)
        else:
            program.row(0.0, 0.0, [*terms, (amount, -1.0)])
    for mir, flows in probing.items():
        program.row(-INF, 0.0, [*((f, 1.0) for f in flows), (program.mirs[mir], -1.0)])


def start_values(problem: Problem, program: Variables, routing: Routing) -> list[float]:
    """``routing`` as a feasible point of ``program``, for a solver to start from."""
    values = [0.0] * program.program.variables
    for goal, path in routing.routes.items():
        if goal.maintains:
            values[program.mirs[MirId(goal.name)]] = 1.0
        for edge in path:
            values[program.edges[edge]] = 1.0
            values[program.flows[goal, edge]] = 1.0
            if edge in program.broadcasts and routing.accesses[edge].broadcast:
                values[program.broadcasts[edge]] = 1.0
    for store, kept in routing.copies.items():
        for attribute in kept:
            if attribute is not None and (store, attribute) in program.copies:
                values[program.copies[store, attribute]] = 1.0
    return values
