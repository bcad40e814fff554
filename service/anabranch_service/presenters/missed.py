"""Missed rows: read before a query began, and not stored for it, so its results lack them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.rest.documents import iso_time
from anabranch_contract.rest.normalised import NormalisedInfo
from anabranch_contract.rest.queries import MissedOut


def missed_rows(meaning: NormalisedInfo, activation: Activation | None) -> list[MissedOut]:
    """Missed rows of an active query, per stream; empty if its results are complete."""
    if activation is None or activation.complete == "always":
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


def rows_to_miss(meaning: NormalisedInfo, progress: Progress | None) -> list[MissedOut]:
    """Rows per stream that a query starting now would miss, since no query needed them so far."""
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
    """Instructions for getting earlier rows of a stream into a query."""
    return (
        f"to have them, remove the query and the stream, add {stream} with --retain all, which "
        "reads it from the beginning, and add the query again; anabranch stream set "
        f"{stream} --retain all stores what arrives from now on"
    )


def _rows(count: int) -> str:
    return f"{count:,} row" + ("" if count == 1 else "s")
