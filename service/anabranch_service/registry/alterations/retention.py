"""Changes of a stream's retention, and the queries over it afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch_contract.errors import PlannerError
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.expressions import Output
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamKind
from anabranch_service.errors import Conflict, InvalidInput
from anabranch_service.registry.describe import describe
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.slo import check_freshness
from anabranch_service.registry.statements import NormalForms

#: Maximum number of conflicting queries that an error names.
_REPORTED = 20


def check_kept(record: StreamRecord, changes: Mapping[str, Any]) -> None:
    """Refuse to change the key or retention of a table or of upserts."""
    whole = record.kind in (StreamKind.TABLE, StreamKind.UPSERT)
    for field in ("retain", "ttl", "latest"):
        if whole and changes.get(field, getattr(record, field)) != (getattr(record, field)):
            raise InvalidInput(
                "table-property",
                f"{record.name!r} is of kind {record.kind}, which keeps all of its rows, or the "
                "last of each key",
                field="retain" if field == "retain" else f"retention.{field}",
                remedy="leave retention out; to change the key, delete the table and "
                "register it again",
            )


def replanned(
    name: str,
    queries: list[QueryRecord],
    streams: Mapping[str, Stream],
    forms: NormalForms,
    before: Stream,
) -> list[QueryRecord]:
    """Return the records of queries over stream ``name``, with new normal forms, after a change of
    its retention.

    Args:
        before: the stream before the change.

    Raises:
        Conflict: a query could no longer be planned, would join tuples beyond its freshness, or
            keeps rows of an outer join that would get other columns.
    """
    changed, reasons, stale, kept = [], [], [], []
    for query in queries:
        try:
            known = _kept(query, forms, {**streams, name: before})
            joins = forms.of(query, streams)
            meaning = describe(joins, streams)
            if streams[name].ttl != before.ttl:
                check_freshness(query.slo, joins, streams)
            if known not in (None, _columns(joins)):
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
            "kept-rows-lack-times",
            f"outer joins keep rows of stream {name!r} by their values, but with a ttl also by "
            f"event time, with latest by arrival: {_some(kept)}",
            field="retention",
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


def _kept(
    query: QueryRecord, forms: NormalForms, streams: Mapping[str, Stream]
) -> list[tuple[Output, ...]] | None:
    """Return the columns of the rows that a query's outer join keeps; None if it keeps none."""
    outer = query.normalised.outer
    return _columns(forms.of(query, streams)) if outer is not None and outer.changes else None


def _columns(query: JoinQuery) -> list[tuple[Output, ...]]:
    return [join.projection for join in query.planned]


def _some(reasons: list[str]) -> str:
    more = f" and {len(reasons) - _REPORTED} more" if len(reasons) > _REPORTED else ""
    return ", ".join(reasons[:_REPORTED]) + more
