"""Tests of selectivities estimated from samples: the share of rows that pass the exactly evaluated
filter.
"""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal

import pytest

from anabranch_contract.protocol.measurements import FrequentValues, StreamSample
from anabranch_contract.queries.expressions import Column, Expr
from anabranch_contract.queries.joins import JoinQuery, RelationId, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.statistics.sampling import _like, describe, estimate, share
from anabranch_planner.cost.statistics.statistics import PeriodForecast, Statistics
from anabranch_planner.passes import parse_sql
from tests.support.oracles.evaluate import Value, holds

TYPES = {
    "k": "bigint", "n": "int", "x": "double", "d": "decimal(8,2)", "t": "string", "f": "boolean",
    "day": "date", "ts": "timestamp",
}  # fmt: skip
STREAMS = {
    name: Stream(StreamName(name), tuple((c, parse_type(t)) for c, t in TYPES.items()))
    for name in ("R", "S")
}
FILTERS = (
    "R.n > 5", "R.n BETWEEN 3 AND 7 AND R.f", "R.x * 2 <= 10.5 OR R.t IS NULL", "NOT (R.n = 4)",
    "R.t LIKE 'a%'", "R.t LIKE '_b%' OR R.t IN ('cc', 'aa')", "R.d >= 25.50", "R.n IN (1, 2, NULL)",
    "R.day < DATE '1970-01-20'", "R.ts >= TIMESTAMP '1970-01-01 00:00:30'", "R.x IS NOT NULL",
    "coalesce(R.n, 9) <> 9", "R.n + R.n < 9", "lower(R.t) = 'ab'", "R.n > R.x", "length(R.t) = 2",
)  # fmt: skip


def rows(count: int, seed: int) -> list[dict[str, Value]]:
    rng = random.Random(seed)
    made: list[dict[str, Value]] = []
    for key in range(count):
        row: dict[str, Value] = {
            "k": key,
            "n": rng.randrange(10),
            "x": rng.choice([rng.random() * 10, float("nan"), 3.0]),
            "d": Decimal(rng.randrange(5_000)) / 100,
            "t": rng.choice("abc") + rng.choice("abcC"),
            "f": rng.random() < 0.3,
            "day": rng.randrange(40),
            "ts": rng.randrange(60_000_000),
        }
        made.append({c: None if c != "k" and rng.random() < 0.1 else v for c, v in row.items()})
    return made


def sample(drawn: list[dict[str, Value]], seen: int | None = None) -> StreamSample:
    as_text = {"x", "d"}
    return StreamSample(
        len(drawn) if seen is None else seen,
        len(drawn),
        {
            name: (kind, [_json(r[name], name in as_text) for r in drawn])
            for name, kind in TYPES.items()
        },
    )


def _json(value: Value, as_text: bool) -> Value:
    return str(value) if as_text and value is not None else value


def query(condition: str) -> JoinQuery:
    return parse_sql("q", f"SELECT R.k FROM R JOIN S ON R.k = S.k WHERE {condition}", STREAMS)


def filtered(condition: str) -> tuple[RelationId, tuple[Expr, ...]]:
    (relation,) = [r for r in query(condition).relations if r.stream == "R"]
    return relation.id, relation.filter


def passes(conjuncts: tuple[Expr, ...], row: dict[str, Value]) -> bool:
    def read(column: Column) -> Value:
        return row[column.name]

    return all(holds(e, read) for e in conjuncts)


@pytest.mark.parametrize("condition", FILTERS)
def test_the_share_is_what_exact_evaluation_finds(condition: str) -> None:
    _, conjuncts = filtered(condition)
    for seed in range(3):
        drawn = rows(200, seed)
        exact = sum(passes(conjuncts, row) for row in drawn)
        assert share(sample(drawn), conjuncts) == (exact + 0.5) / 201
    assert share(StreamSample.loads(sample(drawn).dumps()), conjuncts) == (exact + 0.5) / 201


def test_what_can_not_be_evaluated_is_not_estimated() -> None:
    drawn = sample(rows(20, 0))
    _, conjuncts = filtered("year(R.ts) = 1970")
    assert share(drawn, conjuncts) is None
    _, conjuncts = filtered("R.n > 5")
    without = StreamSample(20, 20, {c: v for c, v in drawn.columns.items() if c != "n"})
    assert share(without, conjuncts) is None
    assert share(StreamSample(0, 0, {c: (t, []) for c, t in TYPES.items()}), conjuncts) is None


