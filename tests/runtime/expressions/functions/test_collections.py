"""Compare functions of arrays, structs and maps with Spark on random rows, with NULL
and extremes.
"""

from __future__ import annotations

import math
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import Column
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.syntax import parse_expression
from anabranch_runtime.columns.arrow_types import arrow_type, spark_type
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.expressions.evaluate import evaluate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 2_000
#: Share of NULLs in the column of JSON texts.
JSON = 0.07
_COLUMNS = {
    "i": "int",
    "j": "int",
    "u": "string",
    "x": "double",
    "a": "array<int>",
    "c": "array<int>",
    "e": "array<string>",
    "f": "array<double>",
    "g": "array<array<int>>",
    "p": "struct<n:int,t:string,k:struct<v:bigint,w:array<int>>>",
    "l": "array<struct<n:int,t:string>>",
    "m": "map<string,int>",
    "o": "map<int,array<string>>",
    "h": "string",
}
_JSON = [
    '{"a": 1, "b": "x"}',
    '{"a": "1", "b": 2}',
    '{"a": 1.5, "b": [1, 2]}',
    '{"b": {"c": true}}',
    '{"a": 1',
    "",
    " ",
    "null",
    "[]",
    '[{"a": 1}, {"a": 2}]',
    '{"a": 99999999999}',
    "3",
    '"a"',
    '{"a": {"x": 1.0}, "b": ["x", 1]}',
    '{"b": {"d": "2026-01-31", "c": "no"}}',
    '{"A": 1}',
    '{"a": true, "b": null}',
    '{"a": 12.345}',
    '{"a": "NaN"}',
    '{"b": {"k": 1, "l": "m"}}',
]
_FLOATS = [0.0, -0.0, math.nan, 1.5, -2.25, math.inf]


def _value(rng: Random, kind: Any, missing: float = 0.1) -> Any:
    if rng.random() < missing:
        return None
    name = kind.kind.value
    if name == "array":
        return [_value(rng, kind.element, 0.15) for _ in range(rng.choice([0, 1, 2, 3, 6]))]
    if name == "struct":
        return {field: _value(rng, of) for field, of in kind.fields}
    if name == "map":
        keys = {_value(rng, kind.fields[0][1], 0) for _ in range(rng.randrange(4))}
        return [(key, _value(rng, kind.element)) for key in keys]
    if missing == JSON:
        return rng.choice(_JSON)
    if name == "string":
        return rng.choice(["", "a", "b", "ab", "a,b", "é", "a b"])
    return rng.choice(_FLOATS) if name == "double" else rng.randrange(-3, 6)


def _table(rng: Random) -> pa.Table:
    kinds = {name: parse_type(text) for name, text in _COLUMNS.items()}
    return pa.table(
        {
            name: pa.array(
                [_value(rng, kind, JSON if name == "h" else 0.1) for _ in range(ROWS)],
                arrow_type(kind),
            )
            for name, kind in kinds.items()
        }
    )


