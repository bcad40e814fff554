"""Column types: Spark's simple type strings, parsed once and compared by value.

>>> str(parse_type("DECIMAL(12, 2)"))
'decimal(12,2)'
>>> str(parse_type("array<struct<Id: long, `a b`: map<string, int>>>"))
'array<struct<Id:bigint,`a b`:map<string,int>>>'
>>> key_type([parse_type("int"), parse_type("decimal(10,2)")])
'decimal(38,2)'
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Any, Self

from anabranch_contract.errors import PlannerError


class TypeKind(StrEnum):
    """Kinds of column type. ``INTERVAL``: microseconds, in days and shorter units; ``MONTHS``:
    months, in years and months; ``VARIANT``: any JSON value."""

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
    MONTHS = "interval year to month"
    NULL = "void"
    ARRAY = "array"
    STRUCT = "struct"
    MAP = "map"
    VARIANT = "variant"


#: Integer types, shortest first.
WIDTHS = (TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT)
INTEGRAL = frozenset(WIDTHS)
FLOATING = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})
EXACT = INTEGRAL | {TypeKind.DECIMAL}
NUMERIC = EXACT | FLOATING
TIMESTAMPS = frozenset({TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_NTZ})
NESTED = frozenset({TypeKind.ARRAY, TypeKind.STRUCT, TypeKind.MAP})
#: Types of columns without equality and order.
UNORDERED = NESTED | {TypeKind.VARIANT}
#: Kind of interval -> the units of its type, longest first.
INTERVAL_UNITS = {
    TypeKind.INTERVAL: ("day", "hour", "minute", "second"),
    TypeKind.MONTHS: ("year", "month"),
}
INTERVALS = frozenset(INTERVAL_UNITS)
#: Key in the metadata of an Arrow field whose value is the name of an interval's type.
FIELD_TYPE = b"anabranch.type"
#: Maximum depth of a nested type, and maximum number of types in it.
MOST_DEEP, MOST_PARTS = 16, 1000


class DataType(str):
    """A column type: its text, with its parts as attributes. ``precision`` and ``scale`` belong to
    decimals; for intervals they are the numbers of the longest and shortest unit. ``fields``:
    (name, type) of a struct's fields, of an array's ``element``, or of a map's ``key`` and
    ``value``.

    >>> DataType(TypeKind.DECIMAL, 12, 2), DataType(TypeKind.INT).kind
    ('decimal(12,2)', <TypeKind.INT: 'int'>)
    """

    __slots__ = ("fields", "kind", "precision", "scale")
    kind: TypeKind
    precision: int
    scale: int
    fields: tuple[tuple[str, DataType], ...]

    def __new__(
        cls,
        kind: TypeKind,
        precision: int = 0,
        scale: int = 0,
        fields: tuple[tuple[str, DataType], ...] = (),
    ) -> Self:
        """Create the type of ``kind``; precision and scale are for decimals and intervals."""
        text = kind.value
        if kind is TypeKind.DECIMAL:
            text = f"decimal({precision},{scale})"
        elif kind in INTERVALS:
            text = " to ".join(dict.fromkeys(INTERVAL_UNITS[kind][n] for n in (precision, scale)))
            text = f"interval {text}"
        elif kind is TypeKind.STRUCT:
            text = f"struct<{','.join(f'{_field_name(name)}:{of}' for name, of in fields)}>"
        elif kind in NESTED:
            text = f"{kind}<{','.join(of for _, of in fields)}>"
        self = super().__new__(cls, text)
        self.kind, self.precision, self.scale, self.fields = kind, precision, scale, fields
        return self

    @property
    def element(self) -> DataType:
        """The type of an array's elements, or of a map's values."""
        return self.fields[-1][1]

    def has(self, *kinds: TypeKind) -> bool:
        """Whether the type, or a type nested in it, is one of ``kinds``."""
        return self.kind in kinds or any(of.has(*kinds) for _, of in self.fields)

    @property
    def named(self) -> bool:
        """Whether the keys of all nested maps are strings, like the names in JSON objects."""
        if self.kind is TypeKind.MAP and self.fields[0][1].kind is not TypeKind.STRING:
            return False
        return all(of.named for _, of in self.fields)

    def field(self, name: str) -> tuple[str, DataType] | None:
        """Return name and type of a struct's field with this name, in any case; None if absent."""
        found = [one for one in self.fields if one[0].lower() == name.lower()]
        return found[0] if found else None

    @property
    def units(self) -> tuple[str, str]:
        """The longest and the shortest unit of an interval type."""
        names = INTERVAL_UNITS[self.kind]
        return names[self.precision], names[self.scale]

    @classmethod
    @lru_cache(maxsize=1024)
    def from_text(cls, text: str) -> DataType:
        """Parse a type, also one that only expressions have (``void``, parts of intervals).

        Raises:
            PlannerError: the text names no supported type.
        """
        return _Reader(text, inner=True).whole()

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.kind, self.precision, self.scale, self.fields


