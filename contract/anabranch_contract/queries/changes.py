"""Streams of changes: each row inserts or deletes a tuple.

A tuple has a *weight*, 1 (insert) or -1 (delete), in a hidden column that is stored, sent and
probed like any other column. The weight of a join's result is the product of its members' weights,
so the sum of all results is the join of the net inputs (``semantics.md``, "Streams of changes").

>>> from anabranch_contract.queries.expressions import Column
>>> str(product([Column("R", TUPLE_WEIGHT, TINYINT), Column("S", TUPLE_WEIGHT, TINYINT)]))
'(cast(R.#weight as bigint) * cast(S.#weight as bigint))'
>>> [ChangeFormat().weight(text) for text in ("INSERT", "+U", "-D", "d", "x")]
[1, 1, -1, -1, None]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce

from anabranch_contract.queries.expressions import BOOLEAN, Call, Expr, Literal
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_contract.queries.views import Change

TINYINT = DataType(TypeKind.TINYINT)
_BIGINT, _STRING = DataType(TypeKind.BIGINT), DataType(TypeKind.STRING)
#: Hidden column of a tuple's weight; no declared column of a stream of changes may have its name.
TUPLE_WEIGHT = "#weight"
#: Default name of the operation column.
OPERATION = "op"
#: Operations that insert or delete a tuple unless the stream names others, in lower case. ``+U``
#: and ``-U`` are the halves of an update.
INSERTS = frozenset({"i", "insert", "+i", "+u", "+", "c", "create", "r", "read"})
DELETES = frozenset({"d", "delete", "-d", "-u", "-"})


class Envelope(StrEnum):
    """Form of JSON rows that contain the values before and after a change."""

    DEBEZIUM = "debezium"


@dataclass(frozen=True, slots=True)
class ChangeFormat:
    """How a row of a stream of changes says whether it inserts or deletes.

    Attributes:
        operation: column with the operation. Queries can't read it.
        inserts, deletes: its values in any case; empty: :data:`INSERTS`, :data:`DELETES`, without
            values of the other list.
        envelope: form of JSON rows; None: a row has the values of one tuple.
    """

    operation: str = OPERATION
    inserts: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    envelope: Envelope | None = None

    def weight(self, operation: str) -> int | None:
        """Return the weight of a row with this ``operation``; None: unknown."""
        deletes, inserts = (frozenset(map(str.lower, t)) for t in (self.deletes, self.inserts))
        deletes, inserts = deletes or DELETES - inserts, inserts or INSERTS - deletes
        found = operation.strip().lower()
        return -1 if found in deletes else 1 if found in inserts else None


def product(weights: Iterable[Expr]) -> Expr:
    """Return the product of the members' weights: the weight of a join's result, a BIGINT."""
    wide = [Call("cast", (one,), _BIGINT) for one in weights]
    return reduce(lambda a, b: Call("mul", (a, b), _BIGINT), wide)


def change_of(weight: Expr) -> Expr:
    """Return the kind of change of a result with ``weight``: ``insert`` or ``delete``."""
    deletes = Call("lt", (weight, Literal(0, _BIGINT)), BOOLEAN)
    names = (Literal(str(one), _STRING) for one in (Change.DELETE, Change.INSERT))
    return Call("case", (deletes, *names), _STRING)
