"""A multi-way join operator with a probe order per input, and the cost of an order.

Source: Hu & Qiu, "Runtime-optimized Multi-way Stream Join Operator" (dpPick), section 4.1.

The cost is one of two recursions over the steps ``o_1 .. o_(n-1)`` of an order, both with ``C_n =
0``:

* :attr:`Accounting.PAPER`, Eq. 8 as printed: ``C_i = alpha_q f(kappa_r) + gamma (alpha_m mu +
  C_(i+1))``. The cost of the following steps is multiplied by ``gamma`` only: the paper's engine
  (Alg. 2) passes the *list* of matches to the next step, where it counts as one look-up, whatever
  its length.
* :attr:`Accounting.TUPLE`: ``C_i = alpha_q f(kappa_r) + gamma mu (alpha_m + C_(i+1))``.
  Every match is a probe of the next store, as in this project's runtime.

They differ only in the factor of the following steps (``gamma``, or ``gamma mu``), so they are
equal if no look-up finds more than one record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from anabranch_contract.errors import PlannerError, StatisticsError
from benchmarks.papers.dppick.figures import Figures, Match


class Accounting(StrEnum):
    """Number of times that the steps after a step are paid; see the module's docstring."""

    TUPLE = "tuple"
    PAPER = "paper"


def hash_table(c: float, m: float) -> Callable[[float], float]:
    """Eq. 5: return the cost of a look-up in a hash table with ``m`` slots, ``c + kappa / (2 m)``.

    >>> hash_table(1.0, 8.0)(4.0)
    1.25
    """
    if not m > 0:
        raise StatisticsError("bad-slots", f"m is {m}", field="m", remedy="give a positive number")
    return lambda kappa: c + kappa / (2 * m)


def sorted_array(kappa: float) -> float:
    """Eq. 6: return a look-up's cost in a sorted array, ``log kappa`` (natural; 0 below
    one key).
    """
    return math.log(max(kappa, 1.0))


def constant(kappa: float) -> float:
    """Return 1, the cost of a look-up that does not depend on the number of keys."""
    del kappa
    return 1.0


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a look-up in a backend and of a match.

    Attributes:
        query: ``alpha_q``, price of a look-up, times ``lookup`` (``f``) of the backend's number of
            keys.
        match: ``alpha_m``, price of a matched record.
    """

    query: float = 1.0
    match: float = 1.0
    lookup: Callable[[float], float] = constant

    def __post_init__(self) -> None:
        for field, value in (("alpha_q", self.query), ("alpha_m", self.match)):
            if not 0 <= value < math.inf:
                raise PlannerError(
                    "bad-price", f"{value} is not a price", field=field, remedy="0 or more, finite"
                )


@dataclass(frozen=True, slots=True)
class Operator:
    """A multi-way join of streams 0 to n-1.

    Attributes:
        names: names of the streams, for messages.
        weights: arrival rate of each stream, i.e. how often the order that starts with it is
            executed per unit of time.
        keys: number of keys (``kappa``) in each stream's backend.
        rows: number of stored tuples of each stream; selectivities are relative to it.
        near: per stream, the bit mask of the streams that it may probe.
        figures: ``gamma`` and ``mu`` of each step.

    Raises:
        PlannerError: some stream can't reach all others (``unconnected-join``).
        StatisticsError: a weight, a number of keys or of rows is negative or not finite.
    """

    names: tuple[str, ...]
    weights: tuple[float, ...]
    keys: tuple[float, ...]
    rows: tuple[float, ...]
    near: tuple[int, ...]
    figures: Figures
    prices: Prices = Prices()
    accounting: Accounting = Accounting.TUPLE

    def __post_init__(self) -> None:
        for field in ("weights", "keys", "rows"):
            values: tuple[float, ...] = getattr(self, field)
            for name, value in zip(self.names, values, strict=True):
                if not 0 <= value < math.inf:
                    raise StatisticsError(
                        "bad-figure",
                        f"{value} of {name}",
                        field=field,
                        remedy="give a finite number of 0 or more",
                    )
        for start, name in enumerate(self.names):
            reached = 1 << start
            while new := self.around(reached):
                reached |= new
            if apart := [other for i, other in enumerate(self.names) if not reached >> i & 1]:
                raise PlannerError(
                    "unconnected-join",
                    f"no steps lead from {name} to {', '.join(apart)}",
                    field="edges",
                    remedy="join all streams, or plan the parts as operators of their own",
                )

    def around(self, visited: int) -> int:
        """Return the streams outside the set ``visited`` that join a stream inside it."""
        found = 0
        for i, near in enumerate(self.near):
            if visited >> i & 1:
                found |= near
        return found & ~visited

    def steps(self, visited: int) -> Iterator[tuple[int, int]]:
        """Return the possible next steps as (probing side, target), by target, then by side.

        If matches do not depend on the side, only the first side is returned.
        """
        around = self.around(visited)
        for target in range(len(self.names)):
            if around >> target & 1:
                for side in range(len(self.names)):
                    if visited >> side & 1 and self.near[side] >> target & 1:
                        yield side, target
                        if not self.figures.by_side:
                            break

    def step(self, start: int, visited: int, side: int, target: int) -> tuple[float, float]:
        """Return the step's own cost, and the factor of the cost of all following steps."""
        match, prices = self.figures.one(start, visited, side, target), self.prices
        mean = match.gamma * match.mu
        own = prices.query * prices.lookup(self.keys[target]) + prices.match * mean
        return own, mean if self.accounting is Accounting.TUPLE else match.gamma


def edges_near(streams: int, matches: Mapping[tuple[int, int], Match]) -> tuple[int, ...]:
    """Return the ``near`` of an operator whose steps are the directed edges of ``matches``.

    Raises:
        PlannerError: an edge leads to a missing stream, or from a stream to itself (``bad-edge``).
    """
    near = [0] * streams
    for side, target in matches:
        if side == target or not (0 <= side < streams and 0 <= target < streams):
            raise PlannerError(
                "bad-edge",
                f"({side}, {target}) is not an edge of {streams} streams",
                field="edges",
                remedy="name two different streams, from 0",
            )
        near[side] |= 1 << target
    return tuple(near)


def order_cost(operator: Operator, start: int, targets: Sequence[int]) -> float:
    """Return the cost per tuple of ``start`` if it probes ``targets`` in order.

    Each step probes from its cheapest side. The following steps depend on the visited set and not
    on the side, so the cheapest sides are chosen one by one, from the last step to the first.

    Raises:
        PlannerError: a target joins no visited stream (``no-order``).
    """
    visited = [1 << start]
    for target in targets:
        visited.append(visited[-1] | 1 << target)
    total = 0.0
    for target, before in zip(reversed(targets), reversed(visited[:-1]), strict=True):
        options = [
            own + factor * total
            for side, other in operator.steps(before)
            if other == target
            for own, factor in (operator.step(start, before, side, target),)
        ]
        if not options:
            raise PlannerError(
                "no-order",
                f"{operator.names[target]} joins nothing visited before it, or was visited",
                field=operator.names[start],
                remedy="probe streams that are joined with one visited before",
            )
        total = min(options)
    return total
