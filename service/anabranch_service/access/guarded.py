"""Routes that admit callers before they look at what these send."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from anabranch_service.access.gate import Gate
from anabranch_service.access.roles import ADMITTED, Need, Role, need_of

#: The name of the scheme in the OpenAPI document.
SCHEME = "bearer"

SECURITY_SCHEMES = {
    SCHEME: {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "anb_<id>_<secret>",
        "description": "Required where the service listens beyond the loopback interface.",
    }
}


class GuardedRoute(APIRoute):
    """A route whose need is asked before the body is read: who is refused costs no memory.

    Attributes:
        need: as declared beside the endpoint.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.need = need_of(endpoint)
        options["openapi_extra"] = {**(options.get("openapi_extra") or {}), **_document(self.need)}
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request: first the gate, then the endpoint."""
        handle = super().get_route_handler()
        need = self.need

        async def guarded(request: Request) -> Response:
            gate: Gate = request.app.state.context.gate
            request.state.need = need
            request.state.identity = await gate.admit(request, need)
            return await handle(request)

        return guarded


def guarded_router(prefix: str = "", *, tag: str) -> APIRouter:
    """Return a router all of whose routes declare a need."""
    return APIRouter(prefix=prefix, tags=[tag], route_class=GuardedRoute)


def _document(need: Need) -> dict[str, Any]:
    if need is Need.NOTHING:
        return {"security": []}
    return {
        "security": [{SCHEME: []}],
        "x-roles": [role.value for role in Role if role in ADMITTED[need]],
    }
