"""Oracle of a replay: expected results of a query, computed by DuckDB over the recorded files.

The batch of row ``k`` is ``k // rows_per_batch``. A row is late or invalid by the rules of
``docs/semantics.md``, and visible to an alias by the activation that the replay reports. A
combination counts if its last batch is within the query's active span. Results are compared as
multisets; NaN equals NaN, -0.0 equals 0.0, NULL equals NULL.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import sqlglot
from sqlglot import exp

from anabranch_contract.plans.rations import Ranking
from anabranch_contract.protocol.activations import Activation, PastStatus
from anabranch_runtime.index.ranks import ranks
from anabranch_runtime.sinks.publisher import OUTBOX
from tests.support.oracles.idle_watermarks import watermarks
from tests.support.scenarios.file import QueryEntry, Scenario, StreamEntry

#: Columns that the oracle adds to a stream's.
ROW, BATCH, TAU, LATE, INVALID = "__row", "__batch", "__tau", "__late", "__invalid"
AHEAD = "__ahead"
#: Operations of streams of changes.
INSERTS, DELETES = ("c", "r", "insert", "+i", "+u"), ("d", "delete", "-u")
#: Sum of changes, in SQL.
SIGNED = "sum(CASE anabranch_change WHEN 'delete' THEN -1 ELSE 1 END)"
#: Prefix of a column with the batch from which on a row is superseded, if the stream keeps the
#: latest rows.
GONE = "__gone_"


@dataclass(frozen=True, slots=True)
class OracleQuery:
    """A query in parts, in DuckDB's SQL.

    Attributes:
        members: (alias, stream) in FROM order.
        select: (expression; output name, or None if it is not checked; whether it is a plain
            column, whose type must not change).
        where: the conditions of ON and WHERE.
    """

    members: tuple[tuple[str, str], ...]
    select: tuple[tuple[str, str | None, bool], ...]
    where: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of results with the oracle's; ``problems`` is empty if they are equal."""

    expected: int
    got: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamCounts:
    """Counts that a replay must report for one stream."""

    rows: int
    late: int
    invalid: int
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Withheld:
    """A ration below 1, in the batches from ``first`` to ``last`` inclusive.

    Attributes:
        alias: alias whose tuple arrives last.
        torn: whether the query ended during the catch-up, so that any of these results may exist.
    """

    first: int
    last: int
    query: str
    alias: str
    share: float
    ranking: Ranking
    torn: bool = False


def from_spark(sql: str, columns: Mapping[str, Sequence[str]]) -> OracleQuery:
    """Parse a hand-written query in Spark's dialect, and translate it to DuckDB's.

    Args:
        columns: the columns of every stream (for ``*``).
    """
    tree = sqlglot.parse_one(sql, read="spark")
    assert isinstance(tree, exp.Select), sql
    joins = tree.args.get("joins") or []
    tables = [tree.find(exp.From).this, *(j.this for j in joins)]  # type: ignore[union-attr]
    members = tuple((t.alias_or_name, t.name) for t in tables)
    where = [j.args["on"] for j in joins if j.args.get("on")]
    for position, join in enumerate(joins, 1):
        for name in join.args.get("using") or []:
            left = _first_with(name.name, members[:position], columns)
            where.append(
                exp.column(name.name, left).eq(exp.column(name.name, members[position][0]))
            )
    if tree.args.get("where"):
        where.append(tree.args["where"].this)
    for column in tree.find_all(exp.Column):
        if not column.table and not column.is_star:
            owner = _first_with(column.name, members, columns)
            column.set("table", exp.to_identifier(owner))
    select: list[tuple[str, str | None, bool]] = []
    for item in tree.expressions:
        if item.is_star:
            of = item.table if isinstance(item, exp.Column) else None
            for alias, stream in members:
                if of in (None, "", alias):
                    select += [(f'{alias}."{c}"', c, True) for c in columns[stream]]
            continue
        plain = isinstance(item.unalias(), exp.Column)
        select.append((item.unalias().sql("duckdb"), item.alias_or_name or None, plain))
    return OracleQuery(members, tuple(select), tuple(c.sql("duckdb") for c in where))


