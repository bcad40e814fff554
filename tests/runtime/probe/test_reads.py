"""Tests of stores' read counters, by hand on examples in which every segment is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
import redis as redis_client

from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.reads import Reads
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.driver.attempts import Job
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.fold_reports import snapshot, without_batches
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.index.filters import LEAST, build_filter
from anabranch_runtime.index.keys import key_vector, partition_of
from anabranch_runtime.probe import probe
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.state.coverage import Access, Tile
from anabranch_runtime.state.manifest import State
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.memory import Budget
from anabranch_runtime.task.worker import run_task
from tests.support.cases.states import MINUTE, RS, rules, stream
from tests.support.oracles.invariants import may_have
from tests.support.worlds.driven import KEYS, driver, job, publish

DAY = 1440 * MINUTE
_TEXT = parse_type("string")
R, S = stream("R", "a", lateness=DAY), stream("S", "a", "b", lateness=DAY)


def publish_rules(url: str, ruleset: Ruleset) -> None:
    connection = redis_client.Redis.from_url(url)
    connection.set(KEYS.ruleset(ruleset.epoch), rulesets.dumps(ruleset))
    connection.zadd(KEYS.published, {str(ruleset.epoch): ruleset.epoch})


def bringing(
    r: Sequence[int | None], s: Sequence[int | None], minute: int = 0, **access: Access
) -> Job:
    """A batch with these keys, all with one event time; ``access`` by the probed relation."""

    def run(context: BatchContext) -> list[TaskReport]:
        known = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
        asked: dict[str, Access] = {
            rule.out: access[rule.mir] for rule in known.probe_rules if rule.mir in access
        }
        context = replace(
            context, scope=replace(context.scope, access={**context.scope.access, **asked})
        )
        blocks = []
        for name, keys in (("R", r), ("S", s)):
            moment = pa.array([minute * MINUTE] * len(keys), pa.timestamp("us", tz="UTC"))
            columns = {"a": pa.array(keys, pa.int64()), "ts": moment}
            if name == "S":
                columns["b"] = pa.array(range(len(keys)), pa.int64())
            blocks.append(Block(name, pa.record_batch(columns)))
        return [run_task(context, known, blocks, task=0, tasks=1, exchange=lambda m: [m])]

    return run


def reads(state: State) -> dict[str, Reads]:
    """Return relation -> this epoch's reads of its only store by its only index."""
    found: dict[str, Reads] = {}
    for name, by_index in state.measured.reads.items():
        ((index, counts),) = by_index.items()
        assert index == "a:bigint"
        found[state.stores[name].spec.mir] = counts
    return found


def started(url: str, folder: Path, **options: int) -> Driver:
    """Return a new pipeline over an emptied Redis."""
    redis_client.Redis.from_url(url).flushall()
    fetch_ruleset.cache_clear()
    publish_rules(url, rules(0, {"q": RS}, streams=(R, S), **options))
    return driver(url, folder, every=10)


def test_every_batch_asks_one_segment_more(url: str, tmp_path: Path) -> None:
    """Batch ``b`` has one tuple of each stream, R's first: it finds the ``b`` earlier ones of S,
    and S's finds ``b + 1`` of R, in as many segments as there are batches.
    """
    publish(url, 0)
    publish(url, 1)
    one = driver(url, tmp_path, every=3)
    for batch in range(3):
        one.run(job(batch))
    first = {"S": Reads(3, 2, 0 + 1 + 2, looked=1 + 2 + 3), "R": Reads(3, 3, 6, looked=6)}
    assert reads(one.state) == first
    assert not one.state.measured.reads_before
    told = {one.state.stores[n].spec.mir: s.reads for n, s in snapshot(one.state).stores.items()}
    assert told == {mir: {"a:bigint": counts} for mir, counts in first.items()}
    idle = without_batches(snapshot(one.state))
    assert [s.reads for s in idle.stores.values()] == [{}, {}]

    one.run(job(3))
    assert reads(one.state)["S"] == Reads(1, 1, 3, looked=4)
    before = one.state.measured.reads_before
    assert {one.state.stores[n].spec.mir: c["a:bigint"] for n, c in before.items()} == (first)
    again = driver(url, tmp_path, every=3)
    assert (again.state.measured.reads, again.state.measured.reads_before) == (
        one.state.measured.reads,
        before,
    )


def test_tuples_without_a_key_ask_nothing_and_runs_of_partners_count_once(
    url: str, tmp_path: Path
) -> None:
    one = started(url, tmp_path)
    one.run(bringing([], [1, 1, 1, 2, None]))
    one.run(bringing([1, 1, 3, None], []))
    # S's segment has four keys; two of R's four tuples find three partners each.
    assert reads(one.state) == {"R": Reads(5), "S": Reads(4, 2, 6, looked=3)}


def test_segments_of_another_time_are_passed_over(url: str, tmp_path: Path) -> None:
    """Windows of five minutes, a batch every ten: only the batch's own segment is within the
    window.
    """
    one = started(url, tmp_path, window=5 * MINUTE)
    for batch in range(4):
        one.run(bringing([7, 8], [7], minute=10 * batch))
    assert reads(one.state) == {
        # R's tuples are before S's: nothing within the window is stored yet.
        "S": Reads(8, 0, 0, by_time=2 * (0 + 1 + 2 + 3), looked=8),
        "R": Reads(4, 4, 4, by_time=0 + 1 + 2 + 3, looked=4),
    }


