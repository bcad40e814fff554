"""Answers on runs that wait to take the place of a query's present run."""

from __future__ import annotations

from anabranch_contract.queries.runs import query_of
from anabranch_contract.rest.queries import ReplacementOut
from anabranch_service.registry.cutover import Lack, lack, standby
from anabranch_service.registry.derived import Queries
from anabranch_service.registry.lifecycle import LIVE
from anabranch_service.registry.records import QueryRecord


def replacement_out(present: QueryRecord, queries: Queries) -> ReplacementOut | None:
    """Return the newest run that waits for the place of ``present``, or failed while waiting."""
    run = standby(present, queries.runs(query_of(present.id)))
    if run is None or not run.waits or queries.status(present) not in LIVE:
        return None
    found = None if run.caught_up else lack(run, queries.activations, queries.progress)
    readers = queries.readers(query_of(present.id))
    if run.rejected is not None:
        found = Lack(f"it can't be planned: {run.rejected.message}", run.rejected.remedy)
    elif readers:
        found = Lack(
            f"the present run is read by {', '.join(map(repr, readers))}", "delete these queries"
        )
    return ReplacementOut(
        run=run.id,
        status=queries.status(run).value,
        sql=run.sql,
        waits_because=None if found is None else found.reason,
        remedy="" if found is None else found.remedy,
    )
