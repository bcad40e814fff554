"""Compare predicate sets (tags) with the evaluation of each predicate alone."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from anabranch_contract.queries.expressions import (
    BOOLEAN,
    Call,
    Column,
    Expr,
    Literal,
    columns,
)
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.columns.arrays import I32, Bools, Ints
from anabranch_runtime.expressions.evaluate import Fetch, filter_mask
from anabranch_runtime.index.gather import BatchTable
from anabranch_runtime.tags import arrival_sets, predicates
from anabranch_runtime.tags.arrival_sets import Moment
from anabranch_runtime.tags.predicates import UNKNOWN, BaseTables, PredicateIndex

pytestmark = pytest.mark.fast

#: Column -> its type, its possible values, and possible constants.
COLUMNS: dict[str, tuple[str, list[Any], list[Any]]] = {
    "i": ("int", [-(1 << 31), -1, 0, 1, 2, 7, (1 << 31) - 1, None], [-1, 0, 2, 3, 7]),
    "l": ("bigint", [-(1 << 63), 0, 5, 1 << 53, (1 << 53) + 1, None], [0, 5, 1 << 53, 9]),
    "d": ("double", [float("nan"), float("inf"), -0.0, 0.0, 1.5, -2.0, None], [0.0, 1.5, -2.0]),
    "f": ("float", [0.1, 0.25, float("nan"), None], [0.25, 0.5]),
    "s": ("string", ["", "a", "ab", "b", "é", None], ["a", "b", "", "zz"]),
    "t": ("date", [-1, 0, 18_000, None], [0, 18_000]),
    "b": ("boolean", [True, False, None], [True, False]),
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def holds(index: PredicateIndex, sets: I32, predicate: int) -> Bools:
    """Return the mask of the rows whose set has ``predicate``."""
    word = index.met.bits(sets, predicate // 64 + 1)[:, -1]
    found: Bools = (word >> np.uint64(predicate % 64)) & np.uint64(1) != 0
    return found


def random_condition(rng: Random, depth: int = 1) -> Expr:
    """A random condition that fails on no row. Some conditions can't be tested by any axis."""
    name = rng.choice(sorted(COLUMNS))
    text, _, constants = COLUMNS[name]
    kind = parse_type(text)
    column = Column("", name, kind)

    def constant() -> Literal:
        return Literal(rng.choice(constants), kind)

    form = rng.randrange(9 if depth else 7)
    if form == 0:
        return Call(rng.choice(("is_null", "is_not_null")), (column,), BOOLEAN)
    if form == 1:
        return Call("in", (column, *(constant() for _ in range(rng.randint(1, 3)))), BOOLEAN)
    if form == 2 and text == "string":
        return Call("like", (column, Literal(rng.choice(("a%", "%b", "_")), kind)), BOOLEAN)
    if form == 3:
        return Call(rng.choice(COMPARISONS), (constant(), column), BOOLEAN)
    if form == 7:
        parts = (random_condition(rng, 0), random_condition(rng, 0))
        return Call(rng.choice(("and", "or")), parts, BOOLEAN)
    if form == 8:
        return Call("not", (random_condition(rng, 0),), BOOLEAN)
    return Call(rng.choice(COMPARISONS), (column, constant()), BOOLEAN)


def random_rows(rng: Random, count: int) -> pa.RecordBatch:
    """Rows of a stream, or of a joined store that lacks some of the stream's columns."""
    arrays = {}
    for name, (text, values, _) in COLUMNS.items():
        drawn = [rng.choice(values) for _ in range(count)]
        if text == "date":
            arrays[name] = pa.array(drawn, pa.int32()).cast(pa.date32())
        else:
            kinds = {"int": pa.int32(), "bigint": pa.int64(), "double": pa.float64()}
            kinds |= {"float": pa.float32(), "string": pa.string(), "boolean": pa.bool_()}
            arrays[name] = pa.array(drawn, kinds[text])
    if rng.random() < 0.3:
        arrays = {name: arrays[name] for name in rng.sample(sorted(arrays), rng.randint(1, 6))}
    return pa.record_batch(arrays)


def random_predicates(rng: Random, count: int) -> list[tuple[Expr, ...]]:
    return [tuple(random_condition(rng) for _ in range(rng.randint(1, 3))) for _ in range(count)]