def test_segments_of_other_partitions_are_passed_over(url: str, tmp_path: Path) -> None:
    one = started(url, tmp_path, parallelism=3)
    keys = list(range(60))
    hashes = key_vector([pa.array(keys)], ["bigint"]).hashes
    parts = np.bincount(partition_of(hashes, 3), minlength=3)
    assert parts.all()
    with patch.object(probe, "FEW", 0):
        one.run(bringing([], keys))
        one.run(bringing(keys, []))
    assert reads(one.state)["S"] == Reads(60, 60, 60, by_partition=2 * 60, looked=60)
    # So few that all partitions are probed at once.
    one.run(bringing(keys, []))
    assert reads(one.state)["S"] == Reads(120, 120, 120, by_partition=120, looked=60 + 180)
    # A partition without any segment.
    alone = started(url, tmp_path / "alone", parallelism=3)
    with patch.object(probe, "FEW", 0):
        alone.run(bringing([], keys[:1]))
        alone.run(bringing(keys, []))
    (own,) = partition_of(hashes[:1], 3)
    assert reads(alone.state)["S"] == Reads(
        60, 1, 1, by_partition=60 - int(parts[own]), looked=int(parts[own])
    )


def test_segments_of_other_batches_are_passed_over(url: str, tmp_path: Path) -> None:
    """A tuple that finds a partner in two runs of batches is counted once."""
    one = started(url, tmp_path)
    for batch in range(4):
        one.run(bringing([], [1, batch]))
    store = next(name for name, s in one.state.stores.items() if s.spec.mir == "S")
    some = Access((Tile(store, (0, 0)), Tile(store, (2, 3))))
    one.run(bringing([1, 2, 9], [], S=some))
    # Of four segments, the first run of batches has one, the second two. They have 1 three times
    # and 2 once; batch 1, which has 1 twice, is outside the access.
    assert reads(one.state)["S"] == Reads(3, 2, 3 + 1, by_batch=3 * (3 + 2), looked=3 * (1 + 2))


@pytest.mark.parametrize("present", [10, 90])
def test_filters_hold_up_what_is_not_there(url: str, tmp_path: Path, present: int) -> None:
    """Unless most of the many probed keys are there: then filters are not used."""
    one = started(url, tmp_path)
    stored = list(range(2 * LEAST))
    asked = [*range(present), *range(10**6, 10**6 + 100 - present)]
    one.run(bringing([], stored))
    with patch.object(probe, "FEW", 0):
        one.run(bringing(asked, []))
    hashes = key_vector([pa.array(asked)], ["bigint"]).hashes
    screen = build_filter(np.sort(key_vector([pa.array(stored)], ["bigint"]).hashes))
    held = int((~may_have(screen, hashes)).sum()) if present == 10 else 0
    assert held in (0, *range(80, 91))
    assert reads(one.state)["S"] == Reads(100, present, present, filtered=held, looked=100 - held)


def test_keys_that_only_look_alike_are_no_partners(url: str, tmp_path: Path) -> None:
    """Texts are compared by value after their hashes: the test forces a collision."""
    texts = [replace(x, columns=(("a", _TEXT), *x.columns[1:])) for x in (R, S)]
    publish_rules(url, rules(0, {"q": RS}, streams=texts))
    one = driver(url, tmp_path, every=10)
    moment = pa.array([0, 0], pa.timestamp("us", tz="UTC"))

    def texts_of(name: str, *keys: str) -> Job:
        columns = {"a": pa.array(keys), "ts": moment[: len(keys)]}
        if name == "S":
            columns["b"] = pa.array(range(len(keys)), pa.int64())

        def run(context: BatchContext) -> list[TaskReport]:
            known = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
            blocks = [Block(name, pa.record_batch(columns))]
            return [run_task(context, known, blocks, task=0, tasks=1, exchange=lambda m: [m])]

        return run

    one.run(texts_of("S", "x", "y"))
    one.run(texts_of("R", "x", "z"))
    (counts,) = one.state.measured.reads[_store(one.state, "S")].values()
    assert counts == Reads(2, 1, 1, looked=2)
    differ = patch.object(probe, "values_equal", lambda left, right, types: np.array([False]))
    with patch.object(probe, "FEW", 0), differ:
        one.run(texts_of("R", "x", "z"))
    (counts,) = one.state.measured.reads[_store(one.state, "S")].values()
    assert counts == Reads(4, 1, 1, looked=4)


@pytest.mark.parametrize("pairs", [1, 3, 17])
def test_pieces_count_as_the_whole(url: str, tmp_path: Path, pairs: int) -> None:
    """Probes with too many matches are repeated in pieces; discarded matches are not counted."""
    keys = [n % 5 for n in range(40)]

    def run(folder: Path, most: int) -> dict[str, Reads]:
        one = started(url, folder)
        short = Budget(pairs=most)
        with patch("anabranch_runtime.task.worker.budget", lambda limit, tasks: short):
            for _ in range(3):
                one.run(bringing(keys, keys[:9]))
        return reads(one.state)

    assert run(tmp_path / "pieces", pairs) == run(tmp_path / "whole", 1 << 20)


def test_counts_of_a_store_that_is_gone_are_gone(url: str, tmp_path: Path) -> None:
    publish_rules(url, rules(0, {"q": RS}, streams=(R, S)))
    publish_rules(url, rules(1, {"p": "SELECT R.a FROM R"}, streams=(R, S)))
    one = driver(url, tmp_path, every=2)
    for _ in range(4):
        one.run(bringing([1], [1]))
    assert set(one.state.measured.reads) | set(one.state.measured.reads_before) <= set(
        one.state.stores
    )


def _store(state: State, mir: str) -> str:
    return next(name for name, s in state.stores.items() if s.spec.mir == mir)
