"""Problem files of the planner's command: streams, queries, statistics and settings, in YAML.

Queries are normalised as in the running system, so their aliases, join keys and time bounds are
named alike. Omitted columns are inferred, omitted statistics are unknown, and an invalid field is
rejected with an error that names it.

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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, Tag, model_validator
from sqlglot import exp

from anabranch_contract.plans.plan import Objective
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.types import DataType, TypeKind, parse_type
from anabranch_planner.command.problem_statistics import (
    Alias,
    Known,
    frequent_values,
    make_statistics,
)
from anabranch_planner.cost.statistics.constants import OPERATIONS, CostConstants
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.documents.fields import (
    EITHER,
    NAME,
    QUERY_ID,
    Amount,
    Count,
    Duration,
    Flag,
    Name,
    OneOrEach,
    Part,
    Positive,
    Share,
    Text,
    Whole,
    read,
    refusal,
    refused,
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

_COSTS = (*OPERATIONS, "calls", "batches")
_ALIASED = re.compile(r"\s*(\S+)\s+as\s+(\S+)\s*", re.IGNORECASE)
_LONG = DataType(TypeKind.BIGINT)
_TIMESTAMP = DataType(TypeKind.TIMESTAMP)


# --- the document ------------------------------------------------------------------------------


class _Retention(Part):
    example: ClassVar = "write {ttl: 7 days}"

    ttl: Duration | None = None


class _StreamPart(Part):
    """A stream in a problem file, with statistics per unit of time.

    Attributes:
        distinct: number of distinct values by comma-joined columns; or one number for all columns.
        columns: names of columns, which have type bigint, or name -> type; None: inferred.
        values: column -> frequent value -> number of tuples.
    """

    example: ClassVar = "write {rate: 100}"

    rate: Amount | None = None
    distinct: OneOrEach[Amount] | None = None
    columns: (
        Annotated[
            Annotated[list[Name], Tag("(one)")] | Annotated[dict[Name, Text], Tag("(each)")], EITHER
        ]
        | None
    ) = None
    event_time: Name | None = None
    width: Positive | None = None
    retention: _Retention = _Retention()
    values: dict[str, dict[str, Amount]] | None = None

    @model_validator(mode="after")
    def _values_are_within_rate(self) -> Self:
        for column, rates in (self.values or {}).items():
            total = sum(rates.values())
            if self.rate is not None and total > self.rate * (1 + 1e-9):
                message = f"values of {total:g} tuples are more than the stream's {self.rate:g}"
                raise refusal(message, "state no more than the rate", "values", column)
        return self


class _RelationPart(Part):
    """An entry of a query's FROM list; ``rate``: tuples per unit of time after the filter."""

    example: ClassVar = 'write R, "R as r1" or {stream: R, as: r1}'

    stream: Text
    alias: Name | None = Field(default=None, alias="as")
    filter: Text | None = None
    rate: Amount | None = None

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        match = _ALIASED.fullmatch(value)
        return {"stream": match[1], "as": match[2]} if match else {"stream": value.strip()}

    @model_validator(mode="after")
    def _rate_is_filtered(self) -> Self:
        if self.rate is not None and self.filter is None:
            remedy = f"state it in streams.{self.stream}.rate, or add a filter"
            raise refusal("a rate of its own needs a filter", remedy, "rate")
        return self


class _QueryPart(Part):
    """A query in a problem file; ``window`` defaults to the problem's window."""

    example: ClassVar = "write relations: [...] and predicates: [...]"

    relations: Annotated[list[_RelationPart], Field(min_length=1)]
    predicates: list[Text] | None = None
    window: OneOrEach[Duration] | None = None


class _LimitsPart(Part):
    example: ClassVar = "write {memory: 1e9, copies: 2}"

    memory: Amount | None = None
    copies: Count | None = None
    intermediate_results: Whole | None = None


class _ProblemPart(Part):
    example: ClassVar = "write streams: {...} and queries: {...}"

    streams: dict[Name, _StreamPart]
    queries: dict[Annotated[Text, Field(pattern=f"^{QUERY_ID.pattern}$")], _QueryPart]
    selectivity: dict[str, Share] | None = None
    span: Duration | None = None
    window: Duration | None = None
    parallelism: Count = 1
    mir: Flag = True
    partitioning: Flag = True
    objective: Objective | None = None
    costs: dict[str, Amount] | None = None
    limits: _LimitsPart = _LimitsPart()


