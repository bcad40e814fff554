"""Chains of outer joins that one maintained table can't keep, split by subqueries.

A maintained table can compute a chain of look-ups from left rows, or one FULL JOIN. So ``a LEFT
JOIN b ON … FULL JOIN c ON …`` becomes ``(SELECT … FROM a LEFT JOIN b ON …) j FULL JOIN c ON …``.
The joins before a RIGHT JOIN become its right side, and if a join's condition reads two independent
right sides, both are moved into one subquery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, TypeVar

from sqlglot import exp

from anabranch_contract.queries.joins import Stream
from anabranch_contract.queries.outer_joins import JoinKind
from anabranch_planner.binding.look_ups import SHOWN, with_inner
from anabranch_planner.binding.naming import spark_name
from anabranch_planner.sql.aggregates import WINDOWED, function_over, windows_of
from anabranch_planner.sql.named import with_entries, within
from anabranch_planner.sql.scope import find_stream
from anabranch_planner.sql.unresolved import (
    Condition,
    FromEntry,
    Node,
    OuterSide,
    PostJoin,
    RowRanking,
    SelectItem,
    Unresolved,
    at,
    called,
    describe,
    not_null,
    operands,
    unsupported,
)
from anabranch_planner.subqueries.grouped import PARTS, STRICT
from anabranch_planner.subqueries.joins import all_of, as_where
from anabranch_planner.subqueries.names import (
    FromTables,
    column_of,
    columns_in,
    is_bracket,
    replaced,
)

Clauses = TypeVar("Clauses", PostJoin, RowRanking)


def with_join_parts(query: Unresolved, streams: Mapping[str, Stream]) -> Unresolved:
    """``query`` with outer joins in subqueries, so that one maintained table serves each chain.

    Raises:
        QueryError: ``unsupported-sql``: NATURAL, or ``*`` over columns of USING, in such a chain.
    """
    return _Parts(streams).everywhere(query)


@dataclass(slots=True)
class _Parts:
    streams: Mapping[str, Stream]
    _inside: Callable[[FromEntry], FromEntry] = field(init=False)

    def __post_init__(self) -> None:
        self._inside = within(self.everywhere)

    def everywhere(self, query: Unresolved) -> Unresolved:
        made = _without_using(_inner_by_where(query, self.streams), self.streams)
        while (entry := _unnamed(made)) is not None:
            made = _with_named(made, entry, self.streams)
        made, number = _look_ups_first(made, self.streams)
        cut = number or _cut(made, self.streams)
        while cut is not None:
            made = _with_part(made, cut, self.streams)
            cut = _cut(made, self.streams)
        # Done last, because names of tables in parentheses are visible outside the parentheses.
        made = with_entries(made, self._inside)
        return _inlined(made) if made.nested is not None and query.outer else made


def _inlined(query: Unresolved) -> Unresolved:
    """Inline a subquery made for outer joins again if it has only inner joins left."""
    named = map(function_over, windows_of(query.items))
    if query.post_join is not None or any(name in WINDOWED for name in named):
        return query
    if any(side.kind is not JoinKind.INNER or side.asof is not None for side in query.outer):
        return query
    return replace(with_inner(query, query.outer, ()), nested=None)


def _inner_by_where(query: Unresolved, streams: Mapping[str, Stream]) -> Unresolved:
    """``query`` with some LEFT JOINs turned into inner joins: namely if WHERE can't be true without
    the right row, and only WHERE connects a later join without ON with that right side."""
    loose = [n for n, s in enumerate(query.outer) if s.kind is JoinKind.INNER and s.on is None]
    plain = all(s.asof is None and not (s.source.using or s.source.natural) for s in query.outer)
    if not loose or not plain:
        return query
    tables, sides = FromTables.of(query, streams), list(query.outer)
    wanted = {
        column.table.lower()
        for condition in query.conditions
        if isinstance(condition.node.parent, exp.Where)
        for part in operands(condition.node, exp.And)
        if all(isinstance(node, (*STRICT, *PARTS)) for node in part.walk())
        for column in columns_in(tables.qualified(part))
    }
    for place, side in enumerate(sides[: loose[-1]]):
        if side.kind is JoinKind.LEFT and (side.source.alias or "").lower() in wanted:
            sides[place] = replace(side, kind=JoinKind.INNER)
    count = next((n for n, s in enumerate(sides) if s.kind is not JoinKind.INNER), len(sides))
    return with_inner(query, sides[:count], sides[count:])


# --- USING ---------------------------------------------------------------------------------------


def _without_using(query: Unresolved, streams: Mapping[str, Stream]) -> Unresolved:
    """``query`` with ON instead of USING, if it has a FULL JOIN; a merged column is a coalesce."""
    full = (s for s in query.outer if s.kind is JoinKind.FULL and s.source.using)
    first = next(full, None)
    if first is None:
        return query
    with at(first.source.node):
        if any(item.node is None for item in query.items):
            raise unsupported("* over a FULL JOIN with USING", "name the columns")
        if any(entry.natural for entry in query.entries):
            raise unsupported("NATURAL JOIN beside a FULL JOIN with USING", "write USING")
    return _with_on(query, streams)


def _with_on(query: Unresolved, streams: Mapping[str, Stream]) -> Unresolved:
    """``query`` with ON instead of USING."""
    merged: dict[str, Node] = {}

    def meant(part: Node) -> Node:
        """The value of a column merged by USING of an outer join."""
        if not isinstance(part, exp.Column) or part.table:
            return part
        found = merged.get(part.name.lower())
        return part if found is None else called(found.copy(), part.name)

    def compared(entry: FromEntry, before: Unresolved, kind: JoinKind) -> Iterator[Node]:
        """The equalities for which USING is an abbreviation."""
        right = FromTables.of(Unresolved((replace(entry, using=()),), (), ()), streams)
        tables = FromTables.of(before, streams)
        for name in map(str.lower, entry.using):
            with at(entry.node):
                left = merged[name] if name in merged else _first(tables, name)
                other = _first(right, name)
            yield exp.EQ(this=left.copy(), expression=other)
            merged[name] = left
            if kind is JoinKind.FULL:
                values = [one.copy() for one in (*_arguments(left), other)]
                merged[name] = exp.Coalesce(this=values[0], expressions=values[1:])

    conditions = list[Condition]()
    for place, entry in enumerate(query.sources):
        for one in query.conditions:
            if one.scope == place + 1 and not isinstance(one.node.parent, exp.Where):
                conditions.append(replace(one, node=replaced(one.node, meant)))
        before = replace(query, sources=query.sources[:place], outer=())
        found = compared(entry, before, JoinKind.INNER)
        conditions += [Condition(node, place + 1) for node in found]
    conditions += [c for c in query.conditions if isinstance(c.node.parent, exp.Where)]
    sides = list[OuterSide]()
    for place, side in enumerate(query.outer):
        on = [] if side.on is None else [replaced(side.on, meant)]
        on += compared(side.source, replace(query, outer=query.outer[:place]), side.kind)
        plain = replace(side.source, using=())
        sides.append(replace(side, source=plain, on=all_of(on) if on else None))
    sources = tuple(replace(entry, using=()) for entry in query.sources)
    made = replace(query, sources=sources, outer=tuple(sides), conditions=tuple(conditions))
    return with_expressions(made, meant)


def _first(tables: FromTables, name: str) -> exp.Column:
    """The column ``name`` of the only table that has it, or of the first table merged by USING."""
    found = [alias for alias, names in tables.columns.items() if name in names]
    if not found or not found[0] or (len(found) > 1 and name not in tables.merged):
        raise unsupported(f"USING ({name}) here", "write ON a.k = b.k")
    return column_of(found[0], name)


def _arguments(node: Node) -> list[Node]:
    """The arguments of a coalesce in a join's condition; any other node is its only element."""
    return [node.this, *node.expressions] if isinstance(node, exp.Coalesce) else [node]


