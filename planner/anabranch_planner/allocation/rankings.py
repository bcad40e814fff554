"""Choice of the columns whose hash decides which tuples load shedding withholds.

A tuple's rank is a number in [0, 1); a tuple is processed if its rank is below the ration
(``docs/semantics.md``, "Rations"). Tuples of a stream are ranked by join keys, event time and the
batch. The ranking is the same for all goals, so a step shared by several goals processes only the
largest of their rations. A self-join is ranked by event time alone, which every intermediate result
keeps; without event time, by a key class with a column in every alias; without such a class, the
query is not rationed.

An outer, semi or anti join is ranked by such a key class, with equal ranks for left rows and pairs.
If a pair is withheld, it is unknown whether its left row has a match. The rank of the left row's
key then shows that pairs may have been withheld (``docs/semantics.md``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from anabranch_contract.plans.rations import Columns, Ranking, RationedGoal
from anabranch_contract.queries.expressions import Column
from anabranch_contract.queries.joins import JoinQuery, Label, QueryId, Stream, StreamName
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.queries.types import key_type


def rationed_goals(
    queries: Iterable[JoinQuery], streams: Mapping[StreamName, Stream]
) -> tuple[RationedGoal, ...]:
    """The goals of ``queries`` whose tuples load shedding may withhold, sorted.

    Args:
        streams: all streams that the queries read.
    """
    known = {query.id: query for query in queries}
    pairs = {q.id: _outer_rankings(q, streams) for q in known.values() if q.outer is not None}
    inner = [q for q in known.values() if registered(q.id) not in pairs]
    by_batch = _by_batch(inner, streams)
    found: list[RationedGoal] = []
    for query in known.values():
        outer = pairs.get(QueryId(registered(query.id)))
        if outer is None:
            rankings = _rankings(query, streams, by_batch)
        else:
            rankings = {m.label: outer[m.alias] for m in query.members if m.alias in outer}
        found += [RationedGoal(query.id, label, r) for label, r in rankings.items()]
    return tuple(sorted(found))


def goal_name(query: str, start: str) -> tuple[str, str]:
    """The registered query of a goal, and the goal's name within that query.

    >>> goal_name("q", "orders"), goal_name("q+left", "orders")
    (('q', 'orders'), ('q', 'orders+left'))
    """
    name = registered(query)
    return name, start + query[len(name) :]


def tied_queries(goals: Iterable[RationedGoal]) -> frozenset[str]:
    """Queries whose goals must have equal rations, because a join key alone ranks their tuples."""
    return frozenset(registered(goal.query) for goal in goals if not goal.ranking.by_batch)


def universe(
    query: JoinQuery, streams: Mapping[StreamName, Stream]
) -> tuple[Mapping[Label, Ranking], ...]:
    """Rankings, for load shedding, by a join key that every alias of ``query`` has as a plain
    column: one mapping from alias to ranking per such key; empty if there is none."""
    stream_of = {r.id: streams[r.stream] for r in query.relations}
    found = []
    for one in query.classes:
        columns: dict[Label, str] = {}
        for member in query.members:
            plain = {name for name, _ in stream_of[member.relation].columns}
            own = (str(m.attribute) for m in one.restrict(frozenset({member.label})))
            column = next((name for name in own if name in plain), None)
            if column is not None:
                columns[member.label] = column
        if len(columns) == len(query.members):
            kind = one.type
            rankings = {a: Ranking(((c, kind),), by_batch=False) for a, c in columns.items()}
            found.append(rankings)
    return tuple(found)


def _outer_rankings(
    query: JoinQuery, streams: Mapping[StreamName, Stream]
) -> Mapping[str, Ranking]:
    """Alias -> ranking of its tuples in an outer join's matched pairs; empty if load shedding must
    not withhold any.

    Every key class over all aliases belongs to the join's condition. Left rows contain a column
    of it, which ranks them when they are emitted without a partner.
    """
    outer, labels = query.outer, {m.alias: m.label for m in query.members}
    assert outer is not None  # checked by the caller
    if outer.kept or _is_rolling(query):
        return {}  # a withheld pair would look like an absent partner
    names = {name for name, _ in outer.left}
    left = {o.expr for o in query.projection if o.name in names}
    for one in universe(query, streams):
        columns = {(label, r.columns[0][0]) for label, r in one.items()}
        if any(isinstance(e, Column) and (e.alias, e.name) in columns for e in left):
            return {alias: one[label] for alias, label in labels.items()}
    return {}


def _is_rolling(query: JoinQuery) -> bool:
    """Whether rows of the query's view also expire as time passes; such a query has no rations."""
    return query.view is not None and bool(query.view.limits)


def _rankings(
    query: JoinQuery, streams: Mapping[StreamName, Stream], by_batch: Mapping[StreamName, Ranking]
) -> Mapping[Label, Ranking]:
    """Alias -> ranking by which load shedding withholds its tuples; empty: not rationed."""
    stream_of = {r.id: streams[r.stream] for r in query.relations}
    if query.united or _is_rolling(query) or query.deleting(streams):
        return {}  # an insert might be withheld, but not its delete (in any branch of a union)
    read = Counter(stream_of[m.relation].name for m in query.members)
    found: dict[Label, Ranking] = {}
    for member in query.members:
        stream = stream_of[member.relation]
        if read[stream.name] == 1:
            found[member.label] = by_batch[stream.name]
        elif stream.event_time is not None:
            found[member.label] = Ranking(_event_time(stream), by_batch=True)
        else:
            return next(iter(universe(query, streams)), {})
    return found


def _by_batch(
    queries: Sequence[JoinQuery], streams: Mapping[StreamName, Stream]
) -> Mapping[StreamName, Ranking]:
    """Stream -> ranking by its join keys, event time and batch, shared by all queries."""
    keys: dict[StreamName, set[str]] = defaultdict(set)
    for query in queries:
        relation_of = {m.label: m.relation for m in query.members}
        stream_of = {r.id: r.stream for r in query.relations}
        for one in query.classes:
            for member in one.members:
                keys[stream_of[relation_of[member.label]]].add(str(member.attribute))
    return {
        stream.name: Ranking(_columns(stream, keys[stream.name]), by_batch=True)
        for stream in streams.values()
    }


def _columns(stream: Stream, keys: set[str]) -> Columns:
    """Columns that rank a stream's tuples for load shedding: plain keys and event time, or all."""
    typed = {name: key_type([kind]) for name, kind in stream.columns}
    wanted = [name for name in typed if name in keys and name != stream.event_time]
    found = tuple((n, kind) for n in wanted if (kind := typed[n]) is not None)
    every = tuple((n, kind) for n, kind in typed.items() if kind is not None)
    return (*found, *_event_time(stream)) or every


def _event_time(stream: Stream) -> Columns:
    return () if stream.event_time is None else ((stream.event_time, "timestamp"),)
