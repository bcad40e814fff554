"""Compare reading maps in JSON lines with Python's own JSON parser."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from anabranch_contract.queries.types import DataType, parse_type
from anabranch_runtime.sources.decode import from_json, schema_of

COLUMNS = [
    ("k", "bigint"),
    ("m", "map<string,bigint>"),
    ("n", "struct<d:map<string,date>,x:decimal(5,2)>"),
    ("l", "array<map<string,array<string>>>"),
    ("d", "map<string,map<string,decimal(5,2)>>"),
    ("s", "map<string,struct<v:double,w:map<string,boolean>>>"),
]
_DAY = date(2026, 1, 31)


def _pair(rng: Random, kind: DataType) -> tuple[Any, Any]:
    """Return a random value: as JSON, and as it should be read."""
    if rng.random() < 0.15:
        return None, None
    name = kind.kind.value
    if name == "map":
        names = rng.sample(["a", "b", "é", 'q"', "", "a b", "\n"], rng.randrange(4))
        pairs = [(one, _pair(rng, kind.element)) for one in names]
        return {one: v for one, (v, _) in pairs}, [(one, v) for one, (_, v) in pairs]
    if name == "array":
        found = [_pair(rng, kind.element) for _ in range(rng.randrange(4))]
        return [v for v, _ in found], [v for _, v in found]
    if name == "struct":
        fields = [(one, _pair(rng, of)) for one, of in kind.fields]
        given = {one: v for one, (v, _) in fields if v is not None or rng.random() < 0.5}
        return {**given, "other": {"a": 1}}, {one: v for one, (_, v) in fields}
    if name == "date":
        day = _DAY + timedelta(days=rng.randrange(100))
        return str(day), day
    if name == "decimal":
        number = rng.randrange(-999, 999)
        return number, Decimal(number)
    made: dict[str, Callable[[], Any]] = {
        "bigint": lambda: rng.randrange(-(2**63), 2**63),
        "double": rng.random,
        "boolean": lambda: rng.random() < 0.5,
        "string": lambda: rng.choice(["", "x\\", "ü"]),
    }
    value = made[name]()
    return value, value


def _read(lines: list[str], columns: list[tuple[str, str]]) -> tuple[list[Any], list[str]]:
    good, bad = list[Any](), list[str]()
    for rows, invalid in from_json("\n".join(lines).encode(), columns):
        rows.validate(full=True)
        assert rows.schema == schema_of(columns)
        good += rows.to_pylist()
        bad += [] if invalid is None else [v.decode() for v in invalid["#arrived"].to_pylist()]
    return good, sorted(bad)


@pytest.mark.parametrize("seed", range(5))
def test_maps_are_read_at_any_depth(seed: int) -> None:
    rng = Random(seed)
    kinds = [(name, parse_type(text)) for name, text in COLUMNS]
    rows = [{name: _pair(rng, kind) for name, kind in kinds} for _ in range(400)]
    lines = [json.dumps({name: v for name, (v, _) in row.items()}, ensure_ascii=rng.random() < 0.5)
             for row in rows]  # fmt: skip
    assert _read(lines, COLUMNS) == (
        [{name: v for name, (_, v) in row.items()} for row in rows],
        [],
    )


@pytest.mark.parametrize(
    "line",
    [
        '{"k": 1, "m": {"a": "x"}}',
        '{"k": 1, "m": {"a": 1.5}}',
        '{"k": 1, "m": [1]}',
        '{"k": 1, "m": 3}',
        '{"k": 1, "m": {"a": 1, "a": 2}}',
        '{"k": 1, "m": {"a": 1}, "m": {"a": 2}}',
        '{"k": 1, "m": {"a": 1}',
        '{"k": "x", "m": {"a": 1}}',
        '{"k": 1, "m": {"a": 99999999999999999999}}',
        '{"k": 1, "n": {"d": {"a": "no day"}}}',
        '{"k": 1, "d": {"a": {"b": 12345.5}}}',
        '{"k": 1, "l": {"a": []}}',
        '{"k": 1, "m": {"a": {}}} {}',
    ],
)
def test_lines_that_do_not_fit_are_rejected_alone(line: str) -> None:
    lines = [f'{{"k": {n}, "m": {{"a": {n}}}}}' for n in range(600)]
    good, bad = _read([*lines[:300], line, *lines[300:]], COLUMNS)
    assert sorted(row["m"] for row in good) == [[("a", n)] for n in range(600)]
    assert bad == [line]


def test_a_stream_may_have_maps_only() -> None:
    column = [("m", "map<string,string>")]
    lines = ['{"m": {"a": "x"}}', "{}", '{"m": null}', '{"a":[{}', "{}]},{}"]
    good, bad = _read(lines, column)
    assert good == [{"m": [("a", "x")]}, {"m": None}, {"m": None}]
    assert bad == sorted(lines[3:])


def test_variants_hold_any_value() -> None:
    columns = [("k", "bigint"), ("v", "variant")]
    values = ['{"b": 1.50, "a": [1e2]}', '"x"', "7", "null", "[]", "true", '""']
    lines = [f'{{"k": {n}, "v": {value}}}' for n, value in enumerate(values)]
    wrong = ['{"k": 7, "v": {"a": 1, "a": 2}}', '{"k": 8, "v": 1e400}']
    good, bad = _read([*lines[:3], *wrong, *lines[3:], '{"k": 9}'], columns)
    expected = ['{"a":[100.0],"b":1.5}', '"x"', "7", "null", "[]", "true", '""', None]
    assert sorted((row["k"], row["v"]) for row in good[:7]) == list(enumerate(expected[:7]))
    assert good[7] == {"k": 9, "v": None}
    assert bad == wrong
