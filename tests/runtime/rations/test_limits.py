"""Tests of the limits of edges, which follow from the rations of the goals behind them."""

from __future__ import annotations

from random import Random

from anabranch_contract.plans.plan import Optimizer
from anabranch_contract.plans.rations import Ranking, Ration, RationedBatches
from anabranch_contract.plans.ruleset import Edge, Ruleset, arrival_edge
from anabranch_contract.queries.joins import JoinQuery, Label, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_runtime.index.ranks import limit
from anabranch_runtime.rations.limits import noted, rationing
from tests.support.cases.random_plans import random_plan

_LONG = parse_type("bigint")
STREAMS = {
    "r": Stream(StreamName("r"), (("a", _LONG), ("x", _LONG))),
    "s": Stream(StreamName("s"), (("a", _LONG), ("b", _LONG))),
    "t": Stream(StreamName("t"), (("b", _LONG), ("c", _LONG))),
    "u": Stream(StreamName("u"), (("c", _LONG), ("x", _LONG))),
}
SQL = {
    "short": "SELECT r.x FROM r JOIN s ON r.a = s.a",
    "long": "SELECT r.x FROM r JOIN s ON r.a = s.a JOIN t ON s.b = t.b JOIN u ON t.c = u.c",
}
BY_BATCH = Ranking((("a", "bigint"),), by_batch=True)
BY_KEY = Ranking((("a", "bigint"),), by_batch=False)


def _queries() -> list[JoinQuery]:
    return [parse_sql(name, sql, STREAMS) for name, sql in SQL.items()]


def _rules(seed: int | None = None, mirs: float = 0.0) -> Ruleset:
    queries = _queries()
    plan = (
        optimise(queries, Statistics(), Options(optimizer=Optimizer.SHARED))
        if seed is None
        else random_plan(queries, Random(seed), mirs=mirs, apart=True)
    )
    return compile_ruleset(plan, queries, tuple(STREAMS.values()), epoch=0, parallelism=1, sinks={})


def _label(query: str, alias: str) -> Label:
    found = next(q for q in _queries() if q.id == query)
    return next(m.label for m in found.members if m.alias == alias)


def _ration(query: str, alias: str, share: float, ranking: Ranking = BY_BATCH) -> Ration:
    return Ration(_queries()[list(SQL).index(query)].id, _label(query, alias), share, ranking)


def _below(rules: Ruleset, edge: Edge) -> set[tuple[str, Label]]:
    """Return the goals behind an edge."""
    starts = {p.out: p.start for p in rules.probe_rules}
    found = {(str(o.query), starts[edge]) for o in rules.output_rules if o.edge == edge}
    for probe in rules.probe_rules:
        if probe.edge == edge and probe.start == starts[edge]:
            found |= _below(rules, probe.out)
    return found


def _kept(rules: Ruleset, edge: Edge) -> bool:
    """Whether an intermediate result is kept behind an edge."""
    return any(s.edge == edge for s in rules.store_rules) or any(
        _kept(rules, p.out) for p in rules.probe_rules if p.edge == edge
    )


def test_an_edge_has_the_largest_ration_of_the_goals_behind_it() -> None:
    rng, shares = Random(1), (0.0, 0.2, 0.5, 0.8, 1.0)
    limited = 0
    for seed in range(60):
        rules = _rules(seed, mirs=rng.choice((0.0, 0.5)))
        rations = tuple(
            _ration(name, alias, rng.choice(shares))
            for name, sql in SQL.items()
            for alias in ("rs" if name == "short" else "rstu")
        )
        by_goal = {(str(r.query), r.start): r.share for r in rations}
        found = rationing(rules, rations)
        for probe in rules.probe_rules:
            most = max((by_goal[goal] for goal in _below(rules, probe.out)), default=0.0)
            if _kept(rules, probe.out) or most == 1:
                assert found.edge(probe.out) is None
                continue
            limits = found.edge(probe.out)
            assert limits is not None
            assert max((n for _, n in limits), default=0) == limit(most)
            limited += 1
    assert limited > 100


def test_goals_that_rank_otherwise_share_an_edge_side_by_side() -> None:
    rules = _rules()
    rations = (_ration("short", "r", 0.5), _ration("long", "r", 0.2, BY_KEY))
    shared = next(
        p.out
        for p in rules.probe_rules
        if p.edge in {arrival_edge(r.id) for r in rules.relations}
        and {q for q, _ in _below(rules, p.out)} == {"short", "long"}
        and p.start == _label("short", "r")
    )
    found = rationing(rules, rations)
    assert found.edge(shared) == frozenset({(BY_BATCH, limit(0.5)), (BY_KEY, limit(0.2))})
    # A goal with ration 1 removes the limit.
    assert rationing(rules, rations[1:]).edge(shared) is None


def test_without_rations_nothing_is_limited() -> None:
    rules = _rules()
    whole = (_ration("short", "r", 1.0),)
    assert not rationing(rules, ()).edges
    assert not rationing(rules, whole).edges
    assert rationing(rules, whole).goal(whole[0].query, whole[0].start) is None


def test_batches_with_equal_rations_are_one_entry() -> None:
    one, other = (_ration("short", "r", 0.5),), (_ration("short", "r", 0.6),)
    ledger: tuple[RationedBatches, ...] = ()
    for batch, rations in enumerate((one, one, (), one, other, other)):
        ledger = noted(ledger, batch, rations)
    assert ledger == (
        RationedBatches(0, 1, one),
        RationedBatches(3, 3, one),
        RationedBatches(4, 5, other),
    )
