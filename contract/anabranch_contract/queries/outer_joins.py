"""Outer, semi and anti joins over a query's inner joins.

Such a query is two joins to the planner: the *left rows* (everything but the partner), and the
*pairs* (everything). Both are inner joins over the same stores, planned and shared like any other.
A left row without a partner is known to have none once no partner can come any more: when the
watermark of the partner's stream has passed the row's *deadline*, up to which the time bounds let a
partner be.

Left rows are identified by the values that the condition and the SELECT list read: rows that agree
in all of them have the same partners.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from anabranch_contract.queries.expressions import Output
from anabranch_contract.queries.types import DataType

#: What the id of the query of left rows ends with; no user's id has it.
LEFT_SUFFIX = "+left"


def registered(query: str) -> str:
    """The id of the registered query that a join serves.

    >>> registered("unpaid+left"), registered("unpaid")
    ('unpaid', 'unpaid')
    """
    return query.removesuffix(LEFT_SUFFIX)


class JoinKind(StrEnum):
    """The treatment of left rows with and without matches."""

    LEFT = "left"
    SEMI = "semi"
    ANTI = "anti"


@dataclass(frozen=True, slots=True)
class OuterJoin:
    """The rule that makes results of left rows and pairs.

    Attributes:
        left: (name, type) of the columns of left rows; pairs have them too, by the same names.
        times: (event-time column among ``left``, microseconds): no partner's event time is later
            than any of these sums. The least of them is the deadline.
        partner: the stream whose watermark passes deadlines.
        projection: over the columns of pairs; those of the partner are NULL where there is none.
    """

    kind: JoinKind
    left: tuple[tuple[str, DataType], ...]
    times: tuple[tuple[str, int], ...]
    partner: str
    projection: tuple[Output, ...]
