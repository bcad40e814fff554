"""Results of look-ups, from left rows and pairs of one batch; DuckDB has the same from the rows."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.queries.joins import JoinQuery, Stream, StreamKind, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql
from anabranch_runtime.views.look_ups import results
from tests.support.worlds.look_up_replays import without_nan

Row = tuple[Any, ...]


COLUMNS = {"s": ("k", "v"), "t": ("k", "x"), "u": ("x", "z")}
STREAMS = {
    name: Stream(
        StreamName(name),
        tuple((c, parse_type("double" if c == "z" else "bigint")) for c in columns),
        None,
        kind=StreamKind.STREAM if name == "s" else StreamKind.TABLE,
        retain=0 if name == "s" else None,
    )
    for name, columns in COLUMNS.items()
}
STATEMENTS = (
    "SELECT s.k AS a, t.x AS b FROM s LEFT JOIN t ON t.k = s.k",
    "SELECT s.v AS a FROM s LEFT JOIN t ON t.k = s.k AND t.x > s.v",
    "SELECT s.k AS a, s.v AS b FROM s LEFT SEMI JOIN t ON t.k = s.k",
    "SELECT s.k AS a, s.v AS b FROM s LEFT ANTI JOIN t ON t.k = s.k AND s.v > 1",
    "SELECT s.k AS a, t.x AS b FROM s LEFT JOIN t ON t.k = s.k WHERE t.x IS NULL OR t.x > 1",
    "SELECT s.k AS a, t.x AS b, u.z AS c FROM s LEFT JOIN t ON t.k = s.k LEFT JOIN u ON u.x = t.x",
    "SELECT s.v AS a, t.x AS b, u.z AS c FROM s LEFT JOIN t ON t.k = s.k"
    " LEFT JOIN u ON u.x = s.v WHERE u.z IS NOT NULL OR t.x IS NULL",
    "SELECT s.k AS a, t.x AS b FROM s LEFT JOIN t ON t.k = s.k"
    " LEFT ANTI JOIN u ON u.x = t.x AND u.z > s.v",
    "SELECT s.k AS a, u.z AS b, t2.x AS c FROM s LEFT JOIN t ON t.k = s.k"
    " LEFT JOIN u ON u.x = t.x LEFT JOIN t t2 ON t2.k = u.x LEFT SEMI JOIN t t3 ON t3.k = s.v",
)
FEW = st.one_of(st.none(), st.integers(0, 3))
DOUBLES = st.sampled_from((None, 0.0, 1.5, float("nan")))


def rows(*columns: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Row]]:
    return st.lists(st.tuples(*columns), max_size=8)


def joined(query: JoinQuery, db: duckdb.DuckDBPyConnection) -> pa.Table:
    """The rows that a batch finds for one of the joins."""
    relations = {m.alias: query.relation_of(m.label) for m in query.members}
    alias_of = {str(m.label): m.alias for m in query.members}

    def text(expr: object) -> str:
        found = str(expr)
        for label in sorted(alias_of, key=len, reverse=True):
            found = found.replace(f"{label}.", f"{alias_of[label]}.")
        return found

    shown = ", ".join(f"{text(o.expr)} AS {o.name}" for o in query.projection)
    conditions = [f"{text(e.left)} = {text(e.right)}" for e in query.predicates]
    conditions += [text(r) for r in query.residuals]
    sources = []
    for alias, relation in relations.items():
        where = " AND ".join(str(f) for f in relation.filter) or "true"
        sources.append(f"(SELECT * FROM {relation.stream} WHERE {where}) {alias}")
    where = " AND ".join(conditions) or "true"
    return db.sql(f"SELECT {shown} FROM {', '.join(sources)} WHERE {where}").to_arrow_table()


@given(sql=st.sampled_from(STATEMENTS), s=rows(FEW, FEW), t=rows(FEW, FEW), u=rows(FEW, DOUBLES))
def test_results_are_those_of_the_statement(
    sql: str, s: list[Row], t: list[Row], u: list[Row]
) -> None:
    query = parse_sql("q", sql, STREAMS)
    assert query.outer is not None
    assert query.left is not None
    with duckdb.connect() as db:
        for name, found in (("s", s), ("t", t), ("u", u)):
            kinds = [pa.float64() if c == "z" else pa.int64() for c in COLUMNS[name]]
            arrays = list(zip(*found, strict=True)) or [() for _ in kinds]
            columns = [pa.array(list(a), k) for a, k in zip(arrays, kinds, strict=True)]
            db.register(name, pa.table(columns, names=list(COLUMNS[name])))
        tables = [joined(part, db) for part in (query.left, query, *query.others)]
        made = results(query.outer, tables)
        wanted = db.execute(
            sql.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")
        ).fetchall()
    assert without_nan(tuple(r.values()) for r in made.to_pylist()) == without_nan(wanted)


def test_pairs_of_other_rows_are_an_error() -> None:
    """Pairs that do not come from the left rows of the batch are noticed."""
    query = parse_sql("q", STATEMENTS[0], STREAMS)
    assert query.outer is not None
    left = pa.table({"l1": pa.array([1, 1], pa.int64())})
    pairs = pa.table({"l1": pa.array([1], pa.int64()), "r1": pa.array([5], pa.int64())})
    with pytest.raises(AssertionError, match="pairs without their rows"):
        results(query.outer, [left, pairs])
