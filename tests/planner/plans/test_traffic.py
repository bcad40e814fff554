"""Compare predicted traffic between hosts with tuples routed by the rules."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from random import Random

import pytest

from anabranch_contract.plans.plan import Plan
from anabranch_contract.plans.ruleset import (
    Edge,
    KeyPart,
    ProbeRule,
    Ruleset,
    StoreSpec,
)
from anabranch_contract.queries.joins import JoinQuery, Label
from anabranch_planner.cost.exchange import ARRIVAL, ExchangeModel
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_planner.plans.traffic import known_attribute, traffic
from tests.support.cases.queries import given_statistics
from tests.support.cases.small_problems import any_query
from tests.support.cases.states import stream

#: Number of rows of a relation, and of values of an attribute: a row has about one partner.
ROWS = VALUES = 240
HOSTS, PARTITIONS = 3, 12
NAMES, ATTRIBUTES = "RSTUV", "abc"

Row = tuple[int, ...]
Rows = dict["Label", Row]


@pytest.mark.parametrize("seed", range(20))
def test_tuples_cross_hosts_as_often_as_predicted(seed: int) -> None:
    rng = Random(f"traffic {seed}")
    sizes = rng.choice([(3, 3), (4,), (3, 4), (5,)])
    queries = [drawn(rng, f"q{i}", size) for i, size in enumerate(sizes)]
    exchange = ExchangeModel(HOSTS)
    statistics = given_statistics(
        default=100.0, selectivity_default=rng.choice([0.002, 0.01, 0.05]), exchange=exchange
    )
    plan = optimise(queries, statistics, Options(parallelism=PARTITIONS))
    ruleset = ruleset_of(plan, queries)
    model = CostModel(statistics, parallelism=PARTITIONS, bounds=LoosestBounds(queries))
    found = traffic(ruleset, queries, model, exchange)
    probed, sent = Simulation(ruleset, plan, rng).run()
    assert found.keys() == {rule.out for rule in ruleset.probe_rules}
    kinds = Counter[str]()
    for rule in ruleset.probe_rules:
        copies = found[rule.out].tuples / found[rule.out].probes
        count = probed[rule.out]
        if copies in (0.0, HOSTS - 1):
            assert sent[rule.out] == pytest.approx(copies * count)
            kinds["stays" if copies == 0.0 else "everywhere"] += 1
        elif count >= 100:
            assert sent[rule.out] / count == pytest.approx(copies, abs=0.15)
            kinds["elsewhere"] += 1
    assert kinds["elsewhere"]


def drawn(rng: Random, name: str, size: int) -> JoinQuery:
    """A random query that does not compare two attributes of one label, which would be a filter."""
    while True:
        query = any_query(rng, name, size)
        if all(len({m.label for m in c.members}) == len(c.members) for c in query.classes):
            return query


def test_tuples_take_the_columns_that_somebody_reads_later() -> None:
    streams = {
        "R": stream("R", "a", "x", "y", timed=False),
        "S": stream("S", "a", "b", timed=False),
        "T": stream("T", "b", "z", timed=False),
    }
    sql = "SELECT R.x, T.z FROM R JOIN S ON R.a = S.a JOIN T ON S.b = T.b"
    query = parse_sql("q", sql, streams, None)
    widths = {"R": {"a": 8.0, "x": 100.0, "y": 1000.0}, "S": {"a": 8.0, "b": 4.0}}
    exchange = ExchangeModel(2, {r.id: widths.get(r.stream, {}) for r in query.relations})
    statistics = given_statistics(default=100.0, selectivity_default=0.01, exchange=exchange)
    plan = optimise([query], statistics, Options(parallelism=4, mir=False))
    ruleset = compile_ruleset(
        plan, [query], list(streams.values()), epoch=0, parallelism=4, sinks={}
    )
    model = CostModel(statistics, parallelism=4, bounds=LoosestBounds([query]))
    found = {
        edge: one.bytes / one.tuples
        for edge, one in traffic(ruleset, [query], model, exchange).items()
        if edge.startswith("R>")
    }
    # R's key is sent to the first host; what S adds to the second; R.x and the arrival to both.
    assert found == {"R>S": ARRIVAL + 100.0 + 8.0, "R>S>T": ARRIVAL + 100.0 + 4.0}


def test_a_store_of_one_partition_is_on_one_host() -> None:
    rng = Random(1)
    query = any_query(rng, "q", 4)
    exchange = ExchangeModel(4)
    statistics = given_statistics(default=100.0, selectivity_default=0.01, exchange=exchange)
    plan = optimise([query], statistics, Options(mir=False))
    ruleset = ruleset_of(plan, [query], parallelism=1)
    model = CostModel(statistics)
    found = traffic(ruleset, [query], model, exchange)
    for rule in ruleset.probe_rules:
        first = rule.edge.startswith("in:")
        assert found[rule.out].tuples == (75.0 if first else 0.0)


def test_what_arrives_where_its_partition_is_is_not_sent() -> None:
    rng = Random(1)
    query = any_query(rng, "q", 4)
    exchange = ExchangeModel(4, locality=0.75)
    statistics = given_statistics(default=100.0, selectivity_default=0.01, exchange=exchange)
    plan = optimise([query], statistics, Options(mir=False, parallelism=PARTITIONS))
    ruleset = ruleset_of(plan, [query])
    model = CostModel(statistics, parallelism=PARTITIONS)
    near, far = (traffic(ruleset, [query], model, known) for known in (exchange, ExchangeModel(4)))
    for rule in ruleset.probe_rules:
        first = rule.edge.startswith("in:") and known_attribute(rule, store_of(ruleset, rule))
        part = 0.25 / 0.75 if first else 1.0
        assert near[rule.out].tuples == pytest.approx(part * far[rule.out].tuples)
    assert any(near[edge].tuples < far[edge].tuples for edge in near)


def store_of(ruleset: Ruleset, rule: ProbeRule) -> StoreSpec:
    return next(spec for spec in ruleset.stores if spec.id == rule.store)


def ruleset_of(plan: Plan, queries: Sequence[JoinQuery], parallelism: int = PARTITIONS) -> Ruleset:
    streams = [stream(name, *ATTRIBUTES, timed=False) for name in NAMES]
    return compile_ruleset(plan, queries, streams, epoch=0, parallelism=parallelism, sinks={})


class Simulation:
    """Simulation of random rows, each stored on the host of its partition before the first probe.

    Equal values are in one partition, whatever the store.
    """

    def __init__(self, ruleset: Ruleset, plan: Plan, rng: Random) -> None:
        self.ruleset, self.rng = ruleset, rng
        self.rows = {
            name: [tuple(rng.randrange(VALUES) for _ in ATTRIBUTES) for _ in range(ROWS)]
            for name in NAMES
        }
        self.owner = [number % HOSTS for number in range(VALUES)]
        rng.shuffle(self.owner)
        self.relation_of = {x: r for q in ruleset.queries for _, x, r in q.members}
        self.mirs = {mir.id: mir for mir in plan.mirs}
        self.specs = {spec.id: spec for spec in ruleset.stores}
        self.stored = {spec.id: self.content(spec) for spec in ruleset.stores}

    def run(self) -> tuple[Counter[str], Counter[str]]:
        """Return edge -> number of tuples that probed, and that were sent to another host."""
        probed, sent = Counter[str](), Counter[str]()
        made: dict[Edge, list[tuple[Rows, int]]] = {}
        for rule in self.ruleset.paths:
            coming = made.get(rule.edge)
            if coming is None:
                rows = self.rows[self.relation_of[rule.start]]
                coming = [({rule.start: row}, self.rng.randrange(HOSTS)) for row in rows]
            spec, results = self.specs[rule.store], made.setdefault(rule.out, [])
            rename = dict(zip(spec.members, rule.members, strict=True))
            index = self.index(spec, rule.key)
            routing = next((k for k in rule.key if (k.build, k.type) == spec.partition), None)
            for tuples, here in coming:
                probed[rule.out] += 1
                if routing is None:
                    sent[rule.out] += HOSTS - 1
                else:
                    sent[rule.out] += self.owner[value(tuples, routing.probe)] != here
                key = tuple(value(tuples, k.probe) for k in rule.key)
                for found, there in index.get(key, ()):
                    more = {rename[label]: row for label, row in found.items()}
                    results.append(({**tuples, **more}, there))
        return probed, sent

    def content(self, spec: StoreSpec) -> list[tuple[Rows, int]]:
        mir, tuples = self.mirs[spec.mir], [Rows()]
        for label, relation in zip(spec.members, mir.relations, strict=True):
            pairs = [
                (known[0], own)
                for c in mir.classes
                for own in c.members
                if own.label == label
                and (known := [m for m in c.members if tuples and m.label in tuples[0]])
            ]
            partners: dict[Row, list[Row]] = defaultdict(list)
            for row in self.rows[relation]:
                partners[tuple(value({label: row}, own) for _, own in pairs)].append(row)
            tuples = [
                {**rows, label: row}
                for rows in tuples
                for row in partners[tuple(value(rows, known) for known, _ in pairs)]
            ]
        assert spec.partition is not None
        attribute, _ = spec.partition
        return [(rows, self.owner[value(rows, attribute)]) for rows in tuples]

    def index(
        self, spec: StoreSpec, key: Sequence[KeyPart]
    ) -> Mapping[Row, list[tuple[Rows, int]]]:
        found: dict[Row, list[tuple[Rows, int]]] = defaultdict(list)
        for rows, host in self.stored[spec.id]:
            found[tuple(value(rows, k.build) for k in key)].append((rows, host))
        return found


def value(rows: Rows, ref: object) -> int:
    return rows[ref.label][ATTRIBUTES.index(ref.attribute)]  # type: ignore[attr-defined]
