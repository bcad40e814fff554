"""Compare chains of outer joins with their rewritings in DuckDB; they have as few parts as
possible.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.named import in_parts
from tests.support.worlds.join_chains import ChainGrammar
from tests.support.worlds.rewritten import compare, rewritten


def parts(sql: str) -> int:
    """Return the number of parts of a statement."""
    return len(in_parts(rewritten(sql), "p{}".format)) - 1


def compare_random(seeds: range) -> Counter[str]:
    counts = Counter[str]()
    for seed in seeds:
        rng = Random(seed)
        sql = ChainGrammar(rng).statement()
        counts["rows" if compare(sql, rng) else "empty"] += 1
        counts[f"{parts(sql)} parts"] += 1
    return counts


def test_random_chains() -> None:
    counts = compare_random(range(100))
    assert counts["rows"] > 75, counts
    assert counts["1 parts"] > 20, counts
    assert counts["2 parts"] > 10, counts


@pytest.mark.slow
def test_many_random_chains() -> None:
    assert compare_random(range(1000, 5000))["rows"] > 3000


@pytest.mark.parametrize(
    ("joins", "wanted"),
    [
        ("a LEFT JOIN b ON b.k = a.k LEFT JOIN c ON c.v = a.v", 0),
        ("a LEFT JOIN b ON b.k = a.k LEFT JOIN c ON c.v = b.w AND c.v > a.v", 0),
        ("a FULL JOIN b ON b.k = a.k", 0),
        ("a FULL JOIN b USING (k)", 0),
        ("a FULL JOIN (b JOIN c ON c.v = b.w) ON b.k = a.k", 0),
        ("a FULL JOIN b ON b.k = a.k LEFT JOIN c ON c.v = a.v", 1),
        ("a LEFT JOIN b ON b.k = a.k FULL JOIN c ON c.v = a.v", 1),
        ("a FULL JOIN b USING (k) FULL JOIN d USING (k)", 1),
        ("a LEFT JOIN b ON b.k = a.k RIGHT JOIN c ON c.v = a.v", 1),
        ("a RIGHT JOIN b ON b.k = a.k RIGHT JOIN c ON c.v = a.v", 1),
        ("(a LEFT JOIN b ON b.k = a.k) JOIN c ON c.v = a.v", 1),
        ("a LEFT JOIN b ON b.k = a.k LEFT JOIN c ON c.v = a.v "
         "LEFT JOIN d ON d.k = b.k AND d.e > c.v", 1),
        ("a LEFT JOIN b ON b.k = a.k LEFT JOIN c ON c.v = a.v AND c.v > b.w", 1),
        ("a FULL JOIN b ON b.k = a.k LEFT JOIN c ON c.v = a.v FULL JOIN d ON d.k = b.k", 2),
    ],
)  # fmt: skip
def test_parts_are_made_where_a_table_cannot_keep_the_joins(joins: str, wanted: int) -> None:
    sql = f"SELECT a.v, a.g FROM {joins}"
    assert parts(sql) == wanted
    assert compare(sql, Random(5))


@pytest.mark.parametrize(
    ("inner", "wanted"),
    [
        ("a FULL JOIN b ON b.k = a.k JOIN c ON c.v = a.v", 1),
        ("a FULL JOIN b ON b.k = a.k WHERE a.v < (SELECT max(c.v) FROM c)", 2),
        ("a FULL JOIN b ON b.k = a.k LEFT JOIN c ON c.v = a.v", 2),
    ],
)
def test_a_subquery_of_inner_joins_with_parts_is_no_part(inner: str, wanted: int) -> None:
    sql = f"SELECT s.x, count(*) AS n FROM (SELECT a.v + 1 AS x FROM {inner}) s GROUP BY s.x"
    assert parts(sql) == wanted
    assert compare(sql, Random(5))


def test_names_of_results_do_not_change() -> None:
    chain = "FROM a FULL JOIN b ON b.k = a.k LEFT JOIN c ON c.v = a.v"
    items = rewritten(f"SELECT a.k, w, a.v + 1, count(*) AS n {chain} GROUP BY a.k, w, a.v").items
    assert [item.name for item in items] == ["k", "w", "(v + 1)", "n"]
    items = rewritten(f"SELECT * {chain}").items
    assert [i.name or i.qualifier for i in items] == ["k", "v", "g", "k", "w", "x", "c"]
    starred = rewritten("SELECT c.*, b.w FROM (a LEFT JOIN b ON b.k = a.k) JOIN c ON c.v = a.v")
    assert [i.name or i.qualifier for i in starred.items] == ["c", "w"]


def test_aliases_of_the_select_list_come_first_in_order_by() -> None:
    compare(
        "SELECT a.k AS w, count(*) AS n FROM a FULL JOIN b ON b.k = a.k FULL JOIN c ON c.v = b.w "
        "GROUP BY a.k ORDER BY w DESC NULLS LAST LIMIT 2",
        Random(3),
    )


@pytest.mark.parametrize(
    ("sql", "remedy"),
    [
        ("SELECT * FROM a FULL JOIN b USING (k)", "name the columns"),
        ("SELECT a.v FROM a FULL JOIN b ON b.k = a.k NATURAL JOIN c", "write USING or ON"),
        ("SELECT a.v FROM a NATURAL JOIN b FULL JOIN c ON c.v = a.v LEFT JOIN d ON d.k = a.k",
         "write USING or ON"),
        ("SELECT * FROM a JOIN b USING (k) LEFT JOIN c ON c.v = a.v FULL JOIN d ON d.k = b.k",
         "name the columns"),
        ("SELECT * FROM (a LEFT JOIN b ON b.k = a.k) JOIN c ON c.v = a.v", "name the columns"),
        ("SELECT a.v FROM a JOIN b ON b.k = a.k FULL JOIN d USING (k)", "write ON a.k = b.k"),
    ],
)  # fmt: skip
def test_refusals_say_what_to_write(sql: str, remedy: str) -> None:
    with pytest.raises(QueryError) as found:
        rewritten(sql)
    assert found.value.code == "unsupported-sql"
    assert found.value.remedy == remedy
    assert found.value.position is not None
