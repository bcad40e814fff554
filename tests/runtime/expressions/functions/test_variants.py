"""Compare variants with Spark's, on random JSON texts, paths and types."""

from __future__ import annotations

import json
import math
import re
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.expressions import Column
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.normal.expansions import expansion_of
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.syntax import parse_expression
from anabranch_planner.sql.unresolved import RowGenerator
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.expressions.evaluate import evaluate
from anabranch_runtime.expressions.expansion import expanded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 10_000
#: A number whose canonical text is of another type: 1.0 is a decimal in Spark, 1.5e2 a double.
_RESPELLED = re.compile(r"\d\.0+(?!\d)|\d[eE][+-]?\d|\.\d{39}")
_PATHS = ["$", "$.a", "$.b", "$['a b']", "$[0]", "$[1]", "$.a.b", "$.a[0]", "$[0].a", "$.b.a[1].b"]
_TYPES = [
    "string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double",
    "decimal(10,2)", "decimal(38,10)", "decimal(3,3)", "date", "binary", "array<int>",
    "array<string>", "map<string,double>", "map<string,string>", "struct<a:int,b:string>",
    "struct<a:array<decimal(5,1)>,b:struct<a:boolean>>", "array<map<string,bigint>>",
]  # fmt: skip
_NUMBERS = [
    "0", "-0", "1", "-7", "127", "128", "32768", "2147483648", "9223372036854775807",
    "9223372036854775808", "-9223372036854775809", "1.0", "1.50", "-0.0", "0.001", "1e2", "1E-7",
    "1.005e2", "12345678901234567890.125", "0.1", "99.995", "1e38", "123456.789e3", "3.4e39",
    "12345678901234567890123456789012345678", "123456789012345678901234567890123456789",
    "0.00000000000000000000000000000000000001", "0.000000000000000000000000000000000000001",
]  # fmt: skip
_TEXTS = [
    "", "a", "é", "12", " 12 ", "1.5", "true", "no", "2026-01-31", "2026-02-30", "NaN", 'q"\\/',
    "\n", "\u001f", "😀", "2026-01-31 12:00:00", "1e3", "-5",
]  # fmt: skip


