"""Tests of expressions that fail: which queries fail, when, and that all others stay exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis as redis_client
import yaml

from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Boundary
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.expressions.user_functions import end_all
from tests.support.cases.states import RS
from tests.support.functions.registered import ENVIRONMENT
from tests.support.oracles.oracle import Oracle, OracleQuery, from_spark
from tests.support.scenarios.file import read_scenario
from tests.support.scenarios.script import Death, Script
from tests.support.worlds.driven import KEYS, driver, expected, job, publish, results
from tests.support.worlds.local_replay import LocalReplay

BATCHES, ROWS, EVERY = 9, 14, 3

AB = "SELECT a.id, b.id AS b_id FROM A a JOIN B b ON a.k = b.k"
ABC = "SELECT a.id, b.id AS b_id, c.id AS c_id FROM A a JOIN B b ON a.k = b.k JOIN C c ON b.m = c.m"
#: Queries that can't fail. They share as much as possible with those below.
SOUND = {
    "two": AB,
    "three": ABC,
    "filtered": f"{ABC} WHERE a.v > 2",
    "guarded": f"{AB} WHERE CASE WHEN a.v <> 0 THEN 100 / a.v > 30 ELSE false END",
    "residual": f"{ABC} WHERE a.v + b.w > 5",
    "lone": "SELECT a.id, a.v FROM A a WHERE a.v > 1",
}
BAD = {
    "filter": f"{AB} WHERE 100 / a.v > 30",
    "filter3": f"{ABC} WHERE 100 / a.v > 30",
    "projection": "SELECT a.id, 100 / a.v AS share FROM A a JOIN B b ON a.k = b.k",
    "residual2": f"{AB} WHERE 100 / (a.v - b.w) > 20",
    "residual3": f"{ABC} WHERE 100 / (a.v - b.w) > 20",
    "key": "SELECT a.id, c.id AS c_id FROM A a JOIN C c ON CAST(a.s AS INT) = c.m",
    "key3": "SELECT a.id, b.id AS b_id, c.id AS c_id FROM A a JOIN B b ON a.k = b.k"
    " JOIN C c ON CAST(a.s AS INT) = c.m",
    "lone_bad": "SELECT a.id, 7 % a.v AS rest FROM A a",
}
#: Query -> condition on an arriving tuple of A, or on a result, under which the query fails.
ARRIVING = {"filter": "v = 0", "filter3": "v = 0", "lone_bad": "v = 0",
            "key": "TRY_CAST(s AS INT) IS NULL", "key3": "TRY_CAST(s AS INT) IS NULL"}  # fmt: skip
JOINED = {"projection": "a.v = 0", "residual2": "a.v = b.w"}


@dataclass(frozen=True, slots=True)
class World:
    """A scenario on disk whose tuples cause failures after some batches."""

    path: Path
    sql: Mapping[str, str]

    def oracle_query(self, name: str, oracle: Oracle) -> OracleQuery:
        """Return the query, which never fails in DuckDB: failing values are NULL there."""
        return from_spark(self.sql[name], oracle.columns())


def make_world(folder: Path, seed: int, queries: Mapping[str, str]) -> World:
    rng = Random(seed)
    folder.mkdir(parents=True)
    rows = BATCHES * ROWS
    bad_from = {what: rng.randint(1, 4) * ROWS for what in ("v", "s")}

    def value(row: int) -> int:
        bad = row >= bad_from["v"] and rng.random() < 0.15
        return 0 if bad else rng.choice((1, 1, 1, 2, 3, 5))

    def text(row: int) -> str:
        return "no number" if row >= bad_from["s"] and rng.random() < 0.15 else str(row % 6)

    tables = {
        "A": {
            "id": range(rows),
            "k": [rng.randrange(12) for _ in range(rows)],
            "v": pa.array([value(r) for r in range(rows)], pa.int32()),
            "s": [text(r) for r in range(rows)],
        },
        "B": {
            "id": range(rows),
            "k": [rng.randrange(12) for _ in range(rows)],
            "m": [rng.randrange(6) for _ in range(rows)],
            "w": pa.array([rng.choice((-1, -2, 4, 7)) for _ in range(rows)], pa.int32()),
        },
        "C": {"id": range(rows // 2), "m": [rng.randrange(30) for _ in range(rows // 2)]},
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(dict(columns)), folder / f"{name}.parquet")
    late = {q: rng.randint(1, BATCHES - 2) for q in queries if rng.random() < 0.3}
    document: dict[str, Any] = {
        "streams": {
            n: {"path": f"{n}.parquet", "rows_per_batch": ROWS // (2 if n == "C" else 1)}
            for n in tables
        },
        "queries": {q: {"sql": s, "register_at": late.get(q, 0)} for q, s in queries.items()},
        "epochs": {"every": EVERY},
        "parallelism": rng.randint(1, 3),
    }
    path = folder / "SCENARIO.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return World(path, queries)


def first_bad(oracle: Oracle, world: World, name: str, activation: Activation) -> int | None:
    """The batch in which ``name`` must fail, or None; for failures that do not depend on plans."""
    begin = activation.activated_batch
    if name in ARRIVING and begin == 0:
        found = oracle.one(f"SELECT min(__batch) FROM A WHERE {ARRIVING[name]}")
    else:
        query = world.oracle_query(name, oracle)
        streams = dict(query.members)
        conditions = [w for w in query.where if "100" not in w]
        last = f"greatest({', '.join(f'{a}.__batch' for a in streams)})"
        tables = ", ".join(f'"{s}" {a}' for a, s in query.members)
        where = " AND ".join([*conditions, JOINED[name], f"{last} >= {begin}"])
        found = oracle.one(f"SELECT min({last}) FROM {tables} WHERE {where}")
    return None if found is None else int(found)


def check(world: World, replay: LocalReplay) -> set[str]:
    """Check that every query's results and failure are exact; return the failed queries."""
    activations = replay.run()
    scenario = read_scenario(world.path)
    oracle = Oracle(scenario)
    failed = set()
    try:
        for name, activation in activations.items():
            query = world.oracle_query(name, oracle)
            folder = replay.out / "results" / name
            found = oracle.compare(query, scenario.queries[name], activation, folder)
            assert not found.problems, f"{name}: {found.problems}"
            assert found.got == activation.results, name
            if activation.failure is not None:
                failed.add(name)
                assert activation.failure.batch == activation.expired_batch
                assert activation.failure.expression
                assert not list(folder.glob(f"{activation.failure.batch:010d}-*"))
            sees_all = all(v.batch == 0 for v in activation.visible_from.values())
            if name in JOINED or (name in ARRIVING and activation.activated_batch == 0):
                wanted = first_bad(oracle, world, name, activation)
                if sees_all:
                    got = None if activation.failure is None else activation.failure.batch
                    assert got == wanted, f"{name} failed in {got}, not in {wanted}"
    finally:
        oracle.close()
    return failed


