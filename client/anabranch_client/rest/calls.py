"""One description of every REST call, shared by the blocking and the asynchronous client.

A :class:`Call` is data: what to send and how to read the answer. Sending is all that the two
clients differ in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx
from pydantic import ValidationError

from anabranch_client.errors import ApiError
from anabranch_client.rest.answers import (
    AuditEntry,
    CurrentEpoch,
    DryRun,
    EpochInfo,
    EpochStatistics,
    EpochSummary,
    Explained,
    NewToken,
    PlanningSettings,
    QueryInfo,
    StoreDetail,
    StoredState,
    StreamInfo,
    StreamSample,
    TokenInfo,
    ViewRows,
    Who,
)
from anabranch_client.rest.push import json_row

T = TypeVar("T")

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and how its answer is read."""

    method: str
    path: str
    read: Callable[[Any], T]
    body: JsonObject | None = None
    params: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None

    def request(self, client: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        """The request as ``client`` sends it."""
        return client.build_request(
            self.method, self.path, json=self.body, params=self.params, headers=self.headers
        )

    def answer(self, response: httpx.Response) -> T:
        """The answer in ``response``.

        Raises:
            ApiError: the service refused, or answered something unreadable.
        """
        if not response.is_success:
            raise ApiError(response.status_code, _problem(response))
        try:
            return self.read(response.json() if response.content else None)
        except (ValueError, KeyError, TypeError) as cause:
            if isinstance(cause, ValidationError):
                first = cause.errors()[0]
                reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            else:
                reason = str(cause)
            raise ApiError(
                response.status_code,
                {
                    "code": "unreadable-answer",
                    "detail": f"{self.method} {self.path} answered what was not expected: {reason}",
                    "remedy": "is this address an anabranch service of the same version?",
                },
            ) from cause


def _problem(response: httpx.Response) -> JsonObject:
    try:
        document = response.json()
    except ValueError:
        document = None
    if isinstance(document, dict) and ("detail" in document or "title" in document):
        return document
    return {
        "status": response.status_code,
        "detail": f"{response.request.url} answered {response.status_code} "
        f"{response.reason_phrase}",
        "remedy": "is this the address of an anabranch service?",
    }


def unreachable(url: str, cause: httpx.HTTPError | httpx.InvalidURL) -> ApiError:
    """The error for a service that gave no answer at all."""
    return ApiError(
        0,
        {
            "code": "unreachable",
            "detail": f"the service at {url} does not answer: {str(cause) or type(cause).__name__}",
            "remedy": "start one with 'anabranch up', or set --url or ANABRANCH_URL",
        },
    )


def _nothing(_: Any) -> None:
    return None


def _given(**values: Any) -> JsonObject:
    """``values`` without those that are None."""
    return {name: value for name, value in values.items() if value is not None}


def create_stream(
    name: str,
    columns: Sequence[tuple[str, str]],
    event_time: str | None,
    lateness: str | None,
    source: JsonObject | None,
    idle_timeout: str | None = None,
    keep_late: bool | None = None,
    retention: JsonObject | None = None,
    ahead_of_clock: str | None = None,
    ahead_of_stream: str | None = None,
) -> Call[StreamInfo]:
    """Register a stream."""
    body = _given(
        name=name,
        event_time=event_time,
        lateness=lateness,
        idle_timeout=idle_timeout,
        keep_late=keep_late,
        ahead_of_clock=ahead_of_clock,
        ahead_of_stream=ahead_of_stream,
        retention=retention,
        source=source,
    )
    body["columns"] = [{"name": column, "type": kind} for column, kind in columns]
    return Call("POST", "/v1/streams", StreamInfo.model_validate, body)


def retention(ttl: str | None, latest: Sequence[str] | None) -> JsonObject | None:
    """Which tuples of a new stream are of use; None: all.

    >>> retention("7 days", None), retention(None, ("k",)), retention(None, ())
    ({'ttl': '7 days'}, {'latest': ['k']}, None)
    """
    return _given(ttl=ttl, latest=list(latest) if latest else None) or None


def list_streams() -> Call[list[StreamInfo]]:
    """All streams."""
    return Call("GET", "/v1/streams", _items(StreamInfo.model_validate))


def get_stream(name: str) -> Call[StreamInfo]:
    """One stream."""
    return Call("GET", f"/v1/streams/{quote(name, safe='')}", StreamInfo.model_validate)


def push_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> Call[int]:
    """Send rows to a stream."""
    path = f"/v1/streams/{quote(name, safe='')}/rows"
    return Call("POST", path, lambda doc: int(doc["rows"]), {"rows": [json_row(r) for r in rows]})


def patch_stream(name: str, changes: JsonObject) -> Call[StreamInfo]:
    """Change a stream's idle time-out, whether its late tuples are kept, or its retention."""
    path = f"/v1/streams/{quote(name, safe='')}"
    return Call("PATCH", path, StreamInfo.model_validate, changes)


def delete_stream(name: str) -> Call[None]:
    """Forget a stream that no query reads."""
    return Call("DELETE", f"/v1/streams/{quote(name, safe='')}", _nothing)


def query_body(
    sql: str | None,
    query: JsonObject | None,
    name: str | None,
    window: str | Mapping[str, str] | None,
    ttl: str | None,
    expires_at: str | None,
    sink: str | Mapping[str, Any] | None,
    priority: int | None,
    dialect: str | None = None,
) -> JsonObject:
    """The document that describes a query, in ``POST /v1/queries`` and in dry runs."""
    return _given(
        id=name,
        sql=sql,
        dialect=dialect,
        query=query,
        window=dict(window) if isinstance(window, Mapping) else window,
        ttl=ttl,
        expires_at=expires_at,
        sink={"format": sink} if isinstance(sink, str) else sink,
        priority=priority,
    )


def create_query(body: JsonObject, idempotency_key: str | None) -> Call[QueryInfo]:
    """Register a query."""
    headers = None if idempotency_key is None else {"Idempotency-Key": idempotency_key}
    return Call("POST", "/v1/queries", QueryInfo.model_validate, body, headers=headers)


def list_queries(cursor: str | None) -> Call[tuple[list[QueryInfo], str | None]]:
    """A page of queries, and the cursor of the next."""
    return Call("GET", "/v1/queries", _page(QueryInfo.model_validate), params=_after(cursor))


def get_query(name: str) -> Call[QueryInfo]:
    """One query."""
    return Call("GET", f"/v1/queries/{quote(name, safe='')}", QueryInfo.model_validate)


def view_rows(name: str, limit: int) -> Call[ViewRows]:
    """The rows of a query's view."""
    path = f"/v1/queries/{quote(name, safe='')}/rows"
    return Call("GET", path, ViewRows.model_validate, params={"limit": str(limit)})


def patch_query(name: str, changes: JsonObject) -> Call[QueryInfo]:
    """Change a query's expiry or priority."""
    path = f"/v1/queries/{quote(name, safe='')}"
    return Call("PATCH", path, QueryInfo.model_validate, changes)


def delete_query(name: str) -> Call[None]:
    """Let a query end with the current epoch."""
    return Call("DELETE", f"/v1/queries/{quote(name, safe='')}", _nothing)


def list_epochs(cursor: str | None) -> Call[tuple[list[EpochSummary], str | None]]:
    """A page of epochs, newest first, and the cursor of the next."""
    return Call("GET", "/v1/epochs", _page(EpochSummary.model_validate), params=_after(cursor))


def get_epoch(epoch: int) -> Call[EpochInfo]:
    """One published epoch, plan and all."""
    return Call("GET", f"/v1/epochs/{epoch}", EpochInfo.model_validate)


def epoch_statistics(epoch: int) -> Call[EpochStatistics]:
    """What was measured in an epoch that has ended."""
    return Call("GET", f"/v1/epochs/{epoch}/statistics", EpochStatistics.model_validate)


def state() -> Call[StoredState]:
    """What the stores hold."""
    return Call("GET", "/v1/state", StoredState.model_validate)


def stored(store: str, epochs: int) -> Call[StoreDetail]:
    """One store with its segments, readers and last epochs."""
    path = f"/v1/state/stores/{quote(store, safe='')}"
    return Call("GET", path, StoreDetail.model_validate, params={"epochs": str(epochs)})


def stream_sample(name: str) -> Call[StreamSample]:
    """What a sample of a stream tells about its columns."""
    path = f"/v1/streams/{quote(name, safe='')}/sample"
    return Call("GET", path, StreamSample.model_validate)


def current_epoch() -> Call[CurrentEpoch]:
    """The epoch that the runtime is in."""
    return Call("GET", "/v1/epochs/current", CurrentEpoch.model_validate)


def dry_run(
    add: Sequence[JsonObject],
    drop: Sequence[str],
    optimizer: str | None,
    objective: str | None,
    parallelism: int | None,
    statistics: Mapping[str, float] | None,
    **more: Any,
) -> Call[DryRun]:
    """The plan that would be made; nothing is published. ``more``: further fields of the body."""
    body = _given(
        optimizer=optimizer,
        objective=objective,
        parallelism=parallelism,
        statistics=statistics,
        **more,
    )
    body = {k: dict(v) if isinstance(v, Mapping) else v for k, v in body.items()}
    body |= {"add": list(add), "drop": list(drop)}
    return Call("POST", "/v1/plans:dry-run", DryRun.model_validate, body)


def explain(
    sql: str, dialect: str | None, window: str | Mapping[str, str] | None
) -> Call[Explained]:
    """What a statement's joins become; nothing is registered."""
    body = _given(
        sql=sql,
        dialect=dialect,
        window=dict(window) if isinstance(window, Mapping) else window,
    )
    return Call("POST", "/v1/queries:explain", Explained.model_validate, body)


def get_settings() -> Call[PlanningSettings]:
    """The planning settings."""
    return Call("GET", "/v1/settings", PlanningSettings.model_validate)


def put_settings(settings: Mapping[str, Any]) -> Call[PlanningSettings]:
    """Switch planning settings; None keeps a value, ``"none"`` lifts a limit."""
    body = {k: None if v == "none" else v for k, v in _given(**settings).items()}
    return Call("PUT", "/v1/settings", PlanningSettings.model_validate, body)


def whoami() -> Call[Who]:
    """Who the caller is."""
    return Call("GET", "/v1/whoami", Who.model_validate)


def create_token(name: str, role: str, ttl: str | None) -> Call[NewToken]:
    """Create a token."""
    body = _given(name=name, role=role, ttl=ttl)
    return Call("POST", "/v1/tokens", NewToken.model_validate, body)


def list_tokens() -> Call[list[TokenInfo]]:
    """All tokens."""
    return Call("GET", "/v1/tokens", _items(TokenInfo.model_validate))


def revoke_token(ident: str) -> Call[TokenInfo]:
    """Refuse a token from now on."""
    return Call("DELETE", f"/v1/tokens/{quote(ident, safe='')}", TokenInfo.model_validate)


def audit(kind: str, limit: int) -> Call[list[AuditEntry]]:
    """The newest entries of the audit log."""
    params = {"kind": kind, "limit": str(limit)}
    return Call("GET", "/v1/audit", _items(AuditEntry.model_validate), params=params)


def ready() -> Call[None]:
    """Answers once requests are served and epochs planned."""
    return Call("GET", "/readyz", _nothing)


def _after(cursor: str | None) -> dict[str, str] | None:
    return None if cursor is None else {"cursor": cursor}


def _items(read: Callable[[Any], T]) -> Callable[[Any], list[T]]:
    return lambda document: [read(item) for item in document["items"]]


def _page(read: Callable[[Any], T]) -> Callable[[Any], tuple[list[T], str | None]]:
    items = _items(read)
    return lambda document: (items(document), document.get("next_cursor"))
