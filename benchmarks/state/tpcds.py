"""TPC-DS data for the multi-way join of the UMJoin and dpPick papers, and its number of results.

DuckDB's extension that generates TPC-DS is on PyPI for an older DuckDB than the pinned one, so both
are installed into the cache's folder and run in a separate process. Each table is written to
Parquet in a random order, the same for the same scale.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.report.figures import tell
from benchmarks.umjoin.operators.joins import Equality, Input, Join
from tests.support.surroundings.tpc import library

#: Table -> its join column, which is equal in all tables.
TABLES = {
    "customer": "c_current_addr_sk",
    "catalog_returns": "cr_refunded_addr_sk",
    "store_returns": "sr_addr_sk",
    "web_returns": "wr_refunded_addr_sk",
}
_SEED = 7
_GENERATE = """
import pathlib, sys
import duckdb, duckdb_extension_tpcds
folder, scale, seed, *tables = sys.argv[1:]
extension, = pathlib.Path(duckdb_extension_tpcds.__file__).parent.rglob("tpcds.duckdb_extension")
db = duckdb.connect(config={"allow_unsigned_extensions": True})
db.execute("SET autoinstall_known_extensions = false")
db.execute("SET threads = 1")
db.load_extension(str(extension))
db.execute(f"CALL dsdgen(sf = {scale})")
for table in tables:
    path = pathlib.Path(folder) / f"{table}.parquet"
    db.execute(
        f"COPY (SELECT * FROM {table} ORDER BY hash(rowid + {seed}), rowid) "
        f"TO '{path}.partial' (FORMAT parquet, ROW_GROUP_SIZE 65536)"
    )
    pathlib.Path(f"{path}.partial").rename(path)
"""


def data(scale: float, cache: Path, tables: Iterable[str] = TABLES) -> Path:
    """Return the folder of some tables at ``scale``; tables missing in the cache are generated.

    Raises:
        subprocess.CalledProcessError: the packages can't be installed, or generating failed.
    """
    folder = cache / f"sf{scale:g}"
    lacking = [table for table in tables if not (folder / f"{table}.parquet").exists()]
    if not lacking:
        return folder
    tell(f"installing DuckDB's extension in {cache}")
    path = library(cache / "lib", "duckdb-extension-tpcds")
    tell(f"generating TPC-DS at scale {scale:g}")
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, "-c", _GENERATE, str(folder), str(scale), str(_SEED), *lacking],
        env={**os.environ, "PYTHONPATH": str(path)},
        check=True,
        # DuckDB writes a progress bar to standard output, which is for figures.
        stdout=subprocess.DEVNULL,
    )
    return folder


def join_of(folder: Path) -> Join:
    """Return the join over the tables in ``folder``."""
    first, *others = TABLES
    return Join(
        tuple(Input(t, pq.read_schema(folder / f"{t}.parquet").remove_metadata()) for t in TABLES),
        tuple(Equality((first, TABLES[first]), (t, TABLES[t])) for t in others),
    )


def expected(folder: Path) -> int:
    """Return the number of results as counted by DuckDB; it is cached."""
    known = folder / "results.json"
    if not known.exists():
        names = ", ".join(f"'{folder / t}.parquet' AS {t}" for t in TABLES)
        first, *others = TABLES
        equal = " AND ".join(f"{first}.{TABLES[first]} = {t}.{TABLES[t]}" for t in others)
        with duckdb.connect() as db:
            found = db.execute(f"SELECT count(*) FROM {names} WHERE {equal}").fetchone()
        assert found is not None
        known.write_text(json.dumps(found[0]))
    return int(json.loads(known.read_text()))


def rows_of(folder: Path) -> dict[str, int]:
    """Return table -> number of its rows."""
    return {t: pq.read_metadata(folder / f"{t}.parquet").num_rows for t in TABLES}


def batches(folder: Path, rows: int) -> Iterator[dict[str, pa.RecordBatch]]:
    """Yield all tables in batches of about ``rows`` tuples, with the same share of every table."""
    counts = rows_of(folder)
    number = max(1, round(sum(counts.values()) / rows))
    readers = {t: _cut(folder / f"{t}.parquet", counts[t], number) for t in TABLES}
    for _ in range(number):
        yield {t: next(reader) for t, reader in readers.items()}


def _cut(path: Path, count: int, number: int) -> Iterator[pa.RecordBatch]:
    """Yield a table in ``number`` nearly equal parts, with a few row groups in memory at a time."""
    file = pq.ParquetFile(path, memory_map=False, pre_buffer=False)
    schema = file.schema_arrow.remove_metadata()
    groups = file.iter_batches(batch_size=1 << 14, use_threads=False)
    held = pa.Table.from_batches([], schema=schema)
    for i in range(number):
        wanted = count * (i + 1) // number - count * i // number
        while held.num_rows < wanted:
            more = pa.Table.from_batches([next(groups)]).replace_schema_metadata(None)
            held = pa.concat_tables([held, more])
        piece = held.slice(0, wanted).combine_chunks()
        held = held.slice(wanted)
        found = piece.to_batches()
        yield found[0] if found else pa.RecordBatch.from_pylist([], schema=schema)
