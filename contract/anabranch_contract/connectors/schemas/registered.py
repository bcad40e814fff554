"""Answers of a schema registry: a schema, and the schemas to which it refers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

#: A function from a path to the schema registry's answer; None: the registry has no such path.
Get = Callable[[str], Mapping[str, Any] | None]
#: Maximum number of schemas to which one schema refers, directly or indirectly.
_MOST_REFERENCES = 100


def referred(answer: Mapping[str, Any], get: Get) -> dict[str, str]:
    """Return names and texts of the schemas to which a registered schema refers, each after the
    schemas to which it refers itself.

    Raises:
        KeyError: the registry lacks a schema, or there are too many.
    """
    found = dict[str, str]()
    _refer(answer, get, found, set())
    return found


def _refer(
    answer: Mapping[str, Any], get: Get, found: dict[str, str], seen: set[tuple[str, str]]
) -> None:
    for reference in answer.get("references") or ():
        subject, version = str(reference["subject"]), str(reference["version"])
        if (subject, version) in seen:
            continue
        seen.add((subject, version))
        if len(seen) > _MOST_REFERENCES:
            raise KeyError(subject)
        other = get(f"subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}")
        if other is None:
            raise KeyError(subject)
        _refer(other, get, found, seen)
        found[str(reference.get("name", subject))] = str(other["schema"])
