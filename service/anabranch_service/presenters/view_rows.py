"""Rows of a query's view, with notes on the effects of load shedding."""

from __future__ import annotations

import json

from anabranch_contract.protocol.activations import Activation, ViewRows
from anabranch_contract.queries.scaling import PartialMark
from anabranch_contract.rest.queries import PartialOut, ScaledOut, ViewRowsOut

_COMPLETE = PartialOut(column=None, code="complete", reason="no joined row is missing")
_UNKNOWN = PartialOut(column=None, code="not-reported", reason="the runtime has not reported it")


def view_rows_out(
    columns: list[str],
    found: ViewRows | None,
    activation: Activation | None,
    limit: int,
    *,
    scaled: bool,
) -> ViewRowsOut:
    """Return the first ``limit`` rows of a view.

    Args:
        found: the rows reported by the runtime; None: not reported yet.
        activation: has the completeness of the view before any rows are reported.
        scaled: whether to add estimates, scaled up for withheld rows.
    """
    now = 1.0 if activation is None else activation.completeness
    if found is None:
        answer = ViewRowsOut(version=None, total=None, columns=columns, rows=[], completeness=now)
    else:
        answer = ViewRowsOut.of(
            found,
            columns=columns,
            rows=[json.loads(text) for text in found.rows[:limit]],
            partial=[_partial(mark) for mark in found.partial],
            whole=list(found.whole[:limit]),
            scaled=None,
            unscaled=None,
        )
    return answer.model_copy(update=_estimates(found, limit)) if scaled else answer


def _estimates(found: ViewRows | None, limit: int) -> dict[str, object]:
    """Return the answer's fields about estimates: the estimates, or why there are none."""
    if found is None:
        return {"unscaled": _UNKNOWN}
    if found.unscaled is not None:
        return {"unscaled": _partial(found.unscaled)}
    if not found.whole and not found.partial:
        return {"unscaled": _COMPLETE}
    rows = [json.loads(text) for text in found.scaled[:limit]]
    return {"scaled": [{c: ScaledOut(**value) for c, value in row.items()} for row in rows]}


def _partial(mark: PartialMark) -> PartialOut:
    return PartialOut(column=mark.column or None, code=mark.code, reason=mark.reason)
