"""Tests of the interpreter and the nested loop, with results computed by hand."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.activations import Activation, Visibility
from anabranch_contract.queries.expressions import BOOLEAN, Call, Column, Expr, Literal
from anabranch_contract.queries.joins import JoinQuery, QueryId, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.plans.compile import compile_ruleset
from tests.support.cases.random_plans import random_plan
from tests.support.cases.typed_queries import Alias, build_query
from tests.support.oracles.evaluate import evaluate, holds
from tests.support.oracles.history import Batch, History, record
from tests.support.oracles.interpreter import interpret
from tests.support.oracles.nested_loop import nested_loop

INT = parse_type("int")
STREAMS = {
    name: Stream(
        StreamName(name),
        (("k", INT), ("v", INT), ("ts", parse_type("timestamp"))),
        event_time="ts",
        lateness=5,
    )
    for name in ("s", "t")
}


def row(k: int | None, v: int, ts: int | None) -> dict[str, int | None]:
    return {"k": k, "v": v, "ts": ts}


def history(*batches: Batch) -> History:
    return record(list(STREAMS.values()), batches)


def query(*streams: str, bound: int | None = None) -> JoinQuery:
    aliases = [Alias("ab"[i], stream) for i, stream in enumerate(streams)]
    bounds = {} if bound is None else {("a", "b"): bound, ("b", "a"): bound}
    return build_query("q", aliases, [(("a", "k"), ("b", "k"))], STREAMS, bounds=bounds)


def ruleset(join: JoinQuery) -> Ruleset:
    plan = random_plan([join], Random(0))
    streams = list(STREAMS.values())
    return compile_ruleset(plan, [join], streams, epoch=0, parallelism=1, sinks={})


def test_late_and_invalid_rows_are_set_aside() -> None:
    past = history(
        {"s": [row(1, 0, 20), row(1, 1, 3)]}, {"s": [row(1, 2, 14), row(1, 3, 15), row(1, 4, None)]}
    )
    # Watermark of the second batch: 20 - 5. The first batch has none.
    assert [a.values["v"] for a in past.of("s")] == [0, 1, 3]
    assert (past.late["s"], past.invalid["s"]) == (1, 1)
    assert past.watermarks[1] == {"s": 15, "t": None}


def test_two_aliases_of_one_stream_pair_a_tuple_with_itself_once() -> None:
    past = history({"s": [row(1, 0, 0), row(1, 1, 0), row(None, 2, 0)]})
    join = query("s", "s")
    expected = {(1, 1), (1, 2), (2, 1), (2, 2)}
    assert set(nested_loop(join, past)) == expected
    assert set(interpret([(ruleset(join), 1)], past).results[join.id]) == expected


def test_a_time_bound_is_inclusive() -> None:
    past = history({"s": [row(1, 0, 0)], "t": [row(1, 0, 7), row(1, 1, 8)]})
    join = query("s", "t", bound=7)
    assert set(nested_loop(join, past)) == {(1, 2)}
    assert set(interpret([(ruleset(join), 1)], past).results[join.id]) == {(1, 2)}


def test_the_nested_loop_respects_activation_expiry_and_visibility() -> None:
    past = history(*({"s": [row(1, n, n)], "t": [row(1, n, n)]} for n in range(4)))
    # Arrivals are 1..8: in batch n, s has 2n+1 and t has 2n+2.
    span = Activation(2, {"a": Visibility(1, None), "b": Visibility(0, 1)}, expired_batch=3)
    assert set(nested_loop(query("s", "t"), past, span)) == {(3, 6), (5, 4), (5, 6)}


def test_an_expired_query_emits_nothing_and_visible_from_is_where_storing_began() -> None:
    past = history(*({"s": [row(1, n, n)], "t": [row(1, n, n)]} for n in range(3)))
    join, later = query("s", "t"), replace(query("s", "t"), id=QueryId("later"))
    none = replace(ruleset(join), queries=(), stores=(), store_rules=(), probe_rules=(),
                   output_rules=())  # fmt: skip
    outcome = interpret([(ruleset(join), 1), (none, 1), (ruleset(later), 1)], past)
    assert set(outcome.results[join.id]) == {(1, 2)}
    assert outcome.activations[join.id].expired_batch == 1
    # Batch 1 was not stored, so batch 0 is not visible to the later query.
    assert outcome.activations[later.id].visible_from["a"] == Visibility(2, None)
    assert set(outcome.results[later.id]) == {(5, 6)}


def test_a_result_that_comes_twice_is_an_error() -> None:
    join = query("s", "t")
    rules = ruleset(join)
    past = history({"s": [row(1, 0, 0)], "t": [row(1, 0, 0)]})
    doubled = replace(rules, output_rules=(*rules.output_rules, *rules.output_rules))
    with pytest.raises(AssertionError, match="twice"):
        interpret([(doubled, 1)], past)


def test_a_store_that_nothing_feeds_is_an_error() -> None:
    rules = ruleset(query("s", "t"))
    with pytest.raises(AssertionError, match="not fed"):
        interpret([(replace(rules, store_rules=rules.store_rules[1:]), 1)], history({}))


def _call(op: str, *args: Expr) -> Call:
    return Call(op, args, BOOLEAN)


def test_logic_is_three_valued() -> None:
    null, true = Literal(None, BOOLEAN), Literal(True, BOOLEAN)
    false = Literal(False, BOOLEAN)

    def value(expr: Expr) -> object:
        return evaluate(expr, lambda column: None)

    assert value(_call("and", null, false)) is False
    assert value(_call("and", null, true)) is None
    assert value(_call("or", null, true)) is True
    assert value(_call("or", null, false)) is None
    assert value(_call("not", null)) is None
    assert value(_call("eq", Column("", "k", INT), Column("", "k", INT))) is None
    one, two = Literal(1, INT), Literal(2, INT)
    assert value(_call("in", one, two, null)) is None
    assert value(_call("in", one, one, null)) is True
    assert value(_call("eq_null_safe", null, null)) is True
    assert not holds(null, lambda column: None)


def test_floats_compare_as_spark_compares_them() -> None:
    double = parse_type("double")
    nan, infinite = Column("", "nan", double), Column("", "inf", double)
    zero = Literal(-0.0, double)

    def true(op: str, one: Expr, other: Expr) -> bool:
        return holds(_call(op, one, other), lambda column: float(column.name))

    assert true("eq", nan, nan)
    assert true("gt", nan, infinite)
    assert true("eq", zero, Literal(0.0, double))
    assert not true("lt", nan, nan)


def test_text_and_remainders() -> None:
    string = parse_type("string")

    def value(op: str, *args: Expr) -> object:
        return evaluate(Call(op, args, string), lambda column: None)

    def text(value: str) -> Literal:
        return Literal(value, string)

    assert value("like", text("a%b"), text("a\\%_")) is True
    assert value("like", text("axb"), text("a\\%b")) is False
    assert value("substring", text("hello"), Literal(2, INT), Literal(3, INT)) == "ell"
    assert value("substring", text("hello"), Literal(-3, INT), Literal(2, INT)) == "ll"
    assert value("mod", Literal(-7, INT), Literal(3, INT)) == -1
