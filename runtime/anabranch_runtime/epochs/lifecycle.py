"""Entering an epoch (batches under one ruleset, the execution plan): stores open and close, queries
become active and expire.

A pure function from the committed state and the epoch's ruleset to the state in which the epoch's
first batch starts. No rows are moved: a store that the new ruleset no longer names is closed, and
keeps its rows until no probe needs them. If a change of a stream's ttl has changed a query's time
bounds, the query expires and restarts in the same batch. So does a query over a stream that no
longer keeps the latest tuple per key, by the same key: the stream's stored rows are incomplete and
are dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anabranch_contract.plans.ruleset import QuerySpec, Ruleset
from anabranch_contract.protocol.activations import Activation, Visibility
from anabranch_contract.queries.joins import QueryId, Relation, Stream
from anabranch_contract.queries.outer_joins import part_number
from anabranch_contract.queries.runs import query_of
from anabranch_runtime.sources.loads import streams_read
from anabranch_runtime.state.coverage import covered_since
from anabranch_runtime.state.manifest import State, StoreState, StreamState

#: Number of newest epochs whose first batch the state keeps.
REMEMBERED_EPOCHS = 1024
#: Maximum number of earlier runs (activations) of a query that the state keeps.
REMEMBERED_ACTIVATIONS = 64


def enter_epoch(state: State, ruleset: Ruleset, epoch: int) -> State:
    """Return the state in which the first batch of ``epoch`` starts.

    The epoch runs ``ruleset``, which may have been published for an earlier epoch.
    """
    batch = state.next_batch
    forgotten = _forgotten(state, ruleset)
    state = keep_latest(_streams(state, ruleset, forgotten), ruleset)
    relations = {r.id: r for r in ruleset.relations}
    wanted = {spec.id for spec in ruleset.queries}
    queries = {
        name: replace(q, expired_batch=batch)
        if q.expired_batch is None and name not in wanted
        else q
        for name, q in state.queries.items()
    }
    fresh: list[QuerySpec] = []
    # The joins of an outer join must see the same tuples, so they restart together, as do the
    # branches (joins) of a union.
    anew = {
        query.registered
        for query in ruleset.queries
        if (known := queries.get(query.id)) is not None
        and (
            known.retention != query.retention
            or any(relations[r].stream in forgotten for _, _, r in query.members)
        )
    }
    kept = {q.id for q in ruleset.queries if q.outer is not None and q.outer.kept}
    versions, names = _versions(ruleset), {stream.name for stream in ruleset.streams}
    for query in ruleset.queries:
        known = queries.get(query.id)
        since = None
        if query.registered in kept and not query.past:
            since = {alias: batch for alias, _, _ in query.members}
            if known is not None and known.expired_batch is None:
                since = {alias: seen.batch for alias, seen in known.visible_from.items()}
            since |= dict.fromkeys(versions.get(query.id, ()), 0)
        if known is None or known.expired_batch is not None:
            activation = _activate(state, query, relations, since)
            if not query.past and query_of(query.id) in names:
                activation = replace(activation, before=_before(state, query, relations))
            queries[query.id] = activation
        elif query.registered not in anew:
            continue
        else:
            queries[query.id] = _anew(known, _activate(state, query, relations, since))
        fresh.append(query)
    stores = _stores_of_epoch(state, ruleset)
    stores = {name: _cut(store, fresh, batch) for name, store in stores.items()}
    starts = (*state.epoch_starts, (epoch, batch))[-REMEMBERED_EPOCHS:]
    return replace(
        state,
        epoch=epoch,
        ruleset=ruleset.id,
        epoch_starts=starts,
        stores=stores,
        queries=queries,
        measured=state.measured.in_epoch(
            {str(e) for e, _ in starts}, {n: s.newest for n, s in state.streams.items()}, stores
        ),
    )


def close_store(store: StoreState, batch: int) -> StoreState:
    """Close ``store`` before ``batch``: its open interval of covered batches ends."""
    if store.open_since is None:
        return store
    closed = ((store.open_since, batch - 1),) if store.open_since < batch else ()
    return replace(store, intervals=(*store.intervals, *closed), open_since=None, backfill=None)


def serves(store: StoreState, relation: Relation) -> bool:
    """Whether a base store's rows include all of ``relation``'s (its filter is no stricter)."""
    return (
        store.is_base
        and store.streams[0] == relation.stream
        and set(store.filter) <= {str(f) for f in relation.filter}
    )


def _versions(ruleset: Ruleset) -> dict[QueryId, list[str]]:
    """Return, per join of an outer join, the aliases with tuples visible from before the
    activation: aliases of streams with latest per key, unless left rows have only such aliases. So
    the last member of a left row arrives after the activation."""
    latest = {s.name for s in ruleset.streams if s.latest}
    kept = {r.id for r in ruleset.relations if r.stream in latest}
    left = {q.registered: q.members for q in ruleset.queries if q.left_of and not part_number(q.id)}
    alone = {
        query: {alias for alias, _, _ in members}
        for query, members in left.items()
        if all(relation in kept for _, _, relation in members)
    }
    return {
        q.id: [a for a, _, r in q.members if r in kept and a not in alone.get(q.registered, ())]
        for q in ruleset.queries
        if q.registered in left
    }


def _anew(known: Activation, activation: Activation) -> Activation:
    """Return ``activation`` with the counts and history of the query's last run, ``known``."""
    ended = replace(known, expired_batch=activation.activated_batch, earlier=())
    earlier = (*known.earlier, ended)[-REMEMBERED_ACTIVATIONS:]
    return replace(
        activation,
        before=known.before,
        results=known.results,
        earlier=earlier,
        withheld=known.withheld + known.owed,
        blind=known.blind,
        caught_up=known.caught_up,
        left_out=known.left_out,
        past=known.past,
    )


