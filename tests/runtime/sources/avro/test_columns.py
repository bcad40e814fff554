"""Compare Avro messages decoded to columns with ``fastavro``'s encoding, and with a reader of
single values.
"""

from __future__ import annotations

import io
import json
import math
import random
import string
import struct
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from anabranch_contract.connectors.schemas.avro import parse_schema
from anabranch_runtime.sources.avro.decode import from_avro
from tests.support.oracles.avro import Malformed, read_message
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.registry import framed, serving

#: (Avro type, column's type, makes an Avro value, the value of the column).
Case = tuple[Any, str, Callable[[], Any], Callable[[Any], Any]]
BESIDE = "#n"


def same(value: Any) -> Any:
    return value


def decoded(
    messages: list[bytes | None], columns: dict[str, str], **options: str
) -> tuple[dict[int, dict[str, Any]], dict[int, bytes | None]]:
    """Return the decoded rows, and the raw invalid messages by number."""
    beside = pa.record_batch({BESIDE: pa.array(range(len(messages)))})
    good, bad = dict[int, dict[str, Any]](), dict[int, bytes | None]()
    for rows, invalid in from_avro(messages, list(columns.items()), beside, options):
        rows.validate(full=True)
        numbers = rows.column(BESIDE).to_pylist()
        assert numbers == sorted(numbers)
        for row in rows.to_pylist():
            good[row.pop(BESIDE)] = row
        if invalid is not None:
            invalid.validate(full=True)
            for row in invalid.to_pylist():
                bad[row[BESIDE]] = row["#arrived"]
    assert set(good) | set(bad) == set(range(len(messages)))
    assert not set(good) & set(bad)
    return good, bad


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def record(**fields: Any) -> dict[str, Any]:
    members = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "r", "namespace": "a.b", "fields": members}


