"""The integer program of the CLASH paper, for comparison with the tight one.

Source: Dossinger & Michel, "Optimizing Multiple Multi-Way Stream Joins", section V, as printed,
with corrections of the errors that make it incorrect:

* A variable ``x_σ`` per decorated order σ of every goal. Goals are, for each alias, every query
  and, recursively, every MIR that may be probed. (Algorithm 2 loops over queries only.)
* A variable ``y_ρ`` per step ρ, a prefix of a decorated order. Prefixes of different goals with the
  same start, stores, partitions and sub-joins are one variable.
* ``Σ x_σ = 1`` over the orders of one query and start.
* An order that probes an MIR needs one maintenance order per alias ``j`` of the MIR: ``−x_σ + Σ
  x'_j ≥ 0``. (The printed coefficient ``k_j`` would force every decorated variant.) The maintenance
  order may have any partitioning of the MIR's own store.
* An order pays for its steps in one aggregated row: ``−PCost(σ)·x_σ + Σ StepCost(ρ)·y_ρ ≥ 0``.
* Minimise ``Σ StepCost(ρ)·y_ρ``. Under the objective ``tuples`` add ``Σ |M|·p_{M,a}``, with
  ``y_ρ ≤ p_{M,a}`` for the copy that the step probes. (Every base relation is probed by some
  order, possibly one that maintains an MIR, so each has a copy.) Under the paper's objective
  copies are free.

*Cost rows.* The printed rows do not force steps without cost, and their coefficients range over as
many orders of magnitude as cardinalities. Integer weights correct both: with ``w_ρ = max(1,
round(10^4 · StepCost(ρ) / PCost(σ)))`` the row is ``−(Σ w_ρ)·x_σ + Σ w_ρ·y_ρ ≥ 0``. For any
positive weights, with x = 1 it holds only if every y of the order is 1, and with x = 0 it always
holds. So all positive weights have the same integral points. These weights are proportional to the
costs except for rounding, so the relaxation is as weak as the printed one (a fraction of x pays
only a fraction of the most expensive step), as the comparison requires.

*Exactness.* Take the integral points with x = 1 for one order per needed goal, y and p = 1 for the
steps and copies of these orders, and 0 otherwise. They are exactly the plans, with the plans'
costs. Further variables at 1 never lower the cost. Decorated orders multiply, so their number is
capped (:data:`MAX_ORDERS`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Objective, Solver
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from anabranch_contract.queries.mirs import Mir, MirId, sub_join
from anabranch_planner.cost.candidates import Labels, connected_sets, in_store
from anabranch_planner.cost.model import CostModel
from anabranch_planner.search.printed.candidates import (
    CandidateOrder,
    Probe,
    candidate_orders,
    count_orders,
    decorate,
    mirs_of,
    partition_candidates,
    sub_query,
)
from anabranch_planner.search.problem import EdgeId, PlanProblem, Sub
from anabranch_planner.search.routes import Routing
from anabranch_planner.solvers.deadline import Deadline
from anabranch_planner.solvers.interface import Request, Solution
from anabranch_planner.solvers.program import INFINITY, Program
from anabranch_planner.solvers.registry import solve

#: Maximum number of decorated orders (with partition attributes) for which the program is built.
MAX_ORDERS = 200_000
#: Maximum number of connected alias sets of a query for which its orders are counted.
MAX_SETS = 600
#: Sum of a cost row's weights, which are rounded to integers.
WEIGHTS = 1e4

#: A goal: (whether it maintains a store, id of the query or stored sub-join, starting alias).
GoalKey = tuple[bool, str, Label]


@dataclass(frozen=True, slots=True)
class PaperResult:
    """Solution of the paper's program, as elements of the problem's graph.

    Attributes:
        edges: the steps of the chosen orders; empty if the solver found no solution.
        mirs: the intermediate results that these steps probe.
        solution: the solver's result.
        variables, constraints: size of the program.
        orders: number of decorated orders in the program.
    """

    edges: tuple[EdgeId, ...]
    mirs: tuple[Sub, ...]
    solution: Solution
    variables: int
    constraints: int
    orders: int


def solve_paper(
    problem: PlanProblem,
    queries: Sequence[JoinQuery],
    *,
    solver: Solver = Solver.HIGHS,
    known: Routing | None = None,
    deadline: Deadline | None = None,
    seed: int = 0,
    threads: int = 1,
    max_orders: int = MAX_ORDERS,
) -> PaperResult:
    """Solve the integer program of the CLASH paper for ``queries``.

    Args:
        problem: the problem of ``queries`` with all its edges, as :func:`build_problem` makes it.
        known: an initial plan.
        deadline: limits the solver, and records the time per phase.

    Raises:
        PlannerError: there are more than ``max_orders`` decorated orders, or ``problem`` has
            limits or switching charges, which the paper's program does not support.
    """
    limits = problem.most_copies, problem.most_mirs, problem.memory
    limited = any(limit is not None for limit in limits)
    if limited or problem.extra_steps or problem.extra_copies:
        raise PlannerError(
            "formulation-limit",
            "the paper's formulation has no limits and no switching costs",
            field="formulation",
            remedy="use the formulation 'tight', or leave these out",
        )
    deadline = deadline or Deadline()
    with deadline.phase("build"):
        at_most = INFINITY if known is None else known.cost
        listed = formulate_paper(
            queries, problem.model, mir=bool(problem.mirs), at_most=at_most, max_orders=max_orders
        )
        start = None if known is None else listed.point(orders_of(problem, known))
    with deadline.phase("solve"):
        request = Request(listed.program, start, deadline.left(), seed, threads)
        solution = solve(solver, request)
    edges: tuple[EdgeId, ...] = ()
    mirs: tuple[Sub, ...] = ()
    if solution.values is not None:
        edges, mirs = edges_of(problem, listed.chosen(solution.values))
    return PaperResult(
        edges=edges,
        mirs=mirs,
        solution=solution,
        variables=listed.program.variables,
        constraints=listed.program.rows,
        orders=sum(len(found) for found in listed.orders.values()),
    )


def edges_of(
    problem: PlanProblem, orders: Mapping[GoalKey, CandidateOrder]
) -> tuple[tuple[EdgeId, ...], tuple[Sub, ...]]:
    """The edges of ``orders`` in the problem's graph, and the stored sub-joins that they probe."""
    graph = problem.graph
    edges: dict[EdgeId, None] = {}
    for goal in problem.goals:
        order = orders.get((goal.maintains, goal.name, goal.start), ())
        steps = {(graph.subs[graph.before[e]].labels, graph.members(e)): e for e in goal.edges}
        covered: tuple[Label, ...] = (goal.start,)
        for probe in order:
            edges[steps[covered, probe.members]] = None
            covered = tuple(sorted((*covered, *probe.members)))
    probed = {graph.target[e] for e in edges}
    return tuple(edges), tuple(m for m in problem.mirs if m in probed)