def _forgotten(state: State, ruleset: Ruleset) -> frozenset[str]:
    """Return streams that kept the latest tuple per key and now have another key or none, so that
    tuples may be missing that are needed now."""
    known = ((spec, state.streams.get(spec.name)) for spec in ruleset.streams)
    return frozenset(
        spec.name
        for spec, stream in known
        if stream is not None
        and stream.spec is not None
        and stream.latest_since is not None
        and set(stream.spec.latest) != set(spec.latest)
    )


def keep_latest(state: State, ruleset: Ruleset) -> State:
    """Set, per stream, the first batch from which it has kept the latest tuple per key (None if
    ``ruleset`` does not keep it)."""
    keep = {r.stream for r in ruleset.latest_rules}

    def since(name: str, stream: StreamState) -> int | None:
        if name not in keep:
            return None
        return state.next_batch if stream.latest_since is None else stream.latest_since

    streams = {n: replace(s, latest_since=since(n, s)) for n, s in state.streams.items()}
    return replace(state, streams=streams)


def _streams(state: State, ruleset: Ruleset, forgotten: frozenset[str]) -> State:
    """Take over the epoch's stream definitions. A stream with another definition restarts without
    progress. Stored rows of restarted streams and of ``forgotten`` streams are dropped. Streams
    that are read but not yet named by a ruleset keep their counts and watermarks."""
    read = streams_read(state.offsets)
    streams = {n: s for n, s in state.streams.items() if s.spec is None and n in read}
    changed: set[str] = set(forgotten)
    for spec in ruleset.streams:
        name, known = spec.name, state.streams.get(spec.name)
        if known is not None and known.spec is None:
            streams[name] = _counted(replace(known, spec=spec), state.next_batch)
        elif known is None or known.spec is None or _definition(known.spec) != _definition(spec):
            changed.add(name)
            streams[name] = _counted(StreamState(spec), state.next_batch)
        else:
            history = [x for x in known.history if x[1] != known.newest]
            history.append((state.next_batch, known.newest))
            since = None if name in forgotten else known.latest_since
            known = replace(known, spec=spec, history=tuple(history), latest_since=since)
            streams[name] = _counted(known, state.next_batch)
    stores = {
        name: store for name, store in state.stores.items() if not changed & set(store.streams)
    }
    return replace(state.with_stores(stores), streams=streams)


def _counted(stream: StreamState, batch: int) -> StreamState:
    """Record the stream's number of tuples before ``batch``, an epoch's first batch."""
    now = (batch, stream.admitted_before(batch))
    return replace(stream, admitted=(*(e for e in stream.admitted if e[0] < batch), now))


def _definition(spec: Stream) -> tuple[object, ...]:
    """Return those parts of a stream's definition whose change restarts the stream: all except the
    handling of idle streams and of late and future tuples, retention, and added columns or types.
    """
    kind = spec.kind, tuple(sorted(spec.latest)) if spec.is_table else ()
    columns = frozenset(spec.first_columns), spec.changes
    return spec.name, columns, spec.event_time, spec.lateness, spec.registration, kind


