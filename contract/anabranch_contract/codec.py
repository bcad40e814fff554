"""Frozen values as JSON documents and back: one codec for rulesets, state and protocol.

A dataclass is an object of its fields by name, a :class:`Row` the list of its fields in order.
Reading checks every type. Absent fields have their defaults; unknown fields are passed over.
"""

from __future__ import annotations

from typing import Any, Self, TypeVar

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
