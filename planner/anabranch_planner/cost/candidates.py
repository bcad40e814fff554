"""Candidates of the optimiser: sub-joins to materialise (MIRs) and partition attributes of stores.

Source: Dossinger & Michel, "Optimizing Multiple Multi-Way Stream Joins", section V. Its candidate
probe orders (Algorithm 1) are as many as permutations, so they are not listed here but are the
paths of the graph of :mod:`anabranch_planner.search.problem`.
"""

from __future__ import annotations

from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from anabranch_contract.queries.mirs import Mir

Labels = frozenset[Label]


def adjacency(query: JoinQuery) -> dict[Label, Labels]:
    """Join graph of a query: alias -> the aliases with which it shares a key class."""
    near: dict[Label, set[Label]] = {label: set() for label in query.labels}
    for key_class in query.classes:
        members = {m.label for m in key_class.members}
        for label in members:
            near[label] |= members - {label}
    return {label: frozenset(found) for label, found in near.items()}


def connected_sets(query: JoinQuery, limit: int | None = None) -> tuple[Labels, ...] | None:
    """Every set of aliases that joins connect, the whole query included; None if there are more
    than ``limit``.

    Sets grow by one neighbour at a time: a connected set of size k + 1 always contains a connected
    set of size k. Sorted by size, then by aliases. A chain of n aliases has n(n+1)/2 such sets, a
    clique 2^n - 1.
    """
    near = adjacency(query)
    level = {frozenset({label}) for label in query.labels}
    found: list[Labels] = []
    while level:
        found.extend(sorted(level, key=sorted))
        if limit is not None and len(found) > limit:
            return None
        level = {labels | {other} for labels in level for x in labels for other in near[x] - labels}
    return tuple(found)


def joining_attributes(query: JoinQuery, labels: Labels, mir: Mir) -> list[AttrRef]:
    """Attributes that may partition the store of ``mir``, the sub-join of ``query`` over
    ``labels``.

    A candidate attribute joins the store with an alias outside of it. If a key class relates
    several aliases in the store, their attributes are equal there, and the first represents them.
    Several attributes of one alias in a key class may differ in the store. Each is then a
    candidate, because another query may join by any of them.
    """
    found = []
    for key_class in query.classes:
        inside = key_class.restrict(labels)
        if inside and len(inside) < len(key_class.members):
            several = len({m.label for m in inside}) > 1
            found += [in_store(m, mir) for m in (inside[:1] if several else inside)]
    return found


def in_store(attribute: AttrRef, mir: Mir) -> AttrRef:
    """Name of a query's ``attribute`` in the store ``mir``, which has canonical labels."""
    return AttrRef(mir.members[0], attribute.attribute) if mir.is_base else attribute
