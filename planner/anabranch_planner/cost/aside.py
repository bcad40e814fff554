"""Key values that intermediate results exclude (PMJoin's plans per substream, applied to stores).

Every tuple that could probe an intermediate result by a key belongs to some label outside it. If
that key splits the tuples of all these labels into substreams, and some of the substreams probe no
intermediate result by it (``Substreams.aside``), then the values that all of them exclude are never
probed: the store need not hold them, nor be maintained from tuples with them
(:mod:`anabranch_contract.plans.partial`).
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

#: A key class of an intermediate result, and the values of it that are left out.
LeftOut = tuple[KeyClass, frozenset[int]]


class SetAside:
    """The values that intermediate results leave out.

    Args:
        substreams: of all starts.
        users: the queries that are planned; None: nothing is known of who probes.
    """

    def __init__(self, substreams: Iterable[Substreams], users: Users | None) -> None:
        functions = {one.start: one for one in substreams}
        #: Whether any start excludes values.
        self.any = any(one.aside for one in functions.values())
        self._functions, self._users = functions if self.any else {}, users
        self._known: dict[MirId, LeftOut | None] = {}

    def may_probe(
        self, classes: Sequence[KeyClass], mir: Mir, start: Label, substream: int
    ) -> bool:
        """Whether a substream of ``start`` is to probe the store of ``mir``, joining by
        ``classes``.
        """
        function = self._functions.get(start)
        if mir.is_base or function is None or substream not in function.aside:
            return True
        key = AttrRef(start, function.attribute)
        return not any(
            key in one.members and any(m.label in mir.members for m in one.members)
            for one in classes
        )

    def keeps_up(self, mir: Mir, start: Label, substream: int) -> bool:
        """Whether the store of ``mir`` has to be kept up from a substream of its member
        ``start``.
        """
        function, left = self._functions.get(start), self.left_out(mir)
        if function is None or left is None:
            return True
        key_class, hashes = left
        own = values_of(function, [substream])
        inside = function.type == key_class.type and AttrRef(start, function.attribute) in (
            key_class.members
        )
        return not (inside and ValueSet(hashes).has(own))

    def left_out(self, mir: Mir) -> LeftOut | None:
        """Values that the store of ``mir`` may exclude; None: it must hold all."""
        if not self._functions or mir.is_base or self._users is None:
            return None
        if mir.id not in self._known:
            users = self._users.of(mir)
            options = [(one, self._common(mir, one, users)) for one in mir.classes]
            known = [option for option in options if option[1]]
            self._known[mir.id] = known[0] if known else None
        return self._known[mir.id]

    def _common(self, mir: Mir, inside: KeyClass, users: Sequence[JoinQuery]) -> frozenset[int]:
        """Values by which all labels outside ``mir`` exclude probes, for one of its key classes."""
        found: frozenset[int] | None = None
        for query in users:
            (whole,) = (c for c in query.classes if set(inside.members) <= set(c.members))
            for label in set(query.labels) - set(mir.members):
                function = self._functions.get(label)
                if function is None or AttrRef(label, function.attribute) not in whole.members:
                    return frozenset()
                own = values_of(function, function.aside)
                if function.type != whole.type or not own.listed:
                    return frozenset()
                found = own.hashes if found is None else found & own.hashes
        return found or frozenset()

    def share(self, mir: Mir, values: ValueShares) -> float:
        """Of the combinations over ``mir``, an intermediate result, the share that is left out."""
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
