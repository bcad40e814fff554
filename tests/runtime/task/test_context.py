"""Tests that tasks read the segments in the manifest of their batch, and no other."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.errors import StateError
from anabranch_runtime.state import committed
from anabranch_runtime.state.manifest import manifest_path
from anabranch_runtime.storage.segment import Segment
from anabranch_runtime.task.context import BatchContext, live_segments
from tests.support.worlds.driven import driver, job, publish


@pytest.fixture
def one(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A driver that merges nothing; a task does not wait for a manifest."""
    monkeypatch.setattr(committed, "PATIENCE", 0.0)
    publish(url, 0)
    return driver(url, tmp_path, every=1000, fanout=1000)


def stored(one: Driver) -> dict[str, tuple[Segment, ...]]:
    """Return store -> segments that the driver has committed."""
    return {name: store.segments for name, store in one.state.stores.items()}


def contexts(one: Driver, batches: int) -> list[BatchContext]:
    """Run the next batches; return their tasks' contexts, after checking them."""
    seen: list[BatchContext] = []

    def run(context: BatchContext) -> list[TaskReport]:
        assert {n: s for n, s in live_segments(context).items() if s} == stored(one)
        seen.append(context)
        return job(context.batch)(context)

    for _ in range(batches):
        one.run(run)
    return seen


def test_a_description_does_not_grow_with_what_is_stored(one: Driver) -> None:
    found = contexts(one, 40)
    assert [len(segments) for segments in stored(one).values()] == [40, 40]
    few, many = (len(pickle.dumps(found[n])) for n in (5, 39))
    assert many < few + 50


def test_a_task_does_not_take_another_manifest_for_its_batchs(
    one: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts(one, 3)
    late = contexts(one, 2)[0]
    root = one.settings.state
    assert live_segments(late).keys() == stored(one).keys()
    # A killed driver might leave another manifest with the batch's number.
    path = manifest_path(root, late.batch)
    path.write_bytes(manifest_path(root, late.batch + 1).read_bytes())
    monkeypatch.setattr(committed, "_last", committed._Last())
    with pytest.raises(StateError) as caught:
        live_segments(late)
    assert caught.value.code == "missing-manifest"


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped"])
@pytest.mark.parametrize("earlier", [0, 1])
def test_a_manifest_that_is_not_whole_is_not_read(
    one: Driver, damage: str, earlier: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = contexts(one, 3)[-1]
    path = manifest_path(one.settings.state, context.batch - earlier)
    monkeypatch.setattr(committed, "_last", committed._Last())
    text = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(text[:-9] if damage == "cut" else text.replace(b"rows", b"row5"))
    with pytest.raises(StateError) as caught:
        live_segments(context)
    assert caught.value.code == "missing-manifest"


def test_what_an_epoch_forgets_is_not_read(one: Driver) -> None:
    context = contexts(one, 3)[-1]
    one_store, other = context.stores
    assert live_segments(replace(context, replaced={one_store: ()}))[one_store] == ()
    stores = {other: context.stores[other]}
    assert live_segments(replace(context, stores=stores)).keys() == {other}


def test_a_host_reads_its_own_segments_and_others_caches_see_no_change(one: Driver) -> None:
    context = contexts(one, 3)[-1]
    wanted: NDArray[np.bool_] = np.array([True])

    def own(_: int) -> NDArray[np.bool_]:
        return wanted

    found = live_segments(context, own)
    assert found == live_segments(context)
    again = live_segments(context, own)
    assert all(again[name] is segments for name, segments in found.items())
    wanted = np.array([False])
    assert set(live_segments(context, own).values()) == {()}
