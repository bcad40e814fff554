"""Functions of the type ``variant``, whose values are stored as canonical JSON texts.

A text is canonical if it is the one that Spark's ``to_json`` writes of a variant: names sorted, no
spaces, decimals without zeros at their end, doubles as Java writes them. So equal variants have
equal texts. A number with an exponent or with ``.0`` at its end is a double; other numbers are
integers of 64 bits or decimals of 38 digits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.coercion import castable
from anabranch_contract.queries.expressions import Call, Literal
from anabranch_contract.queries.json_paths import steps
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_runtime.columns.arrays import assemble, by_value
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.columns.nested import limits_of, lists, maps, structs
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.expressions.casts import cast, java_text
from anabranch_runtime.expressions.functions.json_values import no_constant

#: Maximum digits of an exact number, and maximum characters of any number.
_DIGITS, _LONGEST = 38, 1000
_SHOWN = 80
#: Text after the first JSON value, which is ignored: after a number, and after a word.
_AFTER_NUMBER, _AFTER_WORD = re.compile(r"[ \t\r\n]|\Z"), re.compile(r"\W|\Z")
#: Python type of a variant's value -> its SQL type, without precision and scale.
_KINDS = {
    bool: DataType(TypeKind.BOOLEAN),
    int: DataType(TypeKind.BIGINT),
    float: DataType(TypeKind.DOUBLE),
    str: DataType(TypeKind.STRING),
}
_UNICODE = re.compile(r"\\u00[01][0-9a-f]")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VOID, _WIDE_BIGINT = DataType(TypeKind.NULL), DataType(TypeKind.DECIMAL, 20, 0)
#: Type of a variant: of a simple value; of an object, by member name; of an array's elements.
_Type = DataType | dict[str, "_Type"] | list["_Type"]


class _Missing:
    """Marks a path without a value in a variant; None stands for the value ``null``."""


_MISSING = _Missing()


# --- texts --------------------------------------------------------------------------------------


def parse_json(_call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``parse_json(text)``: texts as variants. Each distinct text is parsed once.

    Raises:
        ExpressionError: a text is no JSON, or has a name twice in an object.
    """
    return by_value(args[0], parsed, pa.string())


def parsed(text: str) -> str:
    """Return the canonical text of the variant that is the first JSON value of ``text``.

    Raises:
        ExpressionError: the text has no JSON value, or a name is twice in an object.

    >>> parsed('{"b": 1.50, "a": [1e2, "x"]} rest')
    '{"a":[100.0,"x"],"b":1.5}'
    """
    begun = text.lstrip(" \t\r\n")
    try:
        value, end = _STRICT.raw_decode(begun)
        after = _AFTER_NUMBER if begun[end - 1] in "0123456789" else _AFTER_WORD
        if begun[0] not in '{["' and not after.match(begun, end):
            raise ValueError("another value follows immediately")
        made = _text(value)
        made.encode()
    except (ValueError, RecursionError) as error:
        raise ExpressionError(
            "bad-json",
            f"{text[:_SHOWN]!r} is not JSON that a variant can have: {error}",
            remedy="write try_parse_json(...) for NULL in its place",
        ) from error
    return made


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is twice in an object")
    return found


def _integer(text: str) -> int | Decimal | float:
    if len(text) > _DIGITS + 1:
        return _fraction(text)
    value = int(text)
    return value if -(2**63) <= value < 2**63 else _fraction(text)


def _fraction(text: str) -> Decimal | float:
    if len(text) > _LONGEST:
        raise ValueError("a number has more than a thousand characters")
    if "e" not in text and "E" not in text:
        value = Decimal(text)
        _, digits, exponent = value.as_tuple()
        if len(digits) <= _DIGITS and -int(exponent) <= _DIGITS:
            return value
    double = float(text)
    if math.isinf(double):
        raise ValueError("a number is beyond the range of doubles")
    return double


def _canonical_fraction(text: str) -> Decimal | float:
    return float(text) if text.endswith(".0") else _fraction(text)