_EXPRESSIONS = [
    "a", "p", "m", "l", "o", "p.n", "p.k", "p.k.v", "get(p.k.w, 0)", "l.n", "l.t",
    "get(l, 0).t", "m['a']",
    "m[u]", "m.ab", "o[i]", "get(o[1], 0)", "element_at(m, 'b')", "element_at(o, 2)", "get(a, i)",
    "get(a, 0)", "get(l, 1).n", "try_element_at(a, -1)", "try_element_at(a, 2)", "size(a)",
    "cardinality(m)", "array_size(e)", "array_contains(a, 2)", "array_contains(a, i)",
    "array_contains(e, u)", "array_contains(f, x)", "array_position(a, i)",
    "array_position(e, 'ab')", "array_remove(a, i)", "array_remove(f, x)", "array_distinct(a)",
    "array_distinct(e)", "array_distinct(f)", "array_max(a)", "array_min(a)", "array_max(f)",
    "array_min(f)", "array_max(e)", "sort_array(a)", "sort_array(a, false)", "sort_array(e)",
    "sort_array(f)", "sort_array(f, false)", "array_sort(a)", "array_sort(f)", "array_union(a, c)",
    "array_intersect(a, c)", "array_except(a, c)", "array_union(f, f)",
    "array_intersect(f, array(x))",
    "array_except(f, array(x))", "arrays_overlap(a, c)",
    "array_compact(a)", "array_compact(l)", "reverse(a)", "reverse(l)", "reverse(u)",
    "concat(a, c)", "concat(a, c, a)", "concat(e, array(u))", "array_append(a, i)",
    "array_prepend(a, i)", "flatten(g)", "slice(a, 1, 2)", "slice(a, -2, 2)", "slice(l, 2, 1)",
    "array_join(e, '/')", "array_join(e, '/', 'none')", "array_join(a, ',')", "array(i, j)",
    "array(i, 2, NULL)", "array(u)", "array(p, p)", "size(array())", "array(x, i)", "array(a, c)",
    "named_struct('a', i, 'b', u)", "struct(i, u)", "struct(i + 1, u AS t, p.n)",
    "named_struct('a', named_struct('b', a)).a.b", "map('a', i, 'b', j)", "map('a', i)['a']",
    "map_keys(m)", "map_values(m)", "map_values(o)", "map_entries(m)", "map_contains_key(m, 'a')",
    "map_contains_key(o, i)", "map_from_arrays(array('x', 'y'), array(i, j))", "sequence(1, 3)",
    "sequence(i, j)", "sequence(5, 1, -2)", "array_repeat(i, 3)", "array_repeat(u, j)",
    "split(u, ',')", "split(u, '[ ,]')[0]", "element_at(split(u, ','), -1)", "size(split(u, ','))",
    "from_json(h, 'a INT, b STRING')", "from_json(h, 'a STRING, b ARRAY<INT>').a",
    "from_json(h, 'struct<a:double,b:struct<c:boolean,d:date>>').b.d",
    "from_json(h, 'a DECIMAL(5,2), b MAP<STRING,INT>')", "from_json(h, 'ARRAY<STRUCT<a: BIGINT>>')",
    "from_json(h, 'MAP<STRING,STRING>')", "to_json(p)", "to_json(l)", "to_json(m)", "to_json(a)",
    "to_json(named_struct('x', x, 'u', u, 't', timestamp_millis(i), 'd', CAST(i AS DECIMAL(5,1))))",
    "CAST(a AS array<bigint>)", "CAST(a AS array<string>)",
    "coalesce(a, c)", "coalesce(a, array())",
    "CASE WHEN i > 0 THEN a ELSE c END", "CASE WHEN i > 0 THEN p END", "a IS NULL", "p.t IS NULL",
    "coalesce(m['a'], 0) + 1", "array_contains(map_keys(m), 'b')", "if(size(a) > 1, a[1], -1)",
    "sequence(-9223372036854775808, 9223372036854775807, 4611686018427387904)",
    "array_join(e, NULL)", "isnull(array_max(array(NULL)))",
    "size(sort_array(array(NULL, NULL)))", "from_json(concat(h, '\\\\ud800'), 'a STRING')",
    "map(1, 2)[1]", "get(array(1, 2), 1)", "r.p.n", "r.m['a']", "r.p.k.v + 1", "P.N",
    "array_contains(array(1, NULL), i)", "get(flatten(g), 0)",
    "transform(a, x -> x + i)", "transform(a, (x, n) -> x * n + j)", "transform(a, x -> 7)",
    "transform(e, s -> concat(s, u))", "transform(l, o -> o.n + 1)", "transform(a, x -> u)",
    "transform(g, xs -> transform(xs, x -> x + size(xs) + i))", "transform(l, o -> o)",
    "transform(g, x -> transform(x, x -> x + 1))", "transform(a, X -> coalesce(x, 0))",
    "filter(a, x -> x > i)", "filter(a, (x, n) -> n > 0 OR x IS NULL)", "filter(l, o -> o.t = u)",
    "filter(g, xs -> exists(xs, x -> x = i))", "filter(a, x -> NULL)", "filter(f, y -> y > x)",
    "exists(a, x -> x = i)", "exists(a, x -> x > 3)", "forall(a, x -> x > -3)",
    "forall(e, s -> s LIKE '%a%')", "exists(l, o -> o.n IS NULL)", "forall(g, xs -> size(xs) > 0)",
    "zip_with(a, c, (x, y) -> x + y)", "zip_with(a, e, (x, s) -> named_struct('x', x, 's', s))",
    "zip_with(a, c, (x, y) -> coalesce(x, y, i))", "map_filter(m, (k, v) -> v > i OR k = u)",
    "transform_values(m, (k, v) -> concat(k, v))", "transform_values(o, (k, v) -> size(v) + k + i)",
    "aggregate(a, 0, (s, x) -> s + x)", "aggregate(a, i, (s, x) -> coalesce(s + x, s))",
    "aggregate(a, 0, (s, x) -> s + coalesce(x, 0), s -> s * 2.5)",
    "aggregate(e, '', (s, x) -> concat(s, x, u))", "reduce(f, 0.0D, (s, y) -> s + y * x)",
    "aggregate(a, named_struct('n', 0, 's', 0), (t, x) -> named_struct('n', t.n + 1, 's', t.s + x),"
    " t -> try_divide(t.s, t.n))",
    "aggregate(g, 0, (s, xs) -> s + aggregate(xs, 0, (r, x) -> r + coalesce(x, 0)))",
    "map_concat(m, map('z', i))", "map_concat(m)", "map_concat(map(1, x), map(9L, x))",
    "map_from_entries(map_entries(m))",
    "map_from_entries(transform(a, (x, n) -> if(x > 4, NULL, struct(n, x))))",
    "map_from_entries(filter(l, o -> false))", "map_concat(m, map_filter(m, (k, v) -> false))",
    "transform_keys(m, (k, v) -> concat(k, '!'))", "transform_keys(o, (k, v) -> k * 2.5D + 1)",
    "transform_keys(o, (k, v) -> -k * 0.5D)", "map_zip_with(m, map('a', i), (k, v, w) -> v + w)",
    "map_zip_with(m, map(coalesce(u, 'a'), x), (k, v, w) -> concat_ws('/', k, v, w))",
    "map_zip_with(o, map(CAST(2 AS BIGINT), x), (k, v, w) -> named_struct('v', v, 'w', w, 'i', i))",
    "map_zip_with(m, m, (k, v, w) -> v - w + j)",
    "transform(map_keys(m), k -> m[k])", "transform(sequence(1, 3), n -> get(a, n))",
]  # fmt: skip


