"""Compare the kernel of JSON paths with the reader of single texts, on random and spoilt texts."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from anabranch_contract.queries.expressions import Call, Column, Literal
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.expressions.functions.json_scan import values_at
from anabranch_runtime.expressions.functions.json_values import _value_at_path, get_json_object

pytestmark = pytest.mark.fast

_LEAVES = (
    "x", "", "a b", "é☃", 'q"q', "back\\s", "t\tt", "😀", "null", "12", 1, 0, -5, 10**17, 10**18,
    -(10**17), 10**25, 1.5, -0.0, 1e30, True, False, None,
)  # fmt: skip
_KEYS = ("a", "a", "a", "b", "b", "k", "é", "a b", 'a"', "")
_PATHS: tuple[tuple[str | int, ...], ...] = (
    (), ("a",), ("b", "a"), ("a", 0), (0,), (1, "a"), ("é",), ("a b",), ("a", "b", "c"), ('a"',),
    ("k", 2), ("",),
)  # fmt: skip
#: Texts that hardly any random one is like.
_TEXTS = (
    '{"a":1,"a":2}', '{"a":-0}', '{"a":01}', '{"a":1.}', '{"a":.5}', '{"a":1e5}', '{"a":+1}',
    '{"a":NaN}', '{"a":-Infinity}', '{"a":nul}', '{"a":nulls}', '{"a":tru', '{"a":"\\ud800"}',
    '{"a":"\\uD83D\\uDE00"}', '{"a":"\\x"}', '{"a":"\\u00g0"}', '{"a":"\\u00', '{"a":"\\', '{"a":"',
    '{"a":1}x', '{"a":1} {', '{"a":1,}', "[1,]", "[,1]", "{,}", '{"a"}', '{"a":}', '{a:1}', "[1 2]",
    "[1}", '{"a":1]', "", " ", "[", "{", '{"', '{"a"', '{"\\u0061":1,"a":2}', '{"b":[1,2],"a":3}',
    "\ufeff[1]", "\x0b[1]", "\t\r\n [1 , 2 ]\t", '{"a":"\x01"}', '{"a":{"b":{"c":[]}}}',
    "[[[]],{}]", "[" * 59 + "]" * 59, "[" * 61 + "]" * 61, "[" * 2000 + "]" * 2000, "[null]",
    '{"a":null}', "null",
    '{"a":' + "1" * 2000 + "}", '["' + "x" * 5000 + '"]', "1", '"a"', "truex", "12 34",
)  # fmt: skip


def _value(rng: Random, depth: int) -> Any:
    kind = rng.random() if depth else 0.4 + 0.6 * rng.random()
    if depth > 3 or kind < 0.4:
        return rng.choice(_LEAVES)
    if kind < 0.75:
        return {rng.choice(_KEYS): _value(rng, depth + 1) for _ in range(rng.randint(0, 6))}
    return [_value(rng, depth + 1) for _ in range(rng.randint(0, 4))]


def _text(rng: Random) -> str | None:
    """Draw a JSON text; one in three is spoilt, one in fifty is NULL."""
    separators = rng.choice(((",", ":"), (", ", ": "), (" ,\n", " :\t ")))
    text = json.dumps(_value(rng, 0), ensure_ascii=rng.random() < 0.5, separators=separators)
    text = rng.choice(("", " ", "\n\t ")) + text + rng.choice(("", "", " ", ",", "1"))
    for _ in range(rng.randint(1, 3) if rng.random() < 0.3 else 0):
        at = rng.randrange(len(text) + 1)
        other = rng.choice('{}[]",:\\0123456789.eE+-tfnulrsa \t\nué')
        text = text[:at] + rng.choice(("", other)) + text[at + rng.randint(0, 1) :]
    return None if rng.random() < 0.02 else text


@pytest.mark.parametrize("seed", range(4))
def test_the_kernel_decides_as_the_reader_of_single_texts_does(seed: int) -> None:
    rng = Random(seed)
    decided: Counter[str] = Counter()
    for _ in range(8):
        texts = [*_TEXTS, *(_text(rng) for _ in range(250))]
        rng.shuffle(texts)
        column = pa.array(texts, pa.string()).slice(rng.randint(0, 9))
        for path in _PATHS:
            found, unknown = values_at(column, path)
            given = column.to_pylist()
            for text, value, left in zip(given, found.to_pylist(), unknown.tolist(), strict=True):
                decided["unknown" if left else "null" if value is None else "found"] += 1
                if not left:
                    wanted = None if text is None else _value_at_path(text, path)
                    assert value == wanted, (text, path)
    assert min(decided.values()) > 300, decided


def test_texts_that_the_kernel_leaves_are_read_one_by_one() -> None:
    rng, string = Random(9), parse_type("string")
    texts = [*_TEXTS, *(_text(rng) for _ in range(300))]
    for name in ("a", "b", "é"):
        args = Column("", "j", string), Literal(f"$.{name}", string)
        call = Call("get_json_object", args, string)
        found = get_json_object(call, [pa.array(texts, pa.string())]).to_pylist()
        assert found == [None if t is None else _value_at_path(t, (name,)) for t in texts]


@pytest.mark.parametrize("texts", [[], [None], [None, None, "[1]"], [""]])
def test_columns_without_texts_have_no_values(texts: list[str | None]) -> None:
    found, unknown = values_at(pa.array(texts, pa.string()), ("a",))
    assert found.to_pylist() == [None] * len(texts)
    assert unknown.tolist() == [text == "" for text in texts]
