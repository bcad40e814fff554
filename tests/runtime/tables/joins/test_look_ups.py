"""Compare results of look-up joins, from left rows and pairs of one batch or of many,
with DuckDB.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.queries.joins import JoinQuery, Stream, StreamKind, StreamName
from anabranch_contract.queries.outer_joins import OuterJoin
from anabranch_contract.queries.types import parse_type
from anabranch_contract.queries.views import CHANGE, WEIGHT
from anabranch_planner.passes import parse_sql
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.tables.joins.asof import AsOfJoin
from anabranch_runtime.tables.joins.look_ups import LookUps, results
from tests.support.oracles.asof import as_lateral
from tests.support.scenarios.seeds import mostly_slow
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
    """Return the rows that a batch finds for one of the joins."""
    relations = {m.alias: query.relation_of(m.label) for m in query.members}
    alias_of = {str(m.label): m.alias for m in query.members}

    def text(expr: object) -> str:
        found = str(expr)
        for label in sorted(alias_of, key=len, reverse=True):
            found = found.replace(f"{label}.", f"{alias_of[label]}.")
        return found

    shown = ", ".join(f"{text(o.expr)} AS {o.name}" for o in query.projection if o.name != WEIGHT)
    if any(o.name == WEIGHT for o in query.projection):
        shown += f", ({' * '.join(f'{alias}.n' for alias in relations)})::BIGINT AS {WEIGHT}"
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
    """Pairs that do not belong to the batch's left rows are noticed."""
    query = parse_sql("q", STATEMENTS[0], STREAMS)
    assert query.outer is not None
    left = pa.table({"l1": pa.array([1, 1], pa.int64())})
    pairs = pa.table({"l1": pa.array([1], pa.int64()), "r1": pa.array([5], pa.int64())})
    with pytest.raises(AssertionError, match="pairs without their rows"):
        results(query.outer, [left, pairs])


KEPT = {name: replace(s, kind=StreamKind.STREAM, retain=0) for name, s in STREAMS.items()}
CHAINS = (
    *STATEMENTS,
    "SELECT s.k AS a, t.x AS b FROM s LEFT JOIN t ON t.k = s.k JOIN u ON u.x = t.x",
    "SELECT s.v AS a, u.z AS b FROM s LEFT JOIN (t JOIN u ON u.x = t.x) ON t.k = s.k",
    "SELECT s.v AS a, t.x AS b FROM t JOIN u ON u.x = t.x RIGHT JOIN s ON t.k = s.k",
    "SELECT s.v AS a FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.k = s.k AND x > s.v)",
    "SELECT s.v AS a FROM s LEFT JOIN t ON t.k = s.k WHERE v IN (SELECT x FROM u WHERE z = 0)",
    "SELECT s.k AS a FROM s WHERE k IS NOT NULL AND k NOT IN (SELECT x FROM u WHERE x IS NOT NULL)",
    "SELECT a.k AS a, b.v AS b FROM s a LEFT JOIN s b ON b.k = a.v",
    "SELECT s.v AS a, t.x AS b FROM s FULL JOIN t ON t.k = s.k AND t.x > 0 AND s.v < 2",
    "SELECT coalesce(s.k, t.k) AS a FROM s FULL JOIN t ON t.k = s.k WHERE s.v IS NULL OR t.x = 1",
    "SELECT u.z AS a, t.x AS b FROM s JOIN u ON u.x = s.k FULL JOIN t ON t.k = s.k AND t.x = s.v",
)
#: ASOF joins.
NEAREST = (
    "SELECT s.k AS a, s.v AS b, t.x AS c FROM s ASOF LEFT JOIN t ON t.k = s.k AND t.x <= s.v",
    "SELECT s.k AS a, s.v AS b, t.x AS c FROM s ASOF JOIN t ON t.k = s.k AND t.x > s.v",
    "SELECT s.v AS a, u.z AS b FROM s ASOF LEFT JOIN u ON u.x = s.k AND u.z < s.v",
    "SELECT s.v AS a, u.z AS b FROM s ASOF LEFT JOIN u ON u.x = s.k AND u.z >= s.v"
    " AND u.z <= s.v + 1",
    "SELECT t.x AS a, u.z AS b FROM s JOIN t ON t.k = s.k ASOF LEFT JOIN u ON u.x = t.x"
    " AND u.z <= s.v WHERE u.z IS NULL OR u.z > 0",
    "SELECT a.k AS a, b.v AS b FROM s a ASOF JOIN s b ON b.k = a.k AND b.v < a.v",
    "SELECT s.k AS a, u.x AS b, u.z AS c FROM s ASOF LEFT JOIN u ON u.x + 1 = s.k AND u.z <= s.v"
    " AND u.z > 0 AND s.v - u.z <= 1",
)
NAMES = tuple(COLUMNS)


