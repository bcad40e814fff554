"""Metadata about joined rows missing from a view's version because of load shedding.

If no joined row was ever withheld, there is no such metadata (``semantics.md``, "Rations").
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from anabranch_contract.protocol.activations import Activation, ViewRows
from anabranch_contract.queries.scaling import PartialMark, partial_marks, scalable
from anabranch_contract.queries.views import View
from anabranch_runtime.views.left_out import GroupKnowledge, standing
from anabranch_runtime.views.scaled import scaled_rows

#: Metadata keys in the Parquet file with a version's changes.
BATCH, COMPLETENESS = "anabranch_batch", "anabranch_completeness"
_NOTHING = PartialMark("", "nothing-to-scale", "the view shows no count, sum or average by itself")
_ABOVE = PartialMark("", "outer-join", "rows of an outer join are not scaled")
_OWED = PartialMark("", "owed", "what is missing is still to be made good")
_TOO_LARGE = PartialMark("", "too-large", "the view has too many groups")


@dataclass(frozen=True, slots=True)
class VersionRows:
    """The joined rows included in a version.

    Attributes:
        batch: the last batch whose joined rows are included; -1: none.
        missing: the query's record of withheld rows as of that batch; None: there never were any.
        corrections: the corrections for estimates (``views.estimates``); None: too large.
    """

    batch: int
    missing: Activation | None = None
    corrections: pa.Table | None = None


def told(changes: pa.Table, part: VersionRows) -> pa.Table:
    """Add the last included batch and the completeness to a view's ``changes``, as metadata."""
    if part.missing is None:
        return changes
    found = {BATCH: str(part.batch), COMPLETENESS: str(part.missing.completeness)}
    return changes.replace_schema_metadata(found)


def of_part(
    shown: ViewRows, view: View, rows: pa.Table, part: VersionRows, *, above: bool
) -> ViewRows:
    """Add the completeness, and estimates of the complete aggregates, to the view rows ``shown``.

    Args:
        rows: the rows of the view's table that are in ``shown``.
        above: whether the view's input is an outer join.
    """
    missing = part.missing
    if missing is None:
        return shown
    shown = replace(
        shown,
        withheld=missing.withheld,
        owed=missing.owed,
        blind=missing.blind,
        completeness=missing.completeness,
    )
    gaps = missing.gaps
    if not gaps and not missing.owed:
        return shown
    unknown: tuple[bool | None, ...] = (None,) * rows.num_rows
    shown = replace(shown, partial=partial_marks(view), whole=unknown)
    if missing.owed or above or not view.grouped:
        return replace(shown, unscaled=_OWED if missing.owed else _ABOVE if above else _NOTHING)
    found = standing(view, gaps, rows)
    whole = tuple((found == GroupKnowledge.WHOLE).tolist())
    if not scalable(view):
        return replace(shown, whole=whole, unscaled=_NOTHING)
    if part.corrections is None:
        return replace(shown, whole=whole, unscaled=_TOO_LARGE)
    scaled = scaled_rows(view, rows, found, part.corrections)
    return replace(shown, whole=whole, scaled=scaled)
