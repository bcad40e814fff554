"""A planning problem as a document: streams, queries, statistics, settings.

The queries go through the planner's own normaliser, so labels, key classes and bounds equal the
running system's. Omitted columns are inferred, omitted statistics are unknown, and an unusable
entry is rejected by one error that names the field.

>>> problem = parse_problem(
...     {
...         "streams": {"R": {"rate": 100}, "S": {"rate": 200}},
...         "queries": {"q": {"relations": ["R", "S as s"], "predicates": ["R.a = s.a"]}},
...         "selectivity": {"R.a = s.a": 0.01},
...     }
... )
>>> problem.queries[0].labels, problem.statistics.cardinalities
(('R', 'S'), {'R': 100.0, 'S': 200.0})
>>> [(f"{p.left} = {p.right}", s) for p, s in problem.statistics.selectivities.items()]
[('R.a = S.a', 0.01)]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from anabranch_contract.plans.plan import Objective
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.types import DataType, TypeKind, parse_type
from anabranch_planner.command.problem_statistics import (
    Alias,
    Known,
    frequent_values,
    make_statistics,
    read_distincts,
)
from anabranch_planner.cost.statistics.constants import OPERATIONS, CostConstants
from anabranch_planner.cost.statistics.statistics import TableStatistics
from anabranch_planner.documents.fields import (
    NAME,
    QUERY_ID,
    amount,
    choice,
    count,
    duration,
    flag,
    mapping,
    named,
    refused,
    shown,
    width,
    window,
    within,
)
from anabranch_planner.normal.bind import Registration, bind
from anabranch_planner.normal.normalise import normalise
from anabranch_planner.search.demands import Limits
from anabranch_planner.sql.scope import nearest
from anabranch_planner.sql.syntax import parse_expression
from anabranch_planner.sql.unresolved import Condition, FromEntry, Node, SelectItem, Unresolved

#: The event-time column of a stream that declares neither columns nor an event time.
EVENT_TIME = "event_time"

_PARTS = (
    "streams", "queries", "selectivity", "span", "window", "parallelism", "mir",
    "partitioning", "objective", "costs", "limits",
)  # fmt: skip
_STREAM = ("rate", "distinct", "columns", "event_time", "width", "retention", "values")
_RETENTION = ("ttl",)
_LIMITS = ("memory", "copies", "intermediate_results")
_COSTS = (*OPERATIONS, "calls", "batches")
_QUERY = ("relations", "predicates", "window")
_RELATION = ("stream", "as", "filter", "rate")
_ALIASED = re.compile(r"\s*(\S+)\s+as\s+(\S+)\s*", re.IGNORECASE)
_LONG = DataType(TypeKind.BIGINT)
_TIMESTAMP = DataType(TypeKind.TIMESTAMP)


@dataclass(frozen=True, slots=True)
class ProblemFile:
    """A problem to plan.

    Attributes:
        streams: with columns declared or inferred.
        objective: the document's own; None where it leaves that open.
        limits: of the joint plan; empty if the document has none.
        assumed: defaults used in ``statistics``, as sentences.
    """

    streams: tuple[Stream, ...]
    queries: tuple[JoinQuery, ...]
    statistics: TableStatistics
    parallelism: int
    mir: bool
    partitioning: bool
    objective: Objective | None
    limits: Limits
    assumed: tuple[str, ...]


@dataclass(slots=True)
class _Columns:
    """The columns of a stream: name in lower case -> (name, type); open: more may be inferred."""

    types: dict[str, tuple[str, DataType]]
    open: bool

    def infer(self, column: str) -> None:
        """Take ``column`` for a long of this stream, unless its columns are declared."""
        if self.open:
            self.types.setdefault(column.lower(), (column, _LONG))


@dataclass(frozen=True, slots=True)
class _Query:
    """A query as written."""

    id: str
    names: tuple[str, ...]
    aliases: tuple[Alias, ...]
    conditions: tuple[Condition, ...]
    window: int | dict[str, int] | None
    at: str

    def columns(self) -> list[tuple[str, str, str]]:
        """The columns that conditions name, as (alias, stream, column); plain names left out."""
        streams = {n.lower(): (n, a.stream) for n, a in zip(self.names, self.aliases, strict=True)}
        return [
            (*streams[column.table.lower()], column.name)
            for condition in self.conditions
            for column in condition.node.find_all(exp.Column)
            if column.table.lower() in streams
        ]


def parse_problem(document: Any) -> ProblemFile:
    """The problem that ``document`` (plain values, as YAML or JSON gives them) describes.

    Raises:
        ProblemError: with ``field`` a path such as ``queries.q1.predicates[0]``.
    """
    parts = mapping(document, "", _PARTS, "write streams: {...} and queries: {...}")
    for part in ("streams", "queries"):
        if part not in parts:
            raise refused(f"the problem has no {part}", part, f"write {part}: {{...}}")
    entries = {
        name: mapping(value, f"streams.{name}", _STREAM, "write {rate: 100}")
        for name, value in named(parts["streams"], "streams", NAME).items()
    }
    columns = {name: _columns(entry, f"streams.{name}") for name, entry in entries.items()}
    every_window = window(parts.get("window"), "window", per_alias=False)
    nodes: dict[str, Node] = {}
    written = [
        _query(name, value, columns, every_window, nodes)
        for name, value in named(parts["queries"], "queries", QUERY_ID).items()
    ]
    for query in written:
        for _, stream, column in query.columns():
            columns[stream].infer(column)
    known = {name: _known(entries[name], columns[name], f"streams.{name}") for name in entries}
    streams = {name: _stream(name, entries[name], columns[name]) for name in entries}
    queries = [_join_query(query, streams) for query in written]
    statistics, assumed = make_statistics(
        known,
        [(w.aliases, q) for w, q in zip(written, queries, strict=True)],
        parts.get("selectivity"),
        duration(parts["span"], "span") if parts.get("span") is not None else None,
    )
    objective = parts.get("objective")
    stated = {
        key: rates
        for name, entry in entries.items()
        for key, rates in _values(name, entry, columns[name]).items()
    }
    return ProblemFile(
        streams=tuple(streams.values()),
        queries=tuple(queries),
        statistics=replace(
            statistics,
            costs=_costs(parts.get("costs")),
            values=frequent_values(stated, statistics.cardinalities),
        ),
        parallelism=count(parts.get("parallelism", 1), "parallelism"),
        mir=flag(parts.get("mir", True), "mir"),
        partitioning=flag(parts.get("partitioning", True), "partitioning"),
        objective=None if objective is None else choice(objective, Objective, "objective"),
        limits=_limits(parts.get("limits"), entries, queries),
        assumed=assumed,
    )


def _values(
    stream: str, entry: Mapping[str, Any], columns: _Columns
) -> dict[tuple[str, str], dict[str, float]]:
    """Stated frequent values of a stream: column -> value -> tuples per unit of time."""
    at = f"streams.{stream}.values"
    found = {}
    for name, rates in mapping(entry.get("values"), at, None, "write {dest: {a: 50}}").items():
        column = columns.types.get(name.lower())
        if column is None:
            known = nearest(name, [kept for kept, _ in columns.types.values()])
            raise refused(f"the stream has no column {name!r}", f"{at}.{name}", known)
        stated = mapping(rates, f"{at}.{name}", None, "write {a: 50}")
        found[stream, column[0]] = {
            str(value): amount(rate, f"{at}.{name}.{value}") for value, rate in stated.items()
        }
        rate = entry.get("rate")
        total = sum(found[stream, column[0]].values())
        if rate is not None and total > float(rate) * (1 + 1e-9):
            raise refused(
                f"values of {total:g} tuples are more than the stream's {float(rate):g}",
                f"{at}.{name}",
                "state no more than the rate",
            )
    return found


def _costs(value: Any) -> CostConstants | None:
    if value is None:
        return None
    entry = mapping(value, "costs", _COSTS, "write {probe: 1e-7, match: 1e-7}")
    stated: dict[str, Any] = {n: amount(seconds, f"costs.{n}") for n, seconds in entry.items()}
    return CostConstants(**stated)


def _limits(
    value: Any, streams: Mapping[str, Mapping[str, Any]], queries: Sequence[JoinQuery]
) -> Limits:
    """The limits of the plan, with the widths that streams state."""
    entry = mapping(value, "limits", _LIMITS, "write {memory: 1e9, copies: 2}")
    memory, copies = entry.get("memory"), entry.get("copies")
    mirs = entry.get("intermediate_results")
    widths = {
        name: width(stream["width"], f"streams.{name}.width")
        for name, stream in streams.items()
        if stream.get("width") is not None
    }
    return Limits(
        memory=None if memory is None else amount(memory, "limits.memory"),
        copies=None if copies is None else count(copies, "limits.copies"),
        mirs=None if mirs is None else count(mirs, "limits.intermediate_results", least=0),
        widths={
            relation.id: widths[relation.stream]
            for query in queries
            for relation in query.relations
            if relation.stream in widths
        },
    )


# --- streams -----------------------------------------------------------------------------------


def _columns(entry: Mapping[str, Any], at: str) -> _Columns:
    """Declared columns, a list of longs or name -> type; without them, an open set."""
    value, event_time = entry.get("columns"), entry.get("event_time")
    if event_time is not None and (
        not isinstance(event_time, str) or not NAME.fullmatch(event_time)
    ):
        raise refused(f"{shown(event_time)} is no column", f"{at}.event_time", "name a column")
    if value is None:
        name = event_time or EVENT_TIME
        return _Columns({name.lower(): (name, _TIMESTAMP)}, open=True)
    at = f"{at}.columns"
    if isinstance(value, list):
        pairs = [(name, "long") for name in value]
    elif isinstance(value, Mapping):
        pairs = list(value.items())
    else:
        raise refused("expected columns", at, "write [a, b] or {a: long, b: string}")
    found: dict[str, tuple[str, DataType]] = {}
    for name, kind in pairs:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise refused(f"{shown(name)} is no column name", at, "use letters, digits and _")
        if name.lower() in found:
            raise refused(f"column {name!r} occurs twice", at, "case does not count; rename one")
        if not isinstance(kind, str):
            raise refused(f"{shown(kind)} is no type", f"{at}.{name}", "write e.g. long")
        with within(f"{at}.{name}"):
            found[name.lower()] = (name, parse_type(kind))
    return _Columns(found, open=False)


def _known(entry: Mapping[str, Any], columns: _Columns, at: str) -> Known:
    rate, distinct = entry.get("rate"), entry.get("distinct")
    if columns.open and isinstance(distinct, Mapping):
        for name in (part.strip() for key in distinct for part in str(key).split(",")):
            if NAME.fullmatch(name):
                columns.infer(name)
    distincts, every = read_distincts(
        distinct, f"{at}.distinct", {low: name for low, (name, _) in columns.types.items()}
    )
    return Known(None if rate is None else amount(rate, f"{at}.rate"), distincts, every)


def _stream(name: str, entry: Mapping[str, Any], columns: _Columns) -> Stream:
    event_time = entry.get("event_time")
    if event_time is None and columns.open:
        event_time = EVENT_TIME
    at = f"streams.{name}"
    where = f"{at}.retention"
    ttl = mapping(entry.get("retention"), where, _RETENTION, "write {ttl: 7 days}").get("ttl")
    micros = None if ttl is None else duration(ttl, f"{where}.ttl")
    with within(at):
        return Stream(
            StreamName(name),
            tuple(columns.types.values()),
            event_time,
            ttl=micros,
        )


# --- queries -----------------------------------------------------------------------------------


def _query(
    name: str,
    value: Any,
    streams: Mapping[str, _Columns],
    every_window: int | dict[str, int] | None,
    nodes: dict[str, Node],
) -> _Query:
    """Parse one query; ``nodes`` caches parsed predicates, since queries repeat them."""
    at = f"queries.{name}"
    entry = mapping(value, at, _QUERY, "write relations: [...] and predicates: [...]")
    relations = entry.get("relations")
    if not isinstance(relations, list) or not relations:
        raise refused("the query names no relations", f"{at}.relations", "write [R, S]")
    predicates = entry.get("predicates")
    if predicates is not None and not isinstance(predicates, list):
        raise refused("expected a list", f"{at}.predicates", 'write ["R.a = S.a"]')
    names, aliases, conditions = [], [], []
    for i, relation in enumerate(relations):
        place = f"relations[{i}]"
        alias, found, node = _relation(relation, f"{at}.{place}", streams)
        names.append(alias)
        aliases.append(found)
        if node is not None:
            conditions.append(Condition(node, len(relations), f"{place}.filter"))
    for i, text in enumerate(predicates or ()):
        place = f"predicates[{i}]"
        if not isinstance(text, str):
            raise refused(f"{shown(text)} is no predicate", f"{at}.{place}", 'write "R.a = S.a"')
        if text not in nodes:
            with within(f"{at}.{place}"):
                nodes[text] = parse_expression(text)
        conditions.append(Condition(nodes[text], len(relations), place))
    return _Query(
        id=name,
        names=tuple(names),
        aliases=tuple(aliases),
        conditions=tuple(conditions),
        window=window(entry["window"], f"{at}.window", per_alias=True)
        if "window" in entry
        else every_window,
        at=at,
    )


def _relation(
    value: Any, at: str, streams: Mapping[str, _Columns]
) -> tuple[str, Alias, Node | None]:
    """One entry of ``relations``: its name in the query, its stream, its filter."""
    if isinstance(value, str):
        match = _ALIASED.fullmatch(value)
        value = {"stream": match[1], "as": match[2]} if match else {"stream": value.strip()}
    entry = mapping(value, at, _RELATION, 'write R, "R as r1" or {stream: R, as: r1}')
    stream = entry.get("stream")
    if not isinstance(stream, str) or stream not in streams:
        raise refused(f"there is no stream {shown(stream)}", at, nearest(str(stream), streams))
    alias = entry.get("as", stream)
    if not isinstance(alias, str) or not NAME.fullmatch(alias):
        raise refused(f"{shown(alias)} is no alias", f"{at}.as", "use letters, digits and _")
    text, rate = entry.get("filter"), entry.get("rate")
    if rate is not None and text is None:
        raise refused(
            "a rate of its own needs a filter",
            f"{at}.rate",
            f"state it in streams.{stream}.rate, or add a filter",
        )
    node = None if text is None else _filter(text, alias, f"{at}.filter")
    return alias, Alias(stream, None if rate is None else amount(rate, f"{at}.rate"), at), node


def _filter(text: Any, alias: str, at: str) -> Node:
    """A condition over one alias, in which plain names are its columns."""
    if not isinstance(text, str):
        raise refused(f"{shown(text)} is no condition", at, 'write it as in SQL: "price > 5"')
    with within(at):
        node = parse_expression(text)
    for column in list(node.find_all(exp.Column)):
        if not column.table:
            column.set("table", exp.to_identifier(alias, quoted=True))
        elif column.table.lower() != alias.lower():
            raise refused(
                f"the filter of {alias!r} reads {column.table!r}",
                at,
                "write conditions over several relations into predicates",
            )
    return node


def _join_query(query: _Query, streams: Mapping[str, Stream]) -> JoinQuery:
    """The normalised query; its projection is what its conditions read, as ``alias.column``."""
    read: dict[str, set[str]] = {name: set() for name in query.names}
    for alias, stream, column in query.columns():
        read[alias].update(
            name for name, _ in streams[stream].columns if name.lower() == column.lower()
        )
    if not any(read.values()):
        read[query.names[0]].add(streams[query.aliases[0].stream].columns[0][0])
    unresolved = Unresolved(
        sources=tuple(
            FromEntry(alias.stream, name, field=f"relations[{i}]")
            for i, (name, alias) in enumerate(zip(query.names, query.aliases, strict=True))
        ),
        conditions=query.conditions,
        items=tuple(
            SelectItem(exp.column(column, table=alias, quoted=True), f"{alias}.{column}")
            for alias, columns in read.items()
            for column in sorted(columns)
        ),
    )
    with within(query.at):
        given = Registration(query.id, streams, query.window)
        return normalise(bind(unresolved, given), given)
