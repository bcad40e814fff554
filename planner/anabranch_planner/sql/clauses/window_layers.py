"""Rewriting of several rankings, or of a ranking with DISTINCT, ORDER BY and LIMIT, as queries of
WITH.

A maintained table computes a single ranking of its rows. So a SELECT with several rankings becomes
a sequence of queries of WITH, and a final SELECT that reads the last of these. Each query adds one
ranking to the columns of the query before it. DISTINCT, ORDER BY, LIMIT and OFFSET are in the final
SELECT.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.views import FRAMED
from anabranch_planner.sql.aggregates import (
    PLACES,
    WINDOWED,
    function_over,
    holds_aggregate,
    windows_in,
)
from anabranch_planner.sql.arguments import refuse_others
from anabranch_planner.sql.clauses.partition_totals import (
    LAST,
    become,
    can_be_table,
    is_ordered,
    of,
    take_last,
    unaliased,
    write_out,
)
from anabranch_planner.sql.clauses.qualified import filter_windows
from anabranch_planner.sql.unresolved import Node, at, unsupported

_RANKED = "anabranch_ranked"
#: Maximum number of different windows in one SELECT, because each becomes a maintained table.
MOST_WINDOWS = 32


def layer_windows(statement: Node) -> None:
    """Replace SELECTs in ``statement`` that have aggregates over partitions (``partition_totals``),
    several rankings, or a ranking and LIMIT, by queries of WITH; and replace names of windows by
    their definitions.

    Raises:
        QueryError: ``unnamed-output``: an item beside an aggregate over a partition has no name.
            ``unknown-alias``: a window's name is not defined. ``too-many-windows``.
    """
    for select in statement.find_all(exp.Select):
        _name_windows(select)
        _limit_windows(select)
    filter_windows(statement)
    write_out(statement)
    for select in reversed(list(statement.find_all(exp.Select))):
        windows = [window for item in select.expressions for window in windows_in(item)]
        if not windows or not all(map(_can_be_layered, windows)) or not can_be_table(select):
            continue
        items = [unaliased(item) for item in select.expressions]
        if select.args.get("group") is not None or any(map(holds_aggregate, items)):
            continue
        if not all(isinstance(item, exp.Alias | exp.Column) for item in select.expressions):
            continue
        layers = _layers(windows)
        if len(layers) > 1 or any(select.args.get(name) for name in LAST):
            _Layering(select, layers).apply()


def _limit_windows(select: exp.Select) -> None:
    windows = [window for item in select.expressions for window in windows_in(item)]
    kinds = {(tuple(w.args.get("partition_by") or ()), w.args.get("order")) for w in windows}
    if len(kinds) > MOST_WINDOWS:
        raise QueryError(
            "too-many-windows",
            f"SELECT has {len(kinds)} windows of different PARTITION BY or ORDER BY",
            remedy=f"write {MOST_WINDOWS} at most: a table is kept for each",
        )


def _name_windows(select: exp.Select) -> None:
    """Replace names of windows in ``select`` by their definitions in its WINDOW clause."""
    named = {str(one.name).lower(): one for one in select.args.get("windows") or ()}
    unread = dict(named)
    clauses = (select.args.get(name) for name in ("qualify", "order"))
    for part in (*select.expressions, *(clause for clause in clauses if clause is not None)):
        for window in list(windows_in(part)):
            alias = window.args.get("alias")
            if alias is None:
                continue
            refuse_others(window, {"this", "alias", "over", "spec"})
            found = named.get(str(alias.name).lower())
            if found is None:
                with at(window):
                    raise QueryError(
                        "unknown-alias",
                        f"there is no window {alias.name!r}",
                        remedy=f"write WINDOW {alias.name} AS (PARTITION BY k ORDER BY x)",
                    )
            refuse_others(found, {"this", "partition_by", "order", "spec"})
            unread.pop(str(alias.name).lower(), None)
            made = found.copy()
            if window.args.get("spec") and made.args.get("spec"):
                with at(window):
                    raise unsupported(
                        f"a frame in OVER ({alias.name} ...) beside that of WINDOW {alias.name}",
                        "leave one of them out",
                    )
            window.set("alias", None)
            # Functions without a frame do not get the frame of a WINDOW that they share.
            if WINDOWED.get(function_over(window)) in FRAMED:
                made.set("spec", window.args.get("spec") or made.args.get("spec"))
            else:
                made.set("spec", window.args.get("spec"))
            for name in ("partition_by", "order", "spec"):
                window.set(name, made.args.get(name))
    for name, window in unread.items():
        with at(window):
            raise unsupported(f"WINDOW {name} without a function OVER {name}", "leave it out")
    select.set("windows", None)


def _can_be_layered(window: Node) -> bool:
    inside = any(True for part in window.iter_expressions() for _ in windows_in(part))
    return is_ordered(window) and not inside


def _layers(windows: list[Node]) -> list[list[Node]]:
    """The window functions in groups that one maintained table can compute: with equal partition
    and order, and at most one ranking function."""
    found: list[list[Node]] = []
    for window in windows:
        for layer in found:
            ranked = {function_over(one) for one in (*layer, window)} & PLACES
            same = all(
                window.args.get(name) == layer[0].args.get(name)
                for name in ("partition_by", "order")
            )
            if same and len(ranked) <= 1:
                layer.append(window)
                break
        else:
            found.append([window])
    return found


@dataclass(slots=True)
class _Layering:
    """Rewriting of one SELECT with several windows.

    Attributes:
        layers: the SELECT's windows, as one list per query of WITH.
        columns: expression over a row, or window -> name of its column.
        inline: windows that the final SELECT computes itself.
    """

    select: exp.Select
    layers: list[list[Node]]
    columns: dict[Node, str] = field(default_factory=dict)
    inline: list[Node] = field(default_factory=list)

    def apply(self) -> None:
        """Replace the SELECT in place by queries of WITH and a final SELECT."""
        select = self.select
        if not any(select.args.get(name) for name in LAST):
            # The final SELECT may compute one ranking itself.
            self.inline = self.layers.pop()
        last = f"{_RANKED}{len(self.layers)}"
        for item in select.expressions:
            node = unaliased(item)
            if not any(True for _ in windows_in(node)):
                self.columns.setdefault(node, item.alias_or_name)
        items = [
            exp.alias_(self._over(unaliased(item), last), item.alias_or_name, quoted=True)
            for item in select.expressions
        ]
        names = {item.alias_or_name.lower() for item in select.expressions}
        order = select.args.get("order")
        for entry in [] if order is None else order.expressions:
            key = entry.this
            shown = isinstance(key, exp.Column) and not key.table and key.name.lower() in names
            if not shown and not isinstance(key, exp.Literal):
                entry.set("this", self._over(key, last))
        for window in (window for layer in self.layers[1:] for window in layer):
            for part in window.iter_expressions():
                self._over(part, last)
        rows = select.copy()
        queries = [self._first(rows)]
        for number, layer in enumerate(self.layers[1:], 2):
            queries.append(self._next(number, layer))
        outer = exp.Select(expressions=items).from_(exp.to_table(last), copy=False)
        take_last(select, outer)
        become(select, outer, [(f"{_RANKED}{n}", query) for n, query in enumerate(queries, 1)])

    def _first(self, rows: exp.Select) -> exp.Select:
        """The first query of WITH: expressions over rows, and the first window functions."""
        for name in (*LAST, "with_"):
            rows.set(name, None)
        windows = {window for layer in self.layers for window in layer}
        columns = [(node, name) for node, name in self.columns.items() if node not in windows]
        columns += [(window, self._window(window)) for window in self.layers[0]]
        rows.set("expressions", [exp.alias_(n.copy(), c, quoted=True) for n, c in columns])
        return rows

    def _next(self, number: int, layer: list[Node]) -> exp.Select:
        """Query ``number`` of WITH: columns of the previous query, and the functions ``layer``."""
        table = f"{_RANKED}{number - 1}"
        later = {window for one in self.layers[number - 1 :] for window in one}
        names = [name for node, name in self.columns.items() if node not in later]
        items: list[Node] = [exp.alias_(of(table, name), name, quoted=True) for name in names]
        for window in dict.fromkeys(layer):
            made = window.copy()
            pairs = zip(list(window.iter_expressions()), list(made.iter_expressions()), strict=True)
            for old, child in pairs:
                child.replace(self._over(old, table))
            items.append(exp.alias_(made, self._window(window), quoted=True))
        return exp.Select(expressions=items).from_(exp.to_table(table), copy=False)

    def _over(self, node: Node, table: str) -> Node:
        """``node`` with expressions that the query ``table`` computes replaced by its columns."""
        if node in self.columns:
            return of(table, self.columns[node])
        if is_ordered(node) and node not in self.inline:
            return of(table, self._window(node))
        if isinstance(node, exp.Column):
            name = f"anabranch_r{len(self.columns) + 1}"
            self.columns[node.copy()] = name
            return of(table, name)
        made = node.copy()
        pairs = zip(list(node.iter_expressions()), list(made.iter_expressions()), strict=True)
        for old, child in pairs:
            child.replace(self._over(old, table))
        return made

    def _window(self, window: Node) -> str:
        return self.columns.setdefault(window.copy(), f"anabranch_w{len(self.columns) + 1}")
