"""Random queries of a scenario, in SQL that Spark and DuckDB both read.

They are drawn from one sparse join graph and one small pool of filters per scenario, so that
sub-joins and prefixes recur. Every query is first run on the recorded rows, so that sub-joins are
small and most results are nonempty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tests.support.oracles.oracle import Oracle, OracleQuery
from tests.support.scenarios.file import QueryEntry, micros
from tests.support.scenarios.rows import Table

_INTERVALS = ("5' MINUTE", "20' MINUTE", "45' MINUTE", "1' HOUR", "30' SECOND")
_WINDOWS = ("10 minutes", "25 minutes", "PT45M", "1 hour", "90 minutes", "PT2H")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in SQL, and the aliases it reads."""

    text: str
    aliases: tuple[str, ...]
    is_join: bool = False


@dataclass(frozen=True, slots=True)
class Draft:
    """A query while it is drawn."""

    members: tuple[tuple[str, str], ...]
    conditions: tuple[Condition, ...]
    select: tuple[tuple[str, str, bool], ...]
    window: str | dict[str, str] | None

    def oracle(self, aliases: Sequence[str] | None = None) -> OracleQuery:
        """Return the query, or its sub-join over ``aliases``, in the oracle's form."""
        chosen = set(aliases or (a for a, _ in self.members))
        return OracleQuery(
            tuple(m for m in self.members if m[0] in chosen),
            self.select if aliases is None else (("1", None, False),),
            tuple(c.text for c in self.conditions if set(c.aliases) <= chosen),
        )

    def entry(self, aliases: Sequence[str] | None = None) -> QueryEntry:
        """Return the window in the oracle's form."""
        chosen = list(aliases or (a for a, _ in self.members))
        window = self.window
        if isinstance(window, dict):
            return QueryEntry("", {a: micros(w) for a, w in window.items() if a in chosen}, 0, None)
        return QueryEntry("", None if window is None else micros(window), 0, None)

    def spark(self, *, commas: bool) -> str:
        """Return the query in Spark's dialect, joined by JOIN ... ON, or by commas and WHERE."""
        select = ", ".join(
            text if plain and text.endswith(f".{name}") else f"{text} AS {name}"
            for text, name, plain in self.select
        )
        left = list(self.conditions)
        sql = f"SELECT {select} FROM {self.members[0][1]} {self.members[0][0]}"
        seen = {self.members[0][0]}
        for alias, stream in self.members[1:]:
            seen.add(alias)
            if commas:
                sql += f", {stream} AS {alias}"
                continue
            on = [c for c in left if len(c.aliases) > 1 and set(c.aliases) <= seen]
            left = [c for c in left if c not in on]
            sql += f" JOIN {stream} AS {alias} ON " + " AND ".join(c.text for c in on)
        return sql + (" WHERE " + " AND ".join(c.text for c in left) if left else "")