def _comparable(value: Any) -> Any:
    """Return a value whose equality is exact: NaN equals NaN, 0.0 does not equal -0.0; maps are
    unordered.
    """
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {name: _comparable(one) for name, one in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {key: _comparable(one) for key, one in value}
    return [_comparable(one) for one in value] if isinstance(value, list) else value


def _column(table: pa.Table, column: Column) -> pa.Array:
    return table.column(column.name)


def _scope() -> Scope:
    columns = tuple((name, parse_type(text)) for name, text in _COLUMNS.items())
    return Scope.of_stream("r", Stream(StreamName("r"), columns))


@pytest.mark.spark
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_functions_are_those_of_spark_on_random_rows(spark: SparkSession, seed: int) -> None:
    table, scope = _table(Random(seed)), _scope()
    schema = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
    frame = spark.createDataFrame(table, schema=schema).coalesce(1).alias("r")
    listed = [f"{text} AS c{k}" for k, text in enumerate(_EXPRESSIONS)]
    answer = frame.selectExpr(*listed).toArrow()
    wrong = list[tuple[Any, ...]]()
    for k, text in enumerate(_EXPRESSIONS):
        expr = typed(parse_expression(text), scope)
        # Rows that begin anywhere in their columns' buffers, as in a part of a batch.
        parts = [table.slice(0, 700), table.slice(700)]
        try:
            found = pa.chunked_array(
                [evaluate(expr, partial(_column, part), part.num_rows) for part in parts]
            )
            found.validate(full=True)
        except ExpressionError as error:
            wrong.append((text, str(error)))
            continue
        kind = spark_type(answer.schema.field(k).type)
        if kind != expr.type:
            wrong.append((text, kind, expr.type))
        pairs = zip(answer.column(k).to_pylist(), found.to_pylist(), strict=True)
        rows = [
            (n, want, have)
            for n, (want, have) in enumerate(pairs)
            if _comparable(want) != _comparable(have)
        ]
        wrong += [(text, len(rows), table.slice(n, 1).to_pylist(), want, have)
                  for n, want, have in rows[:1]]  # fmt: skip
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = c", "the comparison of r.a, which is of type array<int>, is not supported"),
        ("p.nope", "r.p has no field 'nope'"),
        ("i.n", "which has no fields"),
        ("a['x']", "takes an integer"),
        ("size(u)", "size() takes an array or a map, but r.u is of type string"),
        ("array_contains(a, u)", "array_contains(): r.a is of type array<int>, r.u of type string"),
        ("array(a, u)", "is of type"),
        ("map('a')", "takes keys and values by turns"),
        ("named_struct('a', 1, 'A', 2)", "two fields of a struct are called"),
        ("array_max(l)", "array_max() of get(r.l, 0)"),
        ("sequence(1, x)", "sequence() takes integers"),
        ("CAST(a AS STRING)", "can't be cast"),
        ("flatten(a)", "flatten() of an array of"),
        ("a IN (c)", "IN of r.a"),
        ("greatest(a, c)", "greatest() or least() of r.a"),
        ("hash(a)", "hash() of r.a"),
        ("m[1.5]", "the keys of r.m are of type string"),
        ("map(1, 2)[1.5]", "the keys of"),
        ("l.n = c", "the comparison of r.l.n"),
        ("transform(u, x -> x)", "transform() takes an array, but r.u is of type string"),
        ("transform(a, i)", "transform() takes a function, not i"),
        ("transform(a, (x, n, o) -> x)", "the function in transform() has 3 parameters"),
        ("zip_with(a, c, x -> x)", "the function in zip_with() has 1 parameters"),
        ("transform(a, (x, X) -> x)", "two of one name"),
        ("filter(a, x -> x + 1)", "the function in filter() gives int, not a condition"),
        ("exists(a, (x, n) -> x > n)", "has 2 parameters"),
        ("map_filter(a, (k, v) -> TRUE)", "map_filter() takes a map"),
        ("aggregate(a, i, (s, x) -> s + u)", "r.u"),
        ("aggregate(e, 0, (s, x) -> CAST(x AS DATE))", "is of type"),
        ("transform(a, x -> x.n)", "has no fields"),
        ("transform(a, x -> y)", "no column 'y'"),
        ("upper(x -> x)", "x -> x"),
        ("transform_keys(m, (k, v) -> array(k))", "the keys of a map are of type array<string>"),
        ("map_zip_with(m, o, (k, v, w) -> k)", "the keys of r.m are of type string"),
        ("map_zip_with(m, m, (k, v) -> k)", "has 2 parameters"),
        ("map_from_entries(a)", "takes an array of structs of two fields"),
        ("map_concat(m, a)", "map_concat() takes a map"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, message: str) -> None:
    with pytest.raises(QueryError) as error:
        typed(parse_expression(text), _scope())
    assert message in error.value.message
    assert error.value.remedy


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a[9]", "no-element"),
        ("element_at(a, 9)", "no-element"),
        ("element_at(a, 0)", "no-element"),
        ("slice(a, 0, 1)", "bad-slice"),
        ("sequence(1, 2000000)", "too-long"),
        ("sequence(1, 5, -1)", "bad-sequence"),
        ("array_repeat(u, 2000000)", "too-long"),
        ("sequence(-9223372036854775808, 9223372036854775807)", "too-long"),
        ("map('a', 1, 'a', 2)", "bad-map"),
        ("map(u, 1)", "bad-map"),
        ("transform_keys(map('a', 1, 'b', 2), (k, v) -> 0)", "bad-map"),
        ("transform_keys(map('a', 1), (k, v) -> CAST(NULL AS INT))", "bad-map"),
        ("map_concat(map('a', 1), map('a', 2))", "bad-map"),
        ("map_from_entries(array(struct(u, 1)))", "bad-map"),
    ],
)
def test_what_fails_in_spark_fails_here(text: str, code: str) -> None:
    table = pa.table(
        {"a": pa.array([[1, 2]], pa.list_(pa.int32())), "u": pa.array([None], "string")}
    )
    with pytest.raises(ExpressionError) as error:
        evaluate(typed(parse_expression(text), _scope()), partial(_column, table), 1)
    assert error.value.code == code
