"""Two streams read from files with advancing event times, and DuckDB's join of them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.worlds.processes import LivePipeline

START = datetime(2024, 5, 1, tzinfo=UTC)
JOIN = (
    "SELECT a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k "
    "AND b.ts BETWEEN a.ts - INTERVAL 10 MINUTES AND a.ts + INTERVAL 10 MINUTES"
)
SUMS = (
    "SELECT window.start AS begin, count(*) AS pairs, sum(b.v) AS total FROM a JOIN b ON a.k = b.k "
    "AND b.ts BETWEEN a.ts - INTERVAL 10 MINUTES AND a.ts + INTERVAL 10 MINUTES "
    "GROUP BY window(a.ts, '5 minutes')"
)
#: Condition of both joins, in DuckDB's SQL.
NEAR = "a.k = b.k AND abs(epoch_us(a.ts) - epoch_us(b.ts)) <= 600000000"


class Feeder:
    """Writes input files whose event times advance by a minute each."""

    def __init__(self, live: LivePipeline, folder: Path) -> None:
        self._live, self._folder, self._rng = live, folder, Random(7)
        self.files = self.rows = 0
        for name in "ab":
            (folder / name).mkdir()
            live.client.create_stream(
                name,
                (("k", "bigint"), ("v", "int"), ("ts", "timestamp")),
                event_time="ts",
                lateness="1 minute",
                source={"format": "parquet", "path": str(folder / name)},
            )

    def drop(self, rows: int = 40) -> None:
        """Write a file for each stream."""
        for name in "ab":
            times = [
                START + timedelta(seconds=60 * self.files + self._rng.randrange(60))
                for _ in range(rows)
            ]
            table = pa.table(
                {
                    # Half of the keys of ``a`` do not occur in ``b``.
                    "k": pa.array(
                        [self._rng.randrange(24 if name == "a" else 12) for _ in range(rows)],
                        pa.int64(),
                    ),
                    "v": pa.array(range(self.rows, self.rows + rows), pa.int32()),
                    "ts": pa.array(sorted(times), pa.timestamp("us", tz="UTC")),
                }
            )
            path = self._folder / name / f"{self.files:06d}.parquet"
            pq.write_table(table, path.with_suffix(".part"))
            path.with_suffix(".part").rename(path)
        self.files, self.rows = self.files + 1, self.rows + rows

    def drop_slowly(self) -> None:
        """Write files slowly, so that each gets a batch."""
        self.drop()
        time.sleep(0.3)

    def drop_until_rationed(self) -> bool:
        """Write files; return whether a batch has withheld results meanwhile."""
        self.drop_slowly()
        return bool(self._live.progress().rationing.rations)

    def has_read(self) -> bool:
        """Whether all files have been read."""
        streams = self._live.progress().streams
        return all(streams.get(n, {}).get("input", 0) >= self.rows for n in "ab")


def database(folder: Path) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB database with the rows of both streams."""
    connection = duckdb.connect()
    for name in "ab":
        files = folder / name / "*.parquet"
        connection.execute(f"CREATE VIEW {name} AS FROM read_parquet('{files}')")
    return connection


def results(live: LivePipeline, query: str) -> list[tuple[object, ...]]:
    """Return the rows in a query's result files, sorted; [] before the first file."""
    files = sorted(str(f) for f in (live.results / query).glob("*.parquet"))
    return sorted(duckdb.read_parquet(files).fetchall()) if files else []


def view_rows(folder: Path) -> list[tuple[object, ...]]:
    """Return the rows of the view :data:`SUMS`, computed from the changes in its files, sorted."""
    files = [str(f) for f in sorted(folder.glob("*.parquet"))]
    newest = "row_number() OVER (PARTITION BY begin ORDER BY anabranch_version DESC) AS nth"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.execute(
            f"SELECT begin, pairs, total FROM (SELECT *, {newest} FROM read_parquet(?)) "
            "WHERE nth = 1 AND anabranch_change = 'upsert'",
            [files],
        ).fetchall()
    return sorted((b.astimezone(UTC), n, s) for b, n, s in rows)
