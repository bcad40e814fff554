"""Whether two statements join the same rows, whatever their aliases and columns are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch_contract.queries.joins import JoinQuery


def same_joins(one: JoinQuery | None, other: JoinQuery | None) -> bool:
    """Whether both have equal relations, key classes, time bounds and residuals; labels are
    canonical, so that equal joins have equal ones.
    """
    if one is None or other is None:
        return one is other
    if len(one.others) != len(other.others):
        return False
    parts = zip((one.left, *one.others), (other.left, *other.others), strict=True)
    return _joins(one) == _joins(other) and all(same_joins(a, b) for a, b in parts)


def _joins(query: JoinQuery) -> tuple[object, ...]:
    order = sorted(range(len(query.members)), key=lambda i: query.members[i].label)
    return (
        [query.members[i].label for i in order],
        sorted(query.relations, key=lambda r: r.id),
        query.classes,
        [[query.bounds[i][j] for j in order] for i in order],
        query.residuals,
        query.derived,
    )