def array_of(element: DataType) -> DataType:
    """Return the type of arrays of ``element``."""
    return DataType(TypeKind.ARRAY, fields=(("element", element),))


def map_of(key: DataType, value: DataType) -> DataType:
    """Return the type of maps from ``key`` to ``value``."""
    return DataType(TypeKind.MAP, fields=(("key", key), ("value", value)))


def struct_of(fields: Iterable[tuple[str, DataType]]) -> DataType:
    """Return the type of structs with these fields."""
    return DataType(TypeKind.STRUCT, fields=tuple(fields))


def interval_of(first: str, last: str) -> DataType:
    """Return the type of intervals with the units from ``first`` to ``last``.

    >>> str(interval_of("hour", "second")), str(interval_of("month", "month"))
    ('interval hour to second', 'interval month')

    Raises:
        PlannerError: there are no such intervals.
    """
    for kind, names in INTERVAL_UNITS.items():
        if first in names and last in names and names.index(first) <= names.index(last):
            return DataType(kind, names.index(first), names.index(last))
    raise PlannerError(
        "unknown-type",
        f"there are no intervals of {first.upper()} TO {last.upper()}",
        remedy="use DAY, HOUR, MINUTE, SECOND, or YEAR, MONTH, the longer unit first",
    )


def whole_interval(kind: TypeKind) -> DataType:
    """Return the interval type with all units of ``kind``."""
    return DataType(kind, 0, len(INTERVAL_UNITS[kind]) - 1)


_ALIASES = {
    "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint",
    "real": "float", "dec": "decimal", "numeric": "decimal", "bool": "boolean",
    "timestamp_ltz": "timestamp", "varchar": "string", "char": "string", "text": "string",
}  # fmt: skip
#: Types that only expressions have, not columns of streams.
_INNER = frozenset({TypeKind.NULL})
#: Pattern of allowed field names: no backticks, control characters or braces (as in ``${…}``).
FIELD = re.compile(r"[^`{}\x00-\x1f]+")
_SPAN = re.compile(r"\s*(\w+)(?:\s+to\s+(\w+))?", re.IGNORECASE)
_TOKEN = re.compile(rf"\s*(?:(\w+)|`({FIELD.pattern})`|([<>(),:]))")


def parse_type(text: str) -> DataType:
    """Parse one of Spark's simple type strings.

    Raises:
        PlannerError: the text names no supported type.
    """
    return _Reader(text, inner=False).whole()


def _field_name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else f"`{name}`"


