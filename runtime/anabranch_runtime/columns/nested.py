"""Arrays, structs and maps as flat columns: offsets per row, and the values of all rows.

A list column of Arrow may have values behind NULLs and before its first row; the functions here
return offsets (``limits``) that begin at 0, and no values for NULL rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from anabranch_contract.queries.types import INTEGRAL, NESTED, TIMESTAMPS, DataType, TypeKind
from anabranch_runtime.columns.arrays import Bools, Ints, present
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import ExpressionError


def elements(column: pa.Array) -> tuple[Ints, pa.Array]:
    """Flatten a list or map column: return the offsets of its rows (one more than there are rows),
    and the elements of all rows. A map's elements are structs of key and value."""
    if pa.types.is_map(column.type):
        key = pa.field("key", column.type.key_type, nullable=False)
        column = column.cast(pa.list_(pa.struct([key, ("value", column.type.item_type)])))
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return limits_of(lengths), pc.list_flatten(column)


def limits_of(sizes: npt.NDArray[Any]) -> Ints:
    """Return the offsets of an Arrow list column, from the sizes of its lists."""
    limits = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=limits[1:])
    return limits


def owners(limits: Ints) -> Ints:
    """Return the row number of each element of an Arrow list column with offsets ``limits``."""
    return np.repeat(np.arange(len(limits) - 1), np.diff(limits))


def lists(limits: Ints, values: pa.Array, valid: Bools | None, kind: pa.DataType) -> pa.Array:
    """Return the list column with offsets ``limits`` over ``values``, NULL where not valid.

    Raises:
        ExpressionError: there are too many values for Arrow.
    """
    if limits[-1] >= 2**31:
        raise ExpressionError(
            "too-long",
            f"arrays of a batch have {limits[-1]} elements",
            remedy="make the arrays shorter",
        )
    mask = None if valid is None else pa.array(~valid)
    made = pa.ListArray.from_arrays(pa.array(limits.astype(np.int32)), values, mask=mask)
    return made if made.type == kind else made.cast(kind)


def structs(children: list[pa.Array], valid: Bools | None, kind: Any) -> pa.Array:
    """Return the struct column of ``children`` with fields of ``kind``, NULL where not valid."""
    mask = None if valid is None else pa.array(~valid)
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def maps(limits: Ints, keys: pa.Array, values: pa.Array, valid: Bools | None) -> pa.Array:
    """Return the map column with offsets ``limits`` over keys and values, NULL where not valid."""
    offsets = pa.array(limits.astype(np.int32))
    if valid is None:
        return pa.MapArray.from_arrays(offsets, keys, values)
    return pa.MapArray.from_arrays(offsets, keys, values, mask=pa.array(~valid))


def rebuilt(
    column: pa.Array, kind: DataType, part: Callable[[pa.Array, int], pa.Array]
) -> pa.Array:
    """Return ``column`` with its direct parts (fields, elements, or keys and values) converted to
    the types of ``kind``, which has the same nesting.

    Args:
        part: converts a part, given its number (a struct's field, or 0 for elements or keys and 1
            for values).
    """
    valid, target = present(column), arrow_type(kind)
    if kind.kind is TypeKind.STRUCT:
        parts = [part(pc.struct_field(column, [n]), n) for n in range(len(kind.fields))]
        return structs(parts, valid, target)
    limits, values = elements(column)
    if kind.kind is TypeKind.ARRAY:
        return lists(limits, part(values, 0), valid, target)
    keys, items = (part(pc.struct_field(values, [n]), n) for n in (0, 1))
    return maps(limits, keys, items, valid)


def converted(
    column: pa.Array, kind: DataType, leaf: Callable[[pa.Array, DataType], pa.Array]
) -> pa.Array:
    """Return ``column`` with its innermost values converted by ``leaf`` to types of ``kind``."""
    if kind.kind not in NESTED:
        return leaf(column, kind)
    return rebuilt(column, kind, lambda part, n: converted(part, kind.fields[n][1], leaf))


