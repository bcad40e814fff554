"""Scope of a batch: the stored rows that its probes read, and the rows visible to its queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.activations import Activation, Visibility
from anabranch_runtime.epochs.access import latest_tiles, seen_from
from anabranch_runtime.epochs.failed_queries import failed
from anabranch_runtime.epochs.per_ruleset import per_ruleset
from anabranch_runtime.epochs.retention import watermarks
from anabranch_runtime.epochs.table_versions import looked_up
from anabranch_runtime.state.coverage import Access, Tile
from anabranch_runtime.state.derived import Derived
from anabranch_runtime.state.manifest import State

#: Label -> first visible (batch, event time).
Limits: TypeAlias = dict[str, tuple[int, int | None]]


@dataclass(frozen=True, slots=True)
class ProbeScope:
    """Stored rows by probe, and visible rows by query.

    Attributes:
        start: name of the start of the runtime, during which rows of earlier batches are final.
        access: edge -> tiles and gaps of its probe.
        visible: query -> label -> (batch, event time or None), for labels with limited visibility;
            all other rows are visible.
        activated: query -> activation batch, also of ended queries.
        whole: queries with views whose invisible rows can't join any row that still arrives.
        failed: active queries of the ruleset that have failed in an earlier batch.
        latest: stream that keeps the latest per key -> tiles with tuples that may supersede others.
        replaced: table or stream of upserts -> tiles with rows that arriving ones replace.
        looked_up: reloaded table -> batches with rows of its current version: the first one, and
            the one after the last (None: no end yet).
    """

    start: str = ""
    access: dict[str, Access] = field(default_factory=dict)
    visible: dict[str, Limits] = field(default_factory=dict)
    activated: dict[str, int] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    latest: dict[str, tuple[Tile, ...]] = field(default_factory=dict)
    replaced: dict[str, tuple[Tile, ...]] = field(default_factory=dict)
    looked_up: dict[str, tuple[int, int | None]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, state: State, ruleset: Ruleset, access: dict[str, Access], start: str
    ) -> ProbeScope:
        """Return the scope of a batch that runs ``ruleset`` and starts in ``state``."""
        known, marks = state.queries, watermarks(state)
        visible, views = _visible(ruleset).of(known), _completing(ruleset)
        return cls(
            start=start,
            access=access,
            visible=visible,
            activated=_activated.of(known),
            whole=frozenset(
                name
                for name in visible
                if name in views and _is_whole(known[name], views[name], marks)
            ),
            failed=failed(state),
            latest=latest_tiles(state, ruleset),
            replaced=latest_tiles(state, ruleset, arriving=True),
            looked_up=looked_up(state),
        )


_activated = Derived[Activation, int](lambda _, known: known.activated_batch)


def _is_whole(known: Activation, streams: frozenset[str], marks: Mapping[str, int]) -> bool:
    """Whether no row that arrives from now on can join a row that is invisible to the query, since
    all rows that could would be late by the watermarks."""
    since = known.complete_from
    if since is None:
        return known.complete == "always"
    return all(marks.get(stream, since - 1) >= since for stream in streams)


@per_ruleset
def _completing(ruleset: Ruleset) -> dict[str, frozenset[str]]:
    """Return query with a view -> streams whose rows can complete its joined rows."""
    streams = {str(r.id): str(r.stream) for r in ruleset.relations}
    return {
        query.id: frozenset(streams[query.members[n][2]] for n in query.completing)
        for query in ruleset.queries
        if query.view is not None
    }


@per_ruleset
def _visible(ruleset: Ruleset) -> _Limits:
    return _Limits({str(query.id): query.members for query in ruleset.queries})


class _Limits:
    """Limits on the earlier tuples that the queries of a ruleset see, cached between batches.

    Args:
        members: query -> its members.
    """

    def __init__(self, members: Mapping[str, tuple[tuple[str, str, str], ...]]) -> None:
        self._members = members
        self._seen = Derived[Activation, Mapping[str, Visibility]](lambda _, q: q.visible_from)
        #: Visible tuples of queries as of the last batch, and the limits that follow from these.
        self._known: tuple[Mapping[str, Mapping[str, Visibility]], dict[str, Limits]] = {}, {}

    def of(self, queries: Mapping[str, Activation]) -> dict[str, Limits]:
        """Return query -> label -> first visible (batch, event time), where that is limited."""
        last, found = self._known
        seen = self._seen.of(queries)
        if seen is not last:
            limits = {
                query: seen_from(queries[query], members)
                for query, members in self._members.items()
            }
            found = {query: one for query, one in limits.items() if one}
            self._known = seen, found
        return found
