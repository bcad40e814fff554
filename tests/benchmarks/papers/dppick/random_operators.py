"""Random join operators for the tests of dppick's order search."""

from __future__ import annotations

from itertools import combinations, pairwise
from random import Random

from benchmarks.papers.dppick.figures import EdgeFigures, Figures, Match, SizeFigures
from benchmarks.papers.dppick.problem import (
    Accounting,
    Operator,
    Prices,
    edges_near,
    hash_table,
    sorted_array,
)

SHAPES = ("chain", "star", "cycle", "clique", "any")
KINDS = ("edges", "sets", "starts")


def pairs(shape: str, streams: int, random: Random) -> set[tuple[int, int]]:
    """Return the joined pairs of streams, both ways; ``any``: a random tree and some more edges."""
    order = random.sample(range(streams), streams)
    chain = list(pairwise(order))
    every = list(combinations(order, 2))
    found = {
        "chain": chain,
        "star": [(order[0], other) for other in order[1:]],
        "cycle": [*chain, (order[-1], order[0])] if streams > 2 else chain,
        "clique": every,
        "any": [(order[random.randrange(i)], order[i]) for i in range(1, streams)]
        + [pair for pair in every if random.random() < 0.2],
    }[shape]
    return {way for a, b in found for way in ((a, b), (b, a))}


def random_operator(
    random: Random, streams: int, shape: str, kind: str, accounting: Accounting
) -> Operator:
    """A random operator whose match figures depend on edges, on sets, or on starts and sets."""
    joined = {
        pair: Match(random.choice((0.0, 1.0, random.random())), random.uniform(0.5, 6))
        for pair in sorted(pairs(shape, streams, random))
    }
    figures: Figures = EdgeFigures(streams, joined)
    if kind != "edges":
        sizes = [[random.expovariate(0.1) for _ in range(1 << streams)] for _ in range(streams)]
        figures = SizeFigures(streams, lambda start, mask: sizes[start][mask], kind == "starts")
    return Operator(
        names=tuple(f"s{i}" for i in range(streams)),
        weights=tuple(random.uniform(0, 9) for _ in range(streams)),
        keys=tuple(random.uniform(0, 500) for _ in range(streams)),
        rows=tuple(random.uniform(0, 500) for _ in range(streams)),
        near=edges_near(streams, joined),
        figures=figures,
        prices=Prices(
            random.uniform(0.1, 3),
            random.uniform(0.1, 3),
            random.choice((sorted_array, hash_table(0.5, 64))),
        ),
        accounting=accounting,
    )
