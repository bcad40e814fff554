"""The fraction of a sub-join within its time bounds: PMJoin's rate model, from an empty start.

**Setting.** Statistics count the tuples ``|j|`` of a relation over a unit of time. In the cost
model that unit begins with empty stores and is the interval [0, 1], so the tuples of ``j`` arrive
at rate ``|j|``. The member that arrives last completes a combination. Let that be ``i``, at time
``t``. Then its partner from ``j`` arrived at most ``reach_j`` and at least ``gap_j`` before ``t``,
but not before 0. In units of time, ``reach_j = D[j][i]``, infinite without a bound, and ``gap_j :=
max(0, -D[i][j])``. So ``i`` meets

    W_j(t) = |j| * g_j(t),    g_j(t) = max(0, min(reach_j, t) - gap_j)

tuples of ``j``, and paths from ``i`` make this many combinations of the sub-join ``X``:

    P_i(X) = f(X) * |i| * integral over t in [0, 1] of  product over j != i of  W_j(t)
           = f(X) * (product over all of |j|) * v_i,
    v_i    = integral over t in [0, 1] of  product over j != i of  g_j(t),

where ``f`` is the selectivity of the keys. The cardinality of ``X`` is the sum over ``i``. The
*share* ``v_i`` contains the whole effect of the time bounds, and does not depend on rates.

**Full history** (no bounds): ``g_j(t) = t``, hence ``v_i = 1/n``: Eq. 1 of CLASH, and the
cardinality is the plain product.

**Windows** short against the unit of time: ``g_j(t) = T_j`` almost always, hence
``P_i = f * lambda_i * product of the W_j``, which is PMJoin's model (Eq. 2 and 3)

    lambda_ij = f * (lambda_i * W_j + lambda_j * W_i),    W_ij = f * W_i * W_j

applied repeatedly: by induction over any join tree ``lambda_X = f * sum over i of lambda_i *
product of the other W`` and ``W_X = f * product of all W``. So the result does not depend on the
join order. Shares are unequal where windows are, and 1/n would be wrong: the path from the stream
with the longest window makes the fewest combinations, because it meets only the shorter windows.

**In between** the integral changes continuously from one case to the other: a window as long as the
history is full history. Equal windows ``T <= 1`` give ``v_i = T^(n-1) - (n-1)/n * T^n``. Where only
some pairs are bounded, the unbounded ones have ``reach = 1``.

**Approximations.** A pair ``j, k`` of partners may have a tighter bound than their bounds with
``i`` imply. It is not counted, so shares are then upper bounds. Windows per alias (``D[j][i] =
W_j`` for all ``i``) imply no tighter bound, so for them shares are exact. Tuples are assumed to
arrive in order of event time.

**Whose bounds.** Bounds are not part of a sub-join's identity. A step runs with the loosest bounds
of its queries (``compile``). So :class:`LoosestBounds` gives a sub-join the loosest bounds of all
queries that contain it and might share it. The price of a step then depends only on start,
sub-joins and target, and equal steps are one variable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

from anabranch_contract.queries.joins import JoinQuery, Label
from anabranch_contract.queries.mirs import Mir, MirId, restrict_classes

#: (earlier, later) -> microseconds by which ``later`` may follow; absent pairs have no bound.
PairBounds = dict[tuple["Label", "Label"], int]


class LoosestBounds:
    """Sub-join -> the loosest time bounds of the queries that contain it (see the module).

    Attributes:
        users: finds the queries that contain a sub-join.
    """

    def __init__(self, queries: Sequence[JoinQuery]) -> None:
        self.users, self._queries = Users(queries), queries
        self._reaches: dict[MirId, tuple[int | None, ...]] = {}

    @cached_property
    def _pairs(self) -> dict[int, PairBounds]:
        return {id(query): pair_bounds(query) for query in self._queries}

    @cached_property
    def _bounded(self) -> bool:
        return any(self._pairs.values())

    def of(self, mir: Mir) -> PairBounds:
        """The time bounds between the members of ``mir``; empty if no pair has a bound."""
        if mir.is_base or not self._bounded:
            return {}
        members = frozenset(mir.members)
        loosest: PairBounds | None = None
        for query in self.users.of(mir):
            pairs = self._pairs[id(query)]
            if loosest is None:
                loosest = {p: d for p, d in pairs.items() if p[0] in members and p[1] in members}
            else:
                loosest = {p: max(d, pairs[p]) for p, d in loosest.items() if p in pairs}
            if not loosest:
                return {}
        return loosest or {}

    def reach(self, mir: Mir) -> tuple[int | None, ...]:
        """Per member of ``mir``: microseconds for which other relations may join its rows.

        None means no limit. All members have 0 if no query joins ``mir`` with further relations.
        """
        if not self._bounded:
            return (None,) * len(mir.members)
        found = self._reaches.get(mir.id)
        if found is None:
            found = self._reaches[mir.id] = self._reach(mir)
        return found

    def _reach(self, mir: Mir) -> tuple[int | None, ...]:
        if mir.is_base:
            (relation,) = mir.relations
            needs = [
                self._need(query, m.label, {m.label})
                for query in self.users.queries
                for m in query.members
                if m.relation == relation
            ]
            return (_longest(needs),)
        members, users = frozenset(mir.members), self.users.of(mir)
        return tuple(_longest([self._need(q, m, members) for q in users]) for m in mir.members)

    def _need(self, query: JoinQuery, label: Label, inside: Collection[Label]) -> int | None:
        """Microseconds for which relations outside ``inside`` may join rows of ``label``."""
        pairs = self._pairs[id(query)]
        return _longest([pairs.get((label, x)) for x in query.labels if x not in inside])


def _longest(times: Sequence[int | None]) -> int | None:
    """The longest of ``times`` from time bounds, at least 0; None (no limit) if one is None."""
    finite = [t for t in times if t is not None]
    return max((0, *finite)) if len(finite) == len(times) else None


def pair_bounds(query: JoinQuery) -> PairBounds:
    """The finite time bounds of ``query`` by pairs of aliases."""
    labels = query.labels
    return {
        (labels[i], labels[j]): bound
        for i, row in enumerate(query.bounds)
        for j, bound in enumerate(row)
        if i != j and bound is not None
    }


def shares(
    members: Sequence[Label],
    bounds: Mapping[tuple[Label, Label], int],
    spans: Mapping[Label, float | None],
) -> tuple[float, ...]:
    """Fraction of a sub-join's combinations that each member completes: ``v_i`` in the module.

    Args:
        members: the aliases of a sub-join.
        bounds: closed under shortest paths.
        spans: alias -> microseconds of event time over which its tuples of one unit are spread;
            None: unknown, any window covers them.

    >>> from anabranch_contract.queries.joins import Label
    >>> R, S = Label("R"), Label("S")
    >>> shares((R, S), {}, {R: 100.0, S: 100.0})
    (0.5, 0.5)
    >>> shares((R, S), {(R, S): 50, (S, R): 0}, {R: 100.0, S: 100.0})  # only S completes results
    (0.0, 0.375)
    """
    found = []
    known: dict[tuple[tuple[float, float], ...], float] = {}
    for last in members:
        pieces = []
        for other in members:
            span = spans[other]
            if other == last or span is None:
                pieces += [] if other == last else [(0.0, 1.0)]
                continue
            reach, least = bounds.get((other, last)), bounds.get((last, other), 0)
            gap = max(0, -least) / span
            pieces.append((gap, 1.0 if reach is None else min(reach / span, 1.0)))
        key = tuple(sorted(pieces))
        if key not in known:
            known[key] = _overlap(key)
        found.append(known[key])
    return tuple(found)


def _overlap(pieces: Sequence[tuple[float, float]]) -> float:
    """The integral over [0, 1] of the product of ``max(0, min(reach, t) - gap)``, for a share.

    Between neighbouring break points every factor is constant or ``t - gap``, so the product is a
    polynomial. As a polynomial in the distance from the left point it has only positive
    coefficients, so there is no cancellation.
    """
    if any(reach <= gap for gap, reach in pieces):
        return 0.0
    if not any(gap for gap, _ in pieces):
        return _windows([reach for _, reach in pieces])
    first = max((gap for gap, _ in pieces), default=0.0)
    points = sorted({first, 1.0, *(reach for _, reach in pieces if first < reach < 1.0)})
    total = 0.0
    for low, high in pairwise(points):
        polynomial = [1.0]
        for gap, reach in pieces:
            if reach <= low:
                polynomial = [c * (reach - gap) for c in polynomial]
            else:
                lifted = [c * (low - gap) for c in polynomial]
                polynomial = [
                    a + b for a, b in zip([*lifted, 0.0], [0.0, *polynomial], strict=True)
                ]
        width = high - low
        total += sum(c * width ** (k + 1) / (k + 1) for k, c in enumerate(polynomial))
    return total


def _windows(reaches: Sequence[float]) -> float:
    """The integral of :func:`_overlap` if all gaps are 0; ``reaches`` ascend."""
    total, low, product, left = 0.0, 0.0, 1.0, len(reaches)
    for reach in reaches:
        total += product * (reach ** (left + 1) - low ** (left + 1)) / (left + 1)
        product *= reach
        low = reach
        left -= 1
    return total + product * (1.0 - low)


class Users:
    """Index of queries: sub-join -> the queries that contain it, sorted by id."""

    def __init__(self, queries: Sequence[JoinQuery]) -> None:
        self._given = queries

    @cached_property
    def queries(self) -> list[JoinQuery]:
        """All queries of the cost model, sorted by id."""
        return sorted(self._given, key=lambda q: q.id)

    @cached_property
    def _with(self) -> dict[Label, set[int]]:
        """Alias -> numbers of the queries with this alias."""
        found: dict[Label, set[int]] = defaultdict(set)
        for number, query in enumerate(self.queries):
            for label in query.labels:
                found[label].add(number)
        return found

    def of(self, mir: Mir) -> list[JoinQuery]:
        """The queries that contain the sub-join ``mir``: its members under the same key classes."""
        members = frozenset(mir.members)
        found = set.intersection(*(self._with.get(label, set()) for label in mir.members))
        return [
            self.queries[number]
            for number in sorted(found)
            if restrict_classes(self.queries[number].classes, members) == mir.classes
        ]
