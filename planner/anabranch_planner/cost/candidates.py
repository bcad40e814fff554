"""Candidates of the optimiser: sub-joins (MIR) and partition attributes.

Source: Dossinger & Michel, "Optimizing Multiple Multi-Way Stream Joins", section V. Its candidate
probe orders (Algorithm 1) grow like permutations, so they are never listed: they are the paths of
the graph of :mod:`anabranch_planner.search.problem`.
"""

from __future__ import annotations

from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from anabranch_contract.queries.mirs import Mir

Labels = frozenset[Label]


def adjacency(query: JoinQuery) -> dict[Label, Labels]:
    """The labels that share a key class with each label (and can be joined with it directly)."""
    near: dict[Label, set[Label]] = {label: set() for label in query.labels}
    for key_class in query.classes:
        members = {m.label for m in key_class.members}
        for label in members:
            near[label] |= members - {label}
    return {label: frozenset(found) for label, found in near.items()}


def connected_sets(query: JoinQuery, limit: int | None = None) -> tuple[Labels, ...] | None:
    """Every connected set of labels, the whole query included; None if more than ``limit``.

    Sets grow by one neighbour at a time: a connected set of size k + 1 always contains a
    connected set of size k. Sorted by size, then by labels. A chain of n labels has
    n(n+1)/2 of them, a clique 2^n - 1.
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
    """Candidate partition attributes that ``query`` alone gives to ``mir`` over ``labels``.

    Candidates join the store with a label outside. Where a class relates several labels inside, its
    attributes are equal in the store, and the first stands for all. Where it has several attributes
    of one label only, they differ in the store: each is a candidate, because another query may join
    by any of them.
    """
    found = []
    for key_class in query.classes:
        inside = key_class.restrict(labels)
        if inside and len(inside) < len(key_class.members):
            several = len({m.label for m in inside}) > 1
            found += [in_store(m, mir) for m in (inside[:1] if several else inside)]
    return found


def in_store(attribute: AttrRef, mir: Mir) -> AttrRef:
    """``attribute`` of a goal's label in the namespace of the store that fills the label."""
    return AttrRef(mir.members[0], attribute.attribute) if mir.is_base else attribute
