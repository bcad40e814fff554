"""A tree of binary joins over a state backend, for comparison with a multi-way join.

The inputs are the tree's leaves. Each inner node except the root stores its results in a separate
table, which later tuples probe: an intermediate result is not computed again, but must be written
and takes space. Tuples and intermediate results move up the tree one after the other: a tuple is
inserted and probes its sibling's table; its matches get new sequence numbers, are inserted one node
higher, and continue from there. So each result is found once, by the side that arrived last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.joins import Label
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.storage.partial import Partial
from anabranch_runtime.storage.segment import SIGMA, TAU
from benchmarks.umjoin.backends.interface import Backend, TableSpec
from benchmarks.umjoin.operators.chains import (
    Produced,
    Sequence36,
    Step,
    arrived,
    follow,
    results_of,
    starting,
    step_to,
    table_of,
)
from benchmarks.umjoin.operators.joins import Join

#: Name of a leaf's input, or a pair of trees.
Tree: TypeAlias = "str | tuple[Tree, Tree]"


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of the tree except the root: its inputs, the step by which its rows probe, and the
    table of their results (None: these are results of the join).
    """

    members: tuple[str, ...]
    step: Step
    parent: str | None


@dataclass(frozen=True)
class BinaryTree:
    """The operator; its state is in a backend opened with :attr:`tables`.

    Attributes:
        join: the join that it computes.
        tree: the tree of binary joins.
    """

    join: Join
    tree: Tree
    _nodes: dict[str, _Node] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Raises:
        PipelineError: ``bad-tree``.
        """
        if sorted(members_of(self.tree)) != sorted(self.join.by_name):
            raise _bad("a tree has each input once as a leaf")
        nodes: dict[str, _Node] = {}
        self._grow(self.tree, None, nodes)
        object.__setattr__(self, "_nodes", nodes)

    def _grow(self, tree: Tree, above: str | None, nodes: dict[str, _Node]) -> None:
        if isinstance(tree, str):
            return
        for mine, other in (tree, tree[::-1]):
            members, others = members_of(mine), members_of(other)
            step = step_to(self.join, members, name_of(other), others)
            if not step.known:
                raise _bad(f"nothing joins {name_of(mine)} with {name_of(other)}")
            nodes[name_of(mine)] = _Node(members, step, above)
            self._grow(mine, name_of(mine), nodes)

    @property
    def tables(self) -> dict[str, TableSpec]:
        """Tables for the backend: inputs and intermediate results."""
        found = {}
        for name, node in self._nodes.items():
            index = next(n.step.index for n in self._nodes.values() if n.step.table == name)
            if len(node.members) == 1:
                found[name] = table_of(self.join, name, [index])
            else:
                found[name] = TableSpec(self._columns(node.members), (index,), timed=self._timed)
        return found

    @property
    def intermediate(self) -> tuple[str, ...]:
        """Names of the tables of intermediate results."""
        return tuple(name for name, node in self._nodes.items() if len(node.members) > 1)

    @property
    def _timed(self) -> bool:
        return all(i.event_time is not None for i in self.join.inputs)

    def process(
        self,
        backend: Backend,
        batch: int,
        arrivals: Mapping[str, pa.RecordBatch],
        emit: Callable[[pa.RecordBatch], None] | None = None,
        watermarks: Mapping[str, int] | None = None,
    ) -> Produced:
        """Process one batch and commit it; arguments as for ``MultiJoin.process``."""
        sequence, produced = Sequence36(batch), Produced()
        for name, tuples in arrivals.items():
            rows = arrived(self.join, name, tuples, sequence)
            backend.tables[name].insert(rows)
            for found in self._up(backend, name, rows, sequence, produced):
                produced.found(name, found.length)
                if emit is not None:
                    emit(results_of(self.join, found, list(self.join.by_name)))
        for name, node in self._nodes.items():
            if watermarks is not None and backend.tables[name].spec.timed:
                limits = [self.join.needed_from(m, watermarks) for m in node.members]
                known = [limit for limit in limits if limit is not None]
                # The event time of an intermediate row is that of its latest member.
                if len(known) == len(limits):
                    backend.tables[name].expire(min(known))
        backend.commit(batch)
        return produced

    def _up(
        self,
        backend: Backend,
        name: str,
        rows: pa.RecordBatch,
        sequence: Sequence36,
        produced: Produced,
    ) -> Iterator[Partial]:
        """Yield the join's results from rows that were just inserted into the table ``name``."""
        node = self._nodes[name]
        for chunk in starting(name, node.members, rows):
            before = chunk.sets[0].int64(SIGMA)
            for found in follow(self.join, backend, [node.step], chunk, before, produced):
                if node.parent is None:
                    yield found
                else:
                    members = self._nodes[node.parent].members
                    made = self._rows(found, members, sequence)
                    backend.tables[node.parent].insert(made)
                    yield from self._up(backend, node.parent, made, sequence, produced)

    def _columns(self, members: Sequence[str]) -> pa.Schema:
        fields = [
            pa.field(f"{m}.{f.name}", f.type) for m in members for f in self.join.by_name[m].columns
        ]
        timed = [m for m in members if self.join.by_name[m].event_time is not None]
        return pa.schema([*fields, *(pa.field(f"{TAU}:{m}", pa.int64()) for m in timed)])

    def _rows(self, found: Partial, members: Sequence[str], sequence: Sequence36) -> pa.RecordBatch:
        """Return intermediate results as stored rows of their table."""
        rows = results_of(self.join, found, members)
        arrays, names = list(rows.columns), list(rows.schema.names)
        taus = {
            m: found.tau(Label(m)) for m in members if self.join.by_name[m].event_time is not None
        }
        for member, tau in taus.items():
            names.append(f"{TAU}:{member}")
            arrays.append(pa.array(tau))
        names.append(SIGMA)
        arrays.append(pa.array(sequence.take(rows.num_rows)))
        if self._timed:
            names.append(TAU)
            arrays.append(pa.array(np.maximum.reduce(list(taus.values()))))
        return pa.RecordBatch.from_arrays(arrays, names=names)


