"""Tests that results withheld by random rations are emitted later: then all results equal a run
without rations.

Only results that are not owed, or forgiven, stay withheld. ``python -m tests.support.scenarios.run
--engine local --owed`` runs as many as one likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from redis import Redis

from anabranch_contract.plans.rations import Ranking, Ration, RationSchedule
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.queries.joins import Label, QueryId
from anabranch_runtime.control import fetch_ruleset
from tests.support.scenarios.draw import generate
from tests.support.scenarios.run import assert_exact
from tests.support.scenarios.seeds import OWED_FEW, OWED_MANY, few, parts
from tests.support.worlds.fed import Fed, Killed

#: Features that the scenarios must cover.
WANTED = {
    "goal made good",
    "late result",
    "debt at the end",
    "debt forgiven half paid",
    "rationed by batch",
    "rationed by key class",
    "self-join",
    "one tuple in two aliases",
    "MIR",
    "merge",
    "restart",
    "driver gone: commit",
    "driver gone: committed",
    "task failed: end",
}


@pytest.mark.parametrize("seeds", few(OWED_FEW, 81, 164, 219), ids=str)
def test_what_is_withheld_is_made_good_exactly(
    seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    assert_exact(seeds, tmp_path, redis, generate, WANTED, owed=True)


@pytest.mark.e2e
def test_catch_up_and_revisions_together_are_exact(redis: str, tmp_path: Path) -> None:
    wanted = {"goal made good", "revision taken"}
    assert_exact(OWED_FEW[2:4], tmp_path, redis, generate, wanted, revised=True, owed=True)


def test_what_is_owed_is_paid_though_nothing_arrives(redis: str, tmp_path: Path) -> None:
    """Batches run for the debt, also if every batch with input is rationed, and after a crash."""
    Redis.from_url(redis).flushall()
    fetch_ruleset.cache_clear()
    fed = Fed(redis, tmp_path)
    _ration_all(fed)
    fed.push([1, 2, 3, 1])
    fed.file("one", [1, 2, 2])
    while fed.driver.state.next_batch < 1:
        fed.turn()
    state = fed.driver.state
    assert (state.queries["q"].results, len(state.debt.batches)) == (0, 1)

    def die() -> None:
        raise Killed

    fed.between = die
    with pytest.raises(Killed):
        fed.turn()
    fed.start()
    _ration_all(fed)
    for _ in range(6):
        fed.turn()

    state = fed.driver.state
    assert state.debt.batches == ()
    assert (state.queries["q"].results, state.queries["q"].caught_up) == (4, 4)
    assert state.next_batch == 2
    assert not fed.turn()


def _ration_all(fed: Fed) -> None:
    """Withhold all results of ``q`` in every batch."""
    ranking = Ranking((("a", "bigint"),), by_batch=True)
    found = tuple(Ration(QueryId("q"), Label(a), 0.0, ranking) for a in "RS")
    rationer = fed.driver.rationer
    rationer.schedule = RationSchedule(0, 0, (), (), catch_up=True)

    def rations(ruleset: Ruleset, never: object = ()) -> tuple[Ration, ...]:
        return found

    rationer.rations = rations  # type: ignore[method-assign]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(OWED_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_runs_are_made_good_exactly(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    assert_exact(seeds, tmp_path, redis, generate, WANTED, owed=True)
