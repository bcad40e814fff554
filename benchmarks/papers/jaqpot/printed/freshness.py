"""Freshness predicates of JAQPOT, and the refresh rates of states that keep them.

A predicate ``F_I`` says that no result may have a tuple of stream ``I`` that arrived more than
``F_I`` seconds ago (Definition 2). A tuple stays in a state of ``|S|`` tuples for ``|S| / λ``
seconds, where ``λ`` is the number of tuples that the state takes per second; then the matches that
contain it stay in the states further down the plan. So the predicate holds if ``F_I >= Σ_j |S_j| /
λ_j`` over the states ``j`` along the path (Lemma 1). A leaf's state takes every arrival; an
intermediate state takes the matches that its half-way join's allowance permits.

The paper does not say how a path's seconds are divided among its intermediate states. Here each
state gets at least the time ``t_j`` that tuples stay in it at saturation, when all states are
refreshed as fast as possible. The slack of the predicates then raises all ``t_j`` at the same
speed, until some predicate over the state has no slack left (max-min fairness). Then ``R_j = |S_j|
/ t_j``. A predicate is infeasible exactly if it is violated at saturation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from anabranch_contract.errors import PlannerError
from benchmarks.papers.jaqpot.printed.paths import InputPath, by_half_way
from benchmarks.papers.jaqpot.printed.plan import HalfWay

#: Share by which a predicate may be exceeded, for rounding errors.
TOLERANCE = 1e-9


class Cause(StrEnum):
    """Reason why a predicate can't be kept.

    * ``ARRIVALS``: tuples in the window of the stream itself are older, whatever the allowances;
    * ``MATCHES``: at saturation too few matches are made to refresh the states on the path;
    * ``RESOURCES``: keeping it takes more probes per second than there are.
    """

    ARRIVALS = "arrivals"
    MATCHES = "matches"
    RESOURCES = "resources"


@dataclass(frozen=True, slots=True)
class Infeasible:
    """A predicate that can't be kept.

    Attributes:
        state: the state on the stream's path that is the cause: the stream's own state for
            ``ARRIVALS``, the one with the oldest tuples for ``MATCHES``, the one with the highest
            refresh rate for ``RESOURCES``.
        given: seconds of the predicate; for ``RESOURCES``, the available probes per second.
        needed: the least value of ``given`` that would suffice; ``inf``: none would.
    """

    stream: str
    state: str
    cause: Cause
    given: float
    needed: float

    def __str__(self) -> str:
        if self.cause is Cause.RESOURCES:
            return (
                f"{self.stream}: to refresh the state of {self.state} and others takes "
                f"{self.needed:g} probes per second; there are {self.given:g}"
            )
        what = "arrivals" if self.cause is Cause.ARRIVALS else "matches"
        return (
            f"{self.stream}: the state of {self.state} has too few {what} for {self.given:g} s of "
            f"freshness; it takes {self.needed:g} s, or a smaller window"
        )


@dataclass(frozen=True, slots=True)
class Refresh:
    """Refresh rates that keep the predicates.

    Attributes:
        rates: ``R_S``, tuples per second that an intermediate state has to take (Definition 5);
            other states may be refreshed at any rate.
        infeasible: predicates that no resources can keep; ``rates`` ignores them.
    """

    rates: Mapping[str, float]
    infeasible: tuple[Infeasible, ...]


def oldest(paths: Sequence[InputPath], probes: Mapping[str, float]) -> dict[str, float]:
    """Return, by stream, the age in seconds of the oldest tuples in results (Lemma 1).

    Args:
        probes: probes per second of each half-way join.
    """
    return {
        path.name: math.fsum(
            _stay(hop, path.leaf.rate if hop.rate is not None else probes.get(hop.name, 0.0))
            for hop in path.hops
        )
        for path in paths
    }


def refresh_rates(paths: Sequence[InputPath], predicates: Mapping[str, float]) -> Refresh:
    """Return the refresh rates that keep all feasible ``predicates``.

    Args:
        predicates: stream -> seconds; tuples of other streams may have any age.

    Raises:
        PlannerError: a predicate is negative or not finite, or not of an input (``bad-freshness``).
    """
    _check(paths, predicates)
    most = by_half_way(paths, {path.name: path.most for path in paths})
    stays = {
        hop.name: _stay(hop, most[hop.name])
        for path in paths
        for hop in path.hops
        if hop.susceptible
    }
    slack: dict[str, float] = {}
    infeasible = []
    for path in paths:
        if path.name not in predicates:
            continue
        given = predicates[path.name]
        own = _stay(path.hops[0], path.leaf.rate)
        states = [hop.name for hop in path.hops if hop.susceptible]
        needed = math.fsum([own, *(stays[name] for name in states)])
        if own > given * (1 + TOLERANCE):
            infeasible.append(Infeasible(path.name, path.name, Cause.ARRIVALS, given, needed))
        elif needed > given * (1 + TOLERANCE):
            worst = max(states, key=lambda name: stays[name])
            infeasible.append(Infeasible(path.name, worst, Cause.MATCHES, given, needed))
        elif states:
            slack[path.name] = max(given - needed, 0.0)
    windows = {hop.name: hop.window for path in paths for hop in path.hops}
    over = {
        path.name: [hop.name for hop in path.hops if hop.susceptible and hop.window > 0]
        for path in paths
        if path.name in slack
    }
    rates = {
        name: windows[name] / (stays[name] + extra)
        for name, extra in _raised(slack, over).items()
        if windows[name] > 0
    }
    return Refresh(rates, tuple(infeasible))


def _raised(slack: Mapping[str, float], over: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Return the raise of each state, all at the same speed, so that no path exceeds its slack.

    Args:
        slack: path -> seconds. over: path -> the states on it.
    """
    left = dict(slack)
    moving = {state for states in over.values() for state in states}
    raised = dict.fromkeys(sorted(moving), 0.0)
    while moving:
        counts = {path: sum(state in moving for state in states) for path, states in over.items()}
        step, tight = min((left[path] / n, path) for path, n in counts.items() if n)
        for state in moving:
            raised[state] += step
        for path, n in counts.items():
            left[path] = max(left[path] - step * n, 0.0)
        moving -= set(over[tight])
    return raised


def _stay(hop: HalfWay, rate: float) -> float:
    """Return the seconds that a tuple stays in ``hop``'s own state, which takes
    ``rate`` tuples/s.
    """
    if hop.window == 0:
        return 0.0
    return hop.window / rate if rate > 0 else math.inf


def _check(paths: Sequence[InputPath], predicates: Mapping[str, float]) -> None:
    names = {path.name for path in paths}
    for stream, seconds in predicates.items():
        if stream not in names or not 0 <= seconds < math.inf:
            raise PlannerError(
                "bad-freshness",
                f"{seconds} s for {stream}",
                field=stream,
                remedy="give 0 or more seconds for an input of the plan, or leave it out",
            )
