"""Resolution of names in SQL to columns. Names of aliases and columns are case-insensitive, as in
Spark.

A scope has the *tables* of a FROM list, each with its columns, and the *visible* columns: the
expansion of ``*`` and the candidates for unqualified names. ``JOIN ... USING (k)`` moves the left
``k`` to the front and hides the right one.

A table is a stream or a query. The columns of a query are expressions over the streams that it
reads; a name resolves to the expression, so the query is inlined. A stream of a query in FROM has a
qualified name, ``recent.orders``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.changes import IDENTITY
from anabranch_contract.queries.expressions import Call, Column, Expr, Literal, columns
from anabranch_contract.queries.joins import Stream
from anabranch_planner.sql.mistakes.words import meant_by
from anabranch_planner.sql.unresolved import RowGenerator, Unresolved, at

#: Operations whose result is NULL if one of their operands is.
_COMPUTING = frozenset({"add", "sub", "mul", "neg", "cast"})
#: Words before JOIN. One that is misspelt is read as an alias of the stream before it.
_KINDS = frozenset({"CROSS", "FULL", "INNER", "LEFT", "NATURAL", "OUTER", "RIGHT"})
#: Maximum number of names listed in a remedy.
_LISTED = 20


def closest(name: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """The known name most similar to ``name``, in its own spelling; None if no name has a
    similarity (0 to 1) of at least ``least``."""
    lowered = {k.lower(): k for k in sorted(set(known), key=lambda name: (name.lower(), name))}
    close = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=least)
    return lowered[close[0]] if close else None


def nearest(name: str, known: Iterable[str]) -> str:
    """A remedy: the known name that ``name`` probably means, or else all known names."""
    listed = sorted(set(known), key=lambda name: (name.lower(), name))
    close = closest(name, listed)
    if close is not None:
        return f"did you mean {close!r}?"
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return f"known: {', '.join(listed[:_LISTED])}{more}" if listed else "there are none"


def find_stream(name: str, streams: Mapping[str, Stream]) -> Stream:
    """The stream called ``name``: spelled exactly so, or else with other upper and lower case.

    Raises:
        QueryError: ``unknown-stream``.
    """
    if name in streams:
        return streams[name]
    found = [s for key, s in sorted(streams.items()) if key.lower() == name.lower()]
    if len(found) != 1:
        raise QueryError(
            "unknown-stream",
            f"there is no stream {name!r}"
            if not found
            else f"{name!r} may mean {' or '.join(repr(str(s.name)) for s in found)}",
            remedy=nearest(name, streams) if not found else "spell it exactly",
        )
    return found[0]


def unknown_streams(query: Unresolved, streams: Mapping[str, Stream]) -> Iterator[QueryError]:
    """The errors for names in FROM that denote no stream, one error per name."""
    seen, pending = set[str](), [query]
    while pending:
        one = pending.pop()
        pending += one.subqueries.values()
        pending += [entry.of for entry in one.entries if not isinstance(entry.of, str)]
        for entry in one.entries:
            name = entry.of
            if entry.node is not None and isinstance(name, str) and name not in seen:
                seen.add(name)
                try:
                    with at(entry.node):
                        find_stream(name, streams)
                except QueryError as error:
                    yield error


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column of a table in FROM: its name in the table, and its expression over the streams."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class FromTable:
    """One table of FROM: its columns in order, and the table's name in errors."""

    columns: tuple[ShownColumn, ...]
    what: str


