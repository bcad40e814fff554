"""Tests of the prices of maintained tables: sharing, shares, and their dependence on statistics."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.protocol.measurements import StreamSample
from anabranch_contract.queries.joins import JoinQuery, RelationId, Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.timing import LoosestBounds
from anabranch_planner.passes import parse_sql
from anabranch_planner.plans.tables import PricedTable, PricedTables, tables, tables_document

_HOUR = 3_600_000_000
_COLUMNS = {
    "orders": {"id": "bigint", "customer": "bigint", "total": "double", "ts": "timestamp"},
    "customers": {"id": "bigint", "nation": "string", "ts": "timestamp"},
}
STREAMS = {
    name: Stream(
        StreamName(name),
        tuple((column, parse_type(kind)) for column, kind in columns.items()),
        event_time="ts",
    )
    for name, columns in _COLUMNS.items()
}
STATISTICS = Statistics(
    {RelationId("orders"): 100_000.0, RelationId("customers"): 1_000.0},
    {
        (RelationId("orders"), "id"): 100_000.0,
        (RelationId("orders"), "customer"): 1_000.0,
        (RelationId("customers"), "id"): 1_000.0,
        (RelationId("customers"), "nation"): 25.0,
    },
    history=float(10 * _HOUR),
    constants=CostConstants(batches=50.0),
)
_JOIN = "FROM orders o JOIN customers c ON o.customer = c.id"


def grouped(select: str, keys: str = "c.nation", more: str = "") -> str:
    """Return a statement over the join, grouped by ``keys``."""
    return f"SELECT {keys}, {select} {_JOIN} GROUP BY {keys} {more}"


def parsed(statements: Mapping[str, str]) -> list[JoinQuery]:
    """Return all planned joins of the statements."""
    return [q for name, sql in statements.items() for q in parse_sql(name, sql, STREAMS).planned]


def priced(
    statements: Mapping[str, str] | Sequence[str],
    statistics: Statistics = STATISTICS,
    samples: Mapping[str, StreamSample] | None = None,
    apart: Mapping[str, Hashable] | None = None,
    begun: Mapping[str, Hashable] | None = None,
) -> PricedTables:
    """Return the PricedTables of statements, by name or called q0, q1, …"""
    if not isinstance(statements, Mapping):
        statements = {f"q{n}": sql for n, sql in enumerate(statements)}
    queries = parsed(statements)
    model = CostModel(statistics, bounds=LoosestBounds(queries))
    return tables(queries, model, statistics, samples=samples, apart=apart, begun=begun)


def only(*statements: str, statistics: Statistics = STATISTICS) -> PricedTable:
    """Return the only maintained table of the statements."""
    (found,) = priced(statements, statistics).tables
    return found


def test_views_with_equal_groupings_share_a_table() -> None:
    table = only(
        grouped("count(*) AS n"),
        grouped("sum(o.total) AS s, count(*) AS n", more="HAVING count(*) > 1"),
        grouped("avg(o.total) AS a", more="ORDER BY a LIMIT 3"),
        f"SELECT DISTINCT c.nation {_JOIN}",
    )
    assert table.queries == ("q0", "q1", "q2", "q3")
    assert table.grouping == "customers.nation"
    calls = {"count(*)", "sum(orders.total)", "avg(orders.total)"}
    assert set(table.aggregates) == calls
    assert (table.rows_in, table.rows) == pytest.approx((100_000, 25))
    # Each of 50 batches has rows of all groups.
    assert table.touched == pytest.approx(50 * 25)


@pytest.mark.parametrize(
    "other",
    [
        grouped("count(*) AS n", "o.customer"),
        grouped("count(*) AS n", "c.nation, window(o.ts, '1 hour')"),
        f"SELECT c.nation, count(*) AS n {_JOIN} WHERE o.total > c.id GROUP BY c.nation",
        f"SELECT c.nation, count(*) AS n {_JOIN} AND c.ts BETWEEN o.ts - INTERVAL '1' HOUR AND o.ts"
        " GROUP BY c.nation",
        f"SELECT o.id {_JOIN} ORDER BY o.total LIMIT 5",
        "SELECT nation, count(*) AS n FROM customers GROUP BY nation",
    ],
)
def test_other_rows_or_groupings_have_tables_of_their_own(other: str) -> None:
    assert len(priced([grouped("count(*) AS n"), other]).tables) == 2


def test_texts_name_streams_whatever_filters_and_aliases_there_are() -> None:
    sql = (
        "SELECT x.nation, max(a.total * 2) AS m FROM customers x JOIN orders a ON a.customer = x.id"
        " JOIN orders b ON b.id = a.id WHERE a.total > 3 AND b.total > 5 AND x.id > 7"
        " GROUP BY x.nation"
    )
    table = only(sql)
    assert table.grouping == "customers.nation"
    assert table.aggregates == ("max(orders.total * 2.0)",)


def test_queries_with_other_rows_share_nothing() -> None:
    sql = grouped("count(*) AS n")
    assert len(priced({"a": sql, "b": sql, "c": sql}, apart={"a": 1, "b": 1}).tables) == 2


def test_sums_of_all_beginnings_share_a_table() -> None:
    sums, least = grouped("avg(o.total) AS a"), grouped("min(o.total) AS m, count(*) AS n")
    begun = {"a": 1, "b": 2, "c": 2, "d": 3}
    one, other = priced({"a": sums, "b": sums, "c": least, "d": least}, begun=begun).tables
    assert {one.queries: one.apart, other.queries: other.apart} == {
        ("a", "b", "c"): "",
        ("d",): "not shared with a, b, c: min(orders.total) can't be subtracted, and they began in "
        "another epoch",
    }
    (table,) = priced({"a": sums, "b": sums}, begun=begun).tables
    # Their rows per group differ.
    assert table.upkeep.seconds > only(sums, sums).upkeep.seconds


@pytest.mark.parametrize(
    ("sql", "kept"),
    [
        (grouped("count(DISTINCT o.id) AS n"), "count(DISTINCT orders.id)"),
        (grouped("count(*) AS n", "c.nation, session_window(o.ts, '1 hour')"), "sessions"),
        (f"SELECT o.id {_JOIN} ORDER BY o.total LIMIT 5", "rows without groups"),
    ],
)
def test_others_share_tables_if_they_begin_together(sql: str, kept: str) -> None:
    found = priced({"a": sql, "b": sql, "c": sql}, begun={"a": 1, "b": 2, "c": 1}).tables
    why = f"not shared with a, c: {kept} can't be subtracted, and they began in another epoch"
    assert {t.queries: t.apart for t in found} == {("a", "c"): "", ("b",): why}


def test_equal_views_pay_for_their_files_only() -> None:
    one, two = only(grouped("sum(o.total) AS s")), only(*[grouped("sum(o.total) AS s")] * 2)
    alone = two.shares()[two.queries[0]]
    assert alone.alone == one.upkeep
    assert two.upkeep.bytes == one.upkeep.bytes
    assert one.upkeep.seconds < two.upkeep.seconds < 1.5 * one.upkeep.seconds + 50 * 9e-4
    assert alone.share.seconds == pytest.approx(two.upkeep.seconds / 2)


def test_costs_grow_with_rows_and_with_groups() -> None:
    sql = grouped("sum(o.total) AS s", "o.customer")
    few, many = only(grouped("sum(o.total) AS s")), only(sql)
    assert many.rows == 1_000
    assert many.upkeep.seconds > few.upkeep.seconds
    assert many.upkeep.bytes > few.upkeep.bytes
    cardinalities = {**STATISTICS.cardinalities, RelationId("orders"): 1_000_000.0}
    busy = only(sql, statistics=replace(STATISTICS, cardinalities=cardinalities))
    assert busy.upkeep.seconds > many.upkeep.seconds


def test_windows_multiply_groups_and_rows() -> None:
    plain = only(grouped("count(*) AS n"))
    hours = only(grouped("count(*) AS n", "c.nation, window(o.ts, '1 hour')"))
    overlapping = only(grouped("count(*) AS n", "c.nation, window(o.ts, '4 hours', '1 hour')"))
    assert plain.rows < 10 * plain.rows <= hours.rows < overlapping.rows
    assert hours.upkeep.seconds < overlapping.upkeep.seconds


def test_a_limit_keeps_few_rows_unless_rows_are_deleted() -> None:
    sql = f"SELECT o.id, o.total {_JOIN} ORDER BY o.total DESC LIMIT 10"
    table = only(sql)
    assert (table.rows, table.grouped, table.grouping) == (10, False, "")
    ranked = "row_number() OVER (PARTITION BY c.nation ORDER BY o.total DESC) <= 3"
    each = only(f"SELECT o.id, o.total {_JOIN} QUALIFY {ranked}")
    assert each.rows == 75
    every = "SELECT o.id, row_number() OVER (PARTITION BY c.nation ORDER BY o.total) AS n"
    assert only(f"{every} {_JOIN}").rows == pytest.approx(100_000)


def test_keys_that_are_not_counted_are_estimated_from_a_sample() -> None:
    distincts = {k: v for k, v in STATISTICS.distincts.items() if k[1] != "nation"}
    uncounted = replace(STATISTICS, distincts=distincts)
    sample = StreamSample(
        1_000, 8, {"nation": ("string", ["a", "a", "b", "b", "b", "c", "c", "a"])}
    )
    sql = grouped("count(*) AS n")
    assert only(sql, statistics=uncounted).rows == pytest.approx(1_000)
    (table,) = priced([sql], uncounted, {"customers": sample}).tables
    assert table.rows == pytest.approx(3)


def test_a_union_adds_the_rows_of_its_branches() -> None:
    union = "SELECT id FROM orders UNION SELECT id FROM customers"
    assert only(union).rows_in == pytest.approx(101_000)


_AGGREGATES = (
    "count(*)", "sum(o.total)", "avg(o.total)", "max(o.total)", "count(DISTINCT o.customer)",
    "median(o.total)", "stddev(o.total)",
)  # fmt: skip
_KEYS = ("c.nation", "o.customer", "o.customer, c.nation", "window(o.ts, '1 hour')")
_AFTER = ("", "HAVING count(*) > 2", "ORDER BY x0 LIMIT 4")


@st.composite
def _statements(draw: st.DrawFn) -> str:
    if draw(st.integers(0, 5)) == 0:
        limit = draw(st.integers(1, 3))
        return f"SELECT o.id, o.total {_JOIN} ORDER BY o.total LIMIT {limit}"
    calls = draw(st.lists(st.sampled_from(_AGGREGATES), min_size=1, max_size=3))
    select = ", ".join(f"{call} AS x{n}" for n, call in enumerate(calls))
    keys, after = draw(st.sampled_from(_KEYS)), draw(st.sampled_from(_AFTER))
    where = draw(st.sampled_from(("", "WHERE o.total > 5")))
    return f"SELECT {select} {_JOIN} {where} GROUP BY {keys} {after}"


@given(st.lists(_statements(), min_size=1, max_size=7))
def test_sharing_never_raises_the_total_and_shares_add_up(statements: list[str]) -> None:
    found = priced(statements)
    names = [query for table in found.tables for query in table.queries]
    assert sorted(names) == sorted(f"q{n}" for n in range(len(statements)))
    singles = [only(sql).upkeep for sql in statements]
    shares = {q: one for table in found.tables for q, one in table.shares().items()}
    for unit in ("seconds", "bytes"):
        total = fsum(getattr(table.upkeep, unit) for table in found.tables)
        assert total == pytest.approx(fsum(getattr(s.share, unit) for s in shares.values()))
        assert total <= fsum(getattr(one, unit) for one in singles) * (1 + 1e-9)
        for n, single in enumerate(singles):
            share = shares[parsed({f"q{n}": statements[n]})[0].id]
            assert 0 <= getattr(share.share, unit) <= getattr(share.alone, unit) * (1 + 1e-9)
            assert getattr(share.alone, unit) == pytest.approx(getattr(single, unit))
    document = tables_document(found)
    assert [one["seconds"] for one in document] == sorted(
        (one["seconds"] for one in document), reverse=True
    )
