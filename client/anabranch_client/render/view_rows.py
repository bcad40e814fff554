"""Rows of views and of previews as text, with notes on missing rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.markup import escape

from anabranch_client.render.tables import counted, percent, table_of

if TYPE_CHECKING:
    from anabranch_contract.rest.queries import ScaledOut, ViewRowsOut
    from anabranch_contract.rest.tables import PreviewOut, SampledOut


def view_rows(found: ViewRowsOut) -> Iterator[dict[str, Any]]:
    """The view's rows; estimates replace values that lack rows withheld by load shedding."""
    for number, row in enumerate(found.rows):
        scaled = found.scaled[number] if found.scaled is not None else {}
        yield {n: estimate(scaled[n]) if n in scaled else value for n, value in row.items()}


def estimate(value: ScaledOut) -> str:
    """An estimate with its error.

    >>> from anabranch_contract.rest.queries import ScaledOut
    >>> estimate(ScaledOut(value=1234.5, error=20.25)), estimate(ScaledOut(value=7, error=0))
    ('1234.5 ± 20.25', '7')
    >>> estimate(ScaledOut(value=7.25, error=None)), estimate(ScaledOut(value=None, error=None))
    ('7.25 ± ?', '?')
    """
    if value.value is None:
        return "?"
    if value.error == 0:
        return f"{value.value:.10g}"
    error = "?" if value.error is None else f"{value.error:.4g}"
    return f"{value.value:.10g} ± {error}"


def view_remarks(found: ViewRowsOut) -> Iterator[str]:
    """Notes on missing and estimated rows of a view."""
    if found.version is None:
        yield "no rows reported yet"
    else:
        yield f"{len(found.rows)} of {found.total} rows, version {found.version}"
    if found.completeness < 1 or found.blind or found.partial:
        batch = "" if found.batch is None else f" as of batch {found.batch}"
        yield f"about {percent(found.completeness)} of the joined rows{batch}"
    for mark in found.partial:
        yield f"{mark.column or 'rows'}: {mark.reason}"
    if found.unscaled is not None and found.unscaled.code != "complete":
        yield f"not scaled: {found.unscaled.reason}"


def preview_table(found: PreviewOut) -> RenderableType:
    """The rows of a preview as a table, with numbers right-aligned."""
    numbers = [
        name
        for at, name in enumerate(found.columns)
        if any(isinstance(row[at], int | float) for row in found.rows)
    ]
    table = table_of(*map(escape, found.columns), right=tuple(map(escape, numbers)))
    for row in found.rows:
        table.add_row(*(escape(_cell(value)) for value in row))
    return table


def preview_remarks(found: PreviewOut) -> Iterator[str]:
    """Notes on the rows of streams that were read, and on rows beyond the limit."""
    for one in found.samples:
        yield _sample(one)
    if found.truncated:
        yield f"the first {counted(len(found.rows), 'row')}; --limit shows more"
    yield "run by DuckDB, whose functions may differ from Spark's; no window is applied"


def _sample(one: SampledOut) -> str:
    if not one.rows:
        return f"no rows of {one.stream} are known yet"
    if one.rows == one.seen:
        return f"all rows of {one.stream}: {one.rows:,}"
    so_far = "" if one.seen is None else f" ({one.seen:,} so far)"
    return f"{one.rows:,} of the latest rows of {one.stream}{so_far}"


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
