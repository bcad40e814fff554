"""Compare Protobuf messages decoded to columns with Google's own parser, for random schemas and
messages.
"""

from __future__ import annotations

import base64
import random
import string
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from anabranch_runtime.sources.protobuf.decode import from_protobuf
from tests.support.oracles.protobuf import compiled, is_map, message_class, read_message
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.registry import framed, serving

BESIDE = "#n"
SCALARS = {
    "double": "double", "float": "float", "int32": "int", "int64": "bigint", "uint32": "bigint",
    "uint64": "bigint", "sint32": "int", "sint64": "bigint", "fixed32": "bigint",
    "fixed64": "bigint", "sfixed32": "int", "sfixed64": "bigint", "bool": "boolean",
    "string": "string", "bytes": "binary",
}  # fmt: skip
KEYS = [name for name in SCALARS if name not in ("double", "float", "bytes")]
WRAPPERS = {
    "Double": "double", "Float": "float", "Int64": "bigint", "UInt64": "bigint", "Int32": "int",
    "UInt32": "bigint", "Bool": "boolean", "String": "string", "Bytes": "binary",
}  # fmt: skip


def decoded(
    messages: list[bytes | None], columns: dict[str, str], **options: str
) -> tuple[dict[int, dict[str, Any]], dict[int, bytes | None]]:
    """Return the decoded rows, with times as microseconds and maps as dicts, and the raw invalid
    messages by number.
    """
    beside = pa.record_batch({BESIDE: pa.array(range(len(messages)))})
    good, bad = dict[int, dict[str, Any]](), dict[int, bytes | None]()
    for rows, invalid in from_protobuf(messages, list(columns.items()), beside, options):
        rows.validate(full=True)
        numbers = rows.column(BESIDE).to_pylist()
        assert numbers == sorted(numbers)
        for row in plain(rows).to_pylist(maps_as_pydicts="strict"):
            good[row.pop(BESIDE)] = row
        if invalid is not None:
            invalid.validate(full=True)
            for number, arrived in zip(
                invalid[BESIDE].to_pylist(), invalid["#arrived"].to_pylist(), strict=True
            ):
                bad[number] = arrived
    assert set(good) | set(bad) == set(range(len(messages)))
    assert not set(good) & set(bad)
    return good, bad


