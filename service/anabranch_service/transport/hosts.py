"""Which names the service answers to, and which pages may make it change something.

A page that a browser shows may send requests to any address, this one included. With a name of its
own that resolves to 127.0.0.1 (DNS rebinding) it could even read the answers. So a request whose
``Host`` is not one of the service's names is refused, and so is one that another page made without
a token. A page can't send a token: the header needs a permission (CORS) that only the origins have
which the operator names.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch_service.refusals import Refusal

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
#: As a name: any.
ANY = "*"

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITE = frozenset({"same-origin", "none"})
_UNKNOWN_HOST = Refusal(
    421,
    "unknown-host",
    "the service does not answer to the name in the Host header",
    "use the address that it listens on, or start it with --allow-hostname NAME",
    closes=True,
)
_FOREIGN = Refusal(
    403,
    "cross-origin",
    "a page of another origin may not change anything here",
    "send the request from a program, from the dashboard, or with a token",
    closes=True,
)


class CheckHost:
    """Refuses requests for other hosts, and changes by foreign pages."""

    def __init__(
        self, app: ASGIApp, *, names: Collection[str], origins: Collection[str] = ()
    ) -> None:
        """Serve ``app`` under ``names``; pages of ``origins`` count as the service's own."""
        self.app = app
        self.origins = frozenset(origins)
        self.names = frozenset(name.lower() for name in names) | LOOPBACK_NAMES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not self._is_own(headers.getlist("host"), scope):
            await _UNKNOWN_HOST.answer(scope["path"])(scope, receive, send)
        elif scope["method"] not in _SAFE and self._is_foreign(headers):
            await _FOREIGN.answer(scope["path"])(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _is_foreign(self, headers: Headers) -> bool:
        return headers.get("origin") not in self.origins and is_foreign(headers)

    def _is_own(self, given: list[str], scope: Scope) -> bool:
        if len(given) != 1:
            return False
        name = host_of(given[0])
        if name is None:
            return False
        # The address that the connection came to: where all are listened on, it is one of ours.
        server = scope.get("server")
        return ANY in self.names or name in self.names or (server is not None and name == server[0])


def host_of(header: str) -> str | None:
    """The name or address in a Host header, without port and brackets; None: there is none.

    >>> host_of("LocalHost:8080"), host_of("[::1]:80"), host_of("10.0.0.7."), host_of("a b")
    ('localhost', '::1', None, None)
    """
    try:
        parts = urlsplit(f"//{header}")
        name, _ = parts.hostname, parts.port
    except ValueError:
        return None
    if not name or parts.netloc != header or "@" in header or not _is_host(name):
        return None
    return name


def _is_host(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        labels = name.split(".")
        return all(label.replace("-", "").replace("_", "").isalnum() for label in labels) and (
            name.isascii() and not labels[-1].isdigit()
        )
    return True


def is_foreign(headers: Headers) -> bool:
    """Whether a page of another origin sent a request that has no token."""
    if "authorization" in headers:
        return False
    if headers.get("sec-fetch-site", "none") not in _OWN_SITE:
        return True
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc.lower() != headers["host"].lower()
