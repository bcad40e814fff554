"""Published epochs, and the runtime's progress, as the REST API shows them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from anabranch_contract.codec import fields
from anabranch_contract.protocol.progress import Heartbeat, Progress
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.rest.planning.epochs import (
    EpochOut,
    EpochSummary,
    KeptSummary,
    RationingOut,
    RuntimeOut,
)
from anabranch_contract.rest.planning.insight import TableRecord
from anabranch_service.registry.records import EpochRecord
from anabranch_service.registry.source_status import SourceStates

#: Maximum number of cost shares and stores in a summary, and of names of a store's users.
MOST_SHARES, MOST_STORES, MOST_USERS = 20, 30, 2


def first_batch(epoch: int, progress: Progress | None) -> int | None:
    """Return the first batch of ``epoch``, or None while the runtime has not started it."""
    return None if progress is None else progress.epoch_starts.get(str(epoch))


def epoch_out(record: EpochRecord, progress: Progress | None) -> EpochOut:
    """Make the answer with all details of a published epoch."""
    return EpochOut.of(record, first_batch=first_batch(record.epoch, progress))


def summarised(epoch: EpochOut) -> EpochOut:
    """Return an epoch without its shares, reasons and difference, and of the plan only totals."""
    totals = {name: value for name, value in epoch.explain.items() if name == "totals"}
    left_out = dict.fromkeys(("shares", "diff", "reasons", "tables"))
    return epoch.model_copy(update={"explain": totals, **left_out})


def cut(epoch: EpochOut, query: str | None) -> EpochOut:
    """Return an epoch without its reasons, with short lists, and of the plan one query's part.

    Args:
        query: run of the query; None: no query's part.
    """
    shares, tables = epoch.shares, epoch.tables
    if shares is not None:
        more = max(len(shares.queries) - MOST_SHARES, 0)
        some = shares.queries[:MOST_SHARES]
        shares = shares.model_copy(update={"queries": some, "omitted": shares.omitted + more})
    if shares is not None and tables is not None:
        shown = {one.query for one in shares.queries}
        kept = [_table_of(table, shown) for table in tables.tables]
        tables = tables.model_copy(update={"tables": [one for one in kept if one.queries]})
    explain = _part(epoch.explain, query)
    changes = {"shares": shares, "tables": tables, "explain": explain, "reasons": None}
    return epoch.model_copy(update=changes)


def _table_of(table: TableRecord, queries: Set[str]) -> TableRecord:
    own = [one for one in table.queries if one.query in queries]
    return table.model_copy(update={"queries": own})


def _part(explain: dict[str, Any], query: str | None) -> dict[str, Any]:
    """Return of a plan the part of ``query``, and its costliest stores with their first users."""
    queries = [one for one in explain.get("queries", ()) if registered(one["id"]) == query]
    orders = [order for one in queries for order in one["orders"]]
    step_of = {step["id"]: step for step in explain.get("steps", ())}
    probed = {step_of[at]["store"] for order in orders for at in order["steps"]}
    maintenance = [one for one in explain.get("maintenance", ()) if one["label"] in probed]
    orders += [order for one in maintenance for order in one["orders"]]
    used = dict.fromkeys(at for order in orders for at in order["steps"])
    stores = sorted(explain.get("stores", ()), key=lambda store: -store["insert_cost"])
    return {
        **explain,
        "queries": queries,
        "maintenance": maintenance,
        "steps": [step_of[at] for at in used],
        "stores": [
            {**store, "used_by": store["used_by"][:MOST_USERS], "users": len(store["used_by"])}
            for store in stores[:MOST_STORES]
        ],
        "substreams": [],
    }


def epoch_summary(kept: KeptSummary, revisions: int, progress: Progress | None) -> EpochSummary:
    """Return the summary of a published epoch."""
    first = first_batch(kept.epoch, progress)
    return EpochSummary.of(
        kept, first_batch=first, revisions=revisions, query_count=len(kept.queries)
    )


def epoch_items(
    kept: Sequence[tuple[KeptSummary, int]],
    limit: int,
    progress: Progress | None,
    *,
    brief: bool = False,
) -> list[EpochSummary]:
    """Return the list's entries of published epochs, newest first, each with its changes.

    Args:
        kept: summaries with counts of revisions, newest first; the one after the last entry is
            compared with it.
        limit: maximum number of entries.
        brief: leave out the names of all queries.
    """
    items = []
    for at, (summary, revisions) in enumerate(kept[:limit]):
        before = kept[at + 1][0] if at + 1 < len(kept) else None
        added = removed = list[str]()
        # Equal plans have equal queries.
        if before is None or summary.plan is None or summary.plan != before.plan:
            earlier = [] if before is None else before.queries
            added = _missing(summary.queries, earlier)
            removed = _missing(earlier, summary.queries)
        changes = {"queries_added": added, "queries_removed": removed}
        item = epoch_summary(summary, revisions, progress)
        items.append(item.model_copy(update=changes | ({"queries": []} if brief else {})))
    return items


def _missing(names: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the ``names`` that ``others`` lacks, in their order."""
    known = set(others)
    return [name for name in names if name not in known]


def runtime_out(
    progress: Progress | None,
    heartbeat: Heartbeat | None,
    standby: Heartbeat | None,
    sources: SourceStates,
) -> RuntimeOut | None:
    """Return the summary of the runtime's progress, and whether the runtime is alive."""
    if progress is None:
        return None
    given = progress.input
    return RuntimeOut.of(
        progress,
        **fields(progress.resources),
        exhausted=given.exhausted,
        row_limit=given.row_limit,
        stale=heartbeat is None,
        standby=standby.host if standby is not None and standby.state == "working" else None,
        input_tuples=sum(c.get("input", 0) for c in progress.streams.values()),
        late_tuples=sum(c.get("late", 0) for c in progress.streams.values()),
        ahead_tuples=sum(c.get("ahead", 0) for c in progress.streams.values()),
        waiting_tuples=sum(i.waiting for i in given.intake.values()),
        unread_pieces={
            n: i.unread.pieces for n, i in sorted(given.intake.items()) if i.unread.pieces
        },
        source_errors=sources.failed(),
        rationing=RationingOut.of(progress.rationing),
    )
