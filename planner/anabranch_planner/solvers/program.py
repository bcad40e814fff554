"""A mixed-integer program, stored by rows: the output of formulations and the input of solvers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

INFINITY = float("inf")
#: A row ``a x <= upper`` of a program: the upper bound, the variables and their coefficients.
Row = tuple[float, tuple[int, ...], tuple[float, ...]]


@dataclass(slots=True)
class Program:
    """Minimise ``offset + costs · x`` over rows ``lower <= a · x <= upper``, ``0 <= x <= top``.

    Attributes:
        costs, tops, integers: per variable; ``integers`` marks integral variables.
        lowers, uppers: bounds per row.
        starts, indices, values: the matrix by rows (CSR): row ``i`` has its entries at
            ``starts[i]`` to ``starts[i + 1]``.
        offset: constant part of the objective.
    """

    costs: list[float] = field(default_factory=list)
    tops: list[float] = field(default_factory=list)
    integers: list[bool] = field(default_factory=list)
    lowers: list[float] = field(default_factory=list)
    uppers: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    indices: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    offset: float = 0.0

    def variable(self, cost: float, *, integer: bool, top: float = 1.0) -> int:
        """Add a variable with values from 0 to ``top`` to the program, and return its index."""
        self.costs.append(cost)
        self.tops.append(top)
        self.integers.append(integer)
        return len(self.costs) - 1

    def row(
        self, lower: float, upper: float, indices: Sequence[int], values: Sequence[float]
    ) -> None:
        """Add a row ``lower <= a x <= upper``; ``indices`` must be distinct."""
        self.lowers.append(lower)
        self.uppers.append(upper)
        self.indices.extend(indices)
        self.values.extend(values)
        self.starts.append(len(self.indices))

    @property
    def variables(self) -> int:
        """The number of variables in the program."""
        return len(self.costs)

    @property
    def rows(self) -> int:
        """The number of rows in the program."""
        return len(self.lowers)
