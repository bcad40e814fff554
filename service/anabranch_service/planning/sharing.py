"""Decision whether a new query gets its own stores, or shares stores with weaker filters.

If there is a query over ``a WHERE v > 3``, a new query over ``a WHERE v > 5`` can have a store of
its own, with fewer rows, or use a common store and test ``v > 5`` as a tag
(``planner.cost.sharing``). The decision precedes the first plan with the query, and is final: a
running query never switches stores, since these hold different past rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from anabranch_contract.codec import to_json
from anabranch_contract.errors import PlannerError
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.rest.normalised import NormalisedInfo
from anabranch_planner.cost.sharing import SharedStores
from anabranch_planner.cost.statistics.constants import CostConstants
from anabranch_planner.cost.statistics.statistics import Statistics, measured
from anabranch_service.planning.request import Registered, read_queries
from anabranch_service.registry.describe import describe
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.statements import NormalForms, as_seen, usable_streams

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Shared:
    """Decision on the stores of one query.

    Attributes:
        relaxed: alias -> weaker filter of the store that it shares, as in the query's record;
            aliases with a store of their own are absent.
        normalised: description of the query's normal form with these filters.
    """

    relaxed: Mapping[str, list[dict[str, Any]]]
    normalised: NormalisedInfo

    def on(self, record: QueryRecord, seen: QueryRecord) -> QueryRecord:
        """Write the decision into ``record``, unless its normal form differs from that of ``seen``,
        the record for which the decision was made (a stream may have changed meanwhile)."""
        if record.normalised != seen.normalised:
            return record
        given = {"relaxed": dict(self.relaxed), "normalised": self.normalised}
        return record.model_copy(update={**given, "sharing_decided": True})


def _statistics(snapshot: Snapshot | None) -> Statistics:
    """Return the statistics for the decision: rows of all batches so far, so a store's fixed cost
    per batch is counted as often."""
    if snapshot is None:
        return Statistics()
    constants = CostConstants(calls=float(max(snapshot.total_batches, 1)))
    return replace(measured(snapshot), constants=constants)


def decide_sharing(found: Registered, forms: NormalForms) -> dict[str, Shared]:
    """Decide for each query without a decision which stores it shares."""
    new = [record for record in found.wanted if not record.sharing_decided]
    if not new:
        return {}
    streams, names = usable_streams(found.streams.values()), {record.id for record in new}
    stores = SharedStores(_statistics(found.snapshot))
    for query in read_queries((r for r in found.wanted if r.id not in names), streams, forms)[0]:
        stores.add(query)
    own, decided = {}, {}
    for record in new:
        try:
            query = forms.of(record, streams)
        except PlannerError:
            # Without a decision here: planning rejects the query, with the reason.
            continue
        decided[record.id] = Shared({}, record.normalised)
        if record.sql is not None and query.outer is None and not query.united:
            own[record.id] = query
        else:
            stores.add(query)
    chosen = stores.choose(list(own.values()))
    for record in new:
        filters = chosen.get(record.id)
        if filters is None:
            continue
        try:
            seen = as_seen(record.columns, streams)
            query = forms.statement(record).normalise(record.id, seen, filters)
            meaning = describe(query, streams)
        except PlannerError as cause:
            _LOG.warning("filters are not shared", query=record.id, error=repr(cause))
            continue
        one = Shared({alias: to_json(kept) for alias, kept in filters.items()}, meaning)
        decided[record.id] = one
        forms.keep(one.on(record, record), query, streams)
    return decided