def _json(rng: Random, depth: int = 0) -> str:
    """Return a random JSON text, with random spaces."""
    space = rng.choice(["", "", "", " ", "\n\t"])
    kind = rng.random() if depth < 3 else rng.random() * 0.6
    if kind < 0.35:
        number = (
            rng.choice(_NUMBERS)
            if rng.random() < 0.6
            else repr(rng.gauss(0, 10 ** rng.randrange(9)))
        )
        return space + number
    if kind < 0.55:
        return space + json.dumps(rng.choice(_TEXTS), ensure_ascii=rng.random() < 0.5)
    if kind < 0.65:
        return rng.choice(["true", "false", "null"]) + space
    inner = [_json(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind < 0.8:
        return space + "[" + ",".join(inner) + "]"
    names = rng.sample(["a", "b", "a b", "é", "😀", "\uffff", ""], len(inner))
    if rng.random() < 0.02 and names:
        names[-1] = names[0]
    pairs = zip(names, inner, strict=True)
    return "{" + ",".join(f"{json.dumps(name)}{space}:{one}" for name, one in pairs) + "}"


def _text(rng: Random) -> str | None:
    """Return a random text; some are not JSON."""
    if rng.random() < 0.03:
        return None
    text = _json(rng)
    if rng.random() < 0.1:
        at = rng.randrange(len(text) + 1)
        junk = rng.choice(["", " ", ",", "]", "}", '"', "x", "1", "NaN", "\x01", "\\ud800", ". "])
        text = text[:at] + junk + text[at + rng.randrange(2) :]
    return text


def _expressions(rng: Random) -> list[str]:
    found = ["to_json(v)", "is_variant_null(v)", "v IS NULL", "CAST(v AS STRING)", "typeof(v)"]
    found += [f"to_json(try_variant_get(v, \"{path}\", 'variant'))" for path in _PATHS]
    found += [f'to_json(variant_get(v, "{path}"))' for path in _PATHS[:3]]
    for kind in _TYPES:
        paths = ["$", *rng.sample(_PATHS, 2)]
        got = [f"try_variant_get(v, \"{path}\", '{kind}')" for path in paths]
        # Python has no dates beyond the year 9999.
        found += [f"CAST({one} AS STRING)" if kind == "date" else one for one in got]
    return [*found, *(f"TRY_CAST(v AS {kind})" for kind in ("int", "array<double>"))]


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {name: _comparable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_comparable(one) for one in value]
    return (value[0], _comparable(value[1])) if isinstance(value, tuple) else value


def _scope(**columns: str) -> Scope:
    kinds = tuple((name, parse_type(text)) for name, text in columns.items())
    return Scope.of_stream("r", Stream(StreamName("r"), kinds))


def _evaluated(text: str, table: pa.Table, scope: Scope) -> pa.Array:
    def column(read: Column) -> pa.Array:
        return table.column(read.name).combine_chunks()

    return evaluate(typed(parse_expression(text), scope), column, table.num_rows)


def _beyond(text: str | None) -> bool:
    """Whether a number is infinite as a double, which only Spark's variants may contain."""
    found = list[str]()
    try:
        json.loads(text or "null", parse_float=found.append)
    except ValueError:
        return False
    return any(math.isinf(float(one)) for one in found)


@pytest.mark.spark
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_variants_are_those_of_spark_on_random_texts(spark: SparkSession, seed: int) -> None:
    rng = Random(seed)
    texts = [one for one in (_text(rng) for _ in range(ROWS)) if not _beyond(one)]
    table = pa.table({"t": pa.array(texts, pa.string())})
    listed = _expressions(rng)
    frame = (
        spark.createDataFrame(table).selectExpr("t", "try_parse_json(t) AS v").coalesce(1).cache()
    )
    answer = frame.selectExpr(*(f"{text} AS c{k}" for k, text in enumerate(listed))).toArrow()
    table = table.append_column("v", _evaluated("try_parse_json(t)", table, _scope(t="string")))
    wrong = list[Any]()
    for k, text in enumerate(listed):
        found = _evaluated(text, table, _scope(v="variant"))
        found.validate(full=True)
        pairs = zip(texts, answer.column(k).to_pylist(), found.to_pylist(), strict=True)
        differing = [row for row in pairs if _comparable(row[1]) != _comparable(row[2])]
        wrong += [(text, len(differing), *row) for row in differing[:2]]
    assert wrong == []


@pytest.mark.spark
def test_types_are_those_of_spark_on_random_texts(spark: SparkSession) -> None:
    rng = Random(4)
    made = (_text(rng) for _ in range(ROWS))
    texts = [one for one in made if not _beyond(one) and not _RESPELLED.search(one or "")]
    table = pa.table({"t": pa.array(texts, pa.string())})
    text = "schema_of_variant(try_parse_json(t))"
    answer = spark.createDataFrame(table).coalesce(1).selectExpr(f"{text} AS c").toArrow()
    found = _evaluated(text, table, _scope(t="string")).to_pylist()
    rows = zip(texts, answer.column(0).to_pylist(), found, strict=True)
    assert [row for row in rows if row[1] != row[2]] == []


@pytest.mark.spark
def test_members_are_those_of_spark_on_random_texts(spark: SparkSession) -> None:
    rng = Random(3)
    texts = [one for one in (_text(rng) for _ in range(ROWS)) if not _beyond(one)]
    table = pa.table({"n": pa.array(range(len(texts))), "t": pa.array(texts, pa.string())})
    spark.createDataFrame(table).selectExpr("n", "try_parse_json(t) AS v").createOrReplaceTempView(
        "variants"
    )
    table = table.append_column("v", _evaluated("try_parse_json(t)", table, _scope(t="string")))
    call = parse_expression("variant_explode(v)")
    assert isinstance(call, exp.Anonymous)
    for outer, name in ((False, "variant_explode"), (True, "variant_explode_outer")):
        answer = spark.sql(
            f"SELECT n, e.pos, e.key, to_json(e.value) FROM variants, LATERAL {name}(v) AS e"
        )
        made, columns = expansion_of(RowGenerator(call, outer, "e"), _scope(v="variant"), "#1")
        read, rows = expanded(
            [made], lambda one: table.column(one.name).combine_chunks(), table.num_rows
        )
        assert [one.name for one in columns] == ["pos", "key", "value"]
        found = [read(column).to_pylist() for column in made.columns]
        assert sorted(zip(rows.tolist(), *found, strict=True), key=str) == sorted(
            map(tuple, answer.collect()), key=str
        )


def _refused(text: str) -> QueryError:
    scope = _scope(v="variant", w="variant", t="string", a="array<int>")
    with pytest.raises(QueryError) as error:
        typed(parse_expression(text), scope)
    return error.value


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("v = w", "the comparison of r.v, which is of type variant", "CAST(r.v AS STRING)"),
        ("v IN (w)", "IN of r.v", "CAST(r.v AS STRING)"),
        ("greatest(v, w)", "of r.v, which is of type variant", "CAST(r.v AS STRING)"),
        ("v.a", "which has no fields", "write r.v:a"),
        ("v[0]", "takes an array", "variant_get(r.v"),
        ("v + 1", "operands of types variant and int", "cast"),
        ("upper(v)", "upper() takes string, but r.v is of type variant", "CAST"),
        ("concat_ws('-', v)", "variant", "CAST(r.v AS STRING)"),
        ("variant_get(t, '$')", "takes a variant, but r.t", "variant_get(parse_json(r.t), ...)"),
        ("variant_get(v, 'a')", "it does not begin with $", "'$.a.b[0]'"),
        ("variant_get(v, '$', 'nothing')", "'nothing'", "use one of"),
        ("variant_get(v, '$', 'interval day')", "can't be cast to interval day", "AS STRING"),
        ("variant_get(v, '$', 'map<int,int>')", "can't be cast to map<int,int>", "AS STRING"),
        ("parse_json(v)", "parse_json() takes a text", "leave parse_json() out"),
        ("CAST(t AS VARIANT)", "can't be cast to variant", "write parse_json(r.t)"),
        ("CAST(a AS VARIANT)", "can't be cast to variant", "write parse_json(to_json(r.a))"),
        ("coalesce(v, t)", "r.v is of type variant, r.t of type string", "the same type"),
        ("map(v, 1)", "the keys of a map are of type variant", "text or number"),
        ("to_json(array(v))", "which is of type array<variant>", "to_json(v)"),
        ("array_distinct(array(v))", "of type variant", "CAST"),
        ("from_json(t, 'a VARIANT')", "it has a variant", "parse_json(text)"),
        ("schema_of_variant(t)", "takes a variant, but r.t", "schema_of_variant(parse_json(r.t))"),
        ("hash(v)", "hash() of r.v", "CAST"),
    ],
)
def test_refusals_have_remedies(text: str, message: str, remedy: str) -> None:
    found = _refused(text)
    assert message in found.message
    assert remedy in (found.remedy or "")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('parse_json(\'{"a":1,"a":2}\')', "bad-json"),
        ("parse_json(t)", "bad-json"),
        ("parse_json('1e400')", "bad-json"),
        ("variant_get(parse_json('[1,\"x\"]'), '$', 'array<int>')", "bad-cast"),
        ("CAST(parse_json('\"x\"') AS INT)", "bad-cast"),
        ("CAST(parse_json('300') AS TINYINT)", "bad-cast"),
        ("CAST(parse_json('[]') AS INT)", "bad-cast"),
    ],
)
def test_what_fails_in_spark_fails_here(text: str, code: str) -> None:
    table = pa.table({"t": pa.array(["1x"], pa.string())})
    with pytest.raises(ExpressionError) as error:
        _evaluated(text, table, _scope(t="string"))
    assert error.value.code == code
    assert error.value.remedy


def test_paths_of_databricks_read_variants() -> None:
    table = pa.table({"t": pa.array(['{"a": {"b c": [7, "x"]}}', None], pa.string())})
    for text, expected in (
        ("parse_json(t):a['b c'][0]::int + 1", [8, None]),
        ("to_json(parse_json(t):a)", ['{"b c":[7,"x"]}', None]),
        ("parse_json(t):a.nothing IS NULL", [True, True]),
        ("if(parse_json(t):a IS NULL, 0, 1)", [1, 0]),
    ):
        assert _evaluated(text, table, _scope(t="string")).to_pylist() == expected, text
