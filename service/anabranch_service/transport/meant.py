"""The field of a request that an unknown field was probably meant to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from fastapi import Request
from pydantic import BaseModel

from anabranch_planner.sql.scope import closest


def meant_field(request: Request, location: Sequence[str | int]) -> str | None:
    """Return the field of the request's body most similar to an unknown one at ``location``
    (``body``, fields and indices, the unknown field); None if there is none."""
    body = getattr(request.scope.get("route"), "body_field", None)
    if body is None or len(location) < 2 or location[0] != "body":
        return None
    return closest(str(location[-1]), _fields(body.field_info.annotation, location[1:-1]))


def _fields(kind: Any, path: Sequence[str | int]) -> set[str]:
    """Names of the fields that a value at ``path`` of a value of type ``kind`` may have."""
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        # Members of a union, whose names Pydantic may put into the path, or items of a list.
        return set().union(*(_fields(one, path) for one in get_args(kind)))
    models = kind.model_fields
    rest = [n for n, part in enumerate(path) if part in models]
    if rest:
        inner = models[str(path[rest[0]])]
        return _fields(inner.annotation, path[rest[0] + 1 :])
    return {field.alias or name for name, field in models.items()}
