"""Streams of changes: each row inserts or deletes a tuple, or replaces the tuple of its key.

A tuple has a *weight*, 1 (insert) or -1 (delete), in a hidden column that is stored, sent and
probed like any other column. The weight of a join's result is the product of its members' weights,
so the sum of all results is the join of the net inputs (``semantics.md``, "Streams of changes").

>>> from anabranch_contract.queries.expressions import Column
>>> str(product([Column("R", TUPLE_WEIGHT, TINYINT), Column("S", TUPLE_WEIGHT, TINYINT)]))
'(cast(R.#weight as bigint) * cast(S.#weight as bigint))'
>>> [ChangeFormat().weight(text) for text in ("INSERT", "+U", "-D", "d", "u")]
[1, 1, -1, -1, None]
>>> [ChangeFormat(key=("id",)).weight(text) for text in ("INSERT", "u", "-D", "-U")]
[1, 1, 0, None]
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
#: Hidden column with a tuple's weight; no declared column of a stream of changes may have its name.
TUPLE_WEIGHT = "#weight"
#: Hidden column in the rows of a view that another query reads: the values that identify a row.
IDENTITY = "#identity"
#: Default name of the column with a row's operation.
OPERATION = "op"
#: Operations that insert or delete a tuple unless the stream names others, in lower case. ``+U``
#: and ``-U`` are the halves of an update.
INSERTS = frozenset({"i", "insert", "+i", "+u", "+", "c", "create", "r", "read"})
DELETES = frozenset({"d", "delete", "-d", "-u", "-"})
#: Operations of rows that replace the tuple of their key, and of tombstones.
UPSERTS = INSERTS | {"u", "update", "upsert"}
TOMBSTONES = DELETES - {"-u"}


class Envelope(StrEnum):
    """Form of JSON rows (such as Debezium's) that contain the values before and after a change."""

    DEBEZIUM = "debezium"


@dataclass(frozen=True, slots=True)
class ChangeFormat:
    """The form in which rows of a stream of changes state inserts and deletes.

    Attributes:
        operation: column with a row's operation, which queries can't read; None: all rows insert.
        inserts, deletes: operations that insert, and that delete, ignoring case; empty:
            :data:`INSERTS`, :data:`DELETES` (with a key :data:`UPSERTS`, :data:`TOMBSTONES`),
            except operations that the other field lists.
        envelope: form of JSON rows; None: a row has the values of one tuple.
        key: columns of the key: a row replaces the tuple with an equal key; empty: a row that
            deletes has the values of the deleted tuple.
        null_deletes: whether a row with NULL in all columns but the key deletes the key's tuple.
    """

    operation: str | None = OPERATION
    inserts: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    envelope: Envelope | None = None
    key: tuple[str, ...] = ()
    null_deletes: bool = False

    def weight(self, operation: str) -> int | None:
        """Return the weight of a row with this ``operation``; None if the operation is unknown. A
        tombstone has weight 0, because it does not contain the values of the tuple that it deletes.
        """
        deletes, inserts = (frozenset(map(str.lower, t)) for t in (self.deletes, self.inserts))
        known = (TOMBSTONES, UPSERTS) if self.key else (DELETES, INSERTS)
        deletes, inserts = deletes or known[0] - inserts, inserts or known[1] - deletes
        found = operation.strip().lower()
        if found in deletes:
            return 0 if self.key else -1
        return 1 if found in inserts else None


def product(weights: Iterable[Expr]) -> Expr:
    """Return the product of the members' weights, a BIGINT: the weight of a join's result."""
    wide = [Call("cast", (one,), _BIGINT) for one in weights]
    return reduce(lambda a, b: Call("mul", (a, b), _BIGINT), wide)


def change_of(weight: Expr) -> Expr:
    """Return the SQL kind of change (``insert`` or ``delete``) of a result with ``weight``."""
    deletes = Call("lt", (weight, Literal(0, _BIGINT)), BOOLEAN)
    names = (Literal(str(one), _STRING) for one in (Change.DELETE, Change.INSERT))
    return Call("case", (deletes, *names), _STRING)
