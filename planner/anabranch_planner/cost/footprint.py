"""The steps and store copies of a plan, without costs or statistics.

A footprint lists the elements that a change of plan may replace. It is kept as JSON while the plan
runs, and can be compared with any later plan even if the queries have changed since.

A :class:`StepKey` is an edge of the graph of states (``search/problem.py``): the starting alias and
the sub-joins before and after the step, without the path to it. Two probe orders may reach the same
sub-join on different paths and continue with the same step; the footprint then has one key for two
executed steps. This happens only in plans merged from plans of single queries.

In plans without sharing, each query owns its steps and stores. Their footprints distinguish owners:
``start`` and a copy's store are written ``owner:name`` (:func:`qualified`). So none of their
elements equals an element of a shared plan: a system that switches between the two kinds of plan
reuses no store. ``before``, ``after``, ``target`` and ``members`` are never qualified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch_contract.plans.plan import Plan
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from anabranch_contract.queries.mirs import MirId
from anabranch_planner.cost.steps import Trail, Trails, trails

#: A store (base relation or intermediate result), and the partition attribute of one copy of it.
Copy = tuple[MirId, AttrRef | None]


class StepKey(NamedTuple):
    """Identity of a probe step, equal in every probe order and plan that contains the step.

    Attributes:
        start: the alias of the arriving tuple.
        before, after: the sub-joins before and after the step.
        target, members: the probed store, and the aliases that its rows add.
        substream: index of the arriving tuple's substream.
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
    """The probe steps and store copies of ``plan``, a plan for ``queries``.

    Raises:
        PlanError: an order's goal is not one of the queries.
    """
    return footprint_of(plan, trails(plan, queries))


def footprint_of(plan: Plan, found: Trails) -> Footprint:
    """The :func:`footprint` of a plan whose distinct probe steps ``found`` are already known."""
    return Footprint(
        steps=frozenset(step_key(t) for t in found.steps.values()),
        copies=frozenset((MirId(qualified(c.owner, c.mir)), c.partition) for c in plan.copies),
    )


def step_key(trail: Trail) -> StepKey:
    """Identity of a plan's executed probe step, equal in all plans that contain the step."""
    return StepKey(
        start=Label(qualified(trail.owner, trail.start)),
        before=trail.before.id,
        after=trail.after.id,
        target=trail.step.target,
        members=trail.step.members,
        substream=trail.substream,
    )


def qualified(owner: str, name: str) -> str:
    """``name`` in a footprint, prefixed by ``owner`` (a query without sharing) if there is one.

    >>> qualified("", "S"), qualified("q1", "S")
    ('S', 'q1:S')
    """
    return f"{owner}:{name}" if owner else name


def unqualified(text: str) -> tuple[str, str]:
    """Owner (or "") and name of a text in a footprint, the inverse of :func:`qualified`.

    >>> unqualified("S"), unqualified("q1:S")
    (('', 'S'), ('q1', 'S'))
    """
    owner, _, name = text.rpartition(":")
    return owner, name


def copy_rank(copy: Copy) -> tuple[MirId, tuple[str, ...]]:
    """Sort key of a store copy; copies without a partition attribute come first."""
    mir, attribute = copy
    return mir, () if attribute is None else (attribute.label, attribute.attribute)
