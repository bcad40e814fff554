"""The integer program: one flow per goal over the graph of states.

Variables: ``y_e`` an edge is used; ``z_M`` an MIR is kept; ``p_{M,a}`` a copy of ``M`` partitioned
by ``a`` is kept; ``b_e >= 0`` an edge is broadcast; ``f_{g,e} >= 0`` the flow of goal ``g``.

    minimise   sum c_e y_e + sum s_e b_e + sum |M| p_{M,a}
    flow       one unit per query goal, z_M units per goal of MIR M, conserved at every state
    use        f_{g,e} <= y_e
    upkeep     sum of the flow of g over edges that probe M  <=  z_M
    copies     sum_a p_{M,a} >= z_M (1 for a base relation);  y_e <= sum_{a known} p_{M,a} + b_e
    once       sum of the flow of g over edges that fill an alias from M by attributes
               in A only  <=  sum_{a in A} p_{M,a} + sum of their b_e

*Once* holds because the aliases of a path's probes are disjoint: a path fills an alias (or all
aliases of an MIR) at most once. There is such a row per store and filled aliases: if tuples of the
probe have only attributes in ``A``, either one has a copy or the probe is broadcast. The row is
implied where every ``y_e`` is 0 or 1. It matters where flows are split: there half a copy each
would serve ``y_e = 1/2`` on several edges. There is a row for each set ``A`` of attributes known to
an edge. An edge that probes an MIR also counts if the MIR's upkeep fills the alias from the store
by attributes in ``A`` only (:mod:`fillings`). If ``A`` contains all attributes by which the alias
can be filled, the flows sum up to 1 (``z_M`` in the upkeep of ``M``): then one of ``A`` has a copy
whatever MIRs are kept.

Three measures make the program smaller without weakening it. A step has a ``b_e`` only if no copy
by its attributes costs at most ``s_e``: otherwise some optimal plan keeps that copy. An MIR
with one attribute has one copy, so ``z_M`` is also its ``p_{M,a}``. And ``y_e <= sum of p`` is
omitted where *once* rows imply it for every goal that may use ``e``.

The relaxation is much tighter than the paper's: there the rows that make an order pay for its steps
are aggregated, here every step is paid by every flow that takes it. Exactness: with y, z and p
integral every flow decomposes into paths over used edges, which are probe orders; every order is a
path; and upkeep recurses over strictly smaller MIRs, so it ends.

An edge used by only one goal needs no ``y_e``: its flow replaces it. That keeps the optimum,
because once the other y, z and p are fixed at integers, the rest is one shortest path per goal (the
flows of different goals no longer meet), which has an integral optimum.

Where copies are free (paper objective) or stores are not partitioned, ``p`` and ``b`` are absent:
no step is a broadcast, and ``z_M`` is charged the inserts of one copy. A limit on
copies or on memory restores ``p``: ``sum_a p_{M,a} <= n`` and ``sum bytes(M) p_{M,a} <= budget``. A
cap on intermediate results is ``sum z_M <= n``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import chain

from anabranch_contract.queries.joins import AttrRef
from anabranch_planner.search.copies import ROUNDING
from anabranch_planner.search.fillings import NO_STEPS, FillingNeed, either, fillings, needs
from anabranch_planner.search.problem import EdgeId, PlanProblem, Sub
from anabranch_planner.search.routes import Routing
from anabranch_planner.solvers.program import INFINITY, Program


@dataclass(slots=True)
class Variables:
    """An integer program, and the meaning of its variables in the planning problem.

    Attributes:
        edges: per edge, its variable ``y_e``, or the flow that replaces it.
        flows: flow variables per goal, in the order of the goal's edges.
    """

    program: Program = field(default_factory=Program)
    edges: dict[EdgeId, int] = field(default_factory=dict)
    mirs: dict[Sub, int] = field(default_factory=dict)
    copies: dict[tuple[Sub, AttrRef], int] = field(default_factory=dict)
    broadcasts: dict[EdgeId, int] = field(default_factory=dict)
    flows: list[list[int]] = field(default_factory=list)

    def of(self, problem: PlanProblem, flows: list[list[int]]) -> Variables:
        """Restriction to the variables of a part of the problem, whose goals have ``flows``."""
        edges = {e for goal in problem.goals for e in goal.edges}
        return Variables(
            self.program,
            {e: i for e, i in self.edges.items() if e in edges},
            {m: i for m, i in self.mirs.items() if m in problem.mirs},
            {c: i for c, i in self.copies.items() if c[0] in problem.partitions},
            {e: i for e, i in self.broadcasts.items() if e in edges},
            flows,
        )


def formulate(problem: PlanProblem, at_most: float = INFINITY) -> Variables:
    """Build the integer program of a planning problem.

    Args:
        at_most: the cost of a known plan. Costs are not negative, so a single element that costs
            more is in no optimal plan; it is fixed to zero, which also limits coefficients.
    """
    made = Variables()
    program, graph = made.program, problem.graph
    uses = Counter(chain.from_iterable(goal.edges for goal in problem.goals))
    for e, count in uses.items():
        if count > 1:
            made.edges[e] = program.variable(graph.cost[e] + problem.step_extra(e), integer=True)
    for mir in problem.mirs:
        cost = 0.0 if problem.charged else problem.copy_price(mir, None)
        made.mirs[mir] = program.variable(cost, integer=True)
    counted = [i for mir, i in made.mirs.items() if mir not in problem.paid_mirs]
    if problem.most_mirs is not None and problem.most_mirs < len(counted):
        program.row(-INFINITY, float(problem.most_mirs), counted, [1.0] * len(counted))
    for index in range(len(problem.goals)):
        _add_flow(problem, made, index, uses)
    if problem.charged:
        _add_copies(problem, made)
    else:
        program.offset = sum(problem.copy_price(store, None) for store in problem.required)
        if problem.memory is not None:
            _add_memory(problem, made, {mir: [i] for mir, i in made.mirs.items()})
    limit = at_most * (1 + 1e-9)
    for i, cost in enumerate(program.costs):
        if cost > limit:
            program.costs[i] = program.tops[i] = 0.0
    return made


def _add_flow(problem: PlanProblem, made: Variables, index: int, uses: dict[EdgeId, int]) -> None:
    """Add the flow of a goal: conservation at states, use of edges, upkeep of results."""
    goal, graph, program, mirs = problem.goals[index], problem.graph, made.program, made.mirs
    tails, heads, targets = graph.tail, graph.head, graph.target
    balance: dict[int, tuple[list[int], list[float]]] = {}
    probing: dict[Sub, list[int]] = {}
    flows = []
    for e in goal.edges:
        if uses[e] > 1:
            flow = program.variable(0.0, integer=False)
            program.row(-INFINITY, 0.0, (flow, made.edges[e]), (1.0, -1.0))
        else:
            flow = program.variable(graph.cost[e] + problem.step_extra(e), integer=False)
            made.edges[e] = flow
        flows.append(flow)
        if tails[e] != goal.root:
            indices, values = balance[tails[e]]
            indices.append(flow)
            values.append(-1.0)
        entry = balance.get(heads[e])
        if entry is None:
            balance[heads[e]] = ([flow], [1.0])
        else:
            entry[0].append(flow)
            entry[1].append(1.0)
        if targets[e] in mirs:
            probing.setdefault(targets[e], []).append(flow)
    made.flows.append(flows)
    for state, (indices, values) in balance.items():
        if state != goal.sink:
            program.row(0.0, 0.0, indices, values)
        elif goal.mir is None:
            program.row(1.0, 1.0, indices, values)
        else:
            program.row(0.0, 0.0, (*indices, mirs[goal.mir]), (*values, -1.0))
    for mir, found in probing.items():
        program.row(-INFINITY, 0.0, (*found, mirs[mir]), (*([1.0] * len(found)), -1.0))


def _add_copies(problem: PlanProblem, made: Variables) -> None:
    """Add variables for copies of stores, and rows that require the copies."""
    graph, program = problem.graph, made.program
    for store, attributes in problem.partitions.items():
        if len(attributes) < 2 and store in made.mirs:
            # The only copy of an intermediate result exists if and only if the result is stored.
            attribute = attributes[0] if attributes else None
            program.costs[made.mirs[store]] += problem.copy_price(store, attribute)
            if attribute is not None:
                made.copies[store, attribute] = made.mirs[store]
            continue
        if not attributes:
            # Stores are not partitioned: every step can probe the single copy.
            program.offset += problem.copy_price(store, None)
            continue
        indices = []
        for attribute in attributes:
            made.copies[store, attribute] = program.variable(
                problem.copy_price(store, attribute), integer=True
            )
            indices.append(made.copies[store, attribute])
        ones = [1.0] * len(indices)
        if store in made.mirs:
            program.row(0.0, INFINITY, (*indices, made.mirs[store]), (*ones, -1.0))
        else:
            program.row(1.0, INFINITY, indices, ones)
        if problem.most_copies is not None and problem.most_copies < len(indices):
            program.row(-INFINITY, float(problem.most_copies), indices, ones)
    asking = [e for e in made.edges if _asks(problem, e)]
    for e in asking:
        if _may_be_broadcast(problem, e):
            made.broadcasts[e] = program.variable(graph.spread[e], integer=False)
    served = _add_once(problem, made)
    for e in asking:
        if e not in served:
            broadcast = frozenset((e,)) if e in made.broadcasts else NO_STEPS
            serving = _serving(
                problem, made, graph.target[e], FillingNeed(graph.known[e], broadcast)
            )
            program.row(-INFINITY, 0.0, [made.edges[e], *serving], [1.0, *([-1.0] * len(serving))])
    if problem.memory is not None:
        copies: dict[Sub, list[int]] = {}
        for (store, _), i in made.copies.items():
            copies.setdefault(store, []).append(i)
        _add_memory(problem, made, copies)


def _asks(problem: PlanProblem, edge: EdgeId) -> bool:
    """Whether some choice of copies makes the step a broadcast, since its tuples lack one of the
    candidate partition attributes."""
    several = len(problem.partitions[problem.graph.target[edge]])
    return problem.graph.known[edge] != (1 << several) - 1


def _may_be_broadcast(problem: PlanProblem, edge: EdgeId) -> bool:
    """Whether broadcasting the step may be cheaper than every copy to which it could be routed.

    Otherwise some optimal plan keeps such a copy instead, unless copies are limited.
    """
    store, known = problem.graph.target[edge], problem.graph.known[edge]
    attributes, most = problem.partitions[store], problem.most_copies
    if problem.memory is not None or (most is not None and most < len(attributes)):
        return True
    prices = (problem.copy_price(store, a) for i, a in enumerate(attributes) if known >> i & 1)
    return min(prices, default=INFINITY) > problem.graph.spread[edge]


def _add_memory(problem: PlanProblem, made: Variables, stores: dict[Sub, list[int]]) -> None:
    """Add the row of the memory budget: copies beyond one per base store must fit its rest.

    Sizes are fractions of that rest, and copies larger than it are excluded: a solver's tolerance
    is absolute, and bytes differ by orders of magnitude. The row adds half of the permitted
    rounding (:data:`ROUNDING`), so that exact fits are feasible and no feasible point exceeds it.

    Args:
        stores: store -> the variables that each stand for one copy of the store.
    """
    assert problem.memory is not None
    program = made.program
    rest = problem.memory * (1 + ROUNDING / 2) - sum(problem.bytes[s] for s in problem.required)
    room = 1.0
    indices: list[int] = []
    sizes: list[float] = []
    for store, variables in stores.items():
        size, kept = problem.bytes[store], store not in made.mirs
        if size > rest and kept:
            program.row(-INFINITY, 1.0, variables, [1.0] * len(variables))
        elif size > rest:
            for i in variables:
                program.tops[i] = 0.0
        elif size > 0:
            indices += variables
            sizes += [size / rest] * len(variables)
            room += size / rest if kept else 0.0
    if indices:
        program.row(-INFINITY, room, indices, sizes)


def _copies(problem: PlanProblem, made: Variables, store: Sub, known: int) -> list[int]:
    """Variables of the copies of ``store`` partitioned by an attribute in the mask ``known``."""
    return [
        made.copies[store, a] for i, a in enumerate(problem.partitions[store]) if known >> i & 1
    ]


def _add_once(problem: PlanProblem, made: Variables) -> set[EdgeId]:
    """Add the *once* rows (see the module): requirements on the copies of a store.

    Returns:
        The steps that need no *copies* row of their own, because these rows already require a copy
        by an attribute of the step's tuples if a goal takes the step.
    """
    if all(len(attributes) < 2 for attributes in problem.partitions.values()):
        # Each store has only one possible copy.
        return set()
    target = problem.graph.target
    upkeep = needs(problem, made.broadcasts)
    always: dict[tuple[int | None, Sub], dict[FillingNeed, None]] = {}
    asking: set[EdgeId] = set()
    for goal, flows in zip(problem.goals, made.flows, strict=True):
        at = dict(zip(goal.edges, flows, strict=True))
        kept = None if goal.mir is None else made.mirs[goal.mir]
        served: set[EdgeId] = set()
        for (store, label), ways in fillings(problem, goal, upkeep, made.broadcasts).items():
            whole = either(need for _, need in ways)
            if label is not None:
                # Every path adds the alias, so the requirement holds whatever the flows are.
                always.setdefault((kept, store), {})[whole] = None
            for known in dict.fromkeys(need.known for _, need in ways):
                together = [(e, need) for e, need in ways if not need.known & ~known]
                steps = either(need for _, need in together).steps
                if label is None or known != whole.known:
                    if len(together) == 1:
                        continue
                    less = _serving(problem, made, store, FillingNeed(known, steps))
                    made.program.row(
                        -INFINITY,
                        0.0,
                        [*(at[e] for e, _ in together), *less],
                        [*([1.0] * len(together)), *([-1.0] * len(less))],
                    )
                if not steps:
                    served.update(
                        e for e, need in together if target[e] == store and need.known == known
                    )
        asking.update(e for e in goal.edges if e not in served)
    for (kept, store), several in always.items():
        _add_needs(problem, made, kept, store, several)
    return made.edges.keys() - asking


def _add_needs(
    problem: PlanProblem,
    made: Variables,
    kept: int | None,
    store: Sub,
    several: Collection[FillingNeed],
) -> None:
    """Add rows of the program for ``several`` requirements, always or if ``kept`` is 1."""
    every = (1 << len(problem.partitions[store])) - 1
    free = [need.known for need in several if not need.steps]
    for need in several:
        implied = any(k != need.known and not k & ~need.known for k in free)
        # The requirement is always satisfied, because a store has at least one copy.
        if need.known == every or implied:
            continue
        serving = _serving(problem, made, store, need)
        ones = [1.0] * len(serving)
        if kept is None:
            made.program.row(1.0, INFINITY, serving, ones)
        else:
            made.program.row(0.0, INFINITY, [*serving, kept], [*ones, -1.0])


def _serving(problem: PlanProblem, made: Variables, store: Sub, need: FillingNeed) -> list[int]:
    """Variables of the copies and broadcasts that satisfy ``need``: one of them has to be 1."""
    steps = [made.broadcasts[e] for e in sorted(need.steps)]
    return _copies(problem, made, store, need.known) + steps


def start_values(problem: PlanProblem, made: Variables, routing: Routing) -> list[float]:
    """Convert ``routing`` to a feasible point of the program, for a solver to start from.

    The point costs no more: if the program has no broadcast variable for a step, a copy is added.
    """
    values = [0.0] * made.program.variables
    for index, path in routing.routes.items():
        goal = problem.goals[index]
        if goal.mir is not None:
            values[made.mirs[goal.mir]] = 1.0
        used = set(path)
        for e, flow in zip(goal.edges, made.flows[index], strict=True):
            if e in used:
                values[flow] = values[made.edges[e]] = 1.0
                if made.copies and routing.accesses[e].broadcast:
                    known = e in made.broadcasts
                    serving = made.broadcasts[e] if known else _cheapest(problem, made, e)
                    values[serving] = 1.0
    for store, kept in routing.copies.items():
        for attribute in kept:
            if attribute is not None and (store, attribute) in made.copies:
                values[made.copies[store, attribute]] = 1.0
    return values


def _cheapest(problem: PlanProblem, made: Variables, edge: EdgeId) -> int:
    """Variable of the cheapest store copy by an attribute that the tuples of ``edge`` have."""
    store, known = problem.graph.target[edge], problem.graph.known[edge]
    return min(_copies(problem, made, store, known), key=lambda i: made.program.costs[i])
