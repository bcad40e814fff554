"""The Python client of the REST API, blocking and asynchronous.

>>> Client("http://127.0.0.1:1").base_url
'http://127.0.0.1:1'
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import httpx

from anabranch_client.rest import calls
from anabranch_client.rest import token as access
from anabranch_client.rest.calls import Asynchronous, Blocking, JsonObject, RestCall, method, pages
from anabranch_client.rest.calls import given as _given
from anabranch_client.rest.calls import path as _path
from anabranch_client.rest.notebook import Listing
from anabranch_client.rest.push import json_row
from anabranch_client.rest.tables import QueryCalls
from anabranch_client.rest.tail import TailEvent, TailFollower
from anabranch_contract import rest
from anabranch_contract.rest import planning
from anabranch_contract.rest.documents import nullable, read_body

if TYPE_CHECKING:
    from anabranch_contract.queries.families import Constant
    from anabranch_contract.rest.access import AuditRecord, TokenMade, TokenOut, WhoOut
    from anabranch_contract.rest.families import FamilyList, FamilyMember
    from anabranch_contract.rest.functions import FunctionOptions, FunctionOut
    from anabranch_contract.rest.planning.epochs import CurrentEpoch, EpochSummary, HeldPlanOut
    from anabranch_contract.rest.planning.plans import DryRunOut
    from anabranch_contract.rest.planning.revisions import RevisionList
    from anabranch_contract.rest.planning.series import SeriesOut
    from anabranch_contract.rest.planning.settings import SettingsOut
    from anabranch_contract.rest.planning.statistics import SampleOut, StatisticsOut
    from anabranch_contract.rest.profile import ProfileOut
    from anabranch_contract.rest.queries import (
        QueryBatchOut,
        QueryChange,
        QueryOptions,
        QueryOut,
        RunList,
    )
    from anabranch_contract.rest.source_tests import SourceTestOut
    from anabranch_contract.rest.state import StateOut, StoreDetailOut
    from anabranch_contract.rest.streams import StreamOptions, StreamOut
    from anabranch_contract.rest.system import HealthOut, LeaderOut

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8080"


class Calls(QueryCalls):
    """Methods of both clients, one per REST route; in :class:`AsyncClient` they are coroutines."""

    @method
    def create_stream(
        self,
        name: str,
        columns: Sequence[tuple[str, str]] | Mapping[str, str],
        *,
        source: JsonObject | None = None,
        ttl: str | None = None,
        latest: Sequence[str] | None = None,
        **options: Unpack[StreamOptions],
    ) -> RestCall[StreamOut]:
        """Register a stream; ``columns``: names and types. ``ttl``: window of each alias over it.
        ``latest``: columns of a key; only the latest tuple per key joins. None: not set."""
        body = _stream_body(name, columns, source, ttl, latest, options)
        return RestCall("POST", "/v1/streams", rest.streams.StreamOut.read, body)

    @method
    def test_stream(
        self,
        name: str,
        columns: Sequence[tuple[str, str]] | Mapping[str, str],
        *,
        source: JsonObject | None = None,
        ttl: str | None = None,
        latest: Sequence[str] | None = None,
        rows: int | None = None,
        propose: bool = False,
        **options: Unpack[StreamOptions],
    ) -> RestCall[SourceTestOut]:
        """Check ``rows`` sample rows of a source against the columns. ``propose``: infer what is
        missing in the registration from these rows."""
        body = _stream_body(name, columns, source, ttl, latest, options)
        params = _given(rows=rows and str(rows), propose="true" if propose else None)
        return RestCall(
            "POST", "/v1/streams:test", rest.source_tests.SourceTestOut.read, body, params=params
        )

    @method
    def streams(self) -> RestCall[list[StreamOut]]:
        """All streams, sorted by name."""
        return RestCall(
            "GET", "/v1/streams", lambda doc: Listing(rest.streams.StreamList.read(doc).items)
        )

    @method
    def stream(self, name: str) -> RestCall[StreamOut]:
        """One stream."""
        return RestCall("GET", _path("streams", name), rest.streams.StreamOut.read)

    @method
    def update_stream(self, /, name: str, **changes: Any) -> RestCall[StreamOut]:
        """Change fields of ``StreamPatch``; None removes ``idle_timeout`` or ``retention``, which
        may be ``{"ttl": "7 days", "latest": ["k"]}``."""
        return RestCall("PATCH", _path("streams", name), rest.streams.StreamOut.read, changes)

    @method
    def add_column(self, stream: str, /, **column: str | None) -> RestCall[StreamOut]:
        """Add a column: ``name``, ``type`` and, as text, ``default``: its value in earlier rows."""
        return RestCall(
            "POST", f"{_path('streams', stream)}/columns", rest.streams.StreamOut.read, column
        )

    @method
    def widen_column(self, stream: str, column: str, type: str) -> RestCall[StreamOut]:
        """Widen a column's type, such as int to bigint; stored rows and queries do not change."""
        path = _path("streams", stream, "columns", column)
        return RestCall("PATCH", path, rest.streams.StreamOut.read, {"type": type})

    @method
    def drop_column(self, stream: str, column: str) -> RestCall[StreamOut]:
        """Drop a column that no query reads; stored rows and queries do not change."""
        path = _path("streams", stream, "columns", column)
        return RestCall("DELETE", path, rest.streams.StreamOut.read)

    @method
    def reread_stream(self, name: str) -> RestCall[StreamOut]:
        """Read a table again; queries look up the previous rows until all new rows are read."""
        return RestCall("POST", f"{_path('streams', name)}:reread", rest.streams.StreamOut.read)

    @method
    def push(
        self, name: str, rows: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> RestCall[int]:
        """Send up to 10,000 rows to a ``redis-stream``: all or none, and once per key and day."""
        path, headers = _path("streams", name, "rows"), calls.once(idempotency_key)
        body = {"rows": [json_row(row) for row in rows]}
        return RestCall(
            "POST", path, lambda doc: rest.streams.RowsOut.read(doc).rows, body, headers=headers
        )

    @method
    def delete_stream(self, name: str) -> RestCall[None]:
        """Delete a stream that no query reads."""
        return RestCall("DELETE", _path("streams", name), _nothing)

    @method
    def stream_sample(self, name: str) -> RestCall[SampleOut]:
        """Statistics of a stream's columns, from a uniform sample."""
        return RestCall("GET", _path("streams", name, "sample"), planning.statistics.SampleOut.read)

    @method
    def create_query(
        self,
        sql: str | None = None,
        *,
        query: JsonObject | None = None,
        name: str | None = None,
        window: str | Mapping[str, str] | None = None,
        parameters: Mapping[str, Constant] | None = None,
        sink: str | Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        **terms: Unpack[QueryOptions],
    ) -> RestCall[QueryOut]:
        """Register a query: SQL, or a structured ``query``.

        ``parameters``: values of the statement's parameters (``:name``). ``sink``: a format, or a
        document with ``format``, ``options``, ``path``, ``commit_interval``. ``slo``: service level
        objectives (``latency``, ``freshness`` by alias, ``completeness``). ``dialect``: the
        statement's SQL dialect, by default Spark's. ``title``, ``owner``, ``tags``: texts for lists
        and search. ``past``: ``stored`` also emits results over stored tuples.
        """
        writer = {"format": sink} if isinstance(sink, str) else sink
        statement = query_body(sql, query, name, window)
        body = _given(**statement, parameters=parameters, sink=writer, **terms)
        headers = calls.once(idempotency_key)
        return RestCall("POST", "/v1/queries", rest.queries.QueryOut.read, body, headers=headers)

    @method
    def create_queries(
        self, queries: Sequence[JsonObject], *, atomic: bool = True, dry_run: bool = False
    ) -> RestCall[QueryBatchOut]:
        """Register many queries, each a body of ``POST /v1/queries``. ``atomic``: all or none; else
        each valid one.

        ``dry_run``: only check them, and return the expected outcome.
        """
        body = {"queries": list(queries), "atomic": atomic}
        params = {"dry_run": "true"} if dry_run else {}
        return RestCall(
            "POST", "/v1/queries:batch", rest.queries.QueryBatchOut.read, body, params=params
        )

    @method
    def create_family(
        self,
        name: str,
        sql: str,
        parameters: Mapping[str, Mapping[str, Constant]],
        *,
        window: str | Mapping[str, str] | None = None,
        dry_run: bool = False,
        **terms: Unpack[QueryOptions],
    ) -> RestCall[QueryBatchOut]:
        """Register queries with one statement that has parameters (``:name``), all or none.

        ``parameters``: suffix of a query's name -> the value of each parameter. ``terms``: options
        of all queries, as for :meth:`create_query`.
        """
        body = _given(**query_body(sql, None, name, window), parameters=parameters, **terms)
        params = {"dry_run": "true"} if dry_run else {}
        return RestCall(
            "POST", "/v1/queries:family", rest.queries.QueryBatchOut.read, body, params=params
        )

    @method
    def families(self, limit: int = 100) -> RestCall[FamilyList]:
        """Families of queries that differ only in constants, the largest first."""
        return RestCall(
            "GET", "/v1/families", rest.families.FamilyList.read, params={"limit": str(limit)}
        )

    @pages
    def family(
        self, after: Mapping[str, str], family: str, *, page: int | None = None
    ) -> RestCall[calls.Page[FamilyMember]]:
        """The queries of a family with their constants, in order of registration."""
        given = _given(limit=None if page is None else str(page))
        params, path = {**given, **after}, _path("families", family)
        return RestCall("GET", path, rest.families.FamilyMembers.read, params=params)

    @pages
    def queries(
        self,
        after: Mapping[str, str],
        *,
        find: str | None = None,
        streams: Sequence[str] = (),
        status: Sequence[str] = (),
        owner: str | None = None,
        tags: Sequence[str] = (),
        page: int | None = None,
    ) -> RestCall[calls.Page[QueryOut]]:
        """Queries that match all filters, in order of registration, fetched page by page.

        ``find``: a text in the name, title, owner, a tag or the statement. ``streams``, ``tags``: a
        query must have all of them. ``status``: a query must have one of them. ``page``: queries
        per request, 100 by default, at most 1000.
        """
        given = _given(find=find, owner=owner, limit=None if page is None else str(page))
        several = {"stream": list(streams), "status": list(status), "tag": list(tags)}
        return RestCall(
            "GET", "/v1/queries", rest.queries.QueryList.read, params={**given, **several, **after}
        )

    @method
    def put_query(
        self, name: str, body: JsonObject, *, dry_run: bool = False, version: str | None = None
    ) -> RestCall[QueryChange]:
        """Bring a query into the state of ``body``: register it, change it, or begin a new run.

        ``body`` has the fields of :meth:`create_query`, as REST calls them (``sql``, ``query``,
        ``window``, ``sink``, ...). ``dry_run``: only check it, and return the expected outcome.
        ``version``: ETag of the version to change.
        """
        params = {"dry_run": "true"} if dry_run else {}
        headers = None if version is None else {"If-Match": version}
        path = _path("queries", name)
        return RestCall(
            "PUT", path, rest.queries.QueryChange.read, body, params=params, headers=headers
        )

    @method
    def pause_query(self, name: str) -> RestCall[QueryOut]:
        """Pause a query from the next epoch on: it produces no results until it is resumed."""
        return RestCall("POST", f"{_path('queries', name)}:pause", rest.queries.QueryOut.read)

    @method
    def resume_query(self, name: str) -> RestCall[QueryOut]:
        """Resume a paused query with a new run."""
        return RestCall("POST", f"{_path('queries', name)}:resume", rest.queries.QueryOut.read)

    @method
    def query_runs(self, name: str) -> RestCall[RunList]:
        """The runs of a query, oldest first."""
        return RestCall("GET", _path("queries", name, "runs"), rest.queries.RunList.read)

    @method
    def update_query(self, /, name: str, **changes: Any) -> RestCall[QueryOut]:
        """Change ``ttl``, ``expires_at`` (None: never), ``priority``, ``title``, ``owner``,
        ``tags`` or fields of ``slo``; None removes a title, an owner or an objective."""
        return RestCall("PATCH", _path("queries", name), rest.queries.QueryOut.read, changes)

    @method
    def delete_query(self, name: str, *, cascade: bool = False) -> RestCall[None]:
        """Withdraw a query; it ends with the current epoch.

        Args:
            cascade: whether to withdraw its readers, too; otherwise they are an error.
        """
        params = {"cascade": "true"} if cascade else {}
        return RestCall("DELETE", _path("queries", name), _nothing, params=params)

    @pages
    def epochs(self, after: Mapping[str, str]) -> RestCall[calls.Page[EpochSummary]]:
        """All published epochs, newest first, page by page."""
        return RestCall("GET", "/v1/epochs", planning.epochs.EpochList.read, params=after)

    @method
    def current_epoch(self) -> RestCall[CurrentEpoch]:
        """The running epoch, and the runtime's progress."""
        return RestCall("GET", "/v1/epochs/current", planning.epochs.CurrentEpoch.read)

    @method
    def epoch_statistics(self, number: int) -> RestCall[StatisticsOut]:
        """Measurements of an ended epoch."""
        return RestCall(
            "GET", f"/v1/epochs/{number}/statistics", planning.statistics.StatisticsOut.read
        )

    @method
    def revisions(self, number: int) -> RestCall[RevisionList]:
        """The revisions of an epoch's ruleset, oldest first.

        Raises:
            ApiError: the epoch is not published.
        """
        return RestCall(
            "GET", f"/v1/epochs/{number}/revisions", planning.revisions.RevisionList.read
        )

    @method
    def series(self, last: int = 60, *, forecast: bool = False) -> RestCall[SeriesOut]:
        """Measurements of the newest ``last`` periods: rates, steps and sizes of stores.

        Args:
            forecast: include forecasts of rates and steps.
        """
        params = {"last": str(last), "forecast": str(forecast).lower()}
        return RestCall("GET", "/v1/series", planning.series.SeriesOut.read, params=params)

    @method
    def profile(self) -> RestCall[ProfileOut]:
        """CPU seconds of the pipeline since its start, by use."""
        return RestCall("GET", "/v1/profile", rest.profile.ProfileOut.read)

    @method
    def state(self) -> RestCall[StateOut]:
        """The contents of all stores after the newest reported batch."""
        return RestCall("GET", "/v1/state", lambda doc: read_body(rest.state.StateOut, doc))

    @method
    def stored(self, store: str, epochs: int = 30) -> RestCall[StoreDetailOut]:
        """One store with its segments, the probes that read it, and its last ``epochs``.

        Raises:
            ApiError: there is no such store.
        """
        path, params = _path("state/stores", store), {"epochs": str(epochs)}
        return RestCall(
            "GET", path, lambda doc: read_body(rest.state.StoreDetailOut, doc), params=params
        )

    @method
    def dry_run(
        self, /, add: Sequence[JsonObject] = (), *, drop: Sequence[str] = (), **assumed: Any
    ) -> RestCall[DryRunOut]:
        """Plan with the queries ``add`` added and the queries ``drop`` dropped; changes nothing.

        ``assumed`` has fields of ``DryRunIn``, omitted if None. ``statistics``, ``distinct``,
        ``selectivity`` and ``widths`` replace measurements. ``retention`` (stream -> ``{"ttl": "7
        days"}`` or None) replaces the streams' own. ``deadline`` is in seconds; ``detail`` is
        ``full`` or ``summary``.
        """
        body = _given(add=list(add), drop=list(drop), **assumed)
        return RestCall("POST", "/v1/plans:dry-run", planning.plans.DryRunOut.read, body)

    @method
    def held_plan(self) -> RestCall[HeldPlanOut]:
        """The held plan.

        Raises:
            ApiError: no plan is held (``no-held-plan``).
        """
        return RestCall("GET", "/v1/plan/held", planning.epochs.HeldPlanOut.read)

    @method
    def approve_plan(self, version: str) -> RestCall[HeldPlanOut]:
        """Approve the held plan: it is published at the next epoch boundary.

        Args:
            version: version of the plan to approve (:attr:`HeldPlanOut.version`).

        Raises:
            ApiError: another plan, or none, is held now.
        """
        path, headers = "/v1/plan/held:approve", {"If-Match": version}
        return RestCall("POST", path, planning.epochs.HeldPlanOut.read, headers=headers)

    @method
    def refuse_plan(self, version: str) -> RestCall[HeldPlanOut]:
        """Refuse the held plan; arguments and errors as for ``approve_plan``."""
        path, headers = "/v1/plan/held:refuse", {"If-Match": version}
        return RestCall("POST", path, planning.epochs.HeldPlanOut.read, headers=headers)

    @method
    def settings(self) -> RestCall[SettingsOut]:
        """The planning settings."""
        return RestCall("GET", "/v1/settings", planning.settings.SettingsOut.read)

    @method
    def update_settings(self, /, **changes: str | float | None) -> RestCall[SettingsOut]:
        """Change planning settings from the next planned epoch on; None keeps a value.

        Args:
            changes: settings by name, as :class:`PlanningSettings` defines them; ``"none"`` lifts a
                limit. For ``intermediate_results``, ``"never"`` is 0, ``"any"`` lifts the limit.

        Raises:
            RequestError: an unknown setting, or an invalid value.
        """
        words = {"none": None, "any": None, "never": 0}
        body = {
            name: words.get(value, value)
            if isinstance(value, str) and nullable(planning.settings.PlanningSettings, name)
            else value
            for name, value in changes.items()
            if value is not None
        }
        return RestCall("PATCH", "/v1/settings", planning.settings.SettingsOut.read, body)

    @method
    def leader(self) -> RestCall[LeaderOut]:
        """The leading service, which plans and publishes."""
        return RestCall("GET", "/v1/leader", rest.system.LeaderOut.read)

    @method
    def whoami(self) -> RestCall[WhoOut]:
        """The caller's name and role."""
        return RestCall("GET", "/v1/whoami", rest.access.WhoOut.read)

    @method
    def add_function(
        self,
        signature: str,
        module: str,
        *,
        replace: bool = False,
        **options: Unpack[FunctionOptions],
    ) -> RestCall[FunctionOut]:
        """Register a function, ``name(parameter TYPE, ...) RETURNS TYPE``, of a Python module."""
        body = {"signature": signature, "module": module, **_given(**options)}
        params = {"replace": "true"} if replace else None
        return RestCall(
            "POST", "/v1/functions", rest.functions.FunctionOut.read, body, params=params
        )

    @method
    def functions(self) -> RestCall[list[FunctionOut]]:
        """All functions, by name."""
        return RestCall(
            "GET", "/v1/functions", lambda doc: Listing(rest.functions.FunctionList.read(doc).items)
        )

    @method
    def function(self, name: str) -> RestCall[FunctionOut]:
        """One function, and the live queries that call it."""
        return RestCall("GET", _path("functions", name), rest.functions.FunctionOut.read)

    @method
    def delete_function(self, name: str) -> RestCall[None]:
        """Delete a function that no live query calls."""
        return RestCall("DELETE", _path("functions", name), _nothing)

    @method
    def create_token(self, name: str, role: str, *, ttl: str | None = None) -> RestCall[TokenMade]:
        """Create an access token. Only this answer contains its secret."""
        body = _given(name=name, role=role, ttl=ttl)
        return RestCall("POST", "/v1/tokens", rest.access.TokenMade.read, body)

    @method
    def tokens(self) -> RestCall[list[TokenOut]]:
        """All tokens, oldest first."""
        return RestCall(
            "GET", "/v1/tokens", lambda doc: Listing(rest.access.TokenList.read(doc).items)
        )

    @method
    def revoke_token(self, ident: str) -> RestCall[TokenOut]:
        """Revoke a token at once."""
        return RestCall("DELETE", _path("tokens", ident), rest.access.TokenOut.read)

    @method
    def audit(self, kind: str = "change", *, limit: int = 100) -> RestCall[list[AuditRecord]]:
        """Audit entries of a kind, newest first: ``change``, ``push`` or ``refusal``."""
        params = {"kind": kind, "limit": str(limit)}
        return RestCall(
            "GET",
            "/v1/audit",
            lambda doc: Listing(rest.access.AuditPage.read(doc).items),
            params=params,
        )

    @method
    def health(self) -> RestCall[HealthOut]:
        """State of every component, the most urgent first."""
        return RestCall("GET", "/v1/health", rest.system.HealthOut.read)

    @method
    def ready(self) -> RestCall[None]:
        """Return if the service is ready (it answers requests and plans epochs).

        Raises:
            ApiError: it is not ready, or can't be reached.
        """
        return RestCall("GET", "/readyz", _nothing)


class Client(Calls, Blocking):
    """Client of one service; thread-safe; close it, or use it in a ``with`` statement.

    ``token`` is sent with every request. None: the token in ``ANABRANCH_TOKEN``, or in the file
    that ``ANABRANCH_TOKEN_FILE`` names, if any. Empty: no token.
    """

    def __init__(
        self, base_url: str = DEFAULT_URL, *, timeout: float = 60.0, token: str | None = None
    ) -> None:
        self.base_url = base_url
        self._http = httpx.Client(
            base_url=base_url,
            timeout=timeout,
            headers=access.headers(token),
            verify=calls.has_certificate(base_url),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def send(self, call: RestCall[T]) -> T:
        """Send a REST call, and return its parsed answer.

        Raises:
            ApiError: the service refused the request, or can't be reached.
        """
        try:
            response = self._http.send(call.request(self._http))
        except (httpx.HTTPError, httpx.InvalidURL) as cause:
            raise calls.unreachable(self.base_url, cause) from cause
        return call.answer(response)

    def tail(
        self, name: str, *, from_start: bool = False, limit: int | None = None
    ) -> Iterator[TailEvent]:
        """Follow a query's committed results, until ``limit`` rows or the query's end.

        A lost connection is made again, and the results missed meanwhile come first; a ``gap``
        event has the number of rows that are missing.
        """
        follower = TailFollower(name, from_start, limit)
        while not follower.over:
            try:
                request = follower.request(self._http)
                with closing(self._http.send(request, stream=True)) as response:
                    if not response.is_success:
                        response.read()
                    follower.connected(response)
                    for part in response.iter_bytes():
                        yield from follower.feed(part)
            except (httpx.HTTPError, httpx.InvalidURL) as cause:
                time.sleep(follower.pause(self.base_url, cause))
            else:
                time.sleep(follower.rest())


class AsyncClient(Calls, Asynchronous):
    """:class:`Client` for ``asyncio``: the same methods, awaited."""

    def __init__(
        self, base_url: str = DEFAULT_URL, *, timeout: float = 60.0, token: str | None = None
    ) -> None:
        self.base_url = base_url
        self._http = httpx.AsyncClient(
            base_url=base_url,
            timeout=timeout,
            headers=access.headers(token),
            verify=calls.has_certificate(base_url),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def send(self, call: RestCall[T]) -> T:
        """Send a REST call, and return its parsed answer.

        Raises:
            ApiError: the service refused the request, or can't be reached.
        """
        try:
            response = await self._http.send(call.request(self._http))
        except (httpx.HTTPError, httpx.InvalidURL) as cause:
            raise calls.unreachable(self.base_url, cause) from cause
        return call.answer(response)

    async def tail(
        self, name: str, *, from_start: bool = False, limit: int | None = None
    ) -> AsyncIterator[TailEvent]:
        """Follow a query's committed results, until ``limit`` rows or the query's end.

        A lost connection is made again, and the results missed meanwhile come first; a ``gap``
        event has the number of rows that are missing.
        """
        import asyncio  # takes as long as the rest of a command's start

        follower = TailFollower(name, from_start, limit)
        while not follower.over:
            try:
                request = follower.request(self._http)
                async with aclosing(await self._http.send(request, stream=True)) as response:
                    if not response.is_success:
                        await response.aread()
                    follower.connected(response)
                    async for part in response.aiter_bytes():
                        for event in follower.feed(part):
                            yield event
            except (httpx.HTTPError, httpx.InvalidURL) as cause:
                await asyncio.sleep(follower.pause(self.base_url, cause))
            else:
                await asyncio.sleep(follower.rest())


def query_body(
    sql: str | None,
    query: JsonObject | None,
    name: str | None,
    window: str | Mapping[str, str] | None = None,
) -> JsonObject:
    """Body of a query in REST, for registrations and dry runs."""
    return _given(id=name, sql=sql, query=query, window=window)


def _stream_body(
    name: str,
    columns: Sequence[tuple[str, str]] | Mapping[str, str],
    source: JsonObject | None,
    ttl: str | None,
    latest: Sequence[str] | None,
    options: StreamOptions,
) -> JsonObject:
    retention = _given(ttl=ttl, latest=list(latest) if latest else None)
    body = _given(name=name, **options, retention=retention or None, source=source)
    pairs = columns.items() if isinstance(columns, Mapping) else columns
    listed = [{"name": column, "type": kind} for column, kind in pairs]
    # Without columns, the service takes the columns of a table in a database.
    body["columns"] = listed or {}
    return body


def _nothing(_: Any) -> None:
    return None
