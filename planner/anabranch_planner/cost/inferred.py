"""Selectivities of joins that never ran, inferred from measurements of larger joins.

The join keys of a step from a partial result over ``H`` to a store over ``T`` may belong to only
some of these relations, ``H' < H`` and ``T' <= T``. The measured fraction of matching pairs is then
about that of a step from ``H'`` to ``T'``, which the running plan may not contain. It is equal if
the tuples of ``H'`` that reach the larger step are typical.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch_contract.plans.steps import SubJoinStep
from anabranch_contract.protocol.measurements import JoinSample
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.mirs import is_connected, join_keys, sub_join
from anabranch_planner.cost.steps import SubJoins


class Inference:
    """Maps measured join steps to smaller ones of about equal selectivity, with a cache."""

    def __init__(self, queries: Sequence[JoinQuery], subs: SubJoins | None = None) -> None:
        self._subs = SubJoins(queries) if subs is None else subs
        self._known: dict[SubJoinStep, SubJoinStep | None] = {}

    def smaller(self, step: SubJoinStep) -> SubJoinStep | None:
        """``step`` with only the aliases that its join keys use; None if all are used, or these
        are not connected."""
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
        # Both reduced sides have to be connected: no store contains cross products.
        if not all(is_connected(query, part) for part in (heads, targets)):
            return None
        if step.part.substreams and step.part.start not in heads:
            # A substream is defined by a column of its starting alias, which must remain.
            return None
        smaller = sub_join(query, heads | targets).id
        return SubJoinStep(smaller, tuple(sorted(heads)), tuple(sorted(targets)), step.part)

    def extend(self, samples: Iterable[JoinSample]) -> tuple[JoinSample, ...]:
        """``samples`` of one period, and inferred ones for sub-joins that were not measured.

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
