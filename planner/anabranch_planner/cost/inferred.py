"""Samples of smaller steps that larger ones stand for.

A step from a partial result over ``H`` to a store over ``T`` is matched by keys of some labels.
Where these are ``H' < H`` and ``T' <= T``, the share of pairs that match is about the one of the
step from ``H'`` to ``T'``, which the running plan may not take: exactly, if the tuples of ``H'``
that have come so far are like all others. An order that has never run can be judged by that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch_contract.plans.steps import SubJoinStep
from anabranch_contract.protocol.measurements import JoinSample
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.mirs import is_connected, join_keys, sub_join
from anabranch_planner.cost.steps import SubJoins


class Inference:
    """The smaller steps of some queries' steps, worked out once each."""

    def __init__(self, queries: Sequence[JoinQuery], subs: SubJoins | None = None) -> None:
        self._subs = SubJoins(queries) if subs is None else subs
        self._known: dict[SubJoinStep, SubJoinStep | None] = {}

    def smaller(self, step: SubJoinStep) -> SubJoinStep | None:
        """``step`` between the labels that its keys are of; None: these are all, or not joined."""
        if step not in self._known:
            self._known[step] = self._find(step)
        return self._known[step]

    def _find(self, step: SubJoinStep) -> SubJoinStep | None:
        joined, head, target = step.joined, frozenset(step.head), frozenset(step.target)
        query = self._subs.containing(head | target, joined)
        if query is None:
            return None
        keys = join_keys(query.classes, head, target)
        heads, targets = frozenset(k[0].label for k in keys), frozenset(k[1].label for k in keys)
        if heads | targets == head | target:
            return None
        # Both sides have to be sub-joins, or the pairs are not pairs of a store's rows.
        if not all(is_connected(query, part) for part in (heads, targets)):
            return None
        if step.part.substreams and step.part.start not in heads:
            # The step's substreams are defined only where the start is joined.
            return None
        smaller = sub_join(query, heads | targets).id
        return SubJoinStep(smaller, tuple(sorted(heads)), tuple(sorted(targets)), step.part)

    def extend(self, samples: Iterable[JoinSample]) -> tuple[JoinSample, ...]:
        """``samples`` of one time, completed with inferred samples of smaller, unsampled sub-joins.

        Sorted by sub-join, then by head.
        """
        known = {s.step: s for s in samples}
        seen = {s.joined for s in known.values()}
        found = dict(known)
        for step in sorted(known):
            smaller = self.smaller(step)
            if smaller is None or smaller.joined in seen:
                continue
            one, old = known[step], found.get(smaller, JoinSample.of(smaller, 0.0, 0.0, 0.0))
            found[smaller] = JoinSample.of(
                smaller, old.probes + one.probes, old.pairs + one.pairs, old.hits + one.hits
            )
        return tuple(found[key] for key in sorted(found))
