"""Tests of binding aggregates: functions, arguments in joined rows, types as in Spark, FILTER,
refusals.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.views import ViewAggregate
from tests.planner.binding.test_post_join import FROM, below, parsed, refused, shown


def one(call: str) -> tuple[list[str], ViewAggregate, str]:
    """Return the columns of the joined rows, the aggregate, and the type of the view's column."""
    query, view = parsed(f"SELECT {call} AS x {FROM}")
    (found,) = view.aggregates
    assert shown(view)["x"][0] == found.name
    assert found.type == view.projection[0].expr.type
    return below(query), found, shown(view)["x"][1]


#: Call -> columns of the joined rows, function, (column, by), distinct, option, descending, type as
#: in Spark.
CALLS: dict[str, tuple[list[str], str, tuple[str | None, str | None], bool, str, bool, str]] = {
    "max_by(a.v, b.n)": (
        ["a.v", "b.n"], "max_by", ("a1", "a2"), False, "", False, "decimal(12,2)"),
    "min_by(a.s_a, b.ts)": (
        ["a.s_a", "b.ts"], "min_by", ("a1", "a2"), False, "", False, "string"),
    "arg_max(a.n, a.n)": (["a.n"], "max_by", ("a1", "a1"), False, "", False, "int"),
    "arg_min(a.d, b.v)": (["a.d", "b.v"], "min_by", ("a1", "a2"), False, "", False, "date"),
    "any_value(a.v)": (["a.v"], "min", ("a1", None), False, "", False, "decimal(12,2)"),
    "first(a.n)": (["a.n"], "min", ("a1", None), False, "", False, "int"),
    "first(a.n, true)": (["a.n"], "min", ("a1", None), False, "", False, "int"),
    "first_value(a.n) IGNORE NULLS": (["a.n"], "min", ("a1", None), False, "", False, "int"),
    "last(a.n) RESPECT NULLS": (["a.n"], "min", ("a1", None), False, "", False, "int"),
    "last_value(a.s_a, false)": (["a.s_a"], "min", ("a1", None), False, "", False, "string"),
    "approx_count_distinct(a.v)": (["a.v"], "count", ("a1", None), True, "", False, "bigint"),
    "approx_count_distinct(a.v, 0.01)": (
        ["a.v"], "count", ("a1", None), True, "", False, "bigint"),
    "sum(DISTINCT a.v)": (["a.v"], "sum", ("a1", None), True, "", False, "decimal(22,2)"),
    "avg(DISTINCT a.n)": (["a.n"], "avg", ("a1", None), True, "", False, "double"),
    "max(DISTINCT a.n)": (["a.n"], "max", ("a1", None), False, "", False, "int"),
    "countif(a.n > 1)": (["CASE((a.n > 1), 1)"], "count", ("a1", None), False, "", False, "bigint"),
    "median(a.v)": (
        ["cast(a.v as double)"], "percentile_cont", ("a1", None), False, "0.5", False, "double"),
    "percentile(CAST(a.n AS DOUBLE), 0.250)": (
        ["cast(a.n as double)"], "percentile_cont", ("a1", None), False, "0.25", False, "double"),
    "percentile_cont(1) WITHIN GROUP (ORDER BY a.k DESC)": (
        ["cast(a.k as double)"], "percentile_cont", ("a1", None), False, "1", True, "double"),
    "quantile_cont(a.n, 1e-1)": (
        ["cast(a.n as double)"], "percentile_cont", ("a1", None), False, "0.1", False, "double"),
    "percentile_disc(0.0) WITHIN GROUP (ORDER BY a.n)": (
        ["cast(a.n as double)"], "percentile_disc", ("a1", None), False, "0", False, "double"),
    "percentile_disc(0.5) WITHIN GROUP (ORDER BY a.d DESC)": (
        ["a.d"], "percentile_disc", ("a1", None), False, "0.5", True, "date"),
    "percentile_approx(a.n, 0.5)": (
        ["a.n"], "percentile_disc", ("a1", None), False, "0.5", False, "int"),
    "approx_percentile(a.v, 0.5, 10000)": (
        ["a.v"], "percentile_disc", ("a1", None), False, "0.5", False, "decimal(12,2)"),
    "quantile_disc(a.s_a, 0.5)": (
        ["a.s_a"], "percentile_disc", ("a1", None), False, "0.5", False, "string"),
    "listagg(a.s_a)": (["a.s_a"], "listagg", ("a1", None), False, "", False, "string"),
    "collect_list(a.n)": (["a.n"], "collect_list", ("a1", None), False, "", False, "array<int>"),
    "collect_set(a.n)": (["a.n"], "collect_list", ("a1", None), True, "", False, "array<int>"),
    "array_agg(a.n ORDER BY b.n DESC)": (
        ["a.n", "b.n"], "collect_list", ("a1", "a2"), False, "", True, "array<int>"),
    "listagg(a.n, ',')": (
        ["cast(a.n as string)"], "listagg", ("a1", None), False, ",", False, "string"),
    "string_agg(a.s_a, NULL)": (["a.s_a"], "listagg", ("a1", None), False, "", False, "string"),
    "listagg(a.s_a, ', ') WITHIN GROUP (ORDER BY b.n)": (
        ["a.s_a", "b.n"], "listagg", ("a1", "a2"), False, ", ", False, "string"),
    "string_agg(a.s_a, ',' ORDER BY b.n DESC)": (
        ["a.s_a", "b.n"], "listagg", ("a1", "a2"), False, ",", True, "string"),
    "string_agg(a.s_a, ',' ORDER BY a.s_a NULLS LAST)": (
        ["a.s_a"], "listagg", ("a1", None), False, ",", False, "string"),
    "listagg(DISTINCT a.s_a, ',') WITHIN GROUP (ORDER BY a.s_a DESC)": (
        ["a.s_a"], "listagg", ("a1", "a1"), True, ",", True, "string"),
    "skewness(a.n)": (
        ["cast(a.n as double)"], "skewness", ("a1", None), False, "", False, "double"),
    "kurtosis(a.v)": (
        ["cast(a.v as double)"], "kurtosis", ("a1", None), False, "", False, "double"),
    "bit_and(a.n)": (["a.n"], "bit_and", ("a1", None), False, "", False, "int"),
    "bit_or(a.k)": (["a.k"], "bit_or", ("a1", None), False, "", False, "bigint"),
    "bit_xor(a.n)": (["a.n"], "bit_xor", ("a1", None), False, "", False, "int"),
    "mode(a.s_a)": (["a.s_a"], "mode", ("a1", None), False, "", False, "string"),
    "mode(a.v, true)": (["a.v"], "mode", ("a1", None), False, "", False, "decimal(12,2)"),
    "mode() WITHIN GROUP (ORDER BY a.d DESC)": (
        ["a.d"], "mode", ("a1", None), False, "", True, "date"),
    "regr_count(a.n, b.v)": (
        ["CASE((cast(a.n as double) IS NOT NULL), CASE((cast(b.v as double) IS NOT NULL), 1))"],
        "count", ("a1", None), False, "", False, "bigint"),
    "regr_avgx(a.n, b.v)": (
        ["CASE((cast(a.n as double) IS NOT NULL), cast(b.v as double))"],
        "avg", ("a1", None), False, "", False, "double"),
    "regr_avgy(a.n, b.v)": (
        ["CASE((cast(b.v as double) IS NOT NULL), cast(a.n as double))"],
        "avg", ("a1", None), False, "", False, "double"),
    "corr(a.n, b.v)": (
        ["cast(a.n as double)", "cast(b.v as double)"], "corr", ("a1", "a2"), False, "", False,
        "double"),
    "covar_pop(a.n, a.n)": (
        ["cast(a.n as double)"], "covar_pop", ("a1", "a1"), False, "", False, "double"),
    "covar_samp(CAST(a.n AS DOUBLE), CAST(b.n AS DOUBLE))": (
        ["cast(a.n as double)", "cast(b.n as double)"], "covar_samp", ("a1", "a2"), False, "",
        False, "double"),
    "regr_slope(a.n, b.v)": (
        ["cast(a.n as double)", "cast(b.v as double)"], "regr_slope", ("a1", "a2"), False, "",
        False, "double"),
    "regr_intercept(a.n, b.v)": (
        ["cast(a.n as double)", "cast(b.v as double)"], "regr_intercept", ("a1", "a2"), False, "",
        False, "double"),
    "regr_r2(a.n, a.n)": (
        ["cast(a.n as double)"], "regr_r2", ("a1", "a1"), False, "", False, "double"),
    "regr_sxx(a.n, a.n)": (
        ["cast(a.n as double)"], "regr_sxx", ("a1", "a1"), False, "", False, "double"),
    "regr_sxy(a.n, a.n)": (
        ["cast(a.n as double)"], "regr_sxy", ("a1", "a1"), False, "", False, "double"),
    "regr_syy(a.n, a.n)": (
        ["cast(a.n as double)"], "regr_syy", ("a1", "a1"), False, "", False, "double"),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_each_call_is_one_aggregate_of_columns_below(call: str) -> None:
    columns, found, kind = one(call)
    assert (
        columns,
        found.function.value,
        (found.column, found.by),
        found.distinct,
        found.option,
        found.descending,
        kind,
    ) == CALLS[call]


@pytest.mark.parametrize("call", CALLS)
def test_a_filter_makes_the_deciding_argument_null(call: str) -> None:
    columns, plain, kind = one(call)
    word = next((w for w in (" IGNORE NULLS", " RESPECT NULLS") if call.endswith(w)), "")
    filtered = f"{call.removesuffix(word)} FILTER (WHERE b.k > 1){word}"
    with_filter, found, same_kind = one(filtered)
    assert kind == same_kind
    decides = plain.by if plain.function.value in ("max_by", "min_by") else plain.column
    wanted = columns[int(str(decides)[1:]) - 1]
    decided = found.by if plain.function.value in ("max_by", "min_by") else found.column
    assert with_filter[int(str(decided)[1:]) - 1] == f"CASE((b.k > 1), {wanted})"
    others = {c for c in with_filter if not c.startswith("CASE((b.k")}
    assert others <= set(columns)


def test_equal_calls_are_one_aggregate() -> None:
    _, view = parsed(
        f"SELECT median(a.v) AS a, percentile(a.v, 0.5) AS b, first(a.n) AS c, min(a.n) AS d, "
        f"listagg(a.s_a, ',') AS e, string_agg(s_a, ',') AS f, listagg(a.s_a) AS g {FROM}"
    )
    assert len(view.aggregates) == 4


def test_a_key_is_an_argument_unless_there_are_several_sets() -> None:
    query, view = parsed(f"SELECT a.n, max_by(a.n, a.n) AS m {FROM} GROUP BY a.n")
    assert below(query) == ["a.n"]
    assert (view.aggregates[0].column, view.aggregates[0].by) == ("k1", "k1")
    query, view = parsed(f"SELECT a.n, max_by(a.n, a.n) AS m {FROM} GROUP BY ROLLUP (a.n)")
    assert below(query) == ["a.n", "a.n"]
    assert (view.aggregates[0].column, view.aggregates[0].by) == ("a1", "a1")


def test_distinct_columns_are_one_text() -> None:
    columns, found, kind = one("count(DISTINCT a.n, a.s_a, b.d)")
    assert columns == [
        "concat(cast(a.n as string), '|', cast(length(a.s_a) as string), '|', a.s_a, '|', "
        "cast(b.d as string))"
    ]
    assert (found.function.value, found.distinct, kind) == ("count", True, "bigint")
    filtered, _, _ = one("count(DISTINCT a.n, a.d) FILTER (WHERE a.k = 1)")
    assert filtered[0].startswith("CASE((a.k = 1), concat(")


_TEXTS = st.text("|1a", max_size=3)


@given(st.lists(st.tuples(_TEXTS, st.integers(-11, 11), _TEXTS), min_size=2, max_size=2))
def test_texts_of_distinct_columns_are_equal_only_if_the_columns_are(
    rows: list[tuple[str, int, str]],
) -> None:
    """Evaluate the expression that the test above expects."""

    def together(row: tuple[Any, ...]) -> str:
        parts = [f"{len(v)}|{v}" if isinstance(v, str) else str(v) for v in row]
        return "|".join(parts)

    assert (together(rows[0]) == together(rows[1])) is (rows[0] == rows[1])


@pytest.mark.parametrize(
    ("call", "code", "part"),
    [
        ("max_by(a.v)", "bad-arguments", "two arguments, not 1"),
        ("max_by(DISTINCT a.v, a.n)", "unsupported-sql", "max_by(DISTINCT ...)"),
        ("stddev(a.ts - b.ts)", "type-mismatch", "interval"),
        ("max_by(a.v, NULL)", "type-mismatch", "void"),
        ("corr(a.n, a.s_a)", "type-mismatch", "of type string"),
        ("median(a.s_a)", "type-mismatch", "of type string"),
        ("median(DISTINCT a.n)", "unsupported-sql", "DISTINCT"),
        ("percentile(a.n)", "bad-arguments", "a value and a fraction"),
        ("percentile(a.n, 0.5, 2)", "bad-arguments", "a value and a fraction"),
        ("percentile(a.n, array(0.5, a.n)) + 1", "bad-literal", "is not a fraction"),
        ("percentile(a.n, 1.5)", "bad-literal", "is not a fraction"),
        ("percentile(a.n, b.n)", "bad-literal", "is not a fraction"),
        ("percentile_cont(0.5)", "bad-arguments", "WITHIN GROUP"),
        ("percentile_disc(0.5) WITHIN GROUP (ORDER BY a.n, a.k)", "bad-arguments", "one sort key"),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY a.d)", "type-mismatch", "of type date"),
        ("listagg(array(a.n), ',')", "type-mismatch", "of type array<int>"),
        ("listagg(a.s_a, b.s_b)", "unsupported-sql", "which is not a literal"),
        ("listagg(a.s_a, ',', 3)", "bad-arguments", "not 3 arguments"),
        ("listagg(DISTINCT a.s_a) WITHIN GROUP (ORDER BY a.n)", "unsupported-sql", "another"),
        ("first(a.n ORDER BY a.k)", "unsupported-sql", "ORDER BY in first()"),
        ("last(a.n, b.n)", "unsupported-sql", "two columns"),
        ("sum(a.n) IGNORE NULLS", "unsupported-sql", "IGNORE NULLS"),
        ("stddev(DISTINCT a.n)", "unsupported-sql", "DISTINCT"),
        ("count(DISTINCT CAST(a.n AS DOUBLE))", "unsupported-sql", "DISTINCT"),
        ("count(DISTINCT a.n, CAST(a.n AS FLOAT))", "unsupported-sql", "one of type float"),
        ("regr_slope(a.n)", "bad-arguments", "two arguments, not 1"),
        ("regr_slope(DISTINCT a.n, b.n)", "unsupported-sql", "regr_slope(DISTINCT ...)"),
        ("regr_r2(a.n, a.s_a)", "type-mismatch", "of type string"),
        ("try_avg(a.n)", "unsupported-sql", "try_avg()"),
        ("max_by(a.n, count(*))", "misplaced-aggregate", "another aggregate"),
        ("listagg(a.s_a, ',') WITHIN GROUP (ORDER BY max(a.n))", "misplaced-aggregate", "another"),
        ("sum(a.n) FILTER (WHERE count(*) > 1)", "misplaced-aggregate", "another aggregate"),
        ("upper(a.s_a) FILTER (WHERE a.n > 1)", "unsupported-sql", "FILTER"),
    ],
)
def test_refusals_name_function_place_and_remedy(call: str, code: str, part: str) -> None:
    for spaces, clause in product((0, 3), ("", " GROUP BY a.k")):
        error = refused(f"SELECT {' ' * spaces}{call} AS x {FROM}{clause}")
        if code == "unsupported-sql" and "FILTER" in part:
            assert error.code in (code, "not-grouped")
            continue
        assert error.code == code
        assert part in error.message
        assert error.position is not None
        assert error.position >= (1, 8 + spaces)


