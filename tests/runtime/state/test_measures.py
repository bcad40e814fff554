"""Tests of measures in the state (sketches, samples, delays): exact on small data, and the same
however tuples are divided.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch_contract import codec
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.measurements import (
    EdgeStatistics,
    Snapshot,
    StoreStatistics,
    StreamSample,
    StreamStatistics,
)
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.index.hash_index import distinct_sketch, estimate_distinct
from anabranch_runtime.index.keys import KeyVector, key_vector
from anabranch_runtime.measure.statistics import LatestTuples, Samples
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.state.measured import SampledRows, TaskMeasures
from anabranch_runtime.state.measures import (
    RANK,
    SIZE,
    SPARSE,
    Bounds,
    KeyBound,
    StreamMeter,
    add_counts,
    delay_classes,
    key_bound,
    merge_packed,
    pack,
    unpack,
)
from anabranch_runtime.task.meters import Collector, new_hashes, ranks_of

NO_LAYOUT = Layout(Ruleset(0, (), (), (), (), (), (), ()), {})

QUICK = settings(max_examples=40, deadline=None)

#: Batches of keys: number of values, and number of tuples of each batch.
KEYS = st.tuples(
    st.sampled_from([1, 3, 200, 300, 5_000, 1 << 40]),
    st.lists(st.integers(0, 9_000), min_size=1, max_size=6),
    st.integers(0, 2**32),
)


def drawn(values: int, sizes: Sequence[int], seed: int) -> list[NDArray[np.int64]]:
    random = np.random.default_rng(seed)
    return [random.integers(0, values, size) for size in sizes]


def reported(batches: Sequence[NDArray[np.int64]]) -> str:
    """Return the sketch merged from each batch's new hashes."""
    known: str | None = None
    for values in batches:
        keys = key_vector([pa.array(values)], ["bigint"])
        bound = KeyBound() if known is None else key_bound(known)
        fresh = pack(new_hashes(keys, bound))
        known = fresh if known is None else merge_packed((known, fresh))
    assert known is not None
    return known


@QUICK
@given(KEYS)
def test_a_sketch_that_is_told_only_what_is_new_is_that_of_all_keys(
    drawing: tuple[int, list[int], int],
) -> None:
    batches = drawn(*drawing)
    every = key_vector([pa.array(np.concatenate(batches))], ["bigint"])
    assert unpack(reported(batches)).tolist() == distinct_sketch(every, SIZE).tolist()
    assert reported(batches) == reported(batches[::-1])


@given(st.integers(0, SIZE - 1), st.integers(0, 2**32))
@QUICK
def test_few_distinct_keys_are_counted_exactly(values: int, seed: int) -> None:
    column = np.random.default_rng(seed).permutation(np.repeat(np.arange(values), 7))
    assert estimate_distinct(unpack(reported([column[:100], column[100:]]))) == values


def test_many_distinct_keys_are_estimated_within_the_stated_error() -> None:
    errors = []
    for seed in range(20):
        values = np.random.default_rng(seed).permutation(100_000) + (seed << 40)
        errors.append(estimate_distinct(unpack(reported(np.array_split(values, 5)))) / 1e5 - 1)
    assert abs(np.mean(errors)) < 0.04
    assert np.std(errors) < 0.1


def test_null_keys_are_no_values() -> None:
    some = pa.array([None, 4, None, 4, 5])
    keys = key_vector([some], ["bigint"])
    assert len(new_hashes(keys, KeyBound())) == 2
    known = pack(distinct_sketch(np.arange(10, 10 + SIZE, dtype=np.uint64)))
    assert len(new_hashes(KeyVector(np.zeros(9, np.uint64), np.zeros(9, bool), True),
                          key_bound(known))) == 0  # fmt: skip


def test_what_can_not_enter_a_full_sketch_is_not_looked_at() -> None:
    wide = pack(np.arange(1, SIZE + 1, dtype=np.uint64))
    assert key_bound(wide) == KeyBound(SIZE, "")
    dense = pack(np.arange(SPARSE, SPARSE + SIZE, dtype=np.uint64))
    assert key_bound(dense) == KeyBound(SPARSE + SIZE - 1, dense)
    assert key_bound("") == KeyBound(None, "")


# --- samples -----------------------------------------------------------------------------------


def table(first: int, count: int) -> pa.RecordBatch:
    ids = np.arange(first, first + count)
    return pa.RecordBatch.from_pydict({"id": ids, "text": [f"t{i}" for i in ids]})