@dataclass(frozen=True, slots=True)
class Scope:
    """The tables and columns of a FROM list.

    Attributes:
        streams: every stream that is read, by the alias of its columns.
        tables: tables by the name that qualifies their columns.
        visible: the columns of ``*``, and the candidates for unqualified names.
        registered: all registered streams, for remedies.
        computed: column of the nullable side of an outer join -> its expression over that side's
            rows (:meth:`nullable`).
    """

    streams: Mapping[str, Stream] = field(default_factory=dict)
    tables: Mapping[str, FromTable] = field(default_factory=dict)
    visible: tuple[ShownColumn, ...] = ()
    registered: Mapping[str, Stream] = field(default_factory=dict)
    computed: Mapping[Column, Expr] = field(default_factory=dict)

    @classmethod
    def of_stream(
        cls, alias: str, stream: Stream, within: str = "", names: Sequence[str] = ()
    ) -> Scope:
        """The scope of one stream, in a query whose streams have the prefix ``within``.

        Raises:
            QueryError: the number of ``names`` differs from the number of columns.
        """
        base = within + alias
        columns = tuple(
            ShownColumn(name, Column(base, name, kind))
            for name, kind in stream.columns
            if name != IDENTITY
        )
        what = f"stream {str(stream.name)!r} (alias {alias!r})"
        columns = _renamed(columns, names, what)
        return cls({base: stream}, {alias: FromTable(columns, what)}, columns)

    @classmethod
    def of_expansion(cls, generator: RowGenerator, columns: Sequence[ShownColumn]) -> Scope:
        """The scope of the columns that a table function adds, in FROM or in the SELECT list.

        Raises:
            QueryError: the numbers of names and columns differ.
        """
        what = f"{generator.function}()"
        shown = _renamed(tuple(columns), generator.columns, what)
        visible = () if generator.listed else shown
        return cls({}, {generator.alias: FromTable(shown, what)}, visible)

    def as_table(
        self, alias: str | None, columns: Iterable[ShownColumn], names: Sequence[str] = ()
    ) -> Scope:
        """The scope as its reader sees it: a table ``alias`` (None: unnamed) of ``columns``.

        Raises:
            QueryError: the number of ``names`` differs from the number of columns.
        """
        what = f"the subquery {alias!r}" if alias is not None else "a subquery"
        shown = _renamed(tuple(columns), names, what)
        return Scope(self.streams, {} if alias is None else {alias: FromTable(shown, what)}, shown)

    def joined(self, other: Scope, using: Iterable[str] = ()) -> Scope:
        """The scope of a join with ``other``; ``using``: columns that the join merges.

        Raises:
            QueryError: ``duplicate-alias``, or an unknown or ambiguous USING column.
        """
        twice = [a for a in other.tables if self.find_table(a) is not None]
        twice += [a for a in other.streams if a in self.streams]
        if twice:
            raise QueryError(
                "duplicate-alias",
                f"alias {twice[0]!r} occurs twice in FROM",
                remedy="give each occurrence an alias of its own: orders AS o2",
            )
        merged = [self.shown(name) for name in using]
        hidden = [other.shown(name) for name in using]
        return Scope(
            {**self.streams, **other.streams},
            {**self.tables, **other.tables},
            (
                *merged,
                *(c for c in self.visible if c not in merged),
                *(c for c in other.visible if c not in hidden),
            ),
            self.registered,
            {**self.computed, **other.computed},
        )

    def nullable(self) -> Scope:
        """The scope of the side of an outer join whose row may be missing.

        ``coalesce(x, 0)`` in a subquery has a value even if ``x`` is NULL, but must be NULL for a
        missing row. So such columns are computed from the present rows, as columns of their own.
        """
        computed: dict[Column, Expr] = {}

        def shown(column: ShownColumn) -> ShownColumn:
            expr = column.expr
            if is_null_without(expr):
                return column
            alias = min((c.alias for c in columns(expr)), default=next(iter(self.streams)))
            made = Column(alias, f"({expr})", expr.type)
            computed[made] = expr
            return ShownColumn(column.name, made)

        tables = {
            name: replace(table, columns=tuple(map(shown, table.columns)))
            for name, table in self.tables.items()
        }
        visible = tuple(map(shown, self.visible))
        return replace(self, tables=tables, visible=visible, computed={**self.computed, **computed})

    def common(self, other: Scope) -> tuple[str, ...]:
        """Names of visible columns that both scopes have, in order: the key of a NATURAL JOIN."""
        theirs = {c.name.lower() for c in other.visible}
        return tuple(c.name for c in self.visible if c.name.lower() in theirs)

    def find_table(self, name: str) -> str | None:
        """The declared spelling of the table called ``name``; None if there is none."""
        return next((a for a in self.tables if a.lower() == name.lower()), None)

    def table(self, name: str) -> FromTable:
        """The table called ``name``.

        Raises:
            QueryError: ``unknown-alias``.
        """
        found = self.find_table(name)
        if found is None:
            called = self._called(name)
            raise QueryError(
                "unknown-alias",
                f"there is no alias {name!r}",
                remedy=nearest(name, self.tables)
                if called is None
                else f"stream {name!r} is called {called!r} here{_joined_by(called)}",
            )
        return self.tables[found]

    def find_streams(self, name: str) -> list[str]:
        """Aliases of the streams that ``name`` denotes: of one stream, or of a query in FROM."""
        lowered = name.lower()
        exact = [a for a in self.streams if a.lower() == lowered]
        return exact or [a for a in self.streams if a.lower().startswith(f"{lowered}.")]

    def shown(self, name: str, qualifier: str = "") -> ShownColumn:
        """The column that the name ``name`` with an optional qualifier denotes.

        Raises:
            QueryError: ``unknown-alias``, ``unknown-column`` or ``ambiguous-column``.
        """
        if qualifier:
            table = self.table(qualifier)
            candidates, where = table.columns, table.what
        else:
            candidates, where = self.visible, "any of the joined streams"
        found = [c for c in candidates if c.name.lower() == name.lower()]
        if not found:
            raise QueryError(
                "unknown-column",
                f"there is no column {name!r} in {where}",
                remedy=self._meant(name, candidates, qualifier),
            )
        if len(found) > 1:
            meant = " or ".join(str(c.expr) for c in found)
            raise QueryError(
                "ambiguous-column",
                f"column {name!r} is ambiguous: it may mean {meant}",
                remedy=f"put the alias in front of it: {meant}",
            )
        return found[0]

    def _called(self, stream: str) -> str | None:
        """Alias of ``stream`` if FROM contains the stream exactly once, else None."""
        lowered = stream.lower()
        found = [a for a, s in self.streams.items() if str(s.name).lower() == lowered]
        return found[0] if len(found) == 1 and found[0] in self.tables else None

    def _meant(self, name: str, candidates: Iterable[ShownColumn], qualifier: str) -> str:
        """Remedy for an unknown column: tables that have a column ``name``; else streams that have
        one but are not joined; else tables with the most similar column name."""
        having = self._having(name)
        if qualifier and having:
            return f"write {' or '.join(having)}"
        lowered = name.lower()
        others = sorted(
            key
            for key, stream in self.registered.items()
            if stream not in self.streams.values()
            and any(column.lower() == lowered for column, _ in stream.columns)
        )
        if others:
            listed = " and ".join(map(repr, others[:_LISTED]))
            return f"join a stream that has it: {listed}"
        close = closest(name, (c.name for c in candidates))
        if close is None or qualifier or len(self.tables) < 2:
            return nearest(name, (c.name for c in candidates))
        return f"did you mean {' or '.join(self._having(close))}?"

    def _having(self, name: str) -> list[str]:
        """For each table with a column ``name``: the qualified name of the column."""
        lowered = name.lower()
        return [
            f"{alias}.{column.name}"
            for alias, table in self.tables.items()
            for column in table.columns
            if column.name.lower() == lowered
        ]

    def has(self, name: str) -> bool:
        """Whether there is a visible column called ``name``."""
        return any(c.name.lower() == name.lower() for c in self.visible)

    def column(self, name: str, qualifier: str = "") -> Expr:
        """The expression over streams of the column that a name denotes (see :meth:`shown`)."""
        return self.shown(name, qualifier).expr


def _joined_by(alias: str) -> str:
    """The kind of join that ``alias`` probably misspells, as the end of a remedy; else empty."""
    meant = meant_by(alias.upper())
    return f": did you mean {meant} JOIN?" if meant in _KINDS else ""


def is_null_without(expr: Expr) -> bool:
    """Whether ``expr`` is NULL if all columns in it are NULL."""
    while isinstance(expr, Call) and expr.op in _COMPUTING:
        expr = next((one for one in expr.args if not isinstance(one, Literal)), expr.args[0])
    return isinstance(expr, Column)


def _renamed(
    columns: tuple[ShownColumn, ...], names: Sequence[str], what: str
) -> tuple[ShownColumn, ...]:
    if not names:
        return columns
    if len(names) != len(columns):
        raise QueryError(
            "bad-column-list",
            f"{len(names)} names are given for the {len(columns)} columns of {what}",
            remedy="name all of them, or none",
        )
    return tuple(ShownColumn(name, c.expr) for name, c in zip(names, columns, strict=True))
