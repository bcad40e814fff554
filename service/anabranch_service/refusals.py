"""Refusals before a route is reached, as problem details (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"


def problem(
    path: str,
    status: int,
    code: str,
    detail: str,
    remedy: str = "",
    *,
    errors: Sequence[Mapping[str, str | int]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the body (problem details) of a refusal of a request for ``path``.

    The text is ASCII: what a client sent may hold characters that UTF-8 can't spell.
    """
    document: dict[str, Any] = {
        "type": f"urn:anabranch:problem:{code}",
        "title": code.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail,
        "instance": quote(path, safe="/:"),
        "code": code,
    }
    if errors:
        document["errors"] = [dict(e) for e in errors]
    if remedy:
        document["remedy"] = remedy
    return Response(json.dumps(document), status, dict(headers or {}), MEDIA_TYPE)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason to refuse a request before any route handles it.

    Attributes:
        closes: whether the connection closes after the answer, leaving the request partly unread.
        retry: seconds after which the client may try again; 0: a retry would not help.
    """

    status: int
    code: str
    detail: str
    remedy: str
    closes: bool = False
    retry: int = 0

    def answer(self, path: str) -> Response:
        """Return the answer to a request for ``path``."""
        headers = {"Connection": "close"} if self.closes else {}
        if self.retry:
            headers["Retry-After"] = str(self.retry)
        return problem(path, self.status, self.code, self.detail, self.remedy, headers=headers)


class BodyRefused(HTTPException):
    """Raised while a request's body is read, if it is too large, too slow or invalid."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.status, refusal.detail)
        self.refusal = refusal
