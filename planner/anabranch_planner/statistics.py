"""Statistics as the cost model sees them: a protocol, where unknown is ``None``, never 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from anabranch_planner.model import Equality, RelationId


class Statistics(Protocol):
    """What is known about the data. Every answer may be None: unknown."""

    def cardinality(self, relation: RelationId) -> float | None:
        """Tuples of ``relation`` per unit of time (after its local filter)."""

    def distinct(self, relation: RelationId, attributes: tuple[str, ...]) -> float | None:
        """Distinct values of the (sorted) attribute combination among ``relation``'s tuples."""

    def selectivity(self, predicate: Equality) -> float | None:
        """Matches of one predicate over the size of the cross product."""


class NoStatistics:
    """Knows nothing."""

    def cardinality(self, relation: RelationId) -> float | None:
        """Unknown."""
        return None

    def distinct(self, relation: RelationId, attributes: tuple[str, ...]) -> float | None:
        """Unknown."""
        return None

    def selectivity(self, predicate: Equality) -> float | None:
        """Unknown."""
        return None