def _first_with(
    column: str, members: Sequence[tuple[str, str]], columns: Mapping[str, Sequence[str]]
) -> str:
    return next(a for a, s in members if column.lower() in {c.lower() for c in columns[s]})


class Oracle:
    """A DuckDB database with the streams of one scenario."""

    def __init__(
        self,
        scenario: Scenario,
        ruled: Callable[[int], int] | None = None,
        withheld: Sequence[Withheld] = (),
        fresh: Mapping[str, Mapping[str, int]] | None = None,
        gathering: Collection[str] = (),
    ) -> None:
        """Load the streams of ``scenario``.

        Args:
            withheld: rations below 1.
            ruled: batch -> start of the epoch whose ruleset it runs; default: its own epoch.
            fresh: query -> alias -> greatest age of its members in results, in microseconds.
            gathering: queries whose files have several batches; by default, they are recognised by
                their outbox, which a restart may clear.
        """
        self.scenario = scenario
        self.withheld, self.fresh, self.gathering = withheld, fresh or {}, frozenset(gathering)
        self.ruled = ruled or (lambda batch: batch // scenario.every * scenario.every)
        self.db = duckdb.connect()
        self.db.execute("SET TimeZone = 'UTC'")
        for name, stream in scenario.streams.items():
            self.db.execute(f'CREATE TABLE "{name}" AS {_placed(stream)}')
            if stream.key:
                self._upsert(name, stream.key)
        #: Stream -> the spans of batches, end exclusive, in which it keeps the latest row per key.
        self.latest: dict[str, list[tuple[int, int]]] = {}
        self.watermarks: dict[str, dict[int, int | None]] = {}
        self.ranks: dict[tuple[str, Ranking], str] = {}
        asked = any(s.idle_timeout is not None or s.keep_late for s in scenario.streams.values())
        if asked or any(map(self._leaps, scenario.streams)):
            self._let_idle()

    def _upsert(self, name: str, key: tuple[str, ...]) -> None:
        """Add to each row of a table the batch of the next row with its key."""
        columns = ", ".join(f'"{c}"' for c in key)
        known = " AND ".join(f'"{c}" IS NOT NULL' for c in key)
        self.db.execute(f'ALTER TABLE "{name}" ADD COLUMN {GONE} BIGINT')
        self.db.execute(f"""
            UPDATE "{name}" SET {GONE} = later.batch FROM (
                SELECT {ROW} AS row, lead({BATCH}) OVER (PARTITION BY {columns} ORDER BY {ROW})
                    AS batch FROM "{name}" WHERE {known}) later
            WHERE "{name}".{ROW} = later.row""")

    def _leaps(self, name: str) -> bool:
        """Whether tuples of a stream may be rejected as too far ahead."""
        bound = self.scenario.streams[name].ahead_of_stream
        span = self.one(f'SELECT max({TAU}) - min({TAU}) FROM "{name}"')
        return bound is not None and span is not None and bool(span > bound)

    def _let_idle(self) -> None:
        """Determine lateness again, with watermarks that advance while a stream is idle, and that
        tuples ahead do not advance.
        """
        seen = {name: self._seen(name) for name in self.scenario.streams}
        leaping = [name for name in self.scenario.streams if self._leaps(name)]
        for batch in range(self.batches()) if leaping else ():
            # Batch by batch, since watermarks of streams with idle timeouts depend on each other.
            before = {n: {b: t for b, t in s.items() if b < batch} for n, s in seen.items()}
            reached = watermarks(self.scenario.streams, before, batch + 1)
            for stream in leaping:
                self._judge_ahead(stream, batch, reached[stream][batch], before[stream])
                seen[stream] = self._seen(stream)
        self.watermarks = watermarks(self.scenario.streams, seen, self.batches())
        for name, marks in self.watermarks.items():
            known = [(b, m) for b, m in marks.items() if m is not None]
            self.db.execute(f'UPDATE "{name}" SET {LATE} = false')
            for batch, mark in known:
                self.db.execute(
                    f'UPDATE "{name}" SET {LATE} = true WHERE {BATCH} = {batch} AND {TAU} < {mark}'
                )

    def _seen(self, name: str) -> dict[int, int | None]:
        """Map batches with tuples of a stream to the greatest event time in them that is
        not ahead.
        """
        rows = self.db.execute(
            f'SELECT {BATCH}, max({TAU}) FILTER (NOT {AHEAD}) FROM "{name}" GROUP BY 1'
        )
        return {int(batch): newest for batch, newest in rows.fetchall()}

    def _judge_ahead(
        self, name: str, batch: int, mark: int | None, before: Mapping[int, int | None]
    ) -> None:
        """Mark the tuples of a batch that are ahead, given the stream's earlier event times
        ``before`` and its watermark.
        """
        reached = [t for t in (*before.values(), mark) if t is not None]
        bound = self.scenario.streams[name].ahead_of_stream
        if reached and bound is not None:
            self.db.execute(
                f'UPDATE "{name}" SET {AHEAD} = true'
                f" WHERE {BATCH} = {batch} AND {TAU} > {max(reached) + bound}"
            )

    def observe(
        self, queries: Mapping[str, OracleQuery], activations: Mapping[str, Activation | None]
    ) -> None:
        """Derive from all activations when streams were read or retained, and so which tuples were
        superseded, by which newer ones, and when.
        """
        known = [(queries[n], a) for n, a in activations.items() if a is not None and n in queries]
        spans = [(q, a) for q, last in known for a in (*last.earlier, last)]
        for stream, entry in self.scenario.streams.items():
            keys: list[tuple[str, ...]] = []
            for batch in range(self.batches()):
                read = entry.retain != 0 or any(
                    a.activated_batch <= batch
                    and (a.expired_batch is None or batch < a.expired_batch)
                    for q, a in spans
                    if stream in {s for _, s in q.members}
                )
                key = self.scenario.latest(self.ruled(batch)).get(stream, ())
                keys.append(key if read else ())
            first = 0
            for key, run in itertools.groupby(keys):
                end = first + len(list(run))
                if key:
                    self._supersede(stream, key, first, end)
                first = end

    def _supersede(self, stream: str, key: tuple[str, ...], first: int, end: int) -> None:
        """Add to each tuple the first batch from ``first`` on that has a later tuple of its key."""
        if (first, end) in self.latest.setdefault(stream, []):
            return
        self.latest[stream].append((first, end))
        same = " AND ".join(f'old."{c}" = new."{c}"' for c in key)
        self.db.execute(f'ALTER TABLE "{stream}" ADD COLUMN {GONE}{first} BIGINT')
        self.db.execute(f"""
            UPDATE "{stream}" SET {GONE}{first} = later.batch FROM (
                SELECT old.{ROW} AS row, min(new.{BATCH}) AS batch
                FROM "{stream}" old JOIN "{stream}" new ON {same}
                WHERE new.{TAU} > old.{TAU} AND new.{BATCH} >= {first}
                    AND NOT new.{LATE} AND NOT new.{INVALID} AND NOT new.{AHEAD}
                GROUP BY old.{ROW}) later
            WHERE "{stream}".{ROW} = later.row""")

    def close(self) -> None:
        """Close the database."""
        self.db.close()

    def columns(self) -> dict[str, list[str]]:
        """The declared columns of each stream."""
        return {
            name: [c for c, *_ in self._describe(f'SELECT * FROM "{name}"') if c[:2] != "__"]
            for name in self.scenario.streams
        }

    def counts(self, stream: str) -> StreamCounts:
        """Return the numbers of rows, late rows and invalid rows of a stream."""
        row = self.db.execute(
            f"SELECT count(*), count(*) FILTER ({LATE}), count(*) FILTER ({INVALID}),"
            f" count(*) FILTER ({AHEAD})"
            f' FROM "{stream}"'
        ).fetchone()
        assert row is not None
        return StreamCounts(*row)

    def admitted(self, stream: str, before: int) -> int:
        """The rows of batches before ``before`` that are neither late nor ahead nor invalid."""
        return int(
            self.one(
                f'SELECT count(*) FROM "{stream}" WHERE {BATCH} < {before}'
                f" AND NOT {LATE} AND NOT {INVALID} AND NOT {AHEAD}"
            )
        )

    def batches(self) -> int:
        """Number of batches of the scenario."""
        found = max((len(s.cuts or ()) for s in self.scenario.streams.values()), default=0)
        for name in self.scenario.streams:
            row = self.db.execute(f'SELECT coalesce(max({BATCH}) + 1, 0) FROM "{name}"').fetchone()
            assert row is not None
            found = max(found, row[0])
        return found

    def sql(
        self,
        query: OracleQuery,
        entry: QueryEntry,
        activation: Activation,
        *,
        limit: int = 0,
        name: str = "",
        torn: bool = False,
    ) -> str:
        """Return a SELECT for the results of ``query`` over all its activations, without results
        withheld from query ``name`` (``torn``: without results that can't exist).
        """
        first, *others = (*activation.earlier, activation)
        kept = [*self._kept(query, name, torn), *self._young(query, name)]
        parts = [self._span(query, entry, first, kept, past=_has_past(activation, torn))]
        parts += [self._span(query, entry, a, kept) for a in others]
        tail = f" LIMIT {limit}" if limit else ""
        return " UNION ALL ".join(parts) + tail

    def _follows(self, query: OracleQuery) -> bool:
        """Whether results change with rows of tables: beside streams of changes, or without a
        stream.
        """
        streams = [self.scenario.streams[s] for _, s in query.members]
        return any(s.operation is not None for s in streams) or all(s.table for s in streams)

    def _kept(self, query: OracleQuery, name: str, torn: bool) -> list[str]:
        """Return the conditions that rations impose on results: in a result's last batch, the rank
        of the member whose stream has the greatest name must be below the ration of its alias.
        """
        last = "greatest(" + ", ".join(f"{a}.{BATCH}" for a, _ in query.members) + ")"
        streams = dict(query.members)
        # Least withheld rank by batch: with a condition per ration and batch, DuckDB would take
        # minutes.
        bounds: dict[tuple[str, Ranking], list[int | None]] = {}
        for one in self.withheld:
            if one.query != name or (torn and one.torn):
                continue
            known = bounds.setdefault((one.alias, one.ranking), [None] * self.batches())
            for batch in range(one.first, min(one.last + 1, len(known))):
                bound, before = round(one.share * 2**53), known[batch]
                known[batch] = bound if before is None else min(bound, before)
        found = []
        for (alias, ranking), known in bounds.items():
            here = [f"{alias}.{BATCH} = {last}"]
            here += [f"{a}.{BATCH} < {last}" for a, s in query.members if s > streams[alias]]
            listed = ", ".join("NULL" if bound is None else str(bound) for bound in known)
            rank = f"{alias}.{self._rank(streams[alias], ranking)}"
            here.append(f"coalesce({rank} >= ([{listed}]::BIGINT[])[{last} + 1], false)")
            found.append(f"NOT ({' AND '.join(here)})")
        return found

    def _young(self, query: OracleQuery, name: str) -> list[str]:
        """Return the conditions that no member is too old, given the greatest event time of all
        streams before the last batch.
        """
        limits = self.fresh.get(name)
        if not limits:
            return []
        reached: list[int | None] = []
        for batch in range(self.batches()):
            seen = [
                self.one(f'SELECT max({TAU}) FROM "{s}" WHERE {BATCH} < {batch} AND NOT {AHEAD}')
                for s in self.scenario.streams
            ]
            reached.append(max((t for t in seen if t is not None), default=None))
        listed = ", ".join("NULL" if t is None else str(t) for t in reached)
        last = "greatest(" + ", ".join(f"{a}.{BATCH}" for a, _ in query.members) + ")"
        now = f"([{listed}]::BIGINT[])[{last} + 1]"
        return [
            f"coalesce({alias}.{TAU} >= {now} - {most}, true)" for alias, most in limits.items()
        ]

    def _rank(self, stream: str, ranking: Ranking) -> str:
        """Return the column with the ranks of a stream's tuples, computed at its first use."""
        known = self.ranks.setdefault((stream, ranking), f"__rank{len(self.ranks)}")
        if known in {c for c, _ in self._describe(f'SELECT * FROM "{stream}"')}:
            return known
        table = pq.read_table(self.scenario.streams[stream].path)
        values = [table.column(c).combine_chunks() for c, _ in ranking.columns]
        placed = f'SELECT {ROW}, {BATCH} FROM "{stream}"'
        batches = dict(self.db.execute(placed).fetchall())
        self.db.execute(f'ALTER TABLE "{stream}" ADD COLUMN {known} BIGINT')
        rows = [(row, _rank(ranking, values, row, batch)) for row, batch in batches.items()]
        if rows:
            self.db.executemany(f'UPDATE "{stream}" SET {known} = $2 WHERE {ROW} = $1', rows)
        return known

    def _span(
        self,
        query: OracleQuery,
        entry: QueryEntry,
        activation: Activation,
        kept: Sequence[str],
        *,
        past: bool = False,
    ) -> str:
        """Return a SELECT for the results of one activation, with or without its ``past``; a ttl is
        a window on every alias of its stream.
        """
        ttls = self.scenario.ttls(self.ruled(activation.activated_batch))
        timed = {a: self.scenario.streams[s].event_time is not None for a, s in query.members}
        timeless = [a for a, s in query.members if self.scenario.streams[s].has_no_times]
        tables = [] if self._follows(query) else timeless
        where = [f"({c})" for c in query.where]
        for alias, stream in query.members:
            where += [f"NOT {alias}.{c}" for c in (LATE, INVALID, AHEAD)]
            where += _visible(alias, activation)
            for width in (entry.window_of(alias), ttls.get(stream)):
                if width is None or alias in timeless:
                    continue
                for other, _ in query.members:
                    if other != alias and other not in timeless:
                        assert timed[alias], f"a window on {alias}, which has no event time"
                        assert timed[other], f"a window over {other}, which has no event time"
                        where.append(f"{other}.{TAU} - {alias}.{TAU} <= {width}")
        last = "greatest(" + ", ".join(f"{a}.{BATCH}" for a, _ in query.members) + ")"
        for alias, stream in query.members:
            for first, end in self.latest.get(stream, ()):
                inside = f"{last} >= {first} AND {last} < {end}"
                where.append(f"NOT ({inside} AND coalesce({alias}.{GONE}{first} <= {last}, false))")
        for table in tables:
            # The row is emitted in the batch of the last tuple of a stream that is not a table.
            streams = ", ".join(f"{a}.{BATCH}" for a, _ in query.members if a not in tables)
            where.append(f"{table}.{BATCH} <= greatest({streams})")
            if self.scenario.streams[dict(query.members)[table]].key:
                where.append(f"coalesce({table}.{GONE} > {last}, true)")
        where += kept
        if not past:
            where.append(f"{last} >= {activation.activated_batch}")
        if activation.expired_batch is not None:
            where.append(f"{last} < {activation.expired_batch}")
        select = ", ".join(f"{e} AS c{i}" for i, (e, _, _) in enumerate(query.select))
        sources = ", ".join(f'"{s}" AS {a}' for a, s in query.members)
        return f"SELECT {select} FROM {sources} WHERE " + " AND ".join(where)

    def rows(
        self, query: OracleQuery, entry: QueryEntry, activation: Activation
    ) -> list[tuple[object, ...]]:
        """Return the results of ``query``."""
        return self.db.execute(self.sql(query, entry, activation)).fetchall()

    def compare(
        self,
        query: OracleQuery,
        entry: QueryEntry,
        activation: Activation | None,
        results: Path,
    ) -> Comparison:
        """Compare the Parquet files in ``results`` with the expected results."""
        files = sorted(results.glob("*.parquet"))
        if not files:
            return Comparison(0, 0, (f"no Parquet file in {results}",))
        # A query that was never active has an empty result with types.
        span = activation or Activation(0, {}, expired_batch=0)
        select = self.sql(query, entry, span, name=results.name)
        self.db.execute(f"CREATE OR REPLACE TEMP TABLE expected AS {select}")
        allowed = self.sql(query, entry, span, name=results.name, torn=True)
        self.db.execute(f"CREATE OR REPLACE TEMP TABLE allowed AS {allowed}")
        listed = ", ".join(f"'{f}'" for f in files)
        self.db.execute(
            f"CREATE OR REPLACE TEMP TABLE got AS SELECT * FROM read_parquet([{listed}])"
        )
        got, expected = (self._describe(f"SELECT * FROM {t}") for t in ("got", "expected"))
        problems: list[str] = []
        streams = [self.scenario.streams[s] for _, s in query.members]
        replaces = any(s.has_no_times and s.key for s in streams) and self._follows(query)
        if len(got) != len(expected):
            return Comparison(0, 0, (f"columns {[c for c, _ in got]}, not {len(expected)}",))
        for (name, kind), (_, wanted), (text, label, plain) in zip(
            got, expected, query.select, strict=True
        ):
            if label is not None and name != label:
                problems.append(f"column {text} is named {name}, not {label}")
            if plain and kind != wanted:
                problems.append(f"column {name} is of type {kind}, not {wanted}")
        pairs = [(n, e, w) for (n, _), (e, w) in zip(got, expected, strict=True)]
        left = ", ".join(_canonical(f'"{n}"', w) + f' AS "{n}"' for n, _, w in pairs)
        right = ", ".join(_canonical(f'"{e}"', w) + f' AS "{n}"' for n, e, w in pairs)
        one, other = f"SELECT {left} FROM got", f"SELECT {right} FROM expected"
        most = f"SELECT {right} FROM allowed"
        begun = _has_past(span, True) and not _has_past(span, False)
        if _has_changes(query) and begun:
            # The query ended before all of its past was emitted: an insert may lack its delete.
            other = f"{other} WHERE false"
        elif _has_changes(query):
            # Results may lack tuples that are already deleted, and their deletes.
            one, other, most = (_summed(select) for select in (one, other, most))
        for what, first, second in (("missing", other, one), ("extra", one, most)):
            if replaces:
                break  # rows may be inserted and deleted in one batch: only the sum is known
            self.db.execute(f"CREATE OR REPLACE TEMP TABLE diff AS {first} EXCEPT ALL {second}")
            count = self._count("diff")
            if count:
                rows = self.db.execute("SELECT * FROM diff ORDER BY ALL LIMIT 3").fetchall()
                problems.append(f"{count} {what}, such as " + "; ".join(map(str, rows)))
        problems += self._net(query, entry, activation, files)
        return Comparison(self._count("expected"), self._count("got"), tuple(problems))

    def _net(
        self,
        query: OracleQuery,
        entry: QueryEntry,
        activation: Activation | None,
        files: Sequence[Path],
    ) -> list[str]:
        """Return problems of the sum of all changes after every batch, which must equal the join of
        the net inputs. Checked for queries that see all tuples and have no pending past results.
        """
        if activation is None or activation.earlier or self.withheld or not _has_changes(query):
            return []
        last = self.batches() if activation.expired_batch is None else activation.expired_batch
        batches = range(last)
        if activation.activated_batch:
            seen = activation.visible_from.values()
            if not _has_past(activation, False) or any(v.batch or v.event_time for v in seen):
                return []
            batches = range(last - 1, last)
        *names, _ = (name for name, _ in self._describe("SELECT * FROM got"))
        kinds = [kind for _, kind in self._describe("SELECT * FROM expected")]
        shown = [_canonical(f'"{n}"', k) for n, k in zip(names, kinds, strict=False)]
        problems = []
        # With a commit interval, results exist as of the ends of groups.
        ends = {int(f.stem[:10]) for f in files if f.stem != "empty"} | {last - 1}
        outbox = (f.parent.parent / OUTBOX / f.parent.name for f in files[:1])
        gathered = any(True for folder in outbox for _ in folder.glob("*..*"))
        gathered = gathered or (bool(files) and files[0].parent.name in self.gathering)
        for batch in (b for b in batches if not gathered or b in ends):
            wanted = self._net_sql(query, entry, kinds, batch)
            got = f"SELECT * FROM ({wanted}) WHERE false"
            # Past results may be emitted by batches after the end of the input.
            until = batch if batch < last - 1 else 1 << 40
            come = [f"'{f}'" for f in files if f.stem != "empty" and int(f.stem[:10]) <= until]
            if come:
                rows, listed = f"read_parquet([{', '.join(come)}])", ", ".join(shown)
                got = f"SELECT {listed}, {SIGNED} AS n FROM {rows} GROUP BY ALL HAVING n <> 0"
            for what, one, other in (("lacks", wanted, got), ("has", got, wanted)):
                diff = self.db.execute(f"({one}) EXCEPT ALL ({other}) LIMIT 3").fetchall()
                if diff:
                    problems.append(f"after batch {batch} the sum {what} {diff}")
        return problems

    def _net_sql(
        self, query: OracleQuery, entry: QueryEntry, kinds: Sequence[str], batch: int
    ) -> str:
        """SQL for the join of net inputs up to and including ``batch``, with multiplicities."""
        where, sources, weights = [f"({c})" for c in query.where], [], []
        columns = self.columns()
        timed = {a: self.scenario.streams[s].event_time is not None for a, s in query.members}
        for alias, stream in query.members:
            operation, key = (
                self.scenario.streams[stream].operation,
                self.scenario.streams[stream].key,
            )
            own = ", ".join(f'"{c}"' for c in columns[stream] if c != operation)
            rows = (
                f'SELECT * FROM "{stream}" WHERE {BATCH} <= {batch}'
                f" AND NOT {LATE} AND NOT {INVALID} AND NOT {AHEAD}"
            )
            signs, deletes = "count(*)", ", ".join(f"'{o}'" for o in DELETES)
            is_table = self.scenario.streams[stream].table
            if (operation is not None or is_table) and key:
                known = " AND ".join(f'"{c}" IS NOT NULL' for c in key)
                named = ", ".join(f'"{c}"' for c in key)
                place = f"row_number() OVER (PARTITION BY {named} ORDER BY {ROW} DESC)"
                kept = "(__place = 1 OR NOT __known)"
                if operation is not None:
                    kept += f" AND lower({operation}) NOT IN ({deletes})"
                found = f"SELECT *, {place} AS __place, {known} AS __known FROM ({rows})"
                rows = f"SELECT * FROM ({found}) WHERE {kept}"
            elif operation is not None:
                signs = f"sum(CASE WHEN lower({operation}) IN ({deletes}) THEN -1 ELSE 1 END)"
            sources.append(
                f"(SELECT {own}, {TAU}, {signs} AS __n FROM ({rows}) GROUP BY ALL) AS {alias}"
            )
            weights.append(f"{alias}.__n")
            width = entry.window_of(alias)
            ttl = self.scenario.ttls(0).get(stream)
            for bound in (width, ttl):
                where += [
                    f"{other}.{TAU} - {alias}.{TAU} <= {bound}"
                    for other, _ in query.members
                    if bound is not None and other != alias and timed[alias] and timed[other]
                ]
        select = [_canonical(f"({e})", k) for (e, _, _), k in zip(query.select, kinds, strict=True)]
        listed = ", ".join(f"{e} AS c{i}" for i, e in enumerate(select[:-1]))
        return (
            f"SELECT {listed}, sum({' * '.join(weights)}) AS n FROM {', '.join(sources)} WHERE "
            + " AND ".join(where or ["true"])
            + " GROUP BY ALL HAVING n <> 0"
        )

    def size(self, query: OracleQuery, entry: QueryEntry, limit: int) -> int:
        """Return the number of results over full history, counted up to ``limit``."""
        row = self.db.execute(
            f"SELECT count(*) FROM ({self.sql(query, entry, Activation(0, {}), limit=limit)})"
        ).fetchone()
        assert row is not None
        return int(row[0])

    def one(self, select: str) -> Any:
        """Return the only value of the only row of ``select``."""
        row = self.db.execute(select).fetchone()
        assert row is not None
        return row[0]

    def _describe(self, select: str) -> list[tuple[str, str]]:
        return [(r[0], r[1]) for r in self.db.execute(f"DESCRIBE {select}").fetchall()]

    def _count(self, table: str) -> int:
        row = self.db.execute(f"SELECT count(*) FROM {table}").fetchone()
        assert row is not None
        return int(row[0])


def _has_changes(query: OracleQuery) -> bool:
    return query.select[-1][1] == "anabranch_change"


def _summed(select: str) -> str:
    """The rows of ``select`` without the last column, each repeated by the sum of its changes."""
    named = f"SELECT * EXCLUDE (anabranch_change), {SIGNED} AS n FROM ({select})"
    return f"{named} GROUP BY ALL HAVING n <> 0"


def weight_of(members: Sequence[tuple[str, str]], changes: Collection[str]) -> str | None:
    """Return SQL for the weight of a result: the product of the weights of its members of streams
    of changes; None: it reads none.
    """
    deletes = ", ".join(f"'{o}'" for o in DELETES)
    weights = [
        f"CASE WHEN lower({alias}.op) IN ({deletes}) THEN -1 ELSE 1 END"
        for alias, stream in members
        if stream in changes
    ]
    return " * ".join(weights) or None


def _rank(ranking: Ranking, columns: Sequence[pa.Array], row: int, batch: int) -> int:
    """Return the rank of one tuple, computed from its values."""
    names = [name for name, _ in ranking.columns]
    one = {name: values[row : row + 1] for name, values in zip(names, columns, strict=True)}
    return int(ranks(ranking, one.__getitem__, 1, batch)[0])


def _placed(stream: StreamEntry) -> str:
    """Return every row with its position, batch, event time, and whether it is late or invalid. A
    row with an unknown operation is invalid before its event time is looked at.
    """
    moment = f'epoch_us("{stream.event_time}")' if stream.event_time else "NULL::BIGINT"
    invalid, known = f'"{stream.event_time}" IS NULL' if stream.event_time else "false", "true"
    if stream.operation is not None:
        listed = ", ".join(f"'{o}'" for o in (*DELETES, *INSERTS, *("u" if stream.key else "")))
        known = f"""coalesce(lower("{stream.operation}") IN ({listed}), false)"""
    late = "false" if stream.lateness is None else f"{TAU} < seen - {stream.lateness}"
    return f"""
        WITH rows AS (
            SELECT * EXCLUDE (file_row_number), file_row_number AS {ROW},
                   {_batch_of(stream)} AS {BATCH},
                   CASE WHEN {known} THEN {moment} END AS {TAU},
                   {invalid} OR NOT {known} AS {INVALID}
            FROM read_parquet('{stream.path}', file_row_number = true)
        ), marks AS (
            SELECT {BATCH}, max(max({TAU})) OVER (
                ORDER BY {BATCH} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS seen
            FROM rows GROUP BY {BATCH}
        )
        SELECT rows.*, coalesce({late}, false) AS {LATE}, false AS {AHEAD}
        FROM rows JOIN marks USING ({BATCH}) ORDER BY {ROW}"""


def _batch_of(stream: StreamEntry) -> str:
    """Return SQL for the batch of a row, by its position."""
    if stream.cuts is None:
        return f"file_row_number // {stream.rows_per_batch}"
    return f"len(list_filter({list(stream.cuts)}, lambda cut: cut <= file_row_number))"


def _has_past(activation: Activation, torn: bool) -> bool:
    """Whether results from before the first activation exist; ``torn``: whether they may exist."""
    past = activation.past
    if past is None:
        return False
    return past.status is PastStatus.EMITTED or (torn and past.results > 0)


def _visible(alias: str, activation: Activation) -> list[str]:
    start = activation.visible_from.get(alias)
    if start is None:
        return []
    stored = f"{alias}.{BATCH} >= {start.batch}"
    if start.event_time is not None:
        stored += f" AND ({alias}.{TAU} IS NULL OR {alias}.{TAU} >= {start.event_time})"
    return [f"({alias}.{BATCH} >= {activation.activated_batch} OR ({stored}))"]


def _canonical(column: str, kind: str) -> str:
    cast = f"CAST({column} AS {kind})"
    if kind in ("FLOAT", "DOUBLE"):
        return f"CASE WHEN {cast} = 0 THEN 0 ELSE {cast} END"
    return cast
