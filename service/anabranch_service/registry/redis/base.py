"""Reads and writes of records in Redis, common to all resources."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from pydantic import BaseModel
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from anabranch_contract.protocol.keys import CHANGES_KEPT, Keys
from anabranch_service.registry.redis.reading import (
    lenient,
    reply,
    reply_record,
    reply_text,
    strict,
)

_T = TypeVar("_T")
_R = TypeVar("_R", bound=BaseModel)

#: Compare-and-set function: hash, field, old text, new text -> whether the new text was written.
Swap = Callable[[str, str, str, str], Awaitable[bool]]

#: Lua function of scripts: whether the journal has entries after ``since`` on which checks may
#: depend. Changes that are part of a plan do not count: no check depends on them, and a plan makes
#: thousands.
CHANGED = """
local function changed(journal, since)
  for _, entry in ipairs(redis.call('XRANGE', journal, '(' .. since, '+')) do
    local planned = false
    for n = 1, #entry[2], 2 do planned = planned or entry[2][n] == 'planned' end
    if not planned or entry[2][1] == 'functions' then return true end
  end
  return false
end
"""

#: Compare-and-set script. KEYS hash, journal; ARGV field, old value, new value, the journal's name
#: for the hash, journal entries kept.
_SWAP = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[5], '*', ARGV[4], cjson.encode({ARGV[1]}))
return 1
"""


@dataclass(frozen=True, slots=True)
class ChangedRecords:
    """Changes of the registry since a version: names of streams, runs of queries and functions.

    Attributes:
        version: the newest version.
    """

    version: str
    streams: frozenset[str]
    queries: frozenset[str]
    functions: frozenset[str]


class RedisRecords:
    """Connection to Redis, key names of the service, and reads and writes of records.

    Attributes:
        registering: lock held from checks against other records to the write that depends on them,
            so that requests to one process do not invalidate each other's checks again and again.
            Writes of other processes are noticed by the version alone.
    """

    def __init__(self, redis: Redis, namespace: str) -> None:
        self.redis = redis
        self.keys = Keys(namespace)
        #: Hash: run -> when it was first seen to have ended.
        self.ended_key = self._own("ended")
        #: Hash: query -> its newest run; absent if that is the first run and has a record.
        self.runs_key = self._own("runs")
        #: Hash: name in SQL -> JSON record of a user's function.
        self.functions_key = self._own("functions")
        #: Hash: epoch whose ruleset is a patch -> epoch of the patch's base.
        self.bases_key = self._own("epochs", "bases")
        #: Hash: epoch -> size of its record and rulesets in bytes.
        self.epoch_bytes_key = self._own("epochs", "bytes")
        #: Hash: epoch -> its explanation, if made after the publication.
        self.explanations_key = self._own("epochs", "explanations")
        #: Hash: epoch -> its summary for lists.
        self.summaries_key = self._own("epochs", "summaries")
        self.registering = asyncio.Lock()
        #: Cache of :meth:`_all`: hash -> field -> text and parsed record.
        self._known: dict[str, dict[str, tuple[str, Any]]] = {}

    def _own(self, *parts: str) -> str:
        """Return the name of a Redis key that only the service uses."""
        return ":".join((self.keys.namespace, *parts))

    async def _run(self, script: str, keys: list[str], arguments: list[Any]) -> Any:
        """Run a Lua script."""
        return await self.redis.register_script(script)(keys=keys, args=arguments)

    async def version(self) -> str:
        """Return the registry's version, the id of the journal's newest entry. Records read after
        this call are at least as new."""
        newest = await cast("Any", self.redis.xrevrange(self.keys.changes, count=1))
        return str(newest[0][0]) if newest else "0-0"

    async def changes_since(self, version: str) -> ChangedRecords:
        """Return the changes of the registry after ``version``."""
        entries = await cast("Any", self.redis.xrange(self.keys.changes, min=f"({version}"))
        named = {
            kind: frozenset(n for _, entry in entries for n in json.loads(entry.get(kind, "[]")))
            for kind in ("streams", "queries", "functions")
        }
        return ChangedRecords(str(entries[-1][0]) if entries else version, **named)

    async def _transact(self, attempt: Callable[[Pipeline], Awaitable[_T]], *watched: str) -> _T:
        """Run ``attempt`` as one transaction; repeat it if a ``watched`` key changes meanwhile.

        Commands that ``attempt`` queues after ``multi`` run atomically. Returns its value.
        """
        done = self.redis.transaction(attempt, *watched, value_from_callable=True)
        return cast("_T", await done)

    async def _update(
        self,
        kind: type[_R],
        key: str,
        name: str,
        change: Callable[[_R], _R],
        swap: Swap | None = None,
    ) -> _R | None:
        """Apply ``change`` to a record of the hash ``key``; retry after a concurrent write."""
        swap = swap or self._compare_and_set
        while True:
            old = await self._hget(key, name)
            record = strict(kind, name, old)
            if record is None or old is None:
                return None
            changed = change(record)
            if changed == record:
                return record
            if await swap(key, name, old, changed.model_dump_json()):
                return changed

    async def _compare_and_set(self, key: str, field: str, old: str, new: str) -> bool:
        arguments = [field, old, new, self.kind_of(key), CHANGES_KEPT]
        return bool(await self._run(_SWAP, [key, self.keys.changes], arguments))

    def kind_of(self, key: str) -> str:
        """Return the name of the hash ``key`` in the journal of changes."""
        return "streams" if key == self.keys.streams else "queries"

    def _note(self, pipe: Pipeline, **changed: list[str]) -> None:
        """Append changed names (by kind of record) to the journal, as part of a transaction."""
        entry = {kind: json.dumps(names) for kind, names in changed.items()}
        pipe.xadd(self.keys.changes, cast("Any", entry), maxlen=CHANGES_KEPT)

    async def _all(self, kind: type[_T], key: str, prefix: str = "") -> dict[str, _T]:
        """Return a hash's records; unreadable ones are logged (``prefix`` + name) and left out."""
        raw = await reply(self.redis.hgetall(key), dict[str, str])
        before, found = self._known.get(key, {}), {}
        for name, text in raw.items():
            # Only changed texts are parsed; records are immutable and can be shared.
            known, value = before.get(name, ("", None))
            value = value if known == text else lenient(kind, prefix + name, text)
            if value is not None:
                found[name] = text, value
        self._known[key] = found
        return {name: value for name, (_, value) in found.items()}

    async def _field(self, kind: type[_T], key: str, name: str, prefix: str = "") -> _T | None:
        """Return one field of a hash as a record; None if missing or unreadable."""
        return await reply_record(kind, prefix + name, self.redis.hget(key, name))

    async def _hget(self, key: str, field: str) -> str | None:
        return await reply_text(self.redis.hget(key, field))
