"""Generates ``docs/rest.md``: operations and schemas of the OpenAPI document."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from anabranch_service.app import create_app
from anabranch_service.settings import ServiceSettings
from scripts.reference.table import code, table

HEAD = """\
# REST

Made from the OpenAPI document of the service (`make reference`), which `/openapi.json` serves and
`/docs` shows in the browser. Conventions, examples and notes: [guide](rest-guide.md).
"""
_SCHEMA = "#/components/schemas/"
_BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "{} characters at least",
    "maxLength": "{} characters at most",
    "minItems": "{} items at least",
    "maxItems": "{} items at most",
    "pattern": "`{}`",
}


def page(guide: str) -> str:
    """Return the page; ``guide`` (Markdown): its sections are linked from their operations."""
    document = create_app(ServiceSettings()).openapi()
    tagged: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            name = f"{method.upper()} {path}"
            lines = list(_operation(name, operation, f"### `{name}`" in guide))
            tagged.setdefault(operation.get("tags", ["service"])[0], []).extend(lines)
    lines = [HEAD]
    for tag, sections in sorted(tagged.items()):
        lines += [f"## Operations: {tag}", "", *sections]
    lines += ["## Schemas", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += [f"### {name}", "", *_schema(schema)]
    return "\n".join(lines).rstrip() + "\n"


def _operation(name: str, operation: Mapping[str, Any], in_guide: bool) -> Iterator[str]:
    yield from (f"### `{name}`", "")
    yield from (*prose(operation.get("description", "")), "")
    if roles := operation.get("x-roles"):
        yield from (f"Roles: {', '.join(map(code, roles))}.", "")
    parameters = [
        (code(p["name"]), p["in"], kind(p["schema"]), p.get("description", ""))
        for p in operation.get("parameters", ())
    ]
    yield from table(("parameter", "in", "type", "meaning"), parameters)
    body = operation.get("requestBody", {}).get("content", {})
    for content, media in body.items():
        yield from (f"Body ({code(content)}): {kind(media.get('schema', {}))}.", "")
    for status, answer in operation["responses"].items():
        if status[0] == "2":
            media = answer.get("content", {})
            kinds = (
                kind(m["schema"]) if m.get("schema") else code(name) for name, m in media.items()
            )
            yield from (f"Answer {status}: {' or '.join(dict.fromkeys(kinds)) or 'empty'}.", "")
    if in_guide:
        anchor = "".join(c for c in name.lower().replace(" ", "-") if c.isalnum() or c in "-_")
        yield from (f"[Example and notes](rest-guide.md#{anchor})", "")


def _schema(schema: Mapping[str, Any]) -> Iterator[str]:
    if text := schema.get("description"):
        yield from (*prose(text), "")
    if "properties" not in schema:
        yield from (f"{kind(schema)}.", "")
        return
    required = set(schema.get("required", ()))
    yield from table(
        ("field", "type", "default", "meaning"),
        (
            (
                code(field),
                kind(value),
                "required" if field in required else _default(value),
                meaning(value),
            )
            for field, value in schema["properties"].items()
        ),
    )


def _default(value: Mapping[str, Any]) -> str:
    return code(_json(value["default"])) if "default" in value else ""


def meaning(value: Mapping[str, Any]) -> str:
    """Return the descriptions of a property and of its alternatives."""
    inner = [part["description"] for part in value.get("anyOf", ()) if "description" in part]
    return " ".join([*inner, value.get("description", "")]).strip()


def kind(schema: Mapping[str, Any]) -> str:
    """Return the type of a schema in words, with its bounds and with links to other schemas."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_SCHEMA)
        return f"[{name}](#{name.lower()})"
    if parts := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return " or ".join(dict.fromkeys(map(kind, parts)))
    if "const" in schema:
        return code(_json(schema["const"]))
    if "enum" in schema:
        return ", ".join(code(_json(value)) for value in schema["enum"])
    name = schema.get("type", "any")
    if name == "array":
        items = schema.get("items") or {}
        name = f"list of {kind(items)}" if items else "list"
    elif name == "object":
        values = schema.get("additionalProperties")
        name = f"object of {kind(values)}" if isinstance(values, dict) and values else "object"
    elif "format" in schema:
        name = f"{name} ({schema['format']})"
    bounds = [text.format(_json(schema[key])) for key, text in _BOUNDS.items() if key in schema]
    return f"{name} ({', '.join(bounds)})" if bounds else name


def _json(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value)


def prose(text: str) -> list[str]:
    """Return the paragraphs of a docstring as Markdown, with single backquotes."""
    lines = []
    for paragraph in text.replace("``", "`").split("\n\n"):
        lines += [*textwrap.wrap(" ".join(paragraph.split()), 100, break_on_hyphens=False), ""]
    return lines[:-1]
