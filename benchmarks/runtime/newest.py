"""The newest figures of each benchmark of the runtime, from the saved lines of its runs.

A run may measure only a part of its benchmark (``queries --parts added``, ``sharing --scale 1``).
The other figures are taken from the newest run that has them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

#: Names of parts that a run may omit, besides single workloads.
_PARTS = ("growth", "added")
#: Key of an entry for the earlier runs from which it has figures.
_EARLIER = "earlier"


def newest(lines: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Map each benchmark to its newest line, completed from earlier ones; ``lines``:
    oldest first.
    """
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in map(json.loads, lines):
        if entry["benchmark"] == "runtime":
            runs[entry["part"]].append(entry)
    return {part: _completed(found) for part, found in runs.items()}


def runs_of(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the runs from which an entry has figures, oldest first."""
    return [*entry.get(_EARLIER, ()), entry]


def _completed(runs: list[dict[str, Any]]) -> dict[str, Any]:
    last = runs[-1]
    source = {key: run for run in runs for key in _sections(run)}
    figures = {key: _sections(run)[key] for key, run in source.items()}
    earlier = [r for r in runs[:-1] if any(run is r for run in source.values())]
    found = {**last, _EARLIER: earlier}
    if "workloads" in last:
        return {**found, "workloads": [figures[key] for key in sorted(figures)]}
    return {**found, **{str(key): value for key, value in figures.items()}}


def _sections(entry: dict[str, Any]) -> dict[Any, Any]:
    """Return the sections of a line, which other lines may lack; a section comes from one run."""
    if "workloads" in entry:
        return {
            (one.get("random", -1), one["scale"], one["queries"]): one for one in entry["workloads"]
        }
    return {part: entry[part] for part in _PARTS if part in entry}
