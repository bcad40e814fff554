"""``anabranch health``: the state of every component."""

from __future__ import annotations

import typer
from rich.console import RenderableType
from rich.markup import escape

from anabranch_client.cli.context import Json, Url, connect, show
from anabranch_client.render.tables import table_of
from anabranch_client.rest.api import DEFAULT_URL
from anabranch_client.times import moment
from anabranch_contract.rest.system import HealthOut


def health(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show the state of every component; exit code 1 if one has failed."""
    with connect(url) as client:
        found = client.health()
    show(found, _table, as_json)
    if any(one.state == "failed" for one in found.components):
        raise typer.Exit(1)


def _table(found: HealthOut) -> RenderableType:
    table = table_of("component", "state", "since", "message", "remedy")
    for one in found.components:
        name = one.name if one.kind == one.name else f"{one.kind} {one.name}"
        table.add_row(
            escape(name), one.state, moment(one.since), escape(one.message), escape(one.remedy)
        )
    return table
