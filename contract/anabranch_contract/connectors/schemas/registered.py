"""Answers of a schema registry: a schema, and the schemas to which it refers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

#: Returns the registry's answer for a path; None: it does not have it.
Get = Callable[[str], Mapping[str, Any] | None]
#: Most schemas to which one refers.
_MOST_REFERENCES = 100


def referred(answer: Mapping[str, Any], get: Get) -> dict[str, str]:
    """Return the names and texts of the schemas to which a schema refers, each after those to which
    it refers itself.

    Raises:
        KeyError: one can't be had, or there are too many.
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
