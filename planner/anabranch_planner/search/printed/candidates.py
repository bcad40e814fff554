"""Explicit lists of candidates as in the CLASH paper (section V), which our graph encodes.

Algorithm 1 lists every probe order, so the lists grow like permutations. The paper's integer
program is written over these lists (:mod:`~.formulation`). The worked examples and the brute-force
search of the tests use them as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from anabranch_contract.queries.mirs import Mir, MirId, join_keys, sub_join
from anabranch_planner.cost.candidates import Labels, connected_sets, joining_attributes


@dataclass(frozen=True, slots=True)
class Probe:
    """A step of a candidate order: the probed store, its aliases, perhaps a partition attribute."""

    target: MirId
    members: tuple[Label, ...]
    partition: AttrRef | None = None


CandidateOrder = tuple[Probe, ...]


def mirs_of(query: JoinQuery) -> tuple[tuple[Labels, Mir], ...]:
    """The stores that orders of the query may probe: base relations and proper sub-joins."""
    sets = connected_sets(query) or ()
    whole = len(query.labels)
    return tuple((s, sub_join(query, s)) for s in sets if len(s) < whole or len(s) == 1)


def sub_query(query: JoinQuery, labels: Labels) -> JoinQuery:
    """The query restricted to ``labels``; its probe orders maintain the sub-join over them."""
    kept = tuple(m for m in query.members if m.label in labels)
    ids = {m.relation for m in kept}
    return replace(
        query,
        members=kept,
        relations=tuple(r for r in query.relations if r.id in ids),
        classes=sub_join(query, labels).classes,
        predicates=(),
        residuals=(),
        projection=(),
    )


def candidate_orders(query: JoinQuery, start: Label, *, mir: bool = True) -> list[CandidateOrder]:
    """Algorithm 1: every probe order of ``query`` that begins with ``start``.

    The joined set is extended by every store that is disjoint from it and can be joined with it,
    until all aliases are covered. The maintenance orders of an intermediate result are the
    candidate orders of the query over its members.
    """
    targets = [(s, m) for s, m in mirs_of(query) if mir or len(s) == 1]
    whole = frozenset(query.labels)

    def extend(head: Labels) -> list[CandidateOrder]:
        if head == whole:
            return [()]
        return [
            (Probe(found.id, tuple(sorted(labels))), *rest)
            for labels, found in targets
            if not labels & head and join_keys(query.classes, head, labels)
            for rest in extend(head | labels)
        ]

    return extend(frozenset({start}))


def count_orders(
    query: JoinQuery,
    start: Label,
    partitions: Mapping[MirId, Sequence[AttrRef | None]],
    *,
    mir: bool = True,
) -> int:
    """The number of decorated orders (with partition attributes) that :func:`decorate` lists.

    Orders with the same head have the same continuations. So only heads are enumerated, and there
    are as many heads as connected alias sets.
    """
    targets = [(s, len(partitions[m.id])) for s, m in mirs_of(query) if mir or len(s) == 1]
    whole = frozenset(query.labels)
    counted: dict[Labels, int] = {whole: 1}

    def count(head: Labels) -> int:
        if head not in counted:
            counted[head] = sum(
                ways * count(head | labels)
                for labels, ways in targets
                if not labels & head and join_keys(query.classes, head, labels)
            )
        return counted[head]

    return count(frozenset({start}))


def partition_candidates(queries: Iterable[JoinQuery]) -> dict[MirId, tuple[AttrRef, ...]]:
    """Store -> the attributes that join it, in any of the queries, with an alias outside of it.

    Attributes that a key class makes equal within a store are one candidate, named by the smallest
    of them. An attribute of a base relation is written in the namespace of its store, where the
    label is the relation's id.
    """
    found: dict[MirId, set[AttrRef]] = {}
    for query in queries:
        for labels, mir in mirs_of(query):
            found.setdefault(mir.id, set()).update(joining_attributes(query, labels, mir))
    return {mir: tuple(sorted(attributes)) for mir, attributes in sorted(found.items())}


def decorate(
    order: CandidateOrder, partitions: Mapping[MirId, Sequence[AttrRef | None]]
) -> list[CandidateOrder]:
    """All variants of ``order`` with a candidate partition attribute for each probed store."""
    choices = [
        [Probe(p.target, p.members, attribute) for attribute in partitions[p.target]] for p in order
    ]
    return [tuple(combination) for combination in product(*choices)]
