"""Functions of JSON: paths into texts, nested values of texts, and texts of nested values."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.expressions import Call, Literal
from anabranch_contract.queries.json_paths import steps
from anabranch_contract.queries.text_values import BITS, quantized, reader_of
from anabranch_contract.queries.types import FLOATING, INTEGRAL, DataType, TypeKind
from anabranch_runtime.columns.arrays import by_value
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.columns.nested import json_of, json_strings
from anabranch_runtime.expressions.casts import java_text
from anabranch_runtime.expressions.functions.json_scan import values_at

_NUMBERS = {"NaN": "NaN", "Infinity": "inf", "+Infinity": "inf", "-Infinity": "-inf",
            "INF": "inf", "+INF": "inf", "-INF": "-inf"}  # fmt: skip
#: Days since 1970 in place of a date; more digits are a year.
_DAYS, _EPOCH = re.compile(r"[+-]?[0-9]{1,3}"), date(1970, 1, 1).toordinal()
#: Character with which a word goes on.
_IN_WORD = re.compile(r"[\w$]")
#: Escapes in JSON texts, and characters that Jackson escapes: surrogates, and such as become two.
_ESCAPED = re.compile("\\\\u[0-9a-f]{4}|\\\\.|[\ud800-\udfff\U00010000-\U0010ffff]")


def get_json_object(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``get_json_object(text, path)``: NULL if not JSON, if nothing is there, or for a
    member that is ``null``. For an array's element and a whole text that is the text ``null``."""
    path = call.args[1]
    assert isinstance(path, Literal)
    through = steps(str(path.value))
    texts, unknown = values_at(args[0], through)
    if not unknown.any():
        return texts
    rest = args[0].filter(pa.array(unknown))
    read = by_value(rest, lambda text: _value_at_path(text, through), pa.string())
    return pc.replace_with_mask(texts, unknown, read)


def _value_at_path(text: str, through: tuple[str | int, ...]) -> str | None:
    try:
        value = _first_value(text)
    except (ValueError, RecursionError):
        return None
    for step in through:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    if value is None and through and isinstance(through[-1], str):
        return None
    try:
        found = value if isinstance(value, str) else _written(value)
        return found.encode().decode()
    except (RecursionError, UnicodeEncodeError):
        # Unpaired surrogates are no text.
        return None


def _encodable(text: str) -> str:
    """Return ``text`` with ``?`` for each unpaired surrogate, as Java encodes it."""
    return text.encode("utf-8", "replace").decode()


def _first_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        found.setdefault(key, value)
    return found


def no_constant(name: str) -> Any:
    """Refuse NaN and Infinity, which ``json`` would read."""
    raise ValueError(f"{name} is no JSON")


#: Reader of JSON as Spark reads it: uses the first of equal keys, allows control characters.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_first_of_each, parse_constant=no_constant, strict=False
)


def _first_value(text: str) -> Any:
    """Read the first JSON value of ``text``, and ignore what follows, as Spark does.

    Raises:
        ValueError: it is no JSON, or a number or word goes on.
    """
    text = text.lstrip(" \t\r\n")
    value, end = _DECODER.raw_decode(text)
    following = text[end : end + 1]
    if following and not isinstance(value, str | list | dict):
        word = value is None or isinstance(value, bool)
        if _IN_WORD.match(following) if word else following not in " \t\r\n":
            raise ValueError(f"{text[: end + 1]} is no JSON")
    return value


def _written(value: Any) -> str:
    """Return a value as JSON text in the form of ``to_json``, with numbers as in Java."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, float):
        return java_text(value)
    if isinstance(value, dict):
        inner = (f"{_quoted(key)}:{_written(one)}" for key, one in value.items())
        return "{" + ",".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    return _ESCAPED.sub(_escape, json.dumps(text, ensure_ascii=False))


def _escape(found: re.Match[str]) -> str:
    """Return an escape as Jackson writes it: with large letters, and of pairs of surrogates."""
    text = found.group()
    if len(text) == 1 and ord(text) < 0x10000:
        return f"\\u{ord(text):04X}"
    if len(text) == 1:
        over = ord(text) - 0x10000
        return f"\\u{0xD800 + (over >> 10):04X}\\u{0xDC00 + (over & 0x3FF):04X}"
    return text if text[1] != "u" else f"\\u{text[2:].upper()}"


def from_json(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``from_json(text, schema)``: values that do not fit are NULL, as are all fields of a
    text that is no JSON. Each distinct text is parsed once."""
    kind = call.type
    return by_value(args[0], lambda text: _parsed(text, kind), arrow_type(kind))


