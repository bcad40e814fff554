"""Tests of graph layouts by layers: nothing overlaps."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from anabranch_service.presenters.layers import BEND, NodePlace, layered


def drawn(rng: Random) -> list[tuple[str, str]]:
    """Return links of a random acyclic graph, which need not be connected."""
    size = rng.randrange(2, 40)
    links = {
        (f"n{min(a, b)}", f"n{max(a, b)}")
        for a, b in (
            (rng.randrange(size), rng.randrange(size)) for _ in range(rng.randrange(1, 80))
        )
        if a != b
    }
    return sorted(links)


@pytest.mark.parametrize("seed", range(60))
def test_nodes_and_links_have_places_of_their_own(seed: int) -> None:
    links = drawn(Random(seed))
    found = layered(links)
    assert found.bends.keys() == set(links)
    bends = {place for passed in found.bends.values() for place in passed}
    by_layer: dict[int, list[tuple[float, float]]] = {}
    for places, room in ((found.nodes.values(), 1.0), (bends, BEND)):
        for place in places:
            by_layer.setdefault(place.layer, []).append((place.at, room))
    for taken in by_layer.values():
        for (here, one), (there, other) in pairwise(sorted(taken)):
            assert there - here >= (one + other) / 2 - 1e-9


@pytest.mark.parametrize("seed", range(60))
def test_every_link_passes_each_layer_between_its_ends(seed: int) -> None:
    links = drawn(Random(seed))
    nodes, bends = layered(links)
    for source, target in links:
        layers = range(nodes[source].layer + 1, nodes[target].layer)
        assert [place.layer for place in bends[source, target]] == list(layers)
    sources, targets = {s for s, _ in links}, {t for _, t in links}
    last = max(place.layer for place in nodes.values())
    assert {nodes[n].layer for n in sources - targets} == {0}
    assert {nodes[n].layer for n in targets - sources} == {last}


def test_equal_links_in_any_order_have_one_layout() -> None:
    links = drawn(Random(7))
    mixed = list(links)
    Random(1).shuffle(mixed)
    assert layered(mixed) == layered(links)


def test_nothing_has_no_layout_and_one_link_two_places() -> None:
    assert layered([]).nodes == {}
    nodes = layered([("a", "b")]).nodes
    assert nodes == {"a": NodePlace(0, nodes["a"].at), "b": NodePlace(1, nodes["b"].at)}
