"""Conversion of all exceptions into problem details (RFC 9457)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import cast
from urllib.parse import quote

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from redis.exceptions import RedisError, ResponseError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from anabranch_contract.errors import PlannerError, StructuredError
from anabranch_service.access.roles import Need, need_of
from anabranch_service.errors import ServiceError, SeveralInvalid, Unknown
from anabranch_service.refusals import BodyRefused, Refusal, problem
from anabranch_service.registry.redis.nearest import with_meant
from anabranch_service.registry.store import Store
from anabranch_service.transport.head import has_head
from anabranch_service.transport.meant import meant_field

_LOG = structlog.get_logger(__name__)

_REMEDIES = {
    404: "check the path against /openapi.json",
    405: "the Allow header names the methods that this path takes",
}


_NO_REDIS = Refusal(
    503,
    "registry-unavailable",
    "Redis does not answer; running queries continue",
    "try again shortly",
    retry=1,
)
_FAILED = Refusal(
    500,
    "internal-error",
    "the service failed to serve the request; running queries are not affected",
    "see the service's log",
)


def install(app: FastAPI) -> None:
    """Answer every error of ``app`` with problem details."""
    app.add_exception_handler(ServiceError, _structured_error)
    app.add_exception_handler(PlannerError, _structured_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(BodyRefused, _body_refused)
    app.add_exception_handler(RedisError, _redis_error)
    app.add_exception_handler(ResponseError, _redis_refusal)
    app.add_exception_handler(Exception, _unexpected)


async def _structured_error(request: Request, cause: Exception) -> Response:
    assert isinstance(cause, StructuredError)
    # Callers that may only push see no names.
    if isinstance(cause, Unknown) and need_of(request.scope["endpoint"]) is not Need.PUSH:
        cause = await with_meant(_store(request), cause)
    named = cause.errors if isinstance(cause, SeveralInvalid) else (cause, *cause.others)
    several = isinstance(cause, SeveralInvalid) or bool(cause.others)
    return problem(
        request.url.path,
        cause.status if isinstance(cause, ServiceError) else 422,
        cause.code,
        cause.detail,
        cause.remedy,
        errors=[_named(error, remedy=several) for error in named if error.field],
        headers=cause.headers if isinstance(cause, ServiceError) else None,
    )


def _store(request: Request) -> Store:
    return cast(Store, request.app.state.context.store)


def _named(error: StructuredError, *, remedy: bool) -> dict[str, str | int]:
    """Return an entry of ``errors``; ``remedy``: include its remedy (of several errors)."""
    found: dict[str, str | int] = {
        "field": error.field,
        "code": error.code,
        "message": error.message,
    }
    if error.position is not None:
        found["line"], found["column"] = error.position
    if remedy and error.remedy:
        found["remedy"] = error.remedy
    return found


#: Fields that are too long mostly because of their constants.
_CONSTANTS = ("sql", "parameters")


async def _invalid_request(request: Request, cause: Exception) -> Response:
    assert isinstance(cause, RequestValidationError)
    path, found = request.url.path, cause.errors()
    reason = next((e for e in found if e["type"] == "json_invalid"), None)
    if reason is not None:
        detail = f"the body is not JSON: {reason.get('ctx', {}).get('error', reason['msg'])}"
        errors = [{"field": "body", "code": "malformed-json", "message": reason["msg"]}]
        return problem(path, 400, "malformed-json", detail, "send a JSON document", errors=errors)
    errors = [
        {
            "field": _field(e["loc"]),
            "code": str(e["type"]).replace("_", "-"),
            "message": str(e["msg"]),
        }
        for e in found
    ]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    detail = f"{errors[0]['field']}: {errors[0]['message']}{more}"
    remedy = "correct the fields named; /openapi.json describes what is expected"
    if found[0]["type"] == "extra_forbidden":
        detail = f"{errors[0]['field']}: there is no such field{more}"
        meant = meant_field(request, found[0]["loc"])
        remedy = f"did you mean {meant!r}? {remedy}" if meant else remedy
    if any(e["code"].endswith("too-long") and e["field"] in _CONSTANTS for e in errors):
        remedy = "for many constants, register a table of them, and join it"
    return problem(path, 422, "invalid-request", detail, remedy, errors=errors)


def _field(location: Sequence[str | int]) -> str:
    """Return the path of a request's field: ``body.columns.0.type`` becomes ``columns.0.type``."""
    parts = [str(p) for p in location]
    if len(parts) > 1 and parts[0] in ("body", "query", "path", "header"):
        parts = parts[1:]
    return ".".join(parts)


async def _http_error(request: Request, cause: Exception) -> Response:
    assert isinstance(cause, HTTPException)
    status, path = HTTPStatus(cause.status_code), request.url.path
    headers = dict(cause.headers or {})
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_allowed(request))
    return problem(
        path,
        status,
        status.phrase.lower().replace(" ", "-"),
        f"{request.method} {quote(path, safe='/:')}: {cause.detail}",
        _REMEDIES.get(status, ""),
        headers=headers,
    )


def _allowed(request: Request) -> list[str]:
    """Return the HTTP methods of all routes that match the request's path."""
    routes = [
        route
        for router in request.app.state.routers
        for route in router.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    ]
    # /v1/queries/{name} also matches paths with a verb, such as {name}:pause: prefer these.
    own = [route for route in routes if "}:" in route.path] or routes
    found = {method for route in own for method in route.methods or ()}
    if "GET" in found and has_head(request.url.path):
        found.add("HEAD")
    return sorted(found)


async def _body_refused(request: Request, cause: Exception) -> Response:
    assert isinstance(cause, BodyRefused)
    return cause.refusal.answer(request.url.path)


async def _redis_refusal(request: Request, cause: Exception) -> Response:
    """Return the answer if Redis rejects a command: a key of the wrong type, or a server fault."""
    _LOG.error("redis refused", path=request.url.path, error=repr(cause))
    wrong = []
    with suppress(RedisError):
        wrong = await _store(request).misfits()
    if wrong or str(cause).startswith("WRONGTYPE"):
        keys = "; ".join(f"key {m.key!r} is a {m.found}, not a {m.wanted}" for m in wrong)
        refusal = Refusal(
            500,
            "corrupt-registry",
            f"something else wrote to the registry: {keys or cause}",
            "rename or delete the key in Redis, and find out what wrote it; waiting does not help",
        )
    else:
        refusal = Refusal(
            503,
            "registry-refuses",
            f"Redis refuses the command: {cause}",
            "correct the cause in Redis; running queries continue",
            retry=10,
        )
    return refusal.answer(request.url.path)


async def _redis_error(request: Request, cause: Exception) -> Response:
    _LOG.error("redis failed", path=request.url.path, error=repr(cause))
    return _NO_REDIS.answer(request.url.path)


async def _unexpected(request: Request, cause: Exception) -> Response:
    _LOG.error("request failed", path=request.url.path, exc_info=cause)
    return _FAILED.answer(request.url.path)
