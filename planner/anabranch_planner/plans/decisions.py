"""Decisions of a plan that are inputs of later plans, stored with the plan's epoch.

Later plans do not depend on the explanation of an epoch (``explain``), which is written for people
and may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch_contract import codec
from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.ruleset import HotValue, Ruleset, Substreams
from anabranch_planner.cost.footprint import Footprint, copy_rank
from anabranch_planner.plans.backfill import BackfillDecision

VERSION = 1


class DecisionsError(PlannerError):
    """A stored document of a plan's decisions is malformed or has an unknown version."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions of one plan that affect later plans.

    Attributes:
        footprint: the plan's steps and store copies; a later plan is charged for changes to them.
        backfills: for each intermediate result, whether it is backfilled, and why.
        substreams: split of relations' tuples, with values that intermediate results exclude.
        hot: store -> key values whose new rows are spread over several hosts.
    """

    footprint: Footprint
    backfills: tuple[BackfillDecision, ...] = ()
    substreams: tuple[Substreams, ...] = ()
    hot: dict[str, tuple[HotValue, ...]] = field(default_factory=dict)


def decisions_of(
    ruleset: Ruleset, prints: Footprint, backfills: tuple[BackfillDecision, ...]
) -> Decisions:
    """The decisions of the plan of ``ruleset``: the ruleset's substreams and hot values, the plan's
    footprint ``prints``, and its backfills."""
    return Decisions(
        prints,
        backfills,
        ruleset.substreams,
        {str(store.id): store.hot for store in ruleset.stores if store.hot},
    )


def footprint_document(prints: Footprint) -> dict[str, Any]:
    """A plan's footprint as JSON, sorted so that equal footprints have equal documents."""
    steps, copies = sorted(prints.steps), sorted(prints.copies, key=copy_rank)
    document: dict[str, Any] = codec.to_json({"steps": steps, "copies": copies})
    return document


def to_document(found: Decisions) -> dict[str, Any]:
    """A plan's decisions as JSON; equal decisions have equal documents."""
    return {
        "version": VERSION,
        "footprint": footprint_document(found.footprint),
        "backfills": codec.to_json(found.backfills),
        "substreams": codec.to_json(found.substreams),
        "hot": codec.to_json(dict(sorted(found.hot.items()))),
    }


def from_document(document: Mapping[str, Any]) -> Decisions:
    """Parse the decisions that :func:`to_document` wrote.

    Raises:
        DecisionsError: the document is malformed or has another version.
    """
    if document.get("version") != VERSION:
        raise DecisionsError(
            "unknown-version",
            f"the decisions have version {document.get('version')!r}, not {VERSION}",
            field="version",
            remedy="another version of the planner wrote them; the next epoch plans without them",
        )
    try:
        return codec.from_json(document, Decisions)
    except codec.Malformed as cause:
        raise DecisionsError(
            "malformed-decisions",
            f"the decisions can't be read: {cause}",
            remedy="another program wrote the decisions; the next epoch plans without them",
        ) from None
