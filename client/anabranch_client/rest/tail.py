"""Following a query's results as server-sent events, resumed after a lost connection."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

import httpx

from anabranch_client.rest import calls

#: Seconds without a byte after which a connection counts as lost; the service sends a comment
#: every ten seconds.
SILENCE = 30.0
#: Pause between two attempts to connect, and total time of all attempts, in seconds.
PAUSE, PATIENCE = 1.0, 60.0

Kind = Literal["row", "gap", "live", "end"]


@dataclass(frozen=True, slots=True)
class TailEvent:
    """An event of a tail, the stream of a query's results.

    Attributes:
        kind: ``row``: a result; ``gap``: rows are missing here (``missed`` of them, None: unknown);
            ``live``: all stored results have been sent, new ones follow; ``end``: no more results.
        id: position of the row among the query's results, ``batch:number``.
        row: column -> value, for a row.
        detail: fields of events other than rows: ``missed``, ``results`` or ``reason``.
    """

    kind: Kind
    id: str = ""
    row: dict[str, Any] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class TailFollower:
    """State of one tail (following of a query's results), across its connections.

    Attributes:
        over: whether the results have ended.
    """

    name: str
    from_start: bool
    limit: int | None
    over: bool = False
    _last_id: str = ""
    _rest: bytes = b""
    _lost_since: float | None = None
    _answered: bool = False

    def request(self, client: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        """The request that continues after the last received event."""
        self._rest = b""
        params = {"from": "start" if self.from_start else "now"}
        if self.limit is not None:
            params["limit"] = str(self.limit)
        headers = {"Accept": "text/event-stream"}
        if self._last_id:
            headers["Last-Event-ID"] = self._last_id
        timeout = httpx.Timeout(10.0, read=SILENCE)
        path = f"/v1/queries/{quote(self.name, safe='')}/results"
        return client.build_request("GET", path, params=params, headers=headers, timeout=timeout)

    def connected(self, response: httpx.Response) -> None:
        """Check the service's answer to the request for events.

        Raises:
            ApiError: the service refused.
        """
        if not response.is_success:
            calls.RestCall("GET", "", lambda _: None).answer(response)
        self._lost_since, self._answered = None, True

    def feed(self, part: bytes) -> Iterator[TailEvent]:
        """Add received bytes; return the events that they complete."""
        *blocks, self._rest = (self._rest + part).split(b"\n\n")
        for block in blocks:
            event = read_event(block.decode())
            if event is None:
                continue
            self._last_id = event.id or self._last_id
            if event.kind == "live" and not event.id:
                # No result has arrived yet, so a new connection begins with the first one.
                self.from_start = True
            if event.kind == "row" and self.limit is not None:
                self.limit -= 1
            self.over = event.kind == "end"
            yield event
            if self.over:
                return

    def rest(self) -> float:
        """Seconds to wait after the service has closed the connection."""
        self.over = self.over or self.limit == 0
        return 0.0 if self.over else PAUSE

    def pause(self, base_url: str, cause: httpx.HTTPError | httpx.InvalidURL) -> float:
        """Seconds to wait after a connection was lost or could not be made.

        Raises:
            ApiError: the service never answered, or has not answered for a long time.
        """
        if self.limit == 0:
            self.over = True
            return 0.0
        now = time.monotonic()
        self._lost_since = now if self._lost_since is None else self._lost_since
        if not self._answered or now - self._lost_since >= PATIENCE:
            raise calls.unreachable(base_url, cause) from cause
        return PAUSE


def read_event(block: str) -> TailEvent | None:
    r"""The event in a block of lines; None for a comment.

    >>> read_event('id: 3:17\nevent: row\ndata: {"a": 1}').row
    {'a': 1}
    """
    fields: dict[str, str] = {}
    for line in block.split("\n"):
        name, colon, value = line.partition(":")
        if colon and name:
            fields[name] = value.removeprefix(" ")
    if "event" not in fields:
        return None
    kind, document = fields["event"], json.loads(fields.get("data") or "{}")
    if kind == "row":
        return TailEvent("row", fields.get("id", ""), row=document)
    if kind in ("gap", "live", "end"):
        return TailEvent(kind, fields.get("id", ""), detail=document)  # type: ignore[arg-type]
    return None
