"""Problem files whose streams name the hosts at which they arrive, for placement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch_planner.command.problem_file import ProblemFile, parse_problem
from anabranch_planner.documents.fields import QUERY_ID, refused, shown


@dataclass(frozen=True, slots=True)
class Hosted:
    """A placement problem.

    Attributes:
        hosts: stream -> the host at which it arrives, if stated.
        values: (stream, column) -> value -> tuples with the value per unit of time, if stated.
    """

    problem: ProblemFile
    hosts: Mapping[str, str]
    values: Mapping[tuple[str, str], Mapping[str, float]]


def parse_hosted(document: Any) -> Hosted:
    """Parse ``document``, a problem file whose streams may have a ``host``.

    Raises:
        ProblemError: the document is invalid; ``field`` is a path such as ``streams.R.host``.
    """
    streams = document.get("streams") if isinstance(document, dict) else None
    entries = streams if isinstance(streams, dict) else {}
    hosts, rest = {}, {}
    for name, entry in entries.items():
        rest[name] = entry
        if isinstance(entry, dict) and "host" in entry:
            rest[name] = {part: value for part, value in entry.items() if part != "host"}
            if entry["host"] is not None:
                hosts[name] = _host(entry["host"], f"streams.{name}.host")
    problem = parse_problem({**document, "streams": rest} if entries else document)
    values = {}
    for stream in problem.streams:
        columns = {column.lower(): column for column, _ in stream.columns}
        for column, rates in ((entries[stream.name] or {}).get("values") or {}).items():
            stated = {str(value): float(rate) for value, rate in rates.items()}
            values[str(stream.name), columns[column.lower()]] = stated
    return Hosted(problem, hosts, values)


def _host(value: Any, at: str) -> str:
    if not isinstance(value, str) or not QUERY_ID.fullmatch(value):
        raise refused(f"{shown(value)} is not a host", at, "use letters, digits, '_', '.' and '-'")
    return value
