"""Frozen values as JSON documents and back: one codec for rulesets, state and protocol.

A dataclass becomes an object of its fields by name, a :class:`Row` the list of its fields in order.
Decoding checks every type. Absent fields get their defaults; unknown fields are ignored.
"""

from __future__ import annotations

from threading import RLock
from typing import Any, Self, TypeVar

import msgspec

_T = TypeVar("_T")

#: A part of a JSON document that decoders leave undecoded.
Raw = msgspec.Raw
#: Raised by all decoders of this module; the message names the path in the document.
Malformed = msgspec.ValidationError
#: Decoders by type, and the lock with which one thread makes a decoder.
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
_MAKING = RLock()


class Row(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A frozen value whose JSON is compact: the list of its fields without names."""


class Message:
    """A dataclass that is sent as a JSON text of its own, through Redis or as an option."""

    __slots__ = ()

    def dumps(self) -> str:
        """Return the value's JSON text; equal values give equal texts."""
        return dumps(self)

    @classmethod
    def loads(cls, text: str | bytes) -> Self:
        """Decode a value encoded by :meth:`dumps`.

        Raises:
            Malformed: the text does not encode this type.
        """
        return loads(text, cls)


def dumps(value: object) -> str:
    """Return JSON text for ``value``; equal values give equal texts."""
    return msgspec.json.encode(value, enc_hook=_encoded, order="sorted").decode()


def loads(text: str | bytes, kind: type[_T]) -> _T:
    """Decode a ``kind`` encoded by :func:`dumps`.

    Raises:
        Malformed: the text does not encode a ``kind``.
    """
    try:
        found: _T = _decoder(kind).decode(text)
    except msgspec.DecodeError as cause:
        raise cause if isinstance(cause, Malformed) else Malformed(str(cause)) from cause
    return found


def to_json(value: object) -> Any:
    """Convert ``value`` to dicts, lists and scalars; fits ``json.dumps(x, default=to_json)``."""
    # Not msgspec.to_builtins, which keeps tuples: decoded JSON documents have lists.
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_encoded))


def from_json(document: Any, kind: type[_T]) -> _T:
    """Convert a document of :func:`to_json` back to a ``kind``.

    Raises:
        Malformed: the document does not fit ``kind``.
    """
    _decoder(kind)
    return msgspec.convert(document, kind, dec_hook=_decoded)


def fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass or Row by name, without converting their values."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    return {name: getattr(value, name) for name in value.__match_args__}


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of ``kind``, which one thread makes while others wait."""
    found = _DECODERS.get(kind)
    if found is None:
        # Lock: msgspec publishes its description of a class before the description is complete, and
        # another thread that decodes the class meanwhile would end the process by a null pointer.
        with _MAKING:
            found = _DECODERS.setdefault(kind, msgspec.json.Decoder(kind, dec_hook=_decoded))
    return found


def _encoded(value: Any) -> str:
    """Return the JSON text of a value whose type msgspec does not know."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} {value!r} has no JSON form")
    return str(value)


def _decoded(kind: type[Any], value: Any) -> Any:
    """Decode a value encoded by :func:`_encoded`."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return kind.from_text(value)
