"""Tests of replay scenarios without Spark: SQL, plans, rulesets, and their interpreter, compared
with DuckDB.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from anabranch_contract.plans.plan import Optimizer, Plan
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_planner.solvers.deadline import Deadline
from tests.support.cases.random_plans import random_checks, random_plan
from tests.support.oracles.history import record
from tests.support.oracles.interpreter import interpret
from tests.support.oracles.oracle import Oracle, from_spark
from tests.support.scenarios.draw import Generated, generate, generate_theta
from tests.support.scenarios.file import read_scenario
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.in_memory import load, plain


@pytest.mark.parametrize("seed", mostly_slow(range(100, 104)))
def test_scenario_gives_what_duckdb_gives(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(104, 160))
def test_many_scenarios_give_what_duckdb_gives(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 60))]
)
def test_joins_without_equalities_give_what_duckdb_gives(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path, generate_theta)


def check(seed: int, folder: Path, draw: Callable[[int, Path], Generated] = generate) -> None:
    rng, checks = Random(seed), Random(seed + 1)
    generated = draw(seed, folder)
    scenario = read_scenario(generated.path)
    streams, batches = load(scenario)
    queries = {
        name: parse_sql(name, entry.sql, streams, entry.window)
        for name, entry in scenario.queries.items()
    }
    epochs: list[tuple[Ruleset, int]] = []
    for first in range(0, len(batches), scenario.every):
        running = [
            queries[name]
            for name, entry in scenario.queries.items()
            if scenario.next_epoch(entry.register_at) <= first
            and (entry.expire_at is None or first < scenario.next_epoch(entry.expire_at))
        ]
        ruleset = compile_ruleset(
            plan(running, rng),
            running,
            list(streams.values()),
            epoch=len(epochs),
            parallelism=2,
            sinks={},
        )
        ruleset = random_checks(ruleset, checks)
        epochs.append((ruleset, min(scenario.every, len(batches) - first)))
    history = record(list(streams.values()), batches)
    outcome = interpret(epochs, history, expire=rng.random() < 0.5)
    oracle = Oracle(scenario)
    try:
        for name in scenario.streams:
            counts = oracle.counts(name)
            assert (counts.late, counts.invalid) == (history.late[name], history.invalid[name])
        for query_id, activation in outcome.activations.items():
            got = Counter(map(comparable, outcome.results[query_id].values()))
            entry = scenario.queries[query_id]
            for described in (
                generated.queries[query_id],
                from_spark(entry.sql, oracle.columns()),
            ):
                rows = oracle.rows(described, entry, activation)
                assert got == Counter(map(comparable, rows)), query_id
    finally:
        oracle.close()


def plan(queries: Sequence[JoinQuery], rng: Random) -> Plan:
    """Return a random plan, or that of a random optimiser."""
    if rng.random() < 0.5:
        return random_plan(queries, rng, apart=True)
    return optimise(
        queries,
        Statistics(),
        Options(
            optimizer=rng.choice(list(Optimizer)), parallelism=2, deadline=Deadline(seconds=0.5)
        ),
    )


def comparable(row: Sequence[object]) -> tuple[object, ...]:
    """Return ``row`` with values whose equality and hash agree in Python."""
    values = [plain(value) for value in row]
    return tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in values)
