"""What every plan must satisfy, and its cost recomputed from its orders and copies alone.

Written against :class:`~anabranch_contract.plans.plan.Plan` only, so that it checks any optimiser:
it shares the cost model with them, but neither the graph of states nor the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from anabranch_contract.queries.mirs import Mir, MirId, base_mir, join_keys, sub_join
from anabranch_planner.cost.candidates import in_store
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.timing import loosest_bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from anabranch_contract.plans.plan import Plan, ProbeOrder, Step
    from anabranch_planner.cost.statistics import Statistics


class PlanError(PlannerError):
    """A plan that does not do what its queries ask for."""


#: (owner, start, (target, members, resulting sub-join) per step): what is executed once.
Prefix = tuple[str, Label, tuple[tuple[MirId, tuple[Label, ...], MirId], ...]]


def witness(plan: Plan, order: ProbeOrder, queries: Sequence[JoinQuery]) -> JoinQuery:
    """A query that contains the order's goal: the query itself, or one that has the MIR."""
    if not order.maintains:
        found = [q for q in queries if q.id == order.goal]
    else:
        members = goal_labels(plan, order, queries)
        found = [
            q for q in queries if members <= set(q.labels) and sub_join(q, members).id == order.goal
        ]
    if not found:
        raise PlanError("unknown-goal", f"no query has the goal {order.goal!r}")
    return found[0]


def goal_labels(plan: Plan, order: ProbeOrder, queries: Sequence[JoinQuery]) -> frozenset[Label]:
    """The labels that the order must cover."""
    if order.maintains:
        members = [m.members for m in plan.mirs if m.id == order.goal]
    else:
        members = [q.labels for q in queries if q.id == order.goal]
    if not members:
        raise PlanError("unknown-goal", f"the plan does not know the goal {order.goal!r}")
    return frozenset(members[0])


def walk(
    plan: Plan, order: ProbeOrder, queries: Sequence[JoinQuery]
) -> Iterable[tuple[Prefix, Step, Mir, frozenset[Label], JoinQuery]]:
    """The order's steps as (prefix, step, sub-join before it, its labels, witness)."""
    query = witness(plan, order, queries)
    head = frozenset({order.start})
    trail: tuple[tuple[MirId, tuple[Label, ...], MirId], ...] = ()
    for step in order.steps:
        after = head | frozenset(step.members)
        trail = (*trail, (step.target, step.members, sub_join(query, after).id))
        yield (order.owner, order.start, trail), step, sub_join(query, head), head, query
        head = after


def cost_of(
    plan: Plan,
    queries: Sequence[JoinQuery],
    statistics: Statistics,
    *,
    parallelism: int = 1,
    partitioning: bool = True,
) -> float:
    """The cost of ``plan``: each distinct step once, and each copy once.

    Args:
        parallelism: partitions per store, as the plan was made for.
        partitioning: whether partition attributes count, as the plan was made for.
    """
    model = CostModel(
        statistics,
        objective=plan.objective,
        parallelism=parallelism,
        partitioning=partitioning,
        bounds=loosest_bounds(queries),
    )
    mirs = {m.id: m for m in plan.mirs}
    steps: dict[Prefix, float] = {}
    for order in plan.orders:
        for prefix, step, before, head, query in walk(plan, order, queries):
            asks_all = step.partition is not None and not knows(query, head, step, mirs)
            steps[prefix] = model.probe(before, order.start) * model.chi(broadcast=asks_all)
    copies = {(c.owner, c.mir, c.partition): model.insert(mirs[c.mir]) for c in plan.copies}
    return sum(steps.values()) + sum(copies.values())


def knows(query: JoinQuery, head: frozenset[Label], step: Step, mirs: dict[MirId, Mir]) -> bool:
    """Whether a partial result over ``head`` knows the step's partition attribute."""
    store = mirs[step.target]
    return any(
        step.partition == in_store(member, store)
        for key_class in query.classes
        if key_class.restrict(head)
        for member in key_class.restrict(frozenset(step.members))
    )


def validate_plan(plan: Plan, queries: Sequence[JoinQuery]) -> None:
    """Check that ``plan`` answers ``queries``.

    * one order per query and label, and per owner, kept MIR and member; each covers its goal
    * every step can be joined with what is covered, fills labels that are not, and probes the
      store that holds exactly those
    * every probed MIR is maintained (recursively), every probed copy is kept, and each base
      relation of a query of several has one
    * equal prefixes of one owner access the same copy

    Raises:
        PlanError: naming the first thing that does not hold.
    """
    mirs = {m.id: m for m in plan.mirs}
    copies = {(c.owner, c.mir, c.partition) for c in plan.copies}
    _require(len(copies) == len(plan.copies), "a copy is listed twice")
    done = [(o.owner, o.goal, o.maintains, o.start) for o in plan.orders]
    _require(len(done) == len(set(done)), "an order is listed twice")
    owners = {o.goal: o.owner for o in plan.orders if not o.maintains}
    wanted = {
        (owners.get(q.id, ""), str(q.id), False, label) for q in queries for label in q.labels
    }
    _require(wanted == {d for d in done if not d[2]}, "orders and queries do not match")
    _require(plan.queries == tuple(sorted(q.id for q in queries)), "the plan's queries differ")
    probed: set[tuple[str, MirId]] = set()
    access: dict[Prefix, tuple[AttrRef | None, bool]] = {}
    for order in plan.orders:
        where = f"order of {order.goal} from {order.start}"
        covered = {order.start}
        for prefix, step, _, head, query in walk(plan, order, queries):
            members = frozenset(step.members)
            _require(bool(members) and not members & head, f"{where} covers a label twice")
            _require(bool(join_keys(query.classes, head, members)), f"{where} is a cross product")
            _require(sub_join(query, members).id == step.target, f"{where} probes a wrong store")
            _require(step.target in mirs, f"{where} probes an unknown store")
            _require(
                (order.owner, step.target, step.partition) in copies,
                f"{where} probes a copy of {step.target} that is not kept",
            )
            asks_all = step.partition is not None and not knows(query, head, step, mirs)
            _require(step.broadcast == asks_all, f"{where} is wrong about a broadcast")
            chosen = (step.partition, step.broadcast)
            _require(access.setdefault(prefix, chosen) == chosen, f"{where} splits a prefix")
            probed.add((order.owner, step.target))
            covered |= members
        _require(covered == goal_labels(plan, order, queries), f"{where} misses a label")
    kept = {(o, m) for o, m in probed if not mirs[m].is_base}
    upkeep = {(o, str(m), True, label) for o, m in kept for label in mirs[m].members}
    _require(upkeep == {d for d in done if d[2]}, "maintenance and probed MIRs do not match")
    stored = {(o, m) for o, m, _ in copies}
    _require(kept <= stored, "a kept MIR has no copy")
    for query in queries:
        for relation in query.relations if len(query.labels) > 1 else ():
            base = base_mir(relation.id).id
            _require(
                (owners[query.id], base) in stored and base in mirs,
                f"relation {relation.id} of {query.id} has no store",
            )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise PlanError("bad-plan", message)
