"""Registration and planning as in the service, in this process: no REST, no event loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from redis import Redis

from anabranch_contract.connectors.user_functions import texts_of
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.queries.runs import query_of
from anabranch_contract.rest.queries import QueryIn
from anabranch_service.registry.derived import Queries, is_query, with_queries
from anabranch_service.registry.describe import describe
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.statements import read_statement, usable_streams
from anabranch_service.routes.queries.registration import check_past, past_of
from tests.support.functions import registered as functions
from tests.support.plain_service import PlainService, Planner
from tests.support.scenarios.file import Scenario
from tests.support.scenarios.script import Script

FUNCTIONS = functions.registered()
#: Maximum number of aliases of a join: wider ones may have millions of results.
_WIDEST = 5
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


class WideError(Exception):
    """A join with too many aliases for a test."""


class Registry:
    """Registry of streams and queries for tests.

    Attributes:
        streams: the registered streams, and the queries that are streams.
        records: all queries and parts, in order of registration.
        forms: id -> normal form of each query ever registered.
        redis: Redis to which the streams are written; None: there is no runtime.
        widest: maximum number of aliases of a join.
    """

    def __init__(
        self,
        streams: Iterable[StreamRecord],
        keys: Keys,
        redis: Redis | None = None,
        *,
        widest: int = _WIDEST,
    ) -> None:
        self.streams = {record.name: record for record in streams}
        self.records: list[QueryRecord] = []
        self.forms: dict[str, JoinQuery] = {}
        self._redis, self._keys, self.widest = redis, keys, widest
        self._store()

    @property
    def usable(self) -> dict[str, Stream]:
        """The streams in the planner's form, by name."""
        return usable_streams(self.streams.values())

    @property
    def queries(self) -> Queries:
        """The registered queries, as the service's registration sees them."""
        runs = {n: r.source.options["run"] for n, r in self.streams.items() if is_query(r)}
        index = defaultdict[str, dict[str, QueryRecord]](dict)
        for record in self.records:
            for key in record.keys:
                index[key][record.id] = record
        return Queries(self.records, index, {}, None, _NOW, runs, Mode.LIVE, FUNCTIONS)

    @property
    def wanted(self) -> list[QueryRecord]:
        """The queries to plan."""
        return [record for record in self.records if record.wanted(_NOW)]

    def register(self, name: str, sql: str, *, past: bool) -> QueryRecord:
        """Register a query, with its parts.

        Args:
            past: whether to request results over stored tuples, if they are not the default.

        Raises:
            PlannerError: the statement is refused.
            InvalidInput: stored tuples do not suffice.
            WideError: a join has too many aliases.
        """
        body, queries = QueryIn(name=name, sql=sql), self.queries
        reading = with_queries(read_statement(sql), self.usable, queries, name)
        query = reading.statement.normalise(name, reading.streams)
        forms = (query, *(part.query for part in reading.parts))
        if any(len(join.members) > self.widest for form in forms for join in form.planned):
            raise WideError
        meaning = describe(query, reading.streams)
        chosen = past_of(body, query, reading.streams)
        if past:
            check_past("stored", query, reading.streams)
            for one in reading.parts:
                check_past("stored", one.query, one.reading.streams)
            chosen = "stored"
        made = [(one.name, one.reading, one.query, one.meaning) for one in reading.parts]
        records, streams = list[QueryRecord](), dict[str, StreamRecord]()
        for number, (part, own, form, shown) in enumerate(
            [*made, (name, reading, query, meaning)], 1
        ):
            last = part == name
            records.append(
                QueryRecord.of(
                    body,
                    past=chosen if last else past_of(body, form, own.streams, part=True),
                    id=part,
                    sequence=len(self.records) + number,
                    created_at=_NOW,
                    sql=own.statement.sql,
                    normalised=shown,
                    reads=own.reads,
                    inlined=own.statement.inlined,
                    functions=texts_of(own.statement.called),
                    part_of="" if last else name,
                    part=0 if last else number,
                )
            )
            streams |= {one.name: one for one in own.made}
            self.forms[part] = form
        self.records += records
        self.streams = {**streams, **self.streams}
        self._store()
        return records[-1]

    def drop(self, name: str) -> None:
        """End a query, its parts, and all queries that read it."""
        ended = {name, *self.queries.all_readers(name)}
        self.records = [
            one.model_copy(update={"removed_at": _NOW})
            if query_of(one.id) in ended or one.part_of in ended
            else one
            for one in self.records
        ]

    def forget(self, running: Iterable[str]) -> None:
        """Delete streams of queries that no query reads any more; ``running``: queries of the
        running ruleset.
        """
        there = {*(one.id for one in self.wanted), *running}
        read = {query for one in self.records if one.id in there for query in one.reads}
        gone = [n for n, r in self.streams.items() if is_query(r) and n not in read]
        for name in gone:
            del self.streams[name]
        if gone:
            self._store()

    def _store(self) -> None:
        if self._redis is None:
            return
        documents: Mapping[Any, Any] = {n: r.model_dump_json() for n, r in self.streams.items()}
        with self._redis.pipeline() as pipe:
            pipe.delete(self._keys.streams)
            pipe.hset(self._keys.streams, mapping=dict(documents))
            pipe.execute()


class JointService(PlainService):
    """Plans and publishes the registered queries."""

    def __init__(
        self, registry: Registry, url: str, planner: Planner, script: Script, tasks: int
    ) -> None:
        self.registry = registry
        document = {"parallelism": tasks}
        scenario = Scenario({}, {}, 1)
        super().__init__(scenario, document, url, planner, script, script.backfilling)

    def streams_in(self, epoch: int) -> list[Stream]:
        """Return all streams."""
        return list(self.registry.usable.values())

    def query_in(self, name: str, epoch: int) -> JoinQuery:
        """Return a query's normal form; of an outer join or a union, any of its joins."""
        whole = self.registry.forms[registered(name)]
        if registered(name) == name:
            return whole
        return next(part for part in whole.planned if part.id == name)

    def active(self, epoch: int) -> list[str]:
        """Return the queries to plan."""
        return [record.id for record in self.registry.wanted]

    def publish(self, epoch: int) -> None:
        """Plan and publish ``epoch``."""
        self._past = frozenset(one.id for one in self.registry.wanted if one.emits_past)
        super().publish(epoch)
