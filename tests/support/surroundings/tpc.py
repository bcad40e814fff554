"""Data and queries of TPC-H and TPC-DS from DuckDB's extensions. These exist for an older DuckDB,
which is installed in addition and runs in a separate process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

#: The version of DuckDB for which the extensions exist.
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
    """TPC-H or TPC-DS: its queries by number, in DuckDB's dialect, and a folder of
    Parquet files.
    """

    queries: dict[int, str]
    folder: Path


def library(folder: Path, *packages: str) -> Path:
    """Install the older DuckDB and its extensions into ``folder``, and return the folder.

    Raises:
        subprocess.CalledProcessError: the packages can't be installed.
    """
    wanted = [f"duckdb=={VERSION}", *(f"{package}=={VERSION}" for package in packages)]
    if not all((folder / package.replace("-", "_")).exists() for package in packages):
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input"]
        subprocess.run([*pip, "--target", str(folder), *wanted], check=True, capture_output=True)
    return folder


def workload(name: str, folder: Path, scale: float = 0.01) -> Workload:
    """Return ``"tpch"`` or ``"tpcds"`` at ``scale``; its files are generated in ``folder`` unless
    they exist.

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
