"""Compare frequent values over batches with counting every value."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch_contract import codec
from anabranch_contract.protocol.measurements import FrequentValues, Snapshot
from anabranch_runtime.index.keys import key_vector, mix
from anabranch_runtime.state.manifest import Manifests, State, read_manifest
from anabranch_runtime.state.measured import Measurements
from anabranch_runtime.state.measures import unpack
from anabranch_runtime.state.values import HALF_LIFE, MOST, WORTH, KeyValues, ValueCounts
from anabranch_runtime.task.meters import value_counts

Values = NDArray[np.int64]


QUICK = settings(max_examples=40, deadline=None)


def counts(values: pa.Array, known: KeyValues, kind: str = "bigint") -> ValueCounts:
    return value_counts(key_vector([values], [kind]), known.known, lambda: values)


def after(batches: Sequence[Values], tasks: int = 1, before: KeyValues | None = None) -> KeyValues:
    """Return the state of a key after some batches, each divided over the tasks."""
    known = KeyValues() if before is None else before
    for values in batches:
        parts = np.array_split(values, tasks)
        known = known.merge([counts(pa.array(part), known) for part in parts])
    return known


def hash_of(value: int) -> int:
    return int(mix(np.array([value], np.uint64))[0])


def drawn(shape: str, batches: int, tuples: int, seed: int) -> list[Values]:
    random = np.random.default_rng(seed)
    shapes: dict[str, Callable[[int], Values]] = {
        "one": lambda n: np.full(tuples, 7),
        "few": lambda n: random.integers(0, 25, tuples),
        "many": lambda n: random.integers(0, 200, tuples),
        "zipf": lambda n: np.minimum(random.zipf(1.2, tuples), 1 << 40),
        "different": lambda n: np.arange(tuples) + n * tuples,
        "drifting": lambda n: random.geometric(0.05, tuples) + 3 * n,
        "mixed": lambda n: np.where(
            random.random(tuples) < 0.3,
            random.integers(0, 10, tuples),
            random.integers(100, 1 << 40, tuples),
        ),
    }
    made = shapes[shape]
    return [made(n).astype(np.int64) for n in range(batches)]


def check(found: FrequentValues, batches: Sequence[Values]) -> None:
    """Check that every share is within the stated error, also of unlisted values."""
    everything: Counter[int] = Counter()
    recent: dict[int, float] = {}
    for number, values in enumerate(batches):
        weight = 0.5 ** ((len(batches) - 1 - number) / HALF_LIFE)
        for value, count in zip(*np.unique(values, return_counts=True), strict=True):
            everything[int(value)] += int(count)
            recent[int(value)] = recent.get(int(value), 0.0) + float(count) * weight
    names = {hash_of(value): value for value in everything}
    listed = dict(zip(found.hashes, zip(found.arriving, found.stored, strict=True), strict=True))
    assert len(listed) <= MOST
    assert all(str(names[h]) == t for h, t in zip(found.hashes, found.texts, strict=True))
    total, lasting = sum(everything.values()), sum(recent.values())
    for shown, value in names.items():
        arriving, stored = listed.get(shown, (0.0, 0.0))
        for share, true in (
            (arriving, recent[value] / lasting),
            (stored, everything[value] / total),
        ):
            assert share - 2e-6 <= true <= share + found.error + 1e-6
    assert list(found.arriving) == sorted(found.arriving, reverse=True)


@QUICK
@given(
    st.sampled_from(["one", "few", "many", "zipf", "different", "drifting", "mixed"]),
    st.integers(1, 12),
    st.sampled_from([1, 7, 64, 100, 1_000, 6_000]),
    st.integers(1, 4),
    st.integers(0, 1 << 20),
)
def test_shares_are_within_the_stated_error_and_what_exceeds_it_is_listed(
    shape: str, batches: int, tuples: int, tasks: int, seed: int
) -> None:
    stream = drawn(shape, batches, tuples, seed)
    check(after(stream, tasks).published(), stream)


@QUICK
@given(st.integers(2, 5), st.integers(0, 1 << 20))
def test_known_values_are_counted_the_same_whatever_the_tasks_are(tasks: int, seed: int) -> None:
    first, *others = drawn("few", 6, 3_000, seed)
    known = after([first])
    one, several = after(others, 1, known), after(others, tasks, known)
    assert len(known.texts) == 25
    assert one == several


def test_the_same_batch_gives_the_same_state() -> None:
    stream = drawn("zipf", 5, 4_000, 1)
    assert after(stream, 3) == after(stream, 3)


def test_few_values_are_counted_exactly_from_the_first_batch_on() -> None:
    stream = drawn("few", 3, 5_000, 2)
    found = after(stream, 2).published()
    assert found.error == 0
    assert sum(found.stored) == pytest.approx(1, abs=1e-4)


def test_the_error_is_small_where_batches_are_large() -> None:
    stream = drawn("mixed", 4, 50_000, 3)
    known = after(stream)
    assert known.published().error < WORTH
    assert len(known.texts) == 10
    check(known.published(), stream)


@pytest.mark.parametrize("tuples", [1, 10, 40, 64, 100, 256])
@pytest.mark.parametrize("shape", ["different", "mixed"])
def test_the_error_of_small_batches_is_about_that_of_as_many_counters(
    shape: str, tuples: int
) -> None:
    stream = drawn(shape, 40, tuples, 1)
    found = after(stream).published()
    assert found.error < 1.2 / MOST
    check(found, stream)


def test_what_has_become_frequent_shows_within_two_epochs_and_what_was_fades() -> None:
    before, later = [np.full(2_000, 1)] * 40, [np.full(2_000, 2)] * 8
    found = after([*before, *later]).published()
    assert found.texts == ("2", "1")
    assert found.arriving == pytest.approx([0.5, 0.5], abs=0.02)
    assert found.stored == pytest.approx([8 / 48, 40 / 48], abs=1e-4)
    assert found.error == 0


def test_a_value_that_was_rare_is_found_however_long_the_history_is() -> None:
    stream = [*drawn("different", 30, 5_000, 1), *drawn("mixed", 6, 5_000, 2)]
    found = after(stream).published()
    assert {str(n) for n in range(10)} <= set(found.texts)
    check(found, stream)


def test_as_many_values_as_are_kept_give_way_to_as_many_others() -> None:
    random = np.random.default_rng(9)
    before = [random.integers(0, MOST, 10_000) for _ in range(40)]
    later = [random.integers(MOST, 2 * MOST, 10_000) for _ in range(24)]
    found = after([*before, *later]).published()
    assert len(set(map(int, found.texts)) & set(range(MOST, 2 * MOST))) > MOST / 2
    check(found, [*before, *later])


def test_what_is_no_longer_worth_it_is_let_go_and_bounded_in_size() -> None:
    random = np.random.default_rng(5)
    stream = [np.repeat(np.arange(30) + 30 * n, 33) for n in range(60)]
    stream = [random.permutation(values) for values in stream]
    known = after(stream)
    assert len(known.texts) == MOST
    assert len(unpack(known.hashes)) == len(unpack(known.figures)) / 5 == MOST
    check(known.published(), stream)


def test_a_batch_without_tuples_changes_nothing() -> None:
    known = after(drawn("few", 2, 100, 6))
    nothing = counts(pa.array([], pa.int64()), known)
    assert known.merge([nothing, nothing]) == known
    assert KeyValues().merge([]) == KeyValues()
    assert KeyValues().published() == FrequentValues(error=0.0)


def test_nulls_are_tuples_but_no_values() -> None:
    values = pa.array([None, 5, None, 5, 6, None, None, None, 5, None], pa.int64())
    found = KeyValues().merge([counts(values, KeyValues())]).published()
    assert found == FrequentValues(
        (hash_of(5), hash_of(6)), ("5", "6"), (0.3, 0.1), (0.3, 0.1), 0.0, 0.6, 0.6
    )
    nothing = pa.array([None] * 500, pa.int64())
    known = KeyValues().merge([counts(nothing, KeyValues())])
    assert known.tuples == known.nulls == 500
    assert known.published() == FrequentValues(error=0.0, null_arriving=1.0, null_stored=1.0)


TEXTS = pa.array([None, "", "a", "NULL", None, "b"])
FLOATS = pa.array([None, float("nan"), -0.0, 0.0, float("nan"), 1.5, None, None], pa.float64())


@pytest.mark.parametrize(
    ("columns", "kinds", "nulls"),
    [
        ([TEXTS], ["string"], 2),
        ([FLOATS], ["double"], 3),
        ([TEXTS, FLOATS.slice(0, 6)], ["string", "double"], 2),
        ([TEXTS, FLOATS.slice(2, 6)], ["string", "double"], 3),
        ([pa.array([1, 2])], ["bigint"], 0),
    ],
    ids=["texts", "floats", "both NULL at once", "either NULL", "none"],
)
@pytest.mark.parametrize("tasks", [1, 2])
def test_nulls_are_counted_exactly(
    columns: list[pa.Array], kinds: list[str], nulls: int, tasks: int
) -> None:
    with_nulls = pa.record_batch(columns, kinds)
    without = with_nulls.drop_null()
    known, recent, recent_nulls = KeyValues(), 0.0, 0.0
    fade = 0.5 ** (1 / HALF_LIFE)
    # Shares of arriving tuples and of all tuples differ.
    for rows in [with_nulls] * 8 + [without] * 3:
        keys, column = key_vector(rows.columns, kinds), functools.partial(rows.column, 0)
        known = known.merge([value_counts(keys, known.known, column)] * tasks)
        recent = recent * fade + rows.num_rows * tasks
        recent_nulls = recent_nulls * fade + (nulls if rows is with_nulls else 0) * tasks
    assert known.nulls == 8 * nulls * tasks
    found = known.published()
    assert found.null_stored == pytest.approx(known.nulls / known.tuples, abs=1e-6)
    assert found.null_arriving == pytest.approx(recent_nulls / recent, abs=1e-6)
    if len(columns) == 1:
        assert found.error == 0
        for shares, null in (
            (found.stored, found.null_stored),
            (found.arriving, found.null_arriving),
        ):
            assert sum(shares) + null == pytest.approx(1, abs=1e-5)
    if kinds == ["double"]:
        assert sorted(found.texts) == ["0", "1.5", "nan"]


def test_values_that_an_earlier_release_has_counted_had_no_nulls() -> None:
    known = after(drawn("few", 2, 100, 6))
    document = codec.to_json(known)
    del document["nulls"], document["recent_nulls"]
    assert codec.from_json(document, KeyValues) == known
    published = codec.to_json(known.published())
    del published["null_arriving"], published["null_stored"]
    assert codec.from_json(published, FrequentValues) == known.published()


def test_a_state_is_committed_with_its_values_and_read_without(tmp_path: Path) -> None:
    known = after(drawn("zipf", 2, 900, 7))
    Manifests(tmp_path).commit(
        State(next_batch=1, measured=Measurements(values={"R": {"a": known}}))
    )
    (path,) = (tmp_path / "manifest").iterdir()
    assert read_manifest(path).measured.values == {"R": {"a": known}}
    state = codec.to_json(State())
    del state["measured"]["values"]
    assert codec.from_json(state, State) == State()


def test_a_snapshot_has_values_and_one_of_an_earlier_release_none() -> None:
    found = after(drawn("zipf", 2, 900, 8)).published()
    snapshot = Snapshot(0, 1, 1, values={"R": {"a": found}})
    document = json.loads(codec.dumps(snapshot))
    assert codec.from_json(document, Snapshot) == snapshot
    assert codec.from_json(document, Snapshot).values == {"R": {"a": found}}
    del document["values"]
    assert codec.from_json(document, Snapshot).values == {}
