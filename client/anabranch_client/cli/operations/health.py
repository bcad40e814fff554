"""``anabranch health``, ``load`` and ``lag``: components, capacity, and unread input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer
from rich.console import RenderableType
from rich.markup import escape

from anabranch_client.cli.context import Json, Url, connect, show
from anabranch_client.errors import ClientError
from anabranch_client.render.tables import facts_table, number, percent, size, table_of
from anabranch_client.rest.api import DEFAULT_URL
from anabranch_client.times import brief, moment

if TYPE_CHECKING:
    from anabranch_contract.rest.planning.epochs import RuntimeOut
    from anabranch_contract.rest.streams import StreamOut
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


def load(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show whether the machine keeps up: time and memory of batches, and load shedding."""
    with connect(url) as client:
        runtime = client.current_epoch().runtime
    if runtime is None:
        raise ClientError(
            "the runtime has not reported yet", remedy="see that it runs (anabranch health)"
        )
    show(runtime, _load_facts, as_json)


def _load_facts(runtime: RuntimeOut) -> RenderableType:
    memory = size(runtime.private_bytes)
    if runtime.memory_limit is not None:
        memory = f"{memory} of {size(runtime.memory_limit)}"
    facts: dict[str, object] = {
        "runtime": "no heartbeat" if runtime.stale else runtime.state,
        "the last batch took": f"{number(runtime.batch_seconds)} s",
        "batches": f"{number(runtime.committed)}, in {brief(runtime.processing_seconds)}",
        "memory of its tasks": memory,
        "state": size(runtime.state_bytes),
        "unread tuples": number(runtime.waiting_tuples),
    }
    rationing = runtime.rationing
    if rationing is not None:
        if rationing.needed:
            facts["needed CPU time"] = f"{percent(rationing.needed)} of the available"
        facts["load shedding"] = (
            f"{rationing.policy}, withholding results" if rationing.overloaded else rationing.policy
        )
        if rationing.owed:
            facts["catch-up"] = f"results of {rationing.owed} batches to come"
    return facts_table(facts)


def lag(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show each stream's unread tuples, the age of the oldest, and its watermark."""
    with connect(url) as client:
        show(client.streams(), _lag, as_json)


def _lag(streams: Sequence[StreamOut]) -> RenderableType:
    figures = ("unread tuples", "oldest", "unread bytes of a log")
    table = table_of("stream", *figures, "watermark", "source", right=figures)
    for one in streams:
        table.add_row(
            escape(one.name),
            number(one.waiting_tuples),
            "–" if one.waiting_seconds is None else brief(one.waiting_seconds),
            number(one.source_status.behind_bytes),
            moment(one.watermark),
            one.source_status.state,
        )
    return table
