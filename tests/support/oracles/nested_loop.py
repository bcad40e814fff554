"""Oracle of a join by nested loops: every combination of tuples, extended one alias at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from anabranch_contract.protocol.activations import Activation
from anabranch_contract.queries.expressions import Column, Expr, columns
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from tests.support.oracles.evaluate import Value, evaluate, holds, key_of
from tests.support.oracles.history import Arrival, History, covers, sees
from tests.support.oracles.interpreter import Found

_EVERYTHING = Activation(0, {})


def nested_loop(
    query: JoinQuery, history: History, activation: Activation = _EVERYTHING
) -> dict[Found, tuple[Value, ...]]:
    """Return every result of ``query``: arrival sequences in member order -> projected values.

    A result counts if its last-arriving member arrives while the query is active, and if every
    member is visible to the query (to an alias that ``visible_from`` does not name, all tuples are
    visible).
    """
    candidates = [
        [
            row
            for row in history.of(query.relation_of(member.label).stream)
            if all(holds(c, _of_row(row)) for c in query.relation_of(member.label).filter)
            and sees(activation, member.alias, row)
        ]
        for member in query.members
    ]
    found: dict[Found, tuple[Value, ...]] = {}
    for rows in _extend(query, candidates, []):
        last = max(row.batch for row in rows)
        if covers(activation, last):
            read = _of_rows(query, rows)
            sigmas = tuple(row.sigma for row in rows)
            found[sigmas] = tuple(evaluate(o.expr, read) for o in query.projection)
    return found


def _extend(
    query: JoinQuery, candidates: Sequence[Sequence[Arrival]], rows: list[Arrival]
) -> Iterator[tuple[Arrival, ...]]:
    if len(rows) == len(candidates):
        yield tuple(rows)
        return
    for row in candidates[len(rows)]:
        grown = [*rows, row]
        if _fits(query, grown):
            yield from _extend(query, candidates, grown)


def _fits(query: JoinQuery, rows: Sequence[Arrival]) -> bool:
    """Whether the newest row satisfies all conditions whose members are present."""
    labels = query.labels[: len(rows)]
    newest = len(rows) - 1
    for predicate in query.predicates:
        sides = (predicate.left, predicate.right)
        if labels[newest] in {s.label for s in sides} and {s.label for s in sides} <= set(labels):
            kind = next(c.type for c in query.classes if predicate.left in c.members)
            one, other = (_key(query, rows, side, kind) for side in sides)
            if one is None or one != other:
                return False
    for other_index in range(newest):
        for i, j in ((newest, other_index), (other_index, newest)):
            bound = query.bounds[i][j]
            if bound is not None and _tau(rows[j]) - _tau(rows[i]) > bound:
                return False
    read = _of_rows(query, rows)
    return all(
        holds(residual, read) for residual in query.residuals if _readable(residual, set(labels))
    )


def _key(query: JoinQuery, rows: Sequence[Arrival], ref: AttrRef, kind: str) -> Value:
    row = rows[query.labels.index(ref.label)]
    derived = {a: e for s, a, e in query.derived if s == row.stream}
    if ref.attribute in derived:
        return key_of(evaluate(derived[ref.attribute], _of_row(row)), kind)
    return key_of(row.values[ref.attribute], kind)


def _tau(row: Arrival) -> int:
    assert row.tau is not None
    return row.tau


def _readable(expr: Expr, labels: set[Label]) -> bool:
    return {c.alias for c in columns(expr)} <= labels


def _of_rows(query: JoinQuery, rows: Sequence[Arrival]) -> Callable[[Column], Value]:
    by_label: dict[str, Arrival] = dict(zip(query.labels, rows, strict=False))
    return lambda column: by_label[column.alias].values[column.name]


def _of_row(row: Arrival) -> Callable[[Column], Value]:
    return lambda column: row.values[column.name]