# --- subqueries of joins -------------------------------------------------------------------------


@dataclass(slots=True)
class Inside:
    """Joins that become a subquery in FROM, and their columns that the rest of the query reads.

    Attributes:
        tables: the tables of the joins. ``alias``: alias of the subquery.
        names: (alias, column) of a table -> the column of the subquery.
    """

    tables: FromTables
    alias: str
    names: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def of(cls, inner: Unresolved, query: Unresolved, streams: Mapping[str, Stream]) -> Inside:
        """The subquery for the joins ``inner`` of ``query``.

        Raises:
            QueryError: ``unsupported-sql``: a table without a name, or NATURAL.
        """
        tables = FromTables.of(inner, streams)
        if tables.natural or any(entry.natural for entry in query.entries):
            raise unsupported("NATURAL JOIN beside this outer join", "write USING or ON")
        if "" in tables.columns:
            raise unsupported("a subquery without alias here", "give it an alias with AS")
        taken = {alias.lower() for alias in FromTables.of(_shown(query), streams).columns}
        numbers = range(len(taken) + 1)
        return cls(tables, next(n for i in numbers if (n := f"joined{i or ''}") not in taken))

    def has(self, column: exp.Column, tables: FromTables) -> bool:
        """Whether ``column`` belongs to a table of the joins; ``tables``: all tables in scope."""
        return self._key(column, tables) is not None

    def over(self, node: Node, tables: FromTables) -> Node:
        """A copy of ``node`` that reads columns of the moved joins from the subquery."""

        def found(part: Node) -> Node:
            if not isinstance(part, exp.Column) or isinstance(part.this, exp.Star):
                return part
            key = self._key(part, tables)
            if key is None:
                return part
            return called(column_of(self.alias, self._name(*key), part), describe(part))

        return replaced(node, found)

    def keep(self, names: Iterable[str]) -> None:
        """Add ``names``, columns of USING that the joins have, to the subquery's SELECT list."""
        for name in names:
            self.over(exp.column(name), self.tables)

    def select(self) -> tuple[SelectItem, ...]:
        """The SELECT list of the subquery; if no column is read, it has an arbitrary one."""
        if not self.names:
            self._name(*next((a, n) for a, names in self.tables.columns.items() for n in names))
        found = (SelectItem(column_of(*key), name) for key, name in self.names.items())
        return tuple(found)

    def starred(self, item: SelectItem) -> Iterator[SelectItem]:
        """The star ``item`` as columns of the joins' subquery; other tables' stars unchanged."""
        wanted = (item.qualifier or "").lower()
        if wanted and not any(alias.lower() == wanted for alias in self.tables.columns):
            yield item
            return
        if not wanted and self.tables.merged:
            raise unsupported("* over columns of USING beside this outer join", "name the columns")
        for alias, names in self.tables.columns.items():
            if not wanted or wanted == alias.lower():
                yield from (SelectItem(column_of(alias, name), name) for name in names)

    def _key(self, column: exp.Column, tables: FromTables) -> tuple[str, str] | None:
        made = tables.qualified(column)
        assert isinstance(made, exp.Column)
        for alias, names in self.tables.columns.items():
            if made.table.lower() == alias.lower() and made.name.lower() in names:
                return alias, made.name.lower()
        return None

    def _name(self, alias: str, column: str) -> str:
        if (alias, column) not in self.names:
            alone = sum(column in names for names in self.tables.columns.values()) == 1
            wanted = column if alone else f"{alias}_{column}".lower()
            while wanted in self.names.values():
                wanted += "_"
            self.names[alias, column] = wanted
        return self.names[alias, column]


