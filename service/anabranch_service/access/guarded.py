"""Routes that authorise callers before they read the request's body."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from anabranch_contract.rest.access import Role
from anabranch_service.access.gate import Gate
from anabranch_service.access.roles import ADMITTED, Need, need_of
from anabranch_service.errors import InvalidInput
from anabranch_service.refusals import BodyRefused, Refusal

#: Name of the security scheme in the OpenAPI document.
SCHEME = "bearer"

SECURITY_SCHEMES = {
    SCHEME: {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "anb_<id>_<secret>",
        "description": "Required where the service listens beyond the loopback interface.",
    }
}


class StrictRequest(Request):
    """A request that refuses duplicate keys in its JSON body: parsers disagree on the value."""

    async def json(self) -> Any:
        """Parse the body as JSON.

        Raises:
            BodyRefused: ``duplicate-key``.
        """
        if not hasattr(self, "_json"):
            self._json = json.loads(await self.body(), object_pairs_hook=_object)
        return self._json


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise BodyRefused(
            Refusal(
                400,
                "duplicate-key",
                f"an object in the body has the key {twice[:100]!r} more than once",
                "give each key once",
            )
        )
    return found


class GuardedRoute(APIRoute):
    """A route that authorises the caller before it reads the body, so that refusals cost no memory.

    Attributes:
        need: access requirement, as declared at the endpoint (:func:`needs`).
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.need = need_of(endpoint)
        options["openapi_extra"] = {**(options.get("openapi_extra") or {}), **_document(self.need)}
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler: authorises the caller, checks parameters, calls the endpoint."""
        handle = super().get_route_handler()
        need = self.need
        known = frozenset(_parameters(self.dependant))
        # Pages of the console take any query parameters: their scripts read them in the browser.
        checked = self.include_in_schema

        async def guarded(request: Request) -> Response:
            gate: Gate = request.app.state.context.gate
            request.state.need = need
            request.state.identity = await gate.admit(request, need)
            if checked:
                _check_parameters(request, known)
            return await handle(StrictRequest(request.scope, request.receive))

        return guarded


def _parameters(found: Dependant) -> Iterator[str]:
    """Yield the names of the query parameters of an endpoint and its dependencies."""
    yield from (parameter.alias for parameter in found.query_params)
    for inner in found.dependencies:
        yield from _parameters(inner)


def _check_parameters(request: Request, known: Collection[str]) -> None:
    """Refuse unknown query parameters."""
    for name in request.query_params:
        if name not in known:
            some = ", ".join(sorted(known))
            raise InvalidInput(
                "unknown-parameter",
                f"there is no query parameter {name[:100]!r} here",
                field=name[:100],
                remedy=f"leave it out; there {'are' if ',' in some else 'is'} {some or 'none'}",
            )


def guarded_router(prefix: str = "", *, tag: str) -> APIRouter:
    """Return a router whose routes must all declare an access requirement."""
    return APIRouter(prefix=prefix, tags=[tag], route_class=GuardedRoute)


def _document(need: Need) -> dict[str, Any]:
    if need is Need.NOTHING:
        return {"security": []}
    return {
        "security": [{SCHEME: []}],
        "x-roles": [role.value for role in Role if role in ADMITTED[need]],
    }
