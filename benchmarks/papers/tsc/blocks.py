"""The FROM and WHERE of a SELECT, as a tree of binary joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from anabranch_planner.logical.joins import join_tree, joined, within
from anabranch_planner.logical.nodes import Conjunct, Node, Scan
from benchmarks.papers.tsc.nodes import Named, filtered, queries_of


@dataclass(slots=True)
class Block:
    """The FROM and WHERE of one SELECT, while the tree of its joins is built.

    Attributes:
        items: inputs of the joins, in the order of FROM.
        on, where: conditions of inner joins and of WHERE that are in no node yet.
        after: outer, semi and anti joins over the join of all items: kind, right side, conditions.
    """

    items: list[Node] = field(default_factory=list)
    on: list[Conjunct] = field(default_factory=list)
    where: list[Conjunct] = field(default_factory=list)
    after: list[tuple[str, Node, list[Conjunct]]] = field(default_factory=list)

    @property
    def tables(self) -> frozenset[str]:
        """The tables that the items read."""
        return frozenset().union(*(item.aliases for item in self.items))

    def before_outer(self, *, preserved: bool) -> None:
        """Join all items into one, as the left side of an outer join.

        Args:
            preserved: whether the outer join keeps all rows of the left side, so that conditions of
                WHERE can be applied before it.
        """
        tables = self.tables if preserved else frozenset[str]()
        early, self.where = within(self.where, tables)
        self._fold([*self.on, *early])
        self.on = []

    def all_joined(self) -> Node:
        """Return the join of all items under all conditions."""
        self._fold([*self.on, *self.where])
        current = self.items[0]
        for kind, right, conditions in self.after:
            current = outer_joined(current, right, kind, conditions)
        return current

    def _fold(self, left: list[Conjunct]) -> None:
        for at, item in enumerate(self.items):
            own, others = within(left, item.aliases)
            if own and isinstance(item, Scan | Named):
                self.items[at] = filtered(item, own)
                left = others
        # A binary join has no further inputs: conditions with queries inside become a filter over
        # all joins.
        nested = [c for c in left if queries_of([c])]
        tree = join_tree(self.items, [c for c in left if c not in nested])
        self.items = [filtered(tree, nested)]


def outer_joined(left: Node, right: Node, kind: str, conditions: Sequence[Conjunct]) -> Node:
    """Return an outer, semi or anti join; queries inside its conditions are further inputs."""
    join = joined(left, right, kind, conditions)
    return replace(join, inputs=(*join.inputs, *queries_of(conditions)))
