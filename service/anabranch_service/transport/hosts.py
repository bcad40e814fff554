"""Protection against requests from foreign web pages: checks of host names and origins.

A web page in a browser can send requests to any address, including the service's. If the page's own
host name resolves to 127.0.0.1 (DNS rebinding), it can even read the answers. So a request with a
foreign ``Host`` is refused, and so is a change by a page of another origin without a token. Such a
page can't send a token: that header needs permission (CORS), which only origins named by the
operator have.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch_service.refusals import Refusal

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
#: Host name that permits any host.
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
    """Middleware that refuses requests for other hosts, and changes by pages of other origins."""

    def __init__(
        self, app: ASGIApp, *, names: Collection[str], origins: Collection[str] = ()
    ) -> None:
        """Wrap ``app``. ``names``: permitted hosts; ``origins``: sites that may make changes."""
        self.app = app
        self.origins = frozenset(origins)
        self.names = frozenset(name.lower() for name in names) | LOOPBACK_NAMES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        foreign = headers.get("origin") not in self.origins and is_foreign(headers)
        if not self._is_own(headers.getlist("host"), scope):
            await _UNKNOWN_HOST.answer(scope["path"])(scope, receive, send)
        elif scope["method"] not in _SAFE and foreign:
            await _FOREIGN.answer(scope["path"])(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _is_own(self, given: list[str], scope: Scope) -> bool:
        if len(given) != 1:
            return False
        name = host_of(given[0])
        if name is None:
            return False
        # The local address of the connection is always permitted as a host name.
        server = scope.get("server")
        return ANY in self.names or name in self.names or (server is not None and name == server[0])


def host_of(header: str) -> str | None:
    """Return name or address in a Host header, without port and brackets; None if invalid.

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
    """Whether a request comes from a page of another origin, and has no token."""
    if "authorization" in headers:
        return False
    if headers.get("sec-fetch-site", "none") not in _OWN_SITE:
        return True
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc.lower() != headers["host"].lower()
