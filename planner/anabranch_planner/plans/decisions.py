"""Decisions of a plan that later plans start from: kept beside an epoch, shown nowhere.

What an epoch shows to people (``explain``) is made for reading and may change; a plan depends on
these values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch_contract import codec
from anabranch_contract.plans.ruleset import HotValue, Ruleset, Substreams
from anabranch_planner.cost import footprint
from anabranch_planner.cost.footprint import Footprint, FootprintError
from anabranch_planner.plans.backfill import BackfillDecision

VERSION = 1


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions of one plan.

    Attributes:
        footprint: steps and store copies, for whose change a later plan is charged.
        backfills: decisions on the past of intermediate results.
        substreams: division of each start's tuples, with values that intermediate results exclude.
        hot: store → values whose new rows are spread over several hosts.
    """

    footprint: Footprint
    backfills: tuple[BackfillDecision, ...] = ()
    substreams: tuple[Substreams, ...] = ()
    hot: dict[str, tuple[HotValue, ...]] = field(default_factory=dict)


def decisions_of(
    ruleset: Ruleset, prints: Footprint, backfills: tuple[BackfillDecision, ...]
) -> Decisions:
    """The decisions behind ``ruleset``; ``prints``: the footprint of its plan."""
    return Decisions(
        prints,
        backfills,
        ruleset.substreams,
        {str(store.id): store.hot for store in ruleset.stores if store.hot},
    )


def to_document(found: Decisions) -> dict[str, Any]:
    """A JSON document; equal decisions give equal documents."""
    return {
        "version": VERSION,
        "footprint": footprint.to_json(found.footprint),
        "backfills": codec.to_json(found.backfills),
        "substreams": codec.to_json(found.substreams),
        "hot": codec.to_json(dict(sorted(found.hot.items()))),
    }


def from_document(document: Mapping[str, Any]) -> Decisions:
    """The decisions that :func:`to_document` wrote.

    Raises:
        FootprintError: the document is malformed or of another version.
    """
    if document.get("version") != VERSION:
        raise FootprintError(
            "unknown-version",
            f"the decisions have version {document.get('version')!r}, not {VERSION}",
            field="version",
            remedy="another version of the planner wrote them; the next epoch plans without them",
        )
    try:
        return Decisions(
            footprint.from_json(document["footprint"]),
            codec.from_json(document["backfills"], tuple[BackfillDecision, ...]),
            codec.from_json(document["substreams"], tuple[Substreams, ...]),
            codec.from_json(document["hot"], dict[str, tuple[HotValue, ...]]),
        )
    except (KeyError, codec.Malformed) as cause:
        raise FootprintError(
            "malformed-decisions",
            f"the decisions can't be read: {cause!r}",
            remedy="something else wrote them; the next epoch plans without them",
        ) from None