def test_lists_have_several_sort_keys() -> None:
    sql = "string_agg(a.s_a, ',' ORDER BY a.n DESC, a.v NULLS LAST, b.n, a.s_a DESC, a.k)"
    columns, found, _ = one(sql)
    assert columns == ["a.s_a", "a.n", "(a.v IS NULL)", "a.v", "b.n"]
    assert (found.column, found.by, found.descending) == ("a1", "a2", True)
    assert found.then == (("a3", False), ("a4", False), ("a5", False), ("a1", True))
    assert found.reads == ("a1", "a2", "a3", "a4", "a5", "a1")
    filtered, same, _ = one(f"{sql} FILTER (WHERE b.k > 1)")
    assert filtered[1:] == columns[1:]
    assert same == found


def test_names_are_sparks_where_they_are_certain() -> None:
    calls = ["max_by(n, v)", "corr(n, v)", "median(n)", "any_value(n)", "approx_count_distinct(n)"]
    _, view = parsed(f"SELECT {', '.join(calls)} FROM a")
    assert [o.name for o in view.projection] == calls
    for call in ("percentile(n, 0.5)", "listagg(s_a)", "count(DISTINCT n, v)"):
        assert refused(f"SELECT {call} FROM a").code == "unnamed-output"


def test_an_aggregate_where_there_are_no_groups_is_misplaced() -> None:
    for call in ("max_by(n, k) > 1", "median(n) > 1", "listagg(s_a) = 'x'", "any_value(n) = 1",
                 "percentile_cont(0.5) WITHIN GROUP (ORDER BY n) > 1",
                 "first(n) IGNORE NULLS > 1", "sum(n) FILTER (WHERE k > 1) > 1"):  # fmt: skip
        with pytest.raises(QueryError) as caught:
            parsed(f"SELECT n FROM a WHERE {call} ORDER BY n LIMIT 1")
        assert caught.value.code == "misplaced-aggregate"
