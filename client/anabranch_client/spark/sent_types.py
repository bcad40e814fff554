"""Types of Spark's columns that are pushed in another form, or not at all."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql.functions import to_json
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from anabranch_client.errors import UsageError


def check_sent(name: str, kind: DataType) -> None:
    """Check that a column can be pushed.

    Raises:
        UsageError: it has variants inside another type.
    """
    if not isinstance(kind, VariantType) and _contains(kind, VariantType):
        raise UsageError(
            f"the column {name!r} of type {kind.simpleString()} has variants inside another type, "
            "which can't be pushed",
            field="df",
            remedy="make it one variant, or text: to_json",
        )


def _contains(kind: DataType, sort: type[DataType]) -> bool:
    if isinstance(kind, ArrayType):
        return _contains(kind.elementType, sort)
    if isinstance(kind, MapType):
        return _contains(kind.keyType, sort) or _contains(kind.valueType, sort)
    if isinstance(kind, StructType):
        return any(_contains(field.dataType, sort) for field in kind)
    return isinstance(kind, sort)


def _months_as_text(kind: DataType) -> DataType:
    """A type with texts in place of intervals of months, which Arrow tables of Spark's lack."""
    if isinstance(kind, ArrayType):
        return ArrayType(_months_as_text(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        inner = _months_as_text(kind.keyType), _months_as_text(kind.valueType)
        return MapType(*inner, kind.valueContainsNull)
    if isinstance(kind, StructType):
        found = StructType()
        for field in kind:
            found = found.add(field.name, _months_as_text(field.dataType), field.nullable)
        return found
    return StringType() if isinstance(kind, YearMonthIntervalType) else kind


def sent_column(column: Column, kind: DataType) -> Column:
    """A column of a type that Spark converts to Arrow: variants and intervals of months as text."""
    if isinstance(kind, VariantType):
        return to_json(column)
    return column.cast(_months_as_text(kind)) if _contains(kind, YearMonthIntervalType) else column
