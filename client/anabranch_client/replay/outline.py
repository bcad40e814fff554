"""Outline of a checked scenario: its streams, its queries, and their first batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from anabranch_client.render.tables import number, numbers, table_of
from anabranch_client.replay.scenario import Scenario


def outline(scenario: Scenario) -> dict[str, Any]:
    """The outline of a scenario as JSON."""
    return {
        "batches": scenario.batches,
        "batches_per_epoch": scenario.every,
        "streams": {
            s.name: {
                "path": str(s.path),
                "rows": s.rows,
                "batches": s.batches,
                "columns": dict(s.columns),
            }
            for s in scenario.streams
        },
        "queries": {
            q.name: {
                "register_at": q.register_at,
                "active_from": scenario.begins(q),
                "expire_at": q.expire_at,
            }
            for q in scenario.queries
        },
        "notes": list(notes(scenario)),
    }


def outline_table(found: Mapping[str, Any]) -> RenderableType:
    """The outline of a scenario as tables."""
    streams = table_of("stream", "rows", "batches", "columns", right=("rows", "batches"))
    for name, s in found["streams"].items():
        columns = ", ".join(f"{column} {kind}" for column, kind in s["columns"].items())
        streams.add_row(escape(name), *numbers(s["rows"], s["batches"]), escape(columns))
    batches = ("registered before batch", "active from batch", "deleted before batch")
    queries = table_of("query", *batches, right=batches)
    for name, q in found["queries"].items():
        row = (q["register_at"], q["active_from"], q["expire_at"])
        queries.add_row(escape(name), *numbers(*row))
    remarks = [Text(f"note: {note}", style="yellow") for note in found["notes"]]
    verdict = f"in order: {number(found['batches'])} batches, {found['batches_per_epoch']} an epoch"
    return Group(streams, queries, *remarks, Text(verdict, style="green"))


def notes(scenario: Scenario) -> Iterator[str]:
    """Warnings about a scenario's valid settings that are probably unintended."""
    for query in scenario.queries:
        if scenario.begins(query) is None:
            yield (
                f"queries.{query.name}: never active, as the input ends with batch"
                f" {scenario.batches - 1}, before the first epoch that would have it"
                if scenario.batches
                else f"queries.{query.name}: never active, as the input is empty"
            )
