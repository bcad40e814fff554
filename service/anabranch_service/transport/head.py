"""HEAD: the answer to GET without its body."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

#: What follows results never ends, so there is no length to tell.
_ENDLESS = "/results"


class AnswerHead:
    """Serves HEAD as GET. The server drops the body and keeps the length that GET's would have."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD" or scope["path"].endswith(_ENDLESS):
            await self.app(scope, receive, send)
            return
        # The server goes by the method of the scope that it gave.
        served = {**scope, "method": "GET"}
        try:
            await self.app(served, receive, send)
        finally:
            scope.update({key: served[key] for key in ("route",) if key in served})
