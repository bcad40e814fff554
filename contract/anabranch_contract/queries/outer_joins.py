"""Outer, semi and anti joins over a query's inner joins.

Such a query is two joins to the planner: the *left rows* (everything but the partner), and the
*pairs* (everything). Both are inner joins over the same stores, planned and shared like any other.
A left row without a partner is final once no partner can arrive any more: when the watermark of the
partner's stream has passed the row's *deadline*, the latest event time that the time bounds allow a
partner.

Left rows are identified by the values that the condition and the SELECT list read: rows equal in
all of them have the same partners.

An outer join with a table is a *look-up*: a left row has all of its partners in its own batch, so
nothing waits (``semantics.md``, "Tables"). Several look-ups may follow each other. Each has its own
pairs: left rows joined with its table, and with the look-up that its condition reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from anabranch_contract.queries.expressions import Expr, Output
from anabranch_contract.queries.types import DataType

#: Suffix of the id of the join of left rows; users' ids have no ``+``.
_SEPARATOR = "+"
LEFT_SUFFIX = f"{_SEPARATOR}left"


def registered(query: str) -> str:
    """The id of the registered query that a join serves.

    >>> registered("unpaid+left"), registered("unpaid+2"), registered("unpaid")
    ('unpaid', 'unpaid', 'unpaid')
    """
    return query.partition(_SEPARATOR)[0]


def pairs_id(query: str, number: int) -> str:
    """The id of the join that gives the pairs of the ``number``-th look-up (from 1) of ``query``.

    >>> pairs_id("named", 1), pairs_id("named", 2)
    ('named', 'named+2')
    """
    return query if number == 1 else f"{query}{_SEPARATOR}{number}"


def part_number(query: str) -> int:
    """The number of the look-up whose pairs a join gives; 0: it gives left rows.

    >>> part_number("named+left"), part_number("named"), part_number("named+2")
    (0, 1, 2)
    """
    suffix = query.partition(_SEPARATOR)[2]
    return 0 if query.endswith(LEFT_SUFFIX) else int(suffix or 1)


class JoinKind(StrEnum):
    """The treatment of left rows with and without matches."""

    LEFT = "left"
    SEMI = "semi"
    ANTI = "anti"


@dataclass(frozen=True, slots=True)
class LookUp:
    """An outer, semi or anti join with a table.

    Attributes:
        table: the stream.
        columns: (name, type) of the table's columns in its pairs.
        parent: number (from 1) of the look-up whose rows its condition reads; 0: left rows only.
            Its pairs have all columns of the parent's pairs, or of left rows, and ``columns``.
    """

    kind: JoinKind
    table: str
    columns: tuple[tuple[str, DataType], ...]
    parent: int = 0


@dataclass(frozen=True, slots=True)
class OuterJoin:
    """The rule that derives results from left rows and pairs.

    Attributes:
        left: (name, type) of the columns of left rows; pairs have them too, by the same names.
        times: (event-time column among ``left``, microseconds): no partner's event time is later
            than any of these sums. The least of them is the deadline.
        partner: the stream whose watermark passes deadlines.
        projection: over the columns of pairs; the partner's columns are NULL without a partner.
        look_ups: the joins with tables, in order; empty: a join with a stream. With look-ups,
            ``kind`` and ``partner`` are the first one's, and ``times`` is empty.
        where: conditions on results of look-ups, over the columns that ``projection`` may read.
    """

    kind: JoinKind
    left: tuple[tuple[str, DataType], ...]
    times: tuple[tuple[str, int], ...]
    partner: str
    projection: tuple[Output, ...]
    look_ups: tuple[LookUp, ...] = ()
    where: tuple[Expr, ...] = ()
