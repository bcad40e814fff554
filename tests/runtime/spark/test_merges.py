"""Tests that segment merges are done by the process that is asked, or by another if it
has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from anabranch_contract.plans.ruleset import StoreId
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_runtime.driver.cluster import Cluster
from anabranch_runtime.epochs.layout import Layout, StoreLayout
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.errors import StateError
from anabranch_runtime.exchange.post_office import PostOffice
from anabranch_runtime.placement.assignment import place
from anabranch_runtime.spark import merges
from anabranch_runtime.state.placement import HostReport
from anabranch_runtime.storage.durable import attach
from anabranch_runtime.storage.segment import (
    OFFSET_BITS,
    SIGMA,
    Merge,
    PackWriter,
    Segment,
)
from anabranch_runtime.storage.segment_cache import close_all, open_segment
from anabranch_runtime.task.compact import Compaction, MergedSegment, compact, merged_pack
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.stores import insert
from tests.support.cases.random_plans import random_plan

A = Stream(StreamName("A"), (("k", parse_type("bigint")),))
B = Stream(StreamName("B"), (("k", parse_type("bigint")),))
TOKEN = "secret"


@pytest.fixture
def layout() -> Layout:
    parsed = parse_sql("q", "SELECT A.k FROM A JOIN B ON A.k = B.k", {"A": A, "B": B}, None)
    plan = random_plan([parsed], Random(0), mirs=0)
    rules = compile_ruleset(plan, [parsed], [A, B], epoch=3, parallelism=1, sinks={})
    stores = {
        str(s.id): StoreLayout(s.id, s.members, s.partition, s.partitions, is_base=True)
        for s in rules.stores
    }
    return Layout(rules, stores)


@pytest.fixture
def office(layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostOffice]:
    """Return the post office of a process whose host's cache is ``cache``, after one batch."""
    monkeypatch.setattr(merges, "task_ruleset", lambda *_: layout.ruleset)
    found = PostOffice("127.0.0.1", TOKEN, tmp_path / "letters")
    context = BatchContext(
        batch=4,
        epoch=3,
        ruleset=layout.ruleset.id,
        attempt="a",
        root=str(tmp_path / "cache"),
        staging="",
        redis_url="",
        namespace="",
        objects=(tmp_path / "store").as_uri(),
    )
    merges.take_orders(found, context)
    yield found
    found.shutdown()
    close_all()


def written(layout: Layout, folder: Path, batches: int = 3) -> tuple[Segment, ...]:
    """Write segments of one store to the object store, one pack each."""
    root = folder / "writer"
    (folder / "store").mkdir(exist_ok=True)
    kept = attach(root, (folder / "store").as_uri())
    spec = layout.specs[StoreId(sorted(layout.specs)[0])]
    found: list[Segment] = []
    for batch in range(batches):
        rows = pa.record_batch(
            {
                "k": pa.array([batch, 7]),
                SIGMA: pa.array([batch << OFFSET_BITS, (batch << OFFSET_BITS) + 1]),
            }
        )
        name = f"segments/{batch:010d}-x-0-base.pack"
        with PackWriter(root, name) as writer:
            insert(writer, layout, spec, rows, {})
        kept.upload(name)
        found += writer.segments
    return tuple(found)


def order(layout: Layout, parts: tuple[Segment, ...], folder: Path) -> Compaction:
    """Return the merge order of the driver, whose state directory has none of the segments."""
    objects = (folder / "store").as_uri()
    return Compaction(str(folder / "driver"), merged_pack(), Merge(parts), layout, {}, objects)


def test_who_is_asked_merges_in_its_cache(
    layout: Layout, office: PostOffice, tmp_path: Path
) -> None:
    work = order(layout, written(layout, tmp_path), tmp_path)
    merges.lately()
    merged = merges.ask(office.location, TOKEN, work)
    found = merged.segment
    assert merged.seconds > 0
    assert (found.path, found.rows, found.level) == (work.pack, 6, 1)
    assert (tmp_path / "cache" / work.pack).exists()
    assert (tmp_path / "store" / work.pack).exists()
    assert not (tmp_path / "driver").exists()
    keys = open_segment(str(tmp_path / "cache"), found).column("k").to_pylist()
    assert sorted(keys) == [0, 1, 2, 7, 7, 7]
    assert (merges.lately(), merges.lately()) == (True, False)


def test_a_damaged_part_is_an_error_as_it_is_anywhere(
    layout: Layout, office: PostOffice, tmp_path: Path
) -> None:
    parts = written(layout, tmp_path)
    (tmp_path / "store" / parts[1].path).unlink()
    work = merges.by_owner(lambda _: office.location, TOKEN, compact)
    with pytest.raises(StateError) as caught:
        work(order(layout, parts, tmp_path))
    assert caught.value.code == "missing-pack"


@pytest.mark.parametrize("gone", ["nobody", "refused", "lost"])
def test_another_merges_under_another_name_where_the_owner_has_gone(
    gone: str, layout: Layout, office: PostOffice, tmp_path: Path
) -> None:
    asked: list[Compaction] = []

    def anywhere(work: Compaction) -> MergedSegment:
        asked.append(work)
        return compact(work)

    if gone == "lost":

        def lost(_: bytes) -> bytes:
            raise OSError("the worker has ended")

        office.requests[merges.REQUEST] = lost
    location = {"nobody": None, "refused": "grpc://127.0.0.1:1", "lost": office.location}[gone]
    work = order(layout, written(layout, tmp_path), tmp_path)
    found = merges.by_owner(lambda _: location, TOKEN, anywhere)(work).segment
    assert (found.rows, found.level) == (6, 1)
    assert [one.merge for one in asked] == [work.merge]
    assert found.path == asked[0].pack != work.pack


def test_two_merges_run_at_a_time_in_a_process(
    layout: Layout, office: PostOffice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most = 0, 0
    lock, pair = threading.Lock(), threading.Barrier(2)

    def counted(work: Compaction) -> MergedSegment:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        pair.wait(60)
        found = compact(work)
        with lock:
            running -= 1
        return found

    monkeypatch.setattr(merges, "compact", counted)
    parts = written(layout, tmp_path)
    orders = [order(layout, parts, tmp_path) for _ in range(6)]
    threads = [
        threading.Thread(target=merges.ask, args=(office.location, TOKEN, one)) for one in orders
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 2
    assert all((tmp_path / "store" / one.pack).exists() for one in orders)


def test_the_owner_is_the_host_that_probes_the_partition(layout: Layout, tmp_path: Path) -> None:
    cluster = Cluster(TOKEN, "cache")
    part = replace(written(layout, tmp_path, 1)[0], partition=2)
    store = replace(layout.stores[part.store], partitions=4)
    of_four = Layout(layout.ruleset, {part.store: store})
    work = replace(order(layout, (part,), tmp_path), layout=of_four)
    assert cluster.office_of(work) is None
    placement = place([4], ["a", "b", "c"])
    reports = [TaskReport(host=HostReport(h, office=f"{h}{n}")) for n, h in enumerate("abcabc")]
    cluster.met(placement, reports)
    owner = str(placement.host_of(4, 2))
    assert cluster.office_of(work) == f"{owner}{'abc'.index(owner)}"
    there = [r for r in reports if r.host.name != owner]
    cluster.met(placement, there)
    stand_in = place([4], {r.host.name for r in there}, placement).host_of(4, 2)
    assert str(cluster.office_of(work))[0] == stand_in != owner