def sampled(cuts: Sequence[int], tasks: int, total: int) -> StreamSample:
    """The sample of ``total`` tuples that arrive in batches cut at ``cuts``, over ``tasks``."""
    samples = Samples()
    edges = sorted({0, *(min(c, total) for c in cuts), total})
    for begin, end in itertools.pairwise(edges):
        bounds, reports = Bounds(ranks=samples.bounds()), []
        for task in range(tasks):
            low = begin + (end - begin) * task // tasks
            high = begin + (end - begin) * (task + 1) // tasks
            collector = Collector(bounds)
            middle = (low + high) // 2
            for a, b in ((low, middle), (middle, high)):
                collector.block(Block("s", table(a, b - a)), a, NO_LAYOUT)
            reports.append(TaskMeasures(samples=collector.sampled()))
        samples.add(reports)
    return samples.changed()["s"]


@QUICK
@given(st.lists(st.integers(1, 3_000), max_size=5), st.integers(1, 3), st.integers(1, 3_000))
def test_a_sample_is_the_tuples_of_least_rank_however_they_came(
    cuts: list[int], tasks: int, total: int
) -> None:
    found = sampled(cuts, tasks, total)
    wanted = np.argsort(ranks_of(0, total))[:SIZE].tolist()
    assert found.columns["id"] == ("bigint", wanted)
    assert found.columns["text"] == ("string", [f"t{i}" for i in wanted])
    assert (found.seen, found.size) == (total, len(wanted))


