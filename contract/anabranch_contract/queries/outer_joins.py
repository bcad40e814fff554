"""Outer, semi and anti joins over a query's inner joins.

The planner plans such a query as two inner joins: the *left rows* (all members but the partner) and
the *pairs* (all members). Both joins share stores and steps like any other joins. A left row
without a partner is final when no partner can arrive any more. The latest event time that the time
bounds allow for a partner is the row's *deadline*: once the watermark of the partner's stream has
passed the deadline, the row is final.

Left rows are identified by the columns that the condition and the SELECT list read: rows equal in
these columns have the same partners.

A chain of *look-ups* has no deadlines. Each look-up has its own pairs: left rows joined with its
partner, and with the earlier look-up that its condition reads. If the partners are tables, all
partners of a left row are found in the row's own batch (``semantics.md``, "Tables"). If they are
streams, left rows and pairs are *kept*, and results are changes: a later batch may bring the first
partner of a row, or delete its last one.

An ASOF join is the only look-up of its chain. It has no pairs: left rows and right rows are two
joins, and each left row has the *nearest* right row of its key, whichever of them arrived first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from anabranch_contract.queries.expressions import BOOLEAN, Call, Column, Expr, Output
from anabranch_contract.queries.types import DataType

#: Separator between a query's id and the suffix of one of its joins; users' ids contain no ``+``.
_SEPARATOR = "+"
LEFT_SUFFIX = f"{_SEPARATOR}left"
_BRANCH = "union"


def registered(query: str) -> str:
    """Return the id of the registered query that a join belongs to.

    >>> registered("unpaid+left"), registered("unpaid+2"), registered("unpaid+union2")
    ('unpaid', 'unpaid', 'unpaid')
    """
    return query.partition(_SEPARATOR)[0]


def pairs_id(query: str, number: int) -> str:
    """Return the id of the join for the pairs of the ``number``-th look-up (from 1) of ``query``.

    >>> pairs_id("named", 1), pairs_id("named", 2)
    ('named', 'named+2')
    """
    return query if number == 1 else f"{query}{_SEPARATOR}{number}"


def branch_id(query: str, number: int) -> str:
    """Return the id of the join for the ``number``-th branch (from 1) of a union.

    >>> branch_id("all", 1), branch_id("all", 2), is_branch("all+union2"), is_branch("all+2")
    ('all', 'all+union2', True, False)
    """
    return query if number == 1 else f"{query}{_SEPARATOR}{_BRANCH}{number}"


def is_branch(query: str) -> bool:
    """Whether a join computes a branch of a union other than the first."""
    return query.partition(_SEPARATOR)[2].startswith(_BRANCH)


def part_number(query: str) -> int:
    """Return the number of the look-up whose pairs a join computes, or of the union's branch that
    it computes; 0 if it computes left rows.

    >>> part_number("named+left"), part_number("named"), part_number("named+2")
    (0, 1, 2)
    """
    suffix = query.partition(_SEPARATOR)[2].removeprefix(_BRANCH)
    return 0 if query.endswith(LEFT_SUFFIX) else int(suffix or 1)


class JoinKind(StrEnum):
    """Kinds of joins in a chain of outer joins. ``full``: right rows without a match are results,
    too; ``inner``: an inner join after an outer, semi or anti join."""

    INNER = "inner"
    LEFT = "left"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"


class NearestSide(StrEnum):
    """Operator between the times of a left row and its right row. With ``ge`` and ``gt`` the
    nearest right row is the latest that satisfies it, with ``le`` and ``lt`` the earliest."""

    GE = "ge"
    GT = "gt"
    LE = "le"
    LT = "lt"


@dataclass(frozen=True, slots=True)
class Nearest:
    """The right row of an ASOF join for a left row.

    Attributes:
        keys: pairs of a left and a right column that must be equal.
        times: the left and the right column that ``side`` compares. Of several right rows with
            equal times the nearest is the last one (with ``le`` and ``lt`` the first one) in the
            order of their columns.
        within: conditions on both rows. A left row whose nearest right row violates them has none.
    """

    keys: tuple[tuple[str, str], ...]
    times: tuple[str, str]
    side: NearestSide
    within: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class LookUp:
    """One join of a chain of outer joins.

    Attributes:
        partner: name of the table or stream on the right side; of the first if there are several.
        columns: (name, type) of the partner's columns in the look-up's pairs.
        parent: number (from 1) of the earlier look-up that the condition reads; 0: left rows only.
            The look-up's pairs have the columns of the parent's pairs (0: of left rows), and
            ``columns``.
        nearest: rule of an ASOF join, whose right rows have only ``columns``; None: no ASOF join.
    """

    kind: JoinKind
    partner: str
    columns: tuple[tuple[str, DataType], ...]
    parent: int = 0
    nearest: Nearest | None = None


@dataclass(frozen=True, slots=True)
class OuterJoin:
    """The rule that derives an outer join's results from left rows and pairs.

    Attributes:
        left: (name, type) of the columns of left rows; pairs have them too, by the same names.
        times: (event-time column among ``left``, microseconds). A row's deadline is the least sum
            of such a column and its microseconds: no partner has a later event time.
        partner: the stream whose watermark is compared with deadlines.
        projection: output columns over the pairs' columns; for a row without a partner the
            partner's columns are NULL.
        look_ups: the joins of a chain, in order; empty: a join with deadlines. With look-ups,
            ``kind`` and ``partner`` are the first look-up's, and ``times`` is empty.
        where: conditions on the results of look-ups, over the same columns as ``projection``.
        kept: whether the partners are streams, so that left rows and pairs are kept. Left rows and
            pairs have their weight as last column, :data:`.views.WEIGHT`. The last output column is
            the kind of change or, if a view reads the results, the weight; its expression is not
            used. A full join is the only look-up of its chain. Its right rows are the results of a
            further join, with the look-up's columns and the weight.
    """

    kind: JoinKind
    left: tuple[tuple[str, DataType], ...]
    times: tuple[tuple[str, int], ...]
    partner: str
    projection: tuple[Output, ...]
    look_ups: tuple[LookUp, ...] = ()
    where: tuple[Expr, ...] = ()
    kept: bool = False

    @property
    def nearest(self) -> Nearest | None:
        """The rule of an ASOF join; None for any other join."""
        return self.look_ups[0].nearest if self.look_ups else None

    @property
    def conditions(self) -> tuple[Expr, ...]:
        """The conditions ``within`` of an ASOF join; empty for other joins."""
        nearest = self.nearest
        if nearest is None:
            return ()
        types = dict(self.left + self.look_ups[0].columns)
        compared = [("eq", *pair) for pair in nearest.keys]
        compared.append((str(nearest.side), *nearest.times))
        found = (
            Call(op, (Column("", one, types[one]), Column("", other, types[other])), BOOLEAN)
            for op, one, other in compared
        )
        return (*found, *nearest.within)