class Generator:
    """Random Avro types with values."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.names = 0

    def name(self) -> str:
        self.names += 1
        return f"t{self.names}"

    def text(self) -> str:
        return "".join(self.chance.choices(string.printable + "äß€😀", k=self.chance.randrange(9)))

    def long(self, bits: int = 63) -> int:
        return self.chance.randrange(-(1 << bits), 1 << bits) >> self.chance.randrange(bits)

    def moment(self, unit: int) -> datetime:
        micros = self.chance.randrange(-(10**15), 4 * 10**15) // unit * unit
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)

    def leaf(self) -> Case:
        one = self.chance
        digits, scale = one.randrange(1, 39), one.randrange(0, 20)
        scale = min(scale, digits)
        symbols = ["A", "BB", "C_3"]

        def number() -> Decimal:
            value = one.randrange(-(10**digits) + 1, 10**digits) // 10 ** one.randrange(digits)
            return Decimal(value).scaleb(-scale)

        decimal = {"logicalType": "decimal", "precision": digits, "scale": scale}
        size = math.ceil((digits * math.log2(10) + 1) / 8) + one.randrange(3)
        kind = f"decimal({digits},{scale})"
        when = {"type": "long", "logicalType": "timestamp-micros"}
        cases: list[Case] = [
            ("boolean", "boolean", lambda: one.random() < 0.5, same),
            ("int", one.choice(["int", "bigint"]), lambda: self.long(31), same),
            ("long", "bigint", self.long, same),
            ("int", "decimal(10,0)", lambda: self.long(31), Decimal),
            ("int", "double", lambda: self.long(31), float),
            ("float", one.choice(["float", "double"]),
             lambda: float(np.float32(one.gauss(0, 1e9))), same),
            ("double", "double", lambda: one.gauss(0, 1), same),
            ("string", "string", self.text, same),
            ("string", "binary", self.text, str.encode),
            ("bytes", "binary", lambda: one.randbytes(one.randrange(40)), same),
            ("bytes", "string", lambda: self.text().encode(), bytes.decode),
            ({"type": "fixed", "name": self.name(), "size": 5}, "binary",
             lambda: one.randbytes(5), same),
            ({"type": "enum", "name": self.name(), "symbols": symbols}, "string",
             lambda: one.choice(symbols), same),
            ({"type": "int", "logicalType": "date"}, "date",
             lambda: date(1970, 1, 1) + timedelta(days=one.randrange(-90_000, 90_000)), same),
            (when, "timestamp", lambda: self.moment(1), same),
            ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp",
             lambda: self.moment(1000), same),
            ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp_ntz",
             lambda: self.moment(1).replace(tzinfo=None), same),
            ({"type": "bytes", **decimal}, kind, number, same),
            ({"type": "fixed", "name": self.name(), "size": size, **decimal}, kind, number, same),
            ({"type": "string", "logicalType": "uuid"}, "string",
             lambda: uuid.UUID(bytes=one.randbytes(16)), str),
        ]  # fmt: skip
        return one.choice(cases)

    def case(self, depth: int = 0) -> Case:
        one = self.chance
        if depth > 2 or one.random() < 0.6:
            return self.leaf()
        kind, column, make, value = self.case(depth + 1)
        turn = one.randrange(4)
        if turn == 0:
            many = lambda: [make() for _ in range(one.randrange(4))]  # noqa: E731
            return (
                {"type": "array", "items": kind},
                f"array<{column}>",
                many,
                lambda v: [*map(value, v)],
            )
        if turn == 1:
            pairs = lambda: {f"k{i}": make() for i in range(one.randrange(4))}  # noqa: E731
            return (
                {"type": "map", "values": kind}, f"map<string,{column}>", pairs,
                lambda v: [(k, value(x)) for k, x in v.items()],
            )  # fmt: skip
        if turn == 2:
            members = {f"f{i}": self.case(depth + 1) for i in range(one.randrange(1, 4))}
            # A field without column, and a column without field.
            members["x"] = (kind, column, make, value)
            shown = [name for name in members if name != "x"]
            fields = [{"name": name, "type": member[0]} for name, member in members.items()]
            one.shuffle(fields)
            return (
                {"type": "record", "name": self.name(), "fields": fields},
                f"struct<{','.join(f'{n}:{members[n][1]}' for n in shown)},absent:int>",
                lambda: {name: member[2]() for name, member in members.items()},
                lambda v: {**{n: members[n][3](v[n]) for n in shown}, "absent": None},
            )
        null = lambda: None if one.random() < 0.3 else make()  # noqa: E731
        union = ["null", kind] if one.random() < 0.5 else [kind, "null"]
        if isinstance(kind, list):
            return kind, column, make, value
        return union, column, null, lambda v: None if v is None else value(v)


@pytest.mark.parametrize("seed", mostly_slow(range(60), 15))
def test_random_schemas(seed: int) -> None:
    made = Generator(seed)
    cases = {f"c{i}": made.case() for i in range(made.chance.randrange(1, 7))}
    schema = record(**{name: case[0] for name, case in cases.items()})
    shown = made.chance.sample(sorted(cases), made.chance.randrange(1, len(cases) + 1))
    columns = {name: cases[name][1] for name in shown}
    values = [{name: case[2]() for name, case in cases.items()} for _ in range(200)]
    good, bad = decoded(
        [encoded(schema, value) for value in values], columns, schema=json.dumps(schema)
    )
    assert not bad
    wanted = [{name: cases[name][3](value[name]) for name in shown} for value in values]
    assert [good[i] for i in range(len(values))] == wanted


@pytest.mark.parametrize("seed", mostly_slow(range(40), 10))
def test_malformed_messages_are_found_one_by_one(seed: int) -> None:
    made = Generator(1000 + seed)
    chance = made.chance
    cases = {f"c{i}": made.case() for i in range(chance.randrange(1, 6))}
    schema = record(**{name: case[0] for name, case in cases.items()})
    columns = {name: case[1] for name, case in cases.items()}
    messages = list[bytes | None]()
    for _ in range(300):
        message = bytearray(encoded(schema, {name: case[2]() for name, case in cases.items()}))
        turn = chance.randrange(5)
        if turn == 0:
            del message[chance.randrange(len(message) + 1) :]
        elif turn == 1:
            message += chance.randbytes(chance.randrange(3))
        elif turn == 2:
            for _ in range(chance.randrange(1, 4)):
                if message:
                    message[chance.randrange(len(message))] = chance.randrange(256)
        elif turn == 3 and chance.random() < 0.3:
            message = bytearray(chance.randbytes(chance.randrange(60)))
        messages.append(bytes(message))
    parsed = parse_schema(json.dumps(schema))
    good, bad = decoded(messages, columns, schema=json.dumps(schema))
    alone = set[int]()
    for number, given in enumerate(messages):
        try:
            assert given is not None
            read_message(parsed, given)
        except Malformed:
            alone.add(number)
    # A readable message may have a value that does not fit, such as a time after 9999.
    assert alone <= set(bad)
    assert all(bad[number] == messages[number] for number in bad)
    for number in sorted(set(bad) - alone)[:20]:
        assert not decoded([messages[number]], columns, schema=json.dumps(schema))[0]
    for number in sorted(good)[:50]:
        assert decoded([messages[number]], columns, schema=json.dumps(schema))[0][0] == good[number]


def test_fields_come_go_and_widen() -> None:
    old = record(id="int", gone="string", v="int", s="bytes")
    new = record(id="long", v=["null", "double"], s="string", more="int")
    reader = {
        "type": "record", "name": "r",
        "fields": [
            {"name": "id", "type": "long", "aliases": ["number"]},
            {"name": "v", "type": "double"},
            {"name": "more", "type": ["int", "null"], "default": 7},
            {"name": "tags", "type": {"type": "map", "values": "long"}, "default": {"a": 1}},
            {"name": "list", "type": {"type": "array", "items": "string"}, "default": ["x", "y"]},
            {"name": "at", "default": 1000,
             "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "d", "default": "\u0001\u0000",
             "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
            {"name": "bad", "type": "int", "default": "text"},
        ],
    }  # fmt: skip
    columns = {
        "id": "bigint", "v": "double", "s": "string", "more": "int", "tags": "map<string,bigint>",
        "list": "array<string>", "at": "timestamp", "d": "decimal(8,2)", "bad": "int",
        "unknown": "string",
    }  # fmt: skip
    at, d = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), Decimal("2.56")
    rest = {"tags": [("a", 1)], "list": ["x", "y"], "at": at, "d": d, "bad": None, "unknown": None}
    with serving({1: old, 2: new, 3: record(number="long")}) as options:
        messages: list[bytes | None] = [
            framed(1, encoded(old, {"id": 1, "gone": "g", "v": 3, "s": b"a"})),
            framed(2, encoded(new, {"id": 2, "v": None, "s": "b", "more": 5})),
            framed(1, encoded(old, {"id": 3, "gone": "g", "v": 4, "s": b"\xff"})),
            framed(3, encoded(record(number="long"), {"number": 4})),
            b"\x00\x00\x00\x00\x09x", b"\x01\x00\x00\x00\x01", b"", b"\x00\x00",
            framed(2, encoded(new, {"id": 9, "v": 0.5, "s": "c", "more": 6})),
            None,
        ]  # fmt: skip
        good, bad = decoded(messages, columns, schema=json.dumps(reader), **options)
    assert good == {
        0: {"id": 1, "v": 3.0, "s": "a", "more": 7, **rest},
        1: {"id": 2, "v": None, "s": "b", "more": 5, **rest},
        3: {"id": 4, "v": None, "s": None, "more": 7, **rest},
        8: {"id": 9, "v": 0.5, "s": "c", "more": 6, **rest},
        9: dict.fromkeys(columns),
    }
    assert sorted(bad) == [2, 4, 5, 6, 7]


def test_values_that_do_not_fit_make_their_message_invalid() -> None:
    schema = record(
        a="long", u=["null", "int", "string"], t={"type": "long", "logicalType": "timestamp-millis"}
    )
    rows = [(1, None, 0), (1 << 40, 1, 0), (2, "text", 0), (3, 4, 2**62), (4, 5, 0)]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    messages: list[bytes | None] = [encoded(schema, {"a": a, "u": u, "t": t}) for a, u, t in rows]
    columns = {"a": "int", "u": "bigint", "t": "timestamp"}
    good, bad = decoded(messages, columns, schema=json.dumps(schema))
    assert good == {0: {"a": 1, "u": None, "t": epoch}, 4: {"a": 4, "u": 5, "t": epoch}}
    assert sorted(bad) == [1, 2, 3]
    # A string is no number.
    assert not decoded(messages, {"a": "string"}, schema=json.dumps(schema))[0]


def test_messages_of_narrower_types_fit_columns_that_were_widened() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    old = record(n="int", f="float", d=decimal, t={"type": "int", "logicalType": "date"})
    new = record(n="long", f="double", d={**decimal, "precision": 12}, t="null")
    columns = {"n": "bigint", "f": "double", "d": "decimal(12,2)", "t": "timestamp_ntz"}
    given = {"n": 1, "f": 0.1, "d": Decimal("1.25"), "t": date(2024, 1, 2)}
    wide = {"n": 1 << 40, "f": 0.1, "d": Decimal("1234567890.12"), "t": None}
    with serving({1: old, 2: new}) as options:
        messages: list[bytes | None] = [
            framed(1, encoded(old, given)),
            framed(2, encoded(new, wide)),
        ]
        good, bad = decoded(messages, columns, **options)
    single = struct.unpack("f", struct.pack("f", 0.1))[0]
    at = datetime(2024, 1, 2)  # noqa: DTZ001 - without a zone
    assert good == {0: {**given, "f": single, "t": at}, 1: wide}
    assert not bad


def test_recursive_types_are_skipped() -> None:
    node = {
        "type": "record", "name": "node",
        "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "node"]}],
    }  # fmt: skip
    schema = record(list=node, a="int")
    value: Any = None
    for v in range(40):
        value = {"v": v, "next": value}
    messages: list[bytes | None] = [encoded(schema, {"list": value, "a": 7})]
    assert decoded(messages, {"a": "int"}, schema=json.dumps(schema))[0] == {0: {"a": 7}}
    found, _ = decoded(
        messages, {"list": "struct<v:int,next:struct<v:int>>"}, schema=json.dumps(schema)
    )
    assert found == {0: {"list": {"v": 39, "next": {"v": 38}}}}


def test_endless_lists_end() -> None:
    schema = json.dumps(record(a={"type": "array", "items": "null"}))
    many = bytes([0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1])
    assert sorted(
        decoded([many, many + b"\0", b"\x04\x00"], {"a": "array<int>"}, schema=schema)[0]
    ) == [2]