def plain(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with their times as numbers."""
    kinds = pa.schema([(field.name, _plain(field.type)) for field in rows.schema])
    return rows.cast(kinds)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    return kind


def same(mine: Any, other: Any) -> bool:
    """Whether two values are equal: NaN equals NaN, -0.0 does not equal 0.0; a map's entries are
    unordered.
    """
    return bool(_ordered(mine) == _ordered(other))


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((repr(key), _ordered(each)) for key, each in value.items())
    return [_ordered(each) for each in value] if isinstance(value, list) else repr(value)


class ProtoGenerator:
    """A random Protobuf schema, its columns, and random messages."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.newer = self.chance.random() < 0.5
        self.enums = dict[str, list[int]]()
        self.messages = dict[str, dict[str, str]]()
        self.names = 0
        blocks = [self.enum() for _ in range(self.chance.randrange(1, 3))]
        blocks += [self.message(f"m{i}", i) for i in range(self.chance.randrange(0, 3))]
        blocks.append(self.message("root", 9))
        self.text = (
            f'syntax = "proto{3 if self.newer else 2}";\npackage a.b; /* of */ // tests\n'
            + "".join(
                f'import "google/protobuf/{name}.proto";\n'
                for name in ("timestamp", "duration", "wrappers")
            )
            + "option java_package = 'x'; \n"
            + "\n".join(blocks)
        )
        self.descriptors = compiled(self.text)
        self.columns = self.messages["root"]
        self.cls = message_class(self.descriptors, "a.b.root")

    @property
    def options(self) -> dict[str, str]:
        """Return the schema as options of a source: its text, or its descriptor."""
        if self.chance.random() < 0.5:
            return {"schema": self.text, "message": "root"}
        return {"schema": base64.b64encode(self.descriptors).decode(), "message": "a.b.root"}

    def name(self) -> str:
        self.names += 1
        return f"{self.chance.choice(['f', 'some_', 'Xy'])}{self.names}"

    def enum(self) -> str:
        name, numbers = f"E{len(self.enums)}", [0, 1, 5, -3, 70000]
        if not self.newer and self.enums:
            self.chance.shuffle(numbers)
        self.enums[name] = numbers
        values = "".join(f" {name}_V{i} = {n};" for i, n in enumerate(numbers))
        return f"enum {name} {{ option allow_alias = true;{values} {name}_B = {numbers[0]}; }}"

    def type(self, *, depth: bool = True) -> tuple[str, str]:
        """Return a random type, and that of its column."""
        turn = self.chance.random()
        if turn < 0.1:
            return self.chance.choice([*self.enums]), "string"
        if turn < 0.3 and depth and self.messages:
            name = self.chance.choice([*self.messages])
            return name, self.struct(self.messages[name])
        if turn < 0.37:
            return "google.protobuf.Timestamp", "timestamp"
        if turn < 0.45:
            name = self.chance.choice([*WRAPPERS])
            return f"google.protobuf.{name}Value", WRAPPERS[name]
        name = self.chance.choice([*SCALARS])
        return name, SCALARS[name]

    @staticmethod
    def struct(fields: dict[str, str]) -> str:
        return f"struct<{','.join(f'`{n}`:{kind}' for n, kind in fields.items())}>"

    def message(self, name: str, depth: int) -> str:
        one = self.chance
        numbers = one.sample([*range(1, 40), 127, 128, 5000, 70000, (1 << 29) - 1], 12)
        if one.random() < 0.5:
            numbers.sort()
        lines, columns, ends = list[str](), dict[str, str](), list[int]()
        optional = "" if self.newer else "optional "
        for _ in range(one.randrange(1, 6)):
            ends.append(len(columns))
            field, number, turn = self.name(), numbers.pop(), one.random()
            if turn < 0.2:
                type, column = self.type()
                packed = "" if type not in SCALARS or type in ("string", "bytes") else (
                    one.choice(["", " [packed = true]", " [packed = false]"])
                )  # fmt: skip
                lines.append(f"repeated {type} {field} = {number}{packed};")
                columns[field] = f"array<{column}>"
            elif turn < 0.35:
                type, column = self.type()
                # Enums in maps must begin with 0.
                type, key = "E0" if type in self.enums else type, one.choice(KEYS)
                lines.append(f"map<{key}, {type}> {field} = {number};")
                columns[field] = f"map<{SCALARS[key]},{column}>"
            elif turn < 0.5 and len(numbers) > 4:
                parts = list[str]()
                for _ in range(one.randrange(1, 4)):
                    inner = self.name()
                    type, columns[inner] = self.type()
                    parts.append(f"{type} {inner} = {numbers.pop()};")
                lines.append(f"oneof {field} {{ {' '.join(parts)} }}")
            elif turn < 0.6 and not self.newer:
                type, column = self.type()
                label = one.choice(["optional", "repeated"])
                group = f"G{field}"
                lines.append(
                    f"{label} group {group} = {number} {{ optional {type} v = 1;"
                    " repeated sint64 w = 2; }"
                )
                made = self.struct({"v": column, "w": "array<bigint>"})
                columns[group.lower()] = made if label == "optional" else f"array<{made}>"
            else:
                type, columns[field] = self.type()
                default = ""
                if not self.newer and type in SCALARS and one.random() < 0.4:
                    default = f" [default = {self.default(type)}, deprecated = true]"
                label = optional or one.choice(["", "optional "])
                if type == "google.protobuf.Duration":
                    label = optional
                lines.append(f"{label}{type} {field} = {number}{default};")
        if name == "root" and one.random() < 0.5:
            field = self.name()
            lines.append(f"{optional}google.protobuf.Duration {field} = {numbers.pop()};")
            ends.append(len(columns))
            columns[field] = "interval day to second"
        # Lines in another order than their field numbers.
        order, names = one.sample(range(len(lines)), len(lines)), [*columns]
        lines = [lines[i] for i in order]
        ends.append(len(columns))
        columns = {n: columns[n] for i in order for n in names[ends[i] : ends[i + 1]]}
        self.messages[name] = columns
        return f"message {name} {{ reserved 60 to 99;\n  " + "\n  ".join(lines) + "\n}"

    def default(self, type: str) -> str:
        if type == "bool":
            return self.chance.choice(["true", "false"])
        if type == "string":
            return self.chance.choice(["'ä\\n\\'x'", '"a" "\\303\\244"', '""'])
        if type == "bytes":
            return '"\\x00\\377abc"'
        if type in ("double", "float"):
            return self.chance.choice(["inf", "-1.5e3", "0.1", "7", "-inf"])
        if type.startswith(("u", "fixed")):
            return self.chance.choice(["7", "0x10", "010"])
        return self.chance.choice(["-7", "0x10", "-010"])

    def fill(self, message: Any, depth: int = 0) -> Any:
        """Set random fields of a message."""
        for one in message.DESCRIPTOR.fields:
            if self.chance.random() < 0.4:
                continue
            if is_map(one):
                found = getattr(message, one.name)
                key, value = (one.message_type.fields_by_name[n] for n in ("key", "value"))
                for _ in range(self.chance.randrange(4)):
                    k = self.value(key)
                    if value.message_type is not None:
                        self.fill(found[k], depth + 1)
                    else:
                        found[k] = self.value(value)
            elif one.is_repeated:
                found = getattr(message, one.name)
                for _ in range(self.chance.randrange(4)):
                    if one.message_type is not None:
                        self.fill(found.add(), depth + 1)
                    else:
                        found.append(self.value(one))
            elif one.message_type is not None:
                found = getattr(message, one.name)
                found.SetInParent()
                self.fill(found, depth + 1)
            else:
                setattr(message, one.name, self.value(one))
        return message

    def value(self, one: Any) -> Any:
        """Return a random value of a field."""
        chance = self.chance
        if one.enum_type is not None:
            numbers = self.enums[one.enum_type.name]
            return chance.choice([*numbers, *([99] if self.newer else [])])
        name = next(n for n, c in _TYPES.items() if c == one.type)
        if one.containing_type.full_name == "google.protobuf.Timestamp":
            return chance.randrange(10**9) if name == "int32" else chance.randrange(1 << 35)
        if one.containing_type.full_name == "google.protobuf.Duration":
            return chance.randrange(10**9) if name == "int32" else chance.randrange(1 << 33)
        if name == "bool":
            return chance.random() < 0.5
        if name == "string":
            return "".join(chance.choices(string.printable + "äß€😀", k=chance.randrange(9)))
        if name == "bytes":
            return chance.randbytes(chance.randrange(9))
        if name in ("double", "float"):
            return chance.choice([0.5, -2.0, 1e10, float("inf"), 0.0])
        bits = 32 if "32" in name else 64
        number = chance.randrange(1 << bits - 1) >> chance.randrange(bits)
        return (
            number if "u" in name or name.startswith("fixed") else number * chance.choice([1, -1])
        )

    def encoded(self) -> bytes:
        """Return an encoded message, sometimes merged from two, with unknown fields, or in another
        order.
        """
        data = bytes(self.fill(self.cls()).SerializeToString())
        if self.chance.random() < 0.2:
            data += self.fill(self.cls()).SerializeToString()
        if self.chance.random() < 0.2:
            data += b"\xf8\x03\x07\xfb\x03\x08\x01\xfc\x03"
        return data


_TYPES = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "fixed32": 7,
    "bool": 8, "string": 9, "bytes": 12, "uint32": 13, "sfixed32": 15, "sfixed64": 16,
    "sint32": 17, "sint64": 18,
}  # fmt: skip


