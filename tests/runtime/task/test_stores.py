"""Tests of rows whose key expression fails: stored for queries that do not need it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from anabranch_contract.plans.ruleset import IndexSpec, StoreId, home_partition
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_runtime.epochs.layout import Layout, StoreLayout
from anabranch_runtime.errors import AnabranchRuntimeError, ExpressionError
from anabranch_runtime.index.keys import key_vector
from anabranch_runtime.state.dealt import Dealt
from anabranch_runtime.storage.segment import SIGMA, PackWriter
from anabranch_runtime.storage.segment_cache import open_segment
from anabranch_runtime.task.stores import insert, merge, partition_numbers
from tests.support.cases.random_plans import random_plan

A = Stream(StreamName("A"), (("k", parse_type("bigint")), ("s", parse_type("string"))))
B = Stream(StreamName("B"), (("k", parse_type("bigint")), ("n", parse_type("int"))))
SQL = "SELECT A.k FROM A JOIN B ON CAST(A.s AS INT) = B.n AND A.k = B.k"


def layout_with_partition() -> tuple[Layout, StoreId]:
    """Return a layout in which A's store has four partitions by the cast."""
    parsed = parse_sql("q", SQL, {"A": A, "B": B}, None)
    for seed in range(100):
        plan = random_plan([parsed], Random(seed))
        known = compile_ruleset(plan, [parsed], [A, B], epoch=0, parallelism=4, sinks={})
        for spec in known.stores:
            if spec.partition is not None and "cast" in spec.partition[0].attribute:
                stores = {
                    str(s.id): StoreLayout(s.id, s.members, s.partition, s.partitions, is_base=True)
                    for s in known.stores
                }
                return Layout(known, stores), spec.id
    raise AssertionError("no plan cuts by the cast")


def rows(*texts: str) -> pa.RecordBatch:
    count = len(texts)
    sigma = pa.array(range(count), pa.int64())
    return pa.record_batch({"k": pa.array([1] * count), "s": pa.array(texts), SIGMA: sigma})


def test_a_row_without_a_usable_partition_goes_where_null_goes(tmp_path: Path) -> None:
    layout, store = layout_with_partition()
    spec = layout.specs[store]
    told: list[tuple[StoreId, IndexSpec]] = []

    def failed(store: StoreId, index: IndexSpec, error: AnabranchRuntimeError) -> None:
        told.append((store, index))

    good = [str(n) for n in range(40)]
    with PackWriter(tmp_path, "good.pack") as writer:
        insert(writer, layout, spec, rows(*good), {}, failed)
    assert not told
    with PackWriter(tmp_path, "bad.pack") as bad:
        insert(bad, layout, spec, rows(*good[:20], "none", *good[20:], "neither"), {}, failed)
    assert {s for s, _ in told} == {store}
    place = {
        text: segment.partition
        for segment in writer.segments
        for text in open_segment(str(tmp_path), segment).column("s").to_pylist()
    }
    found = {
        text: segment.partition
        for segment in bad.segments
        for text in open_segment(str(tmp_path), segment).column("s").to_pylist()
    }
    assert found == {**place, "none": 0, "neither": 0}
    assert all(not s.indexes for s in bad.segments)
    assert all(len(s.indexes) == len(spec.indexes) for s in writer.segments)

    parts = [s for s in (*writer.segments, *bad.segments) if s.partition == 0]
    with PackWriter(tmp_path, "merged.pack") as merged:
        merge(merged, layout, spec, [open_segment(str(tmp_path), s) for s in parts], {}, {})
    (whole,) = merged.segments
    assert whole.rows == sum(s.rows for s in parts)
    assert not whole.indexes


def test_rows_of_a_dealt_value_go_to_its_partitions_but_those_of_the_past_go_home() -> None:
    layout, store = layout_with_partition()
    spec = layout.specs[store]
    given = rows(*["5"] * 300, "none", *map(str, range(40)))
    homes = partition_numbers(layout, spec, given, {}, past=True)
    value = int(key_vector([pa.array([5])], [spec.partition[1]]).hashes[0])  # type: ignore[index]
    home = home_partition(value, spec.partitions)
    assert set(homes[:300].tolist()) == {home}
    away = tuple(p for p in range(4) if p != home)[:2]
    entry = Dealt(value, away, (home, *away), 0, 0)
    stores = {**layout.stores, str(store): replace(layout.stores[store], dealt=(entry,))}
    dealing = Layout(layout.ruleset, stores)
    found = partition_numbers(dealing, spec, given, {})
    assert set(found[:300].tolist()) == {home, *away}
    assert found[300] == 0
    assert (found[301:306] == homes[301:306]).all()
    assert (found[307:] == homes[307:]).all()
    assert (partition_numbers(dealing, spec, given, {}, past=True) == homes).all()


def test_where_nobody_is_to_be_told_the_error_is_raised(tmp_path: Path) -> None:
    layout, store = layout_with_partition()
    with pytest.raises(ExpressionError), PackWriter(tmp_path, "x.pack") as writer:
        insert(writer, layout, layout.specs[store], rows("1", "none"), {})
