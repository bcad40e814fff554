"""The steps and store copies of a plan, without costs or statistics.

A footprint says what a change of plan has to rewire, can be kept as JSON for as long as the plan
runs, and can be compared with any later plan, whatever has become of the queries since.

A :class:`StepKey` is an edge of the graph of states (``search/problem.py``): the step's start
and the sub-joins before and after it, not the path to it. Where two orders reach one sub-join on
different paths and go on alike (only plans merged from plans made alone do), the footprint holds
one key for the two steps that are executed.

Plans that share nothing keep a step and a store per owner. Their footprints keep owners apart:
``start`` and the copies' store are written ``owner:name`` (:func:`qualified`), so that nothing of
them equals a shared plan's, which is what becomes of stores when a system changes from one to the
other. ``before``, ``after``, ``target`` and ``members`` are never qualified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch_contract.plans.plan import Plan
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from anabranch_contract.queries.mirs import MirId
from anabranch_planner.cost.steps import Trail, Trails, trails

#: A store and the partition attribute of one copy of it.
Copy = tuple[MirId, AttrRef | None]


class StepKey(NamedTuple):
    """One probe, wherever it occurs.

    Attributes:
        start: the label that arrived.
        before, after: the sub-joins before and after the step.
        target, members: the store that is probed, and the labels that it fills.
        substream: which of the tuples that arrive.
    """

    start: Label
    before: MirId
    after: MirId
    target: MirId
    members: tuple[Label, ...]
    substream: int = 0


@dataclass(frozen=True, slots=True)
class Footprint:
    """The steps and the store copies of a plan."""

    steps: frozenset[StepKey]
    copies: frozenset[Copy]


def footprint(plan: Plan, queries: Sequence[JoinQuery]) -> Footprint:
    """The footprint of ``plan``, which is for ``queries``.

    Raises:
        PlanError: an order has a goal that no query has.
    """
    return footprint_of(plan, trails(plan, queries))


def footprint_of(plan: Plan, found: Trails) -> Footprint:
    """The footprint of ``plan``, whose trails are ``found``."""
    return Footprint(
        steps=frozenset(step_key(t) for t in found.steps.values()),
        copies=frozenset((MirId(qualified(c.owner, c.mir)), c.partition) for c in plan.copies),
    )


def step_key(trail: Trail) -> StepKey:
    """The key of a step."""
    return StepKey(
        start=Label(qualified(trail.owner, trail.start)),
        before=trail.before.id,
        after=trail.after.id,
        target=trail.step.target,
        members=trail.step.members,
        substream=trail.substream,
    )


def qualified(owner: str, name: str) -> str:
    """``name`` of ``owner``; :func:`unqualified` is the inverse.

    >>> qualified("", "S"), qualified("q1", "S")
    ('S', 'q1:S')
    """
    return f"{owner}:{name}" if owner else name


def unqualified(text: str) -> tuple[str, str]:
    """Owner and name.

    >>> unqualified("S"), unqualified("q1:S")
    (('', 'S'), ('q1', 'S'))
    """
    owner, _, name = text.rpartition(":")
    return owner, name


def copy_rank(copy: Copy) -> tuple[MirId, tuple[str, ...]]:
    """Sort key of a copy; copies without a partition attribute come first."""
    mir, attribute = copy
    return mir, () if attribute is None else (attribute.label, attribute.attribute)
