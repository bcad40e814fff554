"""Time bounds of a query as closed difference matrices (``D[i][j]``: ``tau_j - tau_i <= D[i][j]``).

None means infinity. A matrix is *closed* if no chain of its entries implies a tighter entry.
Closing is all-pairs shortest paths; the constraints are satisfiable if and only if no cycle is
negative (Dechter, Meiri, Pearl: Temporal Constraint Networks, 1991).

On R, S, T with ``tau_S <= tau_R + 5`` and ``tau_T <= tau_S + 7``:

>>> d = intersect(single(3, 0, 1, 5), single(3, 1, 2, 7))
>>> close(d, ("R", "S", "T"))
((0, 5, 12), (None, 0, 7), (None, None, 0))
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.joins import Bounds, Micros


def unbounded(size: int) -> Bounds:
    """The matrix of ``size`` aliases without time bounds.

    >>> unbounded(2)
    ((0, None), (None, 0))
    """
    return tuple(tuple(0 if i == j else None for j in range(size)) for i in range(size))


def single(size: int, i: int, j: int, micros: Micros) -> Bounds:
    """The matrix of one bound, ``tau_j - tau_i <= micros``; an error if ``i == j`` and it is false.

    >>> single(2, 1, 0, -3)
    ((0, None), (-3, 0))
    """
    if i == j:
        diagonal = min(0, micros)
        return _replace(unbounded(size), i, i, diagonal)
    return _replace(unbounded(size), i, j, micros)


def from_windows(
    aliases: Sequence[str], windows: Mapping[str, Micros | None], timeless: Collection[str] = ()
) -> Bounds:
    """Bounds that windows imply: ``D[i][j] = W_i`` for every other ``j``; unbounded for aliases
    without a window (or with None), and for ``j`` in ``timeless`` (tables).

    >>> from_windows(("R", "S"), {"R": 9})
    ((0, 9), (None, 0))
    >>> from_windows(("R", "S", "T"), {"R": 9}, ("S",))
    ((0, None, 9), (None, 0, None), (None, None, 0))
    """
    return tuple(
        tuple(
            0 if i == j else None if other in timeless else windows.get(alias)
            for j, other in enumerate(aliases)
        )
        for i, alias in enumerate(aliases)
    )


def intersect(left: Bounds, right: Bounds) -> Bounds:
    """Conjunction of two matrices of time bounds: the elementwise minimum (not closed)."""
    return tuple(
        tuple(_least(a, b) for a, b in zip(x, y, strict=True))
        for x, y in zip(left, right, strict=True)
    )


def close(matrix: Bounds, names: Sequence[str]) -> Bounds:
    """The closed matrix of time bounds with the same solutions (Floyd-Warshall).

    Args:
        matrix: any difference matrix.
        names: the rows' names in errors, in order.

    Raises:
        QueryError: ``unsatisfiable-time-bounds``, naming the rows on a negative cycle.
    """
    size = len(matrix)
    d = [list(row) for row in matrix]
    via: dict[tuple[int, int], int] = {}
    for i in range(size):
        if d[i][i] is None:
            d[i][i] = 0
    for k in range(size):
        for i in range(size):
            first = d[i][k]
            if first is None:
                continue
            for j in range(size):
                second, known = d[k][j], d[i][j]
                if second is None or (known is not None and known <= first + second):
                    continue
                d[i][j] = first + second
                via[i, j] = k
                if i == j:
                    raise _unsatisfiable(names, _cycle(via, i))
    for i in range(size):
        if (d[i][i] or 0) < 0:
            raise _unsatisfiable(names, [i])
    return tuple(tuple(row) for row in d)


def irredundant(closed: Bounds) -> Bounds:
    """A closed matrix of time bounds without the implied ones, which :func:`close` restores.

    >>> irredundant(((0, 5, 12), (None, 0, 7), (None, None, 0)))
    ((0, 5, None), (None, 0, 7), (None, None, 0))
    """
    places = range(len(closed))
    kept = [list(row) for row in closed]
    for i in places:
        for j in places:
            known = kept[i][j]
            if i == j or known is None:
                continue
            for k in places:
                first, second = kept[i][k], kept[k][j]
                if k in (i, j) or first is None or second is None or first + second > known:
                    continue
                kept[i][j] = None
                break
    return tuple(map(tuple, kept))


def _least(a: Micros | None, b: Micros | None) -> Micros | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)


def _replace(matrix: Bounds, i: int, j: int, micros: Micros) -> Bounds:
    return tuple(
        tuple(micros if (x, y) == (i, j) else value for y, value in enumerate(row))
        for x, row in enumerate(matrix)
    )


def _cycle(via: Mapping[tuple[int, int], int], start: int) -> list[int]:
    """The members of the negative cycle of time bounds recorded in ``via``, from ``start``."""
    seen: list[int] = [start]
    pending = [(start, start)]
    visited: set[tuple[int, int]] = set()
    while pending:
        i, j = pending.pop()
        if (i, j) not in via or (i, j) in visited:
            continue
        visited.add((i, j))
        k = via[i, j]
        if k not in seen:
            seen.append(k)
        pending += [(i, k), (k, j)]
    return seen


def _unsatisfiable(names: Sequence[str], rows: Sequence[int]) -> QueryError:
    listed = ", ".join(sorted(str(names[i]) for i in rows))
    return QueryError(
        "unsatisfiable-time-bounds",
        f"the time bounds among {listed} contradict each other: no tuples can satisfy them all",
        remedy="loosen one of the conditions on their event times",
    )
