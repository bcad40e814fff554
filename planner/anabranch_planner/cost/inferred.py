"""Selectivities of joins that never ran, inferred from measurements of larger joins.

The join keys of a step from a partial result over ``H`` to a store over ``T`` may belong to only
some of these relations, ``H' < H`` and ``T' <= T``. The measured fraction of matching pairs is then
about equal to that of a step from ``H'`` to ``T'``, which the running plan may not contain. The two
are equal if the tuples of ``H'`` that reach the larger step are typical.

**Skew.** These tuples are not typical if few key values make most matches of ``H'`` and ``T'``, and
an omitted relation, which joins by the same key, may lack these values. Then nothing is inferred,
and the estimate by frequent values (:mod:`~anabranch_planner.cost.values`) stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from anabranch_contract.plans.steps import SubJoinStep
from anabranch_contract.protocol.measurements import JoinSample
from anabranch_contract.queries.joins import JoinQuery, Label
from anabranch_contract.queries.mirs import is_connected, join_keys, sub_join
from anabranch_planner.cost.steps import SubJoins
from anabranch_planner.cost.values import Column, ValueShares


class _Smaller(NamedTuple):
    """A step over fewer relations, and its columns of each key by which omitted ones join, too."""

    step: SubJoinStep
    shared: tuple[tuple[Column, ...], ...]


class Inference:
    """Maps measured join steps to smaller ones of about equal selectivity, with a cache."""

    def __init__(self, queries: Sequence[JoinQuery], subs: SubJoins | None = None) -> None:
        self._subs = SubJoins(queries) if subs is None else subs
        self._known: dict[SubJoinStep, _Smaller | None] = {}

    def _smaller(self, step: SubJoinStep) -> _Smaller | None:
        """The join step ``step`` with only the aliases that its join keys use; None if all are
        used, or if these aliases are not connected."""
        if step not in self._known:
            self._known[step] = self._find(step)
        return self._known[step]

    def _find(self, step: SubJoinStep) -> _Smaller | None:
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
        found = SubJoinStep(smaller, tuple(sorted(heads)), tuple(sorted(targets)), step.part)
        return _Smaller(found, _shared(query, head, target, heads | targets))

    def extend(
        self, samples: Iterable[JoinSample], values: ValueShares | None = None
    ) -> tuple[JoinSample, ...]:
        """Samples of one period, and samples inferred from them for unmeasured join steps.

        The result is sorted by resulting sub-join, then by the probing sub-join.

        Args:
            values: frequent values; None: unknown.
        """
        known = {s.step: s for s in samples}
        seen = {s.joined for s in known.values()}
        found = dict(known)
        for step in sorted(known):
            smaller = self._smaller(step)
            if smaller is None or smaller.step.joined in seen:
                continue
            if values is not None and any(_is_skewed(one, values) for one in smaller.shared):
                continue
            one = known[step]
            old = found.get(smaller.step, JoinSample.of(smaller.step, 0.0, 0.0, 0.0))
            found[smaller.step] = JoinSample.of(
                smaller.step, old.probes + one.probes, old.pairs + one.pairs, old.hits + one.hits
            )
        return tuple(found[key] for key in sorted(found))


def _shared(
    query: JoinQuery, head: frozenset[Label], target: frozenset[Label], kept: frozenset[Label]
) -> tuple[tuple[Column, ...], ...]:
    """For each join key of ``head`` and ``target`` by which aliases outside ``kept`` join as well,
    its columns in ``kept`` aliases."""
    found = []
    for key_class in query.classes:
        columns: dict[Label, Column] = {}
        for member in key_class.members:
            if member.label in head | target:
                column = query.relation_of(member.label).id, member.attribute
                columns.setdefault(member.label, column)
        if all(not side.isdisjoint(columns) for side in (head, target, (head | target) - kept)):
            found.append(tuple(column for label, column in columns.items() if label in kept))
    return tuple(found)


def _is_skewed(columns: Sequence[Column], values: ValueShares) -> bool:
    """Whether a few frequent values account for most of the matches of ``columns``."""
    hashes = values.frequent(columns)
    if not len(hashes) or not all(map(values.are_known, columns)):
        return False
    weights = values.weights(columns, hashes)
    return bool(weights[:-1].sum() > weights[-1])
