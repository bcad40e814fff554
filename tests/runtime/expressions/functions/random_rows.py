"""Random rows of every type of a column, with NULLs and extremes, for tests against Spark."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.types import DataType, parse_type
from anabranch_runtime.columns.arrow_types import arrow_type

#: Column -> type, as SQL writes it.
COLUMNS = {
    "t": "tinyint", "h": "smallint", "i": "int", "j": "int", "k": "int", "b": "bigint",
    "c": "bigint", "f": "float", "x": "double", "y": "double", "d": "decimal(12,2)",
    "e": "decimal(20,4)", "z": "decimal(38,18)", "g": "decimal(38,0)", "s": "string", "u": "string",
    "v": "string", "o": "string", "p": "boolean", "q": "boolean", "w": "date", "a": "date",
    "m": "timestamp", "r": "timestamp", "n": "timestamp_ntz", "bin": "binary", "xs": "array<int>",
    "ys": "array<int>", "es": "array<string>", "fs": "array<double>", "gs": "array<array<int>>",
    "ds": "array<decimal(12,2)>", "ms": "array<timestamp>", "ls": "array<struct<n:int,t:string>>",
    "pt": "struct<n:int,t:string,k:struct<v:bigint,w:array<int>>>", "mp": "map<string,int>",
    "mo": "map<int,array<string>>", "js": "string", "url": "string",
}  # fmt: skip
TYPES: dict[str, DataType] = {name: parse_type(text) for name, text in COLUMNS.items()}

_LETTERS = "aabbcxyzAB  .,-_0129é%ßΣ\n\té😀'\"{}:[]İı中\u0301/\\&=+"
_FIRST, _LAST = date(1, 1, 1).toordinal(), date(9999, 12, 31).toordinal()
_ENDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_NEAR = (date(1995, 1, 1).toordinal(), date(2037, 12, 31).toordinal())
#: Changes of clocks in Berlin, New York and Sydney; half of them repeat a local hour.
_CLOCKS = [
    int(datetime(*at, tzinfo=UTC).timestamp())
    for at in ((2024, 3, 31, 1), (2024, 10, 27, 1), (2023, 3, 12, 7), (2023, 11, 5, 6),
               (2021, 10, 2, 16), (2022, 4, 2, 16), (2010, 3, 28, 1), (1999, 10, 31, 1))
]  # fmt: skip
_DOUBLES = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.0, 0.5, 2.5, -2.5, 5e-324, 1e300,
            1.7976931348623157e308, 9.007199254740993e15, 9.223372036854775807e18, 1e-7, 1e7,
            0.1, 0.005, 1.005]  # fmt: skip
_NUMERALS = ["0", "-0", "+7", " 42 ", "1.5", "-1.", ".5", "1e3", "NaN", "-Infinity", "ff", "-FF",
             "zz", "0x1f", "9223372036854775808", "-9223372036854775809", "1_0", "12345678901234567"
             "890123", "07", "4f4", "g"]  # fmt: skip
_SHORT = ["a", "ab", "b", ".", "xy", "é", "", "a.b", "😀", "A", " ", "12", "%", "MON"]
_INVALID_TIMES = ["", "x", "2024-02-30", "2024-13-01", "24-1-1", "2024-01-01 25:00:00",
                  "2024/01/01", " 2024-01-05 ", "2024-1-5", "2024-05", "2024", "2024-01-05T",
                  "2024-01-05 1:2:3", "2024-01-05 01:02:03Z",
                  "2024-01-05T01:02:03+05:30"]  # fmt: skip
_NAMES = ["a", "b", "c", "a b", "é", "A"]


def _text(rng: Random) -> str:
    length = rng.choice([0, 1, 2, 3, 5, 9, 20]) if rng.random() < 0.99 else rng.randrange(100, 900)
    return "".join(rng.choice(_LETTERS) for _ in range(length))


def _time(rng: Random) -> int:
    """Microseconds since 1970: mostly near, also in any year from 1 to 9999."""
    near = rng.random() < 0.6
    return rng.randrange(-(10**16), 4 * 10**15) if near else rng.randrange(*_ENDS)


def _clock(rng: Random) -> int:
    """Microseconds since 1970, often within hours of a change of clocks."""
    if rng.random() < 0.4:
        return rng.randrange(788_918_400_000_000, 2_145_916_800_000_000)
    seconds = rng.choice(_CLOCKS) + rng.choice([-7200, -3600, -1, 0, 1, 3599, 3600, 7200])
    return (seconds + rng.choice([0, rng.randrange(-40_000, 40_000)])) * 1_000_000


def _written_time(rng: Random) -> str:
    if rng.random() < 0.04:
        return rng.choice(_INVALID_TIMES)
    day = date.fromordinal(rng.randrange(_FIRST, _LAST) if rng.random() < 0.5
                           else rng.randrange(*_NEAR)).isoformat()  # fmt: skip
    if rng.random() < 0.4:
        return day
    clock = f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
    rest = f".{rng.randrange(10**6):06}"[: rng.randrange(2, 8)] if rng.random() < 0.4 else ""
    return f"{day}{rng.choice(' T')}{clock}{rest}"


def _json(rng: Random, depth: int = 0) -> Any:
    kind = rng.random() * (1 if depth < 3 else 0.6)
    if kind < 0.3:
        return rng.choice([0, 1, -5, 12, 300, 2**31, 99999999999, 1.5, -0.25, 12.345, 1e20])
    if kind < 0.5:
        return rng.choice(["x", "", "é", "1", "2.5", "true", "2026-01-31", 'q"\\/', "😀"])
    if kind < 0.6:
        return rng.choice([True, False, None])
    if kind < 0.75:
        return [_json(rng, depth + 1) for _ in range(rng.randrange(4))]
    names = rng.sample(_NAMES, rng.randrange(4))
    return {name: _json(rng, depth + 1) for name in names}


def _written_json(rng: Random) -> str:
    names = ["a", *rng.sample(_NAMES[1:], rng.randrange(3))]
    value = {name: _json(rng, 1) for name in names} if rng.random() < 0.7 else _json(rng)
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5,
                      separators=rng.choice([(",", ":"), (", ", ": ")]))  # fmt: skip
    if rng.random() < 0.04:
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(["", ",", "]", "}", '"', "x"]) + text[at + 1 :]
    return text


def _url(rng: Random) -> str:
    host = rng.choice(["a.b", "spark.apache.org", "x-y.example", "10.0.0.1", "a_b.c", "[::1]"])
    user = rng.choice(["", "", "me@", "me:pw@"])
    port = rng.choice(["", "", ":80", ":65535"])
    path = rng.choice(["", "/", "/a/b", "/a%20b", "/é", "/a;p=1", "/a b"])
    query = rng.choice(["", "?", "?x=1", "?x=1&y=2", "?y=&x", "?a.x=3&x=a%20b", "?x=1&x=2"])
    return f"{rng.choice(['http', 'https', 'ftp', 'HTTP'])}://{user}{host}{port}{path}{query}" + (
        rng.choice(["", "", "#Ref", "#"])
    )


def _decimal(rng: Random, precision: int, scale: int) -> Decimal:
    limit = 10 ** rng.randrange(1, precision + 1)
    return Decimal(rng.randrange(1 - limit, limit)).scaleb(-scale)


def _float(rng: Random) -> float:
    return float(np.float32(rng.gauss(0, 10.0 ** rng.randrange(-6, 9))))


def _integer(rng: Random, bits: int) -> int:
    """An integer of any magnitude."""
    return rng.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1)) >> rng.randrange(bits)


_EDGES = {
    bits: [2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 0, 1, -1] for bits in (8, 16, 32, 64)
}  # fmt: skip
#: Column -> its random values, and its extremes.
_MAKERS: dict[str, tuple[Callable[[Random], Any], Sequence[Any]]] = {
    "t": (lambda rng: rng.randrange(-128, 128), _EDGES[8]),
    "h": (lambda rng: _integer(rng, 16), _EDGES[16]),
    "i": (lambda rng: rng.randrange(-400, 400), [0, -1]),
    "j": (lambda rng: rng.randrange(13), [0]),
    "k": (lambda rng: _integer(rng, 32), _EDGES[32]),
    "b": (lambda rng: _integer(rng, 64), _EDGES[64]),
    "c": (lambda rng: rng.randrange(-(10 ** rng.randrange(1, 15)), 10**14), [0, -1, 10**14]),
    "f": (_float, [0.0, -0.0, math.nan, math.inf, -math.inf, 3.4028234663852886e38, 1e-45]),
    "x": (lambda rng: rng.choice([rng.uniform(-1e3, 1e3), rng.gauss(0, 1e12), float(
        rng.randrange(-9, 9)), rng.gauss(0, 10.0 ** rng.randrange(-12, 40))]), _DOUBLES),
    "y": (lambda rng: rng.choice([rng.uniform(-1, 1), rng.uniform(-9, 9), rng.randrange(-9, 9) / 2]
                                 ), [0.0, -0.0, 1.0, -1.0, 0.5]),
    "d": (lambda rng: _decimal(rng, 12, 2), [Decimal("9999999999.99"), Decimal("-9999999999.99")]),
    "e": (lambda rng: _decimal(rng, 20, 4), [Decimal("0.5"), Decimal("-2.5"), Decimal(0)]),
    "z": (lambda rng: _decimal(rng, 38, 18), [Decimal("1E-18"), Decimal(10**20).scaleb(-1)]),
    "g": (lambda rng: _decimal(rng, 38, 0), [Decimal(10**38 - 1), Decimal(1 - 10**38)]),
    "s": (_text, ["", " ", "\n", "😀", "a" * 5000]),
    "u": (lambda rng: rng.choice(_SHORT), []),
    "v": (lambda rng: rng.choice(_NUMERALS) if rng.random() < 0.1 else
          str(rng.choice([rng.randrange(-200, 200), _integer(rng, 64)])), _NUMERALS),
    "o": (_written_time, _INVALID_TIMES),
    "p": (lambda rng: rng.random() < 0.5, []),
    "q": (lambda rng: rng.random() < 0.5, []),
    "w": (lambda rng: date.fromordinal(rng.randrange(_FIRST, _LAST)),
          [date.min, date.max, date(2020, 2, 29), date(1582, 10, 15), date(1900, 2, 28)]),
    "a": (lambda rng: date.fromordinal(rng.randrange(*_NEAR)), [date(2000, 12, 31)]),
    "m": (_time, [*_ENDS, -1, 0, 999_999]),
    "r": (_clock, [0]),
    "n": (_time, [*_ENDS, -1, 0, 1]),
    "bin": (lambda rng: rng.randbytes(rng.choice([0, 1, 2, 5, 20])), [b"", b"\x00", b"\xff\xfe"]),
    "js": (_written_json, ["", " ", "null", "[]", "{}", '{"a"', "{'a': 1}",
                            '{"a": 300, "b": {"b":x[-5]}}', '{"a":"\\ud83dx"}', '3x', 'true"']),
    "url": (_url, ["", "a.b/c", "mailto:x@y.z", "/a/b?x=1", "http://", "//a/b", "?x=1"]),
}  # fmt: skip
_ELEMENTS: dict[str, list[Any]] = {
    "int": [-3, -2, -1, 0, 1, 2, 3, 4, 5, 2**31 - 1, -(2**31)],
    "bigint": [0, 1, -1, 7, 10**12, 2**63 - 1],
    "double": [0.0, -0.0, math.nan, 1.5, -2.25, math.inf, -math.inf, 1e300],
    "string": ["", "a", "b", "ab", "a,b", "é", "a b", "😀", 'q"'],
    "decimal": [Decimal("1.50"), Decimal("-2.25"), Decimal("0.00"), Decimal("9999999999.99")],
    "timestamp": [*_ENDS, 0, -1, 1_711_846_800_000_000, 86_400_000_000],
}


def _nested(rng: Random, kind: DataType, missing: float) -> Any:
    if rng.random() < missing:
        return None
    name = kind.kind.value
    if name == "array":
        assert kind.element is not None
        return [_nested(rng, kind.element, 0.12) for _ in range(rng.choice([0, 1, 2, 2, 3, 6]))]
    if name == "struct":
        return {field: _nested(rng, of, 0.1) for field, of in kind.fields}
    if name == "map":
        keys = {_nested(rng, kind.fields[0][1], 0) for _ in range(rng.randrange(4))}
        assert kind.element is not None
        return [(key, _nested(rng, kind.element, 0.1)) for key in sorted(keys)]
    # Small numbers meet more often.
    found = _ELEMENTS[name]
    return rng.choice(found[:9] if rng.random() < 0.98 else found)


def table(rng: Random, rows: int, missing: float = 0.04) -> pa.Table:
    """Random rows; a share of ``missing`` is NULL in each column, as many are extremes, each of
    which occurs."""
    found = {}
    for name, kind in TYPES.items():
        if name not in _MAKERS:
            values = [_nested(rng, kind, missing) for _ in range(rows)]
        else:
            make, extremes = _MAKERS[name]
            values = [
                None if rng.random() < missing else
                rng.choice(extremes) if extremes and rng.random() < missing else make(rng)
                for _ in range(rows - len(extremes))
            ] + [*extremes]  # fmt: skip
            rng.shuffle(values)
        found[name] = pa.array(values, arrow_type(kind))
    return pa.table(found)
