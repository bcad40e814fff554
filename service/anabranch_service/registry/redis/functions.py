"""Users' functions in Redis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redis.asyncio.client import Pipeline

from anabranch_contract.rest.functions import FunctionRecord
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.redis.queries import QueryStore
from anabranch_service.registry.redis.reading import strict

#: Function from a function's record (None: there is none) and all runs of queries to the function's
#: new record (None: delete it).
Decide = Callable[[FunctionRecord | None, Sequence[QueryRecord]], FunctionRecord | None]


class FunctionStore(QueryStore):
    """Records of users' functions."""

    async def functions(self) -> dict[str, FunctionRecord]:
        """Return all functions by name, sorted; unreadable records are logged and left out."""
        found = await self._all(FunctionRecord, self.functions_key, "function ")
        return dict(sorted(found.items()))

    async def function(self, name: str) -> FunctionRecord | None:
        """Return one function, or None."""
        return strict(FunctionRecord, name, await self._hget(self.functions_key, name))

    async def change_function(self, name: str, decide: Decide) -> FunctionRecord | None:
        """Register, change or delete a function as ``decide`` returns; returns its record, or None.

        ``decide`` may run several times, and may raise. All is one transaction: no query is
        registered or changed in between.
        """

        async def attempt(pipe: Pipeline) -> FunctionRecord | None:
            before = await self.function(name)
            record = decide(before, await self.queries())
            if record == before:
                return record
            pipe.multi()  # type: ignore[no-untyped-call]
            if record is None:
                pipe.hdel(self.functions_key, name)
            else:
                pipe.hset(self.functions_key, name, record.model_dump_json())
            # No query calls it yet, so no other plan is required.
            self._note(pipe, functions=[name], planned=[])
            return record

        return await self._transact(attempt, self.functions_key, self.keys.queries)
