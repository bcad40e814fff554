"""Input paths: cost and results of a tuple on its way from a leaf of the plan to the root.

With ``φ_j`` the tuples after hop ``j`` per input tuple (``φ_0 = 1``, Eq. 5) a path of ``n`` hops
takes ``1 + φ_1 + .. + φ_(n-1)`` probes per input tuple. Of resources ``X`` that it is given, hop
``j`` gets ``X_j = X φ_(j-1) / (1 + φ_1 + .. + φ_(n-1))`` (Eq. 6, 7): what one hop makes, the next
consumes. The path productivity is ``ρ_p = φ_n / (1 + φ_1 + .. + φ_(n-1))`` results per probe
(Eq. 8). Source: JAQPOT, section 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from anabranch_contract.errors import PlannerError, StatisticsError
from benchmarks.papers.jaqpot.printed.plan import HalfWay, Leaf, Plan

#: The most input tuples that a row of a table may stand for.
LARGEST_UNIT = 10_000


@dataclass(frozen=True, slots=True)
class InputPath:
    """The half-way joins from a leaf to the root.

    Attributes:
        phi: ``φ_0 .. φ_n`` (Eq. 5).

    >>> from benchmarks.papers.jaqpot.printed.plan import Join, Leaf, State, plan_of
    >>> a, b = Leaf("a", 50, State(5000, 0.001)), Leaf("b", 70, State(500, 0.001))
    >>> c = Leaf("c", 50, State(1000, 0.005))
    >>> path = input_paths(plan_of(Join(Join(a, b, State(200, 0.005)), c)))[1]
    >>> path.phi, path.allowances(600)
    ((1.0, 5.0, 25.0), (100.0, 500.0))
    >>> path.most
    420.0
    """

    leaf: Leaf
    hops: tuple[HalfWay, ...]
    phi: tuple[float, ...]

    @property
    def name(self) -> str:
        """That of its leaf."""
        return self.leaf.name

    @property
    def per_tuple(self) -> float:
        """Probes per input tuple."""
        return math.fsum(self.phi[:-1])

    @property
    def productivity(self) -> float:
        """``ρ_p``, results per probe (Eq. 8)."""
        return self.phi[-1] / self.per_tuple

    @property
    def most(self) -> float:
        """The resources that it can use, in probes per second: for all its arrivals."""
        return self.leaf.rate * self.per_tuple

    def allowances(self, resources: float) -> tuple[float, ...]:
        """``X_1 .. X_n``, the probes per second of each hop (Eq. 7)."""
        return tuple(resources * phi / self.per_tuple for phi in self.phi[:-1])


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the path productivity table (Table 2).

    Attributes:
        path: the name of its leaf.
        resources: ``X``, the probes of one multiple.
        output: ``r``, the results that they bring.
        most: how many multiples the input rate allows per second.
    """

    path: str
    resources: int
    output: int
    most: int

    def __post_init__(self) -> None:
        if self.resources < 1 or self.output < 0 or self.most < 0:
            raise PlannerError(
                "bad-row",
                f"{self.most} times {self.output} results of {self.resources} probes",
                field=self.path,
                remedy="give at least one probe, and no negative number",
            )

    @property
    def productivity(self) -> float:
        """``ρ_p``, results per probe."""
        return self.output / self.resources


def input_paths(plan: Plan) -> tuple[InputPath, ...]:
    """The path of each input, from left to right.

    Raises:
        StatisticsError: a path has more results per tuple than a number can hold.
    """
    found = []
    for leaf in plan.leaves:
        hops = plan.hops[leaf.name]
        phi = tuple(accumulate((hop.productivity for hop in hops), lambda a, b: a * b, initial=1.0))
        if not math.isfinite(math.fsum(phi)):
            raise StatisticsError(
                "too-many-results",
                f"a tuple of {leaf.name} has more results than a number can hold",
                field=leaf.name,
                remedy="check windows and selectivities",
            )
        found.append(InputPath(leaf, hops, phi))
    return tuple(found)


def productivity_table(paths: Iterable[InputPath]) -> tuple[Row, ...]:
    """A row per path, in the least multiple that is whole at every hop.

    Productivities count as the simplest fractions within rounding of them: 4 results of 11 tuples
    are a row for 11 tuples.

    Raises:
        PlannerError: a path needs more than :data:`LARGEST_UNIT` tuples (``fractional-table``).
    """
    rows = []
    for path in paths:
        exact = [Fraction(phi).limit_denominator(LARGEST_UNIT) for phi in path.phi]
        unit = math.lcm(*(phi.denominator for phi in exact))
        near = all(math.isclose(a, b, rel_tol=1e-12) for a, b in zip(exact, path.phi, strict=True))
        if unit > LARGEST_UNIT or not near:
            raise PlannerError(
                "fractional-table",
                f"no {LARGEST_UNIT} tuples of {path.name} or fewer have whole numbers of matches",
                field=path.name,
                remedy="divide resources continuously, or round productivities",
            )
        resources = int(unit * sum(exact[:-1]))
        rows.append(Row(path.name, resources, int(unit * exact[-1]), int(path.leaf.rate // unit)))
    return tuple(rows)


def by_half_way(paths: Sequence[InputPath], resources: Mapping[str, float]) -> dict[str, float]:
    """Probes per second of each half-way join, of all paths together.

    Args:
        resources: path -> ``X``; a path that is missing has none.
    """
    found: dict[str, float] = {}
    for path in paths:
        parts = path.allowances(resources.get(path.name, 0.0))
        for hop, part in zip(path.hops, parts, strict=True):
            found[hop.name] = found.get(hop.name, 0.0) + part
    return found


def throughput(paths: Iterable[InputPath], resources: Mapping[str, float]) -> float:
    """Results per second where each path has its resources and no more than it can use."""
    return math.fsum(path.productivity * resources.get(path.name, 0.0) for path in paths)


def saturation(paths: Sequence[InputPath]) -> tuple[float, float]:
    """The probes per second that process all arrivals, and the results that they bring."""
    everything = {path.name: path.most for path in paths}
    return math.fsum(everything.values()), throughput(paths, everything)
