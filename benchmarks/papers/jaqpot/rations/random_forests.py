"""Random probe forests for benchmarks and tests of rations."""

from __future__ import annotations

from random import Random

from anabranch_planner.allocation.forest import Forest, ForestGoal, ForestStep


def random_forest(
    rng: Random, *, steps: int = 8, goals: int = 6, queries: int = 3, paths: int = 1
) -> Forest:
    """Return a random forest with at most the given numbers of parts; some steps cost nothing, some
    goals have no results.

    Args:
        paths: maximum number of paths of a goal.
    """
    parts: list[ForestStep] = []
    for at in range(rng.randint(0, steps)):
        parent = rng.randrange(at) if at and rng.random() < 0.7 else None
        parts.append(ForestStep(parent, 0.0 if rng.random() < 0.1 else rng.expovariate(0.3)))
    ends = [
        ForestGoal(
            f"q{rng.randrange(queries)}",
            f"r{at}",
            _ends(rng, len(parts), paths),
            0.0 if rng.random() < 0.5 else rng.expovariate(1.0),
            0.0 if rng.random() < 0.1 else rng.expovariate(0.1),
        )
        for at in range(rng.randint(1, goals))
    ]
    return Forest(tuple(parts), tuple(ends))


def _ends(rng: Random, steps: int, paths: int) -> tuple[int, ...]:
    """Draw the last steps of a goal's paths."""
    if not steps or rng.random() >= 0.9:
        return ()
    if paths == 1:
        return (rng.randrange(steps),)
    return tuple(sorted(rng.sample(range(steps), min(rng.randint(1, paths), steps))))
