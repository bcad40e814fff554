"""Metrics and logs of requests; changes and refusals also go to the audit log."""

from __future__ import annotations

import time
from urllib.parse import quote
from uuid import uuid4

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch_service.access.audit import Audit, kind_of
from anabranch_service.presenters.metrics import Metrics

_LOG = structlog.get_logger(__name__)

REQUEST_ID = b"x-request-id"


class Observe:
    """Measures every request by its route, and logs changing and failed ones."""

    def __init__(self, app: ASGIApp, metrics: Metrics, audit: Audit) -> None:
        self.app = app
        self.metrics = metrics
        self.audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        # The service chooses the request's id: a client could repeat the id of another request.
        ident = uuid4().hex
        scope.setdefault("state", {})
        started, status = time.perf_counter(), 0

        async def observe(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {
                    **message,
                    "headers": [*message.get("headers", ()), (REQUEST_ID, ident.encode())],
                }
                # Recorded before the client gets the answer: no confirmed change is missing.
                await self._audit(scope, status, ident)
            await send(message)

        try:
            await self.app(scope, receive, observe)
        finally:
            if not status:
                status = 500
                await self._audit(scope, status, ident)
            seconds = time.perf_counter() - started
            method, route = scope["method"], _route(scope) or "unmatched"
            self.metrics.requests.labels(_METHODS.get(method, "other"), route, status).inc()
            self.metrics.latency.labels(_METHODS.get(method, "other"), route).observe(seconds)
            if method not in ("GET", "HEAD") or status >= 500:
                _LOG.info(
                    "request",
                    method=method,
                    # Percent-encoded, so that clients can't write control characters into the log.
                    path=quote(scope["path"]),
                    status=status,
                    ms=round(seconds * 1000, 1),
                    request=ident,
                )

    async def _audit(self, scope: Scope, status: int, ident: str) -> None:
        state = scope["state"]
        kind = kind_of(scope["method"], state.get("need"), status)
        if kind is None:
            return
        client = scope.get("client")
        await self.audit.record(
            kind,
            state.get("identity"),
            client=client[0] if client else "",
            method=scope["method"],
            route=_route(scope),
            path=scope["path"],
            status=status,
            request=ident,
        )


#: HTTP methods used as metric labels; others, which a client may invent, count as ``other``.
_METHODS = {m: m for m in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")}


def _route(scope: Scope) -> str:
    """Return the path template of the request's route, or "". Plain paths are too many labels."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else ""
