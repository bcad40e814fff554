"""Random statements of all kinds, each in our SQL and in DuckDB's.

A statement is drawn from FROM upwards: relations (streams, registered queries, WITH, subqueries),
chains of joins, conditions with subqueries, and one clause above them (rows, groups, windows,
rankings, first rows), or a set operation of such statements. Its features are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from tests.support.combined.streams import CURRENT, SCHEMAS, Kind
from tests.support.worlds import subqueries
from tests.support.worlds.subqueries import From

#: Aggregates over numbers ``x``, ``y`` and a text ``g``: in our SQL, in DuckDB's if it differs, and
#: the kind of the result: number (n), text (t) or other (o).
_AGGREGATES = (
    ("count(*)", "", "n"),
    ("count({x})", "", "n"),
    ("count({g})", "", "n"),
    ("sum({x})", "", "n"),
    ("sum({x} + {y})", "", "n"),
    ("min({x})", "", "n"),
    ("max({x})", "", "n"),
    ("min({g})", "", "t"),
    ("max({g})", "", "t"),
    ("avg({x})", "", "o"),
    ("median({x})", "", "o"),
    ("var_samp({x})", "", "o"),
    ("count(DISTINCT {x})", "", "n"),
    ("count(DISTINCT {g})", "", "n"),
    ("sum(DISTINCT {x})", "", "n"),
    ("approx_count_distinct({x})", "count(DISTINCT {x})", "n"),
    ("count(*) FILTER (WHERE {x} > 2)", "", "n"),
    ("sum({x}) FILTER (WHERE {y} < 4)", "", "n"),
    ("max({x}) FILTER (WHERE {g} = 'x')", "", "n"),
    ("count_if({x} > 2)", "count(*) FILTER (WHERE {x} > 2)", "n"),
    ("bool_or({x} > 4)", "", "o"),
    (
        "max_by({x}, {y})",
        "(list({x} ORDER BY {y} DESC NULLS LAST, {x} DESC NULLS LAST) FILTER ({y} IS NOT NULL))[1]",
        "n",
    ),
    (
        "percentile_disc(0.5) WITHIN GROUP (ORDER BY {x})",
        "CAST(percentile_disc(0.5) WITHIN GROUP (ORDER BY {x}) AS DOUBLE)",
        "o",
    ),
    (
        "listagg({g}, ',') WITHIN GROUP (ORDER BY {g})",
        "string_agg({g}, ',' ORDER BY {g})",
        "o",
    ),
    (
        "collect_list({x})",
        "coalesce(list({x} ORDER BY {x}) FILTER (WHERE {x} IS NOT NULL), [])",
        "o",
    ),
)
_FEATURES_OF_AGGREGATES = (
    ("DISTINCT", "aggregate DISTINCT"),
    ("FILTER", "FILTER"),
    ("min(", "min or max"),
    ("max(", "min or max"),
)
_HAVING = ("count(*) > 1", "sum({x}) > 4", "max({x}) <> 3", "count({x}) < 5", "min({x}) IS NULL")
_PLAIN = (
    "{x} > 1", "{x} < 6", "{x} <> {y}", "{x} IS NOT NULL", "({x} > 2 OR {y} < 4)",
    "{x} IN (1, 2, 3, 5)", "{x} BETWEEN 1 AND 5", "{g} = 'x'", "{g} LIKE 'x%'", "NOT ({x} = 3)",
    "{x} + {y} < 9", "coalesce({x}, 3) > 2",
)  # fmt: skip
#: Window functions; the first two read no column.
_FRAMED = (
    "count(*) OVER ({over} ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)", "ntile(3) OVER ({over})",
    "sum({x}) OVER ({over})", "lead({x}, 1, -1) OVER ({over})",
    "avg({x}) OVER ({over} ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
    "min({x}) OVER ({over} ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING)",
    "max({x}) OVER ({over} RANGE BETWEEN 1 PRECEDING AND 2 FOLLOWING)",
    "first_value({x}) OVER ({over} ROWS 2 PRECEDING)",
    "sum({x}) OVER ({over} GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE TIES)",
    "min({x}) OVER ({over} ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE CURRENT ROW)",
)  # fmt: skip
#: Window functions whose value depends on a row's position among equal rows.
_BY_PLACE = re.compile(r"ROWS|ntile|lead")
_COLUMN = re.compile(r"\b(r\d+)\.(\w+)")
_EPOCH = "epoch_us({t})"
#: Probabilities that a statement expands the first relation, or all joined rows.
_FIRST, _LAST = 0.08, 0.12
#: Probabilities of a statement that follows a table, and of an outer join of latest rows.
_FOLLOWED, _KEPT = 0.12, 0.06


@dataclass(frozen=True, slots=True)
class Text:
    """A text in our SQL and in DuckDB's."""

    spark: str
    duck: str

    @classmethod
    def both(cls, text: str) -> Text:
        """Return a text that is the same in both dialects."""
        return cls(text, text)

    def format(self, *parts: Text) -> Text:
        """Return the text with ``{}`` replaced by ``parts``, in both dialects."""
        return Text(
            self.spark.format(*(p.spark for p in parts)), self.duck.format(*(p.duck for p in parts))
        )


