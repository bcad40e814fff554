"""Materializable intermediate results (MIR): canonical connected sub-joins.

Two MIRs are identical exactly if their labels (stream, local filter, occurrence), and the key
classes restricted to these labels, are equal. Time bounds and residuals are *not* part of the
identity: a store has the loosest bounds of its queries, and each query checks its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

from anabranch_contract.queries.joins import AttrRef, JoinQuery, KeyClass, Label, RelationId

MirId = NewType("MirId", str)


@dataclass(frozen=True, slots=True)
class Mir:
    """A base relation (one member) or a materializable intermediate result (several).

    Attributes:
        members: labels, sorted. The only member of a base relation is the relation's id, without
            ``#k``: all occurrences of a relation read the same base store.
        relations: the members' relations, in the same order.
        classes: the key classes among the members (empty for a base relation), sorted.
    """

    id: MirId
    members: tuple[Label, ...]
    relations: tuple[RelationId, ...]
    classes: tuple[KeyClass, ...]

    @property
    def is_base(self) -> bool:
        """Whether this is a base relation."""
        return len(self.members) == 1


def base_mir(relation: RelationId) -> Mir:
    """Return the MIR of a base relation."""
    return Mir(MirId(relation), (Label(relation),), (relation,), ())


def restrict_classes(
    classes: tuple[KeyClass, ...], labels: frozenset[Label]
) -> tuple[KeyClass, ...]:
    """Return the key classes restricted to ``labels``, each of two or more attributes."""
    kept = []
    for key_class in classes:
        members = key_class.restrict(labels)
        if len(members) == len(key_class.members):
            kept.append(key_class)
        elif len({m.label for m in members}) >= 2:
            kept.append(KeyClass(key_class.type, members))
    if len(kept) < 2:
        return tuple(kept)
    return tuple(sorted(kept, key=lambda c: c.members))


def is_connected(query: JoinQuery, labels: frozenset[Label]) -> bool:
    """Whether the key classes connect ``labels``, so that they join without a cross product."""
    if not labels:
        return False
    reached = {min(labels)}
    classes = [{m.label for m in c.members} for c in restrict_classes(query.classes, labels)]
    grown = True
    while grown:
        grown = False
        for members in classes:
            if members & reached and not members <= reached:
                reached |= members
                grown = True
    return reached == labels


def sub_join(query: JoinQuery, labels: frozenset[Label]) -> Mir:
    """Return the canonical MIR of ``query`` over ``labels``, which must be connected.

    For a single label it is the base MIR of its relation.
    """
    return canonical(query.classes, {m.label: m.relation for m in query.members}, labels)


def canonical(
    key_classes: tuple[KeyClass, ...],
    relation_of: Mapping[Label, RelationId],
    labels: frozenset[Label],
) -> Mir:
    """Return the canonical MIR over ``labels`` under the key classes of a query or larger MIR."""
    ordered = tuple(sorted(labels))
    if len(ordered) == 1:
        return base_mir(relation_of[ordered[0]])
    classes = restrict_classes(key_classes, labels)
    text = repr((ordered, [(c.type, [str(m) for m in c.members]) for c in classes]))
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    name = MirId("*".join(ordered) + "@" + digest)
    return Mir(name, ordered, tuple(relation_of[x] for x in ordered), classes)


def join_keys(
    classes: tuple[KeyClass, ...], head: frozenset[Label], target: frozenset[Label]
) -> tuple[tuple[AttrRef, AttrRef, str], ...]:
    """Return the equalities that join ``head`` with ``target``: (head's attribute, target's, type).

    Each key class with attributes on both sides yields one equality, between its first attributes
    of each side. Empty: the two join only as a cross product.
    """
    pairs = []
    for key_class in classes:
        left = right = None
        for m in key_class.members:
            if m.label in head:
                left = left or m
            elif m.label in target:
                right = right or m
        if left and right:
            pairs.append((left, right, key_class.type))
    return tuple(sorted(pairs, key=lambda p: (p[1], p[0])))
