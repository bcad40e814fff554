"""Base of protocol values that REST bodies contain unchanged (ADR 0061)."""

from __future__ import annotations

import dataclasses
import inspect
import re
from functools import cache
from types import UnionType
from typing import Any, Literal, get_origin, get_type_hints

from anabranch_contract.codec import fields

#: Pydantic validation context for reading answers of a service of any release.
READING = object()


class Body:
    """Base of dataclasses whose fields and public properties appear unchanged in REST bodies.

    Only pydantic calls for the schema, so tasks, which serve no REST, never import pydantic. In an
    answer of another release, absent fields get empty values and unknown fields are ignored.
    """

    __slots__ = ()

    @classmethod
    def properties(cls) -> dict[str, property]:
        """Public properties by name; properties of base classes come first."""
        return {
            name: value
            for base in reversed(cls.__mro__)
            for name, value in vars(base).items()
            if isinstance(value, property)
        }

    @classmethod
    @cache
    def empties(cls) -> dict[str, Any]:
        """Return the required fields, each with None or the empty value of its type."""
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
        inner, (text, texts) = schema["schema"], _documented(cls)
        schema["metadata"] = {"pydantic_js_updates": {"description": text}}
        for found in inner["fields"]:
            if found["name"] in texts:
                updates = {"pydantic_js_updates": {"description": texts[found["name"]]}}
                found["metadata"] = {**found.get("metadata", {}), **updates}
        inner["computed_fields"] = [
            {
                "type": "computed-field",
                "property_name": name,
                "return_schema": handler.generate_schema(get_type_hints(value.fget)["return"]),
                "metadata": {"pydantic_js_updates": {"description": _as_json(value.__doc__ or "")}},
            }
            for name, value in cls.properties().items()
        ]
        before = {"type": "with-info", "function": filled}
        schema["schema"] = {"type": "function-before", "function": before, "schema": inner}
        return schema


_ATTRIBUTES = re.compile(r"^ {4}((?:\w+, )*\w+): ((?:.+\n?)+?)(?=^ {4}\w|\Z|\n)", re.MULTILINE)


def _documented(kind: type) -> tuple[str, dict[str, str]]:
    """Return the descriptions of a class and of its attributes, for its JSON schema."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        head, _, section = (inspect.getdoc(base) or "").partition("\n\nAttributes:\n")
        for names, text in _ATTRIBUTES.findall(section.partition(">>>")[0]):
            texts.update(dict.fromkeys(names.split(", "), _as_json(text)))
    return head, texts


def _as_json(text: str) -> str:
    """Return a docstring's text for JSON: one line, backticks, ``null`` for ``None``."""
    said = " ".join(text.replace("``", "`").split()).replace("None", "null")
    return said[:1].upper() + said[1:]


def empty(kind: Any) -> Any:
    """Return the value for a field of type ``kind`` that an older release's answer lacks."""
    origin = get_origin(kind) or kind
    if not isinstance(origin, type):
        return "" if origin is Literal else None
    if hasattr(origin, "empties"):
        return origin.empties()
    return "" if issubclass(origin, str) else None if origin is UnionType else origin()
