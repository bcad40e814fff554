"""Binary plans of windowed joins, with the half-way joins and the input paths that they consist of.

Every node of a plan but its root has a state that holds its newest tuples (a count-based window),
and its tuples probe the state of the node's sibling. So a half-way join has the name of the node
whose tuples probe: ``ab`` is ``ab ⋉ S_C`` in ``(a ⋈ b) ⋈ c``. Source: JAQPOT, sections 2 and 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from anabranch_contract.errors import PlannerError, StatisticsError


@dataclass(frozen=True, slots=True)
class State:
    """A node's stored tuples, which its sibling's tuples probe.

    Attributes:
        window: ``|S|``, the tuples that it holds.
        selectivity: ``σ``, the share of them that a probing tuple joins, 0 to 1.

    Raises:
        StatisticsError: the window is negative or not finite, or the selectivity is not a share.
    """

    window: float
    selectivity: float

    def __post_init__(self) -> None:
        _finite("window", self.window)
        if not 0 <= self.selectivity <= 1:
            raise StatisticsError(
                "bad-selectivity",
                f"{self.selectivity} is not a share",
                field="selectivity",
                remedy="give a share from 0 to 1",
            )


@dataclass(frozen=True, slots=True)
class Leaf:
    """An input stream.

    Attributes:
        rate: ``λ``, arrivals per second.

    Raises:
        StatisticsError: the rate is negative or not finite.
    """

    name: str
    rate: float
    state: State

    def __post_init__(self) -> None:
        _finite("rate", self.rate)


@dataclass(frozen=True, slots=True)
class Join:
    """A join of two nodes.

    Attributes:
        state: of its output; None for the root of a plan, whose output is the query's.
    """

    left: Node
    right: Node
    state: State | None = None

    @property
    def name(self) -> str:
        """The names of its leaves, from left to right."""
        return "".join(leaf.name for leaf in _nodes(self) if isinstance(leaf, Leaf))


Node: TypeAlias = Leaf | Join


@dataclass(frozen=True, slots=True)
class HalfWay:
    """A half-way join: the tuples of one node probe the state of its sibling.

    Attributes:
        name: of the node whose tuples probe, and of its own state.
        join: the name of the join that both nodes are inputs of.
        productivity: ``ρ_h = σ·|S|`` of the probed state, results per probe (Eq. 3).
        selectivity: ``σ`` of the probed state.
        window: ``|S|`` of the node's own state, in tuples.
        rate: ``λ`` of a leaf, per second; None if the tuples come from a join.
    """

    name: str
    join: str
    productivity: float
    selectivity: float
    window: float
    rate: float | None

    @property
    def susceptible(self) -> bool:
        """Whether the node's own state gets stale when probes are withheld (Lemma 2)."""
        return self.rate is None


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan, taken apart.

    Attributes:
        leaves: from left to right.
        half_ways: by name, a join before the joins that it feeds, left before right.
        joins: the half-way joins of each join, left and right; feeding joins come first.
        hops: by leaf the half-way joins from there to the root (Definition 3).
    """

    leaves: tuple[Leaf, ...]
    half_ways: dict[str, HalfWay]
    joins: dict[str, tuple[HalfWay, HalfWay]]
    hops: dict[str, tuple[HalfWay, ...]]

    @property
    def susceptible(self) -> tuple[HalfWay, ...]:
        """The half-way joins whose own state gets stale: k - 2 of k inputs (Lemma 2)."""
        return tuple(one for one in self.half_ways.values() if one.susceptible)


def plan_of(root: Join) -> Plan:
    """The plan whose last join is ``root``.

    Raises:
        PlannerError: two nodes have one name (``duplicate-name``), the root has a state or
            another join has none (``bad-state``).
    """
    leaves: list[Leaf] = []
    half_ways: dict[str, HalfWay] = {}
    joins: dict[str, tuple[HalfWay, HalfWay]] = {}
    parents: dict[str, str] = {}
    if root.state is not None:
        raise _bad_state(root.name, "is the root's and has a state", "leave it out")
    names: dict[int, str] = {}
    seen: set[str] = set()
    for node in _nodes(root):
        if isinstance(node, Leaf):
            leaves.append(node)
            name = node.name
        else:
            name = names[id(node.left)] + names[id(node.right)]
            left, right = (
                _half_way(one, other, name, names)
                for one, other in ((node.left, node.right), (node.right, node.left))
            )
            joins[name] = left, right
            half_ways |= {left.name: left, right.name: right}
            parents |= {left.name: name, right.name: name}
        names[id(node)] = name
        if name in seen:
            raise PlannerError(
                "duplicate-name",
                f"{name!r} names two nodes",
                field=name,
                remedy="give each input a name of its own, so that no two joins are named alike",
            )
        seen.add(name)
    hops: dict[str, tuple[HalfWay, ...]] = {}
    for leaf in leaves:
        at, path = leaf.name, []
        while at in parents:
            path.append(half_ways[at])
            at = parents[at]
        hops[leaf.name] = tuple(path)
    return Plan(tuple(leaves), half_ways, joins, hops)


def _half_way(node: Node, sibling: Node, join: str, names: dict[int, str]) -> HalfWay:
    """The half-way join of the tuples of ``node``, whose state and whose sibling's have to be."""
    for one in (node, sibling):
        if one.state is None:
            raise _bad_state(names[id(one)], "feeds another join", "say what is kept of it")
    assert node.state is not None
    assert sibling.state is not None
    return HalfWay(
        name=names[id(node)],
        join=join,
        productivity=sibling.state.selectivity * sibling.state.window,
        selectivity=sibling.state.selectivity,
        window=node.state.window,
        rate=node.rate if isinstance(node, Leaf) else None,
    )


def _nodes(root: Node) -> Iterator[Node]:
    """All nodes, inputs before their join, from left to right; plans may be deep."""
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, opened = stack.pop()
        if opened or isinstance(node, Leaf):
            yield node
        else:
            stack += [(node, True), (node.right, False), (node.left, False)]


def _bad_state(name: str, message: str, remedy: str) -> PlannerError:
    return PlannerError("bad-state", f"{name} {message}", field=name, remedy=remedy)


def _finite(field: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise StatisticsError(
            f"bad-{field}",
            f"{value} is not a {field}",
            field=field,
            remedy="give a finite number of 0 or more",
        )
