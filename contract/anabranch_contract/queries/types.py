"""Column types: Spark's simple type strings, parsed once and compared by value.

>>> str(parse_type("DECIMAL(12, 2)"))
'decimal(12,2)'
>>> key_type([parse_type("int"), parse_type("decimal(10,2)")])
'decimal(38,2)'
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Self

from anabranch_contract.errors import PlannerError


class TypeKind(StrEnum):
    """Kinds of column type. ``INTERVAL`` appears inside expressions only (microseconds)."""

    TINYINT = "tinyint"
    SMALLINT = "smallint"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"
    BINARY = "binary"
    INTERVAL = "interval"
    NULL = "void"


INTEGRAL = frozenset({TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT})
FLOATING = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})
EXACT = INTEGRAL | {TypeKind.DECIMAL}
NUMERIC = EXACT | FLOATING
TIMESTAMPS = frozenset({TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_NTZ})


class DataType(str):
    """A column type: its text, and its parts as attributes. Precision and scale are a decimal's.

    >>> DataType(TypeKind.DECIMAL, 12, 2), DataType(TypeKind.INT).kind
    ('decimal(12,2)', <TypeKind.INT: 'int'>)
    """

    __slots__ = ("kind", "precision", "scale")
    kind: TypeKind
    precision: int
    scale: int

    def __new__(cls, kind: TypeKind, precision: int = 0, scale: int = 0) -> Self:
        """Make the type of ``kind``; precision and scale are for decimals."""
        decimal = kind is TypeKind.DECIMAL
        self = super().__new__(cls, f"decimal({precision},{scale})" if decimal else kind.value)
        self.kind, self.precision, self.scale = kind, precision, scale
        return self

    @classmethod
    @lru_cache(maxsize=1024)
    def from_text(cls, text: str) -> DataType:
        """Parse a type, also one that only expressions have (``interval``, ``void``).

        Raises:
            PlannerError: the text names no supported type.
        """
        if text in (TypeKind.INTERVAL, TypeKind.NULL):
            return cls(TypeKind(text))
        return parse_type(text)

    def __getnewargs__(self) -> tuple[TypeKind, int, int]:  # type: ignore[override]
        return self.kind, self.precision, self.scale


_ALIASES = {
    "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint",
    "real": "float", "dec": "decimal", "numeric": "decimal", "bool": "boolean",
    "timestamp_ltz": "timestamp", "varchar": "string", "char": "string", "text": "string",
}  # fmt: skip
_PATTERN = re.compile(r"^\s*([a-z_]+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*$")


def parse_type(text: str) -> DataType:
    """Parse one of Spark's simple type strings.

    Raises:
        PlannerError: the text names no supported type.
    """
    match = _PATTERN.match(text.lower())
    name = match.group(1) if match else ""
    name = _ALIASES.get(name, name)
    if not match or name not in TypeKind.__members__.values() or name in {"interval", "void"}:
        raise PlannerError(
            "unknown-type",
            f"column type {text!r} is not supported",
            remedy="use one of " + ", ".join(k for k in TypeKind if k not in ("interval", "void")),
        )
    if name != "decimal":
        return DataType(TypeKind(name))
    precision, scale = int(match.group(2) or 10), int(match.group(3) or 0)
    if not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise PlannerError(
            "unknown-type",
            f"{text!r} is not a valid decimal",
            remedy="decimal(p,s) needs 1 <= p <= 38 and 0 <= s <= p",
        )
    return DataType(TypeKind.DECIMAL, precision, scale)


def key_type(types: Iterable[DataType]) -> str | None:
    """Return the type in which a key class's attributes are compared; None if not comparable.

    Equality within a class must be exact and transitive. So integers and decimals are compared as
    ``bigint`` or ``decimal(38,s)`` (``s`` the greatest scale), floats as ``double``. Equality of
    floats with exact numbers is *not* transitive, so they never share a class; the normaliser first
    casts the exact side to a float, as Spark does.
    """
    seen = list(types)
    kinds = {t.kind for t in seen}
    if kinds <= INTEGRAL:
        return "bigint"
    if kinds <= EXACT:
        return f"decimal(38,{max(t.scale for t in seen)})"
    if kinds <= FLOATING:
        return "double"
    if kinds <= TIMESTAMPS:
        return "timestamp"
    if len(kinds) == 1 and kinds <= {
        TypeKind.STRING,
        TypeKind.BOOLEAN,
        TypeKind.DATE,
        TypeKind.BINARY,
    }:
        return next(iter(kinds)).value
    return None
