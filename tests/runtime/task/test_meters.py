"""Tests of values of all key types in tasks' reports (meters)."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from anabranch_runtime.index.keys import key_vector
from anabranch_runtime.state.measures import Bounds, KnownValues, pack
from anabranch_runtime.state.values import WORTH
from anabranch_runtime.task.meters import NAME, Collector, value_counts

NONE = KnownValues("", WORTH)
NOON = dt.datetime(2024, 5, 1, 12, 0, 0, 5, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("column", "kind", "texts"),
    [
        (pa.array([7, 7, 9], pa.int32()), "bigint", ("7", "9")),
        (pa.array(["a", None, "a", "b"]), "string", ("a", "b")),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "string", ("a", "b")),
        (pa.array([b"\x01\xff"] * 2), "binary", ("01ff",)),
        (pa.array([float("nan"), -0.0, float("nan"), 0.0, float("nan")]), "double", ("nan", "0")),
        (pa.array([True, True, False]), "boolean", ("true", "false")),
        (pa.array([dt.date(2024, 5, 1)]), "date", ("2024-05-01",)),
        (
            pa.array([NOON], pa.timestamp("us", tz="UTC")),
            "timestamp",
            ("2024-05-01 12:00:00.000005Z",),
        ),
        (pa.array([Decimal("1.50")]), "decimal(38,2)", ("1.50",)),
        (pa.array(["x" * 500]), "string", ("x" * (NAME - 1) + "…",)),
        (pa.array(["ä" * NAME]), "string", ("ä" * NAME,)),
    ],
)
def test_texts_of_values_of_every_type(column: pa.Array, kind: str, texts: tuple[str, ...]) -> None:
    keys = key_vector([column], [kind])
    found = value_counts(keys, NONE, lambda: column)
    assert found.texts == texts
    assert found.tuples == len(column)
    known = KnownValues(pack(found.fresh), WORTH)

    def unwanted() -> pa.Array:
        raise AssertionError("no value has to be named")

    again = value_counts(keys, known, unwanted)
    assert again.counts.tolist() == found.fresh_counts.tolist()
    assert (len(again.fresh), again.texts, again.rest) == (0, (), 0)


def test_a_value_of_many_tuples_has_to_be_frequent_to_be_reported() -> None:
    column = pa.array([*range(1_000), *[5] * 5, *[6] * 2])
    found = value_counts(key_vector([column], ["bigint"]), NONE, lambda: column)
    assert (found.texts, found.fresh_counts.tolist()) == (("5",), [6])
    wanting = KnownValues("", 0.01)
    found = value_counts(key_vector([column], ["bigint"]), wanting, lambda: column)
    assert found.texts == ()
    assert found.rest >= 6


def test_an_attribute_that_is_a_key_of_two_types_is_counted_once() -> None:
    column = pa.array([1, 1])
    collector = Collector(Bounds())

    def add(kind: str, **named: Any) -> None:
        collector.frequent("R", "a", key_vector([column], [kind]), lambda: column, **named)

    add("bigint")
    first = collector.values["R"]["a"]
    add("decimal(38,2)")
    assert collector.values["R"]["a"] is first
    off = Collector(Bounds(), enabled=False)
    off.frequent("R", "a", key_vector([column], ["bigint"]), lambda: column)
    assert off.values == {}
