"""Queries over a stream after a change of its retention."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.joins import Stream
from anabranch_service.errors import Conflict, InvalidInput
from anabranch_service.registry.describe import describe
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.slo import check_freshness
from anabranch_service.registry.statements import NormalForms

#: Most conflicting queries named in an error.
_REPORTED = 20


def replanned(
    name: str,
    queries: list[QueryRecord],
    streams: Mapping[str, Stream],
    forms: NormalForms,
    bound: bool,
    turned: bool,
) -> list[QueryRecord]:
    """Records of the queries over stream ``name``, with new normal forms after a change of its
    retention.

    Args:
        bound: whether the ttl changes, so that freshness objectives must be checked again.
        turned: whether the stream begins or ceases to keep the latest per key.

    Raises:
        Conflict: a query could no longer be planned, would join tuples beyond its freshness, or
            has kept the rows of an outer join by their values and needs their arrivals, or vice
            versa.
    """
    changed, reasons, stale, kept = [], [], [], []
    for query in queries:
        try:
            joins = forms.of(query, streams)
            meaning = describe(joins, streams)
            if bound:
                check_freshness(query.slo, joins, streams)
            if turned and joins.outer is not None and joins.outer.kept and not joins.is_asof:
                kept.append(query.id)
        except PlannerError as cause:
            reasons.append(f"{query.id} ({cause.message})")
        except InvalidInput as cause:
            stale.append(f"{query.id} ({cause.message}; {cause.field}: {cause.remedy})")
        else:
            changed.append(query.model_copy(update={"normalised": meaning}))
    if reasons:
        raise Conflict(
            "ttl-contradicts-queries",
            f"with this ttl of stream {name!r} queries can't be planned: {_some(reasons)}",
            field="retention.ttl",
            remedy="give a longer ttl, or withdraw these queries first",
        )
    if kept:
        raise Conflict(
            "latest-contradicts-queries",
            f"outer joins keep the rows of stream {name!r}, by their values or, with latest, by "
            f"their arrivals: {_some(kept)}",
            field="retention.latest",
            remedy="withdraw these queries first, and register them again",
        )
    if stale:
        raise Conflict(
            "ttl-contradicts-freshness",
            f"with this ttl of stream {name!r} queries join tuples beyond their freshness: "
            + _some(stale),
            field="retention.ttl",
            remedy="give a shorter ttl, or first give these queries the freshness shown",
        )
    return changed


def _some(reasons: list[str]) -> str:
    more = f" and {len(reasons) - _REPORTED} more" if len(reasons) > _REPORTED else ""
    return ", ".join(reasons[:_REPORTED]) + more