def _stores_of_epoch(state: State, ruleset: Ruleset) -> dict[str, StoreState]:
    batch, specs = state.next_batch, {str(s.id): s for s in ruleset.stores}
    relations = {r.id: r for r in ruleset.relations}
    stores: dict[str, StoreState] = {}
    for name, store in state.stores.items():
        if name in specs:
            since = batch if store.open_since is None else store.open_since
            stores[name] = replace(store, spec=specs[name], open_since=since)
        else:
            stores[name] = close_store(store, batch)
    for spec in ruleset.stores:
        if spec.id not in stores:
            members = [relations[r] for r in spec.relations]
            stores[spec.id] = StoreState(
                spec,
                tuple(r.stream for r in members),
                tuple(str(f) for f in members[0].filter) if len(members) == 1 else (),
                open_since=batch,
                expired_below=tuple(None for _ in members),
            )
    return stores


def _cut(store: StoreState, fresh: list[QuerySpec], batch: int) -> StoreState:
    """Drop a materialized join's past if a newly active query might need rows expired from it.

    The queries that were active at the expiry did not need these rows, but a new query may look
    further back. The join's inputs still have all rows visible to the new query, so probes of the
    past join the inputs.
    """
    if store.is_base or all(t is None for t in store.expired_below):
        return store
    members = set(store.spec.members)
    if not any(members <= {label for _, label, _ in q.members} for q in fresh):
        return store
    since = None if store.open_since is None else batch
    return replace(
        store,
        intervals=(),
        open_since=since,
        segments=(),
        expired_below=tuple(None for _ in store.expired_below),
        backfill=None,
        dealt=(),
    )


def _activate(
    state: State, query: QuerySpec, relations: dict[Any, Relation], since: Mapping[str, int] | None
) -> Activation:
    """Activate a query: fix, per alias, the first batch from which all tuples are stored.

    Args:
        since: alias -> batch before which no tuple may be visible, for an outer join that keeps its
            left rows, since it has no left rows of earlier tuples.
    """
    batch = state.next_batch
    seen: dict[str, Visibility] = {}
    missed: dict[str, int] = {}
    complete, complete_from = "always", None
    waits_for = query.completing
    for i, (alias, _, relation_id) in enumerate(query.members):
        relation = relations[relation_id]
        useful = [s for s in state.stores.values() if serves(s, relation)]
        low = covered_since(batch, [s.covers(batch - 1) for s in useful]) if batch else 0
        expired = [
            s.expired_below[0]
            for s in useful
            if s.expired_below[0] is not None and any(e >= low for _, e in s.covers(batch - 1))
        ]
        low = low if since is None else max(low, since[alias])
        seen[alias] = Visibility(low, max(expired, default=None))
        greatest = _missed(state, relation.stream, seen[alias])
        # Tuples invisible to the query count as missed if a tuple of another stream may still join.
        others = [j for j in waits_for if j != i]
        if not others or greatest == "nothing":
            continue
        missed[alias] = state.streams[relation.stream].admitted_before(low)
        reach = [query.retention[i][j] for j in others]
        if greatest is None or any(d is None for d in reach):
            complete, complete_from = "never", None
            continue
        if complete != "never":
            until = int(greatest) + max(d for d in reach if d is not None) + 1
            complete = "from"
            complete_from = until if complete_from is None else max(complete_from, until)
    return Activation(
        batch, seen, complete_from, complete, retention=query.retention, missed=missed
    )


def _before(state: State, query: QuerySpec, relations: Mapping[Any, Relation]) -> dict[str, int]:
    """Return stream -> number of its tuples before the next batch, for the streams of ``query``."""
    streams = {relations[relation].stream for _, _, relation in query.members}
    counts = {
        name: known.admitted_before(state.next_batch)
        for name, known in state.streams.items()
        if name in streams
    }
    return {name: count for name, count in counts.items() if count}


def unseen(state: State) -> dict[str, int]:
    """Return stream -> number of its tuples that are invisible to a query starting now."""
    batch, covers = state.next_batch, defaultdict[str, list[tuple[tuple[int, int], ...]]](list)
    for store in state.stores.values():
        if store.is_base:
            covers[store.streams[0]].append(store.covers(batch - 1))
    return {
        name: known.admitted_before(covered_since(batch, covers[name]) if batch else 0)
        for name, known in state.streams.items()
    }


def _missed(state: State, stream: str, visible: Visibility) -> int | str | None:
    """Return the greatest event time of the tuples invisible to a new query; ``"nothing"`` if all
    are visible; None if unknown."""
    known = state.streams.get(stream)
    if known is None or known.input == 0:
        return "nothing"
    began = 0 if known.began is None else known.began
    if visible.batch <= began and visible.event_time is None:
        return "nothing"
    if known.spec is None or known.spec.event_time is None:
        return None
    earlier = known.max_tau_before(visible.batch) if visible.batch else None
    if visible.batch and earlier is None:
        return None
    expired = None if visible.event_time is None else visible.event_time - 1
    bounds = [t for t in (earlier, expired) if t is not None]
    return max(bounds) if bounds else "nothing"
