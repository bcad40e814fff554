"""FROM and WHERE of one SELECT as a tree of binary joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from anabranch_planner.logical.joins import join_tree, joined, within
from anabranch_planner.logical.nodes import Conjunct, Node, Scan
from benchmarks.papers.tsc.nodes import Named, filtered, queries_of


@dataclass(slots=True)
class Block:
    """FROM and WHERE of one SELECT, while its joins are put together.

    Attributes:
        items: inputs of the joins, in the order of FROM.
        on: conditions of inner joins, and ``where``: of WHERE, that have no place yet.
        after: joins over the join of all items: kind, right side, conditions.
    """

    items: list[Node] = field(default_factory=list)
    on: list[Conjunct] = field(default_factory=list)
    where: list[Conjunct] = field(default_factory=list)
    after: list[tuple[str, Node, list[Conjunct]]] = field(default_factory=list)

    @property
    def tables(self) -> frozenset[str]:
        """The tables of all items."""
        return frozenset().union(*(item.aliases for item in self.items))

    def before_outer(self, *, preserved: bool) -> None:
        """Join all items to one, the left side of an outer join.

        Args:
            preserved: all its rows stay, so that WHERE may come first.
        """
        tables = self.tables if preserved else frozenset[str]()
        early, self.where = within(self.where, tables)
        self._fold([*self.on, *early])
        self.on = []

    def all_joined(self) -> Node:
        """The join of all items under all conditions."""
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
        # A join has two inputs: queries inside conditions are read by a filter over all joins.
        nested = [c for c in left if queries_of([c])]
        tree = join_tree(self.items, [c for c in left if c not in nested])
        self.items = [filtered(tree, nested)]


def outer_joined(left: Node, right: Node, kind: str, conditions: Sequence[Conjunct]) -> Node:
    """An outer, semi or anti join; queries inside its conditions are further inputs."""
    join = joined(left, right, kind, conditions)
    return replace(join, inputs=(*join.inputs, *queries_of(conditions)))
