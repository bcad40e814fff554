"""Reading of JSON values with maps (whose names are data) or variants, which Arrow can't parse.

Objects and arrays of all rows are taken apart level by level into the raw texts of their members,
by a parser that leaves the members unparsed. Arrow then parses all values without maps at once. A
column either is a variant or has no variants in it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_runtime.columns.arrays import Bools, by_value
from anabranch_runtime.columns.nested import limits_of, lists, maps, read_json, structs
from anabranch_runtime.expressions.functions.variants import parsed

#: Types that Arrow's JSON parser can't read.
APART = (TypeKind.MAP, TypeKind.VARIANT)
_NULL = b"null"
_ARRAYS = msgspec.json.Decoder(list[list[msgspec.Raw] | None])
_OBJECTS = msgspec.json.Decoder(list[dict[str, msgspec.Raw] | None])


def values_of(raws: Sequence[Any], kind: DataType, form: pa.DataType) -> pa.Array:
    """Return the values of JSON texts in UTF-8, one value per text; NULL for None.

    Args:
        kind: type of the values.
        form: the Arrow type of such values in JSON, in which dates, for example, are texts.

    Raises:
        ValueError: a text is no JSON, does not fit, or has a name twice in an object.
        ExpressionError, pa.ArrowException: the same faults, found by Arrow or a cast.
    """
    if kind.kind is TypeKind.VARIANT:
        return by_value(pa.array(map(_text, raws), form), parsed, form)
    raws = [_NULL if raw is None else raw for raw in raws]
    if not kind.has(*APART):
        found = read_json(pa.array(map(bytes, raws), pa.binary()).cast(pa.string()), form)
        found.validate(full=kind.has(TypeKind.DECIMAL))
        return found
    values = _decoded(raws, _ARRAYS if kind.kind is TypeKind.ARRAY else _OBJECTS)
    valid = np.fromiter((one is not None for one in values), np.bool_, len(values))
    mask = None if valid.all() else valid
    if kind.kind is TypeKind.STRUCT:
        return _struct(values, kind, form, mask)
    limits = limits_of(np.fromiter((len(one or ()) for one in values), np.int64, len(values)))
    if kind.kind is TypeKind.ARRAY:
        items = list(chain.from_iterable(one or () for one in values))
        return lists(limits, values_of(items, kind.element, form.value_type), mask, form)
    keys = pa.array(chain.from_iterable(one or () for one in values), pa.string())
    items = list(chain.from_iterable(one.values() for one in values if one))
    return maps(limits, keys, values_of(items, kind.element, form.item_type), mask)


def _struct(values: list[Any], kind: DataType, form: pa.DataType, valid: Bools | None) -> pa.Array:
    """Convert JSON objects to structs; missing members are NULL, unknown members are ignored."""
    children = [
        values_of([None if one is None else one.get(name) for one in values], of, field.type)
        for (name, of), field in zip(kind.fields, form, strict=True)
    ]
    return structs(children, valid, form)


def _text(raw: Any) -> str | None:
    return None if raw is None else bytes(raw).decode()


def _decoded(raws: Sequence[Any], decoder: Any) -> list[Any]:
    text = b"[%b]" % b",".join(map(bytes, raws))
    try:
        values: list[Any] = decoder.decode(text)
        if decoder is _OBJECTS:
            # The first parser keeps the last of equal names; this one counts all names.
            counts = json.loads(text, object_pairs_hook=len, parse_int=len, parse_float=len)
            if any(map(_repeats, values, counts)):
                raise ValueError("a name is twice in an object")
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return values


def _repeats(value: Any, count: int | None) -> bool:
    return value is not None and len(value) != count
