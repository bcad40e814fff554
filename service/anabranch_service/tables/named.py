"""Resolution of names of queries to runs, and the newest batch that all of them have."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch_contract.protocol.progress import Progress
from anabranch_contract.queries.runs import query_of
from anabranch_service.clock import Clock
from anabranch_service.errors import Conflict, unknown
from anabranch_service.registry.cutover import as_of, last_read
from anabranch_service.registry.lifecycle import Status, status_of
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.redis.nearest import with_meant
from anabranch_service.registry.store import Store
from anabranch_service.tables.current import TableSpec
from anabranch_service.tables.described import check_batch, newest_batch, spec_of


@dataclass(frozen=True, slots=True)
class Named:
    """The run that a name denotes, its status, and the newest batch of its files."""

    record: QueryRecord
    status: Status
    batch: int


@dataclass(frozen=True, slots=True)
class TableNames:
    """Resolves names of queries or runs to tables."""

    store: Store
    clock: Clock

    async def seen(self, names: Sequence[str]) -> tuple[list[Named], Progress | None]:
        """Return the runs that ``names`` denote, and the progress from which newest batches follow.

        Runs are read first, then the progress, then activations. So a run that has replaced another
        one includes that run's last batch, and the replaced run is not read beyond this batch.

        Raises:
            Unknown: a name denotes no query.
            Conflict: a query's results are not in files that can be read here.
        """
        runs = [await self._run(name) for name in names]
        progress, found = await self.store.progress(), list[Named]()
        for record in runs:
            activation = await self.store.activation(record.id)
            batch = await asyncio.to_thread(newest_batch, record, progress, activation)
            runs = await self.store.runs_of(query_of(record.id))
            last = last_read(record, runs, activation)
            status = status_of(record, activation, progress, self.clock())
            found.append(Named(record, status, batch if last is None else min(batch, last)))
        return found, progress

    async def _run(self, name: str) -> QueryRecord:
        found = await self.store.query(name)
        if found is None:
            raise await with_meant(self.store, unknown("query", name))
        return found

    async def as_of(self, name: str, seen: Named, batch: int) -> QueryRecord:
        """Return the run that ``name`` means as of ``batch``.

        Raises:
            Conflict: ``batch-forgotten``: it meant a run whose record is gone.
        """
        if name != query_of(seen.record.id):
            return seen.record
        found = as_of(seen.record, await self.store.runs_of(name), batch)
        if found is None:
            raise Conflict(
                "batch-forgotten",
                f"as of batch {batch} an earlier run of query {name!r} was read, which has ended "
                "and is not listed any more",
                field="batch",
                remedy="read a later batch, or the run's files in the results directory",
            )
        return found

    async def resolve(
        self, names: Sequence[str], wanted: int | None
    ) -> tuple[int, Mapping[str, TableSpec]]:
        """Return the tables of ``names``, all as of one batch: the wanted one, or the newest that
        all have.

        Raises:
            NotFound, Conflict: as :meth:`seen`; or a table does not have the batch yet, or no
                longer.
        """
        seen, progress = await self.seen(names)
        newest = [one.batch for one in seen]
        if not newest:
            newest = [-1 if progress is None else progress.committed - 1]
        batch = check_batch(wanted, newest)
        pairs = zip(names, seen, strict=True)
        runs = {name: await self.as_of(name, one, batch) for name, one in pairs}
        return batch, {name: replace(spec_of(run), upto=batch) for name, run in runs.items()}


def home_of(progress: Progress | None) -> str:
    """Return the results directory that the runtime reports; empty before its first report."""
    return "" if progress is None else progress.results_home