_STRICT = json.JSONDecoder(
    object_pairs_hook=_once, parse_constant=no_constant, parse_int=_integer, parse_float=_fraction
)
_CANONICAL = json.JSONDecoder(parse_int=_integer, parse_float=_canonical_fraction)


def _text(value: Any) -> str:
    """Return the canonical JSON text of a variant's value."""
    if isinstance(value, str):
        quoted = json.dumps(value, ensure_ascii=False)
        return _UNICODE.sub(lambda m: "\\u" + m[0][2:].upper(), quoted)
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return "{" + ",".join(f"{_text(name)}:{_text(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return java_text(value) if isinstance(value, float) else _exact(value)


def _exact(value: int | Decimal) -> str:
    """Return the text of an exact number, without zeros at the end of its fraction."""
    text = format(value, "f") if isinstance(value, Decimal) else str(value)
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


# --- values -------------------------------------------------------------------------------------


def variant_get(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``variant_get(variant, path)`` as the call's type; NULL if the path leads nowhere.
    With a third argument, values that can't be cast are NULL too.

    Raises:
        ExpressionError: a value can't be cast.
    """
    path = call.args[1]
    assert isinstance(path, Literal)
    through = steps(str(path.value))
    encoded = args[0].dictionary_encode()
    found = [_at(_CANONICAL.decode(text), through) for text in encoded.dictionary.to_pylist()]
    return _values(found, call.type, len(args) > 2).take(encoded.indices)


def _at(value: Any, through: tuple[str | int, ...]) -> Any:
    for step in through:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step, _MISSING)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return _MISSING
    return value


def _values(values: list[Any], kind: DataType, lenient: bool) -> pa.Array:
    """Cast variants' values to ``kind``, and the elements of all their arrays in one call."""
    here, target = kind.kind, arrow_type(kind)
    if here is TypeKind.VARIANT:
        return pa.array([None if one is _MISSING else _text(one) for one in values], target)
    values = [None if one is _MISSING else one for one in values]
    if here is TypeKind.STRING:
        texts = (one if one is None or isinstance(one, str) else _text(one) for one in values)
        return pa.array(texts, target)
    if not kind.fields:
        return _simple(values, kind, lenient)
    form = list if here is TypeKind.ARRAY else dict
    for one in values:
        if not isinstance(one, form):
            _unfit(one, kind, lenient)
    values = [one if isinstance(one, form) else None for one in values]
    valid = np.fromiter((one is not None for one in values), np.bool_, len(values))
    if here is TypeKind.STRUCT:
        children = [
            _values([_MISSING if v is None else v.get(name, _MISSING) for v in values], of, lenient)
            for name, of in kind.fields
        ]
        return structs(children, valid, target)
    limits = limits_of(np.fromiter((len(one or ()) for one in values), np.int64, len(values)))
    if here is TypeKind.ARRAY:
        inner = _values(list(chain.from_iterable(filter(None, values))), kind.element, lenient)
        return lists(limits, inner, valid, target)
    pairs = [pair for one in values if one for pair in one.items()]
    inner = _values([value for _, value in pairs], kind.element, lenient)
    return maps(limits, pa.array([name for name, _ in pairs], pa.string()), inner, valid)


def _unfit(value: Any, kind: DataType, lenient: bool) -> None:
    """Raise an error for a variant that is no ``kind``, unless it is ``null``, or ``lenient``.

    Raises:
        ExpressionError: the value can't be cast.
    """
    if value is not None and not lenient:
        raise ExpressionError(
            "bad-cast",
            f"the variant {_text(value)[:_SHOWN]} can't be cast to {kind}",
            remedy="write try_variant_get(...) or TRY_CAST for NULL in its place",
        )


def _simple(values: list[Any], kind: DataType, lenient: bool) -> pa.Array:
    """Cast variants' values that are no objects or arrays to ``kind``, all of one type at once."""
    rows: dict[DataType, list[int]] = {}
    for row, value in enumerate(values):
        if value is None:
            continue
        source = _KINDS.get(type(value))
        if isinstance(value, Decimal):
            scale = len(_exact(value).partition(".")[2])
            source = DataType(TypeKind.DECIMAL, _DIGITS, scale)
        if source is None or not castable(source, kind):
            _unfit(value, kind, lenient)
        else:
            rows.setdefault(source, []).append(row)
    pieces = []
    for source, places in rows.items():
        column = pa.array([values[row] for row in places], arrow_type(source))
        pieces.append((np.array(places), _cast(column, source, kind, lenient)))
    return assemble(pieces, len(values), arrow_type(kind))


def _cast(column: pa.Array, source: DataType, kind: DataType, lenient: bool) -> pa.Array:
    try:
        return cast(column, source, kind)
    except ExpressionError:
        if len(column) == 1:
            _unfit(column[0].as_py(), kind, lenient)
            return pa.nulls(1, arrow_type(kind))
    half = len(column) // 2
    return pa.concat_arrays(
        [_cast(part, source, kind, lenient) for part in (column[:half], column[half:])]
    )


# --- types --------------------------------------------------------------------------------------


def schema_of_variant(_call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``schema_of_variant(variant)``. Each distinct variant's type is found once."""
    return by_value(args[0], schema_of, pa.string())


def schema_of(text: str) -> str:
    """Return the SQL type of the variant with the canonical ``text``.

    >>> schema_of('{"a":[1,1.5,null],"b c":"x"}')
    'OBJECT<a: ARRAY<DECIMAL(21,1)>, `b c`: STRING>'
    """
    return _type_text(_type_of(_CANONICAL.decode(text)))


def _type_of(value: Any) -> _Type:
    if isinstance(value, dict):
        return {name: _type_of(one) for name, one in value.items()}
    if isinstance(value, list):
        start: _Type = _VOID
        return [reduce(_met, map(_type_of, value), start)]
    if value is None:
        return _VOID
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        scale = -int(exponent)
        return DataType(TypeKind.DECIMAL, max(len(digits), scale), scale)
    return _KINDS[type(value)]


def _met(one: _Type, other: _Type) -> _Type:
    """Return the type of variants of either type: a number type, merged members, or VARIANT."""
    if one == other or other == _VOID:
        return one
    if one == _VOID:
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted({*one, *other}, key=lambda name: name.encode("utf-16-be"))
        return {name: _met(one.get(name, _VOID), other.get(name, _VOID)) for name in names}
    if isinstance(one, list) and isinstance(other, list):
        return [_met(one[0], other[0])]
    if isinstance(one, DataType) and isinstance(other, DataType):
        kinds = {one.kind, other.kind}
        if kinds <= {TypeKind.BIGINT, TypeKind.DECIMAL}:
            wide = [_WIDE_BIGINT if kind.kind is TypeKind.BIGINT else kind for kind in (one, other)]
            scale = max(kind.scale for kind in wide)
            digits = max(kind.precision - kind.scale for kind in wide) + scale
            fits = digits <= _DIGITS
            return DataType(TypeKind.DECIMAL, digits, scale) if fits else _KINDS[float]
        if kinds <= {TypeKind.BIGINT, TypeKind.DECIMAL, TypeKind.DOUBLE}:
            return _KINDS[float]
    return DataType(TypeKind.VARIANT)


def _type_text(kind: _Type) -> str:
    if isinstance(kind, dict):
        members = (f"{_quoted(name)}: {_type_text(one)}" for name, one in kind.items())
        return f"OBJECT<{', '.join(members)}>"
    if isinstance(kind, list):
        return f"ARRAY<{_type_text(kind[0])}>"
    return "VOID" if kind == _VOID else str(kind).upper()


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


#: Operation -> kernel.
VARIANTS: dict[str, Callable[[Call, list[pa.Array]], pa.Array]] = {
    "parse_json": parse_json,
    "schema_of_variant": schema_of_variant,
    "variant_get": variant_get,
}
