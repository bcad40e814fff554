"""Rows of a view as text, with notes on missing rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from anabranch_client.render.tables import percent

if TYPE_CHECKING:
    from anabranch_contract.rest.queries import ScaledOut, ViewRowsOut


def view_rows(found: ViewRowsOut) -> Iterator[dict[str, Any]]:
    """The view's rows; estimates replace values that lack withheld joined rows."""
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
    """Notes on missing and estimated rows."""
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