class _Reader:
    """A parser of one type's text.

    Attributes:
        inner: whether to accept types that only expressions have (``void``).
    """

    def __init__(self, text: str, *, inner: bool) -> None:
        self._text, self._inner, self._at, self._parts = text, inner, 0, 0

    def whole(self) -> DataType:
        found = self._type(0)
        if self._text[self._at :].strip():
            raise self._unknown()
        return found

    def _unknown(self) -> PlannerError:
        shown = self._text if len(self._text) <= 200 else f"{self._text[:200]}…"
        names = [str(k) for k in TypeKind if k not in _INNER | NESTED | INTERVALS]
        names += ["interval day to second", "interval year to month"]
        names += ["array<…>", "struct<name:…>", "map<…,…>"]
        return PlannerError(
            "unknown-type",
            f"column type {shown!r} is not supported",
            remedy="use string, and get_json_object(x, '$.a') for its parts; or variant"
            if shown.lower() in ("json", "jsonb")
            else "use one of " + ", ".join(names),
        )

    def _next(self) -> str:
        """Consume and return the next token of the text; a quoted name begins with a backtick."""
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self._unknown()
        self._at = match.end()
        return match[1] or match[3] or f"`{match[2]}"

    def _is_next(self, token: str) -> bool:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match[3] != token:
            return False
        self._at = match.end()
        return True

    def _expect(self, token: str) -> None:
        if not self._is_next(token):
            raise self._unknown()

    def _type(self, depth: int) -> DataType:
        self._parts += 1
        if depth > MOST_DEEP or self._parts > MOST_PARTS:
            raise PlannerError(
                "unknown-type",
                f"a type is nested deeper than {MOST_DEEP} or has more than {MOST_PARTS} parts",
                remedy="declare the inner part as string, and use get_json_object()",
            )
        name = self._next().lower()
        name = _ALIASES.get(name, name)
        if name not in TypeKind.__members__.values():
            raise self._unknown()
        kind = TypeKind(name)
        if kind in _INNER and not self._inner:
            raise self._unknown()
        if kind is TypeKind.INTERVAL:
            return self._interval(depth)
        if kind is TypeKind.STRUCT:
            return DataType(kind, fields=self._fields(depth))
        if kind in NESTED:
            self._expect("<")
            first = self._type(depth + 1)
            fields: tuple[tuple[str, DataType], ...] = (("element", first),)
            if kind is TypeKind.MAP:
                self._expect(",")
                fields = (("key", first), ("value", self._type(depth + 1)))
            self._expect(">")
            return DataType(kind, fields=fields)
        numbers = self._numbers()
        if kind is not TypeKind.DECIMAL:
            # Ignore a length or precision, as in varchar(20) and timestamp(3).
            return DataType(kind)
        precision, scale = (*numbers, *(10, 0)[len(numbers) :])
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise PlannerError(
                "unknown-type",
                f"{self._text!r} is not a valid decimal",
                remedy="decimal(p,s) needs 1 <= p <= 38 and 0 <= s <= p",
            )
        return DataType(kind, precision, scale)

    def _interval(self, depth: int) -> DataType:
        match = _SPAN.match(self._text, self._at)
        if match is None or (depth and not self._inner):
            raise self._unknown()
        self._at = match.end()
        return interval_of(match[1].lower(), (match[2] or match[1]).lower())

    def _numbers(self) -> tuple[int, ...]:
        if not self._is_next("("):
            return ()
        found = [self._next()]
        if self._is_next(","):
            found.append(self._next())
        self._expect(")")
        if not all(one.isdecimal() and one.isascii() for one in found):
            raise self._unknown()
        return tuple(map(int, found))

    def _fields(self, depth: int) -> tuple[tuple[str, DataType], ...]:
        found: dict[str, tuple[str, DataType]] = {}
        self._expect("<")
        while not self._is_next(">"):
            if found:
                self._expect(",")
            token = self._next()
            name = token.removeprefix("`")
            self._is_next(":")
            if token in tuple("<>(),:") or name.lower() in found:
                raise self._unknown()
            found[name.lower()] = (name, self._type(depth + 1))
        if not found:
            raise self._unknown()
        return tuple(found.values())


def widens(old: DataType, new: DataType) -> bool:
    """Whether a column's type may be changed from ``old`` to ``new``: ``new`` has all values of
    ``old``, and Delta and Iceberg tables allow the change: to a longer integer, from float to
    double, to a decimal with more digits before the point, from date to timestamp without time
    zone.

    >>> [widens(parse_type("int"), parse_type(new)) for new in ("bigint", "smallint", "double")]
    [True, False, False]
    """
    if old.kind in INTEGRAL and new.kind in INTEGRAL:
        return WIDTHS.index(old.kind) < WIDTHS.index(new.kind)
    if old.kind is new.kind is TypeKind.DECIMAL:
        return old.scale == new.scale and old.precision < new.precision
    return (old.kind, new.kind) in (
        (TypeKind.FLOAT, TypeKind.DOUBLE),
        (TypeKind.DATE, TypeKind.TIMESTAMP_NTZ),
    )


def key_type(types: Iterable[DataType]) -> str | None:
    """Return the type in which a key class's attributes are compared; None if they can't be.

    Equality within a class must be exact and transitive. So integers and decimals are compared as
    ``bigint`` or ``decimal(38,s)`` (``s`` the greatest scale), floats as ``double``, intervals of
    one kind as ``bigint``, by their microseconds or months. Equality of
    floats with exact numbers is *not* transitive, so they never share a class; the normaliser first
    casts the exact side to a float, as Spark does.
    """
    seen = list(types)
    kinds = {t.kind for t in seen}
    if kinds <= INTEGRAL or (len(kinds) == 1 and kinds <= INTERVALS):
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