def check(index: PredicateIndex, table: BatchTable, given: list[tuple[Expr, ...]]) -> None:
    """Compare the table's sets with each predicate evaluated alone, without the conditions on
    columns that the table lacks."""
    index.prepare(table, "#tags", "")
    sets = table.derived["#tags"].values
    assert UNKNOWN not in sets
    there = set(table.batch.schema.names)
    for conditions in given:
        some = [one for one in conditions if {c.name for c in columns(one)} <= there]
        mask = filter_mask(some, lambda c: table.column(c.name), table.rows)
        wanted = np.ones(table.rows, np.bool_) if mask is None else mask
        found = holds(index, sets, index.number(conditions))
        assert np.array_equal(found, wanted), conditions


@pytest.mark.parametrize("seed", range(60))
def test_sets_are_those_of_each_predicate_alone(seed: int) -> None:
    """New rows and new predicates alternate: later sets extend and reuse earlier ones."""
    rng = Random(seed)
    index, given, tables = PredicateIndex(), list[tuple[Expr, ...]](), list[BatchTable]()
    for _ in range(6):
        for conditions in random_predicates(rng, rng.choice((1, 3, 40))):
            index.number(conditions)
            given.append(conditions)
        tables.append(BatchTable(random_rows(rng, rng.choice((0, 1, 50)))))
        for table in tables:
            check(index, table, given)
    assert not index.overflowed


@pytest.mark.parametrize("seed", range(10))
def test_many_constants_on_several_columns(seed: int) -> None:
    rng = Random(seed)
    index, given = PredicateIndex(), list[tuple[Expr, ...]]()
    long = parse_type("bigint")
    for _ in range(300):
        given.append(
            tuple(
                Call(
                    rng.choice(COMPARISONS),
                    (Column("", name, long), Literal(rng.randrange(-50, 50), long)),
                    BOOLEAN,
                )
                for name in rng.sample(("x", "y", "z"), rng.randint(1, 3))
            )
        )
        index.number(given[-1])
    for _ in range(3):
        values = {c: pa.array([rng.randrange(-60, 60) for _ in range(200)]) for c in "xyz"}
        check(index, BatchTable(pa.record_batch(values)), given)


def test_a_full_index_leaves_sets_unknown() -> None:
    """An unknown set counts as having every predicate, so that no row is lost."""
    long = parse_type("bigint")
    index = PredicateIndex()
    for n in range(100):
        index.number((Call("eq", (Column("", "x", long), Literal(n, long)), BOOLEAN),))
    with patch.object(predicates, "MOST_BYTES", 24 * 50):
        table = BatchTable(pa.record_batch({"x": pa.array(range(100))}))
        index.prepare(table, "#tags", "")
    sets = table.derived["#tags"].values
    assert index.overflowed
    assert 0 < np.count_nonzero(sets == UNKNOWN) < 100
    for n in range(100):
        assert holds(index, sets, n)[n]
    unknown = sets == UNKNOWN
    for n in range(100, 120):
        index.number((Call("lt", (Column("", "x", long), Literal(n - 90, long)), BOOLEAN),))
    with patch.object(predicates, "MOST_BYTES", 24 * 50):
        index.prepare(table, "#tags", "")
    assert (sets[unknown] == UNKNOWN).all()
    for n in range(100, 120):
        assert holds(index, sets, n)[: n - 90].all()
        assert not holds(index, sets, n)[np.flatnonzero(sets != UNKNOWN)][n - 90 :].any()


def test_a_column_of_another_type_leaves_sets_unknown() -> None:
    long = parse_type("bigint")
    index = PredicateIndex()
    index.number((Call("eq", (Column("", "y", long), Literal(1, long)), BOOLEAN),))
    table = BatchTable(pa.record_batch({"y": pa.array(["a", "b"])}))
    index.prepare(table, "#tags", "")
    assert index.overflowed
    assert table.derived["#tags"].values.tolist() == [UNKNOWN, UNKNOWN]


def joined(alone: BatchTable, number: Ints, batch: int) -> BatchTable:
    """Rows of a joined store: rows ``number`` of ``alone``, which arrived in ``batch``."""
    names = alone.batch.schema.names
    rows = {f"m.{name}": alone.column(name).take(pa.array(number)) for name in names}
    return BatchTable(pa.record_batch({**rows, "#sigma:m": pa.array(number + (batch << 32))}))