class World:
    """The join graph and the filters that a scenario's queries share."""

    def __init__(
        self,
        tables: Sequence[Table],
        largest: int,
        rng: np.random.Generator,
        *,
        brief: bool,
        theta: float = 0.0,
    ) -> None:
        self.theta = theta
        self.tables = {t.name: t for t in tables}
        self.brief = brief
        self.largest = largest
        self.rng = rng
        names = list(self.tables)
        pairs = {(names[int(rng.integers(i))], names[i]) for i in range(1, len(names))}
        pairs |= {
            (one, other)
            for k, one in enumerate(names)
            for other in names[k:]
            if rng.random() < (0.3 if one == other else 0.2)
        }
        self.edges = {pair: self._edge(*pair) for pair in sorted(pairs)}
        texts = sorted({c.name for t in tables for c in t.keys if c.domain in "is"})
        self.computed = {n for n in texts if rng.random() < 0.12}
        self.filters = {
            name: [self._filter(t) for _ in range(2)] for name, t in self.tables.items()
        }

    def query(self, oracle: Oracle) -> Draft:
        """Draw a query whose sub-joins are small; if possible, none is empty."""
        spare: Draft | None = None
        for attempt in range(200):
            sizes, odds = (1, 2, 3, 4, 5), (0.04, 0.23, 0.38, 0.27, 0.08)
            size = 1 if attempt > 150 else int(self.rng.choice(sizes, p=odds))
            draft = self.draft(size)
            results = self._results(draft, oracle)
            if results is None:
                continue
            if results > 0:
                return draft
            if sum(c.text.count(".ts") > 1 for c in draft.conditions) > 1:
                continue  # perhaps no tuples at all could satisfy these, which is refused
            spare = spare or draft
            if self.rng.random() < 0.05:
                return draft
        assert spare is not None, "no query of this scenario is small enough"
        return spare

    def _results(self, draft: Draft, oracle: Oracle) -> int | None:
        """Return the number of results over full history; None if a sub-join is too large."""
        aliases = [a for a, _ in draft.members]
        edges = {c.aliases for c in draft.conditions if c.is_join}
        for size in range(2, len(aliases)):
            for chosen in combinations(aliases, size):
                if not _connected(chosen, edges):
                    continue
                part = oracle.size(draft.oracle(chosen), draft.entry(chosen), self.largest + 1)
                if part > self.largest:
                    return None
        whole = oracle.size(draft.oracle(), draft.entry(), self.largest + 1)
        return None if whole > self.largest else whole

    def draft(self, size: int) -> Draft:
        """Draw any query over ``size`` aliases."""
        rng = self.rng
        streams = [str(rng.choice(list(self.tables)))]
        conditions: list[Condition] = []
        while len(streams) < size:
            near = [
                (k, other)
                for k, stream in enumerate(streams)
                for pair in self.edges
                if stream in pair
                for other in ([pair[1]] if pair[0] == stream else [pair[0]])
                if other not in streams or rng.random() < 0.25
            ]
            if not near:
                near = [(k, o) for k, s in enumerate(streams) for o in self.tables
                        if (s, o) in self.edges or (o, s) in self.edges]  # fmt: skip
            k, other = near[int(rng.integers(len(near)))]
            streams.append(other)
            conditions += self._join(streams, k, len(streams) - 1)
            if rng.random() < 0.15:  # close a cycle
                k = int(rng.integers(len(streams) - 1))
                conditions += self._join(streams, k, len(streams) - 1)
        aliases = [_alias(k) for k in range(size)]
        conditions = list(dict.fromkeys(conditions))
        for alias, stream in zip(aliases, streams, strict=True):
            if rng.random() < 0.22:
                text = str(rng.choice(self.filters[stream]))
                conditions.append(Condition(text.format(a=alias), (alias,)))
        if size > 1 and rng.random() < 0.3:
            conditions.append(self._residual(streams))
        members = tuple(zip(aliases, streams, strict=True))
        window, timed = self._window(members)
        conditions += timed
        return Draft(members, tuple(conditions), self._select(members), window)

    def _edge(self, one: str, other: str) -> list[tuple[str, str]]:
        """Draw one or two pairs of columns from the same domain."""
        left, right = self.tables[one], self.tables[other]
        domains = sorted({c.domain for c in left.keys} & {c.domain for c in right.keys})
        count = min(len(domains), 2 if self.rng.random() < 0.3 else 1)
        pairs = []
        for domain in self.rng.choice(domains, size=count, replace=False):
            pairs.append(
                (
                    str(self.rng.choice([c.name for c in left.keys if c.domain == domain])),
                    str(self.rng.choice([c.name for c in right.keys if c.domain == domain])),
                )
            )
        return pairs

    def _join(self, streams: Sequence[str], i: int, j: int) -> list[Condition]:
        if (streams[i], streams[j]) not in self.edges:
            i, j = j, i
        if self.theta and self.rng.random() < self.theta:
            one, other = _alias(i), _alias(j)
            near = f"{one}.v BETWEEN {other}.v - 1 AND {other}.v + 1"
            text = str(self.rng.choice([near, f"{one}.v + 4 < {other}.v"]))
            return [Condition(text, (one, other), is_join=True)]
        pairs = self.edges.get((streams[i], streams[j]), [])
        flip = self.rng.random() < 0.3
        found = []
        for left, right in pairs:
            sides = [self._side(_alias(i), left), self._side(_alias(j), right)]
            text = " = ".join(sides[::-1] if flip else sides)
            found.append(Condition(text, (_alias(i), _alias(j)), is_join=True))
        return found

    def _side(self, alias: str, column: str) -> str:
        """Return one side of an equality: for some columns an expression, always the same one."""
        if column not in self.computed:
            return f"{alias}.{column}"
        return f"{alias}.{column} + 0" if column[0] == "i" else f"lower({alias}.{column})"

    def _filter(self, table: Table) -> str:
        choices = [
            "{a}.v >= 3",
            "NOT ({a}.v = 2)",
            "({a}.v < 2 OR {a}.v > 5)",
            "{a}.v IN (1, 3, 5, 7)",
            "{a}.id % 3 <> 0",
            "{a}.note LIKE 'k%'",
            "{a}.note IS NOT NULL",
            "{a}.ts >= TIMESTAMP '2024-03-01 00:40:00'",
            "coalesce({a}.v, 9) > 4",
            "{a}.flag",
            "{a}.amount BETWEEN 2.5 AND 40",
        ]
        choices += [f"{{a}}.{c.name} IS NOT NULL" for c in table.keys]
        choices += [f"{{a}}.{c.name} > 2" for c in table.keys if c.domain == "i"]
        choices += [f"{{a}}.{c.name} > DATE '2024-01-05'" for c in table.keys if c.domain == "d"]
        return str(self.rng.choice(choices))

    def _residual(self, streams: Sequence[str]) -> Condition:
        i, j = (int(x) for x in self.rng.choice(len(streams), size=2, replace=False))
        one, other = _alias(i), _alias(j)
        text = str(
            self.rng.choice(
                [
                    f"{one}.v < {other}.v",
                    f"{one}.v <= {other}.v + 2",
                    f"{one}.id <> {other}.id",
                    f"({one}.v = 1 OR {other}.flag)",
                    f"{one}.note <> {other}.note",
                    f"{one}.amount + {other}.amount > 25",
                    f"{one}.v BETWEEN {other}.v - 3 AND {other}.v + 3",
                ]
            )
        )
        return Condition(text, (one, other))

    def _window(
        self, members: Sequence[tuple[str, str]]
    ) -> tuple[str | dict[str, str] | None, list[Condition]]:
        """Draw a window, and conditions between time columns that are compatible."""
        rng = self.rng
        timed = [a for a, s in members if self.tables[s].event_time]
        conditions = []
        kind = rng.random()
        window: str | dict[str, str] | None = None
        if self.brief:
            window = str(rng.choice(_WINDOWS[:2]))
        elif len(timed) == len(members) and kind < 0.35:
            window = str(rng.choice(_WINDOWS))
        elif len(timed) == len(members) and kind < 0.5:
            count = int(rng.integers(1, len(timed) + 1))
            chosen = sorted(rng.choice(timed, size=count, replace=False).tolist())
            window = {a: str(rng.choice(_WINDOWS)) for a in chosen}
        while len(members) > 1 and rng.random() < 0.35:
            # Any two aliases, since without event times such a condition is a residual.
            pairs = [(i, j) for i, j in combinations([a for a, _ in members], 2)]
            one, other = pairs[int(rng.integers(len(pairs)))]
            before, after = (str(x) for x in rng.choice(_INTERVALS, size=2))
            text = str(
                rng.choice(
                    [
                        f"{one}.ts BETWEEN {other}.ts - INTERVAL '{before}"
                        f" AND {other}.ts + INTERVAL '{after}",
                        f"{one}.ts <= {other}.ts + INTERVAL '{after} AND {other}.ts <= {one}.ts",
                        f"{one}.ts < {other}.ts",
                        # Bounds with few results: one instant, or only a span in the past.
                        f"{one}.ts <= {other}.ts AND {other}.ts <= {one}.ts",
                        f"{one}.ts <= {other}.ts - INTERVAL '5' MINUTE"
                        f" AND {one}.ts > {other}.ts - INTERVAL '2' HOUR",
                        f"{other}.ts > {one}.ts - INTERVAL '{before}",
                    ]
                )
            )
            conditions.append(Condition(text, (one, other)))
        return window, conditions

    def _select(self, members: Sequence[tuple[str, str]]) -> tuple[tuple[str, str, bool], ...]:
        rng = self.rng
        items: list[tuple[str, str, bool]] = []
        taken: set[str] = set()

        def add(text: str, name: str, plain: bool) -> None:
            if name.lower() not in taken:
                taken.add(name.lower())
                items.append((text, name, plain))

        for alias, stream in members:
            if rng.random() < 0.75:
                add(f"{alias}.id", f"{alias}_id", True)
            for column in self.tables[stream].names():
                if rng.random() < 0.18:
                    free = column not in taken and rng.random() < 0.6
                    add(f"{alias}.{column}", column if free else f"{alias}_{column}", True)
        one, other = members[0][0], members[-1][0]
        extras = [
            (f"upper({one}.note)", "loud"),
            (f"{one}.v + {other}.v", "total"),
            (f"coalesce({other}.v, -1)", "v_or"),
            (f"CASE WHEN {one}.v > 4 THEN 'high' WHEN {other}.flag THEN 'flag' END", "kind"),
            (f"CAST({other}.v AS BIGINT)", "wide"),
            (f"{one}.amount > {other}.amount", "more"),
        ]
        for text, name in extras:
            if rng.random() < 0.08:
                add(text, name, False)
        if not items:
            add(f"{one}.id", "id", True)
        return tuple(items)


def _alias(number: int) -> str:
    return "abcdefgh"[number]


def _connected(chosen: Sequence[str], edges: set[tuple[str, ...]]) -> bool:
    reached = {chosen[0]}
    for _ in chosen:
        for edge in edges:
            if set(edge) <= set(chosen) and reached & set(edge):
                reached |= set(edge)
    return reached == set(chosen)
