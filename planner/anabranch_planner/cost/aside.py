"""What intermediate results need not keep: values that are set aside (PMJoin's plans per substream,
for stores).

Every tuple that could probe an intermediate result by a key belongs to some label outside it. If
the tuples of all of these are told apart by that key, and some of their substreams probe no
intermediate result by it (``Substreams.aside``), then the values that all of them set aside are
looked for by nobody, and the store need not have them (:mod:`anabranch_contract.plans.partial`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from anabranch_contract.plans.partial import values_of
from anabranch_contract.queries.joins import AttrRef
from anabranch_planner.cost.values import joined_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch_contract.plans.ruleset import Substreams
    from anabranch_contract.queries.joins import JoinQuery, KeyClass, Label
    from anabranch_contract.queries.mirs import Mir, MirId
    from anabranch_planner.cost.users import Users
    from anabranch_planner.cost.values import Values


class SetAside:
    """The values that intermediate results leave out.

    Args:
        substreams: of all starts.
        users: the queries that are planned; None: nothing is known of who probes.
    """

    def __init__(
        self, values: Values, substreams: Sequence[Substreams], users: Users | None
    ) -> None:
        self._values, self._users = values, users
        self._functions = {one.start: one for one in substreams if one.aside}
        self._known: dict[MirId, float] = {}

    @property
    def any(self) -> bool:
        """Whether some values are set aside."""
        return bool(self._functions)

    def may_probe(self, query: JoinQuery, mir: Mir, start: Label, substream: int) -> bool:
        """Whether the planner lets a substream of ``start`` probe the store of ``mir``."""
        function = self._functions.get(start)
        if function is None or substream not in function.aside:
            return True
        key = AttrRef(start, function.attribute)
        return not any(
            key in one.members and any(m.label in mir.members for m in one.members)
            for one in query.classes
        )

    def share(self, mir: Mir) -> float:
        """Of the combinations over ``mir``, an intermediate result, the share that is left out."""
        if not self._functions or mir.is_base or self._users is None:
            return 0.0
        found = self._known.get(mir.id)
        if found is None:
            users = self._users.of(mir)
            options = [self._left_out(mir, one, users) for one in mir.classes]
            found = self._known[mir.id] = max(options, default=0.0)
        return found

    def _left_out(self, mir: Mir, inside: KeyClass, users: Sequence[JoinQuery]) -> float:
        """The share whose values all labels outside ``mir`` set aside by one of its key classes."""
        common: set[int] | None = None
        for query in users:
            (whole,) = (c for c in query.classes if set(inside.members) <= set(c.members))
            for label in set(query.labels) - set(mir.members):
                function = self._functions.get(label)
                if function is None or AttrRef(label, function.attribute) not in whole.members:
                    return 0.0
                own = values_of(function, function.aside)
                if function.type != whole.type or not own.listed:
                    return 0.0
                common = set(own.hashes) if common is None else common & own.hashes
        if not common:
            return 0.0
        columns = joined_columns(mir, inside.members[0])
        left = np.array(sorted(common), np.uint64)
        hashes = np.unique(np.concatenate([left, self._values.frequent(columns)]))
        weights = self._values.weights(columns, hashes)
        total = float(weights.sum())
        return float(weights[:-1][np.isin(hashes, left)].sum()) / total if total > 0 else 0.0
