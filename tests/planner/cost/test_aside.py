"""Tests that plans whose intermediate results exclude some values compile to valid rulesets."""

from __future__ import annotations

from random import Random

import pytest

from anabranch_planner.passes import parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from tests.support.cases.random_plans import random_plan
from tests.support.worlds.rewritten import STREAMS

#: Joins of streams with two attributes of one key class, which a filter makes equal.
STATEMENTS = (
    "SELECT a.v FROM a JOIN a x ON x.k = a.k JOIN c ON c.v = x.v JOIN b ON b.w = a.k "
    "WHERE a.k = a.v",
    "SELECT a.v FROM a JOIN c ON c.t = a.g JOIN b ON b.w = a.v WHERE a.k = a.v",
    "SELECT a.v FROM a JOIN c ON c.t = a.g JOIN b ON b.w = a.v WHERE b.k = b.w",
)


@pytest.mark.parametrize("seed", [57, 483, *range(10)])
def test_tuples_of_all_kept_values_maintain_a_store(seed: int) -> None:
    """Rules know values as equal by join keys only, not by filters."""
    rng = Random(seed)
    queries = [parse_sql("q0", STATEMENTS[seed % 3], STREAMS)]
    plan = random_plan(queries, rng, mirs=rng.choice((0.6, 0.9)), apart=True)
    streams = list(STREAMS.values())
    compile_ruleset(plan, queries, streams, epoch=0, parallelism=3, sinks={}).validate()
