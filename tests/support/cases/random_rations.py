"""Rations of a batch: random ones, or by an allocation at random prices and budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from anabranch_contract.plans.rations import Allocation, Ranking, Ration, RationSchedule
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.queries.joins import JoinQuery, Label, Stream
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.queries.types import key_type
from anabranch_planner.allocation.of_ruleset import forest_of
from anabranch_planner.allocation.rankings import goal_name, rationed_goals, tied_queries
from anabranch_planner.allocation.schedule import schedule

_SHARES = (0.0, 0.05, 0.3, 0.5, 0.7, 0.95)


def random_rations(rules: Ruleset, queries: Sequence[JoinQuery], rng: Random) -> tuple[Ration, ...]:
    """Draw random rations for a batch that runs ``rules``.

    Args:
        queries: the queries of ``rules``.
    """
    stream_of = {r.id: r.stream for r in rules.relations}
    streams = {s.name: s for s in rules.streams}
    found: list[Ration] = []
    outer = {str(query.id) for query in queries if query.outer is not None}
    for query in queries:
        if query.outer is not None:
            found += _outer(
                query, {m.label: streams[stream_of[m.relation]] for m in query.members}, rng
            )
        if registered(query.id) in outer:
            continue
        of = {m.label: streams[stream_of[m.relation]] for m in query.members}
        repeated = Counter(s.name for s in of.values())
        shared = _universe(query, of)
        if shared and rng.random() < 0.4:
            share = rng.choice(_SHARES)
            found += [Ration(query.id, a, share, r) for a, r in rng.choice(shared).items()]
            continue
        for label, stream in of.items():
            ranking = _uniform(stream, rng, alone=repeated[stream.name] == 1)
            if ranking is not None and rng.random() < 0.7:
                found.append(Ration(query.id, label, rng.choice(_SHARES), ranking))
    return tuple(sorted(found))


def planned_rations(
    rules: Ruleset, queries: Sequence[JoinQuery], allocation: Allocation, rng: Random
) -> tuple[Ration, ...]:
    """Return the rations of a batch by the schedule of ``allocation``, made as in the service.

    Prices of steps, results, floors, priorities and the budget are random.
    """
    streams = {s.name: s for s in rules.streams}
    goals = rationed_goals(queries, streams)
    by_name = {goal_name(goal.query, goal.start): goal for goal in goals}
    forest = forest_of(
        rules,
        {(goal.query, goal.start) for goal in goals},
        price=lambda rule: rng.expovariate(1.0),
        results=lambda query, edge: rng.expovariate(1.0),
        own=lambda query, edge: rng.expovariate(10.0),
    )
    if not forest.full:
        return ()
    floors = {q: rng.choice((0.2, 0.6)) for q in forest.outputs if rng.random() < 0.3}
    priorities = {q: rng.choice((0, 0, 1)) for q in forest.outputs}
    best = schedule(forest, allocation, priorities, floors, tied=tied_queries(goals))
    named = tuple(by_name[goal.query, goal.start] for goal in forest.goals)
    found = RationSchedule(rules.epoch, rules.revision, named, best.points, allocation)
    return found.rations(rng.random())


def _outer(query: JoinQuery, of: dict[Label, Stream], rng: Random) -> list[Ration]:
    """Return one ration for the pairs and left rows of an outer join, by a common key class."""
    shared = _universe(query, of)
    assert query.left is not None
    if not shared or rng.random() < 0.2:
        return []
    share, rankings = rng.choice(_SHARES), rng.choice(shared)
    by_alias = {m.alias: rankings[m.label] for m in query.members}
    return [
        Ration(one.id, m.label, share, by_alias[m.alias])
        for one in query.planned
        for m in one.members
        if m.alias in by_alias
    ]


def _uniform(stream: Stream, rng: Random, *, alone: bool) -> Ranking | None:
    """A ranking by batches; for a stream that a query reads twice, by its event time only."""
    if not alone:
        if stream.event_time is None:
            return None
        return Ranking(((stream.event_time, "timestamp"),), by_batch=True)
    typed = [(name, key_type([kind])) for name, kind in stream.columns]
    usable = [(name, kind) for name, kind in typed if kind is not None]
    picked = rng.sample(usable, rng.randint(1, len(usable)))
    return Ranking(tuple(picked), by_batch=True)


def _universe(query: JoinQuery, of: dict[Label, Stream]) -> list[dict[Label, Ranking]]:
    """Return the key classes that all aliases share as plain columns, as rankings of each label."""
    found = []
    for one in query.classes:
        columns = {
            label: next(
                (
                    str(m.attribute)
                    for m in one.members
                    if m.label == label and m.attribute in dict(stream.columns)
                ),
                None,
            )
            for label, stream in of.items()
        }
        if all(columns.values()):
            found.append(
                {
                    label: Ranking(((column, one.type),), by_batch=False)
                    for label, column in columns.items()
                    if column is not None
                }
            )
    return found
