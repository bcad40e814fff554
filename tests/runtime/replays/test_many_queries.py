"""Many queries over few streams, which share stores and differ in filters, against DuckDB: through
planner, driver and workers, with rewires, tasks that fail, drivers that die, late and early tuples
(``tests.support.scenarios.script``). In every other batch probes with few tuples go the short way
(``task.direct``), in the others the general one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch_contract.plans.plan import Optimizer, Plan
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.statistics.steady import Settled
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan import session as incremental
from anabranch_planner.replan.session import Session
from anabranch_runtime.columns.arrays import Ints
from anabranch_runtime.index.choosing import PairTest
from anabranch_runtime.index.matching import Constraint, Marks, Matches, Probes, match
from anabranch_runtime.probe import probe, program
from anabranch_runtime.tags import choices, tags
from tests.support.scenarios.crowded import BATCHES, generate_crowded, generate_different
from tests.support.scenarios.run import assert_exact as assert_all_exact
from tests.support.scenarios.run import run_local
from tests.support.scenarios.script import draw
from tests.support.scenarios.seeds import CROWDED_FEW, CROWDED_MANY, mostly_slow, parts

#: Features that fifty scenarios of many queries must have.
CROWDED = {
    "activated anew, looser",
    "driver gone: commit",
    "hot value",
    "keeps the latest",
    "late result",
    "merge leaves out what is not the latest",
    "past emitted",
    "rationed by batch",
    "rationed by key class",
    "restart",
    "revision taken",
    "task failed: meet",
    "tasks on several hosts",
}


def assert_exact(seed: int, count: int, folder: Path, url: str) -> None:
    verdict, _ = run_local(generate_crowded(seed, folder, count), draw(seed, BATCHES), url)
    assert not verdict.problems, f"seed {seed}: {verdict}"
    assert verdict.results > 10 * count


def test_many_queries_are_exact(redis: str, tmp_path: Path) -> None:
    assert_exact(3, 25, tmp_path, redis)


@pytest.mark.parametrize(
    ("few", "new"), [(0, 0), (0, choices.MOST_NEW), (program.FEW_CHOICES, choices.MOST_NEW)]
)
@pytest.mark.parametrize("seed", mostly_slow([*range(30, 40)]))
def test_queries_that_share_stores_are_exact(
    seed: int, few: int, new: int, redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of filters are tags. With ``few`` 0 no probe tree with tags is processed in rounds:
    unwanted pairs are dropped when they are found. With ``new`` 0, predicate sets are translated
    when they are met.
    """
    monkeypatch.setattr(program, "FEW_CHOICES", few)
    monkeypatch.setattr(tags, "FEW_TESTED", few)
    monkeypatch.setattr(choices, "MOST_NEW", new)
    dropped = Counter[str]()

    def counted(
        probes: Probes,
        indexes: Ints,
        constraints: Sequence[Constraint],
        counting: int,
        most: int,
        marks: Marks,
        test: PairTest | None,
    ) -> Matches:
        found = match(probes, indexes, constraints, counting, most, marks, test)
        if test is not None:
            every = match(probes, indexes, constraints, counting)
            dropped["tags"] += len(every.rows) - len(found.rows)
        return found

    monkeypatch.setattr(probe, "match", counted)
    script = replace(draw(seed, BATCHES), relaxed=True)
    verdict, _ = run_local(generate_crowded(seed, tmp_path, 25), script, redis)
    assert not verdict.problems, f"seed {seed}: {verdict}"
    assert verdict.results > 200
    assert few or dropped["tags"] > 100


@pytest.mark.e2e
@pytest.mark.parametrize("seed", mostly_slow([4, 5]))
def test_queries_that_come_and_go_in_every_epoch_are_exact(
    seed: int, redis: str, tmp_path: Path
) -> None:
    """Only these queries' rules change, so at least half of the batches run with saved patches."""

    def steady(
        queries: Sequence[JoinQuery], _: Statistics, __: Optimizer, parallelism: int, ___: int
    ) -> Plan:
        options = Options(optimizer=Optimizer.SHARED, mir=False, parallelism=parallelism)
        return optimise(queries, Statistics(), options)

    script = replace(draw(seed, BATCHES), odd=False, layouts=False)
    # The first ruleset that a driver adopts is saved in full.
    script = replace(script, deaths=(), restarts=frozenset(), faults=())
    generated = generate_crowded(seed, tmp_path, 30, every=1)
    verdict, events = run_local(generated, script, redis, planner=steady)
    assert not verdict.problems, str(verdict)
    assert verdict.results > 300
    assert events["by a patch"] >= BATCHES / 2


@pytest.mark.e2e
@pytest.mark.parametrize("seed", mostly_slow([6, 7, 8]))
def test_queries_that_are_entered_in_every_epoch_are_exact(
    seed: int, redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries that join like existing ones get their steps without a search."""
    # Each change is a large part of so few queries.
    monkeypatch.setattr(incremental, "PART", 1.0)
    session, figures, methods = Session(), Settled(Statistics()), Counter[str]()

    def entering(
        queries: Sequence[JoinQuery], _: Statistics, __: Optimizer, parallelism: int, ___: int
    ) -> Plan:
        options = Options(mir=False, parallelism=parallelism)
        plan = session.plan(queries, figures, options)
        methods["entered" if "entered" in plan.method else "other"] += 1
        return plan

    script = replace(draw(seed, BATCHES), odd=False)
    generated = generate_crowded(seed, tmp_path, 12, every=1, alike=16)
    verdict, _ = run_local(generated, script, redis, planner=entering)
    assert not verdict.problems, str(verdict)
    assert verdict.results > 300
    assert methods["entered"] >= 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_many_queries_are_exact_by_many_scripts(seed: int, redis: str, tmp_path: Path) -> None:
    assert_exact(seed, 40, tmp_path, redis)


@pytest.mark.e2e
def test_different_queries_are_exact_whatever_happens(redis: str, tmp_path: Path) -> None:
    wanted = {"activated anew, looser", "rationed by batch", "driver gone: commit"}
    assert_all_exact(CROWDED_FEW, tmp_path, redis, generate_different, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(CROWDED_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_different_queries_are_exact_whatever_happens(
    seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    """Up to 300 queries; ``python -m tests.support.scenarios.run --engine local --crowded`` runs
    more.
    """
    assert_all_exact(seeds, tmp_path, redis, generate_different, CROWDED)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_hundreds_of_queries_are_exact(seed: int, redis: str, tmp_path: Path) -> None:
    assert_exact(seed, 300, tmp_path, redis)
