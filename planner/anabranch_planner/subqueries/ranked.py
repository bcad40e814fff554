"""Subqueries with rankings that can't be inlined, planned as queries of their own.

``SELECT … FROM (SELECT …, rank() OVER (…) AS r …) WHERE r <= 3`` is one statement with a ranking.
If the statement also reads other tables, does not limit the rank, or has further clauses, the
subquery becomes a query of its own (``sql.named``), whose rows contain their rank. A limit on the
rank is moved into this query.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from anabranch_contract.errors import QueryError
from anabranch_planner.binding.rankings import with_ranking
from anabranch_planner.sql.aggregates import function_over, windows_of
from anabranch_planner.sql.named import with_entries, within
from anabranch_planner.sql.unresolved import FromEntry, SelectItem, Unresolved

_EVERYTHING = (SelectItem(None),)


def ranked_apart(query: Unresolved) -> Unresolved:
    """``query`` with marks on subqueries with rankings that become queries of their own."""
    apart = _Apart()

    def below(one: Unresolved) -> Unresolved:
        made = with_entries(one, inside)
        # If a query only renames columns, its reader decides about the ranking inside.
        return made if _only_renames(made) else apart.separated(made)

    inside = within(below)
    return apart.separated(with_entries(query, inside))


@dataclass(slots=True)
class _Apart:
    """Marks subqueries with rankings. A query of WITH read repeatedly stays one object."""

    _marked: dict[int, tuple[Unresolved, Unresolved]] = field(default_factory=dict)

    def separated(self, query: Unresolved) -> Unresolved:
        """``query`` with its subqueries with rankings marked, unless both are one statement."""
        if _is_one_statement(query):
            return query
        limited = _with_limit(query)
        return with_entries(query, self._apart) if limited is None else limited

    def _apart(self, entry: FromEntry) -> FromEntry:
        inner = entry.of
        if isinstance(inner, str) or inner.nested is not None:
            return entry
        if id(inner) not in self._marked:
            made = inner
            if _only_renames(inner):
                made = with_entries(inner, self._apart)
            elif _is_ranked(inner):
                made = _marked(inner, entry)
            self._marked[id(inner)] = inner, made
        made = self._marked[id(inner)][1]
        return entry if made is inner else replace(entry, of=made)


def _marked(query: Unresolved, entry: FromEntry) -> Unresolved:
    windows = windows_of(query.items)
    name = f"{function_over(windows[0])}()" if windows else "a limit of places"
    return replace(query, nested=(name, entry.node))


def _only_renames(query: Unresolved) -> bool:
    """Whether ``query`` only renames its single source's columns, as ``WITH name(a, b)`` does."""
    plain = query.items == _EVERYTHING and not query.conditions and query.post_join is None
    return plain and len(query.sources) == 1 and not query.outer


def _is_ranked(query: Unresolved) -> bool:
    if query.branches or query.post_join is not None:
        return False
    return bool(windows_of(query.items)) or _is_one_statement(query)


def _is_one_statement(query: Unresolved) -> bool:
    """Whether ``query`` limits the rank in its only source, so that both are one statement."""
    if query.post_join is not None or query.branches or windows_of(query.items):
        return False
    try:
        return with_ranking(query) is not query
    except QueryError:
        return False


def _with_limit(query: Unresolved) -> Unresolved | None:
    """``query`` with its limit on the rank copied into its only source; None without a limit."""
    rows = replace(query, items=_EVERYTHING, post_join=None)
    if query.outer or query.subqueries or query.post_join is None or not _is_one_statement(rows):
        return None
    source = query.sources[0]
    marked = replace(source, of=_marked(rows, source), columns=())
    return replace(query, sources=(marked,), conditions=())
