"""Tests of runs with tasks on one to four hosts, which change in every batch: results are exact.

A host has some partitions of each store and sees nothing of the others. Tuples are sent between
tasks by value; tasks fail and drivers die as in other runs. ``python -m tests.support.scenarios.run
--engine local --hosts`` runs as many as one likes, with ``--latest``, ``--owed`` and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.scenarios.draw import generate
from tests.support.scenarios.latest import generate_with_latest
from tests.support.scenarios.run import assert_exact
from tests.support.scenarios.seeds import HOSTS_FEW, HOSTS_MANY, HOT_FEW, few, parts
from tests.support.scenarios.ttls import generate_with_ttls

#: Features that the scenarios must cover.
WANTED = {
    "tasks on several hosts",
    "partition on another of the same hosts",
    "MIR",
    "backfill",
    "gap filled from the parts",
    "probe across layouts",
    "self-join",
    "stored round robin",
    "restart",
    "task failed: meet",
    "tasks change between attempts",
}
#: Features that scenarios with revisions must cover.
HOT = {
    "hot value",
    "hot value cooled",
    "hot row away from home, base",
    "hot row away from home, MIR",
    "revision taken",
    "merge",
    "expired",
    "backfill done",
    "driver gone: job",
}


@pytest.mark.e2e
@pytest.mark.parametrize("seeds", few(HOSTS_FEW, 3, 7, 10), ids=str)
def test_runs_on_several_hosts_are_exact(seeds: Sequence[int], redis: str, tmp_path: Path) -> None:
    assert_exact(seeds, tmp_path, redis, generate, WANTED, hosts=True)


@pytest.mark.e2e
@pytest.mark.parametrize("seeds", few(HOT_FEW, 25, 28), ids=str)
def test_runs_with_hot_values_that_change_before_every_batch_are_exact(
    seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    """Every ruleset and every revision has other hot values, in stores of any kind."""
    assert_exact(seeds, tmp_path, redis, generate, HOT, revised=True, hosts=True)


@pytest.mark.parametrize("seeds", few((4, 5, 10), 5), ids=str)
def test_streams_that_keep_the_latest_are_exact_on_several_hosts(
    seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    wanted = {"tasks on several hosts"}
    assert_exact(seeds, tmp_path, redis, generate_with_latest, wanted, hosts=True)


@pytest.mark.slow
def test_runs_ranked_by_columns_outside_intermediate_results_are_exact(
    redis: str, tmp_path: Path
) -> None:
    assert_exact((26, 28), tmp_path, redis, generate, (), rationed=True, hosts=True)


@pytest.mark.parametrize("seeds", few((3, 7, 81), 3, 81), ids=str)
def test_what_is_owed_is_paid_on_several_hosts(
    seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    wanted = {"tasks on several hosts", "late result"}
    assert_exact(seeds, tmp_path, redis, generate, wanted, owed=True, hosts=True)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(HOSTS_MANY, 50), ids=lambda s: f"{s[0]}-{s[-1]}")
@pytest.mark.parametrize(
    "kind", ["plain", "latest", "owed", "rationed", "past", "fresh", "revised", "ttl"]
)
def test_many_runs_on_several_hosts_are_exact(
    kind: str, seeds: Sequence[int], redis: str, tmp_path: Path
) -> None:
    make = {"latest": generate_with_latest, "ttl": generate_with_ttls}.get(kind, generate)
    flags = {kind: True} if kind in ("owed", "rationed", "past", "fresh", "revised") else {}
    assert_exact(seeds, tmp_path, redis, make, {"tasks on several hosts"}, hosts=True, **flags)
