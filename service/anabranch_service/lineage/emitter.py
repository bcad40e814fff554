"""Sending of OpenLineage events, one after the other, by the leading service.

The events to send are derived from the query records and from the last event sent for each, which
is kept in Redis (``Keys.lineage``). So no queue is needed while the receiver is down, a restart
loses no event, and a new leader continues. After a crash between sending and recording, an event is
sent twice, with the same run id.
"""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import structlog

from anabranch_contract.connectors.secrets import masked_text
from anabranch_contract.errors import PlannerError
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import Stream
from anabranch_service.clock import Clock
from anabranch_service.lineage.events import EventType, due, event, run_id
from anabranch_service.presenters.metrics import Metrics
from anabranch_service.registry.lifecycle import status_of
from anabranch_service.registry.publishing.lease import LeadershipLost, Lease
from anabranch_service.registry.publishing.publication import Publication
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.statements import usable_streams
from anabranch_service.registry.store import Store
from anabranch_service.settings import ServiceSettings

_LOG = structlog.get_logger(__name__)

#: Seconds between two rounds; longest pause after failures (s); time limit of one request (s).
PAUSE, LONGEST_PAUSE, PATIENCE = 1.0, 60.0, 10.0
#: Maximum number of events per round, since another service may have taken the lead meanwhile.
MOST = 100


class Emitter:
    """Sends events to the address in the settings."""

    def __init__(
        self, store: Store, lease: Lease, settings: ServiceSettings, metrics: Metrics, clock: Clock
    ) -> None:
        self._store, self._lease, self._clock = store, lease, clock
        self._url, self._namespace = settings.lineage.lineage_url, settings.namespace
        self._token_file, self._metrics = settings.lineage.lineage_token_file, metrics
        self._failures = 0

    async def run(self) -> None:
        """Send due events until cancelled; do nothing if no receiver is configured."""
        if not self._url:
            return
        async with httpx.AsyncClient(timeout=PATIENCE) as http:
            while True:
                try:
                    await self.turn(http)
                    self._failures = 0
                except LeadershipLost:
                    pass
                except Exception as cause:  # noqa: BLE001 - logged; the event is sent again later
                    self._failures += 1
                    self._metrics.lineage.labels("failed").inc()
                    if self._failures == 1:
                        reason = masked_text(str(cause)) or type(cause).__name__
                        _LOG.warning("lineage not sent", url=masked_text(self._url), reason=reason)
                await asyncio.sleep(min(PAUSE * 2.0**self._failures, LONGEST_PAUSE))

    async def turn(self, http: httpx.AsyncClient) -> None:
        """Send due events, at most :data:`MOST`, if this process leads.

        Raises:
            LeadershipLost: another service leads.
            httpx.HTTPError: the receiver rejected an event, after accepting the previous ones.
        """
        term, store = self._lease.term, self._store
        if term is None:
            return
        publication = Publication(store, term)
        records, sent = await store.queries(), await store.lineage()
        runs = {run_id(self._namespace, record): record for record in records}
        gone = sent.keys() - runs.keys()
        if gone:
            await publication.forget_lineage(sorted(gone))
        activations, progress = await store.activations(), await store.progress()
        now, kept = self._clock(), await store.streams()
        streams = usable_streams(kept.values())
        left = MOST
        for run, record in runs.items():
            activation = activations.get(record.id)
            said = EventType(sent[run]) if run in sent else None
            kind = due(status_of(record, activation, progress, now), said)
            if kind is None or left == 0:
                continue
            failure = None if activation is None else activation.failure
            error = "" if kind is not EventType.FAIL or failure is None else failure.message
            document = await self._document(kind, record, kept, streams, now, error)
            if document is not None:
                await self._send(http, document)
                self._metrics.lineage.labels("sent").inc()
                left -= 1
            await publication.lineage(run, kind)

    async def _document(
        self,
        kind: EventType,
        record: QueryRecord,
        kept: dict[str, StreamRecord],
        streams: dict[str, Stream],
        now: datetime,
        error: str,
    ) -> dict[str, Any] | None:
        """Return the event as JSON; None if the query or one of its streams is unreadable."""
        try:
            query = await asyncio.to_thread(self._store.forms.of, record, streams)
            return event(kind, self._namespace, record, query, kept, now, error)
        except (PlannerError, KeyError) as cause:
            _LOG.warning("no lineage", query=record.id, reason=str(cause))
            return None

    async def _send(self, http: httpx.AsyncClient, document: dict[str, Any]) -> None:
        address = urlsplit(self._url)
        if address.scheme == "file":
            await asyncio.to_thread(_append, Path(unquote(address.path)), document)
            return
        headers = {}
        if self._token_file:
            token = await asyncio.to_thread(Path(self._token_file).read_text, "ascii")
            headers["Authorization"] = f"Bearer {token.strip()}"
        (await http.post(self._url, json=document, headers=headers)).raise_for_status()


def _append(path: Path, document: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(document) + "\n")
