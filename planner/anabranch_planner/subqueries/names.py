"""Tables in FROM before name resolution, to find the columns of outer queries in subqueries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from anabranch_contract.queries.changes import IDENTITY
from anabranch_contract.queries.joins import Stream
from anabranch_planner.binding.look_ups import SHOWN
from anabranch_planner.sql.scope import find_stream
from anabranch_planner.sql.unresolved import FromEntry, Node, Unresolved, at

#: Key in a column's metadata that marks a column in a subquery's condition as the outer query's.
OUTER = "outer"


@dataclass(frozen=True, slots=True)
class FromTables:
    """The tables of a FROM list before name resolution.

    Attributes:
        columns: alias (as declared; empty for a subquery without one) -> columns in lower case.
        merged: columns of USING, in lower case; ``natural``: whether a join is NATURAL.
    """

    columns: Mapping[str, tuple[str, ...]]
    merged: frozenset[str] = frozenset()
    natural: bool = False

    @classmethod
    def of(cls, query: Unresolved, streams: Mapping[str, Stream]) -> FromTables:
        """The tables that expressions of ``query`` may read.

        Raises:
            QueryError: ``unknown-stream``.
        """
        found: dict[str, tuple[str, ...]] = {}
        merged, natural = set[str](), False
        shown = (side.source for side in query.outer if side.kind in SHOWN)
        for entry in (*query.sources, *shown):
            merged |= {name.lower() for name in entry.using}
            natural |= entry.natural
            if isinstance(entry.of, Unresolved) and entry.alias is None and is_bracket(entry.of):
                inner = cls.of(entry.of, streams)
                found |= inner.columns
                merged |= inner.merged
                natural |= inner.natural
            else:
                columns = entry.columns or tuple(_columns(entry, streams))
                found[entry.alias or ""] = tuple(name.lower() for name in columns)
        found |= {one.alias: tuple(map(str.lower, one.names)) for one in query.generators}
        return cls(found, frozenset(merged), natural)

    def has(self, column: exp.Column) -> bool:
        """Whether ``column`` may belong to one of these tables."""
        if column.table:
            return any(alias.lower() == column.table.lower() for alias in self.columns)
        return any(column.name.lower() in names for names in self.columns.values())

    def qualified(self, node: Node) -> Node:
        """A copy of ``node`` in which columns of these tables are spelled uniformly: with alias,
        and in lower case. Ambiguous names get no alias."""

        def spelled(part: Node) -> Node:
            if not isinstance(part, exp.Column) or isinstance(part.this, exp.Star):
                return part
            if OUTER in part.meta:
                return part
            alias = self._alias(part)
            return part if alias is None else column_of(alias, part.name.lower(), part)

        return replaced(node, spelled)

    def _alias(self, column: exp.Column) -> str | None:
        name, table = column.name.lower(), column.table.lower()
        if table:
            return next((a for a in self.columns if a.lower() == table), None)
        found = [alias for alias, names in self.columns.items() if name in names]
        several = len(found) > 1 and not self.natural and name not in self.merged
        return None if several or not found else (found[0] or None)


def _columns(entry: FromEntry, streams: Mapping[str, Stream]) -> Iterator[str]:
    """The names of the columns that an entry of FROM has under its alias, before resolution."""
    if isinstance(entry.of, str):
        with at(entry.node):
            stream = find_stream(entry.of, streams)
        yield from (name for name, _ in stream.columns if name != IDENTITY)
        return
    if entry.of.branches:
        first = entry.of.branches[0]
        yield from first.columns or _columns(first, streams)
        return
    tables = FromTables.of(entry.of, streams)
    for item in entry.of.items:
        if item.node is not None:
            yield item.name or (item.node.name if isinstance(item.node, exp.Column) else "")
            continue
        wanted = (item.qualifier or "").lower()
        once = set[str]()
        for alias, names in tables.columns.items():
            if not wanted or alias.lower() == wanted:
                kept = [n for n in names if n.lower() not in item.without]
                yield from (n for n in kept if n not in once or n not in tables.merged)
                once |= set(names)


def is_bracket(query: Unresolved) -> bool:
    """Whether ``query`` represents joins in parentheses."""
    return not (query.items or query.branches)


def column_of(alias: str, name: str, written: Node | None = None) -> exp.Column:
    """The column ``alias.name``, at the position of ``written``."""
    made = exp.Column(this=exp.Identifier(this=name), table=exp.Identifier(this=alias))
    if written is not None:
        made.this.meta.update(written.meta if "line" in written.meta else written.this.meta)
    return made


def replaced(node: Node, change: Callable[[Node], Node]) -> Node:
    """A copy of ``node`` with parts outside subqueries replaced by ``change``, top-down."""
    holder = exp.Paren(this=node.copy())
    pending: list[Node] = [holder.this]
    while pending:
        part = pending.pop()
        made = change(part)
        if made is not part:
            part.replace(made)
        elif not isinstance(part, exp.Query):
            pending += part.iter_expressions()
    whole: Node = holder.this
    return whole.copy()


def columns_in(node: Node) -> Iterator[exp.Column]:
    """The columns named in ``node``, except in its subqueries."""
    for part in node.walk(prune=lambda part: isinstance(part, exp.Query)):
        if isinstance(part, exp.Column):
            yield part


def anchor_of(query: Unresolved, streams: Mapping[str, Stream]) -> exp.Column | None:
    """An arbitrary column of the first table of FROM; None if that table has no name."""
    entry = query.sources[0]
    if isinstance(entry.of, Unresolved):
        if entry.alias is None:
            return anchor_of(entry.of, streams) if is_bracket(entry.of) else None
        return next((column_of(entry.alias, c) for c in _columns(entry, streams) if c), None)
    stream = find_stream(entry.of, streams)
    operation = None if stream.changes is None else stream.changes.operation
    names = zip(stream.columns, entry.columns or [c for c, _ in stream.columns], strict=False)
    shown = (n for (column, _), n in names if column not in (operation, IDENTITY))
    return next((column_of(entry.alias or entry.of, name) for name in shown), None)