def _look_ups_first(query: Unresolved, streams: Mapping[str, Stream]) -> tuple[Unresolved, int]:
    """``query`` with its look-ups of tables moved before its outer joins with streams, and the
    number of these look-ups.

    Inner joins with tables become look-ups, too. Joins that read no columns of each other may be
    exchanged. The number is 0 if nothing moves, since only tables or only streams are joined, or a
    look-up reads a stream that is joined later.
    """
    if not query.outer:
        return query, 0
    looked = [side for side in query.outer if _is_look_up(side, streams)]
    sides = [side for side in query.outer if side not in looked]
    tables = [entry for entry in query.sources if _is_table(entry, streams)]
    left = tuple(entry for entry in query.sources if entry not in tables)
    natural = any(one.natural for one in query.entries)
    full = any(side.kind is JoinKind.FULL for side in query.outer)
    if not sides or not (tables or looked) or not left or natural or full:
        return query, 0
    if any(one.using for one in query.entries):
        if any(item.node is None for item in query.items):
            return query, 0
        return _look_ups_first(_with_on(query, streams), streams)
    whole = FromTables.of(_shown(query), streams)
    names = {_named(entry) for entry in left}
    conditions, rest = list[Condition](), list[tuple[Node, Condition]]()
    for one in query.conditions:
        for part in operands(one.node, exp.And):
            rest.append((part, one))

    def due(known: set[str]) -> Iterator[tuple[Node, Condition]]:
        """Remove the conjuncts that read only ``known`` tables from ``rest``; return them."""
        for pair in [pair for pair in rest if _read(pair[0], whole) <= known]:
            rest.remove(pair)
            yield pair

    for part, one in due(names):
        kept = as_where([part]) if isinstance(one.node.parent, exp.Where) else part
        conditions.append(replace(one, node=kept, scope=len(left)))
    first = list[OuterSide]()
    for entry in tables:
        names.add(_named(entry))
        on = [part for part, _ in due(names)]
        key = next((column for part in on for column in _compared(part, entry, whole)), None)
        if key is None:
            return query, 0
        # Make it a LEFT JOIN, because a subquery with inner joins only would be inlined.
        first.append(OuterSide(JoinKind.LEFT, entry, all_of(on)))
        conditions.append(Condition(as_where([not_null(key)]), len(left)))
    for side in looked:
        names.add(_named(side.source))
        if side.on is None or not _read(side.on, whole) <= names:
            return query, 0
        first.append(side)
    above = [as_where([part]) for part, _ in rest]
    conditions += [Condition(node, len(left)) for node in above]
    items = list[SelectItem]()
    for item in query.items:
        plain = item.node is None and item.qualifier is None
        shown = (e for e in query.entries if _is_shown(e, query)) if plain else ()
        items += (replace(item, qualifier=_named(e)) for e in shown) if plain else (item,)
    made = replace(
        query,
        sources=left,
        conditions=tuple(conditions),
        outer=(*first, *sides),
        items=tuple(items),
    )
    return made, len(first)


