"""Binary plans of windowed joins (JAQPOT), with their half-way joins and input paths.

Every node of a plan except its root has a state with its newest tuples (a count-based window), and
its tuples probe the state of the node's sibling. A half-way join has the name of the node whose
tuples probe: ``ab`` is ``ab ⋉ S_C`` in ``(a ⋈ b) ⋈ c``. Source: JAQPOT, sections 2 and 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from anabranch_contract.errors import PlannerError, StatisticsError


@dataclass(frozen=True, slots=True)
class State:
    """Stored tuples of a node, which the tuples of its sibling probe.

    Attributes:
        window: ``|S|``, number of tuples in the state.
        selectivity: ``σ``, the share of these tuples that a probing tuple joins, 0 to 1.

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
    """An input stream, as a leaf of a plan.

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
    """A join of two nodes, as a node of a plan.

    Attributes:
        state: state of the join's output; None for the root of a plan, whose output are the
            results.
    """

    left: Node
    right: Node
    state: State | None = None

    @property
    def name(self) -> str:
        """Name of the join: the names of its leaves, from left to right."""
        return "".join(leaf.name for leaf in _nodes(self) if isinstance(leaf, Leaf))


Node: TypeAlias = Leaf | Join


@dataclass(frozen=True, slots=True)
class HalfWay:
    """A half-way join: the tuples of one node probe the state of its sibling.

    Attributes:
        name: name of the node whose tuples probe, and of this node's own state.
        join: name of the join of both nodes.
        productivity: ``ρ_h = σ·|S|`` of the probed state, results per probe (Eq. 3).
        selectivity: ``σ`` of the probed state.
        window: ``|S|`` of the node's own state, in tuples.
        rate: ``λ`` of a leaf, per second; None if the probing tuples come from a join.
    """

    name: str
    join: str
    productivity: float
    selectivity: float
    window: float
    rate: float | None

    @property
    def susceptible(self) -> bool:
        """Whether the node's own state becomes stale if probes are withheld (Lemma 2)."""
        return self.rate is None


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan with its leaves, half-way joins, joins and input paths.

    Attributes:
        leaves: the leaves from left to right.
        half_ways: half-way joins by name; inputs come before the joins that they feed, left before
            right.
        joins: join -> its left and right half-way joins; inputs come before the joins that they
            feed.
        hops: leaf -> the half-way joins from it to the root (Definition 3).
    """

    leaves: tuple[Leaf, ...]
    half_ways: dict[str, HalfWay]
    joins: dict[str, tuple[HalfWay, HalfWay]]
    hops: dict[str, tuple[HalfWay, ...]]

    @property
    def susceptible(self) -> tuple[HalfWay, ...]:
        """The half-way joins whose own state can become stale: k - 2 for k inputs (Lemma 2)."""
        return tuple(one for one in self.half_ways.values() if one.susceptible)


def plan_of(root: Join) -> Plan:
    """Return the plan whose last join is ``root``.

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
    """Return the half-way join of the tuples of ``node``; it and its sibling must have states."""
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
    """Yield all nodes, inputs before their join, from left to right; plans may be deep."""
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
