"""Random queries of all kinds in one pipeline equal DuckDB's after every batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from anabranch_contract.errors import PlannerError
from anabranch_contract.protocol.keys import Keys
from tests.support.combined.grammar import Grammar
from tests.support.combined.pipeline import Combined
from tests.support.combined.registry import Registry, WideError
from tests.support.combined.streams import draw_streams
from tests.support.scenarios.seeds import (
    COMBINED_FAILED,
    COMBINED_FEW,
    COMBINED_MANY,
    few,
    mostly_slow,
    parts,
)
from tests.support.surroundings.redis import redis_url

#: Feature of accepted statements -> its least number of occurrences among a hundred seeds.
FEATURES = (
    *("kind inserts", "kind changes", "kind upsert", "kind table", "kind latest"),
    *("inner join", "left join", "right join", "full join", "semi join", "anti join"),
    *("chain of outer joins", "time bound", "ASOF join", "FOR SYSTEM_TIME AS OF"),
    *("look-up join", "look-up left join", "look-up semi join", "look-up anti join"),
    *("followed left join", "followed join"),
    *("kept left join by arrival", "kept anti join by arrival"),
    *(
        "latest as of arrival",
        "join with latest",
        "EXISTS",
        "IN subquery",
        "scalar subquery",
        "subquery in FROM",
        "WITH",
    ),
    *("aggregates", "HAVING", "FILTER", "DISTINCT", "aggregate DISTINCT", "min or max"),
    *("ROLLUP", "CUBE", "GROUPING SETS", "TUMBLE", "HOP", "SESSION", "QUALIFY", "ORDER BY LIMIT"),
    *("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"),
)


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    """A Redis server for this module."""
    with redis_url() as url:
        yield url


def play(seeds: Iterable[int], folder: Path, redis: str) -> tuple[Counter[str], Counter[str]]:
    events, features = Counter[str](), Counter[str]()
    for seed in seeds:
        run = Combined(folder / str(seed), redis, seed).play()
        events, features = events + run.events, features + run.features
    return events, features


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("drawn", "least"), [(260, 1), pytest.param(600, 2, marks=pytest.mark.slow)]
)
def test_every_feature_is_in_accepted_statements(drawn: int, least: int, tmp_path: Path) -> None:
    """At least 60 % of statements are accepted; others are refused with a remedy."""
    accepted, features = 0, Counter[str]()
    for seed in range(drawn):
        rng = Random(seed)
        streams = draw_streams(tmp_path / str(seed), rng)
        statement = Grammar(rng, {name: s.kind for name, s in streams.items()}).statement()
        registry = Registry([s.record for s in streams.values()], Keys("test"))
        try:
            registry.register("q", statement.text.spark, past=False)
        except WideError:
            continue
        except PlannerError as error:
            if not error.remedy:
                raise
            continue
        accepted += 1
        features.update(feature for feature, count in statement.features.items() if count)
    assert accepted >= 0.6 * drawn
    assert [feature for feature in FEATURES if features[feature] < least] == [], features


@pytest.mark.parametrize("seeds", few(COMBINED_FEW, 2, 4), ids=len)
def test_answers_are_those_of_duckdb(tmp_path: Path, redis: str, seeds: Sequence[int]) -> None:
    events, features = play(seeds, tmp_path, redis)
    assert events["answers with rows"] > 0.5 * events["answers"], events
    assert events["accepted"] >= 0.6 * (events["accepted"] + events["refused"]), events
    for event in ("revised batch", "rewires", "restart", "task failed", "dropped", "compared"):
        assert events[event], event
    assert features["query by name, rows"], features


@pytest.mark.e2e
@pytest.mark.parametrize("seed", mostly_slow(range(1, 40), 1))
def test_equal_queries_have_equal_answers_and_one_table(
    tmp_path: Path, redis: str, seed: int
) -> None:
    run = Combined(tmp_path, redis, seed, twins=True).play()
    linked = [p for p in tmp_path.glob("results/*/version-*.parquet") if p.stat().st_nlink > 1]
    # In other seeds, all views are registered late, so each emits its past results.
    assert linked or seed != 1
    assert run.events["compared"]


@pytest.mark.e2e
@pytest.mark.parametrize("seed", mostly_slow(COMBINED_FAILED))
def test_seeds_that_have_failed(tmp_path: Path, redis: str, seed: int) -> None:
    play([seed], tmp_path, redis)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(COMBINED_MANY, 25), ids=lambda s: f"{s[0]}-{s[-1]}")
def test_many_answers_are_those_of_duckdb(tmp_path: Path, redis: str, seeds: Sequence[int]) -> None:
    events, features = play(seeds, tmp_path, redis)
    assert events["answers with rows"] > 0.5 * events["answers"], events
    assert features["query by name"], features
