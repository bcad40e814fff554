"""Equivalent syntax of a query: subqueries, WITH, parentheses, commas, commuted conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import sqlglot
from sqlglot import exp

from tests.support.scenarios.queries import Condition, Draft

#: Column of the draft, as (alias, column) -> column in the new statement, as (alias, column).
Columns = dict[tuple[str, str], tuple[str, str]]
_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.EQ, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Respelled:
    """A statement, and the alias in its normal form for each alias of the draft."""

    sql: str
    aliases: Mapping[str, str]


def respell(
    draft: Draft, columns: Mapping[str, Sequence[str]], rng: np.random.Generator
) -> Respelled:
    """Write ``draft`` in unusual syntax.

    Args:
        columns: the columns of each stream.
    """
    writer = _Writer(columns, rng)
    select = [text for text, _, _ in draft.select]
    conditions = list(draft.conditions)
    from_, where, found, paths = writer.joined(draft.members, conditions, select, 0)
    items = [f"{writer.moved(text, found)} AS {name}" for text, name, _ in draft.select]
    with_ = f"WITH {', '.join(writer.ctes)} " if writer.ctes else ""
    sql = f"{with_}SELECT {', '.join(items)} FROM {from_}{_where(where)}"
    return Respelled(sql, paths)


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


@dataclass(slots=True)
class _Writer:
    columns: Mapping[str, Sequence[str]]
    rng: np.random.Generator
    ctes: list[str] = field(default_factory=list)

    def joined(
        self,
        members: Sequence[tuple[str, str]],
        conditions: list[Condition],
        select: Sequence[str],
        depth: int,
    ) -> tuple[str, list[str], Columns, dict[str, str]]:
        """Return ``members`` as a FROM list, under all of ``conditions``.

        Returns:
            The list, the conditions left for WHERE, the new name of each column, the path of each
            alias.
        """
        rng = self.rng
        groups = self._groups(members, depth)
        text, where, seen = "", [], set[str]()
        found: Columns = {}
        paths: dict[str, str] = {}
        for number, group in enumerate(groups):
            names = {alias for alias, _ in group}
            inner = [c for c in conditions if set(c.aliases) <= names and rng.random() < 0.7]
            conditions = [c for c in conditions if c not in inner]
            outside = [*select, *(c.text for c in conditions)]
            piece, own, shown = self._piece(group, inner, outside, depth)
            found |= own
            paths |= shown
            seen |= names
            if number == 0:
                text = piece
                continue
            on = [c for c in conditions if set(c.aliases) <= seen and rng.random() < 0.8]
            conditions = [c for c in conditions if c not in on]
            if on:
                text += f" {self._word('JOIN', 'INNER JOIN')} {piece} ON {self._all(on, found)}"
            else:
                text += f" {self._word('CROSS JOIN', 'JOIN')} {piece}"
        if conditions:
            where.append(self._all(conditions, found))
        return text, where, found, paths

    def moved(self, text: str, found: Columns) -> str:
        """Return ``text`` with every column replaced by its new name."""

        def replace(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column):
                alias, column = found[node.table, node.name]
                return exp.column(column, alias)
            return node

        return sqlglot.parse_one(text, read="spark").transform(replace).sql(dialect="spark")

    def _commuted(self, text: str) -> str:
        parsed = sqlglot.parse_one(text, read="spark")
        if type(parsed) in _FLIPPED and self.rng.random() < 0.5:
            parsed = _FLIPPED[type(parsed)](this=parsed.expression, expression=parsed.this)
        return parsed.sql(dialect="spark")

    def _groups(
        self, members: Sequence[tuple[str, str]], depth: int
    ) -> list[list[tuple[str, str]]]:
        order = [members[int(i)] for i in self.rng.permutation(len(members))]
        groups: list[list[tuple[str, str]]] = []
        for member in order:
            if (
                groups
                and depth < 3
                and self.rng.random() < 0.4
                and len(groups[-1]) + 1 < len(order)
            ):
                groups[-1].append(member)
            else:
                groups.append([member])
        return groups

    def _piece(
        self,
        group: list[tuple[str, str]],
        inner: list[Condition],
        outside: Sequence[str],
        depth: int,
    ) -> tuple[str, Columns, dict[str, str]]:
        """Return one item of a FROM list: a stream, tables in parentheses, or a query."""
        rng = self.rng
        if len(group) == 1 and not inner and (depth > 2 or rng.random() < 0.6):
            alias, stream = group[0]
            same = {(alias, c): (alias, c) for c in self.columns[stream]}
            return f"{stream} {self._word('', 'AS ')}{alias}", same, {alias: alias}
        if len(group) > 1 and rng.random() < 0.3:
            text, where, found, paths = self.joined(group, inner, outside, depth + 1)
            if not where:
                return f"({text})", found, paths
        alias = "".join(a for a, _ in group) + "_" + self._word("x", "y")
        text, where, found, paths = self.joined(group, inner, outside, depth + 1)
        wanted = [key for key in found if any(_reads(t, key) for t in outside)] or [
            next(iter(found))
        ]
        shown = {key: (alias, f"c{number}") for number, key in enumerate(wanted)}
        items = [f"{a}.{c} AS {shown[key][1]}" for key in wanted for a, c in (found[key],)]
        query = f"SELECT {', '.join(items)} FROM {text}{_where(where)}"
        if rng.random() < 0.4:
            name = f"w{len(self.ctes)}"
            self.ctes.append(f"{name} AS ({query})")
            piece = f"{name} AS {alias}"
        else:
            piece = f"({query}) AS {alias}"
        return piece, shown, {a: f"{alias}.{path}" for a, path in paths.items()}

    def _all(self, conditions: Sequence[Condition], found: Columns) -> str:
        texts = [self._commuted(self.moved(c.text, found)) for c in conditions]
        texts += [t for t in texts if self.rng.random() < 0.1]
        order = self.rng.permutation(len(texts))
        return " AND ".join(f"({texts[int(i)]})" for i in order)

    def _word(self, *words: str) -> str:
        return str(self.rng.choice(list(words)))


def _reads(text: str, key: tuple[str, str]) -> bool:
    columns = sqlglot.parse_one(text, read="spark").find_all(exp.Column)
    return any((c.table, c.name) == key for c in columns)