def test_a_sample_is_uniform() -> None:
    """Each tenth of a stream has its share of the sample, within five standard deviations."""
    ids = np.concatenate(
        [np.argsort(ranks_of(first, 20_000))[:SIZE] for first in range(0, 2_000_000, 20_000)]
    )
    tenths = np.bincount(ids // 2_000, minlength=10)
    expected = len(ids) / 10
    assert np.abs(tenths - expected).max() < 5 * np.sqrt(expected)


def report(rows: pa.RecordBatch, seen: int) -> TaskMeasures:
    return TaskMeasures(samples={"s": SampledRows(seen, rows)})


def test_a_stream_with_other_columns_is_sampled_anew() -> None:
    samples = Samples()
    samples.add([report(pa.RecordBatch.from_pydict({RANK: np.array([2], np.uint64), "a": [5]}), 3)])
    other = pa.RecordBatch.from_pydict({RANK: np.array([1], np.uint64), "else": [7]})
    samples.add([report(other, 1)])
    assert samples.changed() == {}
    samples.add([report(other, 1)])
    assert samples.changed() == {"s": StreamSample(1, 1, {"else": ("bigint", [7])})}


def test_a_sample_is_published_again_when_enough_of_it_has_changed() -> None:
    samples = Samples()
    ranks = np.arange(SIZE, dtype=np.uint64) + np.uint64(1_000)
    samples.add([report(pa.RecordBatch.from_pydict({RANK: ranks, "a": np.arange(SIZE)}), 9_000)])
    assert samples.changed()["s"].seen == 9_000
    for few in (1, SIZE // 20):
        fresh = np.arange(few, dtype=np.uint64) + np.uint64(few)
        samples.add([report(pa.RecordBatch.from_pydict({RANK: fresh, "a": np.arange(few)}), 50)])
        assert samples.changed() == {}
    many = np.arange(SIZE // 5, dtype=np.uint64) + np.uint64(500)
    samples.add([report(pa.RecordBatch.from_pydict({RANK: many, "a": np.arange(SIZE // 5)}), 50)])
    assert samples.changed()["s"].seen == 9_150


def test_sampled_values_are_published_as_literals_have_them() -> None:
    row = pa.RecordBatch.from_arrays(
        [
            pa.array([1, 2], pa.uint64()),
            pa.array([b"\x01\xff", None]),
            pa.array(["x" * 200, None]).slice(0),
            pa.array([1.5, float("nan")]),
            pa.array(["2.50", None]).cast(pa.decimal128(5, 2)),
            pa.array([86_400_000_000, None], pa.timestamp("us", tz="UTC")),
            pa.array([1_500, None], pa.timestamp("ns")),
            pa.array([3, None], pa.date32()),
            pa.array([True, None]),
            pa.array([b"ab", None], pa.binary(2)),
            pa.array([2**64 - 1, None], pa.uint64()),
            pa.array([[1], None]),
        ],
        names=[RANK, "b", "t", "f", "d", "u", "n", "day", "flag", "two", "large", "list"],
    )
    samples = Samples()
    samples.add([report(row, 9)])
    published = StreamSample.loads(samples.changed()["s"].dumps())
    assert (published.seen, published.size) == (9, 2)
    assert published.columns == {
        "b": ("binary", ["01ff", None]),
        "t": ("string", ["x" * 200, None]),
        "f": ("double", ["1.5", "nan"]),
        "d": ("decimal(5,2)", ["2.50", None]),
        "u": ("timestamp", [86_400_000_000, None]),
        "n": ("timestamp_ntz", [1, None]),
        "day": ("date", [3, None]),
        "flag": ("boolean", [True, None]),
        "two": ("binary", ["6162", None]),
        "large": ("decimal(20,0)", [2**64 - 1, None]),
    }


# --- latest rows -------------------------------------------------------------------------------


@QUICK
@given(st.lists(st.integers(1, 3_000), max_size=5), st.integers(1, 3), st.integers(1, 3_000))
def test_latest_rows_are_the_last_of_a_batch_however_they_came(
    cuts: list[int], tasks: int, total: int
) -> None:
    latest = LatestTuples()
    edges = sorted({0, *(min(c, total) for c in cuts), total})
    for begin, end in itertools.pairwise(edges):
        reports = []
        for task in range(tasks):
            low = begin + (end - begin) * task // tasks
            high = begin + (end - begin) * (task + 1) // tasks
            collector = Collector(Bounds())
            collector.block(Block("s", table(low, high - low)), low, NO_LAYOUT)
            reports.append(TaskMeasures(latest=collector.latest()))
        latest.add(reports)
    found, gone = latest.changed({"s"})
    rows = pa.ipc.open_stream(base64.b64decode(found["s"].content)).read_all()
    wanted = list(range(total - 1, max(total - SIZE, 0) - 1, -1))
    assert (rows["id"].to_pylist(), found["s"].size) == (wanted, len(wanted))
    assert rows["text"].to_pylist() == [f"t{i}" for i in wanted]
    assert not gone
    assert latest.changed({"s"}) == ({}, []), "nothing has changed"


def test_latest_rows_have_the_columns_that_the_stream_has_now() -> None:
    latest = LatestTuples()
    for name in ("a", "b"):
        rows = pa.RecordBatch.from_pydict({RANK: np.array([2], np.uint64), name: [5]})
        latest.add([TaskMeasures(latest={"s": rows, "other": rows})])
    found, gone = latest.changed({"s"})
    rows = pa.ipc.open_stream(base64.b64decode(found["s"].content)).read_all()
    assert (list(found), rows.to_pydict(), gone) == (["s"], {"b": [5]}, ["other"])


# --- delays ------------------------------------------------------------------------------------


@QUICK
@given(st.lists(st.integers(1, 2**50), max_size=300), st.integers(0, 300))
def test_delays_are_classed_as_their_definition_says(delays: list[int], cut: int) -> None:
    behind = np.array(delays, np.int64)
    found = add_counts(delay_classes(behind[:cut]), delay_classes(behind[cut:]))
    wanted = np.bincount([d.bit_length() for d in delays], minlength=len(found))
    assert list(found) == wanted.tolist()


def test_a_quantile_of_delays_is_an_upper_bound_within_a_factor_of_two() -> None:
    delays = np.sort(np.random.default_rng(3).exponential(5e6, 5_000).astype(np.int64) + 1)
    stream = StreamStatistics(5_000, delays=delay_classes(delays))
    for share in (0.5, 0.9, 0.99, 1.0):
        exact = int(delays[int(np.ceil(share * 5_000)) - 1])
        found = stream.delay(share)
        assert found is not None
        assert exact <= found < 2 * exact
    assert StreamStatistics(3).delay(0.5) is None


# --- documents ---------------------------------------------------------------------------------


def test_a_snapshot_survives_its_document_and_old_ones_are_read() -> None:
    snapshot = Snapshot(
        3,
        2,
        8,
        edges={"R>S": EdgeStatistics(10, 7, 0.25, 50, 7)},
        stores={"R/2": StoreStatistics(5, 400, 2, {"a": 4.0})},
        measured={"R": StreamStatistics(20, 1, 2, 4.0, 8.0, (15, 0, 3))},
    )
    document = json.loads(codec.dumps(snapshot))
    assert codec.from_json(document, Snapshot) == snapshot
    del document["measured"]
    del document["stores"]["R/2"]["keys"]
    old = codec.from_json(document, Snapshot)
    assert old.measured == {}
    assert old.stores["R/2"] == StoreStatistics(5, 400, 2)
    assert old.edges["R>S"].nanoseconds == 250_000_000
    stream = snapshot.measured["R"]
    assert (stream.arrival_rate, stream.event_rate) == (5.0, 2.25)


def test_bounds_are_small_and_plain() -> None:
    """Bounds are sent to every task."""
    dense = pack(np.arange(SPARSE, SPARSE + SIZE, dtype=np.uint64))
    document = asdict(Bounds(keys={"R": {"a": key_bound(dense)}}, ranks={"R": 5}, newest={"R": 1}))
    assert len(json.dumps(document)) < 4_000


def test_nothing_is_measured_where_that_is_switched_off() -> None:
    off = Collector(Bounds(), enabled=False)
    off.keys("R", "a", key_vector([pa.array([1])], ["bigint"]))
    measured = off.block(Block("s", table(0, 9)), 0, NO_LAYOUT)
    assert (off.sketches, measured, off.sampled()) == ({}, StreamMeter(), {})
