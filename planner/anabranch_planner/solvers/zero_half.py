"""Zero-half cuts: rows satisfied by all integral points of a program, but not by a fractional one.

Add up rows ``a x <= b`` with integral coefficients, and bounds of variables, so that the sum has
only even coefficients and an odd right-hand side. Halve the sum: its left side is integral at
integral points, so the right side can be rounded down. A point violates the new row by one half,
minus half of the slack that it leaves in the rows of the sum.

The rows to add are found by Gaussian elimination modulo 2, over the rows that are tight at the
point and the variables that are fractional. All other variables are at a bound, without slack: if
their coefficient is odd, the bound is added to the sum. The most fractional variables are
eliminated first. The coefficients of the remaining variables are made even by bounds if that adds
little slack. Rows are added only if they share a variable, so no cut combines independent parts.

Sources: Caprara & Fischetti, "{0, 1/2}-Chvátal-Gomory cuts", Mathematical Programming 74 (1996);
Koster, Zymolka & Kutschka, "Algorithms to separate {0, 1/2}-Chvátal-Gomory cuts", Algorithmica 55
(2009), for the elimination.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from anabranch_planner.solvers.program import Program, Row

#: Greatest distance from a bound at which a row or variable counts as tight.
TIGHT = 1e-6
#: Minimum violation of the cuts that are returned.
BROKEN = 0.05
#: Maximum number of rows in a sum, and of its variables whose coefficients only bounds make even.
LONGEST, LOOSE = 20, 6


class _Sum(NamedTuple):
    """A sum of rows of a program, reduced to parities (odd or even).

    Attributes:
        odd: the fractional variables that have an odd coefficient in the sum, as bits.
        uneven: 1 if the sum's right-hand side is odd after bounds have made other variables even.
        rows: the program's rows in the sum, as bits.
    """

    odd: int
    uneven: int
    rows: int


class _Point:
    """A point of a program in which all variables are between 0 and 1."""

    def __init__(self, program: Program, values: NDArray[np.float64]) -> None:
        self.program = program
        #: For each variable: its value, the nearer bound, and its distance from that bound.
        self.values: list[float] = values.tolist()
        near = np.round(values)
        self.near: list[int] = near.astype(int).tolist()
        slack = np.abs(values - near)
        fractional = np.flatnonzero(slack > TIGHT)
        # A stable sort, so that equal points give equal rows.
        order = fractional[np.argsort(-slack[fractional], kind="stable")]
        self.bits: dict[int, int] = {j: 1 << bit for bit, j in enumerate(order.tolist())}
        self.slack: list[float] = slack[order].tolist()
        self.tight = self._tight(values, slack > TIGHT)

    def _tight(
        self, values: NDArray[np.float64], fractional: NDArray[np.bool_]
    ) -> list[tuple[int, int]]:
        """Tight rows with a fractional variable, each with the sign that makes it ``<=``."""
        program = self.program
        starts, indices = np.array(program.starts[:-1]), np.array(program.indices)
        activity = np.add.reduceat(np.array(program.values) * values[indices], starts)
        touched = np.add.reduceat(fractional[indices], starts, dtype=np.int64) > 0
        above = np.abs(activity - np.array(program.uppers)) < TIGHT
        below = np.abs(activity - np.array(program.lowers)) < TIGHT
        rows = np.flatnonzero(touched & (above | below))
        return list(zip(rows.tolist(), np.where(above[rows], 1, -1).tolist(), strict=True))

    def sums(self) -> list[_Sum]:
        """The tight rows with integral coefficients, each as a sum of a single row."""
        program, bits, near = self.program, self.bits, self.near
        found = []
        for number, (row, sign) in enumerate(self.tight):
            side = program.uppers[row] if sign > 0 else program.lowers[row]
            entries = range(program.starts[row], program.starts[row + 1])
            if side % 1 or any(program.values[k] % 1 for k in entries):
                continue
            odd, uneven = 0, int(side)
            for k in entries:
                if program.values[k] % 2:
                    variable = program.indices[k]
                    odd ^= bits.get(variable, 0)
                    uneven += near[variable]
            found.append(_Sum(odd, uneven & 1, 1 << number))
        return found

    def looseness(self, odd: int) -> float:
        """Total slack of the bounds that would make the coefficients of variables ``odd`` even."""
        total = 0.0
        while odd:
            total += self.slack[(odd & -odd).bit_length() - 1]
            odd &= odd - 1
        return total

    def rounded(self, rows: int) -> Row:
        """The cut: ``rows``, and bounds that make coefficients even, added, halved and rounded."""
        program = self.program
        total: dict[int, int] = {}
        side = 0
        while rows:
            row, sign = self.tight[(rows & -rows).bit_length() - 1]
            rows &= rows - 1
            side += sign * int(program.uppers[row] if sign > 0 else program.lowers[row])
            for k in range(program.starts[row], program.starts[row + 1]):
                variable = program.indices[k]
                total[variable] = total.get(variable, 0) + sign * int(program.values[k])
        for variable, coefficient in total.items():
            if coefficient % 2:
                bound = self.near[variable]
                total[variable] += 1 if bound else -1
                side += bound
        halves = {variable: float(c // 2) for variable, c in total.items() if c}
        return float(side // 2), tuple(halves), tuple(halves.values())

    def broken(self, row: Row) -> float:
        """The amount by which the point violates ``row``."""
        upper, indices, coefficients = row
        values = self.values
        return sum(c * values[i] for i, c in zip(indices, coefficients, strict=True)) - upper


def zero_half(program: Program, values: NDArray[np.float64], most: int) -> list[Row]:
    """At most ``most`` zero-half cuts that ``values`` violates, the most violated first.

    Args:
        program: a program with an optimum at which every variable is 0 or 1.
    """
    point = _Point(program, values)
    depths: dict[Row, float] = {}
    for found in _eliminate(point):
        row = point.rounded(found.rows)
        depth = point.broken(row)
        if row[1] and depth > BROKEN:
            depths[row] = depth / sum(c * c for c in row[2]) ** 0.5
    return sorted(depths, key=lambda row: (-depths[row], len(row[1]), row))[:most]


def _eliminate(point: _Point) -> list[_Sum]:
    """Sums of tight rows with an odd right-hand side and few odd coefficients, by elimination."""
    found = []
    by_first: dict[int, list[_Sum]] = {}

    def keep(one: _Sum) -> None:
        if one.odd:
            by_first.setdefault(one.odd & -one.odd, []).append(one)
        if (
            one.uneven
            and one.odd.bit_count() <= LOOSE
            and point.looseness(one.odd) < 1 - 2 * BROKEN
        ):
            found.append(one)

    for one in point.sums():
        keep(one)
    for bit in point.bits.values():
        # Add the shortest sum with the variable to all other sums with it.
        several = sorted(
            by_first.pop(bit, ()), key=lambda s: (s.odd.bit_count(), s.rows.bit_count(), s.rows)
        )
        for other in several[1:]:
            first = several[0]
            rows = first.rows ^ other.rows
            if rows.bit_count() <= LONGEST:
                keep(_Sum(first.odd ^ other.odd, first.uneven ^ other.uneven, rows))
    return found
