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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Plan
from anabranch_contract.queries.joins import AttrRef, JoinQuery, Label
from anabranch_contract.queries.mirs import MirId
from anabranch_planner.cost.steps import Trail, Trails, trails

VERSION = 1

#: A store and the partition attribute of one copy of it.
Copy = tuple[MirId, AttrRef | None]


class FootprintError(PlannerError):
    """A footprint document that is malformed or of an unknown version."""


@dataclass(frozen=True, slots=True, order=True)
class StepKey:
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


def to_json(found: Footprint) -> dict[str, Any]:
    """A JSON document; equal footprints give equal documents."""
    return {
        "version": VERSION,
        "steps": sorted(
            [k.start, k.before, k.after, k.target, list(k.members), k.substream]
            for k in found.steps
        ),
        "copies": [
            [mir, None if attribute is None else [attribute.label, attribute.attribute]]
            for mir, attribute in sorted(found.copies, key=copy_rank)
        ],
    }


def from_json(document: Mapping[str, Any]) -> Footprint:
    """The footprint that :func:`to_json` wrote.

    Raises:
        FootprintError: the document is malformed or of another version.
    """
    version = document.get("version")
    if version != VERSION:
        raise FootprintError(
            "unknown-version",
            f"the footprint has version {version!r}, not {VERSION}",
            field="version",
            remedy="another release of the planner wrote it",
        )
    try:
        return Footprint(
            steps=frozenset(
                StepKey(
                    Label(_text(start)),
                    MirId(_text(before)),
                    MirId(_text(after)),
                    MirId(_text(target)),
                    tuple(Label(_text(m)) for m in members),
                    int(substream),
                )
                for start, before, after, target, members, substream in document["steps"]
            ),
            copies=frozenset(
                (MirId(_text(mir)), None if attribute is None else _attribute(*attribute))
                for mir, attribute in document["copies"]
            ),
        )
    except (KeyError, TypeError, ValueError) as cause:
        raise FootprintError(
            "malformed-footprint",
            f"the footprint can't be read: {cause!r}",
            remedy="something else wrote it",
        ) from None


def _attribute(label: Any, name: Any) -> AttrRef:
    return AttrRef(Label(_text(label)), _text(name))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
