"""Limits on the size and the arrival time of requests."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch_service.refusals import BodyRefused, Refusal

#: Maximum total size of all header fields of a request, in bytes.
HEADER_BYTES = 32 * 1024
#: Limit on the bodies of all requests in memory, as a multiple of the limit on one body.
BODIES = 16
#: Limit on the unread rest of a body, as a multiple of the limit on one body. It is read and
#: discarded after the answer: closing a connection with unread data resets it, and the client may
#: lose the answer.
DROPPED = 4

_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_WITHOUT_BODY = frozenset({"GET", "HEAD", "DELETE"})
_closing = partial(Refusal, closes=True)


class LimitRequests:
    """Middleware that limits the header, body and arrival time of requests.

    The bytes of a body are counted as they arrive, whatever ``Content-Length`` says. They are read
    only when a route reads them, so a request that a route refuses takes no memory.
    """

    def __init__(self, app: ASGIApp, *, body_bytes: int, seconds: float) -> None:
        self.app = app
        self.body_bytes = body_bytes
        self.seconds = seconds
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        deadline, size, complete = loop.time() + self.seconds, 0, not has_body(scope)

        async def ending(message: Message) -> None:
            """Send ``message``; before the answer ends, read the rest of the request's body."""
            last = message["type"] == "http.response.body" and not message.get("more_body", False)
            if not last or complete:
                await send(message)
                return
            await send({**message, "more_body": True})
            await _drop(receive, DROPPED * self.body_bytes, deadline)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        refusal = self._refuse(scope)
        if refusal is not None:
            await refusal.answer(scope["path"])(scope, receive, ending)
            return

        async def counted() -> Message:
            nonlocal size, complete
            if complete:
                # Event streams call this to learn that the client has disconnected.
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise BodyRefused(self._too_slow()) from None
            got = len(message.get("body", b""))
            size, self._held = size + got, self._held + got
            complete = not message.get("more_body", False)
            if size > self.body_bytes:
                raise BodyRefused(self._too_large())
            if self._held > BODIES * self.body_bytes:
                raise BodyRefused(_TOO_MANY)
            return message

        try:
            await self.app(scope, counted, ending)
        finally:
            self._held -= size

    def _refuse(self, scope: Scope) -> Refusal | None:
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES:
            return _LONG_HEADER
        if not has_body(scope):
            return None
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        if scope["method"] in _WITHOUT_BODY:
            return _UNEXPECTED
        if scope["method"] not in _WITH_BODY:
            # No route accepts this method, so the router will answer 405.
            return None
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return _NO_JSON
        if length.isdecimal() and int(length) > self.body_bytes:
            return self._too_large()
        return None

    def _too_large(self) -> Refusal:
        return _closing(
            413,
            "body-too-large",
            f"the body has more than {self.body_bytes} bytes",
            "send less at a time; ANABRANCH_BODY_LIMIT is the limit",
        )

    def _too_slow(self) -> Refusal:
        return _closing(
            408,
            "body-too-slow",
            f"the body was not complete after {self.seconds:g} s",
            "send less at a time; ANABRANCH_REQUEST_SECONDS is the limit",
        )


def has_body(scope: Scope) -> bool:
    """Whether the headers of an HTTP request announce a body."""
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


async def _drop(receive: Receive, most: int, deadline: float) -> None:
    """Read and discard the rest of a body, up to ``most`` bytes and the deadline."""
    got = 0
    with suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            while got <= most:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
                got += len(message["body"])


_LONG_HEADER = _closing(
    431, "header-too-large", f"the header has more than {HEADER_BYTES} bytes", "send fewer fields"
)
_UNEXPECTED = _closing(
    400, "unexpected-body", "a request with this method has no body", "leave the body out"
)
_NO_JSON = _closing(
    415,
    "not-json",
    "the body is not of type application/json",
    "send JSON, with the header 'Content-Type: application/json'",
)
_TOO_MANY = _closing(
    503,
    "too-many-bodies",
    "the memory limit for request bodies is reached",
    "try again shortly",
    retry=1,
)
