"""Tests of the tuples that a task reads: late, invalid, filtered; each with a unique number
(sigma).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from anabranch_contract.queries.changes import ChangeFormat
from anabranch_contract.queries.joins import RelationId, StreamKind
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.sources.invalid import unreadable
from anabranch_runtime.state.measures import StreamMeter
from anabranch_runtime.storage.segment import OFFSET_BITS
from anabranch_runtime.task import arrivals
from anabranch_runtime.task.arrivals import TaskArrivals, take_in
from tests.support.cases.states import RS, ST, R, S, T, rules, stream

TIMESTAMP = pa.timestamp("us", tz="UTC")
MICRO = timedelta(microseconds=1)


def block(name: str, times: list[int | None], **columns: list[int]) -> Block:
    given = {c: pa.array(v, pa.int64()) for c, v in columns.items()}
    return Block(name, pa.record_batch({**given, "ts": pa.array(times, TIMESTAMP)}))


def read(
    *blocks: Block, batch: int = 2, task: int = 1, marks: dict[str, int] | None = None
) -> TaskArrivals:
    known = rules(0, {"q": RS, "p": ST, "f": RS + " WHERE S.b > 3"})
    return take_in(Layout(known, {}), batch, task, marks or {}, blocks, tasks=3)


def column(found: TaskArrivals, relation: str, name: str) -> list[int]:
    return found.tables[RelationId(relation)].column(name).to_pylist()  # type: ignore[no-any-return]


def test_late_and_invalid_tuples_are_counted_and_set_aside() -> None:
    found = read(block("R", [10, None, 9, 12, 11], a=[1, 2, 3, 4, 5]), marks={"R": 11, "S": 99})

    assert column(found, "R", "a") == [4, 5]
    assert column(found, "R", "#tau") == [12, 11]
    assert found.meters["R"] == StreamMeter(5, late=2, invalid=1, max_tau=12, min_tau=11)


def test_late_and_invalid_tuples_are_kept_where_the_stream_asks_for_it() -> None:
    keeps = replace(R, keep_late=True)
    layout = Layout(rules(0, {"q": RS}, streams=(keeps, S, T)), {})
    blocks = [
        block("R", [10, None, 12], a=[1, 2, 3]),
        block("R", [None, None], a=[4, 5]),
        block("S", [1, None], a=[1, 1], b=[1, 1]),
    ]
    found = take_in(layout, 7, 0, {"R": 11, "S": 11}, blocks)
    assert set(found.aside) == {"R"}
    rows = pa.Table.from_batches(found.aside["R"]).to_pylist()
    assert [(r["a"], r["_reason"], r["_batch"]) for r in rows] == [
        (2, "invalid", 7), (1, "late", 7), (4, "invalid", 7), (5, "invalid", 7),
    ]  # fmt: skip
    assert {r["_watermark"] for r in rows} == {datetime.fromtimestamp(0, UTC) + 11 * MICRO}
    none = take_in(layout, 7, 0, {}, blocks[1:2]).aside["R"][0]
    assert none.column("_watermark").null_count == 2


def test_rows_that_do_not_fit_are_counted_and_kept_with_their_text() -> None:
    keeps = replace(R, keep_late=True)
    layout = Layout(rules(0, {"q": RS}, streams=(keeps, S, T)), {})
    good = block("R", [10, 12], a=[1, 2])
    _, invalid = unreadable(good.rows.schema, pa.array([b"{", b"\xff"]))
    both = [replace(good, invalid=invalid), Block("unknown", good.rows, invalid)]
    found = take_in(layout, 7, 0, {"R": 11}, both)
    assert (found.meters["R"].input, found.meters["R"].invalid, found.meters["R"].late) == (4, 2, 1)
    assert (found.meters["unknown"].input, found.meters["unknown"].invalid) == (4, 2)
    kept = pa.Table.from_batches(found.aside["R"]).to_pylist()
    assert [(r["a"], r["_reason"], r["_raw"]) for r in kept] == [
        (None, "invalid", "{"), (None, "invalid", "base64:/w=="), (1, "late", None),
    ]  # fmt: skip


def test_a_filter_that_fails_takes_its_relation_and_no_other() -> None:
    known = rules(0, {"q": RS, "bad": RS + " WHERE 10 / S.b > 2"})
    told: list[tuple[str, str]] = []
    found = take_in(
        Layout(known, {}),
        0,
        0,
        {},
        [block("S", [1], a=[1], b=[4]), block("S", [2, 3], a=[1, 2], b=[0, 4])],
        failed=lambda relation, error: told.append((relation, error.code)),
    )
    assert set(found.tables) == {"S"}
    assert column(found, "S", "b") == [4, 0, 4]
    (filtered,) = (r.id for r in known.relations if r.filter)
    assert told == [(filtered, "divide-by-zero")]


def test_late_tuples_move_the_maximum_but_invalid_ones_do_not() -> None:
    found = read(block("R", [None, -5], a=[1, 2]), marks={"R": 0})
    assert found.meters["R"] == StreamMeter(2, late=1, invalid=1, max_tau=-5)
    assert found.tables == {}
    none = read(block("R", [None], a=[1]))
    assert none.meters["R"] == StreamMeter(1, invalid=1)


def test_nothing_is_late_without_a_watermark() -> None:
    found = read(block("R", [-(1 << 50), 0], a=[1, 2]), marks={"S": 5})
    assert column(found, "R", "a") == [1, 2]
    assert found.meters["R"].late == 0


def test_tuples_go_to_every_relation_whose_filter_they_pass() -> None:
    found = read(block("S", [1, 2, 3], a=[1, 2, 3], b=[5, 3, 4]))
    relations = sorted(found.tables)
    assert len(relations) == 2
    assert relations[0] == "S"
    assert column(found, "S", "b") == [5, 3, 4]
    assert column(found, relations[1], "b") == [5, 4]
    sigma = column(found, "S", "#sigma")
    assert column(found, relations[1], "#sigma") == [sigma[0], sigma[2]]


@pytest.mark.parametrize("batch", [0, 7, 2**31 - 1])
def test_every_tuple_has_a_sigma_of_its_own_and_all_of_their_batch(batch: int) -> None:
    blocks = [
        block("R", [1, None, 2], a=[1, 2, 3]),
        block("S", [1, 1], a=[1, 2], b=[1, 2]),
        Block("unknown", pa.record_batch({"z": [1, 2]})),
        block("R", [3], a=[4]),
        block("T", [4, 5], b=[1, 2]),
    ]
    sigmas = [
        s
        for task in (0, 1, 2)
        for found in [read(*blocks, batch=batch, task=task)]
        for relation in ("R", "S", "T")
        for s in column(found, relation, "#sigma")
    ]
    assert len(set(sigmas)) == len(sigmas) == 3 * 7
    assert {s >> OFFSET_BITS for s in sigmas} == {batch}


def test_a_stream_that_no_ruleset_names_is_counted_and_passed_over() -> None:
    found = read(Block("unknown", pa.record_batch({"z": [1, 2]})))
    assert found.meters["unknown"] == StreamMeter(2)
    assert found.tables == {}


def test_streams_without_event_time_have_no_tau() -> None:
    streams = (stream("R", "a", timed=False), S, T)
    layout = Layout(rules(0, {"q": RS}, streams=streams), {})
    given = Block("R", pa.record_batch({"a": pa.array([1], pa.int64())}))
    table = take_in(layout, 0, 0, {"R": 99}, [given]).tables[RelationId("R")]
    assert table.batch.schema.names == ["a", "#sigma"]


def test_more_tuples_than_sigmas_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # Numbers of one rank for three tasks.
    monkeypatch.setattr(arrivals, "_OF_A_RANK", 16)
    assert read(block("R", [1, 2, 3, 4, 5], a=[1, 2, 3, 4, 5])).meters["R"].input == 5
    with pytest.raises(PipelineError) as caught:
        read(block("R", [1, 2, 3], a=[1, 2, 3]), block("T", [1, 2, 3], b=[1, 2, 3]))
    assert caught.value.code == "batch-too-large"


def test_the_streams_are_those_of_the_rules() -> None:
    assert {str(s.name) for s in (R, S, T)} == {s.name for s in rules(0, {}).streams}


def changing(**form: object) -> Layout:
    """Return a layout in which R is a stream with inserts and deletes."""
    changes = ChangeFormat(**form)  # type: ignore[arg-type]
    spec = replace(R, kind=StreamKind.CHANGES, changes=changes, retain=None, keep_late=True)
    return Layout(rules(0, {"q": RS}, streams=(spec, S, T)), {})


def operations(texts: list[str | None], times: list[int | None]) -> Block:
    one = block("R", times, a=list(range(len(times))))
    rows = one.rows.append_column("op", pa.array(texts, pa.string()))
    return Block("R", rows)


def test_rows_of_changes_get_weights_by_their_operation() -> None:
    texts = ["c", "DELETE", "?", None, "+U", "-u", "c"]
    found = take_in(
        changing(), 2, 0, {"R": 11}, [operations(texts, [20, 20, 99, 20, 20, 10, None])]
    )
    assert column(found, "R", "a") == [0, 1, 4]
    assert column(found, "R", "#weight") == [1, -1, 1]
    with pytest.raises(KeyError):
        column(found, "R", "op")
    # Rows without a known operation do not advance the watermark.
    assert found.meters["R"] == StreamMeter(7, late=1, invalid=3, max_tau=20, min_tau=20)
    aside = pa.Table.from_batches(found.aside["R"]).to_pylist()
    assert [(row["op"], row["_reason"]) for row in aside] == [
        ("?", "invalid"), (None, "invalid"), ("c", "invalid"), ("-u", "late"),
    ]  # fmt: skip


def test_rows_of_a_key_are_upserts_and_tombstones() -> None:
    form = ChangeFormat("op", key=("a",), null_deletes=True)
    spec = replace(R, kind=StreamKind.UPSERT, changes=form, retain=None, event_time=None)
    spec = replace(spec, lateness=None, idle_timeout=None)
    layout = Layout(rules(0, {"q": RS}, streams=(spec, S, T)), {})
    rows = pa.record_batch(
        {
            "a": pa.array([1, 2, 3, 4, 1, None, None]),
            "ts": pa.array([1, 2, None, 4, 5, 6, 7], TIMESTAMP),
            "op": ["c", "d", "u", "-U", "u", "c", "c"],
        }
    )
    found = take_in(layout, 2, 0, {}, [Block("R", rows, position=70)])
    # Of equal keys in a block the last row counts; a NULL key equals none.
    assert column(found, "R", "a") == [2, 3, 1, None, None]
    assert column(found, "R", "#weight") == [0, 0, 1, 1, 1]
    assert column(found, "R", "#tau") == [71, 72, 73, 74, 75]
    assert found.meters["R"].invalid == 1


def test_operations_may_be_other_words() -> None:
    layout = changing(operation="op", inserts=("U", "new"), deletes=("c",))
    found = take_in(layout, 2, 0, {}, [operations(["u", "NEW", "C", "d"], [1, 2, 3, 4])])
    assert column(found, "R", "#weight") == [1, 1, -1]
    assert found.meters["R"].invalid == 1
