"""Input paths of JAQPOT: probes and results of a tuple on its way from a leaf of the plan to the
root.

Let ``φ_j`` be the number of tuples after hop ``j`` per input tuple (``φ_0 = 1``, Eq. 5). A path of
``n`` hops takes ``1 + φ_1 + .. + φ_(n-1)`` probes per input tuple. Of the path's resources ``X``,
hop ``j`` gets ``X_j = X φ_(j-1) / (1 + φ_1 + .. + φ_(n-1))`` (Eq. 6, 7), so that each hop probes
with all tuples that the hop before it makes. The path productivity is ``ρ_p = φ_n / (1 + φ_1 + .. +
φ_(n-1))`` results per probe (Eq. 8). Source: JAQPOT, section 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from anabranch_contract.errors import PlannerError, StatisticsError
from benchmarks.papers.jaqpot.printed.plan import HalfWay, Leaf, Plan

#: Maximum number of input tuples that a row of a productivity table may stand for.
LARGEST_UNIT = 10_000


@dataclass(frozen=True, slots=True)
class InputPath:
    """The half-way joins from a leaf to the root.

    Attributes:
        phi: ``φ_0 .. φ_n``, tuples after each hop per input tuple (Eq. 5).

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
        """Name of the path: that of its leaf."""
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
        """Maximum useful resources in probes per second: enough to process all arrivals."""
        return self.leaf.rate * self.per_tuple

    def allowances(self, resources: float) -> tuple[float, ...]:
        """Return ``X_1 .. X_n``, the probes per second of each hop (Eq. 7)."""
        return tuple(resources * phi / self.per_tuple for phi in self.phi[:-1])


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the path productivity table (Table 2).

    Attributes:
        path: name of the path's leaf.
        resources: ``X``, number of probes of one multiple of the row.
        output: ``r``, number of results of these probes.
        most: maximum number of multiples per second, by the input rate.
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
    """Return the path of each input, from left to right.

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
    """Return a row per path, for the least number of input tuples with whole numbers of probes at
    every hop.

    Productivities are converted to the simplest fractions within rounding errors: a path with 4
    results per 11 tuples has a row for 11 tuples.

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
    """Return the probes per second of each half-way join, summed over all paths.

    Args:
        resources: path -> ``X``; missing paths have no resources.
    """
    found: dict[str, float] = {}
    for path in paths:
        parts = path.allowances(resources.get(path.name, 0.0))
        for hop, part in zip(path.hops, parts, strict=True):
            found[hop.name] = found.get(hop.name, 0.0) + part
    return found


def throughput(paths: Iterable[InputPath], resources: Mapping[str, float]) -> float:
    """Return the results per second if each path uses its resources, up to its maximum."""
    return math.fsum(path.productivity * resources.get(path.name, 0.0) for path in paths)


def saturation(paths: Sequence[InputPath]) -> tuple[float, float]:
    """Return the probes per second that process all arrivals, and their results per second."""
    everything = {path.name: path.most for path in paths}
    return math.fsum(everything.values()), throughput(paths, everything)
