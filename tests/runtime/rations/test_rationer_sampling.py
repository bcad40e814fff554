"""Tests of the sampling probabilities in joined rows of rationed batches, which only views have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import redis as redis_client

from anabranch_contract.plans.rations import (
    Ranking,
    RationedGoal,
    RationSchedule,
    SchedulePoint,
)
from anabranch_contract.protocol.activations import LeftOut
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.driver.attempts import Job
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.index.ranks import WHOLE, limit, ranks
from anabranch_runtime.rations.rationer import SAMPLE
from anabranch_runtime.sinks.joined_rows import JoinedBatch
from anabranch_runtime.sinks.sampling import RANK, SHARE
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.worker import run_task
from tests.support.cases.states import rules
from tests.support.worlds.driven import KEYS, driver, publish

#: ``b`` identifies S's tuples.
PAIRS = "SELECT x.b AS x, y.b AS y, count(*) AS n FROM S x JOIN S y ON x.a = y.a GROUP BY x.b, y.b"
BY_TIME = Ranking((("ts", "timestamp"),), by_batch=True)
BY_KEY = Ranking((("a", "bigint"),), by_batch=False)
SHARES = (0.6, 0.35)


def offer(url: str, ranking: Ranking, shares: tuple[float, float], *, catch_up: bool) -> None:
    """Publish a schedule that gives both aliases these shares."""
    query = rules(0, {"q": PAIRS}).queries[0]
    goals = tuple(RationedGoal(query.id, label, ranking) for _, label, _ in query.members)
    points = (SchedulePoint(0.0, shares), SchedulePoint(1.0, (1.0, 1.0)))
    schedule = RationSchedule(0, 0, goals, points, budget=0.0, catch_up=catch_up)
    redis_client.Redis.from_url(url).set(KEYS.rations, schedule.dumps())


def tuples(first: int, count: int) -> dict[str, Any]:
    """Return S's tuples: few keys and few times, so some pairs have equal ranks."""
    numbers = range(first, first + count)
    return {
        "a": pa.array([n % 3 for n in numbers], pa.int64()),
        "b": pa.array(list(numbers), pa.int64()),
        "ts": pa.array([first + n * 7 % 5 for n in numbers], pa.timestamp("us", tz="UTC")),
    }


def job(columns: dict[str, Any]) -> Job:
    def run(context: BatchContext) -> list[TaskReport]:
        known = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
        blocks = [Block("S", pa.record_batch(columns))]
        return [run_task(context, known, blocks, task=0, tasks=1, exchange=lambda m: [m])]

    return run


def staged(one: Driver, batch: int) -> pa.Table:
    """Return the joined rows of a batch."""
    (found,) = [r for r in one.state.tables.rounds if r.batch == batch]
    batch_rows = JoinedBatch(str(one.settings.state), found.rows, found.feeds)
    query = one.control.ruleset(one.state.ruleset).queries[0]
    rows = batch_rows.rows("q", query)
    assert rows is not None
    return rows


def test_pairs_of_one_stream_need_the_ranks_of_both(url: str, tmp_path: Path) -> None:
    publish(url, 0, {"q": PAIRS})
    one = driver(url, tmp_path, every=10)
    old, new = tuples(0, 12), tuples(12, 30)
    one.run(job(old))
    assert staged(one, 0).column_names == ["k1", "k2"]
    offer(url, BY_TIME, SHARES, catch_up=False)
    one.run(job(new))
    rank = ranks(BY_TIME, lambda name: new[name], 30, 1).tolist()
    limits = [limit(share) for share in SHARES]
    key = {n: n % 3 for n in range(42)}
    wanted = {}
    for x in range(42):
        for y in range(42):
            here = [(rank[n - 12], most) for n, most in zip((x, y), limits, strict=True) if n >= 12]
            if key[x] == key[y] and here and all(r < most for r, most in here):
                least: dict[int, float] = {}
                for r, most in here:
                    least[r] = min(least.get(r, 1.0), most / WHOLE)
                wanted[x, y] = least
    found = {}
    for row in staged(one, 1).to_pylist():
        slots = [(row[RANK.format(n)], row[SHARE.format(n)]) for n in range(2)]
        found[row["k1"], row["k2"]] = {r: share for r, share in slots if share < 1}
    assert found == wanted
    assert {len(slots) for slots in wanted.values()} == {1, 2}
    # Members with equal ranks have one slot, also if they are different tuples.
    assert any(len(w) == 1 and min(p) >= 12 and p[0] != p[1] for p, w in wanted.items())
    assert one.state.queries["q"].left_out == (LeftOut(share=0.35),)


def test_what_is_owed_is_not_sampled(url: str, tmp_path: Path) -> None:
    publish(url, 0, {"q": PAIRS})
    one = driver(url, tmp_path, every=10)
    offer(url, BY_TIME, SHARES, catch_up=True)
    one.run(job(tuples(0, 30)))
    assert staged(one, 0).column_names == ["k1", "k2"]
    assert one.state.queries["q"].left_out == ()
    assert one.state.queries["q"].owed > 0


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.0, 0.0)])
def test_a_key_class_is_noted(shares: tuple[float, float], url: str, tmp_path: Path) -> None:
    publish(url, 0, {"q": PAIRS.replace("x.b AS x", "x.a AS x").replace("BY x.b", "BY x.a")})
    one = driver(url, tmp_path, every=10)
    offer(url, BY_KEY, shares, catch_up=False)
    for batch in range(2):
        one.run(job(tuples(30 * batch, 30)))
    query = rules(0, {"q": PAIRS.replace("x.b", "x.a")}).queries[0]
    assert query.view is not None
    key = (query.view.keys[0][0], "bigint")
    # No ration is below the sample's share.
    span = LeftOut(share=max(shares[0], SAMPLE), universe=True, key=key)
    assert one.state.queries["q"].left_out == (span,)
    again = driver(url, tmp_path, every=10)
    assert again.state.queries["q"] == one.state.queries["q"]
    if shares[0]:
        table = staged(one, 1)
        kept = ranks(BY_KEY, lambda _: table[key[0]].combine_chunks(), table.num_rows, 0)
        assert np.array_equal(kept, table[RANK.format(0)].to_numpy())
        # Members in this batch have the same rank: one slot is enough.
        shares_of = zip(*(table[SHARE.format(n)].to_pylist() for n in range(2)), strict=True)
        assert {tuple(sorted(found)) for found in shares_of} == {(0.5, 1.0)}
