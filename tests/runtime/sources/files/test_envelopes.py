"""Tests of change envelopes (Debezium etc.) as JSON lines."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_runtime.sources.decode import from_json
from anabranch_runtime.sources.files.envelopes import unwrapped

COLUMNS = [("id", "bigint"), ("x", "decimal(20,2)"), ("op", "string")]
BEFORE, AFTER = {"id": 1, "x": 2}, {"id": 1, "x": 3}


def read(*lines: str, keyed: bool = False) -> tuple[list[tuple[object, ...]], list[str]]:
    """Return the rows, and the raw text of the invalid ones."""
    rows, bad = list[tuple[object, ...]](), list[str]()
    for good, aside in from_json("\n".join(lines).encode(), COLUMNS, envelope=("op", keyed)):
        rows += [tuple(row.values()) for row in good.to_pylist()]
        bad += [] if aside is None else [b.decode() for b in aside.column("#arrived").to_pylist()]
    return rows, bad


def test_every_operation() -> None:
    created = {"op": "c", "before": None, "after": BEFORE, "ts_ms": 1, "source": {"db": "x"}}
    updated = {"op": "u", "before": BEFORE, "after": AFTER}
    deleted = {"op": "d", "before": AFTER, "after": None}
    snapshot = {"schema": {"type": "struct"}, "payload": {"op": "r", "after": {"id": 2, "x": 7}}}
    rows, bad = read(*map(json.dumps, (created, updated, deleted, snapshot)))
    two, three, seven = Decimal("2.00"), Decimal("3.00"), Decimal("7.00")
    assert rows == [
        (1, two, "c"), (1, two, "d"), (1, three, "c"), (1, three, "d"), (2, seven, "c"),
    ]  # fmt: skip
    assert bad == []


@pytest.mark.parametrize(
    "line",
    [
        '{"op": "u", "before": null, "after": {"id": 1}}',
        '{"op": "d", "before": null, "after": null}',
        '{"op": "c", "before": null}',
        '{"op": "t"}',
        '{"op": 3, "after": {"id": 1}}',
        '{"op": "c", "after": [1]}',
        '{"id": 1, "x": 2}',
        '{"op": "c", "after": {"id": 1}',
        "null",
        "nonsense",
    ],
)
def test_lines_that_are_no_envelope_are_invalid_alone(line: str) -> None:
    good = json.dumps({"op": "c", "after": BEFORE})
    rows, bad = read(good, line, good)
    assert rows == [(1, Decimal("2.00"), "c")] * 2
    assert bad == [line]


def test_updates_of_a_key_need_no_old_values() -> None:
    changed = {"op": "u", "before": {"id": 1}, "after": {"id": 2, "x": 3}}
    lines = [json.dumps({"op": "u", "before": None, "after": AFTER}), json.dumps(changed)]
    rows, bad = read(*lines, keyed=True)
    assert rows == [(1, Decimal("3.00"), "c"), (1, None, "d"), (2, Decimal("3.00"), "c")]
    assert bad == []


def test_a_half_whose_values_do_not_fit_is_invalid_alone() -> None:
    rows, bad = read(json.dumps({"op": "u", "before": BEFORE, "after": {"id": "no number"}}))
    assert rows == [(1, Decimal("2.00"), "d")]
    assert bad == ['{"op":"c","id": "no number"}']


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text()))
def test_values_are_passed_on_as_they_are(values: dict[str, object]) -> None:
    for indent in (None, " "):
        text = json.dumps({"op": "u", "before": values, "after": values}, separators=(",", ":"))
        spaced = text.replace("{", "{" + (indent or ""))
        if indent and json.loads(spaced) != json.loads(text):
            continue
        lines, bad = unwrapped(spaced.encode(), "#op")
        assert bad == []
        assert [json.loads(line) for line in lines.split(b"\n")] == [
            {"#op": "d", **values}, {"#op": "c", **values},
        ]  # fmt: skip
