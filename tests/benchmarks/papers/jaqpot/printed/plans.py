"""Plans printed in the JAQPOT paper, and random plans of any shape."""

from __future__ import annotations

from random import Random

from anabranch_planner.solvers.program import INFINITY, Program
from benchmarks.papers.jaqpot.printed.plan import Join, Leaf, Node, Plan, State, plan_of

SHAPES = ("linear", "bushy", "any")


def figure_10() -> Plan:
    """Return the plan of Figure 10: ``ρ_h`` of a, b, ab and c is 0.5, 5, 5 and 1, by the
    selectivities in Table 4.
    """
    a, b = Leaf("a", 500, State(5000, 0.001)), Leaf("b", 700, State(500, 0.001))
    ab = Join(a, b, State(200, 0.005))
    return plan_of(Join(ab, Leaf("c", 500, State(1000, 0.005))))


def figure_4(rate: float = 30) -> Plan:
    """Return the plan of Figure 4: 11 tuples of a make 4 pairs, 11 of b make 5; each pair has one
    result, 10 of c have one.
    """
    a, b = Leaf("a", rate, State(500, 1 / 1100)), Leaf("b", rate, State(400, 1 / 1100))
    ab = Join(a, b, State(100, 0.001))
    return plan_of(Join(ab, Leaf("c", rate, State(1000, 0.001))))


def random_plan(random: Random, inputs: int, shape: str, zeros: bool = True) -> Plan:
    """Return a random plan of at least two inputs with productivities around 1; some may be 0."""

    def state() -> State:
        window = random.choice((random.uniform(50, 500), 100.0))
        sigma = random.choice((0.0 if zeros else 0.01, 0.01, random.uniform(0.001, 0.03)))
        return State(window, sigma)

    nodes: list[Node] = [
        Leaf(f"s{n}.", random.choice((random.uniform(1, 100), 50.0)), state())
        for n in range(inputs)
    ]
    while len(nodes) > 1:
        first = {"linear": 0, "any": random.randrange(len(nodes) - 1)}.get(shape)
        if first is not None:
            kept = state() if len(nodes) > 2 else None
            nodes[first : first + 2] = [Join(nodes[first], nodes[first + 1], kept)]
            continue
        last = len(nodes) <= 2
        pairs = [
            Join(one, other, None if last else state())
            for one, other in zip(nodes[::2], nodes[1::2], strict=False)
        ]
        nodes = [*pairs, *nodes[2 * len(pairs) :]]
    root = nodes[0]
    assert isinstance(root, Join)
    return plan_of(root)


def flow_program(plan: Plan, mu: float) -> Program:
    """Return the most output over all probes by half-way join, not by path, by a linear program: an
    oracle for GrePP.

    The program minimises ``Σ ρ_h (top - x)`` over the last join, so that no cost is negative.
    """
    program = Program()
    tops: dict[str, float] = {}
    made: dict[str, float] = {}
    for join, halves in plan.joins.items():
        for half in halves:
            tops[half.name] = made[half.name] if half.rate is None else half.rate
        made[join] = sum(tops[half.name] * half.productivity for half in halves)
    last = {half.name for half in list(plan.joins.values())[-1]}
    # A variable is the reduction of a probe's rate from its maximum.
    at = {}
    for name, half in plan.half_ways.items():
        cost = half.productivity if name in last else 0.0
        at[name] = program.variable(cost, integer=False, top=tops[name])
        program.offset -= cost * tops[name]
    program.row(sum(tops.values()) - mu, INFINITY, list(at.values()), [1.0] * len(at))
    for join, halves in plan.joins.items():
        if join in at:
            # A join's output limits the rate of its probes; at the maximum rates both are equal.
            indices = [at[join], *(at[half.name] for half in halves)]
            program.row(0.0, INFINITY, indices, [1.0, *(-half.productivity for half in halves)])
    return program
