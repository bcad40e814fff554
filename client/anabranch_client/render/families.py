"""Families of queries (which differ only in constants) as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.markup import escape

from anabranch_client.render.tables import numbers, shortened, table_of

if TYPE_CHECKING:
    from anabranch_contract.rest.families import FamilyList, FamilyMember


def families_table(found: FamilyList) -> RenderableType:
    """All families, a line each, with as much of their statement as fits."""
    table = table_of("family", "queries", "first", "statement", right=("queries",))
    for one in found.items:
        table.add_row(one.id, *numbers(one.queries), escape(one.first), shortened(one.statement))
    return table


def family_table(members: Sequence[FamilyMember]) -> RenderableType:
    """The queries of a family, a line each, with a column per constant that differs."""
    rows = [one.constants for one in members]
    columns = [at for at in range(len(rows[0]) if rows else 0) if len({r[at] for r in rows}) > 1]
    names = [f"constant {at + 1}" for at in columns]
    table = table_of("query", "status", "results", *names, right=("results",))
    for one in members:
        shown = [escape(one.constants[at]) for at in columns]
        table.add_row(escape(one.id), one.status, *numbers(one.results), *shown)
    return table
