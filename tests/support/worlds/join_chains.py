"""Random chains of inner, outer, semi and anti joins, with the same meaning in Spark and in DuckDB.

Streams and columns are in :mod:`.changed_views`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

_NUMBERS = {"a": ("k", "v"), "b": ("k", "w"), "c": ("v",)}
_OTHERS = {"a": ("g",), "b": (), "c": ("t",)}
_KINDS = ("JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "FULL JOIN")
_HIDING = ("SEMI JOIN", "ANTI JOIN")
_COMPARED = ("<", "<=", ">", ">=", "<>")


@dataclass
class ChainGrammar:
    """Draws one statement; ``most``: maximum number of tables."""

    rng: Random
    most: int = 4
    _shown: list[str] = field(init=False, default_factory=list)

    def statement(self) -> str:
        """Draw a statement over two tables or more."""
        rng = self.rng
        first = self._table(0)
        text, self._shown = first[0], [first[1]]
        if rng.random() < 0.1:
            text, inside = self._nested(*first, 0)
            self._shown.append(inside)
        for number in range(1, rng.randint(2, self.most)):
            table, alias = self._table(number)
            if rng.random() < 0.12:
                text += f" {rng.choice(_HIDING)} {table} ON {self._condition(alias)}"
                continue
            kind = rng.choice(_KINDS)
            if rng.random() < 0.12:
                table, inside = self._nested(table, alias, number)
                text += f" {kind} {table} ON {self._condition(alias)}"
                self._shown += [alias, inside]
                continue
            using = kind != "RIGHT JOIN" and len(self._shown) == 1 == number and rng.random() < 0.25
            both = set(_NUMBERS[alias[0]]) & set(_NUMBERS[self._shown[0][0]])
            if using and both:
                text += f" {kind} {table} USING ({rng.choice(sorted(both))})"
            else:
                text += f" {kind} {table} ON {self._condition(alias)}"
            self._shown.append(alias)
        return self._selected(text)

    def _selected(self, text: str) -> str:
        rng, numbers = self.rng, self._numbers()
        if rng.random() < 0.4:
            text += f" WHERE {self._filter()}"
        if rng.random() < 0.3:
            key, value = rng.choice(numbers), rng.choice(numbers)
            call = rng.choice(("sum({x})", "min({x})", "count({x})", "count(*)", "max({x})"))
            having = rng.choice(("", " HAVING count(*) > 1"))
            return (
                f"SELECT {key} AS c0, {call.format(x=value)} AS c1 FROM {text} "
                f"GROUP BY {key}{having}"
            )
        texts = [f"{alias}.{c}" for alias in self._shown for c in _OTHERS[alias[0]]]
        columns = numbers + texts
        wanted = rng.sample(columns, rng.randint(1, min(4, len(columns))))
        items = [f"{column} AS c{n}" for n, column in enumerate(wanted)]
        if rng.random() < 0.3:
            pair = rng.choice(numbers), rng.choice(numbers)
            items.append(f"coalesce({pair[0]}, {pair[1]} + 1) AS s")
        distinct = "DISTINCT " if rng.random() < 0.1 else ""
        return f"SELECT {distinct}{', '.join(items)} FROM {text}"

    def _table(self, number: int) -> tuple[str, str]:
        """Draw a table in FROM, and its alias."""
        name = self.rng.choice(("a", "b", "c"))
        return f"{name} {name}{number}", f"{name}{number}"

    def _nested(self, table: str, alias: str, number: int) -> tuple[str, str]:
        """Draw a join in parentheses, and the alias of its second table."""
        other, inside = self._table(number + 10)
        left, right = (self.rng.choice(_NUMBERS[one[0]]) for one in (alias, inside))
        kind = self.rng.choice(("JOIN", "JOIN", *_KINDS))
        return f"({table} {kind} {other} ON {inside}.{right} = {alias}.{left})", inside

    def _numbers(self) -> list[str]:
        return [f"{alias}.{c}" for alias in self._shown for c in _NUMBERS[alias[0]]]

    def _condition(self, alias: str) -> str:
        """Draw a condition that joins ``alias`` with tables before it."""
        rng = self.rng
        before = self._numbers()
        own = [f"{alias}.{c}" for c in _NUMBERS[alias[0]]]
        found = [f"{rng.choice(own)} = {rng.choice(before)}"]
        drawn = rng.random()
        if drawn < 0.2:
            found.append(f"{rng.choice(own)} {rng.choice(_COMPARED)} {rng.choice(before)}")
        elif drawn < 0.35:
            found.append(f"{rng.choice(own)} = {rng.choice(before)}")
        elif drawn < 0.45:
            found.append(f"{rng.choice((*own, *before))} > {rng.randrange(4)}")
        return " AND ".join(found)

    def _filter(self) -> str:
        rng, numbers = self.rng, self._numbers()
        found = []
        for _ in range(rng.choice((1, 1, 2))):
            one = rng.choice(numbers)
            found.append(
                rng.choice(
                    (
                        f"{one} {rng.choice(_COMPARED)} {rng.randrange(6)}",
                        f"{one} IS NULL",
                        f"({one} IS NULL OR {rng.choice(numbers)} >= {rng.randrange(6)})",
                    )
                )
            )
        return " AND ".join(found)
