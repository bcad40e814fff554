"""Tests that results of outer joins follow from left rows, pairs and the watermark, whatever the
batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from anabranch_contract.queries.expressions import Call, Column, Output
from anabranch_contract.queries.outer_joins import JoinKind, OuterJoin
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.sinks.outer_rows import SCHEMA
from anabranch_runtime.tables.joins.outer import DecidedResults, DecidedRows

BIGINT, STRING, TIMESTAMP = (parse_type(t) for t in ("bigint", "string", "timestamp"))
LEFT = (("k", BIGINT), ("v", STRING), ("ts", TIMESTAMP))
PAIRS = (*LEFT, ("w", BIGINT))
BOUND, LATENESS = 10, 5
_PAST = -(10**9)
Left = tuple[int | None, str, int | None]


def _join(kind: JoinKind) -> OuterJoin:
    outputs = [Output("v", Column("", "v", STRING)), Output("k", Column("", "k", BIGINT))]
    if kind is JoinKind.LEFT:
        outputs.append(Output("w", Column("", "w", BIGINT)))
    return OuterJoin(kind, LEFT, (("ts", BOUND), ("ts", BOUND + 3)), "c", tuple(outputs))


def _table(rows: list[tuple[Any, ...]], columns: tuple[tuple[str, Any], ...]) -> pa.Table:
    """Return a table of rows with batch and floor."""
    schema = pa.schema([*((n, arrow_type(k)) for n, k in columns), *SCHEMA])
    values = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(list(v), f.type) for v, f in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


@dataclass
class World:
    """Streams of left and right rows, and the expected results."""

    kind: JoinKind
    random: Random
    mark: int | None = None
    rights: list[tuple[int, int, int]] = field(default_factory=list)
    #: Left rows with their batch and end.
    lefts: list[tuple[Left, int, int]] = field(default_factory=list)
    held: list[Left] = field(default_factory=list)

    def batch(self, number: int) -> tuple[pa.Table, pa.Table, int | None]:
        """Return left rows and pairs of the next batch, and the watermark after it."""
        random, floor = self.random, self.mark
        now = 4 * number
        rights = [
            (random.randrange(4), random.randrange(9), now + random.randrange(-20, 5))
            for _ in range(random.choice((0, 1, 4)))
        ]
        rights = [r for r in rights if floor is None or r[2] >= floor]
        lefts: list[Left] = [
            (
                random.choice((None, 0, 1, 2, 3)),
                random.choice("abc"),
                random.choice((None, *(now + random.randrange(-40, 5) for _ in range(9)))),
            )
            for _ in range(random.choice((0, 2, 6)))
        ]
        lefts += lefts[:1]
        pairs = []
        for left, came, _ in self.lefts:
            pairs += [(*left, r[1], came, floor) for r in rights if _match(left, r)]
        self.rights += rights
        rows = []
        for left in lefts:
            end = max((v for v in (_deadline(left), floor) if v is not None), default=None)
            deadline = _deadline(left)
            at_once = deadline is not None and floor is not None and deadline < floor
            self.lefts.append((left, number, _PAST if end is None or at_once else end))
            rows.append((*left, number, floor))
            pairs += [(*left, r[1], number, floor) for r in self.rights if _match(left, r)]
        newest = max((r[2] for r in self.rights), default=None)
        self.mark = None if newest is None else newest - LATENESS
        return _table(rows, LEFT), _table(pairs, PAIRS), self.mark

    def due(self) -> Counter[tuple[Any, ...]]:
        """Return all results so far."""
        found: Counter[tuple[Any, ...]] = Counter()
        for left, _, end in self.lefts:
            matches = [r for r in self.rights if _match(left, r)]
            shown = left[1], left[0]
            over = self.mark is not None and end < self.mark
            if self.kind is JoinKind.LEFT:
                found.update((*shown, r[1]) for r in matches)
                if over and not matches:
                    found[*shown, None] += 1
            elif over and bool(matches) == (self.kind is JoinKind.SEMI):
                found[shown] += 1
        return found


def _deadline(left: Left) -> int | None:
    return None if left[2] is None else left[2] + BOUND


def _match(left: Left, right: tuple[int, int, int]) -> bool:
    return left[0] == right[0] and left[2] is not None and left[2] <= right[2] <= left[2] + BOUND


def _counted(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows.to_pylist())


@pytest.mark.parametrize("kind", JoinKind)
@pytest.mark.parametrize("seed", range(25))
def test_results_are_due(kind: JoinKind, seed: int) -> None:
    random = Random(seed)
    world, rows = World(kind, random), DecidedRows(_join(kind), PAIRS)
    found: Counter[tuple[Any, ...]] = Counter()
    given = 0
    for number in range(20):
        left, pairs, clock = world.batch(number)
        decided = rows.apply(left, pairs, clock, number)
        found += _counted(decided.rows)
        given += decided.left.given
        assert found == world.due()
        if random.random() < 0.4:
            rows = DecidedRows.load(_join(kind), PAIRS, rows.dump())
    assert found
    if kind is not JoinKind.LEFT:
        assert given == sum(found.values())


def test_a_row_of_a_catch_up_waits_for_its_pairs() -> None:
    rows = DecidedRows(_join(JoinKind.ANTI), PAIRS)
    # Its last tuple arrived in batch 1, which withheld it; batch 7 computes it after its deadline.
    late = _table([(1, "a", 0, 1, 50), (2, "b", 0, 1, 50)], LEFT)
    assert not rows.apply(late, _table([], PAIRS), 50, 7).rows.num_rows
    pair = _table([(1, "a", 0, 5, 1, 50)], PAIRS)
    assert not rows.apply(_table([], LEFT), pair, 50, 8).rows.num_rows
    decided = rows.apply(_table([], LEFT), _table([], PAIRS), 51, 9)
    assert _counted(decided.rows) == {("b", 2): 1}
    assert len(rows) == 0


@dataclass
class Odd:
    """Rows of odd batches are undecided; half of the others would have been."""

    def among(
        self,
        rows: int,
        column: Callable[[str], pa.Array],
        came: NDArray[np.int64],
        deadlines: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        assert len(column("v")) == rows == len(deadlines)
        odd: NDArray[np.bool_] = came % 2 == 1
        return odd

    def chances(
        self, rows: int, came: NDArray[np.int64], deadlines: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        return np.full(rows, 0.5)


def test_undecided_rows_are_counted_and_not_emitted() -> None:
    rows = DecidedRows(_join(JoinKind.LEFT), PAIRS)
    left = [(1, "a", 0, 3, None), (1, "a", 0, 3, None), (2, "b", 0, 4, None), (3, "c", 0, 4, None)]
    pairs = [(3, "c", 0, 9, 4, None)]
    decided: DecidedResults = rows.apply(_table(left, LEFT), _table(pairs, PAIRS), 100, 4, Odd())
    assert _counted(decided.rows) == {("b", 2, None): 1, ("c", 3, 9): 1}
    assert (decided.left.given, decided.left.missing, decided.left.undecided) == (1, 1.0, 2)


def test_a_failing_output_changes_nothing() -> None:
    quotient = Call("div", (Column("", "k", BIGINT), Column("", "k", BIGINT)), parse_type("double"))
    join = OuterJoin(JoinKind.ANTI, LEFT, (("ts", BOUND),), "c", (Output("q", quotient),))
    rows = DecidedRows(join, PAIRS)
    rows.apply(_table([(0, "a", 0, 1, None), (2, "b", 5, 1, None)], LEFT), _table([], PAIRS), 3, 1)
    before = rows.dump()
    more = _table([(4, "c", 1, 2, 3)], LEFT)
    with pytest.raises(ExpressionError, match="divisor is zero"):
        rows.apply(more, _table([], PAIRS), 12, 2)
    assert rows.dump() == before
    assert not rows.apply(more, _table([(0, "a", 0, 1, 1, 3)], PAIRS), 10, 2).rows.num_rows
    assert rows.apply(_table([], LEFT), _table([], PAIRS), 12, 3).rows.to_pydict() == {"q": [1.0]}
