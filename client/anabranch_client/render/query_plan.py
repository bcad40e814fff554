"""A query's part of the running plan (``anabranch query plan``) as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from anabranch_client.render.maintained import maintained_facts
from anabranch_client.render.tables import facts_table, number, numbers, percent, size, table_of
from anabranch_client.times import brief

if TYPE_CHECKING:
    from anabranch_contract.rest.planning.query_plan import ProbePathOut, QueryPlanOut


def query_plan_detail(found: QueryPlanOut) -> RenderableType:
    """Share of CPU time and state, delay, a table of each probe path, and the stores."""
    cpu = f"{number(found.cpu)} s a second{_share(found.cpu, found.cpu_of_plan)}"
    kept = f"{size(round(found.state_bytes))}{_share(found.state_bytes, found.state_of_plan)}"
    waiting = None if found.waiting_seconds is None else brief(found.waiting_seconds)
    facts: dict[str, object] = {
        "rules": f"epoch {found.epoch}"
        + (f", revision {found.revision}" if found.revision else ""),
        "CPU time": cpu if found.measured else "not measured yet",
        "state": kept,
        "results a second": number(found.results_per_second),
        "oldest unread row waits": waiting,
        "a batch takes": f"{number(found.batch_seconds)} s",
        **({} if found.table is None else maintained_facts(found.table)),
    }
    stores = table_of("store", "rows", "bytes", "queries", right=("rows", "bytes", "queries"))
    for store in found.stores:
        cells = (number(store.rows), size(store.bytes), number(store.queries))
        stores.add_row(escape(_named(store.label, store.detail)), *cells)
    why = no_results_notes(found.no_results_because)
    return Group(facts_table(facts), *map(_path, found.paths), stores, *why)


def no_results_notes(reasons: Sequence[str]) -> list[Text]:
    """A line for each reason why a query has no results."""
    return [Text(f"no results: {reason}", style="bold yellow") for reason in reasons]


def _path(path: ProbePathOut) -> RenderableType:
    """A path: the arriving tuples, and a line for each probed store."""
    figures = ("tuples/s", "CPU s/s")
    table = table_of("probes", *figures, "shared with", right=figures)
    for step in path.steps:
        table.add_row(
            escape(_named(step.label, step.detail)),
            *numbers(step.tuples_per_second, step.cpu),
            escape(", ".join(step.shared)),
        )
    some = f" in substreams {', '.join(map(str, path.substreams))}" if path.substreams else ""
    keeps = "" if path.keeps is None else f", for {path.keeps}"
    rate = f"{number(path.tuples_per_second)} tuples/s"
    return Group(Text(f"{path.alias} ({path.label}){some}: {rate}{keeps}", style="bold"), table)


def _named(label: str, detail: str) -> str:
    return f"{label} ({detail})" if detail and detail != label else label


def _share(part: float, whole: float) -> str:
    return f", {percent(part / whole)} of the plan's" if whole else ""
