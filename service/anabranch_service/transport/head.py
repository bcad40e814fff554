"""HEAD requests: the answer to GET without its body."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


def has_head(path: str) -> bool:
    """Whether HEAD is allowed for ``path``: not for event streams of results, which never end."""
    return not path.endswith("/results")


class AnswerHead:
    """Middleware that serves HEAD as GET. The server drops the body and keeps its length."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD" or not has_head(scope["path"]):
            await self.app(scope, receive, send)
            return
        # The scope is copied, since the server must still see the method HEAD.
        served = {**scope, "method": "GET"}
        try:
            await self.app(served, receive, send)
        finally:
            if "route" in served:
                scope["route"] = served["route"]