def _compared(node: Node, entry: FromEntry, tables: FromTables) -> Iterator[exp.Column]:
    """The column of ``entry`` that the equality ``node`` compares, or None."""
    sides = (node.this, node.expression) if isinstance(node, exp.EQ) else ()
    for side in sides:
        if isinstance(side, exp.Column) and _read(side, tables) == {_named(entry)}:
            yield side


def _is_table(entry: FromEntry, streams: Mapping[str, Stream]) -> bool:
    return isinstance(entry.of, str) and find_stream(entry.of, streams).is_table


def _is_look_up(side: OuterSide, streams: Mapping[str, Stream]) -> bool:
    """Whether the outer join is with a table, or as of the arrival of left rows."""
    entry = side.source
    if _is_table(entry, streams) or entry.at_arrival:
        return True
    latest = isinstance(entry.of, str) and bool(find_stream(entry.of, streams).latest)
    return side.asof is not None and latest


def _named(entry: FromEntry) -> str:
    return (entry.alias or (entry.of if isinstance(entry.of, str) else "")).lower()


def _is_shown(entry: FromEntry, query: Unresolved) -> bool:
    return all(side.source is not entry or side.kind in SHOWN for side in query.outer)


def _read(node: Node, tables: FromTables) -> set[str]:
    """Aliases (lower case) whose columns a join's condition reads; "" for unqualified columns."""
    return {column.table.lower() for column in columns_in(tables.qualified(node))}


def _cut(query: Unresolved, streams: Mapping[str, Stream]) -> int | None:
    """The number of outer joins to move into a subquery; None if one maintained table suffices."""
    if len(query.outer) < 2 or all(_is_look_up(side, streams) for side in query.outer):
        return None
    for number, side in enumerate(query.outer):
        if side.kind is JoinKind.FULL:
            return number or 1
        if number and not _depends_on_one(query, number, streams):
            return number
    return None


