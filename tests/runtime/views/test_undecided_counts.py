"""Compare estimates of how many results of an outer join rations have withheld with DuckDB's true
numbers.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from anabranch_contract.plans.rations import Ranking, Ration
from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_contract.protocol.activations import Activation, LeftRows, counted
from anabranch_contract.queries.joins import Label, QueryId
from anabranch_contract.queries.outer_joins import JoinKind
from anabranch_planner.passes import parse_sql
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.index.ranks import limit, ranks
from anabranch_runtime.sinks.ledger import publish_rations
from anabranch_runtime.sinks.outer_rows import BATCH, FLOOR
from anabranch_runtime.tables.joins.outer import DecidedRows
from anabranch_runtime.views.undecided import Undecided
from tests.support.worlds.outer_runs import STREAMS

BY_KEY = Ranking((("k", "bigint"),), by_batch=False)
#: Number of batches, and the event time in microseconds of each.
BATCHES, LENGTH = 12, 10_000_000
KEYS = 60_000
#: Batch -> ration. A partner may arrive up to three batches after a left row.
SHARES = {1: 0.5, 2: 0.2, 5: 0.1, 6: 0.6, 7: 0.6, 9: 0.3}
_LEFT_KEPT = "NOT EXISTS (SELECT 1 FROM held h WHERE h.batch = a.batch AND a.r >= h.least)"
_PAIR_KEPT = "NOT EXISTS (SELECT 1 FROM held h WHERE h.batch = c.batch AND a.r >= h.least)"
_DECIDED = (
    "NOT EXISTS (SELECT 1 FROM held h WHERE a.r >= h.least AND h.batch >= a.batch"
    " AND h.mark <= a.ts + 30000000)"
)
_SCALED = "sum(1 / coalesce((SELECT share FROM held h WHERE h.batch = {}.batch), 1) - 1)"


@pytest.fixture(scope="module")
def truth() -> duckdb.DuckDBPyConnection:
    """Tables ``a`` of left rows, ``c`` of partners, and ``held`` of rations."""
    rng = Random(4)
    left = [(k, rng.randrange(LENGTH * (BATCHES - 4))) for k in range(KEYS)]
    right = [
        (k, ts + rng.randrange(3 * LENGTH))
        for k, ts in left
        for _ in range(rng.choice((0, 1, 1, 4)))
    ]

    def table(rows: list[tuple[int, int]]) -> pa.Table:
        columns = list(zip(*((k, ts, ts // LENGTH) for k, ts in rows), strict=True))
        return pa.table([pa.array(c, pa.int64()) for c in columns], names=["k", "ts", "batch"])

    a, c = table(left), table(right)
    numbers = ranks(BY_KEY, lambda _: a["k"].combine_chunks(), a.num_rows, 0)
    held = pa.table(
        {
            "batch": list(SHARES),
            "share": list(SHARES.values()),
            "least": [limit(share) for share in SHARES.values()],
            "mark": [batch * LENGTH - 1 for batch in SHARES],
        }
    )
    connection = duckdb.connect()
    for name, one in (("a", a.append_column("r", pa.array(numbers))), ("c", c), ("held", held)):
        connection.register("given", one)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    return connection


def _one(connection: duckdb.DuckDBPyConnection, statement: str) -> tuple[float, ...]:
    (found,) = connection.execute(statement).fetchall()
    return tuple(float(x or 0) for x in found)


@pytest.mark.parametrize("kind", [JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI])
def test_the_completeness_is_the_true_one(
    kind: JoinKind, truth: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    word = {"left": "LEFT", "semi": "LEFT SEMI", "anti": "LEFT ANTI"}[kind]
    on = "c.k = a.k AND c.ts BETWEEN a.ts AND a.ts + INTERVAL '30' SECOND"
    query = parse_sql("q", f"SELECT a.k FROM a {word} JOIN c ON {on}", STREAMS)
    members = tuple((m.alias, m.label, m.relation) for m in query.members)
    spec = QuerySpec(query.id, members, query.bounds, query.projection, outer=query.outer)
    assert spec.outer is not None
    for batch, share in SHARES.items():
        rations = tuple(Ration(QueryId("q"), Label(name), share, BY_KEY) for name in "ac")
        publish_rations(tmp_path, batch, rations, {"c": batch * LENGTH - 1}, None)
    pairs = Activation(0, {})
    for own, kept, table in ((True, _PAIR_KEPT, "a JOIN c USING (k)"), (False, _LEFT_KEPT, "a")):
        figures = f"count(*), {_SCALED.format('c' if own else 'a')}"
        number, scaled = _one(truth, f"SELECT {figures} FROM {table} WHERE {kept}")
        one = Activation(0, {}, results=int(number), withheld=scaled)
        pairs, left = (one, one) if own else (pairs, one)
    # The left rows that batches have kept, with their pairs.
    found = truth.sql(
        f"SELECT a.k, a.ts, a.batch, (SELECT count(*) FROM c WHERE c.k = a.k AND {_PAIR_KEPT}) "
        f"FROM a WHERE {_LEFT_KEPT}"
    ).to_arrow_table()
    names = {n: found["ts" if str(t) == "timestamp" else "k"] for n, t in spec.outer.left}
    types = {n: pa.timestamp("us", "UTC") if str(t) == "timestamp" else pa.int32()
             for n, t in spec.outer.left}  # fmt: skip
    nothing = pa.nulls(found.num_rows, pa.timestamp("us", "UTC"))
    rows = pa.table(
        {
            **{name: column.cast(types[name]) for name, column in names.items()},
            BATCH: found["batch"],
            FLOOR: nothing,
        }
    )
    # One row per pair, whose partner does not matter here.
    times = found[found.column_names[3]].to_numpy()
    columns = [(o.name, o.expr.type) for o in query.projection]
    pairs_of = rows.take(pa.array(np.repeat(np.arange(len(times)), times)))
    for name, type_ in columns:
        if name not in names:
            pairs_of = pairs_of.append_column(name, pa.nulls(len(pairs_of), arrow_type(type_)))
    decided = DecidedRows(spec.outer, columns)
    last = BATCHES * LENGTH * 10
    counts = decided.apply(rows, pairs_of, last, BATCHES, Undecided(spec, tmp_path)).left
    said = counted({"q": pairs, "q+left": left}, "q", counts)
    assert said is not None
    exists = "EXISTS (SELECT 1 FROM c WHERE c.k = a.k)"
    wanted = exists if kind is JoinKind.SEMI else f"NOT {exists}"
    kept = f"{_LEFT_KEPT} AND {_DECIDED}"
    given, most = _one(
        truth, f"SELECT count(*) FILTER (WHERE {kept}), count(*) FROM a WHERE {wanted}"
    )
    assert (counts.kind, counts.given) == (kind, given)
    undecided = f"SELECT count(*) FROM a WHERE {_LEFT_KEPT} AND NOT {_DECIDED}"
    assert (counts.undecided,) == _one(truth, undecided)
    assert counts.missing == pytest.approx(most - given, rel=0.1)
    if kind is JoinKind.LEFT:
        given += pairs.results
        most += _one(truth, "SELECT count(*) FROM a JOIN c USING (k)")[0]
    assert said.results == given
    assert said.completeness == pytest.approx(given / most, rel=0.1)
    # Both joins counted together give another number.
    both = (pairs.results + left.results) / (
        pairs.results + left.results + pairs.withheld + left.withheld
    )
    assert kind is JoinKind.LEFT or both > 1.3 * given / most


def _said(kind: JoinKind, pairs: Activation, left: Activation, rows: LeftRows) -> Activation:
    found = counted({"q": pairs, "q+left": left}, "q", rows)
    assert found is not None
    return found


def test_where_no_left_row_was_given_nothing_is_complete() -> None:
    pairs, left = Activation(0, {}), Activation(0, {}, results=3, withheld=7.0)
    found = _said(JoinKind.ANTI, pairs, left, LeftRows(JoinKind.ANTI, undecided=3))
    assert (found.results, found.withheld, found.completeness) == (0, 10.0, 0.0)
    assert found.incomplete


def test_undecided_rows_of_a_batch_that_let_nothing_through_are_missing() -> None:
    pairs, left = Activation(0, {}), Activation(0, {}, results=25)
    found = _said(JoinKind.SEMI, pairs, left, LeftRows(JoinKind.SEMI, given=11, undecided=3))
    assert (found.results, found.withheld) == (11, 1.5)


def test_what_is_owed_is_estimated_by_the_others() -> None:
    pairs = Activation(0, {}, results=100, owed=50.0)
    left = Activation(0, {}, results=40, withheld=40.0, owed=20.0, caught_up=6)
    rows = LeftRows(JoinKind.SEMI, given=10, missing=10.0)
    found = _said(JoinKind.SEMI, pairs, left, rows)
    assert (found.results, found.withheld, found.owed, found.caught_up) == (10, 10.0, 5.0, 6)


def test_of_a_join_whose_left_rows_are_not_known_nothing_is_said() -> None:
    assert counted({"q": Activation(0, {}), "q+left": Activation(0, {})}, "q", None) is None
    assert counted({"q": Activation(0, {}, results=1)}, "q", None) == Activation(0, {}, results=1)
