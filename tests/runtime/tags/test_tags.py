"""Tests of dividing tuples by the choices (tags) that they satisfy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from anabranch_contract.plans.ruleset import Edge, OutputRule, TimeBound
from anabranch_contract.queries.joins import Label, QueryId
from anabranch_runtime.index.gather import BatchTable
from anabranch_runtime.probe.probe import within
from anabranch_runtime.storage.partial import Partial, RowSet, Tables
from anabranch_runtime.storage.segment import TAU
from anabranch_runtime.tags.choices import ChoiceGroup, Choices, bits_of
from anabranch_runtime.tags.program import TaggedOutputs, TaggedRule
from anabranch_runtime.tags.tags import ChosenTuples

pytestmark = pytest.mark.fast
LABELS = [Label(x) for x in "abc"]


@pytest.mark.parametrize("seed", range(30))
def test_timely_tuples_are_those_that_the_checks_of_each_rule_keep(seed: int) -> None:
    """Rules without time bounds, with equal and with different ones; choices without tuples."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 40))
    sets = []
    for _ in LABELS:
        table = BatchTable(pa.record_batch({TAU: pa.array(rng.integers(0, 20, rows))}))
        sets.append(RowSet(Tables([table]), None, rng.permutation(rows).astype(np.int32)))
    tuples = Partial(rows, tuple(sets), {x: (at, "") for at, x in enumerate(LABELS)}, LABELS[0])

    def rule(number: int) -> OutputRule:
        pairs = [rng.choice(3, 2, replace=False).tolist() for _ in range(int(rng.integers(0, 3)))]
        bounds = tuple(
            TimeBound(earlier=LABELS[x], later=LABELS[y], micros=int(rng.integers(-5, 15)))
            for x, y in pairs
        )
        return OutputRule(Edge("e"), QueryId(f"q{number}"), bounds)

    parts = [
        np.sort(rng.choice(rows, int(rng.integers(0, rows + 1)), replace=False)) for _ in range(4)
    ]
    rules = [(choice, rule(n)) for n, choice in enumerate(np.sort(rng.integers(0, 4, 7)).tolist())]
    group = ChoiceGroup((), np.zeros((4, 0), np.int32), ())
    choices = Choices(group, np.arange(4), bits_of(np.arange(4), 1), ())
    tagged = (tuple(TaggedRule(r, r) for at, r in rules if at == choice) for choice in range(4))
    chosen = ChosenTuples(
        tuples,
        np.concatenate(parts).astype(np.int32),
        np.cumsum([len(part) for part in parts]),
        TaggedOutputs((), choices, tuple(tagged)),
        exact=True,
    )
    expected = []
    for choice, one in rules:
        some = tuples.take(parts[choice].astype(np.int32))
        mask = within(some, one.bounds)
        count = some.length if mask is None else int(mask.sum())
        if count:
            expected.append((choice, one, count))
    assert list(chosen.timely()) == expected
    for choice, part in enumerate(parts):
        times = tuples.tau(LABELS[0])[part].tolist()
        assert chosen.part(choice).tau(LABELS[0]).tolist() == times