def _depends_on_one(query: Unresolved, number: int, streams: Mapping[str, Stream]) -> bool:
    """Whether the condition of outer join ``number`` depends on at most one right side. It may read
    several right sides if one of these depends on the others, and an equality compares with that
    one."""
    side = query.outer[number]
    if side.on is None or side.asof is not None or side.source.natural:
        return True
    above: list[frozenset[int]] = []
    for place in range(number):
        own = _sides_read(query, place, streams)
        above.append(own.union(*(above[one] for one in own)))
    read = _sides_read(query, number, streams)
    last = [one for one in read if read <= {one, *above[one]}]
    return not read or any(_compares(query, number, query.outer[one], streams) for one in last)


def _compares(
    query: Unresolved, number: int, other: OuterSide, streams: Mapping[str, Stream]
) -> bool:
    """Whether an equality in the condition of join ``number`` has one side over ``other`` alone."""
    side, tables = query.outer[number], _tables_at(query, number, streams)
    if not isinstance(other.source.alias, str) or side.on is None:
        return True
    wanted = {(side.source.alias or "").lower()}, {other.source.alias.lower()}
    for part in operands(side.on, exp.And):
        if isinstance(part, exp.EQ):
            found = [_read(one, tables) for one in (part.this, part.expression)]
            if found in (list(wanted), list(reversed(wanted))):
                return True
    return bool(side.source.using)


def _sides_read(query: Unresolved, number: int, streams: Mapping[str, Stream]) -> frozenset[int]:
    """The earlier outer joins whose columns the condition of join ``number`` reads."""
    side = query.outer[number]
    read = set() if side.on is None else _read(side.on, _tables_at(query, number, streams))
    earlier = enumerate(query.outer[:number])
    return frozenset(n for n, s in earlier if s.source.alias and _named(s.source) in read)


def _tables_at(query: Unresolved, number: int, streams: Mapping[str, Stream]) -> FromTables:
    """The tables that the condition of outer join ``number`` may read."""
    own = replace(query.outer[number], kind=JoinKind.LEFT)
    return FromTables.of(replace(query, outer=(*query.outer[:number], own)), streams)


def _shown(query: Unresolved) -> Unresolved:
    """``query`` with all outer joins as LEFT JOINs, so that all columns are visible."""
    outer = tuple(replace(side, kind=JoinKind.LEFT) for side in query.outer)
    return replace(query, outer=outer)


def _with_part(query: Unresolved, number: int, streams: Mapping[str, Stream]) -> Unresolved:
    """``query`` with its first ``number`` outer joins as a subquery that the other joins read."""
    below, rest = replace(query, outer=query.outer[:number]), query.outer[number:]
    whole, node = FromTables.of(query, streams), rest[0].source.node
    with at(node):
        inside = Inside.of(below, query, streams)
    # Conditions can't be moved into the subquery: a FULL JOIN keeps rows of the other side anyway.
    early = all(side.kind is not JoinKind.FULL for side in rest)
    inner, above = list[Condition](), list[Node]()
    for condition in query.conditions:
        if not isinstance(condition.node.parent, exp.Where):
            inner.append(condition)
            continue
        for part in operands(condition.node, exp.And):
            if early and all(inside.has(column, whole) for column in columns_in(part)):
                inner.append(replace(condition, node=as_where([part]), scope=len(query.sources)))
            else:
                above.append(part)
    sides = []
    for place, side in enumerate(rest, number):
        tables = _tables_at(query, place, streams)
        inside.keep(side.source.using)
        on = None if side.on is None else inside.over(side.on, tables)
        sides.append(replace(side, on=on))
    items = list[SelectItem]()
    for item in query.items:
        if item.node is not None:
            items.append(item)
            continue
        with at(node):
            items += inside.starred(item)
        if item.qualifier is None:
            shown = (side.source.alias for side in rest if side.kind in SHOWN)
            items += (replace(item, qualifier=alias) for alias in shown)
    conditions = tuple(Condition(as_where([one]), 1) for one in above)
    made = replace(query, items=tuple(items), outer=tuple(sides), conditions=conditions)
    made = with_expressions(made, lambda one: inside.over(one, whole))
    joined = Unresolved(
        sources=query.sources,
        conditions=tuple(inner),
        items=inside.select(),
        outer=below.outer,
        nested=(f"a {below.outer[0].called}", node),
    )
    return replace(made, sources=(FromEntry(joined, inside.alias, node=node),))


