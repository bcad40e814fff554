"""TPC's data and queries, from DuckDB's extensions: these are wheels of an older DuckDB, which is
installed beside the one in use and runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

#: The DuckDB that there are extensions for.
VERSION = "1.5.5"
_GENERATORS = {"tpch": "dbgen", "tpcds": "dsdgen"}
_GENERATE = """
import importlib, json, pathlib, sys
import duckdb
name, generator, scale, folder = sys.argv[1:]
module = importlib.import_module(f"duckdb_extension_{name}")
extension, = pathlib.Path(module.__file__).parent.rglob(f"{name}.duckdb_extension")
db = duckdb.connect(config={"allow_unsigned_extensions": True})
db.execute("SET autoinstall_known_extensions = false")
db.load_extension(str(extension))
db.execute(f"CALL {generator}(sf = {scale})")
for table, in db.execute("SELECT table_name FROM duckdb_tables()").fetchall():
    db.execute(f"COPY {table} TO '{folder}/{table}.parquet'")
queries = db.execute(f"SELECT query_nr, query FROM {name}_queries()").fetchall()
(pathlib.Path(folder) / "queries.json").write_text(json.dumps(dict(queries)))
"""


@dataclass(frozen=True, slots=True)
class Workload:
    """One of TPC's: its queries by number, in DuckDB's dialect, and a folder of Parquet files."""

    queries: dict[int, str]
    folder: Path


def library(folder: Path, *packages: str) -> Path:
    """``folder``, with the older DuckDB and its extensions in it.

    Raises:
        subprocess.CalledProcessError: they can't be installed.
    """
    wanted = [f"duckdb=={VERSION}", *(f"{package}=={VERSION}" for package in packages)]
    if not all((folder / package.replace("-", "_")).exists() for package in packages):
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input"]
        subprocess.run([*pip, "--target", str(folder), *wanted], check=True, capture_output=True)
    return folder


def workload(name: str, folder: Path, scale: float = 0.01) -> Workload:
    """``"tpch"`` or ``"tpcds"`` at ``scale``, made in ``folder`` if it is not there.

    Raises:
        subprocess.CalledProcessError: DuckDB's extension can't be installed, or fails.
    """
    tables = folder / f"{name}-{scale:g}"
    if not (tables / "queries.json").exists():
        path = library(folder / f"lib-{name}", f"duckdb-extension-{name}")
        tables.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [sys.executable, "-c", _GENERATE, name, _GENERATORS[name], str(scale), str(tables)],
            env={**os.environ, "PYTHONPATH": str(path)},
            check=True,
            capture_output=True,
        )
    found = json.loads((tables / "queries.json").read_text())
    return Workload({int(number): text for number, text in found.items()}, tables)
