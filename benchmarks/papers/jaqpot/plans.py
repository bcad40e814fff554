"""Random binary plans with the parameters of JAQPOT's Table 3, and their freshness predicates."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from random import Random

from benchmarks.papers.jaqpot.printed.plan import Join, Leaf, Node, Plan, State, plan_of

#: Ranges of arrivals per second, of tuples in a state, and of selectivities (Table 3).
RATES = (300.0, 1200.0)
WINDOWS = (200, 5000)
SELECTIVITIES = (0.01, 0.1)
#: Freshness predicates, as multiples of the time that a stream's window spans (section 5.3).
FACTORS = (1.5, 3.0, 5.0)


class Shape(StrEnum):
    """Shape of a plan: Fig. 5.b, 5.c and 5.d."""

    LINEAR = "linear"
    BUSHY = "bushy"
    FIVE = "five streams"


#: Number of joins of each shape.
JOINS = {Shape.LINEAR: 3, Shape.BUSHY: 3, Shape.FIVE: 4}


def selectivities(random: Random, shape: Shape, scale: float = 1.0) -> tuple[float, ...]:
    """Draw a selectivity for each join, common to its two half-way joins."""
    return tuple(scale * random.uniform(*SELECTIVITIES) for _ in range(JOINS[shape]))


def draw(random: Random, shape: Shape, sigma: Sequence[float], window: int = 0) -> Plan:
    """Draw a plan with random rates and windows.

    Args:
        sigma: selectivity of each join; a join's input joins come before it.
        window: number of tuples in every state; 0: random numbers.
    """

    def state(join: int) -> State:
        return State(window or random.randint(*WINDOWS), sigma[join])

    def leaf(name: str, join: int) -> Leaf:
        return Leaf(name, random.uniform(*RATES), state(join))

    ab = leaf("a", 0), leaf("b", 0)
    if shape is Shape.LINEAR:
        abc = Join(Join(*ab, state(1)), leaf("c", 1), state(2))
        return plan_of(Join(abc, leaf("d", 2)))
    pairs = Join(*ab, state(2)), Join(leaf("c", 1), leaf("d", 1), state(2))
    if shape is Shape.BUSHY:
        return plan_of(Join(*pairs))
    return plan_of(Join(Join(*pairs, state(3)), leaf("e", 3)))


def random_tree(random: Random, inputs: int) -> Plan:
    """Draw a plan of any shape, in which every state has a random selectivity.

    Selectivities are a hundredth of Table 3's: otherwise, after many joins, numbers of tuples would
    exceed the precision of floats.
    """

    def state() -> State:
        return State(random.randint(*WINDOWS), random.uniform(*SELECTIVITIES) / 100)

    nodes: list[Node] = [Leaf(f"s{n}.", random.uniform(*RATES), state()) for n in range(inputs)]
    while len(nodes) > 2:
        first = random.randrange(len(nodes) - 1)
        nodes[first : first + 2] = [Join(nodes[first], nodes[first + 1], state())]
    return plan_of(Join(nodes[0], nodes[1]))


def predicates(plan: Plan, factor: float) -> dict[str, float]:
    """Return predicates by stream, in seconds: ``factor`` times the time that its window spans."""
    return {leaf.name: factor * leaf.state.window / leaf.rate for leaf in plan.leaves}
