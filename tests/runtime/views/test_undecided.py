"""Compare left rows that withheld partners leave undecided with the documented rule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from anabranch_contract.plans.rations import PaidBatches, Ranking, Ration
from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_contract.queries.joins import Label, QueryId
from anabranch_planner.passes import parse_sql
from anabranch_runtime.index.ranks import limit, ranks
from anabranch_runtime.sinks.ledger import publish_paid, publish_rations
from anabranch_runtime.views.undecided import (
    Undecided,
    least_between,
)
from tests.support.worlds.outer_runs import STREAMS

BY_KEY = Ranking((("k", "bigint"),), by_batch=False)
KEYS = pa.array([None, *range(40)], pa.int32())
RANKS = ranks(BY_KEY, lambda _: KEYS, len(KEYS), 0)


@pytest.fixture
def spec() -> QuerySpec:
    on = "c.k = a.k AND c.ts <= a.ts + INTERVAL '1' MINUTE"
    sql = f"SELECT a.v, c.v AS w FROM a LEFT JOIN c ON {on}"
    query = parse_sql("q", sql, STREAMS)
    members = tuple((m.alias, m.label, m.relation) for m in query.members)
    return QuerySpec(query.id, members, query.bounds, query.projection, outer=query.outer)


def _both(share: float, ranking: Ranking = BY_KEY) -> tuple[Ration, ...]:
    return tuple(Ration(QueryId("q"), Label(a), share, ranking) for a in "ac")


def _among(found: Undecided, came: list[int], deadlines: list[int], keys: pa.Array) -> list[bool]:
    arrays = np.array(came, np.int64), np.array(deadlines, np.int64)
    return list(found.among(len(keys), lambda _: keys, *arrays))


def test_it_is_as_the_rule_says(spec: QuerySpec, tmp_path: Path) -> None:
    rng = Random(3)
    for seed in range(20):
        results, undecided = tmp_path / str(seed), Undecided(spec, tmp_path / str(seed))
        held: dict[int, tuple[int, int]] = {}
        mark = 0
        for batch in range(30):
            mark += rng.choice((0, 0, 5))
            if rng.random() < 0.4:
                share = rng.random()
                publish_rations(results, batch, _both(share), {"c": mark}, None)
                held[batch] = (mark, limit(share))
            if held and rng.random() < 0.2:
                paid = rng.choice(sorted(held))
                goals = ((QueryId("q"), "a"), (QueryId("q"), "c"))
                publish_paid(results, batch, PaidBatches(paid, paid, goals))
                del held[paid]
            rows = [(rng.randrange(30), rng.randrange(60), rng.randrange(41)) for _ in range(50)]
            keys = KEYS.take(pa.array([k for _, _, k in rows]))
            wanted = [
                any(b >= c and m <= d and least <= RANKS[k] for b, (m, least) in held.items())
                for c, d, k in rows
            ]
            came, deadlines, _ = zip(*rows, strict=True)
            assert _among(undecided, list(came), list(deadlines), keys) == wanted


def test_part_of_what_is_owed_is_not_enough(spec: QuerySpec, tmp_path: Path) -> None:
    publish_rations(tmp_path, 0, _both(0.0), {}, None)
    found = Undecided(spec, tmp_path)
    for batch, alias in ((1, "a"), (2, "c")):
        assert _among(found, [0], [9], KEYS.slice(3, 1)) == [True]
        publish_paid(tmp_path, batch, PaidBatches(0, 0, ((QueryId("q"), alias),)))
    assert _among(found, [0], [9], KEYS.slice(3, 1)) == [False]


def test_rations_by_what_left_rows_do_not_have_withhold_all_of_them(
    spec: QuerySpec, tmp_path: Path
) -> None:
    by_batch = Ranking(BY_KEY.columns, by_batch=True)
    publish_rations(tmp_path, 0, _both(0.99, by_batch), {"c": 5}, None)
    found = Undecided(spec, tmp_path)
    assert _among(found, [0, 0, 1], [5, 4, 9], KEYS.slice(0, 3)) == [True, False, False]


def test_other_queries_do_not_count(spec: QuerySpec, tmp_path: Path) -> None:
    publish_rations(tmp_path, 0, _both(0.0), {"c": 5}, None)
    other = Undecided(replace(spec, id=QueryId("p")), tmp_path)
    assert _among(other, [0], [9], KEYS.slice(1, 1)) == [False]


def test_the_least_of_ranges() -> None:
    rng = Random(1)
    for length in (1, 2, 7, 64, 65):
        values = np.array([rng.randrange(100) for _ in range(length)], np.int64)
        low = np.array([rng.randrange(length + 1) for _ in range(100)], np.int64)
        high = np.array([rng.randrange(length + 1) for _ in range(100)], np.int64)
        found = least_between(values, low, high).tolist()
        for a, b, least in zip(low, high, found, strict=True):
            most = int(np.iinfo(np.int64).max)
            assert least == (int(values[a:b].min()) if a < b else most)
