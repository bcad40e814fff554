"""Joins by columns of expanded rows (``explode`` ...), as joins with subqueries in FROM.

Rows are expanded after all joins of a statement, so expanded columns can't be join keys there. If
an equality with another table reads them, the tables that the expansion reads become a subquery in
FROM, together with the expansion: ``FROM orders o LATERAL VIEW explode(o.items) t AS i JOIN
products p ON p.sku = i.sku`` becomes ``FROM (SELECT … FROM orders o LATERAL VIEW …) j JOIN products
p ON p.sku = j.i.sku``. Joins before or after an expansion become a subquery, too, if some of them
are outer joins. A subquery with an expansion is inlined if it is the only entry of its reader's
FROM.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from anabranch_contract.queries.joins import Stream
from anabranch_contract.queries.outer_joins import JoinKind
from anabranch_planner.binding.look_ups import SHOWN
from anabranch_planner.binding.outputs import OutputNames
from anabranch_planner.sql.aggregates import windows_of
from anabranch_planner.sql.clauses.own_queries import clause_of
from anabranch_planner.sql.clauses.set_operations import as_table
from anabranch_planner.sql.named import with_entries
from anabranch_planner.sql.unresolved import (
    AsOf,
    Condition,
    FromEntry,
    Node,
    OuterSide,
    RowGenerator,
    SelectItem,
    Unresolved,
    at,
    operands,
    unsupported,
)
from anabranch_planner.subqueries.join_parts import Inside, with_expressions
from anabranch_planner.subqueries.joins import as_where
from anabranch_planner.subqueries.names import FromTables, columns_in


def with_expansion_parts(query: Unresolved, streams: Mapping[str, Stream]) -> Unresolved:
    """``query`` with all expansions after its joins; other expansions are moved into subqueries.

    Raises:
        QueryError: ``unsupported-sql``: NATURAL, or a subquery without alias beside an expansion.
    """
    return _Expansions(streams).everywhere(query)


@dataclass(slots=True)
class _Expansions:
    streams: Mapping[str, Stream]
    #: (id of a subquery, whether it is its reader's whole FROM) -> the subquery, referenced so that
    #: no other object gets its id, and its rewriting.
    _known: dict[tuple[int, bool], tuple[Unresolved, Unresolved]] = field(default_factory=dict)

    def everywhere(self, query: Unresolved) -> Unresolved:
        """Rewrite all subqueries in FROM of ``query``, then ``query`` itself."""
        while (made := self._cut(query)) is not query:
            query = made
        alone = bool(query.branches) or (len(query.sources) == 1 and not query.outer)
        return with_entries(query, lambda entry: self._inside(entry, alone=alone))

    def _inside(self, entry: FromEntry, *, alone: bool) -> FromEntry:
        inner = entry.of
        if isinstance(inner, str):
            return entry
        key = id(inner), alone
        if key not in self._known:
            made = self.everywhere(inner)
            if _is_plain(made) and (inner.generators or _expands(made)):
                # Without an expansion the subquery is a plain join, which can be inlined.
                made = replace(made, nested=None)
                if _expands(made) and not alone:
                    made = as_table(made, entry.node, "an expansion")
            self._known[key] = inner, made
        made = self._known[key][1]
        return entry if made is inner else replace(entry, of=made)

    def _cut(self, query: Unresolved) -> Unresolved:
        """``query`` with tables and expansions moved into a subquery if needed, else unchanged."""
        if not query.generators:
            return query
        tables = FromTables.of(query, self.streams)
        inner = replace(query, outer=())
        joined = _Links.of(inner, tables, self.streams).joined_by_items()
        if joined is not None:
            return self._with_part(query, tables, *joined)
        if not query.outer:
            return query
        every = range(len(query.sources))
        return self._with_part(query, tables, every, self._before(query, tables))

    def _before(self, query: Unresolved, tables: FromTables) -> list[RowGenerator]:
        """The expansions that precede the outer joins of ``query`` because at least one has to;
        empty if all of them may follow these joins.

        Raises:
            QueryError: ``unsupported-sql``: an expansion has to precede outer joins but reads their
                right sides.
        """
        full = any(side.kind is JoinKind.FULL for side in query.outer)
        first = query.outer[0].source.node
        read = {alias for side in query.outer for alias in _compared(side, tables)}
        bases = _Links.of(replace(query, outer=()), tables, self.streams).bases
        needed, possible = False, list[RowGenerator]()
        for generator, base in zip(query.generators, bases, strict=True):
            early = full and not generator.follows(first)
            compared = generator.alias.lower() in read
            if base is not None and (early or not full):
                possible.append(generator)
            elif compared or not all(generator.follows(entry.node) for entry in query.entries):
                with at(generator.call):
                    raise unsupported(
                        f"{generator} before an outer join that may lack its row",
                        f"write (SELECT *, {generator} AS item FROM ...) in FROM",
                    )
            needed |= early or compared
        return possible if needed else []

    def _with_part(
        self,
        query: Unresolved,
        tables: FromTables,
        places: Collection[int],
        generators: Collection[RowGenerator],
    ) -> Unresolved:
        """``query`` with the sources at ``places`` and ``generators`` moved into a subquery;
        without ``generators``, the sources and all outer joins."""
        node = query.generators[0].call
        rows = Unresolved(
            tuple(one for place, one in enumerate(query.sources) if place in places), (), (),
            outer=() if generators else query.outer,
            generators=tuple(one for one in query.generators if one in generators),
        )  # fmt: skip
        outer = query.outer if generators else ()
        with at(node):
            inside = Inside.of(rows, query, self.streams)
        full = any(side.kind is JoinKind.FULL for side in query.outer)
        below, above = list[Condition](), list[tuple[Node, bool]]()
        for condition in query.conditions:
            where = isinstance(condition.node.parent, exp.Where)
            for part in operands(condition.node, exp.And):
                read = list(columns_in(part))
                own = bool(read) and all(inside.has(column, tables) for column in read)
                if own and not (where and full and outer):
                    kept = as_where([part]) if where else part
                    below.append(Condition(kept, len(rows.sources)))
                else:
                    above.append((part, where))
        others = [one for place, one in enumerate(query.sources) if place not in places]
        for entry in (*others, *(side.source for side in outer)):
            inside.keep(entry.using)
        shown = [one.alias for one in others if one.alias]
        shown += [side.source.alias for side in outer if side.source.alias and side.kind in SHOWN]
        shown += [one.alias for one in query.generators if one not in generators and not one.listed]
        items = list[SelectItem]()
        names = {(item.name or "").lower() for item in query.items}
        free = OutputNames(names)
        for item in query.items:
            if item.node is not None:
                items.append(item)
                continue
            for one in _of_tables(item, inside, rows.generators):
                for column in inside.starred(one):
                    if column.name is not None:
                        name = free.distinct(column.name, one.qualifier or "")
                        names.add(name.lower())
                        column = replace(column, name=name)
                    items.append(column)
            if item.qualifier is None:
                items += (replace(item, qualifier=alias) for alias in shown)
        sides = []

        def over(node: Node | None) -> Node | None:
            return None if node is None else inside.over(node, tables)

        for side in outer:
            asof = side.asof
            if asof is not None:
                asof = AsOf(over(asof.match), over(asof.time))
            sides.append(replace(side, on=over(side.on), asof=asof))
        left = list[RowGenerator]()
        for generator in query.generators:
            if generator not in rows.generators:
                call = inside.over(generator.call, tables)
                assert isinstance(call, exp.Anonymous)
                left.append(replace(generator, call=call))
        made = with_expressions(
            replace(query, items=tuple(items), conditions=()),
            lambda node: inside.over(node, tables),
        )
        conditions = []
        for part, where in above:
            changed = inside.over(part, tables)
            changed = as_where([changed]) if where else changed
            conditions.append(Condition(changed, 1 + len(others)))
        rows = replace(rows, conditions=tuple(below), items=inside.select())
        nested = clause_of(rows.generators) or (f"a {query.outer[0].called}", node)
        entry = FromEntry(replace(rows, nested=nested), inside.alias, node=query.sources[0].node)
        return replace(
            made,
            sources=(entry, *others),
            outer=tuple(sides),
            conditions=tuple(conditions),
            generators=tuple(left),
        )


def _compared(side: OuterSide, tables: FromTables) -> Iterator[str]:
    """The aliases (lower case) that the condition of an outer join reads."""
    nodes = [side.on, *((side.asof.match, side.asof.time) if side.asof is not None else ())]
    nodes += (exp.column(name) for name in side.source.using)
    for node in nodes:
        for column in () if node is None else columns_in(tables.qualified(node)):
            yield column.table.lower()


def _of_tables(
    item: SelectItem, inside: Inside, generators: Sequence[RowGenerator]
) -> Iterator[SelectItem]:
    """The star ``item`` over a subquery, as stars of its tables and of ``generators``."""
    if item.without or item.replaced:
        raise unsupported(
            "* with EXCEPT or REPLACE beside a join with expanded rows", "name the columns"
        )
    by_alias = {one.alias.lower(): one for one in generators}
    wanted = [item.qualifier] if item.qualifier else list(inside.tables.columns)
    for alias in wanted:
        generator = by_alias.get(alias.lower())
        if generator is not None and generator.listed and not item.qualifier:
            continue
        if generator is not None and not generator.columns:
            with at(generator.call):
                raise unsupported(
                    f"{generator} without the names of its columns beside this join",
                    "name them after AS",
                )
        yield replace(item, qualifier=alias)


def _is_plain(query: Unresolved) -> bool:
    """Whether ``query`` has no post-join part."""
    return query.post_join is None and not query.outer and not windows_of(query.items)


def _expands(query: Unresolved) -> bool:
    """Whether ``query`` expands its joined rows, and has no post-join part."""
    if not _is_plain(query):
        return False
    inner = (entry.of for entry in query.entries if isinstance(entry.of, Unresolved))
    return bool(query.generators) or any(o.nested is None and _expands(o) for o in inner)


@dataclass(slots=True)
class _Links:
    """The numbered sources of a FROM list, and their connections by equalities.

    Attributes:
        owner: alias (lower case) -> index of its source; for a table function, of the first source
            that it reads.
        bases: per table function, a source that it reads; None if it reads no source, or several
            that no equality connects.
        group: per source, the first source with which equalities connect it.
    """

    query: Unresolved
    tables: FromTables
    owner: dict[str, int] = field(default_factory=dict)
    bases: list[int | None] = field(default_factory=list)
    group: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, query: Unresolved, tables: FromTables, streams: Mapping[str, Stream]) -> _Links:
        """The sources of ``query``, and their connections; ``tables``: all tables in scope."""
        found = cls(query, tables, group=list(range(len(query.sources))))
        for place, entry in enumerate(query.sources):
            own = FromTables.of(Unresolved((entry,), (), ()), streams)
            found.owner |= dict.fromkeys(map(str.lower, own.columns), place)
            if entry.using or entry.natural:
                found._connect({0, place})
        items = {one.alias.lower() for one in query.generators}
        for left, right in found._equalities():
            if left and right and not (left | right) & items and left | right <= found.owner.keys():
                found._connect({found.owner[alias] for alias in left | right})
        for generator in query.generators:
            read = found._read(generator.call)
            known = {found.owner[alias] for alias in read & found.owner.keys()}
            whole = len({found.group[place] for place in known}) == 1
            whole = whole and read <= found.owner.keys()
            found.bases.append(min(known) if whole else None)
            if whole:
                found.owner[generator.alias.lower()] = min(known)
        return found

    def joined_by_items(self) -> tuple[list[int], list[RowGenerator]] | None:
        """Sources and expansions that must be in a subquery, because an equality of expanded
        columns joins them with other sources; None if there are none."""
        items = {one.alias.lower() for one in self.query.generators} & self.owner.keys()
        for pair in self._equalities():
            if not pair[0] | pair[1] <= self.owner.keys():
                continue
            for one, other in (pair, pair[::-1]):
                mine = {self.group[self.owner[alias]] for alias in one}
                theirs = {self.group[self.owner[alias]] for alias in other}
                if one & items and not other & items and len(mine) == 1 and theirs - mine:
                    (wanted,) = mine
                    places = [p for p, group in enumerate(self.group) if group == wanted]
                    bases = zip(self.query.generators, self.bases, strict=True)
                    return places, [one for one, base in bases if base in places]
        return None

    def _equalities(self) -> Iterator[tuple[set[str], set[str]]]:
        """For each equality among the conditions: the aliases that its two sides read."""
        for condition in self.query.conditions:
            for part in operands(condition.node, exp.And):
                if isinstance(part, exp.EQ):
                    yield self._read(part.this), self._read(part.expression)

    def _read(self, node: Node) -> set[str]:
        return {c.table.lower() for c in columns_in(self.tables.qualified(node))}

    def _connect(self, places: set[int]) -> None:
        groups = {self.group[place] for place in places}
        self.group = [min(groups) if one in groups else one for one in self.group]
