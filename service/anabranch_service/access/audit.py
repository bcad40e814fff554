"""The audit log of changes, pushes and refusals, with their callers.

Each kind of entry has its own bounded Redis Stream, so that a flood of refusals or pushes can't
evict the changes. Every entry is also in the structured log.
"""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote

import structlog
from pydantic import ValidationError
from redis.exceptions import RedisError

from anabranch_contract.rest.access import AuditKind, AuditRecord
from anabranch_service.access.gate import Identity
from anabranch_service.access.roles import Need
from anabranch_service.clock import Clock
from anabranch_service.registry.store import Store

_LOG = structlog.get_logger(__name__)

#: Approximate number of entries of each kind kept in Redis.
KEPT = 10_000
#: Maximum number of characters of a request's path that are stored.
LONGEST_TARGET = 512

#: Access requirements of routes whose requests change something, unless their method is safe.
_CHANGING = frozenset({Need.EDIT, Need.ADMIN})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
#: Status codes of access refusals: no valid token; insufficient role or foreign page; wrong host.
_REFUSED = frozenset({401, 403, 421})


def kind_of(method: str, need: Need | None, status: int) -> AuditKind | None:
    """Return the kind of a request's audit entry; None if the request is not recorded.

    >>> kind_of("DELETE", Need.EDIT, 204), kind_of("GET", Need.READ, 200)
    (<AuditKind.CHANGE: 'change'>, None)
    >>> kind_of("GET", Need.READ, 403), kind_of("POST", Need.EDIT, 422)
    (<AuditKind.REFUSAL: 'refusal'>, None)
    """
    if status in _REFUSED:
        return AuditKind.REFUSAL
    # A request with an internal error may have changed something before it failed.
    if method in _SAFE or 400 <= status < 500:
        return None
    if need is Need.PUSH:
        return AuditKind.PUSH
    return AuditKind.CHANGE if need in _CHANGING else None


class Audit:
    """Writes and reads the audit log of a pipeline (namespace)."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._redis, self._keys, self._clock = store.redis, store.keys, clock

    async def record(
        self,
        kind: AuditKind,
        identity: Identity | None,
        *,
        client: str,
        method: str,
        route: str,
        path: str,
        status: int,
        request: str,
    ) -> None:
        """Write one entry. If Redis rejects it, the structured log still has it."""
        entry = AuditRecord(
            at=self._clock(),
            kind=kind,
            token=identity.token if identity else "",
            name=identity.name if identity else "",
            role=identity.role if identity else "",
            client=client,
            method=method,
            route=route,
            target=quote(path, safe="/:", errors="replace")[:LONGEST_TARGET],
            status=status,
            request=request,
        )
        _LOG.info("audit", **entry.model_dump(mode="json", exclude={"at"}))
        try:
            await cast(
                "Any",
                self._redis.xadd(
                    self._keys.audit(kind), {"entry": entry.model_dump_json()}, maxlen=KEPT
                ),
            )
        except RedisError as cause:
            _LOG.error("audit entry not kept", request=request, error=repr(cause))

    async def page(
        self, kind: AuditKind, limit: int, before: str | None
    ) -> tuple[list[AuditRecord], str | None]:
        """Return entries of one kind, newest first, and the cursor of the next page."""
        if before is not None and not before.strip("0-"):
            # ``before`` is the least possible id: no entry is older, and Redis rejects a range that
            # ends before it.
            return [], None
        newest = "+" if before is None else f"({before}"
        found = cast(
            "list[tuple[str, dict[str, str]]]",
            await cast(
                "Any", self._redis.xrevrange(self._keys.audit(kind), max=newest, count=limit + 1)
            ),
        )
        page = found[:limit]
        entries = [record for _, fields in page if (record := _read(fields)) is not None]
        return entries, page[-1][0] if len(found) > limit else None


def _read(fields: dict[str, str]) -> AuditRecord | None:
    try:
        return AuditRecord.model_validate_json(fields.get("entry", ""))
    except ValidationError as cause:
        _LOG.error("unreadable record", record="audit entry", reason=str(cause.error_count()))
        return None
