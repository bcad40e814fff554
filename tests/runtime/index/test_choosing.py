"""Compare kernels that choose tuples by their predicate sets with each choice tested alone."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch_runtime.columns.arrays import I32, U64, Bools
from anabranch_runtime.index import predicate_sets
from anabranch_runtime.index.choosing import (
    MOST_LACKING,
    choose,
    satisfied,
    send,
    timely,
    wanted_pairs,
    words_of,
)
from anabranch_runtime.index.hash_index import build_index
from anabranch_runtime.index.keys import KeyVector, mix
from anabranch_runtime.index.matching import Constraint, TooManyPairs, described, in_order, match
from anabranch_runtime.index.predicate_sets import PredicateSets
from anabranch_runtime.index.rounds import AT
from anabranch_runtime.tags import choices
from anabranch_runtime.tags.choices import TranslatedSets, bits_of, pair_test, table_of

pytestmark = pytest.mark.fast


def _sets(rng: np.random.Generator, count: int, rows: int) -> U64:
    """Return the bits of ``rows`` random sets of ``count`` predicates."""
    held = rng.random((rows, 64 * ((count + 63) // 64))) < rng.choice((0.001, 0.02, 0.3, 0.9))
    held[:, count:] = False
    return np.packbits(held, axis=1, bitorder="little").view(np.uint64)


def _drawn(rng: np.random.Generator, labels: int) -> tuple[list[PredicateSets], I32, I32]:
    """Return random sets of each label, predicates of choices, and set numbers of tuples."""
    counts = [int(rng.choice((1, 5, 64, 65, 200, 2500))) for _ in range(labels)]
    made = [PredicateSets() for _ in counts]
    for sets, count in zip(made, counts, strict=True):
        sets.numbered(_sets(rng, count, int(rng.integers(2, 40))), 1 << 20)
    number = int(rng.choice((1, 2, 64, 65, 150)))
    predicates = np.stack(
        [rng.integers(-1, count, number, dtype=np.int32) for count in counts], axis=1
    )
    tuples = int(rng.choice((0, 1, 90)))
    numbers = np.stack([rng.integers(0, len(sets), tuples, dtype=np.int32) for sets in made])
    return made, predicates, numbers


def _expected(made: list[PredicateSets], predicates: I32, numbers: I32) -> Bools:
    """Return whether each tuple satisfies each choice: shape (choices, tuples)."""
    found = np.ones((len(predicates), numbers.shape[1]), np.bool_)
    for j, sets in enumerate(made):
        own = sets.bits(np.arange(len(sets)), 40)
        every = np.unpackbits(own.view(np.uint8), axis=1, bitorder="little").astype(np.bool_)
        for choice, predicate in enumerate(predicates[:, j]):
            if predicate >= 0:
                found[choice] &= every[numbers[j], predicate]
    return found


@pytest.mark.parametrize("seed", range(40))
def test_choices_are_as_tested_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with few or many sets that are added after a translation, and in several pieces, whose
    lists by member are cached or not."""
    monkeypatch.setattr(choices, "PIECE", 7)
    monkeypatch.setattr(choices, "MOST_NEW", (0, 40, 1 << 20)[seed % 3])
    monkeypatch.setattr(predicate_sets, "KEPT", (0, 16)[seed % 2])
    rng = np.random.default_rng(seed)
    made, predicates, numbers = _drawn(rng, int(rng.integers(1, 4)))
    translated = [
        TranslatedSets(sets, np.ascontiguousarray(predicates[:, j])) for j, sets in enumerate(made)
    ]
    for _ in range(2):
        views = [one.view(own) for one, own in zip(translated, numbers, strict=True)]
        wanted = _expected(made, predicates, numbers)
        chosen = np.flatnonzero(rng.random(len(predicates)) < 0.7)
        wanted[np.setdiff1d(np.arange(len(predicates)), chosen)] = False
        mask = bits_of(chosen, (len(predicates) + 63) // 64)
        held = satisfied(table_of(views), mask, numbers)
        assert held.any(axis=1).tolist() == wanted.any(axis=0).tolist()
        positions, ends = choose(held)
        for choice, row in enumerate(wanted):
            part = positions[ends[choice] : ends[choice + 1]]
            assert part.tolist() == np.flatnonzero(row).tolist()
        for sets in made:
            sets.numbered(_sets(rng, 2500, 30), 1 << 20)
        numbers = np.stack([rng.integers(0, len(s), 50, dtype=np.int32) for s in made])


@pytest.mark.parametrize("seed", range(20))
def test_wanted_pairs_are_as_tested_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of tuples and stored rows, whose set numbers are in columns of two tables. A first call
    returns sets that have no translation, if new sets are too many to be translated at once."""
    monkeypatch.setattr(choices, "MOST_NEW", (0, 1 << 20)[seed % 2])
    rng = np.random.default_rng(seed)
    labels = int(rng.integers(2, 4))
    made, predicates, numbers = _drawn(rng, labels)
    translated = [
        TranslatedSets(sets, np.ascontiguousarray(predicates[:, j])) for j, sets in enumerate(made)
    ]
    probing = int(rng.integers(1, labels))
    words = (len(predicates) + 63) // 64
    mask = bits_of(np.arange(len(predicates)), words)
    views = [one.view(own) for one, own in zip(translated[:probing], numbers, strict=False)]
    held = satisfied(table_of(views), mask, numbers[:probing])
    tables = int(rng.integers(1, 3))
    stored = [
        [rng.integers(0, len(sets), 20, dtype=np.int32) for _ in range(tables)]
        for sets in made[probing:]
    ]
    columns = np.array([[c.ctypes.data for c in one] for one in stored], np.int64)
    pairs = 0 if numbers.shape[1] == 0 else 200
    positions = rng.integers(0, max(numbers.shape[1], 1), pairs).astype(np.int32)
    which = rng.integers(0, tables, pairs if tables > 1 else 1).astype(np.int16)
    rows = rng.integers(0, 20, pairs).astype(np.int32)
    test = pair_test(words_of(held), words, columns, translated[probing:])
    found, lacking = wanted_pairs(*test.arguments, positions, which, rows)
    # Tuples that satisfy no choice are not tested.
    assert bool(len(lacking)) == (seed % 2 == 0 and bool(held[positions].any()))
    while len(lacking):
        test = test.completed(lacking)
        found, lacking = wanted_pairs(*test.arguments, positions, which, rows)
    there = np.broadcast_to(which, pairs)
    sets = np.stack(
        [
            *(own[positions] for own in numbers[:probing]),
            *([one[t][r] for t, r in zip(there, rows, strict=True)] for one in stored),
        ]
    ).astype(np.int32)
    assert found.tolist() == np.flatnonzero(_expected(made, predicates, sets).any(axis=0)).tolist()


@pytest.mark.parametrize("seed", range(30))
def test_matches_are_the_wanted_ones_of_all_pairs(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several segments, under constraints; unwanted matches are counted and marked, too. New
    sets are translated at once, or when they are met."""
    monkeypatch.setattr(choices, "MOST_NEW", (0, 1 << 20)[seed % 2])
    rng = np.random.default_rng(seed)
    labels = int(rng.integers(2, 4))
    made, predicates, numbers = _drawn(rng, labels)
    translated = [
        TranslatedSets(sets, np.ascontiguousarray(predicates[:, j])) for j, sets in enumerate(made)
    ]
    probing, tuples = int(rng.integers(1, labels)), numbers.shape[1]
    words = (len(predicates) + 63) // 64
    mask = bits_of(np.flatnonzero(rng.random(len(predicates)) < 0.8), words)
    views = [one.view(own) for one, own in zip(translated[:probing], numbers, strict=False)]
    held = satisfied(table_of(views), mask, numbers[:probing])
    rows = [int(rng.choice((0, 1, 40, 700))) for _ in range(3)]
    keys = int(rng.choice((1, 7, 400)))

    def hashes(count: int) -> U64:
        return mix(rng.integers(0, keys, count).astype(np.uint64))

    indexes = [build_index(KeyVector(hashes(n), None, exact=True)) for n in rows]
    stored = [
        [rng.integers(0, len(sets), n, dtype=np.int32) for n in rows] for sets in made[probing:]
    ]
    columns = np.array([[c.ctypes.data for c in one] for one in stored], np.int64)
    values = [rng.integers(0, 10, n) for n in rows]
    constraints = [
        Constraint(
            np.array([v.ctypes.data * int(rng.integers(2)) for v in values], np.int64),
            rng.integers(0, 6, (tuples,)),
            rng.integers(3, 10, (tuples,)),
        )
        for _ in range(int(rng.integers(0, 3)))
    ]
    counting = int(rng.integers(0, len(constraints) + 1))
    test = pair_test(words_of(held), words, columns, translated[probing:])
    probes = in_order(hashes(tuples))
    marks = [np.zeros(tuples, np.uint8) for _ in range(2)]
    every = match(probes, described(indexes), constraints, counting, marks=marks[0])
    found = match(probes, described(indexes), constraints, counting, marks=marks[1], test=test)
    which = np.repeat(np.arange(len(rows), dtype=np.int32), every.found)
    test = pair_test(words_of(held), words, columns, translated[probing:])
    wanted, lacking = wanted_pairs(*test.arguments, every.positions, which, every.rows)
    assert not len(lacking)
    assert found.positions.tolist() == every.positions[wanted].tolist()
    assert found.rows.tolist() == every.rows[wanted].tolist()
    assert found.found.tolist() == np.bincount(which[wanted], minlength=len(rows)).tolist()
    assert found.counted.tolist() == every.counted.tolist()
    assert marks[0].tolist() == marks[1].tolist()
    assert found.held == every.held
    if len(every.rows) > max(tuples, 64):
        for some in (None, test):
            with pytest.raises(TooManyPairs):
                match(probes, described(indexes), most=tuples, test=some)


def test_a_match_is_repeated_until_all_sets_are_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more pairs of untranslated sets than one call returns, and a limit of pairs."""
    monkeypatch.setattr(choices, "MOST_NEW", 0)
    rng, made, rows, tuples = np.random.default_rng(5), PredicateSets(), 3_000, 100
    column = made.numbered(_sets(rng, 30, rows), 1 << 20)
    predicates = np.arange(30, dtype=np.int32)
    held = words_of(np.full((tuples, 1), 5, np.uint64))
    sets = np.array([[column.ctypes.data]], np.int64)
    test = pair_test(held, 1, sets, [TranslatedSets(made, predicates)])
    hashes = mix(np.ones(rows, np.uint64))
    index = build_index(KeyVector(hashes, None, exact=True))
    indexes, probes = described([index]), in_order(hashes[:tuples])
    assert rows * tuples > MOST_LACKING
    with pytest.raises(TooManyPairs):
        match(probes, indexes, most=tuples, test=test)
    found = match(probes, indexes, test=test)
    bits = made.bits(column, 1)[:, 0]
    wanted = np.flatnonzero(bits & np.uint64(5))
    assert len(wanted)
    assert len(found.rows) == len(wanted) * tuples
    assert np.unique(found.rows).tolist() == wanted.tolist()
    assert found.counted.tolist() == [rows * tuples]


@pytest.mark.parametrize("seed", range(20))
def test_timely_tuples_are_counted_one_by_one(seed: int) -> None:
    """Parts with no, one and several time bounds; also a part without tuples."""
    rng = np.random.default_rng(seed)
    tuples, labels, parts = 30, 3, 6
    taus = rng.integers(0, 20, (labels, tuples))
    ranges = np.sort(rng.integers(0, 40, (parts, 2)), axis=1)
    positions = rng.integers(0, tuples, 40).astype(np.int32)
    ends = np.concatenate([[0], np.cumsum(rng.integers(0, 3, parts))])
    bounds = np.stack(
        [*rng.integers(0, labels, (2, ends[-1])), rng.integers(-5, 15, ends[-1])], axis=1
    )
    expected = [
        sum(
            all(taus[x, at] - taus[y, at] <= most for x, y, most in bounds[ends[n] : ends[n + 1]])
            for at in positions[first:last]
        )
        for n, (first, last) in enumerate(ranges)
    ]
    assert timely(positions, ranges, bounds, ends, taus).tolist() == expected


@pytest.mark.parametrize("seed", range(20))
def test_edges_send_the_tuples_that_satisfy_a_choice(seed: int) -> None:
    """The set numbers of tuples are in columns of numbered tables; an edge without labels sends all
    tuples.
    """
    rng = np.random.default_rng(seed)
    labels = int(rng.integers(1, 3))
    made, predicates, numbers = _drawn(rng, labels)
    views = [sets.view for sets in made]
    table = np.array([(j, j, *view.addresses) for j, view in enumerate(views)], np.int64)
    tuples = numbers.shape[1]
    # One table per label, whose row i has the set number of tuple i.
    which = np.stack([np.full(tuples, j, np.int32) for j in range(labels)])
    rows = np.stack([np.arange(tuples, dtype=np.int32)] * labels)
    columns = [np.ascontiguousarray(s) for s in numbers]
    places = np.zeros((labels, labels, AT + 5), np.int64)
    for j, column in enumerate(columns):
        places[j, j, AT] = column.ctypes.data
    rules = np.array([(0, 0, 0, 0), (0, labels, 0, predicates.size)], np.int64)
    edges = np.array([(0, tuples, 1, 10 * tuples), (0, tuples // 2, 0, 7)], np.int64)
    positions, sent = send(edges, which, rows, rules, table, predicates.reshape(-1), places)
    passing = np.flatnonzero(_expected(made, predicates, numbers).any(axis=0))
    first, last = sent[0, :2]
    assert positions[first:last].tolist() == passing.tolist()
    assert sent[0, 3] == (10 * len(passing) if tuples else 0)
    first, last = sent[1, :2]
    assert positions[first:last].tolist() == list(range(tuples // 2))
    assert sent[1, 3] == 7
