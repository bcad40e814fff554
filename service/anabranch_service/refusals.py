"""Refusals as problem details (RFC 9457), for what is refused before a route is reached."""

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
    status: int,
    code: str,
    detail: str,
    *,
    instance: str,
    errors: Sequence[Mapping[str, str | int]] = (),
    remedy: str = "",
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A problem details response.

    The text is ASCII: what a client sent may hold characters that UTF-8 can't spell.
    """
    document: dict[str, Any] = {
        "type": f"urn:anabranch:problem:{code}",
        "title": code.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail,
        "instance": instance,
        "code": code,
    }
    if errors:
        document["errors"] = [dict(e) for e in errors]
    if remedy:
        document["remedy"] = remedy
    return Response(json.dumps(document), status, dict(headers or {}), MEDIA_TYPE)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused without looking at what it means.

    Attributes:
        closes: whether the connection ends with the answer: the rest of the request is not read.
        retry: seconds after which to try again; 0: it would not help.
    """

    status: int
    code: str
    detail: str
    remedy: str
    closes: bool = False
    retry: int = 0

    def headers(self) -> dict[str, str]:
        """Further headers of the answer."""
        found = {"Connection": "close"} if self.closes else {}
        return {**found, **({"Retry-After": str(self.retry)} if self.retry else {})}

    def answer(self, path: str) -> Response:
        """The answer to a request for ``path``."""
        return problem(
            self.status,
            self.code,
            self.detail,
            instance=quote(path, safe="/:", errors="replace"),
            remedy=self.remedy,
            headers=self.headers(),
        )


class BodyRefused(HTTPException):
    """A body that is too large or too slow, found out while it was read."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.status, refusal.detail)
        self.refusal = refusal
