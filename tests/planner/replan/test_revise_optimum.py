"""Compare revisions with every plan over the existing stores, including stores' maintenance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from anabranch_contract.plans.plan import Objective, Plan, ProbeOrder, Step
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.queries.joins import JoinQuery, Label
from anabranch_contract.queries.mirs import Mir, sub_join
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.validate import cost_of, knows, validate_plan
from anabranch_planner.passes import optimise
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan.revise import Revised, RevisionRequest, revise
from anabranch_planner.replan.running import RunningPlan, plan_of, running_plan
from anabranch_planner.replan.there import StoresThere
from anabranch_planner.search.printed.candidates import candidate_orders, sub_query
from tests.planner.replan.test_revise import drawn_statistics
from tests.support.cases.small_problems import any_query
from tests.support.scenarios.seeds import mostly_slow

#: (name, query, start, the intermediate result that it maintains)
Goal = tuple[str, "JoinQuery", "Label", "Mir | None"]


def plans(running: Ruleset, queries: Sequence[JoinQuery], objective: Objective) -> Iterator[Plan]:
    """Yield every combination of probe orders over the stores of ``running``."""
    before = plan_of(running, queries, objective=objective)
    there, mirs = StoresThere(running), {m.id: m for m in before.mirs}

    def step(query: JoinQuery, head: frozenset[Label], members: tuple[Label, ...]) -> Step:
        store = sub_join(query, frozenset(members))
        bare = Step(store.id, tuple(sorted(members)), None, False, 0.0, 0.0)
        copies = [replace(bare, partition=a) for a in there.partitions(store)]
        routed = [c for c in copies if knows(query, head, c, mirs)]
        return routed[0] if routed else replace(copies[0], broadcast=True)

    def orders(goal: Goal) -> Iterator[tuple[ProbeOrder, list[Goal]]]:
        name, query, start, kept = goal
        for candidate in candidate_orders(query, start, mir=True):
            head, steps, more = frozenset({start}), [], list[Goal]()
            for probe in candidate:
                store = sub_join(query, frozenset(probe.members))
                if store.id not in mirs or not (
                    store.is_base
                    or (there.serves(query, store) if kept is None else there.feeds(kept, store))
                ):
                    break
                steps.append(step(query, head, probe.members))
                head |= frozenset(probe.members)
                if not store.is_base:
                    inner = sub_query(query, frozenset(store.members))
                    more += [(str(store.id), inner, label, store) for label in store.members]
            else:
                order = ProbeOrder(name, kept is not None, start, tuple(steps), "")
                yield order, more

    known: dict[tuple[str, Label], list[tuple[ProbeOrder, list[Goal]]]] = {}

    def grow(pending: list[Goal], done: dict[tuple[str, Label], ProbeOrder]) -> Iterator[Plan]:
        if not pending:
            probed = {s.target for o in done.values() for s in o.steps}
            kept = {m.id for m in before.mirs if m.is_base or m.id in probed}
            yield replace(
                before,
                orders=tuple(done.values()),
                mirs=tuple(m for m in before.mirs if m.id in kept),
                copies=tuple(c for c in before.copies if c.mir in kept),
            )
            return
        goal, *rest = pending
        key = goal[0], goal[2]
        if key in done:
            yield from grow(rest, done)
            return
        if key not in known:
            known[key] = list(orders(goal))
        for order, more in known[key]:
            yield from grow([*rest, *more], {**done, key: order})

    yield from grow([(str(q.id), q, start, None) for q in queries for start in q.labels], {})


def problem(seed: int) -> tuple[list[JoinQuery], Ruleset, Statistics, Objective, int]:
    """Return a running ruleset, and statistics under which another plan may be better."""
    rng = Random(seed)
    sizes = rng.choice([(2, 3), (3,), (3, 3), (4,)])
    queries = [any_query(rng, f"q{i}", size) for i, size in enumerate(sizes)]
    objective, parallelism = rng.choice(tuple(Objective)), rng.choice((1, 3))
    options = Options(objective=objective, parallelism=parallelism)
    plan = optimise(queries, drawn_statistics(queries, rng), options)
    rules = compile_ruleset(plan, queries, (), epoch=1, parallelism=parallelism, sinks={})
    return queries, rules, drawn_statistics(queries, rng), objective, parallelism


def revised(running: RunningPlan, statistics: Statistics, switching: float = 0.1) -> Revised | None:
    options = Options(objective=running.plan.objective)
    return revise(
        RevisionRequest(
            statistics=statistics, running=running, number=1, options=options, switching=switching
        )
    )


#: Maximum number of enumerated plans: four fully joined relations have tens of thousands.
MOST = 4000


@pytest.mark.parametrize("twenty", mostly_slow(range(20)))
def test_no_plan_over_the_stores_that_are_there_is_cheaper(twenty: int) -> None:
    tried = upkeep = 0
    for seed in range(20 * twenty, 20 * twenty + 20):
        queries, rules, statistics, objective, parallelism = problem(seed)
        best, count = float("inf"), 0
        for plan in plans(rules, queries, objective):
            count += 1
            if count > MOST:
                break
            best = min(best, cost_of(plan, queries, statistics, parallelism=parallelism))
        if count > MOST:
            continue
        tried += 1
        running = running_plan(rules, queries, objective=objective)
        found = revised(running, statistics, switching=0.0)
        now = cost_of(running.plan, queries, statistics, parallelism=parallelism)
        assert best <= now * (1 + 1e-9), seed
        assert (now if found is None else found.plan.cost) == pytest.approx(best), seed
        if found is not None:
            validate_plan(found.plan, queries)
            upkeep += any(o.maintains for o in found.plan.orders)
    assert tried >= 12
    assert upkeep or twenty


def test_upkeep_is_re_ordered_and_pays_for_its_steps() -> None:
    """Some of these revisions change an order that maintains an intermediate result."""
    changed = 0
    for seed in range(100):
        queries, rules, statistics, objective, _ = problem(seed)
        running = running_plan(rules, queries, objective=objective)
        found = revised(running, statistics)
        if found is None:
            continue
        old = {(o.goal, o.start): _path(o) for o in running.plan.orders if o.maintains}
        new = {(o.goal, o.start): _path(o) for o in found.plan.orders if o.maintains}
        changed += any(new[key] != old[key] for key in new.keys() & old.keys())
        kept = {m.id for m in found.plan.mirs if not m.is_base}
        assert {goal for goal, _ in new} == {str(m) for m in kept}
        stores = {s.id: s for s in found.ruleset.stores}
        fed = {stores[r.store].mir for r in found.ruleset.store_rules}
        assert kept <= fed
    assert changed


def _path(order: ProbeOrder) -> list[tuple[str, tuple[Label, ...]]]:
    return [(s.target, s.members) for s in order.steps]