@pytest.mark.parametrize("seed", range(2))
def test_only_queries_that_need_the_expression_fail(seed: int, redis: str, tmp_path: Path) -> None:
    bad = dict(list(BAD.items())[seed::2])
    world = make_world(tmp_path / "scenario", seed, {**SOUND, **bad})
    deaths = tuple((b, (Death.JOB, Death.COMMIT, Death.COMMITTED)[b % 3]) for b in range(2, 6))
    script = Script(odd=seed > 0, seed=seed, tasks=((1 + seed % 3,),), deaths=deaths)
    failed = check(world, LocalReplay(world.path, tmp_path / "out", redis, script=script))
    assert failed <= set(bad)
    assert len(failed) > 1


def test_a_failure_is_told_before_the_epochs_end_and_outlives_restarts(
    redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = redis_client.Redis.from_url(redis)
    connection.flushall()
    fetch_ruleset.cache_clear()
    queries = {"q": RS, "bad": f"{RS} WHERE 10 / S.b > 1"}
    publish(redis, 0, queries)
    one = driver(redis, tmp_path, every=1)
    known: list[str | bytes | None] = []
    tell = one.control.report_boundary

    def told(boundary: Boundary) -> None:
        known.append(connection.hget(KEYS.activations, "bad"))
        tell(boundary)

    monkeypatch.setattr(one.control, "report_boundary", told)
    one.run(job(0))
    (text,) = known
    assert text is not None
    failure = Activation.loads(text).failure
    assert failure is not None
    assert (failure.code, failure.batch) == ("divide-by-zero", 0)

    # The next rulesets still have the query: one published before, one carried over.
    publish(redis, 1, queries)
    publish(redis, 2, queries)
    again = driver(redis, tmp_path, every=1)
    again.run(job(1))
    driver(redis, tmp_path, every=1).run(job(2))
    state = driver(redis, tmp_path, every=1).state
    assert state.queries["bad"].failure == failure
    assert state.queries["bad"].expired_batch == 0
    assert not any("S[" in name for name in state.stores)
    assert results(tmp_path, "bad") == []
    assert results(tmp_path) == expected(3)


def test_functions_of_users_that_fail_or_hang(
    redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_client.Redis.from_url(redis).flushall()
    fetch_ruleset.cache_clear()
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    queries = {
        "q": RS,
        "sound": f"{RS} WHERE doubled(S.b) >= 0",
        "first": f"{RS} WHERE inverse(S.b) > 0",
        "third": f"{RS} WHERE inverse(S.b - 2) > -9",
        "slow": RS.replace("S.b", "endless(S.b) AS b", 1),
        "guarded": f"{RS} WHERE CASE WHEN S.b < 0 THEN endless(S.b) > 1 ELSE true END",
    }
    publish(redis, 0, queries)
    one = driver(redis, tmp_path, every=100)
    for batch in range(3):
        one.run(job(batch))
    # Tasks whose processes have ended.
    end_all()
    one = driver(redis, tmp_path, every=100)
    one.run(job(3))
    failures = {name: found.failure for name, found in one.state.queries.items() if found.failure}
    assert {name: (f.batch, f.code) for name, f in failures.items()} == {
        "first": (0, "function-failed"),
        "third": (2, "function-failed"),
        "slow": (0, "function-too-slow"),
    }
    assert failures["first"].message.startswith("function inverse() failed: ZeroDivisionError:")
    assert [results(tmp_path, name) for name in ("q", "sound", "guarded")] == [expected(4)] * 3
    assert results(tmp_path, "third") == expected(2)
    assert results(tmp_path, "slow") == results(tmp_path, "first") == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 40))
def test_many_failures(seed: int, redis: str, tmp_path: Path) -> None:
    rng = Random(seed)
    bad = {name: sql for name, sql in BAD.items() if rng.random() < 0.6}
    sound = {name: sql for name, sql in SOUND.items() if rng.random() < 0.6}
    world = make_world(tmp_path / "scenario", seed, {**sound, **bad})
    script = Script(odd=True, layouts=seed % 2 == 0, seed=seed, tasks=((2,),))
    failed = check(world, LocalReplay(world.path, tmp_path / "out", redis, script=script))
    assert failed <= set(bad)
