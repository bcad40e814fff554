"""Missed rows: read before a query began, and not stored for it, so its results lack them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch_contract.protocol.activations import Activation, least_complete, of_union
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.queries.runs import query_of
from anabranch_contract.rest.documents import iso_time
from anabranch_contract.rest.normalised import NormalisedInfo
from anabranch_contract.rest.queries import MissedOut
from anabranch_service.registry.records import QueryRecord


@dataclass(frozen=True, slots=True)
class PartNow:
    """A part of a statement (a subquery that runs as a separate query) at this moment.

    Attributes:
        past: whether the part has all results of the past that its statement needs.
        activation: None before it begins.
    """

    name: str
    meaning: NormalisedInfo
    past: bool
    activation: Activation | None = None

    @property
    def lacks(self) -> dict[str, int]:
        """Stream -> number of rows from before the part's activation that its results lack."""
        return {} if self.activation is None or self.past else self.activation.before


def parts_now(
    records: Sequence[QueryRecord], activations: Mapping[str, Activation], run: str | None = None
) -> dict[str, list[PartNow]]:
    """Map each run (only ``run``, if given) to the parts of its statement."""
    found = defaultdict[str, list[PartNow]](list)
    parts = [one for one in records if one.part_of and run in (None, one.part_of)]
    owners = {one.part_of for one in parts}
    seen = records if owners else ()
    begins = {one.id for one in seen if one.id in owners and one.past == "none"}
    for one in parts:
        meaning = one.normalised
        activation = of_union(activations, one.id, len(meaning.branches))
        part = PartNow(
            query_of(one.id), meaning, one.past == "stored" or one.part_of in begins, activation
        )
        found[one.part_of].append(part)
    return found


def with_parts(activation: Activation | None, parts: Sequence[PartNow]) -> Activation | None:
    """Return ``activation`` with the completeness of the statement, which depends on its parts."""
    begun = [one.activation for one in parts if one.activation is not None]
    if activation is None or not begun:
        return activation
    complete, complete_from = least_complete([activation, *begun])
    if any(part.lacks for part in parts):
        complete, complete_from = "never", None
    return replace(activation, complete=complete, complete_from=complete_from)


def missed_rows(
    meaning: NormalisedInfo,
    activation: Activation | None,
    progress: Progress | None,
    parts: Iterable[PartNow] = (),
) -> list[MissedOut]:
    """Return the rows per stream that a statement's query and ``parts`` miss, or would miss now."""
    if activation is None:
        found = _rows_to_miss(meaning, progress)
    else:
        found = _missed_rows(meaning, activation)
    for part in parts:
        lacks = part.lacks
        if part.activation is None and not part.past and progress is not None:
            lacks = {
                alias.stream: count
                for alias in part.meaning.aliases
                if (count := progress.streams.get(alias.stream, {}).get("input", 0))
            }
        if lacks:
            found += [_lacking(part.name, stream, count) for stream, count in lacks.items()]
        else:
            found += missed_rows(part.meaning, part.activation, progress)
    return found


def _lacking(part: str, stream: str, count: int) -> MissedOut:
    return MissedOut(
        stream=stream,
        rows=count,
        message=f"{_rows(count)} of {stream} read before the query begins do not count in its "
        f"subquery {part}, whose results begin with later rows",
        remedy=remedy(stream),
    )


def _missed_rows(meaning: NormalisedInfo, activation: Activation) -> list[MissedOut]:
    """Return the missed rows of an active query per stream; empty if its results are complete."""
    if activation.complete == "always":
        return []
    rows: dict[str, int] = {}
    dropped: dict[str, int] = {}
    for alias in meaning.aliases:
        count = activation.missed.get(alias.alias, 0)
        rows[alias.stream] = max(rows.get(alias.stream, 0), count)
        seen = activation.visible_from.get(alias.alias)
        if alias.alias in activation.missed and seen is not None and seen.event_time is not None:
            dropped[alias.stream] = max(dropped.get(alias.stream, 0), seen.event_time)
    return list(_of_streams(rows, dropped, activation))


def _of_streams(
    rows: Mapping[str, int], dropped: Mapping[str, int], activation: Activation
) -> Iterator[MissedOut]:
    since = iso_time(activation.complete_from)
    if since is not None:
        then = f"results are complete from {since} on"
    else:
        then = "results with them never come"
    for stream, count in rows.items():
        if count:
            what = f"{_rows(count)} of {stream} were read before the query began and not stored"
        elif stream in dropped:
            what = f"rows of {stream} before {iso_time(dropped[stream])} were no longer stored"
        else:
            continue
        yield MissedOut(
            stream=stream, rows=count or None, message=f"{what}: {then}", remedy=remedy(stream)
        )


def _rows_to_miss(meaning: NormalisedInfo, progress: Progress | None) -> list[MissedOut]:
    """Return the rows per stream that a query starting now would miss: no query needed them yet."""
    if progress is None or len(meaning.aliases) == 1:
        return []
    found = []
    for stream in dict.fromkeys(alias.stream for alias in meaning.aliases):
        count = progress.streams.get(stream, {}).get("unseen", 0)
        if count:
            message = (
                f"{_rows(count)} of {stream} have been read and not stored: the query does not "
                "see them"
            )
            found.append(
                MissedOut(stream=stream, rows=count, message=message, remedy=remedy(stream))
            )
    return found


def remedy(stream: str) -> str:
    """Return instructions for getting earlier rows of a stream into a query."""
    return (
        f"to have them, remove the query and the stream, add {stream} with --retain all, which "
        "reads it from the beginning, and add the query again, with --past stored if it may have "
        f"that; anabranch stream set {stream} --retain all stores what arrives from now on"
    )


def _rows(count: int) -> str:
    return f"{count:,} row" + ("" if count == 1 else "s")
