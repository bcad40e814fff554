"""The registry in Redis: records are validated on reading, and written atomically.

Every change of a record is a compare-and-set, every registration one Lua script: several service
processes of one pipeline can't lose each other's writes. Writes that only the leading service may
make are in :mod:`.publishing.publication`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import cast

from anabranch_contract.connectors.sources import RUN
from anabranch_contract.protocol.progress import Mode
from anabranch_service.registry.derived import Queries, is_query
from anabranch_service.registry.redis.functions import FunctionStore
from anabranch_service.registry.redis.plans import PlanStore
from anabranch_service.registry.redis.reading import reply
from anabranch_service.registry.redis.reports import ReportStore
from anabranch_service.registry.redis.streams import StreamStore


@dataclass(frozen=True, slots=True)
class Misfit:
    """A registry key whose Redis value has the wrong type."""

    key: str
    wanted: str
    found: str


class Store(StreamStore, FunctionStore, PlanStore, ReportStore):
    """The registry of one pipeline (namespace); its parts are in modules of ``redis``."""

    async def ping(self) -> None:
        """Raise an error unless Redis answers."""
        await reply(self.redis.ping(), bool)

    async def known_queries(self, now: datetime, mode: Mode) -> Queries:
        """Return the registered queries, with their states, in a pipeline of ``mode``."""
        streams = (await self.streams()).items()
        runs = {n: one.source.options[RUN] for n, one in streams if is_query(one)}
        (records, index), activations = await self.indexed_queries(), await self.activations()
        functions = {n: one.to_function() for n, one in (await self.functions()).items()}
        progress = await self.progress()
        return Queries(records, index, activations, progress, now, runs, mode, functions)

    async def delete_unread(self, queries: Queries) -> None:
        """Delete the streams of queries that no live query reads any more."""
        for name in queries.streams:
            if not queries.users_of(name)(queries.records):
                await self.delete_stream(name, queries.users_of(name), lambda _: None)

    async def misfits(self) -> list[Misfit]:
        """Return the registry keys whose Redis values have the wrong type."""
        keys = self.keys
        wanted = {
            **dict.fromkeys((keys.streams, keys.queries, keys.activations), "hash"),
            **dict.fromkeys((keys.samples, keys.latest, keys.views, keys.state_parts), "hash"),
            **dict.fromkeys((keys.tokens, keys.token_uses, self.runs_key), "hash"),
            self.functions_key: "hash",
            **dict.fromkeys((keys.leader, keys.lineage, keys.approval), "hash"),
            **dict.fromkeys((keys.settings, keys.cursor, keys.runtime, keys.state), "string"),
            **dict.fromkeys((keys.heartbeat, keys.standby, keys.lease), "string"),
            self._own("sequence"): "string",
            **dict.fromkeys((keys.published, keys.listeners), "zset"),
            keys.boundaries: "list",
            keys.reports: "stream",
        }
        async with self.redis.pipeline(transaction=False) as pipe:
            for key in wanted:
                pipe.type(key)
            found = cast("list[str]", await pipe.execute())
        pairs = zip(wanted.items(), found, strict=True)
        return [Misfit(k, want, kind) for (k, want), kind in pairs if kind not in (want, "none")]