def members_of(tree: Tree) -> tuple[str, ...]:
    """Return the inputs at the leaves."""
    return (tree,) if isinstance(tree, str) else (*members_of(tree[0]), *members_of(tree[1]))


def name_of(tree: Tree) -> str:
    """Return the name of a subtree, which is also the name of its table.

    >>> name_of((("r", "s"), "t"))
    '((r s) t)'
    """
    return tree if isinstance(tree, str) else f"({name_of(tree[0])} {name_of(tree[1])})"


def tree_of(name: str) -> Tree:
    """Return the tree with this name.

    >>> tree_of("((r s) t)")
    (('r', 's'), 't')

    Raises:
        PipelineError: ``bad-tree``.
    """
    if not name.startswith("("):
        return name
    depth = 0
    for place, letter in enumerate(name):
        depth += (letter == "(") - (letter == ")")
        if letter == " " and depth == 1 and name.endswith(")"):
            return tree_of(name[1:place]), tree_of(name[place + 1 : -1])
    raise _bad(f"{name!r} is not a pair of trees in brackets")


def trees(join: Join) -> Iterator[Tree]:
    """Return all trees without cross products, each once (sides may be exchanged)."""

    def over(names: tuple[str, ...]) -> Iterator[Tree]:
        if len(names) == 1:
            yield names[0]
            return
        first, *others = names
        # The first name is always on the left, so that no tree is returned twice.
        for bits in range(2 ** len(others) - 1):
            left = (first, *(n for i, n in enumerate(others) if bits >> i & 1))
            right = tuple(n for n in names if n not in left)
            if join.key_of(left, right):
                for one in over(left):
                    for other in over(right):
                        yield (one, other)

    yield from over(tuple(join.by_name))


def _bad(message: str) -> PipelineError:
    return PipelineError("bad-tree", message, field="tree", remedy="correct the tree")
