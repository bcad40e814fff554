"""The demo's input: seven shuffled TPC-H tables, and five foreign-key joins over the same relations
as the queries of CLASH's experiment (Figure 7a).

``tpchgen-cli`` makes the tables. The demo keeps their keys and the attributes that queries are
likely to use; comments, addresses and phone numbers are left out. Rows are shuffled with a fixed
seed, so that matching rows arrive far apart and in any order.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_client.errors import ProcessError
from anabranch_client.replay.scenario import RecordedStream
from anabranch_client.rest.types import spark_type

TABLES: dict[str, tuple[str, ...]] = {
    "region": ("r_regionkey", "r_name"),
    "nation": ("n_nationkey", "n_name", "n_regionkey"),
    "supplier": ("s_suppkey", "s_name", "s_nationkey", "s_acctbal"),
    "part": ("p_partkey", "p_name", "p_brand", "p_type", "p_size", "p_retailprice"),
    "partsupp": ("ps_partkey", "ps_suppkey", "ps_availqty", "ps_supplycost"),
    "orders": (
        "o_orderkey", "o_custkey", "o_orderstatus", "o_totalprice", "o_orderdate",
        "o_orderpriority",
    ),
    "lineitem": (
        "l_orderkey", "l_partkey", "l_suppkey", "l_linenumber", "l_quantity",
        "l_extendedprice", "l_discount", "l_shipdate", "l_shipmode",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DemoQuery:
    """A query of the demo in parts, so that the oracle can add conditions.

    Attributes:
        select: the SELECT list.
        source: the FROM clause with all joins; every table's alias is its own name.
        tables: the tables of the FROM clause.
    """

    name: str
    select: str
    source: str
    tables: tuple[str, ...]

    @property
    def sql(self) -> str:
        """The whole SQL statement."""
        return f"SELECT {self.select} FROM {self.source}"


_LINEITEM_OF_PARTSUPP = "JOIN lineitem ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey"

QUERIES = (
    DemoQuery(
        "q1",
        "r_name, n_name, s_suppkey, s_name, ps_partkey, ps_supplycost",
        "region JOIN nation ON n_regionkey = r_regionkey "
        "JOIN supplier ON s_nationkey = n_nationkey "
        "JOIN partsupp ON ps_suppkey = s_suppkey",
        ("region", "nation", "supplier", "partsupp"),
    ),
    DemoQuery(
        "q2",
        "n_name, s_suppkey, s_acctbal, p_partkey, p_brand, ps_supplycost",
        "nation JOIN supplier ON s_nationkey = n_nationkey "
        "JOIN partsupp ON ps_suppkey = s_suppkey "
        "JOIN part ON p_partkey = ps_partkey",
        ("nation", "supplier", "partsupp", "part"),
    ),
    DemoQuery(
        "q3",
        "s_name, p_name, ps_supplycost, l_orderkey, l_linenumber, l_extendedprice",
        "supplier JOIN partsupp ON ps_suppkey = s_suppkey "
        f"JOIN part ON p_partkey = ps_partkey {_LINEITEM_OF_PARTSUPP}",
        ("supplier", "partsupp", "part", "lineitem"),
    ),
    DemoQuery(
        "q4",
        "s_suppkey, ps_availqty, l_linenumber, l_shipdate, o_orderkey, o_orderdate",
        f"supplier JOIN partsupp ON ps_suppkey = s_suppkey {_LINEITEM_OF_PARTSUPP} "
        "JOIN orders ON o_orderkey = l_orderkey",
        ("supplier", "partsupp", "lineitem", "orders"),
    ),
    DemoQuery(
        "q5",
        "p_type, ps_suppkey, l_quantity, l_linenumber, o_orderkey, o_totalprice",
        f"part JOIN partsupp ON ps_partkey = p_partkey {_LINEITEM_OF_PARTSUPP} "
        "JOIN orders ON o_orderkey = l_orderkey",
        ("part", "partsupp", "lineitem", "orders"),
    ),
)


def generate(
    folder: Path,
    scale: float,
    batches: int,
    seed: int = 7,
    tables: Mapping[str, tuple[str, ...]] = TABLES,
) -> tuple[RecordedStream, ...]:
    """Write the shuffled tables to ``folder``, and describe them as streams of ``batches`` batches.

    Every stream that has enough rows is spread over all batches.

    Args:
        folder: folder for the files.
        scale: TPC-H's scale factor.
        batches: number of batches of the streams.
        seed: seed of the random order of rows.
        tables: name -> columns to keep.

    Raises:
        ProcessError: the generator is missing or fails.
    """
    raw = folder / "raw"
    _run_generator(raw, scale, tables)
    streams = []
    for position, (table, columns) in enumerate(tables.items()):
        rows = _shuffled(raw / f"{table}.parquet", columns, seed + position)
        path = folder / f"{table}.parquet"
        pq.write_table(rows, path)
        streams.append(
            RecordedStream(
                name=table,
                path=path,
                rows_per_batch=max(1, math.ceil(rows.num_rows / batches)),
                rows=rows.num_rows,
                columns=tuple((c.name, str(spark_type(c.type))) for c in rows.schema),
            )
        )
    shutil.rmtree(raw)
    return tuple(streams)


def _run_generator(folder: Path, scale: float, tables: Iterable[str]) -> None:
    beside = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    program = str(beside) if beside.is_file() else shutil.which("tpchgen-cli")
    if program is None:
        raise ProcessError("tpchgen-cli is not installed", remedy="install the package tpchgen-cli")
    argv = [
        *(program, "parquet", "--quiet", "--no-progress", "--scale-factor", str(scale)),
        *("--tables", ",".join(tables), "--output-dir", str(folder)),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProcessError(
            f"tpchgen-cli failed with exit code {done.returncode}: {done.stderr.strip()}",
            remedy="is the scale factor positive, and the disk not full?",
        )


def _shuffled(path: Path, columns: tuple[str, ...], seed: int) -> pa.Table:
    """The columns with rows in random order, and strings in the most common Arrow layout."""
    table = pq.read_table(path, columns=list(columns))
    table = pa.table(
        {
            column.name: table[column.name].cast(pa.string())
            if pa.types.is_string_view(column.type)
            else table[column.name]
            for column in table.schema
        }
    )
    order = np.random.default_rng(seed).permutation(table.num_rows)
    return table.take(pa.array(order))
