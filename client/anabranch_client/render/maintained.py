"""Maintained tables of post-join parts: estimated and measured cost, and queries' shares."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text

from anabranch_client.render.tables import counted, number, numbers, percent, size, table_of

if TYPE_CHECKING:
    from anabranch_contract.rest.planning.insight import TableRecord, TablesRecord
    from anabranch_contract.rest.planning.query_plan import MaintainedTableOut


def table_lines(found: TableRecord) -> Iterator[str]:
    """A maintained table's content and estimated cost, and a line for each query that shares it."""
    yield found.text
    yield (
        f"{counted(found.rows_in, 'row')} in, {number(found.rows)} kept: "
        f"{number(found.seconds)} CPU s per unit of time, {size(round(found.bytes))}"
    )
    if found.apart:
        yield f"table apart: {found.apart}"
    for one in found.queries:
        yield (
            f"{one.query}: {number(one.seconds)} s, {size(round(one.bytes))}; "
            f"alone {number(one.alone_seconds)} s, {size(round(one.alone_bytes))}"
        )


def tables_table(found: TablesRecord | None, most: int | None) -> list[RenderableType]:
    """The maintained tables of a plan, the most expensive first, and their costs without sharing;
    an empty list without tables."""
    if found is None or not found.tables:
        return []
    figures = ("queries", "rows in", "rows", "CPU s", "bytes")
    table = table_of("maintained table", *figures, right=figures)
    table.title = (
        f"maintained tables: {number(found.seconds)} CPU s, {size(round(found.bytes))}; unshared "
        f"{number(found.alone_seconds)} CPU s, {size(round(found.alone_bytes))}"
    )
    table.title_justify = "left"
    for one in found.tables[:most]:
        cells = numbers(len(one.queries), one.rows_in, one.rows, one.seconds)
        table.add_row(escape(one.text), *cells, size(round(one.bytes)))
    left = len(found.tables) - len(found.tables[:most])
    return [table, *([Text(f"{left} more tables", style="dim")] if left else [])]


def maintained_facts(found: MaintainedTableOut) -> dict[str, object]:
    """Lines of a query's plan about its maintained table: measured figures, then estimates."""
    kept = "size not measured yet" if found.bytes is None else size(found.bytes)
    cpu = "not measured yet"
    if found.cpu:
        part = percent(found.cpu / found.cpu_of_table)
        cpu = f"{number(found.cpu_of_table)} s a second, {part} for this query"
    facts: dict[str, object] = {
        "table": f"{number(found.rows)} rows, {kept}",
        "table's CPU time": cpu,
        "table shared with": ", ".join(found.shared) or "no other query",
    }
    if found.estimated is not None:
        facts["table of"], facts["estimated"] = islice(table_lines(found.estimated), 2)
        if found.estimated.apart:
            facts["table apart"] = found.estimated.apart
    if found.share is not None:
        seconds, alone = numbers(found.share.seconds, found.share.alone_seconds)
        facts["estimated share"] = f"{seconds} CPU s, alone {alone}"
    return facts
