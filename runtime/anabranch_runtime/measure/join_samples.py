"""Measured join selectivities (samples), from the counters of an epoch's probes, and their decay.

A *step* is a probe of one relation by the join of others, in any plan; the counters of an edge
belong to the step whose output it is (``contract.plans.steps``).

**Exact.** Per edge the runtime counts the (probing tuple, stored row) pairs of its probes and the
hits among them, before time bounds and residuals are checked (``EdgeStatistics``). So ``hits /
pairs`` depends on keys only, and not on the length of history, bounds, residuals, partitioning or
the starting relation; samples of equal steps are added up. The pairs include all stored rows, also
rows that retention keeps beyond a window. If only some substreams (tuples with certain key values)
take a step, its counts are kept separately (``contract.plans.steps.Part``). Tuples that a
look-ahead filter drops would have no match at the later step that the filter checks, so their pairs
are added to that step. At other steps, the tuples that pass represent all tuples. Probes that
replace an incomplete materialized join are not counted.

**Kept.** A plan changed by a measurement may no longer take the measured step, so samples outlive
their epoch. When a step is measured again, its old samples count half, since data change. Otherwise
they decay by a tenth per epoch, so that a step once measured as bad is eventually tried again. An
epoch without probes does not change samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.plans.steps import CountedStep, StepMemo, SubJoinStep, counted_steps
from anabranch_contract.protocol.measurements import EdgeStatistics, JoinSample
from anabranch_runtime.epochs.per_ruleset import alike

#: Factor per epoch for the weight of a step's old sample: if measured again, and if not.
SEEN_AGAIN, UNSEEN = 0.5, 0.9


class Steps:
    """Cache of the join steps of the last ruleset, by the edge to which a step leads."""

    def __init__(self) -> None:
        self._ruleset: Ruleset | None = None
        self._steps: Mapping[str, CountedStep] = {}
        self._memo = StepMemo()

    def of(self, ruleset: Ruleset) -> Mapping[str, CountedStep]:
        """Return the join step that leads to each edge of ``ruleset``."""
        if not alike(ruleset, self._ruleset):
            self._ruleset, self._steps = ruleset, counted_steps(ruleset, self._memo)
        return self._steps


def of_steps(
    steps: Mapping[str, CountedStep], edges: Mapping[str, EdgeStatistics]
) -> dict[SubJoinStep, EdgeStatistics]:
    """Sum the counters of ``edges`` by step, including tuples that look-ahead filters drop.

    If a probe has several look-ahead filters, each is assumed to drop the same share.
    """
    found: dict[SubJoinStep, EdgeStatistics] = {}
    for edge, counts in edges.items():
        if edge not in steps:
            continue
        step, asked = steps[edge]
        asking = None if asked is None else edges.get(asked[0])
        if asked is not None and asking is not None and 0 < asking.dropped < asking.asked:
            passed = 1 - asking.dropped / asking.asked
            counts = replace(counts, pairs=round(counts.pairs * passed ** (-1 / asked[1])))
        found[step] = found.get(step, EdgeStatistics()) + counts
    return found


def step_samples(
    steps: Mapping[str, CountedStep], edges: Mapping[str, EdgeStatistics]
) -> tuple[JoinSample, ...]:
    """Convert the counters ``edges`` of an epoch to samples; ``steps``: steps of its ruleset."""
    return tuple(
        JoinSample.of(step, float(counts.probes), float(counts.pairs), float(counts.hits))
        for step, counts in sorted(of_steps(steps, edges).items(), key=lambda item: item[0])
        if counts.pairs
    )


def add_samples(known: Iterable[JoinSample], fresh: Iterable[JoinSample]) -> tuple[JoinSample, ...]:
    """Merge join samples; samples of equal steps are added up."""
    found = {s.step: s for s in known}
    for sample in fresh:
        before = found.get(sample.step)
        found[sample.step] = sample if before is None else _weighed(before, 1.0, sample)
    return tuple(found[step] for step in sorted(found))


def remember(known: Iterable[JoinSample], fresh: Iterable[JoinSample]) -> tuple[JoinSample, ...]:
    """Combine the ``fresh`` samples of an epoch with the decayed ``known`` ones."""
    new = {s.step: s for s in fresh}
    if not new:
        return tuple(known)
    kept = dict(new)
    for sample in known:
        again = new.get(sample.step)
        weight = UNSEEN if again is None else SEEN_AGAIN
        kept[sample.step] = _weighed(sample, weight, again)
    return tuple(kept[step] for step in sorted(kept) if kept[step].probes >= 1)


def _weighed(sample: JoinSample, weight: float, more: JoinSample | None) -> JoinSample:
    """Multiply the counts of ``sample`` by ``weight``; add ``more``, a sample of the same step."""
    return JoinSample.of(
        sample.step,
        sample.probes * weight + (more.probes if more else 0.0),
        sample.pairs * weight + (more.pairs if more else 0.0),
        sample.hits * weight + (more.hits if more else 0.0),
    )
