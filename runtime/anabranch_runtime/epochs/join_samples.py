"""Samples of sub-joins from an epoch's edges, and how they are remembered.

The counters of an edge belong to the step that leads to it (``contract.plans.steps``), in whatever
plan and under whatever edge label it was taken.

What is exact. Per edge the runtime counts the (probing tuple, stored row) pairs that its probes
stood for and the hits among them, before time bounds and residuals are checked
(``EdgeStatistics``). So ``hits / pairs`` depends on keys only: not
on how long history is, on bounds, residuals, partitioning, or which start's path it was; samples of
equal steps are added up. What the pairs stand for is what was stored: rows that retention keeps
beyond a window are among them. Steps that only some substreams of a start take are left out: what
holds for these need not hold for all. A probe of an MIR that is answered by its parts is not
counted.

What is remembered. A plan that changes because of what was seen may no longer take the step that
was seen, so samples outlive their epoch. Where a step was seen again, what was known counts half
(data change); where it was not, it fades by a tenth per epoch, so that in the end a step that was
once found bad is worth another look. An epoch in which nothing was probed fades nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch_contract.plans.steps import Step, steps_of_all
from anabranch_contract.protocol.measurements import JoinSample

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from anabranch_contract.plans.ruleset import Ruleset
    from anabranch_contract.protocol.measurements import EdgeStatistics

#: Weight of an old sample where the step was seen again, and where it was not.
SEEN_AGAIN, UNSEEN = 0.5, 0.9


class Steps:
    """The steps of the ruleset that was asked about last, worked out once."""

    def __init__(self) -> None:
        self._ruleset: Ruleset | None = None
        self._steps: Mapping[str, Step] = {}

    def of(self, ruleset: Ruleset) -> Mapping[str, Step]:
        """Edge -> the step that leads to it, where all tuples of a start take it."""
        if ruleset is not self._ruleset:
            self._ruleset, self._steps = ruleset, steps_of_all(ruleset)
        return self._steps


def step_samples(
    steps: Mapping[str, Step], edges: Mapping[str, EdgeStatistics]
) -> tuple[JoinSample, ...]:
    """The samples from ``edges``, the counters of an epoch whose ruleset has ``steps``."""
    totals: dict[Step, tuple[int, int, int]] = {}
    for edge, step in steps.items():
        seen = edges.get(edge)
        if seen is not None and seen.pairs:
            probes, pairs, hits = totals.get(step, (0, 0, 0))
            totals[step] = (probes + seen.probes, pairs + seen.pairs, hits + seen.hits)
    return tuple(JoinSample(*step, *map(float, totals[step])) for step in sorted(totals))


def add_samples(known: Iterable[JoinSample], fresh: Iterable[JoinSample]) -> tuple[JoinSample, ...]:
    """Samples of equal steps as one."""
    found = {_step(s): s for s in known}
    for sample in fresh:
        before = found.get(_step(sample))
        found[_step(sample)] = sample if before is None else _weighed(before, 1.0, sample)
    return tuple(found[step] for step in sorted(found))


def remember(known: Iterable[JoinSample], fresh: Iterable[JoinSample]) -> tuple[JoinSample, ...]:
    """``known`` samples after an epoch in which ``fresh`` ones were taken."""
    new = {_step(s): s for s in fresh}
    if not new:
        return tuple(known)
    kept = dict(new)
    for sample in known:
        again = new.get(_step(sample))
        weight = UNSEEN if again is None else SEEN_AGAIN
        kept[_step(sample)] = _weighed(sample, weight, again)
    return tuple(kept[step] for step in sorted(kept) if kept[step].probes >= 1)


def _weighed(sample: JoinSample, weight: float, more: JoinSample | None) -> JoinSample:
    """``sample`` for ``weight`` of it, and ``more`` of the same step."""
    return JoinSample(
        *_step(sample),
        sample.probes * weight + (more.probes if more else 0.0),
        sample.pairs * weight + (more.pairs if more else 0.0),
        sample.hits * weight + (more.hits if more else 0.0),
    )


def _step(sample: JoinSample) -> Step:
    return sample.joined, sample.head, sample.target
