"""Kernels that choose tuples by tags, against each choice tested alone."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.columns.arrays import I32, U64, Bools
from anabranch_runtime.index.choosing import choose, passing_any, send
from anabranch_runtime.index.predicate_sets import PredicateSets, SetView
from anabranch_runtime.index.rounds import AT

pytestmark = pytest.mark.fast

_KEPT: list[SetView] = []


def _drawn(
    rng: np.random.Generator, labels: int
) -> tuple[list[U64], I32, I32, I32, NDArray[np.int64]]:
    """Bits of each label's sets, predicates and orders of choices, tuples' sets, kernel's table.

    The table has addresses of the sets, which stay until the next call.
    """
    counts = [int(rng.choice((1, 5, 64, 65, 200, 2500))) for _ in range(labels)]
    bits = []
    _KEPT.clear()
    for count in counts:
        words = (count + 63) // 64
        held = rng.random((int(rng.integers(2, 40)), 64 * words)) < rng.choice(
            (0.001, 0.02, 0.3, 0.9)
        )
        held[:, count:] = False
        made = PredicateSets()
        made.numbered(np.packbits(held, axis=1, bitorder="little").view(np.uint64), 1 << 20)
        bits.append(made.bits(np.arange(len(made)), words))
        _KEPT.append(made.view)
    choices = int(rng.choice((1, 2, 64, 65, 150)))
    predicates = np.stack(
        [rng.integers(-1, count, choices, dtype=np.int32) for count in counts], axis=1
    )
    orders = np.argsort(predicates, axis=0, kind="stable").astype(np.int32)
    tuples = int(rng.choice((0, 1, 90)))
    sets = np.stack([rng.integers(0, len(b), tuples, dtype=np.int32) for b in bits])
    table = np.array([(j, j, *view.addresses) for j, view in enumerate(_KEPT)], np.int64)
    return bits, predicates, orders, sets, table


def _expected(bits: list[U64], predicates: I32, sets: I32) -> Bools:
    """Whether each tuple satisfies each choice: shape (choices, tuples)."""
    found = np.ones((len(predicates), sets.shape[1]), np.bool_)
    for j, own in enumerate(bits):
        every = np.unpackbits(own.view(np.uint8), axis=1, bitorder="little").astype(np.bool_)
        for choice, predicate in enumerate(predicates[:, j]):
            if predicate >= 0:
                found[choice] &= every[sets[j], predicate]
    return found


@pytest.mark.parametrize("seed", range(40))
def test_choices_are_as_tested_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits, predicates, orders, sets, table = _drawn(rng, int(rng.integers(1, 4)))
    wanted = _expected(bits, predicates, sets)
    flat = predicates.reshape(-1), orders.reshape(-1)
    assert np.array_equal(passing_any(table, *flat, sets), wanted.any(axis=0))
    positions, ends = choose(table, *flat, sets)
    begin = 0
    for choice, end in enumerate(ends):
        assert positions[begin:end].tolist() == np.flatnonzero(wanted[choice]).tolist()
        begin = end


@pytest.mark.parametrize("seed", range(20))
def test_edges_send_the_tuples_that_satisfy_a_choice(seed: int) -> None:
    """The sets of tuples are in columns of numbered tables; an edge without labels sends all."""
    rng = np.random.default_rng(seed)
    labels = int(rng.integers(1, 3))
    bits, predicates, orders, sets, table = _drawn(rng, labels)
    tuples = sets.shape[1]
    # One table per label, whose row i has the set of tuple i.
    which = np.stack([np.full(tuples, j, np.int32) for j in range(labels)])
    rows = np.stack([np.arange(tuples, dtype=np.int32)] * labels)
    columns = [np.ascontiguousarray(s) for s in sets]
    places = np.zeros((labels, labels, AT + 5), np.int64)
    for j, column in enumerate(columns):
        places[j, j, AT] = column.ctypes.data
    flat = predicates.reshape(-1), orders.reshape(-1)
    rules = np.array([(0, 0, 0, 0), (0, labels, 0, predicates.size)], np.int64)
    edges = np.array([(0, tuples, 1, 10 * tuples), (0, tuples // 2, 0, 7)], np.int64)
    positions, made = send(edges, which, rows, rules, table, *flat, places)
    passing = np.flatnonzero(_expected(bits, predicates, sets).any(axis=0))
    first, last = made[0, :2]
    assert positions[first:last].tolist() == passing.tolist()
    assert made[0, 3] == (10 * len(passing) if tuples else 0)
    first, last = made[1, :2]
    assert positions[first:last].tolist() == list(range(tuples // 2))
    assert made[1, 3] == 7
