"""Outer, semi and anti joins above a query's inner joins.

Such a query is two joins to the planner: the *left rows* (everything but the partner), and the
*pairs* (everything). Both are inner joins over the same stores, planned and shared like any other.
A left row without a partner is known to have none once no partner can come any more: when the
watermark of the partner's stream has passed the row's *deadline*, up to which the time bounds let a
partner be.

Left rows are told apart by the values that the condition and the SELECT list read: rows that agree
in all of them have the same partners.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from anabranch_contract.queries import expressions
from anabranch_contract.queries.expressions import Output
from anabranch_contract.queries.types import DataType, parse_type

#: What the id of the query of left rows ends with; no user's id has it.
LEFT_SUFFIX = "+left"


class JoinKind(StrEnum):
    """What becomes of left rows with and without partners."""

    LEFT = "left"
    SEMI = "semi"
    ANTI = "anti"


@dataclass(frozen=True, slots=True)
class OuterJoin:
    """What is made of left rows and pairs.

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


def to_json(outer: OuterJoin) -> dict[str, Any]:
    """A JSON document for ``outer``; :func:`from_json` is its inverse."""
    return {
        "kind": outer.kind.value,
        "left": [[name, str(kind)] for name, kind in outer.left],
        "times": [list(t) for t in outer.times],
        "partner": outer.partner,
        "projection": [[o.name, expressions.to_json(o.expr)] for o in outer.projection],
    }


def from_json(doc: dict[str, Any]) -> OuterJoin:
    """The outer join that :func:`to_json` wrote."""
    return OuterJoin(
        JoinKind(doc["kind"]),
        tuple((name, parse_type(kind)) for name, kind in doc["left"]),
        tuple((name, micros) for name, micros in doc["times"]),
        doc["partner"],
        tuple(Output(name, expressions.from_json(e)) for name, e in doc["projection"]),
    )