@dataclass(frozen=True, slots=True)
class ProblemFile:
    """A planning problem, read from a problem file.

    Attributes:
        streams: streams with declared or inferred columns.
        objective: unit of cost; None if the file does not set it.
        limits: limits of the joint plan; empty if the file has none.
        assumed: defaults used in ``statistics``, as sentences.
    """

    streams: tuple[Stream, ...]
    queries: tuple[JoinQuery, ...]
    statistics: Statistics
    parallelism: int
    mir: bool
    partitioning: bool
    objective: Objective | None
    limits: Limits
    assumed: tuple[str, ...]


@dataclass(slots=True)
class _Columns:
    """Columns of a stream by lower-case name; ``open``: conditions of queries may infer more."""

    types: dict[str, tuple[str, DataType]]
    open: bool

    def infer(self, column: str) -> None:
        """Add ``column`` as a bigint of this problem's stream, unless its columns are declared."""
        if self.open:
            self.types.setdefault(column.lower(), (column, _LONG))

    def find(self, column: str, at: str) -> str:
        """The spelling of a column's name as declared in the problem file.

        Raises:
            ProblemError: the stream has no such column; the error names the field ``at``.
        """
        found = self.types.get(column.lower())
        if found is None:
            known = nearest(column, [name for name, _ in self.types.values()])
            raise refused(f"the stream has no column {column!r}", at, known)
        return found[0]


@dataclass(frozen=True, slots=True)
class _Query:
    """A query of a problem file with parsed conditions, before name resolution."""

    id: str
    names: tuple[str, ...]
    aliases: tuple[Alias, ...]
    conditions: tuple[Condition, ...]
    window: int | dict[str, int] | None
    at: str

    def columns(self) -> list[tuple[str, str, str]]:
        """The qualified columns in conditions of the problem's query: (alias, stream, column)."""
        streams = {n.lower(): (n, a.stream) for n, a in zip(self.names, self.aliases, strict=True)}
        return [
            (*streams[column.table.lower()], column.name)
            for condition in self.conditions
            for column in condition.node.find_all(exp.Column)
            if column.table.lower() in streams
        ]


# --- the problem -------------------------------------------------------------------------------


def parse_problem(document: Any) -> ProblemFile:
    """The problem that ``document`` (plain values, e.g. from YAML or JSON) describes.

    Raises:
        ProblemError: the document is invalid; ``field`` is a path such as
            ``queries.q1.predicates[0]``.
    """
    given = read(_ProblemPart, document)
    for name in given.costs or ():
        if name not in _COSTS:
            raise refused("there is no such field", f"costs.{name}", nearest(name, _COSTS))
    columns = {name: _columns(name, stream) for name, stream in given.streams.items()}
    nodes: dict[str, Node] = {}
    written = [
        _query(name, query, columns, given.window, nodes) for name, query in given.queries.items()
    ]
    for query in written:
        for _, stream, column in query.columns():
            columns[stream].infer(column)
    known = {name: _known(name, one, columns[name]) for name, one in given.streams.items()}
    streams = {name: _stream(name, one, columns[name]) for name, one in given.streams.items()}
    queries = [_join_query(query, streams) for query in written]
    statistics, assumed = make_statistics(
        known,
        [(w.aliases, q) for w, q in zip(written, queries, strict=True)],
        given.selectivity or {},
        given.span,
    )
    stated = {
        (name, columns[name].find(column, f"streams.{name}.values.{column}")): rates
        for name, stream in given.streams.items()
        for column, rates in (stream.values or {}).items()
    }
    costs: dict[str, Any] = dict(given.costs or {})
    widths = {name: one.width for name, one in given.streams.items() if one.width is not None}
    return ProblemFile(
        streams=tuple(streams.values()),
        queries=tuple(queries),
        statistics=replace(
            statistics,
            constants=None if given.costs is None else CostConstants(**costs),
            values=frequent_values(stated, statistics.cardinalities),
        ),
        parallelism=given.parallelism,
        mir=given.mir,
        partitioning=given.partitioning,
        objective=given.objective,
        limits=Limits(
            memory=given.limits.memory,
            copies=given.limits.copies,
            mirs=given.limits.intermediate_results,
            widths={
                relation.id: widths[relation.stream]
                for query in queries
                for relation in query.relations
                if relation.stream in widths
            },
        ),
        assumed=assumed,
    )


