"""Base of protocol values that REST bodies contain unchanged (ADR 0061)."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Any, Literal, get_origin, get_type_hints

from anabranch_contract.codec import fields

#: Context of pydantic's validation that allows answers of services of other releases.
READING = object()


class Body:
    """Base of dataclasses whose fields and public properties appear unchanged in REST bodies.

    The class itself does not import pydantic, which tasks do not need. When an answer of another
    release is read, absent fields get empty values and unknown fields are ignored.
    """

    __slots__ = ()

    @classmethod
    def properties(cls) -> dict[str, property]:
        """Public properties of a REST body by name; properties of base classes come first."""
        return {
            name: value
            for base in reversed(cls.__mro__)
            for name, value in vars(base).items()
            if isinstance(value, property)
        }

    @classmethod
    @cache
    def empties(cls) -> dict[str, Any]:
        """Return the required fields of a REST body, each with None or its type's empty value."""
        hints, optional = get_type_hints(cls), dataclasses.MISSING
        return {
            f.name: empty(hints[f.name])
            for f in dataclasses.fields(cls)  # type: ignore[arg-type]
            if f.default is optional and f.default_factory is optional
        }

    def document(self) -> dict[str, Any]:
        """Return fields and properties by name, with unconverted values."""
        return {**fields(self), **{name: getattr(self, name) for name in self.properties()}}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        def filled(given: Any, info: Any) -> Any:
            if info.context is not READING or not isinstance(given, dict):
                return given
            absent, known = cls.empties(), {n: v for n, v in given.items() if n in names}
            return {**absent, **known} if known.keys() & absent.keys() or not absent else known

        names = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        schema = handler(source)
        inner = schema["schema"]
        inner["computed_fields"] = [
            {
                "type": "computed-field",
                "property_name": name,
                "return_schema": handler.generate_schema(get_type_hints(value.fget)["return"]),
            }
            for name, value in cls.properties().items()
        ]
        before = {"type": "with-info", "function": filled}
        schema["schema"] = {"type": "function-before", "function": before, "schema": inner}
        return schema

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Any:
        return described(cls, core, handler)


_ENTRY = re.compile(r"^ {4}((?:\w+, )*\w+): ((?:.+\n?)+?)(?=^ {4}\w|\Z|\n)", re.MULTILINE)
#: Pattern of the beginning of another field's entry within an entry of ``Attributes:``.
_INNER = re.compile(r"(?<=\.)\s+((?:``\w+``, )*``\w+``): ")


@cache
def meanings(kind: type) -> dict[str, str]:
    """Return the meanings of a REST body's fields, from the docstrings of its class and its bases.

    An entry of ``Attributes:`` may continue with fields that have no entry of their own, as in
    ``first: … ``second``: …``. The meaning of a property is its docstring.
    """
    texts: dict[str, str] = {}
    known = {name for base in kind.__mro__ for name in inspect.get_annotations(base)}
    for base in reversed(kind.__mro__):
        entries = _ENTRY.findall(_parts(base)[1])
        others = known.difference(*(names.split(", ") for names, _ in entries))
        for names, text in entries:
            for some, own in _entries(names, text, others):
                texts.update(dict.fromkeys(some.split(", "), _as_json(own)))
        texts |= {
            name: _as_json(value.__doc__ or "")
            for name, value in vars(base).items()
            if isinstance(value, property)
        }
    return texts


def described(kind: type, core: Any, handler: Any) -> Any:
    """Return the JSON schema of a REST body, with the descriptions in its docstring."""
    schema = handler(core)
    own = handler.resolve_ref_schema(schema)
    own["description"] = _parts(kind)[0]
    for name, text in meanings(kind).items():
        if name in own.get("properties", {}):
            own["properties"][name]["description"] = text
    return schema


def _parts(kind: type) -> tuple[str, str]:
    """Return the text of a class's docstring before ``Attributes:``, and the section itself."""
    head, _, section = (inspect.getdoc(kind) or "").partition("\n\nAttributes:\n")
    return head, section.partition(">>>")[0]


def _entries(names: str, text: str, others: set[str]) -> Iterator[tuple[str, str]]:
    """Yield names and text of an entry, and of the entries of other fields at its end.

    Backticks may also mark a value, so only names in ``others`` begin another entry.
    """
    start = 0
    for found in _INNER.finditer(text):
        inner = found[1].replace("``", "")
        if others.issuperset(inner.split(", ")):
            yield names, text[start : found.start()]
            names, start = inner, found.end()
    yield names, text[start:]


def _as_json(text: str) -> str:
    """Return a docstring's text for OpenAPI: one line, single backticks, ``null`` for ``None``."""
    said = " ".join(text.replace("``", "`").split()).replace("None", "null")
    return said[:1].upper() + said[1:]


def empty(kind: Any) -> Any:
    """Return the value for a field of this type that an older release's answer lacks."""
    origin = get_origin(kind) or kind
    if not isinstance(origin, type):
        return "" if origin is Literal else None
    if hasattr(origin, "empties"):
        return origin.empties()
    return "" if issubclass(origin, str) else None if origin is UnionType else origin()