def kinds_of(name: str) -> list[pa.DataType]:
    return [pa.float64() if c == "z" else pa.int64() for c in COLUMNS[name]]


class Net:
    """Weighted rows of the streams, as tables of DuckDB."""

    def __init__(self) -> None:
        self.rows: dict[str, Counter[Row]] = {name: Counter() for name in NAMES}

    def change(self, rng: Random) -> None:
        """Insert and delete rows; some deletes come before their insert."""
        for _ in range(rng.randint(0, 6)):
            name = rng.choice(NAMES)
            known = [row for row, count in self.rows[name].items() if count]
            values = (None, 0, 1, 2)
            row: Row = (rng.choice(values), rng.choice(values))
            row = (row[0], rng.choice((None, 0.0, 1.5))) if name == "u" else row
            if known and rng.random() < 0.4:
                row = rng.choice(known)
                self.rows[name][row] -= 1 if self.rows[name][row] > 0 else -1
            else:
                self.rows[name][row] += 1 if rng.random() < 0.9 else -1

    @property
    def whole(self) -> bool:
        """Whether no row has been deleted more often than inserted."""
        return all(count >= 0 for rows in self.rows.values() for count in rows.values())

    def tables(self, query: JoinQuery) -> list[Counter[Row]]:
        """Return net numbers of left rows and pairs."""
        assert query.left is not None
        found = []
        with duckdb.connect() as db:
            for name, rows in self.rows.items():
                columns = list(zip(*((*row, n) for row, n in rows.items()), strict=True))
                kinds = [*kinds_of(name), pa.int64()]
                arrays = [
                    pa.array(list(a), k) for a, k in zip(columns or [()] * 3, kinds, strict=True)
                ]
                db.register(name, pa.table(arrays, names=[*COLUMNS[name], "n"]))
            for part in (query.left, query, *query.others):
                net: Counter[Row] = Counter()
                for *row, weight in zip(*joined(part, db).to_pydict().values(), strict=True):
                    net[tuple(row)] += weight
                found.append(net)
        return found

    def answer(self, sql: str) -> list[Row]:
        with duckdb.connect() as db:
            for name, rows in self.rows.items():
                columns = list(zip(*rows.elements(), strict=True)) or [(), ()]
                arrays = [
                    pa.array(list(a), k) for a, k in zip(columns, kinds_of(name), strict=True)
                ]
                db.register(name, pa.table(arrays, names=list(COLUMNS[name])))
            sql = as_lateral(sql) if "ASOF" in sql else sql
            return db.execute(
                sql.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")
            ).fetchall()


def rows_of(query: JoinQuery, change: Counter[Row]) -> pa.Table:
    """Return a weighted table of left rows or pairs, in pieces."""
    names = [o.name for o in query.projection]
    kinds = [pa.float64() if str(o.expr.type) == "double" else pa.int64() for o in query.projection]
    rows = [(*row, step) for row, n in change.items() for step in [1 if n > 0 else -1] * abs(n)]
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table(
        [pa.array(list(c), k) for c, k in zip(columns, kinds, strict=True)], names=names
    )