# --- streams -----------------------------------------------------------------------------------


def _columns(name: str, stream: _StreamPart) -> _Columns:
    """Columns that a stream of a problem file declares; if none, an empty set to be extended."""
    declared = stream.columns
    if declared is None:
        event_time = stream.event_time or EVENT_TIME
        return _Columns({event_time.lower(): (event_time, _TIMESTAMP)}, open=True)
    at, found = f"streams.{name}.columns", _Columns({}, open=False)
    pairs = declared.items() if isinstance(declared, dict) else [(c, "long") for c in declared]
    for column, kind in pairs:
        if column.lower() in found.types:
            raise refused(f"column {column!r} occurs twice", at, "case does not count; rename one")
        with within(f"{at}.{column}"):
            found.types[column.lower()] = (column, parse_type(kind))
    return found


def _known(name: str, stream: _StreamPart, columns: _Columns) -> Known:
    if columns.open and isinstance(stream.distinct, dict):
        for column in (part.strip() for key in stream.distinct for part in key.split(",")):
            if NAME.fullmatch(column):
                columns.infer(column)
    if not isinstance(stream.distinct, dict):
        return Known(stream.rate, {}, stream.distinct)
    found: dict[str, float] = {}
    for key, number in stream.distinct.items():
        at = f"streams.{name}.distinct.{key}"
        names = [columns.find(part.strip(), at) for part in key.split(",")]
        attributes = ",".join(sorted(set(names)))
        if len(set(names)) < len(names) or attributes in found:
            raise refused("these attributes are named twice", at, "name them once")
        found[attributes] = number
    return Known(stream.rate, found, None)


def _stream(name: str, stream: _StreamPart, columns: _Columns) -> Stream:
    event_time = stream.event_time
    if event_time is None and columns.open:
        event_time = EVENT_TIME
    with within(f"streams.{name}"):
        return Stream(
            StreamName(name), tuple(columns.types.values()), event_time, ttl=stream.retention.ttl
        )


# --- queries -----------------------------------------------------------------------------------


def _query(
    name: str,
    given: _QueryPart,
    streams: Mapping[str, _Columns],
    every_window: int | None,
    nodes: dict[str, Node],
) -> _Query:
    """Parse a query of a problem file; ``nodes`` caches predicates, which often recur."""
    at = f"queries.{name}"
    names, aliases, conditions = [], [], []
    for i, relation in enumerate(given.relations):
        place = f"relations[{i}]"
        stream = relation.stream
        if stream not in streams:
            remedy = nearest(stream, streams)
            raise refused(f"there is no stream {stream!r}", f"{at}.{place}", remedy)
        alias = relation.alias or stream
        names.append(alias)
        aliases.append(Alias(stream, relation.rate, f"{at}.{place}"))
        if relation.filter is not None:
            node = _filter(relation.filter, alias, f"{at}.{place}.filter")
            conditions.append(Condition(node, len(given.relations), f"{place}.filter"))
    for i, predicate in enumerate(given.predicates or ()):
        place = f"predicates[{i}]"
        if predicate not in nodes:
            with within(f"{at}.{place}"):
                nodes[predicate] = parse_expression(predicate)
        conditions.append(Condition(nodes[predicate], len(given.relations), place))
    return _Query(
        id=name,
        names=tuple(names),
        aliases=tuple(aliases),
        conditions=tuple(conditions),
        window=given.window if "window" in given.model_fields_set else every_window,
        at=at,
    )


def _filter(condition: str, alias: str, at: str) -> Node:
    """Parse a problem file's condition over one alias; unqualified names are its columns."""
    with within(at):
        node = parse_expression(condition)
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
    """The normalised query of a problem file; it projects all columns of its conditions."""
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
