"""Shared objects of a running service, which route handlers get as a FastAPI dependency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

from anabranch_service.access.audit import Audit
from anabranch_service.access.gate import Gate
from anabranch_service.access.tokens import Tokens
from anabranch_service.clock import Clock
from anabranch_service.planning.loop import EpochLoop
from anabranch_service.planning.observer import Observer
from anabranch_service.planning.work import ThreadPools
from anabranch_service.presenters.health import HealthLog
from anabranch_service.presenters.metrics import Metrics
from anabranch_service.presenters.state import StoreHistory
from anabranch_service.registry.publishing.lease import Lease
from anabranch_service.registry.store import Store
from anabranch_service.settings import ServiceSettings
from anabranch_service.streaming.tail import ServedTails
from anabranch_service.tables.named import TableNames
from anabranch_service.tables.reader import TableReader


@dataclass(frozen=True, slots=True)
class Context:
    """Shared objects of a running service: settings, registry, epoch loop, tokens, metrics, ..."""

    settings: ServiceSettings
    store: Store
    lease: Lease
    loop: EpochLoop
    metrics: Metrics
    observer: Observer
    clock: Clock
    tails: ServedTails
    history: StoreHistory
    tokens: Tokens
    gate: Gate
    audit: Audit
    work: ThreadPools
    health: HealthLog
    tables: TableReader
    names: TableNames


def _context(request: Request) -> Context:
    return cast("Context", request.app.state.context)


Ctx = Annotated[Context, Depends(_context)]
