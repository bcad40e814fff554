"""Compare sampled Protobuf messages with the runtime's compiled decoder: columns, values and
faults.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from anabranch_service.streaming.samples.protobuf import ProtobufMessages
from tests.runtime.sources.protobuf.test_columns import (
    ProtoGenerator,
    decoded,
    mutated,
    plain,
    same,
)
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.registry import framed, serving


@pytest.mark.parametrize("seed", mostly_slow(range(200), 30))
def test_random_schemas_as_the_runtime_reads_them(seed: int) -> None:
    made = ProtoGenerator(2000 + seed)
    messages = [mutated(made.encoded(), made.chance) for _ in range(60)]
    options = made.options
    reader = ProtobufMessages(options)
    found = [reader.row(message) for message in messages]
    (columns,) = reader.declared
    assert {n: str(kind) for n, kind in columns.items()} == {
        n: kind.replace("`", "") for n, kind in made.columns.items()
    }
    good, bad = decoded([*messages], {n: str(kind) for n, kind in columns.items()}, **options)
    assert {n for n, row in enumerate(found) if isinstance(row, str)} == set(bad)
    for number, row in good.items():
        values: Any = found[number]
        arrays = {
            n: pa.array([None if value is None else value], None if value is None else value.type)
            for n, value in values.items()
        }
        mine = plain(pa.RecordBatch.from_pydict(arrays)).to_pylist(maps_as_pydicts="strict")[0]
        assert same(mine, row)


def test_columns_of_types() -> None:
    text = """
        syntax = "proto3";
        import "google/protobuf/struct.proto";
        import "google/protobuf/duration.proto";
        import "google/protobuf/any.proto";
        message Node { int32 v = 1; Node next = 2; repeated Node more = 3; }
        message Loop { Loop again = 1; }
        message Empty {}
        message Row {
            uint64 u = 1; Node node = 2; Loop loop = 3; Empty none = 4;
            google.protobuf.Struct free = 5; google.protobuf.Any any = 6;
            google.protobuf.Duration d = 7; repeated google.protobuf.Duration ds = 8;
            map<bool, Node> m = 9;
        }"""
    reader = ProtobufMessages({"schema": text, "message": "Row"})
    row = reader.row(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x3a\x02\x08\x05")
    assert reader.declared == [{
        "u": "bigint", "node": "struct<v:int>", "loop": None, "none": None,
        "free": "struct<fields:map<string,struct<null_value:string,number_value:double,"
        "string_value:string,bool_value:boolean>>>",
        "any": "struct<type_url:string,value:binary>", "d": "interval day to second",
        "ds": "array<struct<seconds:bigint,nanos:int>>", "m": "map<boolean,struct<v:int>>",
    }]  # fmt: skip
    assert not isinstance(row, str)
    assert (row["u"].as_py(), row["d"].as_py()) == ((1 << 63) - 1, 5_000_000)
    assert "no such message" in str(reader.row(b"\x08" + b"\xff" * 9 + b"\1"))


def test_schemas_of_a_registry() -> None:
    text = 'syntax = "proto3"; message A { int32 a = 1; message B { int32 b = 1; } } message C {}'
    with serving({7: {"type": "int"}}) as options:
        server = ProtobufMessages(options)
        assert "no Protobuf schema of id 7" in str(server.row(framed(7, b"\0\x08\x03")))
    with serving({}, protobuf={7: text}) as options:
        reader = ProtobufMessages(options)
        rows: list[Any] = [
            reader.row(framed(7, head + b"\x08\x03")) for head in (b"\0", b"\2\0", b"\4\0\0")
        ]
        assert [{n: v.as_py() for n, v in row.items()} for row in rows] == [
            {"a": 3}, {"a": 3}, {"b": 3}
        ]  # fmt: skip
        assert "another message" in str(reader.row(framed(7, b"\2\6")))
        assert "no id" in str(reader.row(framed(7, b"\1")))
        assert "no id" in str(reader.row(b"{}"))
        only = ProtobufMessages({**options, "message": "C"})
        assert "another message than C" in str(only.row(framed(7, b"\0")))
        assert only.row(framed(7, b"\2\2")) == {}
