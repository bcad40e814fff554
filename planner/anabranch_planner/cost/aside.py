"""Key values that intermediate results exclude (PMJoin's plans per substream, applied to stores).

An intermediate result is probed by tuples of the relations joined with it. The tuples of each such
relation may be split into substreams (sets of values of the join key), and some substreams may be
planned never to probe intermediate results by this key (``Substreams.aside``). Key values in such
substreams of all relations are never probed. So the store need not have rows with these values, and
tuples with these values need not maintain it (:mod:`anabranch_contract.plans.partial`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from anabranch_contract.plans.partial import ValueSet, values_of
from anabranch_contract.plans.ruleset import Substreams
from anabranch_contract.queries.joins import AttrRef, JoinQuery, KeyClass, Label
from anabranch_contract.queries.mirs import Mir, MirId
from anabranch_planner.cost.timing import Users
from anabranch_planner.cost.values import ValueShares, joined_columns

#: A key class of an intermediate result, and the hashes of its key values that the store excludes.
LeftOut = tuple[KeyClass, frozenset[int]]


class SetAside:
    """Key values that stores of intermediate results may exclude, since no tuple probes them.

    Args:
        substreams: the split of each relation whose arriving tuples are split by key value.
        users: the planned queries; None: unknown, so no store excludes values.
    """

    def __init__(self, substreams: Iterable[Substreams], users: Users | None) -> None:
        functions = {one.start: one for one in substreams}
        #: Whether a relation has substreams that never probe intermediate results.
        self.any = any(one.aside for one in functions.values())
        self._functions, self._users = functions if self.any else {}, users
        self._known: dict[MirId, LeftOut | None] = {}

    def may_probe(
        self, classes: Sequence[KeyClass], mir: Mir, start: Label, substream: int
    ) -> bool:
        """Whether tuples of ``start`` in ``substream`` may probe ``mir`` by keys ``classes``."""
        function = self._functions.get(start)
        if mir.is_base or function is None or substream not in function.aside:
            return True
        key = AttrRef(start, function.attribute)
        return not any(
            key in one.members and any(m.label in mir.members for m in one.members)
            for one in classes
        )

    def keeps_up(self, mir: Mir, start: Label, substream: int) -> bool:
        """Whether tuples of ``mir``'s member ``start`` in ``substream`` must maintain its store."""
        function, left = self._functions.get(start), self.left_out(mir)
        if function is None or left is None:
            return True
        key_class, hashes = left
        own = values_of(function, [substream])
        inside = function.type == key_class.type and _is_split_by(function, key_class)
        return not (inside and ValueSet(hashes).has(own))

    def left_out(self, mir: Mir) -> LeftOut | None:
        """A key class of ``mir``, and its values that the store may exclude; None if none."""
        if not self._functions or mir.is_base or self._users is None:
            return None
        if mir.id not in self._known:
            users = self._users.of(mir)
            options = [(one, self._common(mir, one, users)) for one in mir.classes]
            known = [option for option in options if option[1]]
            self._known[mir.id] = known[0] if known else None
        return self._known[mir.id]

    def _common(self, mir: Mir, inside: KeyClass, users: Sequence[JoinQuery]) -> frozenset[int]:
        """Values of the key ``inside`` that no relation joined with ``mir`` looks up in it."""
        found: frozenset[int] | None = None
        for query in users:
            (whole,) = (c for c in query.classes if set(inside.members) <= set(c.members))
            for label in set(query.labels) - set(mir.members):
                function = self._functions.get(label)
                if function is None or not _is_split_by(function, whole):
                    return frozenset()
                own = values_of(function, function.aside)
                if function.type != whole.type or not own.listed:
                    return frozenset()
                found = own.hashes if found is None else found & own.hashes
        return found or frozenset()

    def share(self, mir: Mir, values: ValueShares) -> float:
        """Fraction of the joined rows of ``mir`` that its store excludes."""
        found = self.left_out(mir)
        if found is None:
            return 0.0
        key_class, left = found
        columns = joined_columns(mir, key_class.members[0])
        own = np.array(sorted(left), np.uint64)
        hashes = np.unique(np.concatenate([own, values.frequent(columns)]))
        weights = values.weights(columns, hashes)
        total = float(weights.sum())
        return float(weights[:-1][np.isin(hashes, own)].sum()) / total if total > 0 else 0.0


def _is_split_by(function: Substreams, key_class: KeyClass) -> bool:
    """Whether substreams split a relation by its only attribute in ``key_class``. Several
    attributes of one relation are in a key class because of a filter; the rules do not show that
    their values are equal."""
    own = [ref.attribute for ref in key_class.members if ref.label == function.start]
    return own == [function.attribute]
