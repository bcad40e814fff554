"""Frozen values as JSON documents and back: one codec for rulesets, state and protocol.

A dataclass is an object of its fields by name, a :class:`Row` the list of its fields in order.
Reading checks every type. Absent fields have their defaults; unknown fields are passed over.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from types import UnionType
from typing import Any, Literal, Self, TypeVar, get_origin, get_type_hints

import msgspec

_T = TypeVar("_T")

#: A part of a document that is kept as text.
Raw = msgspec.Raw
#: Raised by everything here that reads: the message names the place in the document.
Malformed = msgspec.ValidationError


class Row(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A frozen value that is written as the list of its fields, as there are many of its kind."""


class Message:
    """A dataclass that travels as a JSON text of its own, through Redis or as an option."""

    __slots__ = ()

    def dumps(self) -> str:
        """Return JSON text; equal values give equal texts."""
        return dumps(self)

    @classmethod
    def loads(cls, text: str | bytes) -> Self:
        """Return the value that :meth:`dumps` wrote.

        Raises:
            Malformed: the text is no such document.
        """
        return loads(text, cls)


#: The context of a pydantic validation that reads an answer of a service of any release.
READING = object()


class Body:
    """Base of frozen dataclasses that REST bodies contain as they are: fields and properties.

    pydantic asks for the schema; tasks, which serve no REST, never import it. In an answer of
    another release absent fields are empty, and unknown ones are passed over.
    """

    __slots__ = ()

    @classmethod
    def properties(cls) -> dict[str, property]:
        """Public properties by name, those of base classes first."""
        return {
            name: value
            for base in reversed(cls.__mro__)
            for name, value in vars(base).items()
            if isinstance(value, property)
        }

    @classmethod
    @cache
    def empties(cls) -> dict[str, Any]:
        """The required fields, each with None or the empty value of its type."""
        hints, optional = get_type_hints(cls), dataclasses.MISSING
        return {
            f.name: empty(hints[f.name])
            for f in dataclasses.fields(cls)  # type: ignore[arg-type]
            if f.default is optional and f.default_factory is optional
        }

    def document(self) -> dict[str, Any]:
        """Fields and properties by name, their values as they are."""
        return {**fields(self), **{name: getattr(self, name) for name in self.properties()}}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        def filled(given: Any, info: Any) -> Any:
            if info.context is not READING or not isinstance(given, dict):
                return given
            absent = cls.empties()
            return {**absent, **given} if given.keys() & absent.keys() or not absent else given

        schema = handler(source)
        inner = schema["schema"]
        inner["computed_fields"] = [
            {
                "type": "computed-field",
                "property_name": name,
                "return_schema": handler.generate_schema(get_type_hints(value.fget)["return"]),
                "metadata": {"pydantic_js_updates": {"description": value.__doc__}},
            }
            for name, value in cls.properties().items()
        ]
        before = {"type": "with-info", "function": filled}
        schema["schema"] = {"type": "function-before", "function": before, "schema": inner}
        return schema


def empty(kind: Any) -> Any:
    """The value of a field of type ``kind`` that an answer of an older release lacks."""
    origin = get_origin(kind) or kind
    if not isinstance(origin, type):
        return "" if origin is Literal else None
    if hasattr(origin, "empties"):
        return origin.empties()
    return "" if issubclass(origin, str) else None if origin is UnionType else origin()


def dumps(value: object) -> str:
    """Return JSON text for ``value``; equal values give equal texts."""
    return msgspec.json.encode(value, enc_hook=_encoded, order="sorted").decode()


def loads(text: str | bytes, kind: type[_T]) -> _T:
    """Return the ``kind`` that :func:`dumps` wrote.

    Raises:
        Malformed: the text is no such document.
    """
    try:
        return msgspec.json.decode(text, type=kind, dec_hook=_decoded)
    except msgspec.DecodeError as cause:
        raise cause if isinstance(cause, Malformed) else Malformed(str(cause)) from cause


def to_json(value: object) -> Any:
    """Return ``value`` as JSON's objects, lists and scalars; ``json.dumps(x, default=to_json)``."""
    # Not msgspec.to_builtins, which leaves tuples: a document that has been stored has lists.
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_encoded))


def from_json(document: Any, kind: type[_T]) -> _T:
    """Return the ``kind`` that :func:`to_json` wrote.

    Raises:
        Malformed: the document does not fit ``kind``.
    """
    return msgspec.convert(document, kind, dec_hook=_decoded)


def fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass or Row by name, their values as they are."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    return {name: getattr(value, name) for name in value.__match_args__}


def _encoded(value: Any) -> str:
    """Return a value of a type that msgspec does not know: one that is written as text."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} {value!r} has no JSON form")
    return str(value)


def _decoded(kind: type[Any], value: Any) -> Any:
    """Read what :func:`_encoded` wrote."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return kind.from_text(value)