def orders_of(problem: PlanProblem, routing: Routing) -> dict[GoalKey, CandidateOrder]:
    """The decorated orders (with a partition attribute per probed store) of ``routing``."""
    graph = problem.graph
    orders: dict[GoalKey, CandidateOrder] = {}
    for index, path in routing.routes.items():
        goal = problem.goals[index]
        orders[goal.maintains, goal.name, goal.start] = tuple(
            Probe(graph.mir(graph.target[e]).id, graph.members(e), routing.accesses[e].partition)
            for e in path
        )
    return orders


@dataclass(slots=True)
class ListedProgram:
    """The paper's integer program over listed orders, with the meaning of its variables.

    Attributes:
        orders: goal -> decorated order -> its variable x.
        steps: (y of the preceding step or the start, probe, resulting sub-join) -> the step's y.
        copies: store copy -> its variable p.
        parts: variable x of an order -> the y of each step of the order.
        copy_of: y -> the p of the probed copy, where copies are charged.
    """

    program: Program = field(default_factory=Program)
    orders: dict[GoalKey, dict[CandidateOrder, int]] = field(default_factory=dict)
    steps: dict[tuple[object, Probe, MirId], int] = field(default_factory=dict)
    copies: dict[tuple[MirId, AttrRef | None], int] = field(default_factory=dict)
    parts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    copy_of: dict[int, int] = field(default_factory=dict)

    def point(self, orders: Mapping[GoalKey, CandidateOrder]) -> tuple[float, ...] | None:
        """The variables' values that represent ``orders``; None if one of these is not listed."""
        values = [0.0] * self.program.variables
        for goal, order in orders.items():
            if not order:
                continue
            x = self.orders.get(goal, {}).get(order)
            if x is None:
                return None
            values[x] = 1.0
            for y in self.parts[x]:
                values[y] = 1.0
                if y in self.copy_of:
                    values[self.copy_of[y]] = 1.0
        return tuple(values)

    def chosen(self, values: Sequence[float]) -> dict[GoalKey, CandidateOrder]:
        """The orders with value 1 in the solution ``values``, for each goal that queries need."""
        picked = {
            goal: next((o for o, x in found.items() if values[x] > 0.5), ())
            for goal, found in self.orders.items()
        }
        starts: dict[str, list[GoalKey]] = {}
        for goal in picked:
            if goal[0]:
                starts.setdefault(goal[1], []).append(goal)
        pending = [goal for goal in picked if not goal[0]]
        needed: dict[GoalKey, CandidateOrder] = {}
        while pending:
            goal = pending.pop()
            if goal not in needed:
                needed[goal] = picked[goal]
                for probe in picked[goal]:
                    pending += starts.get(probe.target, ())
        return needed