@pytest.mark.parametrize("seed", range(12))
def test_joined_rows_have_the_sets_of_their_member(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New predicates, new tables and old tables alternate; some sets are forgotten meanwhile, and
    base rows have been tested before joined ones, or not."""
    rng = Random(seed)
    monkeypatch.setattr(predicates, "_PIECE", 64)
    monkeypatch.setattr(arrival_sets, "_FIRST", 16)
    monkeypatch.setattr(arrival_sets, "MOST", rng.choice((8, 16, 1024)))
    index, alone = PredicateIndex(), BatchTable(random_rows(rng, 30))
    tables = list[tuple[BatchTable, Ints]]()
    arrivals = pa.array(np.arange(30) + (6 << 32))
    stored = alone.batch.append_column("#sigma", arrivals)
    if rng.random() < 0.3:
        stored = stored.select(stored.schema.names[1:])
    bases = [BatchTable(stored.slice(0, 20)), BatchTable(stored.slice(20))]
    for count in (40, 1, 0, 30, 3):
        for conditions in random_predicates(rng, count):
            index.number(conditions)
        index.prepare(alone, "#tags", "")
        number = np.array([rng.randrange(30) for _ in range(rng.choice((20, 300)))])
        tables.append((joined(alone, number, rng.choice((6, 7))), number))
        for table, numbers in rng.sample(tables, len(tables)):
            moment = Moment(rng.choice("ab"), 7 if rng.random() < 0.8 else 8)
            if rng.random() < 0.3:
                index.prepare(rng.choice(bases), "#tags", "", moment)
            index.prepare(table, "m.#tags", "m.", moment)
            wanted = alone.derived["#tags"].values[numbers]
            assert table.derived["m.#tags"].values.tolist() == wanted.tolist()


def test_sets_of_arrived_rows_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a merge nor another join computes the set of a row again."""
    rng, computed = Random(1), list[int]()
    index, sets = PredicateIndex(), PredicateIndex.sets

    def counted(self: PredicateIndex, fetch: Fetch, rows: int) -> I32:
        computed.append(rows)
        return sets(self, fetch, rows)

    monkeypatch.setattr(PredicateIndex, "sets", counted)
    for conditions in random_predicates(rng, 20):
        index.number(conditions)
    alone = BatchTable(random_rows(rng, 30))
    number = np.array([rng.randrange(30) for _ in range(300)])
    for rows, batch in ((number, 9), (number[::-1].copy(), 10), (np.arange(30), 11)):
        index.prepare(joined(alone, rows, 8), "m.#tags", "m.", Moment("a", batch))
    assert computed == [len(set(number.tolist()))]
    index.prepare(joined(alone, number, 8), "m.#tags", "m.", Moment("b", 9))
    assert len(computed) == 2


def test_new_predicates_are_tested_on_base_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of joined rows, only members that no base table has are read."""
    rng, tested = Random(1), list[int]()
    index, extend = PredicateIndex(), PredicateIndex.extend

    def counted(self: PredicateIndex, sets: I32, known: int, fetch: Fetch) -> int:
        tested.append(len(sets))
        return extend(self, sets, known, fetch)

    monkeypatch.setattr(PredicateIndex, "extend", counted)
    given = random_predicates(rng, 20)
    for conditions in given[:-1]:
        index.number(conditions)
    alone = BatchTable(random_rows(rng, 30))
    stored = alone.batch.append_column("#sigma", pa.array(np.arange(30) + (8 << 32)))
    base, moment = BatchTable(stored.slice(0, 25)), Moment("a", 9)
    table = joined(alone, np.arange(300) % 30, 8)
    index.prepare(base, "#tags", "", moment)
    index.prepare(table, "m.#tags", "m.", moment)
    index.number(given[-1])
    index.prepare(table, "m.#tags", "m.", moment)
    assert tested == [25, 5]
    check(index, alone, given)
    wanted = alone.derived["#tags"].values[np.arange(300) % 30]
    assert table.derived["m.#tags"].values.tolist() == wanted.tolist()


def test_a_new_index_begins_with_the_base_tables_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads only base tables of the same start: others have other rows with equal numbers."""
    rng, computed = Random(2), list[int]()
    sets = PredicateIndex.sets

    def counted(self: PredicateIndex, fetch: Fetch, rows: int) -> I32:
        computed.append(rows)
        return sets(self, fetch, rows)

    bases = BaseTables()
    former, index = PredicateIndex(bases=bases), PredicateIndex(bases=bases)
    given = random_predicates(rng, 20)
    for one in (former, index):
        for conditions in given:
            one.number(conditions)
    alone, other = BatchTable(random_rows(rng, 30)), BatchTable(random_rows(rng, 30))
    arrivals = pa.array(np.arange(30) + (8 << 32))
    stored = [BatchTable(rows.batch.append_column("#sigma", arrivals)) for rows in (alone, other)]
    for table, start in zip(stored, "ab", strict=True):
        former.prepare(table, "#tags8", "", Moment(start, 9))
        former.prepare(table, "#tags7", "", Moment(start, 9))
    monkeypatch.setattr(PredicateIndex, "sets", counted)
    table = joined(alone, np.arange(300) % 30, 8)
    index.prepare(table, "m.#tags9", "m.", Moment("a", 9))
    assert computed == [30]
    check(index, alone, given)
    wanted = alone.derived["#tags"].values[np.arange(300) % 30]
    assert table.derived["m.#tags9"].values.tolist() == wanted.tolist()
    assert list(stored[0].derived) == ["#tags7", "#tags9"]
    assert list(stored[1].derived) == ["#tags8", "#tags7"]


def test_an_error_leaves_no_row_without_a_set() -> None:
    rng, index = Random(4), PredicateIndex()
    given = random_predicates(rng, 20)
    for conditions in given:
        index.number(conditions)
    alone = BatchTable(random_rows(rng, 30))
    first, second = (joined(alone, np.arange(30), 8) for _ in range(2))
    with patch.object(PredicateIndex, "sets", side_effect=MemoryError), pytest.raises(MemoryError):
        index.prepare(first, "m.#tags", "m.", Moment("a", 9))
    check(index, alone, given)
    for table in (second, first):
        index.prepare(table, "m.#tags", "m.", Moment("a", 9))
        assert table.derived["m.#tags"].values.tolist() == alone.derived["#tags"].values.tolist()


def test_rows_of_the_present_batch_are_not_final() -> None:
    """A repeated batch can give an arrival number to another row, and so can a start that took
    batches back."""
    rng, index = Random(3), PredicateIndex()
    given = random_predicates(rng, 20)
    for conditions in given:
        index.number(conditions)
    for start, batch in (("a", 8), ("a", 8), ("a", 9), ("b", 9)):
        alone = BatchTable(random_rows(rng, 30))
        table = joined(alone, np.arange(30), 8)
        index.prepare(table, "m.#tags", "m.", Moment(start, batch))
        check(index, alone, given)
        assert table.derived["m.#tags"].values.tolist() == alone.derived["#tags"].values.tolist()


def test_few_combinations_of_values_are_cached() -> None:
    """A stream's rows may all be different: the cache must not grow with each of them."""
    long = parse_type("bigint")
    index = PredicateIndex()
    given: list[tuple[Expr, ...]] = [
        (Call("lt", (Column("", name, long), Literal(n, long)), BOOLEAN),)
        for name in ("x", "y")
        for n in range(20)
    ]
    for conditions in given:
        index.number(conditions)
    rng = Random(0)
    with patch.object(predicates, "_COMBINATIONS", 30):
        for _ in range(20):
            drawn = {c: pa.array([rng.randrange(-1, 21) for _ in range(9)]) for c in "xy"}
            check(index, BatchTable(pa.record_batch(drawn)), given)
            assert len(index._codes[0]) <= 30


def test_conditions_that_no_axis_can_test_leave_room_for_sets() -> None:
    """Only final sets get numbers, not those after each of hundreds of conditions."""
    rng, rows = Random(2), 300
    text, number = parse_type("string"), parse_type("int")
    given: list[tuple[Expr, ...]] = []
    for n in range(400):
        pattern = Literal(f"%{''.join(rng.choices('abc', k=2))}{n % 7}%", text)
        two = Call("lt", (Column("", "v", number), Column("", "w", number)), BOOLEAN)
        some = Call(
            "or", (two, Call("eq", (Column("", "v", number), Literal(n, number)), BOOLEAN)), BOOLEAN
        )
        given.append((Call("like", (Column("", "s", text), pattern), BOOLEAN), some))
    index = PredicateIndex()
    for conditions in given:
        index.number(conditions)
    for _ in range(2):
        drawn = {
            "s": pa.array(["".join(rng.choices("abc0123456", k=60)) for _ in range(rows)]),
            "v": pa.array(
                [rng.choice((None, rng.randrange(400))) for _ in range(rows)], pa.int32()
            ),
            "w": pa.array([rng.randrange(400) for _ in range(rows)], pa.int32()),
        }
        check(index, BatchTable(pa.record_batch(drawn)), given)
    assert not index.overflowed
    assert len(index.met) <= 2 * rows + 2
