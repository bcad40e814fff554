"""Random statements with subqueries in expressions, which have the same meaning in Spark and
DuckDB.

Streams and columns are in :mod:`.changed_views`. Scalar subqueries give at most one row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from tests.support.worlds.derived import Derived
from tests.support.worlds.service import Service

#: FROM clause -> its numeric columns, its text columns.
_OUTER = {
    "a": (("a.k", "a.v"), ("a.g",)),
    "b": (("b.k", "b.w"), ()),
    "a JOIN b ON b.k = a.k": (("a.k", "a.v", "b.w"), ("a.g",)),
    "a JOIN c ON c.v = a.v JOIN b ON b.k = a.k": (("a.k", "c.v", "b.w"), ("a.g", "c.t")),
    "a LEFT JOIN b ON b.k = a.k": (("a.k", "a.v", "b.w"), ("a.g",)),
    "a FULL JOIN b ON b.k = a.k": (("a.k", "a.v", "b.w"), ("a.g",)),
    "(SELECT a.k, a.v + 1 AS u, a.g AS h FROM a WHERE a.v > 1) s": (("s.k", "s.u"), ("s.h",)),
    "(SELECT b.k, count(*) AS n, max(b.w) AS m FROM b GROUP BY b.k) s": (
        ("s.k", "s.n", "s.m"),
        (),
    ),
    "a SEMI JOIN b ON b.k = a.k": (("a.k", "a.v"), ("a.g",)),
}
#: FROM clauses of a subquery, with ``{n}`` in their aliases.
_INNER = {
    "a a{n}": (("a{n}.k", "a{n}.v"), ("a{n}.g",)),
    "b b{n}": (("b{n}.k", "b{n}.w"), ()),
    "c c{n}": (("c{n}.v",), ("c{n}.t",)),
    "a a{n} JOIN b b{n} ON b{n}.k = a{n}.k": (("a{n}.k", "a{n}.v", "b{n}.w"), ("a{n}.g",)),
    "a a{n} JOIN c c{n} ON c{n}.v = a{n}.v": (("a{n}.k", "c{n}.v"), ("a{n}.g", "c{n}.t")),
    "(SELECT a.k, a.v AS u, a.g AS h FROM a WHERE a.v < 6) s{n}": (
        ("s{n}.k", "s{n}.u"),
        ("s{n}.h",),
    ),
    "(SELECT b.k, count(*) AS m, max(b.w) AS u FROM b GROUP BY b.k) s{n}": (
        ("s{n}.k", "s{n}.m", "s{n}.u"),
        (),
    ),
}
_AGGREGATES = (
    "max({x})", "min({x})", "sum({x})", "count({x})", "count(*)", "max({x}) + count(*)",
    "sum({x}) * 2", "coalesce(min({x}), 3)", "count(DISTINCT {x})", "max({x}) - min({y})",
)  # fmt: skip
_COMPARED = ("<", "<=", ">", ">=", "=", "<>")


class Drawing(Protocol):
    """Protocol of a grammar of random statements."""

    def statement(self) -> str:
        """Return a random statement."""


@dataclass(frozen=True, slots=True)
class From:
    """FROM clause of a query: its text, its numeric and text columns."""

    text: str
    numbers: tuple[str, ...]
    texts: tuple[str, ...]

    @classmethod
    def draw(cls, rng: Random, number: int) -> From:
        """Return a random FROM clause for subquery ``number``; 0: for the statement."""
        text, (numbers, texts) = rng.choice(list((_INNER if number else _OUTER).items()))
        if not number:
            return cls(text, numbers, texts)
        return cls(
            text.format(n=number),
            tuple(c.format(n=number) for c in numbers),
            tuple(c.format(n=number) for c in texts),
        )


@dataclass
class Grammar:
    """Random generation of one statement with subqueries.

    Attributes:
        depth: levels of subqueries in subqueries. ``number``: of the last subquery.
    """

    rng: Random
    depth: int = 2
    number: int = field(init=False, default=0)

    def statement(self) -> str:
        """Return a random statement with at least one subquery."""
        while True:
            self.number = 0
            drawn = self._drawn()
            if self.number:
                return drawn

    def _drawn(self) -> str:
        rng, outer = self.rng, From.draw(self.rng, 0)
        grouped = rng.random() < 0.35
        where = self._where(outer, 0.4 if grouped else 0.85)
        if not grouped:
            items = [self._item(outer) for _ in range(rng.randint(1, 3))]
            distinct = "DISTINCT " if rng.random() < 0.1 else ""
            named = ", ".join(f"{item} AS c{n}" for n, item in enumerate(items))
            return f"SELECT {distinct}{named} FROM {outer.text}{where}"
        columns = (*outer.numbers, *outer.texts)
        keys = rng.sample(columns, rng.randint(0, min(2, len(columns))))
        x = rng.choice(outer.numbers)
        items = [*keys, *(self._aggregate(outer) for _ in range(rng.randint(1, 2)))]
        groups = From("", (*(k for k in keys if k in outer.numbers), f"sum({x})", "count(*)"), ())
        if self._chance(0.5):
            items.append(self.value(groups))
        named = ", ".join(f"{item} AS c{n}" for n, item in enumerate(items))
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        having = ""
        if self._chance(0.7):
            having = f" HAVING {self.condition(groups)}"
        elif rng.random() < 0.3:
            having = " HAVING count(*) > 1"
        return f"SELECT {named} FROM {outer.text}{where}{by}{having}"

    def _chance(self, share: float) -> bool:
        return self.rng.random() < share

    def _aggregate(self, source: From) -> str:
        rng = self.rng
        x, y = rng.choice(source.numbers), rng.choice(source.numbers)
        return rng.choice(_AGGREGATES).format(x=x, y=y)

    def _item(self, outer: From) -> str:
        drawn = self.rng.random()
        if drawn < 0.6:
            return self.rng.choice((*outer.numbers, *outer.texts))
        if drawn < 0.9:
            return self.value(outer)
        exists = self._existence(outer, is_in=self._chance(0.4))
        return self.rng.choice((f"CASE WHEN {exists} THEN 1 ELSE 0 END", f"({exists})"))

    def value(self, outer: From) -> str:
        """Return a numeric expression with a scalar subquery."""
        rng, scalar = self.rng, self._scalar(outer)
        x = rng.choice(outer.numbers)
        forms = ("{s}", "{s}", "{s} + {x}", "coalesce({s}, 0)", "coalesce({s}, {x})",
                 "CASE WHEN {x} > 3 THEN {s} ELSE {x} END")  # fmt: skip
        return rng.choice(forms).format(s=scalar, x=x)

    def _where(self, outer: From, share: float) -> str:
        if not self._chance(share):
            return ""
        conjuncts = [self.condition(outer) for _ in range(self.rng.choice((1, 1, 2)))]
        return f" WHERE {' AND '.join(conjuncts)}"

    def condition(self, outer: From) -> str:
        """Return a condition, mostly with a subquery."""
        rng = self.rng
        x, y = rng.choice(outer.numbers), rng.choice(outer.numbers)
        plain = rng.choice((f"{x} > 2", f"{x} IS NOT NULL", f"{x} < 5 AND {y} <> 3"))
        drawn, op = rng.random(), rng.choice(_COMPARED)
        if drawn < 0.1:
            return plain
        if drawn < 0.4:
            forms = ("{x} {op} {s}", "{s} {op} {x}", "NOT ({x} {op} {s})", "{s} IS NULL",
                     "({x} {op} {s} OR {p})", "{x} + {s} {op} {y}", "{x} BETWEEN {s} AND 6",
                     "coalesce({s}, 2) {op} {x}", "({s} IS NOT NULL AND {p})")  # fmt: skip
            scalar = self._scalar(outer)
            return rng.choice(forms).format(x=x, y=y, op=op, s=scalar, p=plain)
        exists = self._existence(outer, is_in=rng.random() < 0.5)
        whole = ("{e}", "{e}", "{e}", "NOT ({e})", "NOT ({e})", "({e} OR {p})", "({p} AND {e})",
                 "(NOT ({e}) OR {p})")  # fmt: skip
        return rng.choice(whole).format(e=exists, p=plain)

    # --- subqueries ------------------------------------------------------------------------------

    def _inner(self) -> From:
        self.number += 1
        return From.draw(self.rng, self.number)

    def _conditions(self, inner: From, outer: From, share: float) -> tuple[str, list[str]]:
        """Return the WHERE conditions of a subquery, and its columns in correlated equalities."""
        rng, found, own = self.rng, list[str](), list[str]()
        columns = [c for c in outer.numbers if "(" not in c]
        while columns and self._chance(share) and len(own) < 2:
            column, other = rng.choice(inner.numbers), rng.choice(columns)
            other = other if rng.random() < 0.85 else f"{other} + 1"
            own.append(column)
            pair = [column, other]
            rng.shuffle(pair)
            found.append(" = ".join(pair))
            share /= 3
        if inner.texts and outer.texts and self._chance(0.15):
            own.append(rng.choice(inner.texts))
            found.append(f"{own[-1]} = {rng.choice(outer.texts)}")
        if own and self._chance(0.15):
            found.append(
                f"{rng.choice(inner.numbers)} {rng.choice(_COMPARED)} {rng.choice(columns)}"
            )
        if self._chance(0.4):
            found.append(f"{rng.choice(inner.numbers)} {rng.choice(_COMPARED)} {rng.randrange(6)}")
        if self.depth > 1 and self._chance(0.2):
            self.depth -= 1
            found.append(self.condition(inner))
            self.depth += 1
        rng.shuffle(found)
        return (f" WHERE {' AND '.join(found)}" if found else ""), own

    def _scalar(self, outer: From) -> str:
        rng = self.rng
        if plain := [c for c in outer.numbers if "(" not in c and self._chance(0.1)]:
            self.number += 1
            alias = f"s{self.number}"
            return (
                f"(SELECT {alias}.u FROM (SELECT b.k AS h, max(b.w) AS u FROM b GROUP BY b.k) "
                f"{alias} WHERE {alias}.h = {plain[0]})"
            )
        inner = self._inner()
        where, own = self._conditions(inner, outer, 0.65)
        drawn = rng.random()
        if drawn < 0.15:
            shown = rng.choice(inner.numbers)
            order = rng.choice(("", " DESC"))
            return (
                f"(SELECT {shown} FROM {inner.text}{where} ORDER BY {shown}{order} "
                "NULLS LAST LIMIT 1)"
            )
        if own and own[0] in inner.numbers and drawn < 0.25:
            return f"(SELECT {own[0]} FROM {inner.text}{where} LIMIT 1)"
        tail = ""
        if own and len(set(own)) == 1 and drawn < 0.4:
            tail = f" GROUP BY {own[0]}"
        if drawn > 0.85:
            tail += " HAVING count(*) > 1"
        return f"(SELECT {self._aggregate(inner)} FROM {inner.text}{where}{tail})"

    def _existence(self, outer: From, *, is_in: bool) -> str:
        """Return a condition with ``EXISTS`` or ``IN``."""
        rng, inner = self.rng, self._inner()
        where, _ = self._conditions(inner, outer, 0.2 if is_in else 0.85)
        if not is_in:
            if not self._chance(0.15):
                return f"EXISTS (SELECT {rng.choice(('1', '*'))} FROM {inner.text}{where})"
            key = rng.choice(inner.numbers)
            tail = f" GROUP BY {key} HAVING count(*) > 1"
            return f"EXISTS (SELECT {key} FROM {inner.text}{where}{tail})"
        x, shown = rng.choice(outer.numbers), rng.choice(inner.numbers)
        tail, drawn = "", rng.random()
        if drawn < 0.25:
            tail = f" GROUP BY {shown}" + rng.choice(("", " HAVING count(*) > 1"))
        elif drawn < 0.35:
            key = rng.choice(inner.numbers)
            tail, shown = f" GROUP BY {key}", f"max({shown})"
        elif drawn < 0.45:
            shown = f"max({shown})"
        elif drawn < 0.55:
            shown = f"DISTINCT {shown}"
        elif drawn < 0.59:
            other, second = rng.choice(inner.numbers), rng.choice(outer.numbers)
            # DuckDB can't compare rows (structs) in correlated subqueries.
            where = f" WHERE {other} > {rng.randrange(4)}"
            return f"({x}, {second}) IN (SELECT {shown}, {other} FROM {inner.text}{where})"
        return f"{x} IN (SELECT {shown} FROM {inner.text}{where}{tail})"


def run_seed(
    service: Service, folder: Path, seed: int, grammar_of: Callable[[Random], Drawing] = Grammar
) -> Counter[str]:
    """Run random statements of a grammar, registered at random times, over inserts and deletes,
    with kills; compare with DuckDB at the end.

    Raises:
        AssertionError: a query is not what it should be, or a refusal lacks place or remedy.
    """
    rng = Random(seed)
    world, grammar = Derived(service, folder, rng), grammar_of(rng)
    for number in range(rng.randint(2, 3)):
        name, sql = f"q{number}", grammar.statement()
        answer = service.http.post("/v1/queries", json={"id": name, "sql": sql})
        if not answer.is_success:
            error = answer.json()
            assert (error["code"], error["errors"][0]["field"]) == ("unsupported-sql", "sql"), sql
            assert error["remedy"], (sql, error)
            world.events["refused"] += 1
            continue
        world.statements[name] = sql
        for _ in range(rng.choice((0, 1, 3))):
            world.draw()
            world.turn(killed=0.25)
    for _ in range(3):
        for _ in range(rng.randint(1, 3)):
            world.draw()
            world.turn(killed=0.25)
        world.settle()
        world.check()
    read = [service.get(f"/v1/queries/{name}")["reads"] for name in world.statements]
    world.events["parts"] += sum(map(len, read))
    return world.events
