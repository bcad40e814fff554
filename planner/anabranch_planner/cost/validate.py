"""Checks that a plan is valid, and recomputes its cost from its probe orders and copies alone.

Reads only :class:`~anabranch_contract.plans.plan.Plan`, so it checks the plans of any optimiser. It
shares the cost model with the optimisers, but neither the graph of states nor the integer program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from anabranch_contract.plans.plan import Plan, Step
from anabranch_contract.plans.ruleset import substream_counts
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from anabranch_contract.queries.mirs import Mir, MirId, base_mir, join_keys, sub_join
from anabranch_planner.cost.aside import SetAside
from anabranch_planner.cost.candidates import in_store
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.steps import PlanError, Prefix, Trail, Trails, loads, trails
from anabranch_planner.cost.timing import LoosestBounds, Users


def cost_of(
    plan: Plan,
    queries: Sequence[JoinQuery],
    statistics: Statistics,
    *,
    parallelism: int = 1,
    partitioning: bool = True,
) -> float:
    """The cost of ``plan``: the sum over its distinct probe steps and store copies.

    Args:
        parallelism: partitions per store for which the plan was made.
        partitioning: whether the plan was made for partitioned stores.
    """
    model = CostModel(
        statistics,
        objective=plan.objective,
        parallelism=parallelism,
        partitioning=partitioning,
        bounds=LoosestBounds(queries),
        substreams=plan.substreams,
    )
    return priced(plan, trails(plan, queries), model)


def priced(
    plan: Plan,
    found: Trails,
    model: CostModel,
    rations: Mapping[tuple[str, Label], float] | None = None,
) -> float:
    """The cost under ``model`` of ``plan``, whose distinct probe steps are ``found``.

    Args:
        rations: see :func:`~.steps.loads`; None: every step processes all of its tuples.
    """
    mirs = {m.id: m for m in plan.mirs}
    taken = loads(plan, found, rations) if rations else None
    total = 0.0
    for prefix, trail in found.steps.items():
        price = step_price(trail, mirs, model)
        total += price if taken is None else taken[prefix] * price
    copies = {(c.owner, c.mir, c.partition): model.insert(mirs[c.mir]) for c in plan.copies}
    return total + sum(copies.values())


def with_costs(plan: Plan, queries: Sequence[JoinQuery], model: CostModel) -> Plan:
    """``plan`` with the costs of the plan, its steps and its copies under ``model``."""
    mirs, found = {m.id: m for m in plan.mirs}, trails(plan, queries)
    figures = {
        prefix: (
            step_price(trail, mirs, model),
            model.probe(trail.after, trail.start, trail.substream),
        )
        for prefix, trail in found.steps.items()
    }
    orders = []
    for order, prefixes in zip(plan.orders, found.orders, strict=True):
        pairs = zip(order.steps, (figures[prefix] for prefix in prefixes), strict=True)
        steps = tuple(replace(s, cost=cost, cardinality=rows) for s, (cost, rows) in pairs)
        orders.append(replace(order, steps=steps))
    copies = tuple(replace(c, insert_cost=model.insert(mirs[c.mir])) for c in plan.copies)
    cost = priced(plan, found, model)
    return replace(plan, orders=tuple(orders), copies=copies, cost=cost)


def step_price(trail: Trail, mirs: dict[MirId, Mir], model: CostModel) -> float:
    """Cost per unit of time of one step of a plan whose sub-joins are ``mirs``."""
    routed = knows(trail.query, trail.head, trail.step, mirs)
    return model.step(
        trail.before,
        trail.after,
        trail.step.target,
        trail.start,
        trail.substream,
        broadcast=not routed,
    )


def knows(query: JoinQuery, head: frozenset[Label], step: Step, mirs: dict[MirId, Mir]) -> bool:
    """Whether tuples over ``head`` have the partition attribute of the probed store copy."""
    store = mirs[step.target]
    return step.partition is None or any(
        step.partition == in_store(member, store)
        for key_class in query.classes
        if key_class.restrict(head)
        for member in key_class.restrict(frozenset(step.members))
    )


def validate_plan(plan: Plan, queries: Sequence[JoinQuery], found: Trails | None = None) -> None:
    """Check that ``plan`` answers ``queries``; ``found`` are its distinct steps.

    * Each alias of a query has one probe order (one per substream, if its tuples are split), and
      so has each member of a stored intermediate result, except for substreams whose values the
      store excludes. Each order joins all aliases of its query or intermediate result.
    * Every step has a join key with the aliases joined so far, adds new aliases, and probes a store
      of exactly these aliases.
    * Every probed intermediate result is maintained (recursively), every probed copy is kept, and
      each base relation of a join has a copy.
    * Equal prefixes of one owner access the same copy.

    Raises:
        PlanError: names the first violation.
    """
    mirs = {m.id: m for m in plan.mirs}
    copies = {(c.owner, c.mir, c.partition) for c in plan.copies}
    _require(len(copies) == len(plan.copies), "a copy is listed twice")
    counts = substream_counts(plan.substreams)
    done = [(o.owner, o.goal, o.maintains, o.start, o.substream) for o in plan.orders]
    _require(len(done) == len(set(done)), "an order is listed twice")
    owners = {o.goal: o.owner for o in plan.orders if not o.maintains}
    wanted = {
        (owners.get(q.id, ""), str(q.id), False, label, n)
        for q in queries
        for label in q.labels
        for n in range(counts.get(label, 1))
    }
    _require(wanted == {d for d in done if not d[2]}, "orders and queries do not match")
    _require(plan.queries == tuple(sorted(q.id for q in queries)), "the plan's queries differ")
    labels = {(False, str(q.id)): set(q.labels) for q in queries}
    labels |= {(True, str(m.id)): set(m.members) for m in plan.mirs}
    probed: set[tuple[str, MirId]] = set()
    access: dict[Prefix, tuple[AttrRef | None, bool]] = {}
    found = found or trails(plan, queries)
    for order, prefixes in zip(plan.orders, found.orders, strict=True):
        where = f"order of {order.goal} from {order.start}"
        covered = {order.start}
        for prefix, step in zip(prefixes, order.steps, strict=True):
            trail = found.steps[prefix]
            query, head, members = trail.query, trail.head, frozenset(step.members)
            _require(bool(members) and not members & head, f"{where} joins a label twice")
            _require(bool(join_keys(query.classes, head, members)), f"{where} is a cross product")
            _require(sub_join(query, members).id == step.target, f"{where} probes a wrong store")
            _require(step.target in mirs, f"{where} probes an unknown store")
            _require(
                (order.owner, step.target, step.partition) in copies,
                f"{where} probes a copy of {step.target} that is not kept",
            )
            routed = knows(query, head, step, mirs)
            _require(step.broadcast != routed, f"{where} has a wrong broadcast flag")
            chosen = (step.partition, step.broadcast)
            _require(access.setdefault(prefix, chosen) == chosen, f"{where} splits a shared prefix")
            probed.add((order.owner, step.target))
            covered |= members
        _require(covered == labels[order.maintains, order.goal], f"{where} lacks a label")
    kept = {(o, m) for o, m in probed if not mirs[m].is_base}
    upkeep = {
        (o, str(m), True, label, n)
        for o, m in kept
        for label in mirs[m].members
        for n in range(counts.get(label, 1))
    }
    aside = SetAside(plan.substreams, Users(queries))
    needed = {one for one in upkeep if aside.keeps_up(mirs[MirId(one[1])], *one[3:])}
    kept_up = {d for d in done if d[2]}
    _require(needed <= kept_up <= upkeep, "maintenance and probed MIRs do not match")
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
