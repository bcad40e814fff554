"""JAQPOT's discrete model: every path gets a whole multiple of its row's resources (JDA-Knapsack).

Maximise ``Σ M_I r_I`` for ``Σ M_I X_I <= μ`` and whole ``0 <= M_I <= most_I``. Source: JAQPOT,
Problem 1 (Eq. 9, 10). Greedy is not optimal here: the most productive row may leave a remainder
that is too small for any other row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Solver
from anabranch_planner.solvers.interface import Request
from anabranch_planner.solvers.program import INFINITY, Program
from anabranch_planner.solvers.registry import proven, solve
from benchmarks.papers.jaqpot.printed.paths import Row


def output_of(rows: Sequence[Row], multiples: Mapping[str, int]) -> int:
    """Return the results per second of the ``multiples`` of rows."""
    return sum(row.output * multiples.get(row.path, 0) for row in rows)


def greedy_multiples(rows: Sequence[Row], mu: int) -> dict[str, int]:
    """Return as many multiples of the most productive row as fit, then of the next one, and so on.

    Ties go to the row further up.
    """
    found = dict.fromkeys((row.path for row in rows), 0)
    left = _whole(mu)
    for row in sorted(rows, key=lambda row: -row.productivity):
        found[row.path] = min(row.most, left // row.resources)
        left -= row.resources * found[row.path]
    return found


def exact_multiples(rows: Sequence[Row], mu: int) -> dict[str, int]:
    """Return the best multiples by dynamic programming, in O(k μ) time and space.

    ``best[w]`` is the greatest output of the rows so far with ``w`` probes. With one more row,
    ``best'[w] = max over m of best[w - m X] + m r``. For all ``w`` with the same remainder modulo
    ``X``, this is the maximum over a sliding window of ``most + 1`` values, after ``r`` per
    position is subtracted.
    """
    best = [0] * (_whole(mu) + 1)
    choices = []
    for row in rows:
        best, choice = _with_row(best, row)
        choices.append(choice)
    found = {}
    left = mu
    for row, choice in zip(reversed(rows), reversed(choices), strict=True):
        found[row.path] = choice[left]
        left -= row.resources * choice[left]
    return {row.path: found[row.path] for row in rows}


def _with_row(best: Sequence[int], row: Row) -> tuple[list[int], list[int]]:
    """Return the best outputs with ``row`` added, and its multiples (the least of equally good)."""
    found, choice = list(best), [0] * len(best)
    for remainder in range(min(row.resources, len(best))):
        window: deque[tuple[int, int]] = deque()
        for place, weight in enumerate(range(remainder, len(best), row.resources)):
            value = best[weight] - place * row.output
            # Of equal values the later position is taken, which means fewer multiples.
            while window and window[-1][1] <= value:
                window.pop()
            window.append((place, value))
            if window[0][0] < place - row.most:
                window.popleft()
            found[weight] = window[0][1] + place * row.output
            choice[weight] = place - window[0][0]
    return found, choice


def solved_multiples(
    rows: Sequence[Row], mu: int, solver: Solver = Solver.CP_SAT
) -> dict[str, int]:
    """Return the best multiples by a solver of integer programs.

    Raises:
        PlannerError: the solver does not prove an optimum (``no-solution``).
    """
    answer = solve(solver, Request(_program(rows, _whole(mu)), gap=0.0))
    values = proven(solver, answer, "use exact_multiples, which needs no solver")
    tops = (_top(row, mu) for row in rows)
    return {row.path: top - round(left) for row, top, left in zip(rows, tops, values, strict=True)}


def _program(rows: Sequence[Row], mu: int) -> Program:
    """Return a program that minimises the output of unchosen multiples: costs can't be negative."""
    tops = [_top(row, mu) for row in rows]
    everything = sum(row.resources * top for row, top in zip(rows, tops, strict=True))
    program = Program(
        offset=-float(sum(row.output * top for row, top in zip(rows, tops, strict=True)))
    )
    each = [
        program.variable(float(row.output), integer=True, top=float(top))
        for row, top in zip(rows, tops, strict=True)
    ]
    program.row(everything - mu, INFINITY, each, [float(row.resources) for row in rows])
    return program


def _top(row: Row, mu: int) -> int:
    return min(row.most, mu // row.resources)


def _whole(mu: int) -> int:
    if not mu >= 0 or int(mu) != mu:
        raise PlannerError(
            "bad-resources",
            f"{mu} probes per second",
            field="mu",
            remedy="give a whole number of 0 or more",
        )
    return mu
