"""Cost constants of maintained tables: CPU seconds and bytes of their operations.

They were measured on tables of 10 and of 10,000 groups (``docs/cost-model.md``), and are not fitted
to a running pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch_contract.queries.types import FLOATING, TypeKind
from anabranch_contract.queries.views import PAIRS, AggregateFunction, ViewAggregate

_F = AggregateFunction

#: CPU seconds per batch with joined rows: of a table of groups, of one aggregate in the table, of a
#: view's rows over groups, of a view without grouping; and (last) of a view's file of changes and
#: its rows for the REST API.
GROUPS_CALL, AGGREGATE_CALL, VIEW_CALL, RANKING_CALL = 1.3e-4, 4e-5, 6e-5, 2.5e-4
FILE_CALL = 9e-4
#: CPU seconds per joined row: of groups, of sessions, of a view without grouping that keeps every
#: row, and of one that drops rows beyond its limit at once.
GROUPS_ROW, SESSION_ROW, KEPT_ROW, RANKED_ROW = 3.5e-8, 5e-6, 2e-6, 1.2e-7
#: CPU seconds per joined row and window function.
WINDOWED_ROW = 1.3e-6
#: CPU seconds per group that a batch changes: of groups, of one grouping key, of a view's rows, and
#: of ORDER BY with LIMIT or an aggregate over all groups.
TOUCHED, TOUCHED_KEY, TOUCHED_VIEW, TOUCHED_WHOLE = 3e-8, 2e-8, 1e-7, 2.4e-6
#: CPU seconds per changed row in the file of changes.
CHANGE = 1.3e-7
#: CPU seconds per row sent to the REST API, and the maximum number of such rows per batch.
SHOWN, MOST_SHOWN = 2e-6, 1000
#: Bytes of an empty table.
TABLE_BYTES = 9000.0
#: Bytes of a group, of a grouping key (of a text key in addition), of a view's row over a group, of
#: the row's entry in an order, of a stored row without grouping, of one of its columns, and of a
#: row of a session.
GROUP_BYTES, KEY_BYTES, TEXT_BYTES, VIEW_BYTES, ORDER_BYTES = 60.0, 17.0, 50.0, 25.0, 170.0
ROW_BYTES, COLUMN_BYTES, SESSION_BYTES = 60.0, 12.0, 150.0


@dataclass(frozen=True, slots=True)
class AggregateCosts:
    """CPU seconds and bytes that one aggregate of a maintained table costs.

    Attributes:
        row: seconds per joined row. ``touched``: seconds per group that a batch changes.
        group: bytes per group. ``kept``: bytes per joined row, of aggregates that keep all values.
    """

    row: float
    touched: float
    group: float
    kept: float = 0.0


_PLAIN = AggregateCosts(1e-8, 5e-8, 40.0)
_DECIMAL = AggregateCosts(3e-8, 9e-8, 66.0)
_FLOAT = AggregateCosts(4e-8, 1.7e-7, 170.0)
_VARIANCE = AggregateCosts(1e-7, 3.5e-7, 330.0)
_PAIRS = AggregateCosts(1.7e-7, 6e-7, 490.0)
_MOMENTS = AggregateCosts(3e-7, 3.5e-5, 490.0)
_BITS = AggregateCosts(9e-8, 2.5e-7, 850.0)
_VALUES = AggregateCosts(1e-6, 2e-7, 90.0, 44.0)
_LISTS = AggregateCosts(4.5e-6, 3e-7, 90.0, 70.0)

_BY_FUNCTION = {
    **dict.fromkeys((_F.STDDEV_SAMP, _F.STDDEV_POP, _F.VAR_SAMP, _F.VAR_POP), _VARIANCE),
    **dict.fromkeys(PAIRS, _PAIRS),
    **dict.fromkeys((_F.SKEWNESS, _F.KURTOSIS), _MOMENTS),
    **dict.fromkeys((_F.BIT_AND, _F.BIT_OR, _F.BIT_XOR), _BITS),
    **dict.fromkeys((_F.PERCENTILE_CONT, _F.PERCENTILE_DISC, _F.MODE), _VALUES),
    **dict.fromkeys((_F.LISTAGG, _F.COLLECT_LIST), _LISTS),
}
_EXTREMES = (_F.MIN, _F.MAX, _F.MIN_BY, _F.MAX_BY)


def aggregate_costs(call: ViewAggregate, *, deletes: bool) -> AggregateCosts:
    """Costs of an aggregate in a maintained table; ``deletes``: whether joined rows may be deleted.

    >>> from anabranch_contract.queries.types import parse_type
    >>> call = ViewAggregate("g", AggregateFunction.MAX, "a", False, parse_type("int"))
    >>> aggregate_costs(call, deletes=False).kept, aggregate_costs(call, deletes=True).kept
    (0.0, 44.0)
    """
    known = _BY_FUNCTION.get(call.function)
    if known is not None:
        return known
    if call.distinct or (deletes and call.function in _EXTREMES):
        return _VALUES
    if call.function in _EXTREMES or call.function is _F.COUNT:
        return _PLAIN
    kind = call.type.kind
    return _FLOAT if kind in FLOATING else _DECIMAL if kind is TypeKind.DECIMAL else _PLAIN