def json_objects(
    names: Sequence[str], texts: Sequence[pa.Array], *, nulls: bool = True
) -> pa.Array:
    """Return one JSON object per row, with members ``names`` and their JSON values ``texts``.

    Args:
        nulls: whether members that are NULL are written.
    """
    before = [f",{json.dumps(name, ensure_ascii=False)}:" for name in names]
    if nulls:
        pairs = zip(["{" + before[0][1:], *before[1:]], texts, strict=True)
        return _joined(
            [part for name, one in pairs for part in (name, pc.fill_null(one, "null"))] + ["}"]
        )
    members = [
        pc.fill_null(_joined([name, one]), "") for name, one in zip(before, texts, strict=True)
    ]
    return _joined(["{", pc.utf8_slice_codeunits(_joined(members), 1), "}"])


def json_of(
    column: pa.Array, leaf: Callable[[pa.Array], pa.Array], *, nulls: bool = True
) -> pa.Array:
    """Return the JSON text of each value of a nested column. ``leaf`` returns the texts of values
    that are not nested. A NULL value gives NULL, a NULL inside a value ``null``. Maps become
    objects, with the texts of their keys as names.

    Args:
        nulls: whether fields that are NULL are written.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        fields = [pc.struct_field(column, [n]) for n in range(kind.num_fields)]
        names = [field.name for field in kind]
        texts = json_objects(
            names, [json_of(one, leaf, nulls=nulls) for one in fields], nulls=nulls
        )
        return pc.if_else(column.is_valid(), texts, _NO_TEXT)
    if is_nested(kind):
        limits, values = elements(column)
        texts, around = _texts(values, kind, leaf, nulls), "{}" if pa.types.is_map(kind) else "[]"
        inner = lists(limits, texts, present(column), pa.list_(pa.large_string()))
        return _joined(
            [around[0], pc.binary_join(inner, pa.scalar(",", pa.large_string())), around[1]]
        )
    return leaf(column).cast(pa.large_string())


def _texts(
    values: pa.Array, kind: pa.DataType, leaf: Callable[[pa.Array], pa.Array], nulls: bool
) -> pa.Array:
    """Return elements of a nested column as JSON texts; entries of a map as ``"key": value``."""
    if not pa.types.is_map(kind):
        return pc.fill_null(json_of(values, leaf, nulls=nulls), "null")
    keys, items = (json_of(pc.struct_field(values, [at]), leaf, nulls=nulls) for at in (0, 1))
    quoted = pc.if_else(pc.starts_with(keys, '"'), keys, _joined(['"', keys, '"']))
    return _joined([quoted, ":", pc.fill_null(items, "null")])


def _joined(parts: list[Any]) -> pa.Array:
    text = [pa.scalar(p, pa.large_string()) if isinstance(p, str) else p for p in parts]
    return pc.binary_join_element_wise(*text, pa.scalar("", pa.large_string()))


def is_nested(kind: pa.DataType) -> bool:
    """Whether the Arrow type ``kind`` is an array, struct or map."""
    return bool(pa.types.is_nested(kind))


def read_json(texts: pa.Array, form: pa.DataType) -> pa.Array:
    """Return the nested values of JSON texts; NULL texts give NULL.

    Args:
        form: the Arrow type as which the JSON is parsed.

    Raises:
        pa.ArrowException: a text is not JSON, or does not fit ``form``.
    """
    if not len(texts):
        return pa.nulls(0, form)
    lines = _joined(['{"v":', pc.fill_null(texts.cast(pa.large_string()), "null"), "}\n"])
    data = b"".join(lines.cast(pa.large_binary()).to_pylist())
    return json_lines(data, pa.schema([("v", form)])).column("v").combine_chunks()


def json_lines(lines: bytes, schema: pa.Schema) -> pa.Table:
    """Parse JSON lines as one block of rows; fields that ``schema`` lacks are ignored.

    Raises:
        pa.ArrowException: a line is not JSON, or does not fit ``schema``.
    """
    return pj.read_json(
        pa.BufferReader(lines),
        read_options=pj.ReadOptions(use_threads=False, block_size=max(len(lines) + 1, 1 << 16)),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )


# --- exact texts: maintained tables encode a nested value as the number of its text -------------


def exact_text(column: pa.Array) -> pa.Array:
    """Return each nested value as a text from which :func:`exact_value` restores it. Equal values
    have equal texts; floats are written as their bits."""
    return json_of(_as_pairs(column), _exact_leaf).cast(pa.string())


def exact_value(texts: pa.Array, kind: DataType) -> pa.Array:
    """Restore the nested values of type ``kind`` from their texts by :func:`exact_text`."""
    return converted(read_json(texts, _exact_form(kind)), kind, _from_exact)


def _as_pairs(column: pa.Array) -> pa.Array:
    """Return ``column`` with maps, at any depth, as lists of structs of key and value."""
    kind = column.type
    if pa.types.is_struct(kind):
        children = [_as_pairs(pc.struct_field(column, [at])) for at in range(kind.num_fields)]
        fields = [field.with_type(c.type) for field, c in zip(kind, children, strict=True)]
        return structs(children, present(column), fields)
    if is_nested(kind):
        limits, values = elements(column)
        values = _as_pairs(values)
        return lists(limits, values, present(column), pa.list_(values.type))
    return column


def _exact_leaf(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_floating(kind):
        column = column.view(pa.int32() if pa.types.is_float32(kind) else pa.int64())
    elif pa.types.is_date(kind):
        column = column.view(pa.int32())
    elif pa.types.is_temporal(kind):
        column = column.view(pa.int64())
    elif pa.types.is_binary(kind):
        column = pa.array([None if v is None else v.hex() for v in column.to_pylist()], pa.string())
    text = column.cast(pa.large_string())
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return text
    return json_strings(text)


def _exact_form(kind: DataType) -> pa.DataType:
    if kind.kind is TypeKind.ARRAY:
        return pa.list_(_exact_form(kind.element))
    if kind.kind is TypeKind.MAP:
        return pa.list_(pa.struct([(name, _exact_form(of)) for name, of in kind.fields]))
    if kind.kind is TypeKind.STRUCT:
        return pa.struct([(name, _exact_form(of)) for name, of in kind.fields])
    if kind.kind in INTEGRAL or kind.kind is TypeKind.BOOLEAN:
        return arrow_type(kind)
    if kind.kind in (TypeKind.DATE, TypeKind.FLOAT):
        return pa.int32()
    if kind.kind in TIMESTAMPS or kind.kind in (TypeKind.DOUBLE, TypeKind.INTERVAL):
        return pa.int64()
    return pa.null() if kind.kind is TypeKind.NULL else pa.string()


def _from_exact(column: pa.Array, kind: DataType) -> pa.Array:
    if kind.kind is TypeKind.BINARY:
        values = [None if v is None else bytes.fromhex(v) for v in column.to_pylist()]
        return pa.array(values, pa.binary())
    target = arrow_type(kind)
    if kind.kind is TypeKind.DECIMAL or kind.kind is TypeKind.NULL:
        return column.cast(target)
    return column if column.type == target else column.view(target)


#: Control characters, which JSON escapes like the quote and the backslash.
_CONTROLS = "[\\x00-\\x1f]"
_NO_TEXT = pa.scalar(None, pa.large_string())


def json_strings(text: pa.Array) -> pa.Array:
    """Return JSON strings of texts; NULL for NULL."""
    escaped = pc.replace_substring(text, "\\", "\\\\")
    escaped = _joined(['"', pc.replace_substring(escaped, '"', '\\"'), '"'])
    special = pc.match_substring_regex(text, _CONTROLS)
    if not pc.any(special).as_py():
        return escaped
    # Control characters are rare: values that contain one are encoded separately.
    mask = pc.fill_null(special, False)
    coded = [json.dumps(v, ensure_ascii=False) for v in pc.filter(text, mask).to_pylist()]
    return pc.replace_with_mask(escaped, mask, pa.array(coded, pa.large_string()))