def _unnamed(query: Unresolved) -> FromEntry | None:
    """An entry of FROM with joins in parentheses that must get an alias, or None."""
    for entry in query.sources:
        joins = _joins_of(entry)
        if joins is not None and joins.outer:
            return entry
    for number, side in enumerate(query.outer):
        joins = _joins_of(side.source)
        if joins is not None and (number or joins.outer or side.kind is JoinKind.FULL):
            return side.source
    return None


def _joins_of(entry: FromEntry) -> Unresolved | None:
    """The joins inside ``entry`` if it is parentheses around joins, without alias; else None."""
    if isinstance(entry.of, str) or entry.alias is not None:
        return None
    return entry.of if is_bracket(entry.of) else None


def _with_named(query: Unresolved, entry: FromEntry, streams: Mapping[str, Stream]) -> Unresolved:
    """``query`` with ``entry``, joins in parentheses, turned into a subquery with an alias."""
    joins = _joins_of(entry)
    assert joins is not None
    with at(entry.node):
        inside = Inside.of(joins, query, streams)
        if any(item.node is None and item.qualifier is None for item in query.items):
            raise unsupported(
                "* over a join in parentheses beside an outer join", "name the columns"
            )
        inside.keep(chain.from_iterable(one.using for one in query.entries))
    whole, sides = FromTables.of(query, streams), list(query.outer)
    for place, side in enumerate(sides):
        tables = _tables_at(query, place, streams)
        sides[place] = replace(side, on=None if side.on is None else inside.over(side.on, tables))
    conditions = []
    for one in query.conditions:
        if not isinstance(one.node.parent, exp.Where):
            before = replace(query, sources=query.sources[: one.scope], outer=())
            one = replace(one, node=inside.over(one.node, FromTables.of(before, streams)))
        conditions.append(one)
    items = (inside.starred(item) if item.node is None else (item,) for item in query.items)
    shown = replace(query, items=tuple(chain.from_iterable(items)), conditions=tuple(conditions))
    made = with_expressions(shown, lambda one: inside.over(one, whole))
    named = replace(joins, items=inside.select())
    if joins.outer:
        named = replace(named, nested=(f"a {joins.outer[0].called}", entry.node))
    found = replace(entry, of=named, alias=inside.alias)
    return replace(
        made,
        sources=tuple(found if one is entry else one for one in query.sources),
        outer=tuple(
            replace(side, source=found) if side.source is entry else side for side in sides
        ),
    )


def with_expressions(query: Unresolved, change: Callable[[Node], Node]) -> Unresolved:
    """``query`` with ``change`` applied to expressions of SELECT, WHERE and post-join clauses."""
    names = {item.name.lower() for item in query.items if item.name}

    def ordered(key: exp.Ordered) -> exp.Ordered:
        """An ORDER BY key with ``change`` applied, unless it is an alias of the SELECT list."""
        column = key.this
        if isinstance(column, exp.Column) and not column.table and column.name.lower() in names:
            return key
        made: exp.Ordered = key.copy()
        made.set("this", change(column))
        return made

    items = tuple(
        item
        if item.node is None
        else replace(item, node=change(item.node), name=item.name or spark_name(item.node))
        for item in query.items
    )
    conditions = tuple(
        replace(c, node=as_where([change(c.node)])) if isinstance(c.node.parent, exp.Where) else c
        for c in query.conditions
    )
    clauses = query.post_join
    if clauses is not None:
        clauses = replace(_mapped(clauses, change), order=tuple(map(ordered, clauses.order)))
    return replace(query, items=items, conditions=conditions, post_join=clauses)


def _mapped(clauses: Clauses, change: Callable[[Node], Node]) -> Clauses:
    """Post-join clauses of a statement after ``change`` has been applied to their nodes."""
    found: dict[str, Any] = {}
    for one in fields(clauses):
        value = getattr(clauses, one.name)
        if isinstance(value, exp.Expr):
            found[one.name] = change(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], exp.Expr):
            found[one.name] = tuple(map(change, value))
        elif isinstance(value, RowRanking):
            found[one.name] = _mapped(value, change)
    return replace(clauses, **found)
