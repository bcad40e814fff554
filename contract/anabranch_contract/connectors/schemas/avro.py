"""Avro schemas: parsed once, names of types resolved when they are used.

>>> text = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}'
>>> found = parse_schema(text)
>>> [(field.name, field.type.kind) for field in found.root.fields]
[('a', 'int')]
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch_contract.connectors.schemas.registered import Get, referred
from anabranch_contract.errors import StreamError

PRIMITIVE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
#: Maximum depth of an Avro schema's text, and maximum number of its types.
MOST_DEEP, MOST_TYPES = 64, 5000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_MISSING = object()


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type in an Avro schema.

    Attributes:
        kind: a primitive type, or ``record``, ``enum``, ``fixed``, ``array``, ``map``, ``union``;
            ``name``: a reference to the named type ``name``.
        name: full name of a named type. ``logical``: the logical type; empty: none.
        size: bytes of a ``fixed``. ``precision``, ``scale``: precision and scale of a decimal.
        symbols: symbols of an ``enum``. ``fields``: fields of a ``record``.
        parts: branches of a ``union``, the elements of an ``array`` or values of a ``map``.
    """

    kind: str
    name: str = ""
    logical: str = ""
    size: int = 0
    precision: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    fields: tuple[AvroField, ...] = ()
    parts: tuple[AvroType, ...] = ()


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of an Avro record; ``default`` is a JSON text, None if the field has no default."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """An Avro schema: its record, and its named types by full name."""

    root: AvroType
    named: Mapping[str, AvroType]

    def resolved(self, type: AvroType) -> AvroType:
        """Return the type to which the Avro reference ``type`` refers; other types unchanged."""
        return self.named[type.name] if type.kind == "name" else type


def parse_schema(text: str, earlier: Mapping[str, AvroType] | None = None) -> AvroSchema:
    """Parse the JSON text of an Avro record's schema.

    Args:
        text: the JSON text.
        earlier: named types of other schemas to which this one refers.

    Raises:
        StreamError: the text is not the schema of a record.
    """
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise _bad("it is not JSON") from None
    reader = _SchemaReader(dict(earlier or {}))
    root = reader.read(given, "", 0)
    schema = AvroSchema(root, reader.named)
    if root.kind == "name":
        root = reader.named[root.name]
        schema = AvroSchema(root, reader.named)
    for name in reader.used:
        if name not in reader.named:
            raise _bad(f"the type {name[:60]!r} is not defined")
    return schema


def record_schema(text: str) -> AvroSchema:
    """Parse the Avro schema of messages, which must be a record.

    Raises:
        StreamError: the text is no schema, or not the schema of a record.
    """
    found = parse_schema(text)
    if found.root.kind != "record":
        raise _bad(f"its type is {found.root.kind}, not record")
    return found


def registered_schema(answer: Mapping[str, Any], get: Get) -> AvroSchema | None:
    """Parse a registry's answer, an Avro schema, with the schemas to which it refers.

    Args:
        get: returns the registry's answer for a path.

    Returns:
        The schema; None if the answer is not the schema of an Avro record.
    """
    named = dict[str, AvroType]()
    try:
        if answer.get("schemaType", "AVRO") != "AVRO":
            return None
        for text in referred(answer, get).values():
            named |= parse_schema(text, named).named
        found = parse_schema(str(answer["schema"]), named)
    except (StreamError, KeyError):
        return None
    return found if found.root.kind == "record" else None


def _bad(why: str) -> StreamError:
    return StreamError(
        "bad-schema",
        f"the Avro schema can't be read: {why}",
        field="source.options.schema",
        remedy="give the JSON text of a record's schema",
    )


@dataclass(slots=True)
class _SchemaReader:
    named: dict[str, AvroType]
    used: set[str] = field(default_factory=set)
    count: int = 0

    def read(self, given: Any, space: str, depth: int) -> AvroType:
        """Parse an Avro type from JSON; ``space``: the namespace of names without one."""
        self.count += 1
        if depth > MOST_DEEP or self.count > MOST_TYPES:
            raise _bad(f"it has more than {MOST_TYPES} types, or is nested too deep")
        if isinstance(given, str):
            return self._reference(given, space)
        if isinstance(given, list):
            parts = tuple(self.read(part, space, depth + 1) for part in given)
            if not parts or any(part.kind == "union" for part in parts):
                raise _bad("a union is empty, or has a union in it")
            return AvroType("union", parts=parts)
        if not isinstance(given, dict):
            raise _bad(f"{str(given)[:60]!r} is not a type")
        kind = given.get("type")
        if not isinstance(kind, str):
            return self.read(kind, space, depth + 1)
        logical = given.get("logicalType")
        logical = logical if isinstance(logical, str) else ""
        if kind in ("array", "map"):
            part = self.read(given.get("items" if kind == "array" else "values"), space, depth + 1)
            return AvroType(kind, parts=(part,))
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(given, kind, logical, space, depth)
        found = self._reference(kind, space)
        if found.kind == "name":
            return found
        precision, scale = _decimal(given, kind, logical)
        return AvroType(kind, logical=logical, precision=precision, scale=scale)

    def _reference(self, name: str, space: str) -> AvroType:
        if name in PRIMITIVE:
            return AvroType(name)
        full = name if "." in name or not space else f"{space}.{name}"
        if full not in self.named and name in self.named:
            full = name
        self.used.add(full)
        return AvroType("name", full)

    def _define(
        self, given: dict[str, Any], kind: str, logical: str, space: str, depth: int
    ) -> AvroType:
        """Parse the definition of a named Avro type: record, enum or fixed."""
        name = given.get("name")
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise _bad(f"{str(name)[:60]!r} is not a name")
        own = given.get("namespace", space)
        if not isinstance(own, str):
            raise _bad("a namespace is not a text")
        full = name if "." in name or not own else f"{own}.{name}"
        if full in self.named:
            raise _bad(f"the type {full[:60]!r} is defined twice")
        inner = full.rpartition(".")[0]
        if kind == "enum":
            symbols = given.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(s, str) for s in symbols):
                raise _bad(f"the enum {full[:60]!r} has no symbols")
            found = AvroType(kind, full, symbols=tuple(symbols))
        elif kind == "fixed":
            size = given.get("size")
            if type(size) is not int or not 0 <= size < 1 << 20:
                raise _bad(f"the fixed {full[:60]!r} has no size")
            found = AvroType(kind, full, logical, size, *_decimal(given, kind, logical))
        else:
            fields = given.get("fields")
            if not isinstance(fields, list):
                raise _bad(f"the record {full[:60]!r} has no fields")
            # Registered before its fields are parsed, since a field may refer to its own record.
            self.named[full] = AvroType("record", full)
            members = tuple(self._field(one, inner, depth) for one in fields)
            if len({member.name for member in members}) < len(members):
                raise _bad(f"the record {full[:60]!r} has a field twice")
            found = AvroType("record", full, fields=members)
        self.named[full] = found
        return AvroType("name", full) if kind == "record" else found

    def _field(self, given: Any, space: str, depth: int) -> AvroField:
        name = given.get("name") if isinstance(given, dict) else None
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise _bad(f"{str(name)[:60]!r} is not a field's name")
        aliases = given.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
            raise _bad(f"the aliases of {name[:60]!r} are no names")
        default = given.get("default", _MISSING)
        text = None if default is _MISSING else json.dumps(default)
        return AvroField(name, self.read(given.get("type"), space, depth + 1), tuple(aliases), text)


def _decimal(given: Mapping[str, Any], kind: str, logical: str) -> tuple[int, int]:
    """Return precision and scale of an Avro decimal; (0, 0) for other types and for invalid
    decimals, which Avro treats as their base type."""
    precision, scale = given.get("precision"), given.get("scale", 0)
    if logical != "decimal" or kind not in ("bytes", "fixed"):
        return 0, 0
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision:
        return 0, 0
    return precision, scale