def test_estimates_stand_in_only_for_what_is_not_known() -> None:
    name, conjuncts = filtered("R.n > 5")
    drawn = rows(256, 1)
    part = (sum(passes(conjuncts, r) for r in drawn) + 0.5) / 257
    whole = Statistics(
        {RelationId("R"): 10_000.0, RelationId("S"): 10.0},
        {(RelationId("R"), "k"): 10_000.0, (RelationId("R"), "n"): 10.0},
    )
    found = estimate(whole, [query("R.n > 5")], {"R": sample(drawn, 10_000)})
    assert found.estimated == {name: pytest.approx(part)}
    assert found.cardinality(name) == pytest.approx(10_000 * part)
    assert found.distinct(name, ("k",)) == pytest.approx(10_000 * part)
    assert found.distinct(name, ("n",)) == pytest.approx(10.0)
    assert found.distinct(name, ("t",)) is None
    assert found.cardinality(RelationId("S")) == 10.0
    counted = Statistics({**whole.cardinalities, name: 77.0})
    assert estimate(counted, [query("R.n > 5")], {"R": sample(drawn)}) is counted
    assert estimate(whole, [query("R.n > 5")], {}) is whole


def test_frequent_values_of_a_filtered_relation_are_its_streams_until_it_is_counted() -> None:
    name, _ = filtered("R.n > 5")
    stream = RelationId("R")
    whole, part = (FrequentValues((9,), ("5",), (s,), (s,), 0.01) for s in (0.5, 0.25))
    known = Statistics({stream: 10_000.0}, values={(stream, "k"): whole})
    drawn = {"R": sample(rows(256, 1), 10_000)}
    found = estimate(known, [query("R.n > 5")], drawn)
    assert list(found.estimated) == [name]
    assert found.frequent(stream, "k") == found.frequent(name, "k") == whole
    assert found.frequent(name, "n") is None
    assert found.frequent(RelationId("S"), "k") is None
    counted = replace(known, values={(stream, "k"): whole, (name, "k"): part})
    again = estimate(counted, [query("R.n > 5")], drawn)
    assert again.frequent(name, "k") == part


def test_an_estimated_relation_brings_its_share_of_its_stream() -> None:
    name, conjuncts = filtered("R.n > 5")
    drawn = rows(256, 1)
    part = (sum(passes(conjuncts, r) for r in drawn) + 0.5) / 257
    stream, other = RelationId("R"), RelationId("S")
    known = Statistics({stream: 10_000.0, other: 10.0})
    coming = PeriodForecast(0.1, {stream: 500.0, other: 7.0}, {stream: ((0.5, 4000.0),)}, 9)
    base = replace(known, ahead=coming)
    found = estimate(base, [query("R.n > 5")], {"R": sample(drawn, 10_000)}).ahead
    assert found is not None
    assert found.arrivals == {stream: 500.0, other: 7.0, name: pytest.approx(500 * part)}
    assert found.recent[name][0] == pytest.approx((0.5, 4000 * part))
    assert (found.length, found.periods) == (0.1, 9)
    unknown = replace(known, ahead=PeriodForecast(0.1))
    without = estimate(unknown, [query("R.n > 5")], {"R": sample(drawn, 10_000)}).ahead
    assert without == PeriodForecast(0.1)
    counted = Statistics({**known.cardinalities})
    assert estimate(counted, [query("R.n > 5")], {"R": sample(drawn, 10_000)}).ahead is None


def test_a_column_in_figures() -> None:
    found = describe(sample(rows(256, 2)))
    assert set(found) == set(TYPES)
    assert found["k"].top == ()
    assert found["k"].quantiles == (0, 64, 128, 191, 255)
    assert found["x"].top[0][1] > 0.2
    assert 0.03 < found["n"].nulls < 0.2
    assert sum(part for _, part in found["f"].top) + found["f"].nulls == pytest.approx(1.0)


def test_patterns_match_as_by_their_definition() -> None:
    def matches(text: str, pattern: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "%":
            return any(matches(text[at:], pattern[1:]) for at in range(len(text) + 1))
        return bool(text) and pattern[0] in ("_", text[0]) and matches(text[1:], pattern[1:])

    chance = random.Random(0)
    for _ in range(3000):
        text = "".join(chance.choices("ab\n", k=chance.randrange(7)))
        pattern = "".join(chance.choices("ab%_", k=chance.randrange(7)))
        assert _like(text, pattern) == matches(text, pattern), (text, pattern)
    # With backtracking over all positions of each piece this would not end.
    assert not _like("a" * 2000, "%a" * 30 + "%b")
