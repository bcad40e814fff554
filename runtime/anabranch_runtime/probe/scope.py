"""Scope of a batch: the stored rows that its probes read, and the rows visible to its queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.activations import Activation, Visibility
from anabranch_runtime.epochs.access import latest_tiles, seen_from
from anabranch_runtime.epochs.failed_queries import failed
from anabranch_runtime.epochs.lookups import completing
from anabranch_runtime.epochs.per_ruleset import per_ruleset
from anabranch_runtime.epochs.retention import watermarks
from anabranch_runtime.epochs.table_versions import looked_up
from anabranch_runtime.state.coverage import Access, Tile
from anabranch_runtime.state.manifest import State


@dataclass(frozen=True, slots=True)
class ProbeScope:
    """Stored rows by probe, and visible rows by query.

    Attributes:
        access: edge -> tiles and gaps of its probe.
        visible: query -> label -> (batch, event time or None), for labels with limited visibility;
            all other rows are visible.
        activated: query -> activation batch.
        whole: queries with views and limits whose invisible rows join none that arrive any more.
        failed: active queries of the ruleset that have failed in an earlier batch.
        latest: stream that keeps the latest per key -> tiles with tuples that may supersede others.
        replaced: table or stream of upserts -> tiles with rows that arriving ones replace.
        looked_up: reloaded table -> batches with rows of its current version: the first one, and
            the one after the last (None: no end yet).
    """

    access: dict[str, Access] = field(default_factory=dict)
    visible: dict[str, dict[str, tuple[int, int | None]]] = field(default_factory=dict)
    activated: dict[str, int] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    latest: dict[str, tuple[Tile, ...]] = field(default_factory=dict)
    replaced: dict[str, tuple[Tile, ...]] = field(default_factory=dict)
    looked_up: dict[str, tuple[int, int | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, state: State, ruleset: Ruleset, access: dict[str, Access]) -> ProbeScope:
        """The scope of a batch that runs ``ruleset`` and starts in ``state``."""
        known, marks = state.queries, watermarks(state)
        visible = _visible(ruleset, known)
        return cls(
            access=access,
            visible=visible,
            activated={q.id: known[q.id].activated_batch for q in ruleset.queries},
            whole=frozenset(
                name
                for name, streams in _completing(ruleset).items()
                if name in visible and _is_whole(known[name], streams, marks)
            ),
            failed=failed(state),
            latest=latest_tiles(state, ruleset),
            replaced=latest_tiles(state, ruleset, arriving=True),
            looked_up=looked_up(state),
        )


def _visible(
    ruleset: Ruleset, known: Mapping[str, Activation]
) -> dict[str, dict[str, tuple[int, int | None]]]:
    """The limited labels of the queries that have any."""
    limits, found = _limits(ruleset), dict[str, dict[str, tuple[int, int | None]]]()
    for query in ruleset.queries:
        seen = known[query.id].visible_from
        before = limits.get(query.id)
        if before is None or before[0] is not seen:
            before = limits[query.id] = seen, seen_from(known[query.id], query.members)
        if before[1]:
            found[query.id] = before[1]
    return found


def _is_whole(known: Activation, streams: frozenset[str], marks: Mapping[str, int]) -> bool:
    """Whether no row that arrives from now on joins a row that is invisible to the query: no row
    is late by its stream's watermark.
    """
    since = known.complete_from
    if since is None:
        return known.complete == "always"
    return all(marks.get(stream, since - 1) >= since for stream in streams)


@per_ruleset
def _completing(ruleset: Ruleset) -> dict[str, frozenset[str]]:
    """Query with a view -> the streams whose rows complete its joined rows."""
    streams = {str(r.id): str(r.stream) for r in ruleset.relations}
    return {
        query.id: frozenset(streams[query.members[n][2]] for n in completing(query))
        for query in ruleset.queries
        if query.view is not None
    }


@per_ruleset
def _limits(
    ruleset: Ruleset,
) -> dict[str, tuple[Mapping[str, Visibility], dict[str, tuple[int, int | None]]]]:
    """Query -> its record of visible tuples in the last batch, and the limits in it."""
    return {}