@pytest.mark.parametrize("seed", mostly_slow(range(200), 30))
def test_random_schemas(seed: int) -> None:
    made = ProtoGenerator(seed)
    messages = [made.encoded() for _ in range(120)]
    good, bad = decoded([*messages], made.columns, **made.options)
    wanted = [read_message(made.cls, message) for message in messages]
    assert sorted(bad) == [n for n, one in enumerate(wanted) if one is None]
    for number, row in good.items():
        assert same(row, wanted[number])


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return a message that mostly has a fault."""
    message = bytearray(data)
    turn = chance.randrange(6)
    if turn == 0:
        del message[chance.randrange(len(message) + 1) :]
    elif turn == 1:
        message += chance.randbytes(chance.randrange(4))
    elif turn in (2, 3):
        for _ in range(chance.randrange(1, 4)):
            if message:
                message[chance.randrange(len(message))] = chance.randrange(256)
    elif turn == 4 and chance.random() < 0.3:
        message = bytearray(chance.randbytes(chance.randrange(60)))
    elif turn == 5 and message:
        begin = chance.randrange(len(message))
        message[begin:begin] = message[begin : begin + chance.randrange(20)]
    return bytes(message)


@pytest.mark.parametrize("seed", mostly_slow(range(200), 30))
def test_faulty_messages_fare_as_in_the_reference_parser(seed: int) -> None:
    made = ProtoGenerator(1000 + seed)
    messages = [mutated(made.encoded(), made.chance) for _ in range(400)]
    good, bad = decoded([*messages], made.columns, **made.options)
    for number, message in enumerate(messages):
        wanted = read_message(made.cls, message)
        place = made.text, message
        assert (number in bad) == (wanted is None), place
        if wanted is None:
            assert bad[number] == message
        else:
            assert same(good[number], wanted), place


HEAD = 'syntax = "proto3"; import "google/protobuf/timestamp.proto";'


def encoded(text: str, message: str = "A", /, **values: Any) -> bytes:
    """Return a message of a schema with these values."""
    return bytes(message_class(compiled(text), message)(**values).SerializeToString())


def test_fields_come_go_and_widen() -> None:
    old = HEAD + "message A { int32 id = 1; string gone = 2; int32 v = 3; bytes s = 4; }"
    new = HEAD + "message Z {} message A { int64 id = 1; optional double v = 5; string s = 4; }"
    other = HEAD + "message B { message A { sint64 id = 9; } }"
    columns = {"id": "bigint", "v": "double", "s": "string", "unknown": "array<int>"}
    with serving({4: {"type": "int"}}, protobuf={1: old, 2: new, 3: other}) as options:
        messages: list[bytes | None] = [
            framed(1, b"\0" + encoded(old, id=1, gone="g", v=3, s=b"a")),
            framed(2, b"\2\2" + encoded(new, id=1 << 40, s="b")),
            framed(1, b"\0" + encoded(old, id=3, s=b"\xff")),
            framed(3, b"\4\0\0" + encoded(other, "B.A", id=-4)),
            framed(2, b"\0" + encoded(new, id=5)),
            framed(9, b"\0"), framed(4, b"\0"), framed(2, b"\2\4"), framed(2, b"\1"),
            framed(2, b""), framed(2, b"\x80\x80\x80\x80\x10"), b"\1\0\0\0\1\0", b"", b"\0",
            framed(2, b"\4\xff\xff\xff\xff\xff\xff"),
            framed(1, b"\0" + encoded(old, v=7)),
            None,
        ]  # fmt: skip
        good, bad = decoded(messages, columns, **options)
        assert good == {
            0: {"id": 1, "v": 3.0, "s": "a", "unknown": None},
            1: {"id": 1 << 40, "v": None, "s": "b", "unknown": None},
            3: {"id": -4, "v": None, "s": None, "unknown": None},
            4: dict.fromkeys(columns),
            15: {"id": 0, "v": 7.0, "s": "", "unknown": None},
            16: dict.fromkeys(columns),
        }
        assert sorted(bad) == [2, *range(5, 15)]
        # If a message type is named, messages of others are invalid.
        good, bad = decoded(messages, columns, message="A", **options)
        assert sorted(good) == [0, 1, 15, 16]


def test_values_that_do_not_fit_make_their_message_invalid() -> None:
    text = HEAD + (
        "enum E { NO = 0; YES = 1; } message A { int64 a = 1; uint64 u = 2; E e = 3; string s = 4;"
        " google.protobuf.Timestamp t = 5; repeated int64 r = 6; }"
    )
    rows: list[dict[str, Any]] = [
        {"a": 1, "e": 1, "u": (1 << 63) - 1}, {"a": 1 << 40}, {"u": 1 << 63}, {"s": "x"}, {"s": ""},
        {"t": {"seconds": 1 << 40}}, {"t": {"nanos": -1}}, {"r": [1, 1 << 40, 2]}, {"e": 7},
    ]  # fmt: skip
    messages: list[bytes | None] = [encoded(text, **row) for row in rows]
    columns = {
        "a": "int", "u": "bigint", "e": "string", "s": "int", "t": "timestamp", "r": "array<int>",
    }  # fmt: skip
    good, bad = decoded(messages, columns, schema=text)
    nothing = {"a": 0, "u": 0, "e": "NO", "s": None, "t": None, "r": []}
    assert good == {
        0: {**nothing, "a": 1, "u": (1 << 63) - 1, "e": "YES"}, 4: nothing,
        8: {**nothing, "e": "7"},
    }  # fmt: skip
    assert sorted(bad) == [1, 2, 3, 5, 6, 7]
    wide = {"u": "decimal(20,0)", "e": "int", "s": "binary", "r": "array<decimal(13,0)>"}
    good, bad = decoded(messages, wide, schema=text)
    assert (good[2]["u"], good[8]["e"], good[3]["s"]) == (1 << 63, 7, b"x")
    assert not bad


def test_texts_of_decimals_and_times() -> None:
    text = HEAD + "message A { string d = 1; string at = 2; optional string n = 3; string t = 4; }"
    rows = [{"d": "2024-02-29", "at": "1970-01-01T00:00:01Z", "n": "-12.50"}, {"d": "no"}, {},
            {"n": ""}, {"n": "1e40"}]  # fmt: skip
    messages: list[bytes | None] = [encoded(text, **row) for row in rows]
    columns = {"d": "date", "at": "timestamp", "n": "decimal(9,2)", "t": "timestamp_ntz"}
    good, bad = decoded(messages, columns, schema=text)
    assert good[0] == {"d": date(2024, 2, 29), "at": 10**6, "n": Decimal("-12.50"), "t": None}
    assert good[2] == good[3] == dict.fromkeys(columns)
    assert sorted(bad) == [1, 4]


def test_hostile_messages_are_bounded() -> None:
    text = """
        syntax = "proto2";
        message A { optional A a = 1; optional int32 x = 2; repeated B b = 3; repeated bool p = 4; }
        message B { optional int32 v1 = 1; optional int32 v2 = 2; }"""
    cls = message_class(compiled(text), "A")
    columns = {"x": "int", "b": "array<struct<v1:int,v2:int>>", "p": "array<boolean>"}
    for _ in range(12):
        columns = {**columns, "a": f"struct<x:int{',a:' + columns['a'] if 'a' in columns else ''}>"}

    def nested(depth: int) -> bytes:
        found = b"\x10\x05"
        for _ in range(depth):
            found = b"\x0a" + _varint(len(found)) + found
        return found

    groups = [b"\x7b" * n + b"\x7c" * n for n in (1, 99, 100, 101, 5_000_000)]
    huge = b"\xff\xff\xff\xff"
    messages = [
        *groups, b"\x7b" * 5_000_000, b"\x7c", nested(1), nested(12), nested(99),
        b"\x0a" + huge + b"\x0f", b"\x0a" + huge + b"\x7f", b"\x3a" + huge + b"\xff\xff\x01",
        b"\x22\x04\1\0\x81\0", b"\x22\x04\1\0\x81", b"\x22\x03\1\0\x81", b"\x20\1\x22\2\0\1\x20\1",
    ]  # fmt: skip
    good, bad = decoded([*messages], columns, schema=text, message="A")
    for number, message in enumerate(messages):
        assert (number in bad) == (read_message(cls, message) is None), message[:20]
    assert good[len(messages) - 1]["p"] == [True, False, True, True]
    # Twelve million elements of two values each, in 24 MB.
    many = b"\x1a\0" * 12_000_000
    good, bad = decoded([many, b"\x1a\0" * 3], columns, schema=text, message="A")
    assert (sorted(bad), len(good[1]["b"])) == ([0], 3)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def test_fields_without_column_are_not_read() -> None:
    text = HEAD + (
        "message A { int32 x = 1; A inner = 2; string s = 3;"
        " oneof o { int32 a = 4; string b = 5; A c = 6; } }"
    )
    columns = {"x": "int", "a": "bigint"}
    messages: list[bytes | None] = [
        b"\x08\x01\x12\x02\xff\xff\x1a\x01\xff\x20\x07", b"\x20\x07\x2a\x01x", b"\x32\0\x20\x07",
        b"\x20\x07\x32\x03\xff\xff\xff",
    ]  # fmt: skip
    # A oneof's field without a column still unsets the others.
    assert decoded(messages, columns, schema=text) == (
        {0: {"x": 1, "a": 7}, 1: {"x": 0, "a": None}, 2: {"x": 0, "a": 7}, 3: {"x": 0, "a": None}},
        {},
    )
