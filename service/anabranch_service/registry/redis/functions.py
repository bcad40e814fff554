"""Users' functions in Redis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redis.asyncio.client import Pipeline

from anabranch_contract.rest.functions import FunctionRecord
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.redis.queries import QueryStore
from anabranch_service.registry.redis.reading import strict

#: Function from all runs of queries to the live ones that call a function.
Users = Callable[[Sequence[QueryRecord]], list[str]]


class FunctionStore(QueryStore):
    """Records of users' functions."""

    async def functions(self) -> dict[str, FunctionRecord]:
        """All functions by name, sorted; unreadable records are logged and left out."""
        found = await self._all(FunctionRecord, self.functions_key, "function ")
        return dict(sorted(found.items()))

    async def function(self, name: str) -> FunctionRecord | None:
        """One function, or None."""
        return strict(FunctionRecord, name, await self._hget(self.functions_key, name))

    async def put_function(
        self, name: str, record: FunctionRecord | None, users: Users
    ) -> list[str]:
        """Register, change or (None) delete a function unless ``users`` names queries that call it;
        returns these queries. Both are one transaction.
        """

        async def attempt(pipe: Pipeline) -> list[str]:
            blocking = users(await self.queries())
            if not blocking:
                pipe.multi()  # type: ignore[no-untyped-call]
                if record is None:
                    pipe.hdel(self.functions_key, name)
                else:
                    pipe.hset(self.functions_key, name, record.model_dump_json())
            return blocking

        return await self._transact(attempt, self.functions_key, self.keys.queries)