def formulate_paper(
    queries: Iterable[JoinQuery],
    model: CostModel,
    *,
    mir: bool = True,
    at_most: float = INFINITY,
    max_orders: int = MAX_ORDERS,
) -> ListedProgram:
    """Build the paper's integer program for ``queries``.

    Args:
        mir: whether intermediate results may be kept.
        at_most: the cost of a known plan; single elements that cost more are fixed to zero.
        max_orders: maximum number of decorated orders.

    Raises:
        PlannerError: there are more than ``max_orders`` orders.
    """
    several = sorted((q for q in queries if len(q.labels) > 1), key=lambda q: q.id)
    _require_few_sets(several)
    attributes = partition_candidates(several)
    partitions: dict[MirId, Sequence[AttrRef | None]] = {
        m: found if model.partitioned and found else (None,) for m, found in attributes.items()
    }
    scopes: dict[tuple[bool, str], JoinQuery] = {(False, str(q.id)): q for q in several}
    if mir:
        for query in several:
            for labels, found in mirs_of(query):
                if not found.is_base and (True, found.id) not in scopes:
                    scopes[True, found.id] = sub_query(query, labels)
    goals = {(*key, start): q for key, q in scopes.items() for start in sorted(q.labels)}
    _require_few_orders(goals, partitions, mir, max_orders)
    writer = _Writer(model, ListedProgram(), at_most * (1 + 1e-9))
    for goal, query in goals.items():
        for undecorated in candidate_orders(query, goal[2], mir=mir):
            writer.add_orders(goal, query, decorate(undecorated, partitions))
    writer.add_rows()
    return writer.listed


def _require_few_sets(queries: Iterable[JoinQuery]) -> None:
    for query in queries:
        if connected_sets(query, MAX_SETS) is None:
            raise _too_large(f"query {query.id!r} has more than {MAX_SETS} sub-joins")


def _require_few_orders(
    goals: Mapping[GoalKey, JoinQuery],
    partitions: Mapping[MirId, Sequence[AttrRef | None]],
    mir: bool,
    max_orders: int,
) -> None:
    total = 0
    for goal, query in goals.items():
        total += count_orders(query, goal[2], partitions, mir=mir)
        if total > max_orders:
            raise _too_large(f"there are more than {max_orders} decorated orders")


def _too_large(why: str) -> PlannerError:
    return PlannerError(
        "formulation-limit",
        f"the paper's formulation is too large: {why}",
        field="formulation",
        remedy="use the formulation 'tight', fewer or smaller queries, or no MIRs",
    )