@dataclass(frozen=True, slots=True)
class Relation:
    """An item of FROM.

    Attributes:
        times: event times of rows that are never NULL-extended.
        streams: aliases of streams whose tuples may complete a result.
        versions: aliases of tables, and of streams that keep the latest rows.
    """

    text: Text
    numbers: tuple[str, ...]
    texts: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    where: tuple[Text, ...] = ()

    def beside(self, other: Relation, text: Text, *, nullable: bool = False) -> Relation:
        """Join with ``other`` by ``text``; ``nullable``: by an outer join."""
        return replace(
            self,
            text=text,
            numbers=self.numbers + other.numbers,
            texts=self.texts + other.texts,
            times=self.times + (() if nullable else other.times),
            where=self.where + other.where,
        )


def _listed(shown: Sequence[tuple[Text, str, str]]) -> Text:
    """Return the SELECT list of items (expression, name, kind)."""
    sides = [t.spark for t, _, _ in shown], [t.duck for t, _, _ in shown]
    names = [name for _, name, _ in shown]
    return Text(*(", ".join(f"{t} AS {n}" for t, n in zip(s, names, strict=True)) for s in sides))


@dataclass(frozen=True, slots=True)
class Statement:
    """A random statement.

    Attributes:
        columns: (name, kind) of the output; a kind is ``n`` (number), ``t`` (text), ``o`` (other).
        reads: the streams and queries in FROM and in subqueries.
        by_arrival: whether results depend on the batches in which tuples arrive; DuckDB's SQL then
            reads them from columns ``arr_`` and ``sup_``, and has ``{since}`` for the first batch
            with results.
        features: number of occurrences of each feature.
    """

    text: Text
    columns: tuple[tuple[str, str], ...]
    reads: frozenset[str]
    by_arrival: bool
    features: Mapping[str, int]


