"""Tests of Protobuf schemas: texts as ``protoc`` compiles them, descriptor sets, and
invalid texts.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from anabranch_contract.connectors.schemas.declared import ProtoSchema
from anabranch_contract.connectors.schemas.protobuf import (
    message_of,
    parse_schema,
    registered_schema,
)
from anabranch_contract.errors import StreamError
from tests.support.oracles.protobuf import compiled

OTHER = 'syntax = "proto3"; package x.y; message Point { int32 p = 1; } enum Side { L = 0; R = 1; }'
TEXTS = [
    """
    // A comment; message No {}
    syntax = "proto2";
    package x.y.z;
    import public "other.proto";
    option java_package = "a;b"; option (unknown).a = { a: 1 b: "}" };
    /* message
       No {} */
    message A {
        optional Point point = 1;  required y.Point other = 2;
        repeated .x.y.Point more = 0x3;
        optional string message = 04 [default = 'it\\'s' " \\x41\\102\\u00e4", deprecated = true];
        optional bytes optional_ = 5 [default = "\\000\\377ä"];
        optional double big = 6 [default = -inf]; optional float nan = 7 [default = nan];
        optional Side side = 8 [default = R];
        optional uint64 most = 9 [default = 18446744073709551615];
        map<string, .x.y.Side> some_sides = 10; map<int32, Point> pointsByNumber = 11;
        repeated group Part = 12 { optional int32 v = 1; message In { optional Part p = 1; } }
        oneof choice { option (o) = "x"; int32 enum = 13; Point reserved_ = 14; group G2 = 15 {} }
        extensions 100 to 199, 300;
        extensions 1000 to max [declaration = { number: 1000 full_name: ".a.b" type: ".c" }];
        reserved 20, 30 to 40; reserved "old", 'older';
        extend A { optional int32 ext = 100; }
        enum E {
            option allow_alias = true; ONE = 1 [deprecated = true]; UN = 1; MINUS = -2; reserved 9;
        }
        message B { message C { optional E e = 1; optional B b = 2; optional A a = 3; } ; }
        optional B.C c = 16; optional E e = 17 [json_name = "E,e]"]; ;
    }
    message Last {}
    extend A { optional string more = 101; }
    service S {
        rpc Do (A) returns (stream A) { option deprecated = true; } rpc More (A) returns (A);
    }
    """,
    """syntax = 'proto3';
    import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
    import "google/protobuf/duration.proto"; import "google/protobuf/any.proto";
    import "google/protobuf/struct.proto"; import "google/protobuf/empty.proto";
    import "google/protobuf/field_mask.proto";
    message M {
        google.protobuf.Timestamp at = 1; optional int32 maybe = 2; repeated sint32 s = 3;
        .google.protobuf.Any any = 4; google.protobuf.Struct free = 5;
        google.protobuf.Empty none = 6; google.protobuf.FieldMask mask = 7;
        google.protobuf.Duration took = 8; google.protobuf.StringValue text = 9;
        string package = 10; bytes syntax = 11; M import = 12; fixed64 f = 536870911;
        google.protobuf.ListValue list = 13; google.protobuf.NullValue nothing = 14;
        oneof one { string a = 15; M b = 16; } optional string map = 17; bool stream = 18;
    }
    """,
    "message Old { optional int32 x = 1; }",
]  # fmt: skip


def reduced(schema: ProtoSchema) -> Any:
    """Return a schema without the types of other files that nothing needs."""
    own = {name: one for name, one in schema.messages.items() if name in _reached(schema)}
    return schema.roots, own


def _reached(schema: ProtoSchema) -> set[str]:
    found, waiting = set[str](), [*schema.roots]
    while waiting:
        name = waiting.pop()
        if name in schema.messages and name not in found:
            found.add(name)
            one = schema.messages[name]
            waiting += [field.type for field in one.fields] + [*one.inner]
    return found


@pytest.mark.parametrize("text", TEXTS)
def test_texts_as_protoc_compiles_them(text: str) -> None:
    known = text.replace('option (unknown).a = { a: 1 b: "}" };', "").replace(
        'option (o) = "x";', ""
    )
    made = compiled(known, other=OTHER)
    mine = parse_schema(text, {"other.proto": OTHER})
    other = parse_schema(base64.b64encode(made).decode())
    assert reduced(mine) == reduced(other)
    assert all(mine.enums[name] == one for name, one in other.enums.items())


def test_indexes_count_declared_messages() -> None:
    schema = parse_schema(TEXTS[0], {"other.proto": OTHER})
    names = [schema.at(path) for path in ([0], [0, 1], [0, 1, 0], [1], [2], [0, 0, 0], [0, 9], [])]
    assert [one and one.name.removeprefix("x.y.z.") for one in names] == [
        "A", "A.G2", None, "Last", None, "A.Part.In", None, None
    ]  # fmt: skip
    assert [one and one.name for one in (schema.named("Last"), schema.named("C"))] == [
        "x.y.z.Last", None
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "0 messages"),
        ("message A { optional int32 x = 1;", "ends too early"),
        ("message A { int32 x = 0; }", "0 is not the number"),
        ("message A { int32 x = 536870912; }", "not the number"),
        ("message A { int32 x = 1; int32 y = 1; }", "a number twice"),
        ("message A { int32 x = 1; int32 x = 2; }", "a name twice"),
        ("message A {} message A {}", "defined twice"),
        ("message A { B b = 1; }", "'B' is not defined"),
        ("message A { int32 x = one; }", "line 1, at 'one': this is not an integer"),
        ("message A { int32 3 = 1; }", "at '3': this is not a name"),
        ("message A { map<bytes, int32> m = 1; }", "keys of a map"),
        ("enum E {} message A {}", "no values"),
        ("\n\nclass A {}", "line 3, at 'class': this is no declaration"),
        ('syntax = "proto4";', "neither proto2 nor proto3"),
        ('edition = "2023"; message A {}', "editions are not read"),
        ('import "my.proto"; message A {}', "the import 'my.proto' is missing"),
        ("message A " * 40 + "{" * 40, "is missing"),
        ("".join(f"message A{i} {{ " for i in range(40)) + "}" * 40, "nested too deep"),
        ("abcd", "no descriptor set"),
        ("abc", "neither a .proto file nor base64"),
        ("/" * 40, "no descriptor set"),
        ("{}", "this is no declaration"),
        ("message A {} message B {}", "has 2 messages"),
    ],
)
def test_texts_that_are_no_schema(text: str, why: str) -> None:
    with pytest.raises(StreamError, match=why):
        message_of(parse_schema(text), None)


def test_descriptor_sets_that_are_none() -> None:
    made = descriptor_pb2.FileDescriptorSet()
    file = made.file.add(name="a.proto", syntax="editions")
    file.message_type.add(name="A")

    def parse() -> ProtoSchema:
        return parse_schema(base64.b64encode(made.SerializeToString()).decode())

    with pytest.raises(StreamError, match="editions are not read"):
        parse()
    file.syntax = "proto2"
    assert parse().roots == ("A",)
    field = file.message_type[0].field.add(name="x", number=1, type=11, type_name=".B")
    with pytest.raises(StreamError, match="not defined"):
        parse()
    field.type_name = ".A"
    assert parse().messages["A"].fields[0].type == "A"
    file.dependency.append("b.proto")
    with pytest.raises(StreamError, match=r"'b\.proto' is missing"):
        parse()
    whole = made.SerializeToString()
    for end in range(1, len(whole)):
        # Truncated descriptor sets are refused, never partly read or failing with another error.
        with pytest.raises(StreamError):
            parse_schema(base64.b64encode(whole[:end]).decode())


def test_registered_schemas_with_references() -> None:
    text = 'syntax = "proto3"; import "dir/b.proto"; message A { x.y.Point p = 1; }'
    inner = 'syntax = "proto3"; import public "c.proto";'
    answers: dict[str, dict[str, Any]] = {
        "subjects/b/versions/2": {
            "schema": inner, "references": [{"name": "c.proto", "subject": "c/d", "version": 1}]
        },
        "subjects/c%2Fd/versions/1": {"schema": OTHER},
    }  # fmt: skip
    answer: dict[str, Any] = {
        "schema": text, "schemaType": "PROTOBUF",
        "references": [{"name": "dir/b.proto", "subject": "b", "version": 2}],
    }  # fmt: skip
    found = registered_schema(answer, answers.get)
    assert found is not None
    assert found.messages["A"].fields[0].type == "x.y.Point"
    assert registered_schema({**answer, "references": []}, answers.get) is None
    assert registered_schema({**answer, "schemaType": "AVRO"}, answers.get) is None
    del answers["subjects/c%2Fd/versions/1"]
    assert registered_schema(answer, answers.get) is None
