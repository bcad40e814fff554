"""Layered layout of a graph: nodes never overlap, and few links cross.

Computed by ``fast_sugiyama`` (Sugiyama, Tagawa, Toda 1981: ranks, dummy vertices, barycentres;
Brandes and Köpf 2001: coordinates).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from fast_sugiyama import from_edges

#: Width of a link in a layer that it passes through; a node has width 1.
BEND = 0.3


class NodePlace(NamedTuple):
    """Position of a node, or of a bend of a link.

    Attributes:
        layer: number of the layer, counted from the links' origins.
        at: position within the layer; two nodes of a layer are at least 1 apart.
    """

    layer: int
    at: float


class GraphLayout(NamedTuple):
    """Positions of nodes, and of the bends of each link, one in each layer that it crosses."""

    nodes: Mapping[str, NodePlace]
    bends: Mapping[tuple[str, str], tuple[NodePlace, ...]]


def layered(links: Collection[tuple[str, str]]) -> GraphLayout:
    """Lay out an acyclic graph; equal links give equal layouts.

    Nodes without incoming links are in the first layer, nodes without outgoing links in the last.
    """
    if not links:
        return GraphLayout({}, {})
    ordered = sorted(links)
    names = sorted({name for link in ordered for name in link})
    number = {name: at for at, name in enumerate(names)}
    edges = [(number[source], number[target]) for source, target in ordered]
    # Artificial nodes before all sources and after all sinks connect the graph's components.
    begin, end = len(names), len(names) + 1
    targets, sources = {t for _, t in edges}, {s for s, _ in edges}
    edges += [(begin, n) for n in range(len(names)) if n not in targets]
    edges += [(n, end) for n in range(len(names)) if n not in sources]
    (places, _, _, drawn), *_ = from_edges(
        edges, vertex_spacing=1, dummy_vertices=True, dummy_size=BEND, ranking_type="down"
    )
    slots = {int(n): (y, x) for n, (x, y) in places}
    after: dict[int, list[int]] = defaultdict(list)
    for source, target in drawn or ():
        after[int(source)].append(int(target))

    def way(first: int) -> tuple[list[int], int]:
        """Follow a link: its bends (dummy vertices) from ``first`` on, and the node at its end."""
        passed = []
        while first > end:
            passed.append(first)
            (first,) = after[first]
        return passed, first

    # The library puts nodes without predecessors as late as possible. They are moved to the first
    # layer, to the first bend of the artificial link from ``begin``.
    slot_of, moved = {n: n for n in range(begin)}, dict[int, list[int]]()
    for passed, node in map(way, after[begin]):
        if passed:
            slot_of[node], moved[node] = passed[0], [*passed[1:], node]
    bends = {}
    for source in range(begin):
        for passed, target in map(way, after[source]):
            if target < begin:
                bends[names[source], names[target]] = [*moved.get(source, ()), *passed]
    # The first visible layer is the one after ``begin``.
    first = slots[begin][0] - 1
    raw = {
        n: NodePlace(round(first - y), x) for n, (y, x) in slots.items() if n not in (begin, end)
    }
    place = _apart(raw, set(slot_of.values()))
    return GraphLayout(
        {name: place[slot_of[number[name]]] for name in names},
        {link: tuple(place[slot] for slot in passed) for link, passed in bends.items()},
    )


def _apart(place: Mapping[int, NodePlace], nodes: Collection[int]) -> dict[int, NodePlace]:
    """Increase distances within each layer, without changing its order, until no two overlap.

    Args:
        nodes: the keys of ``place`` that are nodes; the others are bends.
    """
    found = dict[int, NodePlace]()
    before: tuple[int, float, float] | None = None
    for slot, (layer, at) in sorted(place.items(), key=lambda item: item[1]):
        room = 1.0 if slot in nodes else BEND
        least = at
        if before is not None and before[0] == layer:
            least = max(at, before[1] + (before[2] + room) / 2)
        found[slot] = NodePlace(layer, least)
        before = layer, least, room
    return found
