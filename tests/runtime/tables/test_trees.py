"""Compare ordered multisets (trees of maintained tables) with sorted lists."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from anabranch_contract.queries.types import parse_type
from anabranch_contract.queries.views import RankFunction
from anabranch_runtime.tables.ordered import Ordered
from anabranch_runtime.tables.words import Texts, TupleField, TupleLayout

Value = tuple[str | None, int]
NUMBER, TEXT = parse_type("bigint"), parse_type("string")


def _key(value: Value) -> tuple[int, bytes, int]:
    """Return a sort key: texts descending, NULL last; then numbers ascending."""
    text = value[0]
    inverted = bytes(255 - b for b in (text or "").encode()) + b"\xff" * 9
    return (int(text is None), inverted, value[1])


@pytest.mark.parametrize("seed", range(30))
def test_a_tree_is_a_sorted_multiset(seed: int) -> None:
    random = Random(seed)
    fields = (TupleField(TEXT, descending=True, nulls_first=False), TupleField(NUMBER))
    tree = Ordered(TupleLayout(fields, Texts()))
    known: list[Counter[Value]] = [Counter(), Counter(), Counter()]
    for _ in range(20):
        count = random.randrange(40)
        slots = [random.randrange(3) for _ in range(count)]
        values: list[Value] = [
            (random.choice((None, "", "a", "ab", "b")), random.randrange(-3, 4)) for _ in slots
        ]
        weights = [random.choice((-2, -1, 1, 1, 2)) for _ in slots]
        columns = [pa.array([v[0] for v in values], pa.string()),
                   pa.array([v[1] for v in values], pa.int64())]  # fmt: skip
        tuples = tree.layout.encode(columns)
        changes = tree.add(
            np.array(slots, np.int64), tuples, np.array(weights, np.int64), changes=True
        )
        for slot, value, weight, change in zip(slots, values, weights, changes, strict=True):
            before = max(known[slot][value], 0)
            known[slot][value] += weight
            assert change == max(known[slot][value], 0) - before
        if random.random() < 0.1:
            gone = random.randrange(3)
            tree.clear(np.array([gone]))
            known[gone].clear()
        _compare(tree, known, random)


def _compare(tree: Ordered, known: list[Counter[Value]], random: Random) -> None:
    assert len(tree) == sum(weight != 0 for c in known for weight in c.values())
    slots = np.arange(3)
    expected = [sorted((v for v, w in c.items() for _ in range(w)), key=_key) for c in known]
    assert tree.totals(slots).tolist() == [len(e) for e in expected]
    assert tree.empty(slots).tolist() == [not any(c.values()) for c in known]

    def shown(nodes: np.typing.NDArray[np.int64]) -> list[Value]:
        columns = tree.layout.decode(tree.words[nodes])
        return list(zip(*(c.to_pylist() for c in columns), strict=True))

    rank = random.randrange(-8, 8)
    nodes = tree.at(slots, np.full(3, rank))
    for slot, node in enumerate(nodes):
        values = expected[slot]
        there = -len(values) <= rank < len(values)
        assert (shown(np.array([node])) if node >= 0 else []) == ([values[rank]] if there else [])
    ranking, most = random.choice(tuple(RankFunction)), random.randrange(1, 6)
    first = tree.walk(slots, most, ranking, tree.layout.end(1))
    begin = 0
    for slot, end in enumerate(first.ends):
        part = slice(begin, end)
        repeated = np.repeat(first.nodes[part], first.times[part])
        assert shown(repeated) == _first(expected[slot], most, ranking)
        begin = int(end)


def _first(values: list[Value], most: int, ranking: RankFunction) -> list[Value]:
    """Return the first values, ranked by their texts."""
    found = []
    for position, value in enumerate(values, 1):
        before = [v for v in values if _key(v)[:2] < _key(value)[:2]]
        place = {
            RankFunction.ROW_NUMBER: position,
            RankFunction.RANK: len(before) + 1,
            RankFunction.DENSE_RANK: len({v[0] for v in before}) + 1,
        }[ranking]
        if place <= most:
            found.append(value)
    return found