@dataclass
class Grammar:
    """Draws random statements.

    Attributes:
        kinds: stream -> its kind.
        readable: registered query -> its columns.
    """

    rng: Random
    kinds: Mapping[str, Kind]
    readable: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    features: Counter[str] = field(init=False, default_factory=Counter)
    _reads: set[str] = field(init=False, default_factory=set)
    _with: dict[str, Sequence[tuple[str, str]]] = field(init=False, default_factory=dict)
    _number: int = field(init=False, default=0)
    _by_arrival: bool = field(init=False, default=False)
    _inner: subqueries.Grammar = field(init=False)

    def __post_init__(self) -> None:
        self._inner = subqueries.Grammar(self.rng, depth=1)

    def statement(self) -> Statement:
        """Draw a statement."""
        self.features, self._reads, self._with, self._number = Counter(), set(), {}, 0
        self._by_arrival = False
        self._inner = subqueries.Grammar(self.rng, depth=1)
        drawn = self.rng.random()
        if drawn < 0.1:
            text, columns = self._by_arrival_statement()
        elif drawn < 0.2:
            inner, known = self._select(1, shape=True)
            self._with = {"u": known}
            features, reads = self.features, self._reads
            while True:
                self.features, self._reads = Counter(features), set(reads)
                text, columns = self._select(0)
                if re.search(r"\bu r\d", text.spark):
                    break
            text = Text("WITH u AS ({}) {}", "WITH u AS ({}) {}").format(inner, text)
            self.features["WITH"] += 1
        elif drawn < 0.36:
            text, columns = self._set_operation(1)
        elif (apart := Random(repr(self.rng.getstate()[1][:8])).random()) < _FOLLOWED:
            text, columns = self._following_statement()
        elif apart < _FOLLOWED + _KEPT:
            text, columns = self._kept_statement()
        else:
            text, columns = self._select(1)
        found = frozenset(self._reads | set(re.findall(r"\b(?:FROM|JOIN) ([abc]) ", text.spark)))
        return Statement(text, tuple(columns), found, self._by_arrival, dict(self.features))

    # --- helpers ---------------------------------------------------------------------------------

    def _chance(self, share: float) -> bool:
        return self.rng.random() < share

    def _alias(self) -> str:
        self._number += 1
        return f"r{self._number}"

    def _filled(self, pattern: str, source: Relation) -> str:
        x, y = self.rng.choice(source.numbers), self.rng.choice(source.numbers)
        return pattern.format(x=x, y=y, g=self.rng.choice(source.texts or (f"'{x[:1]}'",)))

    def _plain(self, source: Relation) -> str:
        while True:
            pattern = self.rng.choice(_PLAIN)
            if source.texts or "{g}" not in pattern:
                return self._filled(pattern, source)

    # --- FROM ------------------------------------------------------------------------------------

    def _stream(self, name: str) -> Relation:
        self._reads.add(name)
        self.features[f"kind {self.kinds[name]}"] += 1
        alias = self._alias()
        columns = SCHEMAS[name]
        numbers = tuple(f"{alias}.{c}" for c in columns if c in ("k", "v", "w"))
        texts = tuple(f"{alias}.{c}" for c in columns if c in ("g", "t"))
        times = tuple(f"{alias}.{c}" for c in columns if c == "ts")
        return Relation(Text.both(f"{name} {alias}"), numbers, texts, times, (alias,))

    def _columns_of(self, text: Text, columns: Sequence[tuple[str, str]], alias: str) -> Relation:
        of = {kind: tuple(f"{alias}.{c}" for c, k in columns if k == kind) for kind in "nt"}
        return Relation(text, of["n"], of["t"])

    def _relation(self, depth: int) -> Relation:
        """Draw a relation with at least one number."""
        drawn, rng = self.rng.random(), self.rng
        named = [(n, c) for n, c in self.readable.items() if any(k == "n" for _, k in c)]
        if self._with and drawn < 0.6:
            alias, columns = self._alias(), self._with["u"]
            return self._columns_of(Text.both(f"u {alias}"), columns, alias)
        if named and drawn < 0.25:
            name, columns = rng.choice(named)
            self._reads.add(name)
            self.features["query by name"] += 1
            alias = self._alias()
            return self._columns_of(Text.both(f"{name} {alias}"), columns, alias)
        if depth and drawn < 0.4:
            union = self._chance(0.3)
            text, columns = self._set_operation(0) if union else self._select(0, shape=True)
            alias = self._alias()
            self.features["subquery in FROM"] += 1
            return self._columns_of(Text(f"({{}}) {alias}", f"({{}}) {alias}").format(text),
                                    columns, alias)  # fmt: skip
        return self._stream(rng.choice("aaabbbcchhdf"))

    def _on(
        self, left: Relation, right: Relation, *, residual: float = 0.25, timed: bool = True
    ) -> str:
        """Draw a condition with an equality; ``timed``: it may bound event times, so that outer
        joins emit final rows at deadlines.
        """
        rng = self.rng
        x, y = rng.choice(left.numbers), rng.choice(right.numbers)
        pair = [x, y if self._chance(0.9) else f"{y} + 1"]
        rng.shuffle(pair)
        condition = " = ".join(pair)
        if left.texts and right.texts and self._chance(0.1):
            condition += f" AND {rng.choice(left.texts)} = {rng.choice(right.texts)}"
        if timed and left.times and right.times and self._chance(0.4):
            self.features["time bound"] += 1
            near = f"{left.times[0]} {{}} INTERVAL '20' MINUTE"
            condition += f" AND {right.times[0]} BETWEEN {near.format('-')} AND {near.format('+')}"
        if self._chance(residual):
            u, v = rng.choice(left.numbers), rng.choice(right.numbers)
            condition += f" AND {rng.choice((f'{v} > 1', f'{v} < {u}', f'{u} < 6'))}"
        return condition

    def _joined(self, left: Relation, kind: str, right: Relation, on: str) -> Relation:
        text = Text(f"{{}} {kind} {{}} ON {on}", f"{{}} {kind} {{}} ON {on}")
        text = text.format(left.text, right.text)
        if kind.startswith(("SEMI", "ANTI")):
            return replace(left, text=text)
        return left.beside(right, text, nullable=kind != "JOIN")

    def _from(self, depth: int) -> Relation:
        # A separate generator, so that statements of known seeds change only by expansions.
        apart = Random(repr(self.rng.getstate()[1][:8]))
        return self._expanded(self._joins(depth, apart), apart, _LAST)

    def _expanded(self, source: Relation, apart: Random, share: float) -> Relation:
        """Return ``source``, sometimes with a row per element of an array of its numbers."""
        if apart.random() >= share or not source.numbers:
            return source
        x, y = apart.choice(source.numbers), apart.choice(source.numbers)
        alias, outer = self._alias(), apart.random() < 0.3
        self.features["expansion"] += 1
        spark, duck = f"array({x}, {y}, 3)", f"[{x}, {y}, 3]"
        if outer:
            self.features["outer expansion"] += 1
            spark, duck = (
                f"CASE WHEN {x} > 2 THEN {spark} END",
                f"CASE WHEN {x} > 2 THEN {duck} ELSE [NULL] END",
            )
        view = f"LATERAL VIEW {'OUTER ' * outer}explode({spark}) {alias} AS e"
        if share < _LAST:
            view = f"CROSS JOIN LATERAL explode({spark}) AS {alias}(e)"
            if outer:
                view = f"LEFT JOIN LATERAL explode({spark}) AS {alias}(e) ON TRUE"
        text = Text(f"{{}} {view}", f"{{}} CROSS JOIN LATERAL (SELECT unnest({duck}) AS e) {alias}")
        return replace(
            source, text=text.format(source.text), numbers=(*source.numbers, f"{alias}.e")
        )

    def _joins(self, depth: int, apart: Random) -> Relation:
        rng, drawn = self.rng, self.rng.random()
        left = self._expanded(self._relation(depth), apart, _FIRST)
        if drawn < 0.3:
            return left
        if drawn < 0.58:
            for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
                right = self._relation(depth if self._chance(0.3) else 0)
                left = self._joined(left, "JOIN", right, self._on(left, right))
                self.features["inner join"] += 1
            return left
        if drawn < 0.84:
            kinds = [rng.choice(("LEFT JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN", "JOIN"))
                     for _ in range(rng.choice((1, 1, 2, 2, 3)))]  # fmt: skip
            if self._chance(0.15):
                kinds[0] = "RIGHT JOIN"
            if set(kinds) == {"JOIN"}:
                kinds[-1] = "LEFT JOIN"
            for kind in kinds:
                right = self._relation(depth if self._chance(0.2) else 0)
                on = self._on(left, right, timed=kind == "JOIN")
                self.features[kind.lower()] += 1
                if kind == "RIGHT JOIN":
                    left = replace(self._joined(left, kind, right, on), times=right.times)
                else:
                    left = self._joined(left, kind, right, on)
            self.features["chain of outer joins"] += len(kinds) > 1
            return left
        if drawn < 0.92:
            if self._chance(0.3):
                right = self._stream(rng.choice("abc"))
                left = self._joined(left, "JOIN", right, self._on(left, right))
            right = self._relation(0)
            self.features["full join"] += 1
            made = self._joined(
                left, "FULL JOIN", right, self._on(left, right, residual=0.1, timed=False)
            )
            return replace(made, times=())
        return self._nearest(left)

    def _nearest(self, left: Relation) -> Relation:
        """Draw an ASOF join with a stream, from which the statement reads one more column."""
        rng = self.rng
        kind = rng.choice(("LEFT ", ""))
        if left.times and self._chance(0.5):
            right = self._stream(rng.choice("df"))
            alias, (key, value) = right.streams[0], right.numbers
            same, time = f"{key} = {rng.choice(left.numbers)}", left.times[0]
            self.features["FOR SYSTEM_TIME AS OF"] += 1
            spark = (
                f"{{}} {kind}JOIN {right.text.spark.split()[0]} FOR SYSTEM_TIME AS OF {time} "
                f"{alias} ON {same}"
            )
            op, column, order = "<=", f"{alias}.ts", "DESC"
            below = f"{column} {op} {time}"
            others = [value]
        else:
            right = self._stream(rng.choice("ab"))
            alias, key, column = right.streams[0], right.numbers[0], right.numbers[1]
            same, x = f"{key} = {rng.choice(left.numbers)}", rng.choice(left.numbers)
            op = rng.choice(("<=", "<", ">=", ">"))
            below, order = f"{column} {op} {x}", "DESC" if op[0] == "<" else "ASC"
            self.features["ASOF join"] += 1
            spark = f"{{}} ASOF {kind}JOIN {right.text.spark} ON {same} AND {below}"
            others = []
        name = right.text.spark.split()[0]
        nulls = "NULLS LAST" if order == "DESC" else "NULLS FIRST"
        by = ", ".join(f"{c} {order} {nulls}" for c in (column, *others))
        lateral = (
            f"{{}} {kind}JOIN LATERAL (SELECT * FROM {name} {alias} WHERE {same} AND {below} "
            f"ORDER BY {by} LIMIT 1) {alias} ON true"
        )
        text = Text(spark, lateral).format(left.text, Text("", ""))
        read = replace(right, numbers=(key, *(others or (column,))), texts=(), times=())
        return left.beside(read, text, nullable=True)

    # --- WHERE -----------------------------------------------------------------------------------

    def _where(self, source: Relation, share: float = 0.45) -> Text:
        found = list(source.where)
        if self._chance(share):
            found.append(Text.both(self._plain(source)))
        # For rows of subqueries, the batches of arrival would matter as well.
        if not self._by_arrival and self._chance(0.22):
            before = self._inner.number
            condition = self._inner.condition(From("", source.numbers, source.texts))
            if self._inner.number > before:
                self._subqueries(condition)
            found.append(Text.both(condition))
        sides = [f.spark for f in found], [f.duck for f in found]
        texts = [" AND ".join(f"({c})" for c in some if c) for some in sides]
        return Text(*(f" WHERE {text}" if text else "" for text in texts))

    def _subqueries(self, text: str) -> None:
        exists, inside = text.count("EXISTS (SELECT"), text.count(" IN (SELECT")
        self.features["EXISTS"] += bool(exists)
        self.features["IN subquery"] += bool(inside)
        self.features["scalar subquery"] += text.count("(SELECT") > exists + inside

    # --- SELECT ----------------------------------------------------------------------------------

    def _select(self, depth: int, *, shape: bool = False) -> tuple[Text, list[tuple[str, str]]]:
        """Draw a SELECT; ``shape``: its columns are a number ``x`` and a text ``g``."""
        while True:
            known = Counter(self.features), set(self._reads)
            source = self._from(depth)
            if source.numbers and (source.texts or not shape):
                break
            self.features, self._reads = known
        where, drawn = self._where(source), self.rng.random()
        if shape:
            if drawn < 0.5:
                return self._rows(source, where, shape=True)
            return self._groups(source, where, shape=True) if drawn < 0.85 else self._top(
                source, where, shape=True
            )  # fmt: skip
        if source.times and drawn < 0.6:
            return self._window(source, where)
        if drawn < 0.4:
            return self._rows(source, where)
        if drawn < 0.75:
            return self._groups(source, where)
        if drawn < 0.83:
            return self._framed(source, where)
        return self._ranked(source, where) if drawn < 0.92 else self._top(source, where)

    def _items(self, source: Relation, *, shape: bool = False) -> list[tuple[str, str, str]]:
        """Draw SELECT items (expression, name, kind)."""
        rng = self.rng
        if shape:
            x, g = rng.choice(source.numbers), rng.choice(source.texts)
            return [(x if self._chance(0.8) else f"{x} + 1", "x", "n"), (g, "g", "t")]
        found = []
        for number in range(rng.randint(1, 4)):
            name = f"c{number}"
            if source.texts and self._chance(0.3):
                found.append((rng.choice(source.texts), name, "t"))
            else:
                forms = ("{x}", "{x}", "{x}", "{x} + {y}", "coalesce({x}, -1)",
                         "CASE WHEN {x} > 2 THEN {y} ELSE 0 END")  # fmt: skip
                found.append((self._filled(rng.choice(forms), source), name, "n"))
        return found

    def _rows(
        self, source: Relation, where: Text, *, shape: bool = False
    ) -> tuple[Text, list[tuple[str, str]]]:
        items = self._items(source, shape=shape)
        if not shape and not self._by_arrival and self._chance(0.15):
            value = self._inner.value(From("", source.numbers, source.texts))
            self._subqueries(value)
            items.append((value, f"c{len(items)}", "n"))
        distinct = "DISTINCT " if self._chance(0.15) else ""
        self.features["DISTINCT"] += bool(distinct)
        listed = ", ".join(f"{text} AS {name}" for text, name, _ in items)
        whole = Text.both(f"SELECT {distinct}{listed} FROM {{}}{{}}").format(source.text, where)
        return whole, [(name, kind) for _, name, kind in items]

    def _aggregate(self, source: Relation) -> tuple[Text, str]:
        while True:
            spark, duck, kind = self.rng.choice(_AGGREGATES)
            if source.texts or "{g}" not in spark:
                break
        x, y = self.rng.choice(source.numbers), self.rng.choice(source.numbers)
        g = self.rng.choice(source.texts or ("",))
        for word, feature in _FEATURES_OF_AGGREGATES:
            self.features[feature] += word in spark
        texts = [pattern.format(x=x, y=y, g=g) for pattern in (spark, duck or spark)]
        return Text(*texts), kind

    def _groups(
        self, source: Relation, where: Text, *, shape: bool = False
    ) -> tuple[Text, list[tuple[str, str]]]:
        rng = self.rng
        self.features["aggregates"] += 1
        if shape:
            key = rng.choice(source.texts)
            while True:
                aggregate, kind = self._aggregate(source)
                if kind == "n":
                    break
            shown = [(aggregate, "x", "n"), (Text.both(key), "g", "t")]
            keys = [key]
        else:
            columns = (*source.numbers, *source.texts)
            keys = rng.sample(columns, min(len(columns), rng.choice((0, 1, 1, 1, 2, 2))))
            shown = [(Text.both(k), f"k{n}", "n" if k in source.numbers else "t")
                     for n, k in enumerate(keys)]  # fmt: skip
            for number in range(rng.randint(1, 3)):
                aggregate, kind = self._aggregate(source)
                shown.append((aggregate, f"v{number}", kind))
        by, having, duck_having = ", ".join(keys), "", ""
        if keys and self._chance(0.3):
            having = duck_having = self._filled(rng.choice(_HAVING), source)
            self.features["HAVING"] += 1
        if keys and not shape and self._chance(0.2):
            form = rng.choice(("ROLLUP", "CUBE", "GROUPING SETS"))
            self.features[form] += 1
            sets = [f"({k})" for k in keys] + ["()"] * self._chance(0.5)
            by = f"{form} ({', '.join(sets) if form == 'GROUPING SETS' else by})"
            # Without rows, Spark has no total, but DuckDB has one.
            duck_having = f"count(*) > 0{f' AND ({having})' if having else ''}"
        tails = Text(
            (f" GROUP BY {by}" if by else "") + (f" HAVING {having}" if having else ""),
            (f" GROUP BY {by}" if by else "") + (f" HAVING {duck_having}" if duck_having else ""),
        )
        order = ""
        if keys and "(" not in by and not shape and self._chance(0.15):
            self.features["ORDER BY LIMIT"] += 1
            first = rng.choice([n for _, n, k in shown if k in "nt"])
            order = f" ORDER BY {first} DESC NULLS LAST, " + ", ".join(
                f"{key} NULLS FIRST" for key in keys
            )
            order += f" LIMIT {rng.randint(1, 4)}"
        whole = Text.both("SELECT {} FROM {}{}{}{}").format(
            _listed(shown), source.text, where, tails, Text.both(order)
        )
        return whole, [(name, kind) for _, name, kind in shown]

    def _window(self, source: Relation, where: Text) -> tuple[Text, list[tuple[str, str]]]:
        """Draw groups of a time window."""
        rng, time = self.rng, source.times[0]
        columns = (*source.numbers, *source.texts)
        keys = rng.sample(columns, rng.choice((0, 1, 1)))
        shown = [(Text.both(k), f"k{n}", "n" if k in source.numbers else "t")
                 for n, k in enumerate(keys)]  # fmt: skip
        for number in range(rng.randint(1, 2)):
            aggregate, kind = self._aggregate(source)
            shown.append((aggregate, f"v{number}", kind))
        form, flink = rng.choice(("TUMBLE", "HOP", "SESSION")), self._chance(0.4)
        if form == "HOP" and len(shown) % 2:
            # Chosen without the generator, so that known seeds keep their other statements.
            form = "CUMULATE"
        self.features[form] += 1
        listed = _listed(shown)
        by = "".join(f", {k}" for k in keys)
        micros = _EPOCH.format(t=time)
        if form == "SESSION":
            window = f"session_window({time}, '5 minutes')"
            start, end = "session_window.start", "session_window.end"
            if flink:
                window = f"SESSION({time}, INTERVAL '5' MINUTE)"
                start, end = f"SESSION_START({window[8:]}", f"SESSION_END({window[8:]}"
            duck = self._sessions(source, where, listed.duck, keys, time)
        else:
            slide = 5 if form == "HOP" else 10
            slid = ", '5 minutes'" if form == "HOP" else ""
            window = f"window({time}, '10 minutes'{slid})"
            start, end = "window.start", "window.end"
            if flink or form == "CUMULATE":
                inside = f"{time}, " + "INTERVAL '5' MINUTE, " * (form != "TUMBLE")
                inside += "INTERVAL '10' MINUTE)"
                window = f"{form}({inside}"
                start, end = f"{form}_START({inside}", f"{form}_END({inside}"
            first = f"({micros} - {micros} % {slide * 60_000_000}"
            first += " - hop.n * 300000000)" if form == "HOP" else ")"
            last = f"{first} + 600000000"
            hop, found = " CROSS JOIN range(2) hop(n)" * (form != "TUMBLE"), where.duck
            if form == "CUMULATE":
                last = f"{first} + (hop.n + 1) * 300000000"
                found += f"{' AND' if found else ' WHERE'} {last} > {micros}"
            duck = (
                f"SELECT {listed.duck}, make_timestamptz({first}) AS w0, "
                f"make_timestamptz({last}) AS w1 FROM {source.text.duck}{hop}"
                f"{found} GROUP BY {first}, {last}{by}"
            )
        spark = (
            f"SELECT {listed.spark}, {start} AS w0, {end} AS w1 FROM {source.text.spark}"
            f"{where.spark} GROUP BY {window}{by}"
        )
        columns_of = [(name, kind) for _, name, kind in shown]
        return Text(spark, duck), [*columns_of, ("w0", "o"), ("w1", "o")]

    def _sessions(
        self, source: Relation, where: Text, listed: str, keys: list[str], time: str
    ) -> str:
        """Return a grouping by sessions in DuckDB's SQL."""

        def flat(text: str) -> str:
            return _COLUMN.sub(r"\1_\2", text)

        gap = 5 * 60_000_000
        columns = dict.fromkeys((*source.numbers, *source.texts, time))
        rows = ", ".join(f"{c} AS {flat(c)}" for c in columns)
        own, moment = ", ".join(map(flat, keys)), _EPOCH.format(t=flat(time))
        over = f"({f'PARTITION BY {own} ' if own else ''}ORDER BY {flat(time)})"
        return (
            f"SELECT {flat(listed)}, make_timestamptz(min({moment})) AS w0, "
            f"make_timestamptz(max({moment}) + {gap}) AS w1 FROM (SELECT *, sum(fresh) OVER {over} "
            f"AS nth FROM (SELECT *, CASE WHEN {moment} - lag({moment}) OVER {over} < {gap} "
            f"THEN 0 ELSE 1 END AS fresh FROM (SELECT {rows} FROM {source.text.duck}{where.duck})))"
            f" GROUP BY {', '.join([*map(flat, keys), 'nth'])}"
        )

    def _ranked(self, source: Relation, where: Text) -> tuple[Text, list[tuple[str, str]]]:
        rng, items = self.rng, self._items(source)
        self.features["QUALIFY"] += 1
        function = rng.choice(("row_number", "rank", "dense_rank"))
        key = rng.choice((*source.numbers, *source.texts))
        items.append((key, f"c{len(items)}", "n" if key in source.numbers else "t"))
        # The order includes all columns, so that only completely equal rows are equal in it.
        order = self._sorted([text for text, _, _ in items])
        place = f"{function}() OVER (PARTITION BY {key} ORDER BY {order})"
        listed = ", ".join(f"{text} AS {name}" for text, name, _ in items)
        columns, most = [(name, kind) for _, name, kind in items], rng.randint(1, 3)
        if not self._chance(0.5):
            whole = Text.both(f"SELECT {listed} FROM {{}}{{}} QUALIFY {place} <= {most}")
            return whole.format(source.text, where), columns
        # DuckDB computes a rank that QUALIFY names by its alias twice, and breaks ties differently.
        ranked = f"SELECT {listed}, {place} AS place FROM {{}}{{}}"
        chosen = f"place <= {most}"
        whole = Text(f"{ranked} QUALIFY {chosen}", f"SELECT * FROM ({ranked}) WHERE {chosen}")
        return whole.format(source.text, where), [*columns, ("place", "o")]

    def _sorted(self, texts: Sequence[str]) -> str:
        """Return items of ORDER BY."""
        choice = self.rng.choice
        return ", ".join(
            f"{text} {choice(('ASC', 'DESC'))} NULLS {choice(('FIRST', 'LAST'))}" for text in texts
        )

    def _framed(self, source: Relation, where: Text) -> tuple[Text, list[tuple[str, str]]]:
        """Draw window functions over one or several partitions."""
        rng, items = self.rng, self._items(source)
        self.features["frames"] += 1
        numbers = [text for text, _, kind in items if kind == "n"]
        columns, listed = [i[1:] for i in items], [f"{text} AS {n}" for text, n, _ in items]
        keys = [rng.choice((*source.numbers, *source.texts)) for _ in range(rng.choice((1, 1, 2)))]
        # The order includes all columns, so that only completely equal rows are equal in it.
        order = ", ".join([self._sorted([text for text, _, _ in items]), *keys])
        calls, placed = _FRAMED if numbers else _FRAMED[:2], False
        for place, call in enumerate(rng.sample(calls, rng.randint(1, 2))):
            x = rng.choice(numbers or [""])
            over = order if "RANGE B" not in call else self._sorted([x])
            over = f"PARTITION BY {rng.choice(keys)} ORDER BY {over}"
            if _BY_PLACE.search(call):
                # Equal rows have no order, so two such functions might see them in different
                # orders.
                call, placed = "count(*) OVER ({over})" if placed else call, True
            listed.append(f"{call.format(x=x, over=over)} AS w{place}")
            columns.append((f"w{place}", "o"))
        whole = f"SELECT {', '.join(listed)} FROM {{}}{{}}"
        return Text.both(whole).format(source.text, where), columns

    def _top(
        self, source: Relation, where: Text, *, shape: bool = False
    ) -> tuple[Text, list[tuple[str, str]]]:
        rng, items = self.rng, self._items(source, shape=shape)
        self.features["ORDER BY LIMIT"] += 1
        names = [name for _, name, _ in items]
        rng.shuffle(names)
        order = self._sorted(names)
        listed = ", ".join(f"{text} AS {name}" for text, name, _ in items)
        offset = f" OFFSET {rng.randint(1, 2)}" * self._chance(0.2)
        whole = f"SELECT {listed} FROM {{}}{{}} ORDER BY {order} LIMIT {rng.randint(1, 5)}{offset}"
        return Text.both(whole).format(source.text, where), [(n, k) for _, n, k in items]

    # --- above -----------------------------------------------------------------------------------

    def _set_operation(self, depth: int) -> tuple[Text, list[tuple[str, str]]]:
        """Draw a set operation of statements with columns ``x`` and ``g``."""
        rng = self.rng
        text = Text.both("")
        for number in range(rng.choice((2, 2, 2, 3))):
            operand, columns = self._select(depth if self._chance(0.3) else 0, shape=True)
            if " LIMIT " in operand.spark:
                operand = Text.both("({})").format(operand)
            if not number:
                text = operand
                continue
            operation = rng.choice(("UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT",
                                    "INTERSECT ALL", "EXCEPT ALL"))  # fmt: skip
            self.features[operation] += 1
            text = Text.both(f"{{}} {operation} {{}}").format(text, operand)
        return text, columns

    def _following_statement(self) -> tuple[Text, list[tuple[str, str]]]:
        """Draw statements that follow the rows of a table, which other statements look up."""
        rng, kind = self.rng, "alone"
        table = self._stream("p")
        now = table.text.spark.replace("p ", f"{CURRENT.format('p')} ", 1)
        source = table = replace(table, text=Text(table.text.spark, now))
        changing = [n for n in "abch" if self.kinds[n] in (Kind.CHANGES, Kind.UPSERT)]
        drawn = rng.random()
        if drawn < 0.45:
            kind = rng.choice(("LEFT JOIN", "LEFT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"))
            right = self._stream(rng.choice("abcdfh"))
            source = self._joined(table, kind, right, self._on(table, right, timed=False))
        elif drawn < 0.85 and changing:
            left = self._stream(rng.choice(changing))
            for name in rng.sample("abdf", rng.choice((0, 0, 1))):
                right = self._stream(name)
                left = self._joined(left, "JOIN", right, self._on(left, right))
            kind = rng.choice(("JOIN", "JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN", "FULL JOIN"))
            source = self._joined(left, kind, table, self._on(left, table, timed=False))
        self.features[f"followed {kind.lower()}"] += 1
        source = replace(source, times=())
        where = self._where(source, 0.3)
        return self._groups(source, where) if self._chance(0.3) else self._rows(source, where)

    def _by_arrival_statement(self) -> tuple[Text, list[tuple[str, str]]]:
        """Draw look-ups of tables and of latest rows of a stream, and joins with the latter."""
        rng, self._by_arrival = self.rng, True
        plain = [name for name in "abcdfh" if self.kinds[name] is Kind.INSERTS]
        source = self._stream(rng.choice(plain))
        if self._chance(0.3):
            right = self._stream(rng.choice(plain))
            streams = source.streams + right.streams
            source = self._joined(source, "JOIN", right, self._on(source, right))
            source = replace(source, streams=streams)
        last = f"greatest({', '.join(f'{alias}.arr_' for alias in source.streams)}, 0)"
        if self._chance(0.25):
            right = self._stream("l")
            alias = right.streams[0]
            last = f"greatest({last}, {alias}.arr_)"
            self.features["join with latest"] += 1
            source = self._joined(source, "JOIN", right, self._on(source, right))
            source = replace(source, where=(Text("", f"{alias}.sup_ > {last}"),))
        else:
            for _ in range(rng.choice((1, 1, 2))):
                right = self._stream(rng.choice("ppl"))
                alias, looked_up = right.streams[0], right.text.spark
                if looked_up.startswith("l "):
                    looked_up = f"l FOR SYSTEM_TIME AS OF PROCTIME() {alias}"
                    self.features["latest as of arrival"] += 1
                kind = rng.choice(("JOIN", "LEFT JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN"))
                on = self._on(source, right)
                self.features[f"look-up {kind.lower()}"] += 1
                there = f" AND {alias}.arr_ <= {last} AND {last} < {alias}.sup_"
                text = Text(f"{{}} {kind} {{}} ON {on}", f"{{}} {kind} {{}} ON {on}{there}")
                text = text.format(source.text, Text(looked_up, right.text.duck))
                if kind[0] in "SA":
                    source = replace(source, text=text)
                else:
                    source = source.beside(right, text, nullable=kind[0] == "L")
        source = replace(source, times=(), where=(*source.where, Text("", f"{last} >= {{since}}")))
        where = self._where(source, 0.3)
        return self._groups(source, where) if self._chance(0.3) else self._rows(source, where)

    def _kept_statement(self) -> tuple[Text, list[tuple[str, str]]]:
        """Draw outer joins without deadlines, with latest rows of a stream on any side."""
        rng, self._by_arrival = self.rng, True
        plain = [name for name in "abcdfh" if self.kinds[name] is Kind.INSERTS]
        names = (
            ["l"] if self._chance(0.2) else rng.sample([rng.choice(plain), "l"], rng.choice((1, 2)))
        )
        if self._chance(0.2):
            names.append(rng.choice(plain))
        rights = [rng.choice(plain) if "l" in names and self._chance(0.7) else "l"]
        if self._chance(0.4):
            rights.append(rng.choice(plain))
            rng.shuffle(rights)
        if "l" not in names + rights:
            rights[0] = "l"
        #: Alias -> whether its stream keeps the latest row per key.
        latest = dict[str, bool]()

        def drawn(name: str, *, alone: bool) -> Relation:
            made = self._stream(name)
            (alias,) = made.streams
            latest[alias] = name == "l"
            seen = "" if latest[alias] and not alone else " WHERE arr_ >= {since}"
            duck = f"(SELECT * FROM {name}{seen}) {alias}"
            return replace(made, text=Text(made.text.spark, duck))

        def valid(members: Sequence[str]) -> str:
            """Return the condition that no member is superseded when the last one arrives."""
            last = f"greatest({', '.join(f'{alias}.arr_' for alias in members)}, 0)"
            return " AND ".join(f"{a}.sup_ > {last}" for a in members if latest[a]) or "TRUE"

        alone = set(names) == {"l"}
        source, left = drawn(names[0], alone=alone), list[str]()
        left += source.streams
        for name in names[1:]:
            right = drawn(name, alone=alone)
            on = self._on(source, right)
            left += right.streams
            source = self._joined(source, "JOIN", right, on)
        source = replace(source, where=(Text("", valid(left)),))
        numbers, above = source.numbers, list[str]()
        for name in rights:
            right = drawn(name, alone=False)
            (alias,) = right.streams
            kinds = ["LEFT JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN"]
            kind = rng.choice(
                [*kinds, "FULL JOIN"] if len(rights) == 1 and len(left) == 1 else kinds
            )
            dependent = bool(above) and self._chance(0.5)
            base = replace(source, numbers=tuple(above) if dependent else numbers, texts=())
            on = self._on(base, right, residual=0.15, timed=False)
            members = [*left, *{c.split(".")[0] for c in above if c in on}, alias]
            self.features[f"kept {kind.lower()} by arrival"] += 1
            text = Text(
                f"{{}} {kind} {{}} ON {on}", f"{{}} {kind} {{}} ON {on} AND {valid(members)}"
            )
            text = text.format(source.text, right.text)
            if kind[0] in "SA":
                source = replace(source, text=text)
                continue
            source = source.beside(right, text, nullable=True)
            above = [*right.numbers]
            if kind == "FULL JOIN":
                (own,) = left
                mine = f"({own}.arr_ IS NOT NULL AND {valid(left)})"
                other = f"({own}.arr_ IS NULL AND {alias}.arr_ >= {{since}} AND {valid([alias])})"
                source = replace(source, where=(Text("", f"({mine} OR {other})"),))
        source = replace(source, times=())
        where = self._where(source, 0.3)
        return self._groups(source, where) if self._chance(0.3) else self._rows(source, where)
