"""Checks of a query's service level objectives: unattainable ones are refused."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch_contract.durations import format_duration, parse_duration
from anabranch_contract.queries.joins import JoinQuery, Micros, Stream
from anabranch_contract.rest.slo import Slo
from anabranch_service.durations import read_positive
from anabranch_service.errors import InvalidInput

#: Minimum latency objective of a query or of the settings, in microseconds.
LEAST_LATENCY = 100_000


def check_slo(slo: Slo, query: JoinQuery, streams: Mapping[str, Stream]) -> None:
    """Refuse unattainable objectives; the error names the least attainable value.

    Args:
        streams: by name, including all streams of ``query``.

    Raises:
        InvalidInput: the error names the field by its path, such as ``slo.latency``.
    """
    if slo.latency is not None:
        found = read_positive(
            slo.latency,
            "slo.latency",
            "bad-latency",
            "a latency of nothing",
            f"give {format_duration(LEAST_LATENCY)} or more",
        )
        if found < LEAST_LATENCY:
            raise InvalidInput(
                "bad-latency",
                f"a latency of {slo.latency!r} is shorter than any batch",
                field="slo.latency",
                remedy=f"give {format_duration(LEAST_LATENCY)} or more",
            )
    check_freshness(slo, query, streams)


def check_freshness(slo: Slo, query: JoinQuery, streams: Mapping[str, Stream]) -> None:
    """Refuse a freshness that excludes tuples within the query's time bounds, or that has no
    meaning for the query; see :func:`check_slo`.

    Raises:
        InvalidInput: the error names the field, such as ``slo.freshness.<alias>``.
    """
    if slo.freshness and query.outer is not None:
        raise InvalidInput(
            "freshness-with-outer-join",
            "the query has an outer, semi or anti join, in which partners count whatever their age",
            field="slo.freshness",
            remedy="leave the freshness out, or write a window into the ON condition",
        )
    if slo.freshness and query.united:
        raise InvalidInput(
            "freshness-with-union",
            "the query has a set operation, whose operands have no alias in common",
            field="slo.freshness",
            remedy="leave the freshness out, or give the query a window",
        )
    changing = [stream for _, stream in query.deleting(streams)]
    if slo.freshness and changing:
        raise InvalidInput(
            "freshness-with-changes",
            f"stream {str(changing[0])!r} has deletes, which count however old the deleted rows "
            "are",
            field="slo.freshness",
            remedy="leave the freshness out, or give the query a window",
        )
    for alias, text in slo.freshness.items():
        _check_freshness(alias, text, query, streams)


def freshness_of(slo: Slo) -> dict[str, Micros]:
    """Return the freshness objectives in microseconds, by alias."""
    return {alias: parse_duration(text) for alias, text in slo.freshness.items()}


def _check_freshness(
    alias: str, text: str, query: JoinQuery, streams: Mapping[str, Stream]
) -> None:
    field = f"slo.freshness.{alias}"
    at = next((n for n, member in enumerate(query.members) if member.alias == alias), None)
    if at is None:
        raise InvalidInput(
            "unknown-alias",
            f"the query has no alias {alias!r}",
            field=field,
            remedy=f"name one of {', '.join(member.alias for member in query.members)}",
        )
    label = query.members[at].label
    stream = streams[query.relation_of(label).stream]
    if stream.event_time is None:
        raise InvalidInput(
            "freshness-without-event-time",
            f"stream {str(stream.name)!r}, which {alias!r} reads, has no event time",
            field=field,
            remedy="leave it out, or declare the stream's event_time",
        )
    others = [wide for n, wide in enumerate(query.bounds[at]) if n != at and wide is not None]
    needed = max((*others, 0))
    least = f"give {format_duration(needed)} or more" if needed else "give a positive duration"
    found = read_positive(text, field, "bad-freshness", "a freshness of nothing", least)
    if found < needed:
        raise InvalidInput(
            "bad-freshness",
            f"the query joins tuples of {alias!r} that are up to {format_duration(needed)} older "
            f"than others, and {text!r} would leave them out",
            field=field,
            remedy=f"{least}, or a shorter window",
        )
