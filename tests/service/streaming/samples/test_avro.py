"""Compare sampled Avro messages with the runtime's compiled decoder: columns, values and faults."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch_service.streaming.samples.avro import AvroMessages
from tests.runtime.sources.avro.test_columns import Generator, decoded, encoded, record
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.registry import framed, serving


@pytest.mark.parametrize("seed", mostly_slow(range(80), 20))
def test_random_schemas_as_the_runtime_reads_them(seed: int) -> None:
    made = Generator(seed)
    cases = {f"c{i}": made.case() for i in range(made.chance.randrange(1, 7))}
    schema = record(**{name: case[0] for name, case in cases.items()})
    messages = list[bytes | None]()
    for _ in range(60):
        message = bytearray(encoded(schema, {name: case[2]() for name, case in cases.items()}))
        turn = made.chance.randrange(5)
        if turn == 0:
            del message[made.chance.randrange(len(message) + 1) :]
        elif turn == 1 and message:
            message[made.chance.randrange(len(message))] = made.chance.randrange(256)
        messages.append(bytes(message))
    options = {"schema": json.dumps(schema)}
    reader = AvroMessages(options)
    found = [reader.row(message) for message in messages if message is not None]
    (columns,) = reader.declared
    assert all(columns.values())
    good, bad = decoded(messages, {n: str(kind) for n, kind in columns.items()}, **options)
    assert {n for n, row in enumerate(found) if isinstance(row, str)} == set(bad)
    for number, row in good.items():
        values: Any = found[number]
        mine = {n: None if value is None else value.as_py() for n, value in values.items()}
        assert repr(mine) == repr(row)


def test_types_without_a_column_are_left_out() -> None:
    loop = {"type": "record", "name": "n", "fields": [{"name": "next", "type": ["null", "n"]}]}
    schema = record(a=["int", "string"], b=["null", "int", "long"], c=loop, d="null")
    reader = AvroMessages({"schema": json.dumps(schema)})
    value = {"a": "x", "b": 7, "c": {"next": {"next": None}}, "d": None}
    row = reader.row(encoded(schema, value))
    assert reader.declared == [{"a": None, "b": "bigint", "c": None, "d": None}]
    assert not isinstance(row, str)
    assert {name: value.as_py() for name, value in row.items()} == {"b": 7}


def test_schemas_of_a_registry() -> None:
    schema = record(a="int")
    with serving({7: schema}) as options:
        reader = AvroMessages(options)
        row = reader.row(framed(7, encoded(schema, {"a": 3})))
        assert not isinstance(row, str)
        assert row["a"].as_py() == 3
        assert "no Avro record of id 8" in str(reader.row(framed(8, b"\2")))
        assert "no id of a schema" in str(reader.row(b"{}"))
