"""The queries that contain a sub-join, and so may share what is made of it."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from anabranch_contract.queries.mirs import restrict_classes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch_contract.queries.joins import JoinQuery, Label
    from anabranch_contract.queries.mirs import Mir


class Users:
    """Sub-join -> the queries that contain it, sorted by id."""

    def __init__(self, queries: Sequence[JoinQuery]) -> None:
        self._given = queries

    @cached_property
    def queries(self) -> list[JoinQuery]:
        """All queries, sorted by id."""
        return sorted(self._given, key=lambda q: q.id)

    @cached_property
    def _with(self) -> dict[Label, set[int]]:
        """Label -> the numbers of its queries; nobody asks where nothing is bounded or travels."""
        found: dict[Label, set[int]] = defaultdict(set)
        for number, query in enumerate(self.queries):
            for label in query.labels:
                found[label].add(number)
        return found

    def of(self, mir: Mir) -> list[JoinQuery]:
        """The queries with all members of ``mir``, under the same key classes."""
        members = frozenset(mir.members)
        found = set.intersection(*(self._with.get(label, set()) for label in mir.members))
        return [
            self.queries[number]
            for number in sorted(found)
            if restrict_classes(self.queries[number].classes, members) == mir.classes
        ]