def _parsed(text: str, kind: DataType) -> Any:
    nothing = {name: None for name, _ in kind.fields} if kind.kind is TypeKind.STRUCT else None
    if not text.strip(" \t\r\n"):
        return None
    try:
        found = _wrapped(_first_value(text), kind)
    except (ValueError, RecursionError, OverflowError):
        return nothing
    return nothing if found is None else found


def _wrapped(value: Any, kind: DataType) -> Any:
    """Convert a JSON value to ``kind``; an object becomes an array of one."""
    if kind.kind is TypeKind.ARRAY and isinstance(value, dict):
        value = [value]
    return _value(value, kind)


def _value(value: Any, kind: DataType) -> Any:
    """Convert a value that ``from_json`` has parsed to ``kind``; None if it does not fit."""
    if value is None:
        return None
    here = kind.kind
    if here is TypeKind.STRUCT:
        if not isinstance(value, dict):
            return None
        return {name: _value(value.get(name), of) for name, of in kind.fields}
    if here is TypeKind.ARRAY:
        if not isinstance(value, list):
            return None
        items = [_value(one, kind.element) for one in value]
        pairs = zip(items, value, strict=True)
        # As in Spark, an array has no part that does not fit; only structs may.
        unfit = any(item is None and one is not None for item, one in pairs)
        return None if unfit else items
    if here is TypeKind.MAP:
        if not isinstance(value, dict):
            return None
        found = {name: _value(one, kind.element) for name, one in value.items()}
        unfit = any(found[name] is None and one is not None for name, one in value.items())
        return None if unfit else [(_encodable(name), one) for name, one in found.items()]
    if here is TypeKind.STRING:
        return _encodable(value if isinstance(value, str) else _written(value))
    if here is TypeKind.BOOLEAN:
        return value if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if here in INTEGRAL:
        half = 1 << (BITS[here] - 1)
        return value if isinstance(value, int) and -half <= value < half else None
    if here in FLOATING:
        if isinstance(value, str):
            return float(_NUMBERS[value]) if value in _NUMBERS else None
        return float(value) if isinstance(value, int | float) else None
    return _read(value, kind)


def _read(value: Any, kind: DataType) -> Any:
    """Convert parsed JSON to a decimal, date, time or binary; None if it does not fit ``kind``."""
    try:
        if kind.kind is TypeKind.DECIMAL:
            return (
                quantized(Decimal(str(value)), kind) if not isinstance(value, dict | list) else None
            )
        if not isinstance(value, str):
            return None
        if kind.kind is TypeKind.BINARY:
            return base64.b64decode(value, validate=True)
        if kind.kind is TypeKind.DATE and _DAYS.fullmatch(value):
            return date.fromordinal(_EPOCH + int(value))
        found = reader_of(kind)(value)
        return None if found is None else pa.scalar(found, arrow_type(kind)).as_py()
    except (ValueError, ArithmeticError, OverflowError, binascii.Error):
        return None


def to_json(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``to_json(value)``: fields that are NULL are left out."""
    if call.args[0].type.kind is TypeKind.VARIANT:
        return args[0]
    return json_of(args[0], _leaf, nulls=False).cast(pa.string())


def _leaf(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.large_string())
    if pa.types.is_floating(kind):
        texts = by_value(column, _number, pa.string())
        return texts.cast(pa.large_string())
    if pa.types.is_timestamp(kind):
        millis = column.cast(pa.timestamp("us")).cast(pa.timestamp("ms"), safe=False)
        text = pc.strftime(millis, "%Y-%m-%dT%H:%M:%S")
        if kind.tz is not None:
            text = pc.binary_join_element_wise(text, "Z", "")
        return json_strings(text.cast(pa.large_string()))
    if pa.types.is_binary(kind):
        coded = [None if v is None else base64.b64encode(v).decode() for v in column.to_pylist()]
        return json_strings(pa.array(coded, pa.large_string()))
    return json_strings(column.cast(pa.large_string()))


def _number(value: float) -> str:
    text = _written(value)
    return f'"{text}"' if text in _NUMBERS else text


#: Operation -> kernel.
JSON_VALUES: dict[str, Callable[[Call, list[pa.Array]], pa.Array]] = {
    "from_json": from_json,
    "get_json_object": get_json_object,
    "to_json": to_json,
}