def kept_by(outer: OuterJoin) -> type[LookUps | AsOfJoin]:
    return LookUps if outer.look_ups[0].nearest is None else AsOfJoin


@pytest.mark.parametrize("sql", [*CHAINS, *NEAREST])
@pytest.mark.parametrize("seed", mostly_slow(range(3)))
def test_the_sum_of_changes_is_the_answer(sql: str, seed: int) -> None:
    rng, net = Random(seed), Net()
    query = parse_sql("q", sql, KEPT)
    outer = query.outer
    assert outer is not None
    assert outer.kept
    assert query.left is not None
    parts = (query.left, query, *query.others)
    made, before = kept_by(outer)(outer), net.tables(query)
    found: Counter[str] = Counter()
    compared = 0
    for _ in range(12):
        net.change(rng)
        after = net.tables(query)
        changes = [_difference(a, b) for a, b in zip(after, before, strict=True)]
        before = after
        rows = made.apply([rows_of(p, c) for p, c in zip(parts, changes, strict=True)])
        for row in rows.to_pylist():
            found[repr(tuple(v for n, v in row.items() if n != CHANGE))] += (
                1 if row[CHANGE] == "insert" else -1
            )
        assert all(n >= 0 for n in found.values())
        if net.whole:
            compared += 1
            assert sorted(found.elements()) == sorted(map(repr, net.answer(sql)))
        if rng.random() < 0.4:
            made = kept_by(outer).load(outer, made.dump())
    assert compared


def _difference(after: Counter[Row], before: Counter[Row]) -> Counter[Row]:
    found = Counter(after)
    found.subtract(before)
    return Counter({row: n for row, n in found.items() if n})


@pytest.mark.parametrize("sql", [CHAINS[5], NEAREST[0]])
def test_rows_that_cancel_leave_nothing(sql: str) -> None:
    query = parse_sql("q", sql, KEPT)
    assert query.outer is not None
    assert query.left is not None
    parts, net = (query.left, query, *query.others), Net()
    made = kept_by(query.outer)(query.outer)
    empty = sum(len(b) for b in made.dump())
    for rows in net.rows.values():
        rows.update([(1, 1), (1, 1), (2, None)])
    full = net.tables(query)
    for sign in (1, -1):
        changes = [Counter({row: sign * n for row, n in one.items()}) for one in full]
        assert made.apply([rows_of(p, c) for p, c in zip(parts, changes, strict=True)]).num_rows
    assert sum(len(b) for b in made.dump()) == empty == 0


def test_a_first_partner_of_which_nothing_is_shown_changes_nothing() -> None:
    query = parse_sql("q", "SELECT s.v AS a FROM s LEFT JOIN t ON t.k = s.k", KEPT)
    assert query.outer is not None
    assert query.left is not None
    made, none = LookUps(query.outer), rows_of(query, Counter())
    left = Counter({(5, 1): 1})
    assert made.apply([rows_of(query.left, left), none]).to_pylist() == [{"a": 5, CHANGE: "insert"}]
    pair = rows_of(query, left)
    assert not made.apply([rows_of(query.left, Counter()), pair]).num_rows
    two = made.apply([rows_of(query.left, Counter()), pair])
    assert two.to_pylist() == [{"a": 5, CHANGE: "insert"}]


def test_a_failing_output_is_an_error() -> None:
    query = parse_sql("q", "SELECT s.v / t.x AS a FROM s LEFT JOIN t ON t.k = s.k", KEPT)
    assert query.outer is not None
    assert query.left is not None
    left, pair = Counter({(3, 1): 1}), Counter({(3, 1, 0): 1})
    with pytest.raises(ExpressionError, match="divisor is zero"):
        LookUps(query.outer).apply([rows_of(query.left, left), rows_of(query, pair)])