@dataclass(slots=True)
class _Writer:
    """Builder of a :class:`ListedProgram`, with a cache of computed sub-joins."""

    model: CostModel
    listed: ListedProgram
    limit: float
    _steps: dict[tuple[GoalKey, Labels, tuple[Label, ...]], _StepInfo] = field(default_factory=dict)

    def add_orders(
        self, goal: GoalKey, query: JoinQuery, decorated: Iterable[CandidateOrder]
    ) -> None:
        """Add for every order a variable x, variables of its steps, and its cost row."""
        for order in decorated:
            ys: list[int] = []
            costs: list[float] = []
            head: Labels = frozenset({goal[2]})
            before: object = goal[2]
            for probe in order:
                info = self._info(goal, query, head, probe.members)
                y, cost = self._step(before, probe, info)
                ys.append(y)
                costs.append(cost)
                before, head = y, head | frozenset(probe.members)
            x = self.listed.program.variable(0.0, integer=True)
            self.listed.orders.setdefault(goal, {})[order] = x
            self.listed.parts[x] = tuple(ys)
            whole = sum(costs)
            weights = [max(1.0, round(WEIGHTS * c / whole)) if whole else 1.0 for c in costs]
            self.listed.program.row(0.0, INFINITY, [x, *ys], [-sum(weights), *weights])

    def _step(self, before: object, probe: Probe, info: _StepInfo) -> tuple[int, float]:
        """The variable y of an order's step in the paper's program, and the step's cost."""
        asks_all = probe.partition is not None and probe.partition not in info.known
        cost = self.model.step(info.before, info.after, info.store.id, None, broadcast=asks_all)
        key = (before, probe, info.after.id)
        if key not in self.listed.steps:
            y = self.listed.steps[key] = self._variable(cost)
            if self.model.objective is not Objective.PAPER:
                copy = self._copy(info.store, probe.partition)
                self.listed.copy_of[y] = copy
                self.listed.program.row(-INFINITY, 0.0, [y, copy], [1.0, -1.0])
        return self.listed.steps[key], cost

    def _copy(self, store: Mir, partition: AttrRef | None) -> int:
        key = (store.id, partition)
        if key not in self.listed.copies:
            self.listed.copies[key] = self._variable(self.model.insert(store))
        return self.listed.copies[key]

    def _variable(self, cost: float) -> int:
        if cost > self.limit:
            return self.listed.program.variable(0.0, integer=True, top=0.0)
        return self.listed.program.variable(cost, integer=True)

    def _info(
        self, goal: GoalKey, query: JoinQuery, head: Labels, members: tuple[Label, ...]
    ) -> _StepInfo:
        key = (goal, head, members)
        if key not in self._steps:
            added = frozenset(members)
            store = sub_join(query, added)
            self._steps[key] = _StepInfo(
                store=store,
                before=sub_join(query, head),
                after=sub_join(query, head | added),
                known=frozenset(
                    in_store(member, store)
                    for key_class in query.classes
                    if key_class.restrict(head)
                    for member in key_class.restrict(added)
                ),
            )
        return self._steps[key]

    def add_rows(self) -> None:
        """Add rows: one order per query and alias, and maintenance of probed sub-joins."""
        listed = self.listed
        starts: dict[str, list[dict[CandidateOrder, int]]] = {}
        for (maintains, name, _), found in listed.orders.items():
            if maintains:
                starts.setdefault(name, []).append(found)
            else:
                listed.program.row(1.0, 1.0, list(found.values()), [1.0] * len(found))
        for found in listed.orders.values():
            for order, x in found.items():
                for probe in order:
                    for upkeep in starts.get(probe.target, ()):
                        others = list(upkeep.values())
                        ones = [1.0] * len(others)
                        listed.program.row(0.0, INFINITY, [x, *others], [-1.0, *ones])


@dataclass(frozen=True, slots=True)
class _StepInfo:
    """A step's store, the sub-joins before and after it, and its tuples' join attributes."""

    store: Mir
    before: Mir
    after: Mir
    known: frozenset[AttrRef]
